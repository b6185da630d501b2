"""Table "bandwidth" of the paper: 16 hosts behind slow links.

    python -m benchmarks.paper.bandwidth [--data FOLDER] [--quick] [--bandwidths 1GB,100MB,10MB,1MB,100KB]
        [--hosts 16] [--bandwidth-sizes 64,1024] [--bandwidth-rows N] [--bandwidth-seconds 10]
        [--most-seconds-a-cell 120]

Hosts are network namespaces of this machine (see benchmarks.network): Linux, root and iproute2 are needed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

from benchmarks.network.hosts import bucket
from benchmarks.network.learners import KINDS
from benchmarks.network.measure import bandwidth_of, words
from benchmarks.network.namespaces import missing
from benchmarks.paper.bandwidth.measure import Limits, by_bandwidth
from benchmarks.paper.bandwidth.paper import BANDWIDTHS, HOSTS
from benchmarks.paper.bandwidth.picture import draw
from benchmarks.paper.bandwidth.tables import FEW_LEAVES, tables
from benchmarks.paper.cells import Cell
from benchmarks.paper.experiment import Experiment, Plan
from benchmarks.paper.given import chosen, number, numbers
from benchmarks.paper.sources import sources

TEXT = """The paper: Spark on 16 machines, KDD12.sub, the bandwidth of each limited from 1 GB/s to 100 KB/s, 64 and 1024
outputs or leaves, seconds of a round. Here: 16 hosts that are network namespaces of one machine, each with an interface
of that bandwidth both ways and one thread; row i belongs to host i mod 16. GBUN goes through its own collective
(float32), XGBoost (hist, lossguide) through its tracker and collective, LightGBM (tree_learner=data, its bundles of
features and the rest by default) through its sockets. Bytes are those of the interfaces' counters. KDD12.sub is
generated in the paper's shape; book_crossing is real and has twice the features.

All hosts share the cores of this machine, so a round without a limit is bound by computation that 16 machines would
share out: "network s" is what a limit adds to it, "a core each s" is the computation of the busiest host plus its bytes
over the bandwidth. There is no delay but that of queues, which spares the peers, whose rounds have many more steps. A
cell whose round would take more than --most-seconds-a-cell is extrapolated: seconds without a limit plus the bytes of
the busiest host over the bandwidth; measured cells show the same figure beside theirs. XGBoost holds histograms of all
features for all nodes of a tree, on 16 hosts more than this machine has: trees of 16 leaves are measured too, and where
larger ones fail they are extrapolated from these in proportion to their leaves, and marked."""

WHOLE = {"hosts": HOSTS, "bandwidth_sizes": [64, 1024], "bandwidth_seconds": 10.0, "most_seconds_a_cell": 120.0}
WHOLE |= {"bandwidths": [bandwidth_of(told) for told in BANDWIDTHS]}
QUICK = {"hosts": 2, "bandwidth_sizes": [FEW_LEAVES], "bandwidth_seconds": 0.5, "most_seconds_a_cell": 5.0}
QUICK |= {"bandwidths": [1e6, 1e5]}  # XGBoost is measured at the one and extrapolated at the other
GUESSES = {("GBUN", 64): 60, ("GBUN", 1024): 350, ("LightGBM", 64): 150, ("LightGBM", 1024): 300, ("XGBoost", 64): 330}


def options(parser: argparse.ArgumentParser) -> None:
    own = parser.add_argument_group("bandwidth")
    own.add_argument("--hosts", type=number(least=2), help=f"{HOSTS} by default")
    own.add_argument("--bandwidths", type=numbers(_rate), help=f"bytes a second, {','.join(BANDWIDTHS)} by default")
    own.add_argument("--bandwidth-sizes", type=numbers(least=2), help="K or leaves, 64,1024 by default")
    own.add_argument("--bandwidth-rows", type=number(), help="the first rows of each set only; all by default")
    own.add_argument("--bandwidth-seconds", type=number(float, 0.1), help="of rounds at each bandwidth, 10 by default")
    own.add_argument("--most-seconds-a-cell", type=number(float), help="a longer round is extrapolated; 120 by default")


def cells(plan: Plan) -> Sequence[Cell]:
    given = chosen(plan, WHOLE, QUICK)
    n_hosts, sizes, bandwidths = given.hosts, given.bandwidth_sizes, [words(rate) for rate in given.bandwidths]
    limits = Limits(given.bandwidth_seconds, given.most_seconds_a_cell)
    found = []
    for data, (source, about) in sources(plan.data, plan.quick, given.bandwidth_rows).items():
        for learner in KINDS:
            for size in sorted({*sizes, FEW_LEAVES} if learner == "XGBoost" else sizes):
                settings: dict[str, Any] = {"data": data, **about, "learner": learner, "size": size, "hosts": n_hosts}
                settings |= {"bandwidths": bandwidths, "seconds": limits.seconds, "most seconds": limits.most}
                settings["no hosts"] = missing()  # where there were none, and now there are, it is measured
                run = partial(by_bandwidth, learner, source, size, n_hosts, bandwidths, limits)
                name = f"{data}, {learner}, {size}, {n_hosts} hosts"
                found.append(Cell(name, settings, run, GUESSES.get((learner, size), 180.0)))
    return found


def _rate(told: str) -> float:
    value = bandwidth_of(told)
    if value is None:
        raise ValueError("no limit is always measured")
    bucket(value)  # or an error
    return value


EXPERIMENT = Experiment("bandwidth", "Slow networks", TEXT, cells, tables, draw, options)
