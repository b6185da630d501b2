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
from benchmarks.paper.sources import numbers, sources

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

QUICK_BANDWIDTHS = ("1MB", "100KB")  # XGBoost is measured at the one and extrapolated at the other
GUESSES = {("GBUN", 64): 60, ("GBUN", 1024): 350, ("LightGBM", 64): 150, ("LightGBM", 1024): 300, ("XGBoost", 64): 330}


def options(parser: argparse.ArgumentParser) -> None:
    own = parser.add_argument_group("bandwidth")
    own.add_argument("--hosts", type=int, default=None, help=f"{HOSTS} by default")
    own.add_argument("--bandwidths", type=numbers(_rate, 0), help=f"bytes a second, {','.join(BANDWIDTHS)} by default")
    own.add_argument("--bandwidth-sizes", type=numbers(least=2), help="K or leaves, 64,1024 by default")
    own.add_argument("--bandwidth-rows", type=int, help="the first rows of each set only; all by default")
    own.add_argument("--bandwidth-seconds", type=float, help="of rounds at each bandwidth, 10 by default")
    own.add_argument("--most-seconds-a-cell", type=float, help="a longer round is extrapolated; 120 by default")


def cells(plan: Plan) -> Sequence[Cell]:
    given = plan.given
    n_hosts = given.hosts or (2 if plan.quick else HOSTS)
    if n_hosts < 2:
        raise SystemExit(f"--hosts must be at least 2, got {n_hosts}")
    sizes = given.bandwidth_sizes or ([FEW_LEAVES] if plan.quick else [64, 1024])
    bandwidths = [
        words(b) for b in given.bandwidths or map(bandwidth_of, QUICK_BANDWIDTHS if plan.quick else BANDWIDTHS)
    ]
    limits = Limits(
        given.bandwidth_seconds or (0.5 if plan.quick else 10.0),
        given.most_seconds_a_cell or (5.0 if plan.quick else 120.0),
    )
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
