"""Table "bandwidth" of the paper: 16 hosts behind slow links.

    python -m benchmarks.paper.bandwidth [--data FOLDER] [--quick] [--bandwidths 1GB,100MB,10MB,1MB,100KB]
        [--hosts 16] [--bandwidth-sizes 64,1024] [--bandwidth-rows N] [--bandwidth-seconds 5]
        [--most-seconds-a-cell 600]

Hosts are network namespaces of this machine (see benchmarks.network): Linux, root and iproute2 are needed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from benchmarks.network.learners import KINDS, settings
from benchmarks.network.measure import limit_of, words
from benchmarks.network.namespaces import missing
from benchmarks.network.parameters import MODULES, PACKAGES
from benchmarks.paper.bandwidth.measure import Limits, measured
from benchmarks.paper.bandwidth.paper import BANDWIDTHS, HOSTS
from benchmarks.paper.bandwidth.picture import draw
from benchmarks.paper.bandwidth.tables import tables
from benchmarks.paper.cells import Cell
from benchmarks.paper.experiment import Experiment, Plan
from benchmarks.paper.given import chosen, number, numbers
from benchmarks.paper.sources import Rows, missing_of, seeds_of, sources
from benchmarks.speed.timing import Failed

TEXT = """The paper: Spark on 16 machines, KDD12.sub, the bandwidth of each limited from 1 GB/s to 100 KB/s, 64 and 1024
outputs or leaves, seconds of a round. Here: 16 hosts that are network namespaces of one machine, each with an interface
of that bandwidth both ways and one thread; row i belongs to host i mod 16. GBUN goes through its own collective
(float32), XGBoost (hist, level by level: 6 levels for 64 leaves, 10 for 1024) through its tracker and collective,
LightGBM (tree_learner=data, its bundles of features and the rest by default) through its sockets. LightGBM's
tree_learner=voting, which sends less and grows other trees, is left out. LightGBM leaves out features that fewer rows
of a host have than a leaf needs, of both sets nearly all, and sends the less for it: the table of trees tells how many
it uses. Bytes are those of the interfaces' counters. KDD12.sub is generated in the paper's shape; book_crossing is
real and has twice the features. A place has rounds of about 5 seconds, of GBUN 5 rounds and of a peer one at least.

All hosts share the cores of this machine, so a round without a limit is bound by computation that 16 machines would
share out: "network s" is what a limit adds to it, "a core each s" is the computation of the busiest host plus its bytes
over the bandwidth. There is no delay but that of queues, which spares the peers, whose rounds have many more steps. A
cell whose round would take more than ten minutes (--most-seconds-a-cell) is extrapolated: seconds without a limit plus
the bytes of the busiest host over the bandwidth; measured cells show the same figure beside theirs. XGBoost's trees
stop where nothing is gained, so on book_crossing they have far fewer leaves than they may, and more in one round than
in another: where a measured cell takes longer than its extrapolation, extrapolated ones are too small. XGBoost holds
histograms of all features for all nodes of a tree. Where 16 hosts together do not fit into this machine, larger trees
are extrapolated from smaller ones, and marked: a worker alone grows trees of both sizes on all rows, and bytes are
multiplied by the ratio of the histograms that its trees have summed, computation by that of its seconds of a core."""

WHOLE = {"hosts": HOSTS, "bandwidth_sizes": [64, 1024], "bandwidth_seconds": 5.0, "most_seconds_a_cell": 600.0}
WHOLE |= {"bandwidths": [limit_of(told) for told in BANDWIDTHS]}
QUICK = {"hosts": 2, "bandwidth_sizes": [16], "bandwidth_seconds": 0.5, "most_seconds_a_cell": 5.0}
QUICK |= {"bandwidths": [1e6, 1e5]}  # XGBoost is measured at the one and extrapolated at the other
GUESSES = {("GBUN", 64): 60, ("LightGBM", 64): 200, ("XGBoost", 64): 560}
GUESSES |= {("GBUN", 1024): 530, ("LightGBM", 1024): 600, ("XGBoost", 1024): 120}


def options(parser: argparse.ArgumentParser) -> None:
    own = parser.add_argument_group("bandwidth")
    own.add_argument("--hosts", type=number(least=2), help=f"{HOSTS} by default")
    own.add_argument("--bandwidths", type=numbers(limit_of), help=f"bytes a second, {','.join(BANDWIDTHS)} by default")
    own.add_argument("--bandwidth-sizes", type=numbers(least=2), help="K or leaves, 64,1024 by default")
    own.add_argument("--bandwidth-rows", type=number(), help="the first rows of each set only; all by default")
    own.add_argument("--bandwidth-seconds", type=number(float, 0.1), help="of rounds at each bandwidth, 5 by default")
    own.add_argument("--most-seconds-a-cell", type=number(float), help="a longer round is extrapolated; 600 by default")


def cells(plan: Plan) -> Sequence[Cell]:
    if why_not := missing():
        raise Failed(why_not)
    given = chosen(plan, WHOLE, QUICK)
    bandwidths = [words(rate) for rate in given.bandwidths]
    limits = Limits(given.bandwidth_seconds, given.most_seconds_a_cell)
    sizes, found = sorted(given.bandwidth_sizes), []
    for data, rows in sources(plan.data, plan.quick, given.bandwidth_rows).items():
        found += [
            _cell(data, rows, learner, size, given.hosts, bandwidths, limits)
            for size in sizes
            for learner in KINDS  # one after the other, so that they meet the machine alike
        ]
        if len(sizes) > 1:  # for those that fail on all hosts
            found += [_cell(data, rows, "XGBoost", size, 1, [], limits) for size in sizes]
    return found


def _cell(
    data: str, rows: Rows, learner: str, size: int, n_hosts: int, bandwidths: Sequence[str], limits: Limits
) -> Cell:
    source, about = rows
    own = {"data": data, **about, "hosts": n_hosts, "bandwidths": bandwidths}
    own |= {"seconds": limits.seconds, "most seconds": limits.most, **settings(learner, size, n_hosts)}
    run = partial(measured, learner, source, size, n_hosts, bandwidths, limits)
    name = f"{data}, {learner}, {size}, {'alone' if n_hosts == 1 else f'{n_hosts} hosts'}"
    guess = GUESSES.get((learner, size), 180.0) if bandwidths else 60.0
    needed, seeds = [MODULES[learner]], seeds_of(data, learner)
    return Cell(name, own, run, guess, PACKAGES[learner], needed, seeds, missing_of(data, rows))


EXPERIMENT = Experiment("bandwidth", "Slow networks", TEXT, cells, tables, draw, options)
