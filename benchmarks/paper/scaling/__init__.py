"""Tables "KDD12.sub" and "KDD12" of the paper: the same rows on more and more workers.

    python -m benchmarks.paper.scaling [--data FOLDER] [--quick] [--workers 1,2,4,8,16] [--scaling-sizes 64,1024]
        [--kdd12-workers 4,16] [--kdd12-rows N] [--scaling-rows N] [--scaling-seconds 5]

Workers are processes of this machine, each in a network namespace of its own, so that its bytes can be counted (see
benchmarks.network): Linux, root and iproute2 are needed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from benchmarks.network.learners import A_ROUND, KINDS, Team, at_work, settings, told
from benchmarks.network.namespaces import missing
from benchmarks.network.parameters import MODULES, PACKAGES
from benchmarks.paper.cells import Cell
from benchmarks.paper.experiment import Experiment, Plan, memory
from benchmarks.paper.given import chosen, number, numbers
from benchmarks.paper.scaling.paper import KDD12_ALL_FEATURES, KDD12_ALL_ROWS
from benchmarks.paper.scaling.picture import draw
from benchmarks.paper.scaling.tables import KDD12, tables
from benchmarks.paper.sources import QUICK_ROWS, REAL, Rows, missing_of, seeds_of, sources
from benchmarks.speed.data import KDD12_FEATURES, Source, clicks
from benchmarks.speed.timing import Failed

TEXT = """The paper: Spark on 4 to 64 machines, KDD12.sub, and GBUN alone on all of KDD12, which neither peer could
hold, on 16 to 96. Here: 1 to 16 workers of one thread, the rows divided among them (row i belongs to worker i mod S),
LightGBM (tree_learner=data) and XGBoost (hist, level by level: 6 levels for 64 leaves, 10 for 1024) through their own
connections. KDD12.sub is generated in the paper's shape, book_crossing is real. KDD12 has the paper's features and as
many generated rows as this machine's memory allows: its seconds are not to be compared with the paper's, whose rows
are 150 million. The peers are tried on it too, on one worker and on the most, with the same ten minutes as GBUN to be
set up and for a first round. To keep the whole short, a cell has rounds of about 5 seconds, of GBUN 5 rounds and of a
peer one at least; 1024 is measured on KDD12.sub only, on 1, 4 and 16 workers, book_crossing on 1 and 16, KDD12 on 4
and 16.

The workers share this machine's cores, so seconds of a round say little of many machines. Computation is therefore
measured apart: "busiest cpu s" are the seconds of a core that the busiest worker uses in a round, "waiting s" the rest
of the round, for others, for the network, and for a core. "A core each s" is what a round would take where every
worker has a core of its own: the busiest worker's computation plus its bytes over 1 GB/s, one after the other and
without delay of the network, which spares the peers, whose rounds have many more steps. "Deviation s" is that of
single rounds; GBUN tells of its rounds late and in bunches, so its own is more than it should be."""

WHOLE = {"workers": [1, 2, 4, 8, 16], "scaling_sizes": [64, 1024], "scaling_seconds": 5.0}
WHOLE |= {"kdd12_workers": [4, 16], "kdd12_rows": None, "kdd12_peers": ("LightGBM", "XGBoost")}
WHOLE |= {"kdd12_features": KDD12_ALL_FEATURES}
QUICK = {"workers": [2], "scaling_sizes": [16], "scaling_seconds": 0.5}
QUICK |= {"kdd12_workers": [2], "kdd12_rows": QUICK_ROWS, "kdd12_peers": (), "kdd12_features": KDD12_FEATURES}
A_ROW, STEP = 1900, 4_000_000  # bytes of memory for a row of KDD12, on all workers together; rows


def options(parser: argparse.ArgumentParser) -> None:
    own = parser.add_argument_group("scaling")
    own.add_argument(
        "--workers",
        type=numbers(),
        help="numbers of workers, 1,2,4,8,16 by default; larger sizes and the real set have some of them",
    )
    own.add_argument("--scaling-sizes", type=numbers(least=2), help="K or leaves, 64,1024 by default")
    own.add_argument("--scaling-rows", type=number(), help="the first rows of each set only; all by default")
    own.add_argument("--scaling-seconds", type=number(float, 0.1), help="of rounds in each cell, 5 by default")
    own.add_argument("--kdd12-workers", type=numbers(), help="4,16 by default")
    own.add_argument("--kdd12-rows", type=number(), help="as many as memory allows by default")


def cells(plan: Plan) -> Sequence[Cell]:
    if why_not := missing():
        raise Failed(why_not)
    given = chosen(plan, WHOLE, QUICK)
    found = [
        _cell(data, rows, learner, size, n_workers, given.scaling_seconds)
        for data, rows in sources(plan.data, plan.quick, given.scaling_rows).items()
        for size in given.scaling_sizes
        for n_workers in _workers(data, size, given)
        for learner in KINDS  # one after the other, so that they meet the machine alike
    ]
    return [*found, *_kdd12(given)]


def _workers(data: str, size: int, given: argparse.Namespace) -> Sequence[int]:
    """All of them for what the paper's question is asked of first, some for the rest: see TEXT."""
    smallest = size == min(given.scaling_sizes)
    if data == REAL:
        return list(given.workers)[::4] if smallest else []
    return list(given.workers)[:: 1 if smallest else 2]


def _kdd12(given: argparse.Namespace) -> Iterator[Cell]:
    """GBUN by the number of workers; the peers on one, where nothing is held twice, and on the most."""
    n_rows = given.kdd12_rows or rows_that_fit(memory())
    size, most = min(given.scaling_sizes), max(given.kdd12_workers)
    rows = clicks(n_rows, given.kdd12_features, KDD12), {"rows": n_rows, "features": given.kdd12_features}
    for n_workers in given.kdd12_workers:
        yield _cell(KDD12, rows, "GBUN", size, n_workers, given.scaling_seconds)
    for learner in given.kdd12_peers:
        for n_workers in (1, most):
            yield _cell(KDD12, rows, learner, size, n_workers, given.scaling_seconds)


def rows_that_fit(n_bytes: int) -> int:
    """
    >>> rows_that_fit(24 * 10**9), rows_that_fit(2 * 10**9)
    (12000000, 1000000)
    """
    return max(1_000_000, min(KDD12_ALL_ROWS, n_bytes // A_ROW // STEP * STEP))


def _cell(data: str, rows: Rows, learner: str, size: int, n_workers: int, seconds: float) -> Cell:
    source, about = rows
    own = {"data": data, **about, "workers": n_workers, "seconds": seconds, **settings(learner, size, n_workers)}
    run = partial(measured, learner, source, size, n_workers, seconds)
    guess = 120.0 if data == KDD12 or size > 64 else 40.0
    name, needed = f"{data}, {learner}, {size}, {n_workers} workers", [MODULES[learner]]
    return Cell(name, own, run, guess, PACKAGES[learner], needed, seeds_of(data, learner), missing_of(data, rows))


def measured(
    learner: str, source: Source, size: int, n_workers: int, seconds: float, within: float = A_ROUND
) -> dict[str, Any]:
    with at_work(learner, source, size, n_workers, within) as team:
        return unlimited(team, seconds)


def unlimited(team: Team, seconds: float) -> dict[str, Any]:
    """Rounds without a limit of the network."""
    return {"setup s": team.setup, **told(team.measure(None, team.a_round, seconds)), **team.grown()}


EXPERIMENT = Experiment("scaling", "More workers", TEXT, cells, tables, draw, options)
