"""The paper's experiments, each by one command, with the peers beside us and the paper's figures beside both.

    python -m benchmarks.paper.accuracy      --data FOLDER    Table 1 and the figure of convergence
    python -m benchmarks.paper.rounds        --data FOLDER    seconds of a round
    python -m benchmarks.paper.scaling       --data FOLDER    1 to 16 workers, and 54 million features
    python -m benchmarks.paper.bandwidth     --data FOLDER    16 hosts behind slow links
    python -m benchmarks.paper.uniformity                     whether hashed weights are uniform
    python -m benchmarks.paper.classes                        what classes cost, 10 to 1000
    python -m benchmarks.paper               --data FOLDER    all of them, and one report in HTML

An experiment is made of cells (`cells.py`). What a cell has found is kept in results/paper/EXPERIMENT.json and not
measured again while its settings and the versions of its packages are the same. --again measures all anew, --again
failed what failed as a whole or in part; the file is kept as EXPERIMENT.old.json then, and a run that is cut short goes
on without --again. --quick is a tiny form on generated rows that needs no FOLDER.
"""
