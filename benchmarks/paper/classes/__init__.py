"""What classes cost: seconds and bytes of a round against their number, from 10 to 1000.

    python -m benchmarks.paper.classes [--quick] [--class-neurons 64,256]

Rows are generated, equally many of each class. Learners of a cell are alive together, each in a process of its own, and
take turns, a round each; who takes longer than a minute for its first round is not asked for another. Bytes are
counted by gbun itself on two workers of this machine; those of the peers are by formula.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.paper.cells import Cell, Finding
from benchmarks.paper.classes import measure
from benchmarks.paper.classes.measure import DENSE, LEARNERS, LIGHTGBM, OURS, PER_CLASS, SPARSE, WORKERS, XGBOOST
from benchmarks.paper.experiment import Experiment, Picture, Plan
from benchmarks.paper.given import numbers
from benchmarks.speed.picture import COLOURS
from benchmarks.speed.report import Row
from benchmarks.speed.timing import ratio

CLASSES, QUICK_CLASSES = (10, 20, 50, 100, 200, 500, 1000), (5, 20)
ROWS, QUICK_ROWS = 50_000, 1_000
SENT_ROWS = 20_000  # few rows would travel in float64
SWEEPS, SENT_ROUNDS = 3, 6
SECONDS = "classes: median seconds of a round, {}, K = {}"
BYTES = "classes: bytes a round that a worker of two sends, K = {}"
GROWTH = "classes: the cost of the most classes over that of the fewest"
PACKAGES = ("gbun", "numba", "lightgbm", "xgboost", "xgboost-cpu")
LINES = {**COLOURS, PER_CLASS: "#7a5ba8"}


def cells(plan: Plan) -> list[Cell]:
    n_rows, sweeps = (QUICK_ROWS, 1) if plan.quick else (ROWS, SWEEPS)
    planned = QUICK_CLASSES if plan.quick else CLASSES
    kinds = {DENSE: planned[1:]} if plan.quick else {DENSE: planned, SPARSE: planned}
    found = []
    for K in plan.given.class_neurons or [64]:
        if K & (K - 1):
            raise SystemExit(f"--class-neurons must be powers of two, as trees of a depth have leaves, got {K}")
        for n_classes in planned:
            asked = {"classes": n_classes, "n_rows": SENT_ROWS, "K": K, "rounds": SENT_ROUNDS, "workers": WORKERS}
            run = partial(measure.counted, n_classes, SENT_ROWS, K, SENT_ROUNDS)
            found.append(Cell(f"bytes, {n_classes} classes, K = {K}", asked, run, 10.0, ("gbun", "torch")))
        for kind, timed in kinds.items():
            for n_classes in timed:
                told = {"kind": kind, "n_rows": n_rows, "n_classes": n_classes, "K": K, "threads": plan.threads}
                run = partial(measure.compared, **told, sweeps=sweeps)
                more = {"sweeps": sweeps, "columns": measure.COLUMNS[kind], "depth": measure.depth(K)}
                guess = 20.0 + n_rows * n_classes / 50_000
                found.append(Cell(f"{kind}, {n_classes} classes, K = {K}", {**told, **more}, run, guess, PACKAGES))
    return found


def options(parser: argparse.ArgumentParser) -> None:
    told = "classes: powers of two: K, LightGBM's leaves and, at full depth, XGBoost's; 64 by default"
    parser.add_argument("--class-neurons", type=numbers(least=2), help=told)


def tables(findings: Sequence[Finding]) -> list[Row]:
    rows = [_sent(finding) if "rounds" in finding.settings else _seconds(finding) for finding in findings]
    return sorted(rows, key=lambda row: row["table"], reverse=True) + growth(rows)


def _seconds(finding: Finding) -> Row:
    told, found = finding.settings, finding.found
    seconds = {name: found.get(f"{name} s") for name in LEARNERS}
    notes = [f"{name}: {row['note']}" for name, row in found.get("learners", {}).items() if row["note"]]
    return {
        "table": SECONDS.format(told["kind"], told["K"]),
        "classes": told["n_classes"],
        **seconds,
        **{f"{name} / gbun": ratio(seconds[name], seconds[OURS]) for name in (LIGHTGBM, XGBOOST)},
        "note": finding.failed or "; ".join(notes),
    }


def _sent(finding: Finding) -> Row:
    told = finding.settings
    formulas = measure.by_formula(told["classes"], told["K"])
    return {
        "table": BYTES.format(told["K"]),
        "classes": told["classes"],
        OURS: finding.found.get("bytes"),
        "most of a worker": finding.found.get("most"),
        **{f"{name}, by formula": value for name, value in formulas.items()},
        "note": finding.failed,
    }


def growth(rows: Sequence[Row]) -> list[Row]:
    """Of each table and learner, where both ends are known."""
    found: list[Row] = []
    for title in sorted({row["table"] for row in rows}, reverse=True):
        own = sorted((row for row in rows if row["table"] == title), key=lambda row: row["classes"])
        first, last = own[0], own[-1]
        if first is last:
            continue
        columns = [key for key in first if key.split(",")[0] in LEARNERS]
        grown = {key.split(",")[0]: ratio(last[key], first[key]) for key in columns}
        classes = {"fewest": first["classes"], "most": last["classes"]}
        found.append({"table": GROWTH, "of": title.removeprefix("classes: "), **classes, **grown})
    return found


def draw(findings: Sequence[Finding], folder: Path) -> list[Picture]:
    rows = [row for row in tables(findings) if "classes" in row]
    titles = list(dict.fromkeys(row["table"] for row in rows))
    if not titles:
        return []
    figure = Figure(figsize=(5.0, 3.0 * len(titles)), layout="constrained")
    FigureCanvasAgg(figure)
    for ax, title in zip(figure.subplots(len(titles), 1, squeeze=False)[:, 0], titles, strict=True):
        _draw(ax, title.removeprefix("classes: "), [row for row in rows if row["table"] == title])
    path = folder / "classes.svg"
    figure.savefig(path)
    return [Picture(path, "Seconds and bytes of a round against the number of classes; dashed lines are by formula.")]


def _draw(ax: Any, title: str, rows: Sequence[Row]) -> None:
    for key in (key for key in rows[0] if key.split(",")[0] in LEARNERS):
        points = [(row["classes"], row[key]) for row in rows if row[key] is not None]
        style = "--" if key.endswith("by formula") else "o-"
        if points:
            ax.loglog(*zip(*sorted(points), strict=True), style, color=LINES[key.split(",")[0]], label=key)
    ax.set_title(title, fontsize=9)
    ax.set_xlabel("classes", fontsize=8)
    ax.tick_params(labelsize=7)
    ax.legend(fontsize=7)


EXPERIMENT = Experiment(
    name="classes",
    title="What classes cost",
    text=(
        "The paper says that a network serves all classes, so that rows are forwarded once however many there are; "
        "it measures nothing of that, and its diagonal Hessian asks for a Gram matrix for each class. gbun shares "
        "one Hessian among classes; the paper's form (hessian=per_class) is measured beside it. Rows are "
        "generated: 50,000 rows of 100 dense columns, and of 20 words among 20,000. LightGBM and XGBoost grow a "
        "tree for each class, of K leaves and of depth log2 K. Bytes are counted by gbun on two workers; by formula "
        "are histograms of the 100 dense columns that two workers of LightGBM or XGBoost send, and the Gram matrices "
        "of the paper's form."
    ),
    cells=cells,
    tables=tables,
    draw=draw,
    options=options,
)
