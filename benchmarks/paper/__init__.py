"""The paper's experiments, each by one command, beside the peers and the paper's figures.

    python -m benchmarks.paper.accuracy      --data FOLDER    Table 1 and the figure of convergence
    python -m benchmarks.paper.rounds        --data FOLDER    seconds of a round
    python -m benchmarks.paper.scaling       --data FOLDER    1 to 16 workers, and 54 million features
    python -m benchmarks.paper.bandwidth     --data FOLDER    16 hosts behind slow links
    python -m benchmarks.paper.uniformity                     whether hashed weights are uniform
    python -m benchmarks.paper.classes                        what classes cost, 10 to 1000
    python -m benchmarks.paper               --data FOLDER    all of them, and one report in Markdown

An experiment is a script with an `EXPERIMENT`, and is made of cells (benchmarks/cells.py). Results are kept in
results/paper/EXPERIMENT.json, and a cell is not measured again while its settings and package versions are the same.
--again measures everything again; the old file is kept as EXPERIMENT.old.json, and an interrupted run continues without
--again. To measure a few cells again, delete their entries in EXPERIMENT.json. --quick is a tiny form on generated rows
that needs no FOLDER. docs/benchmarks has summaries of the results, without what single test rows contribute to a score.
"""
