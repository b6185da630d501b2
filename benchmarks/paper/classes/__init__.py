"""What classes cost: seconds and bytes of a round against their number, from 10 to 1000.

    python -m benchmarks.paper.classes [--quick] [--class-neurons 64,256]

Rows are generated, equally many of each class. Learners of a cell are alive together, each in a process of its own, and
take turns, a round each; who takes longer than a minute for its first round is not asked for another. Bytes are
counted by gbun itself on two workers of this machine; those of the peers are by formula, and at most so many.
"""

from __future__ import annotations

import argparse
from functools import partial

from benchmarks.network.parameters import SEEDS
from benchmarks.paper.cells import Cell
from benchmarks.paper.classes import measure
from benchmarks.paper.classes.measure import DENSE, SPARSE, WORKERS
from benchmarks.paper.classes.picture import draw
from benchmarks.paper.classes.tables import tables
from benchmarks.paper.experiment import Experiment, Plan
from benchmarks.paper.given import numbers

CLASSES, QUICK_CLASSES = (10, 30, 100, 300, 1000), (20,)
ROWS, QUICK_ROWS = 50_000, 1_000  # of 1000 classes 50 each: a leaf of LightGBM has 20 at least
SENT_ROWS = 20_000  # few rows would travel in float64
SWEEPS, SENT_ROUNDS = 3, 6
PACKAGES = ("gbun", "numba", "lightgbm", "xgboost", "xgboost-cpu")
PEERS = ("lightgbm", "xgboost")


def cells(plan: Plan) -> list[Cell]:
    n_rows, sweeps = (QUICK_ROWS, 1) if plan.quick else (ROWS, SWEEPS)
    planned = QUICK_CLASSES if plan.quick else CLASSES
    kinds = (DENSE,) if plan.quick else (DENSE, SPARSE)
    found = []
    for K in plan.given.class_neurons or [64]:
        if K & (K - 1):
            raise SystemExit(f"--class-neurons must be powers of two, as trees of a depth have leaves, got {K}")
        for n_classes in planned:
            asked = {"classes": n_classes, "n_rows": SENT_ROWS, "K": K, "rounds": SENT_ROUNDS, "workers": WORKERS}
            run = partial(measure.counted, n_classes, SENT_ROWS, K, SENT_ROUNDS)
            name, seeds = f"bytes, {n_classes} classes, K = {K}", {"rows": measure.seed_of(n_classes), "gbun": 0}
            found.append(Cell(name, asked, run, 10.0, ("gbun", "torch"), ["torch"], seeds))
        for kind in kinds:
            for n_classes in planned:
                told = {"kind": kind, "n_rows": n_rows, "n_classes": n_classes, "K": K, "threads": plan.threads}
                run = partial(measure.compared, **told, sweeps=sweeps)
                more = {"sweeps": sweeps, "columns": measure.COLUMNS[kind], "depth": measure.depth(K)}
                guess = 20.0 + n_rows * n_classes / 50_000
                name, seeds = f"{kind}, {n_classes} classes, K = {K}", {"rows": measure.seed_of(n_classes), **SEEDS}
                found.append(Cell(name, {**told, **more}, run, guess, PACKAGES, PEERS, seeds))
    return found


def options(parser: argparse.ArgumentParser) -> None:
    told = "classes: powers of two: K, LightGBM's leaves and, at full depth, XGBoost's; 64 by default"
    parser.add_argument("--class-neurons", type=numbers(least=2), help=told)


EXPERIMENT = Experiment(
    name="classes",
    title="What classes cost",
    text=(
        "The paper says that a network serves all classes, so that rows are forwarded once however many there are; "
        "it measures nothing of that, and its diagonal Hessian asks for a Gram matrix for each class. gbun shares "
        "one Hessian among classes; the paper's form (hessian=per_class) is measured beside it. Rows are "
        f"generated: {ROWS:,} rows of 100 dense columns, and of 20 words among 20,000. LightGBM and XGBoost grow a "
        "tree for each class, of K leaves and of depth log2 K at most: where classes have few rows, as 300 and 1000 of "
        "them do, trees stay small and their rounds get cheaper. Bytes are counted by gbun on two workers; by formula "
        "are the Gram matrices of the paper's form, and the histograms of the 100 dense columns that two workers of "
        "LightGBM or XGBoost send at most: where all trees have the leaves they may have."
    ),
    cells=cells,
    tables=tables,
    draw=draw,
    options=options,
)
