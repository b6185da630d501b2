"""Seconds of a round by bandwidth: a panel for each data set and size, the paper's lines beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.network.measure import bandwidth_of
from benchmarks.network.picture import COLOURS, line
from benchmarks.paper.bandwidth import paper
from benchmarks.paper.bandwidth.measure import MEASURED
from benchmarks.paper.bandwidth.tables import Line, lines
from benchmarks.paper.cells import Finding
from benchmarks.paper.experiment import Picture

LEARNERS = dict(zip(("GBUN", "LightGBM", "XGBoost"), COLOURS, strict=False))
CAPTION = "Seconds of a round by bandwidth. Hollow marks are extrapolated; dotted lines are the paper's."


def draw(findings: Sequence[Finding], folder: Path) -> list[Picture]:
    known = [own for own in lines(findings) if own.places]
    panels = sorted({(own.data, own.size) for own in known})
    if not panels:
        return []
    figure = Figure(figsize=(5.0 * len(panels), 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    for ax, (data, size) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for own in known:
            if (own.data, own.size) == (data, size):
                _line(ax, own)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("bytes a second of each host", fontsize=8)
        ax.set_title(f"{data}, K or leaves = {size}", fontsize=9)
        ax.legend(fontsize=7)
    path = folder / "bandwidth.png"
    figure.savefig(path, dpi=120)
    return [Picture(path, CAPTION)]


def _line(ax: Any, own: Line) -> None:
    colour = LEARNERS[own.learner]
    places = {rate: place for told, place in own.places.items() if (rate := bandwidth_of(told)) is not None}
    line(ax, [(rate, place["seconds"]) for rate, place in places.items()], "-", colour, own.learner)
    for rate, place in places.items():
        filled = colour if place["how"] == MEASURED else "white"
        ax.plot([rate], [place["seconds"]], "o", color=colour, markerfacecolor=filled)
    told = [(bandwidth_of(b), paper.seconds(own.data, own.hosts, own.size, own.learner, b)) for b in paper.BANDWIDTHS]
    line(ax, told, ":", colour, f"the paper's {own.learner}")
