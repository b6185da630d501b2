"""The paper's table of time costs: seconds of a boosting round, mean and deviation.

    python -m benchmarks.paper.rounds --data FOLDER [--round-sets letter,aloi] [--round-seconds 10] [--round-size 256]
    python -m benchmarks.paper.rounds --quick

A cell is a set. Learners have models of the same size, K outputs or K leaves, live in a process each and take turns,
a round each, until they have used up their seconds.
"""

from __future__ import annotations

from benchmarks.paper.experiment import Experiment
from benchmarks.paper.rounds.plan import cells, options
from benchmarks.paper.rounds.tables import draw, tables

TEXT = """\
The paper gives the mean and the deviation of the seconds of 300 rounds, with settings tuned for each learner, on 24
cores and a graphics card. Here gbun begins with a constant, as there, and has K outputs, LightGBM K leaves and
XGBoost trees of depth log2 K, on the threads that are given and without a graphics card. Learners take turns, a
round each, for the same seconds or 300 rounds, three at least. The first two rounds, in which they build structures,
are not among them; the first is told. Who needs more memory than a third of the machine's is measured alone after
the others. Seconds compare within a row, not with the paper's: its machine, its settings and some of the sets are
others (epsilon here is 4,000 rows of 100 columns). With C classes trees grow C a round, gbun adds one network with C
columns to its head."""

EXPERIMENT = Experiment("rounds", "Time per round", TEXT, cells, tables, draw, options)
