"""Tables "KDD12.sub" and "KDD12" of the paper: the same rows on more and more workers.

    python -m benchmarks.paper.scaling [--data FOLDER] [--quick] [--workers 1,2,4,8,16] [--scaling-sizes 64]
        [--kdd12-workers 4,8,16] [--kdd12-rows 12000000] [--scaling-rows N] [--scaling-seconds 10] [--peer-seconds 300]

Workers are processes of this machine, each in a network namespace of its own, so that its bytes can be counted (see
benchmarks.network): Linux, root and iproute2 are needed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from benchmarks.network.learners import A_ROUND, KINDS, at_work, told
from benchmarks.network.namespaces import missing
from benchmarks.paper.cells import Cell
from benchmarks.paper.experiment import Experiment, Plan
from benchmarks.paper.given import chosen, number, numbers
from benchmarks.paper.scaling.paper import KDD12_ALL_FEATURES
from benchmarks.paper.scaling.picture import draw
from benchmarks.paper.scaling.tables import KDD12, tables
from benchmarks.paper.sources import QUICK_ROWS, sources
from benchmarks.speed.data import KDD12_FEATURES, Source, clicks

TEXT = """The paper: Spark on 4 to 64 machines, KDD12.sub, and GBUN alone on all of KDD12, which neither peer could
hold, on 16 to 96. Here: 1 to 16 workers of one thread, the rows divided among them (row i belongs to worker i mod S),
LightGBM (tree_learner=data) and XGBoost (hist, lossguide) through their own connections. KDD12.sub is generated in the
paper's shape, book_crossing is real. KDD12 has the paper's features and as many generated rows as memory allows: its
seconds are not to be compared with the paper's, whose rows are 150 million. The peers are tried on it too.

The workers share this machine's cores, so seconds of a round say little of many machines. Computation is therefore
measured apart: "busiest cpu s" are the seconds of a core that the busiest worker uses in a round, "waiting s" the rest
of the round, for others, for the network, and for a core. "A core each s" is what a round would take where every worker
has a core of its own: the busiest worker's computation plus its bytes over 1 GB/s, one after the other and without
delay of the network, which spares the peers, whose rounds have many more steps."""

WHOLE = {"workers": [1, 2, 4, 8, 16], "scaling_sizes": [64], "scaling_seconds": 10.0, "peer_seconds": 300.0}
WHOLE |= {"kdd12_workers": [4, 8, 16], "kdd12_rows": 12_000_000, "kdd12_peers": ("LightGBM", "XGBoost")}
WHOLE |= {"kdd12_features": KDD12_ALL_FEATURES}
QUICK = {"workers": [2], "scaling_sizes": [16], "scaling_seconds": 0.5, "peer_seconds": 60.0}
QUICK |= {"kdd12_workers": [2], "kdd12_rows": QUICK_ROWS, "kdd12_peers": (), "kdd12_features": KDD12_FEATURES}


def options(parser: argparse.ArgumentParser) -> None:
    own = parser.add_argument_group("scaling")
    own.add_argument("--workers", type=numbers(), help="numbers of workers, 1,2,4,8,16 by default")
    own.add_argument("--scaling-sizes", type=numbers(least=2), help="K or leaves, 64 by default")
    own.add_argument("--scaling-rows", type=number(), help="the first rows of each set only; all by default")
    own.add_argument("--scaling-seconds", type=number(float, 0.1), help="of rounds in each cell, 10 by default")
    own.add_argument("--kdd12-workers", type=numbers(), help="4,8,16 by default")
    own.add_argument("--kdd12-rows", type=number(), help="12,000,000 by default")
    own.add_argument("--peer-seconds", type=number(float), help="for a peer to be set up on KDD12, 300 by default")


def cells(plan: Plan) -> Sequence[Cell]:
    given = chosen(plan, WHOLE, QUICK)
    found = [
        _cell(data, source, about, learner, size, n_workers, given.scaling_seconds, A_ROUND)
        for data, (source, about) in sources(plan.data, plan.quick, given.scaling_rows).items()
        for size in given.scaling_sizes
        for n_workers in given.workers
        for learner in KINDS  # one after the other, so that they meet the machine alike
    ]
    return [*found, *_kdd12(given)]


def _kdd12(given: argparse.Namespace) -> Iterator[Cell]:
    """GBUN by the number of workers; the peers on the most, where each has the least to hold."""
    source = clicks(given.kdd12_rows, given.kdd12_features, KDD12)
    about = {"rows": given.kdd12_rows, "features": given.kdd12_features}
    for size in given.scaling_sizes:
        for n_workers in given.kdd12_workers:
            yield _cell(KDD12, source, about, "GBUN", size, n_workers, given.scaling_seconds, A_ROUND)
        for learner in given.kdd12_peers:
            most = max(given.kdd12_workers)
            yield _cell(KDD12, source, about, learner, size, most, given.scaling_seconds, given.peer_seconds)


def _cell(
    data: str, source: Source, about: dict[str, Any], learner: str, size: int, n_workers: int, seconds: float,
    within: float,
) -> Cell:  # fmt: skip
    settings = {"data": data, **about, "learner": learner, "size": size, "workers": n_workers}
    settings |= {"seconds": seconds, "within": within, "no hosts": missing()}
    run = partial(measured, learner, source, size, n_workers, seconds, within)
    guess = 60.0 if data != KDD12 else 120.0 if learner == "GBUN" else within
    return Cell(f"{data}, {learner}, {size}, {n_workers} workers", settings, run, guess)


def measured(learner: str, source: Source, size: int, n_workers: int, seconds: float, within: float) -> dict[str, Any]:
    """Rounds without a limit of the network."""
    with at_work(learner, source, size, n_workers, within) as team:
        return {"setup s": team.setup, **told(team.measure(None, team.a_round, seconds))}


EXPERIMENT = Experiment("scaling", "More workers", TEXT, cells, tables, draw, options)
