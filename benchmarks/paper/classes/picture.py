"""Seconds and bytes of a round against the number of classes, a panel for each table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.paper.cells import Finding
from benchmarks.paper.classes.measure import LEARNERS, PER_CLASS
from benchmarks.paper.classes.tables import tables
from benchmarks.paper.experiment import Picture
from benchmarks.speed.report import Row


def draw(findings: Sequence[Finding], folder: Path) -> list[Picture]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # here, as every child process reads this file
    from matplotlib.figure import Figure

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
    from benchmarks.speed.picture import COLOURS

    colours = {**COLOURS, PER_CLASS: "#7a5ba8"}
    for key in (key for key in rows[0] if key.split(",")[0] in LEARNERS):
        points = [(row["classes"], row[key]) for row in rows if row[key] is not None]
        style = "--" if key.endswith("by formula") else "o-"
        if points:
            ax.loglog(*zip(*sorted(points), strict=True), style, color=colours[key.split(",")[0]], label=key)
    ax.set_title(title, fontsize=9)
    ax.set_xlabel("classes", fontsize=8)
    ax.tick_params(labelsize=7)
    ax.legend(fontsize=7)
