"""Seconds of a round by bandwidth: a panel for each data set and size, the paper's lines beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.network.measure import bandwidth_of
from benchmarks.network.picture import line
from benchmarks.paper.bandwidth import paper
from benchmarks.paper.bandwidth.measure import MEASURED
from benchmarks.paper.bandwidth.tables import Line, lines
from benchmarks.paper.cells import Finding
from benchmarks.paper.experiment import Picture
from benchmarks.paper.panels import LEARNERS, Panel, draw_panels

CAPTION = "Seconds of a round by bandwidth. Hollow marks are extrapolated; dotted lines are the paper's."


def draw(findings: Sequence[Finding], folder: Path) -> list[Picture]:
    known = [own for own in lines(findings) if own.places and own.hosts > 1]
    panels = sorted({(own.data, own.size) for own in known})
    if not panels:
        return []

    def fill(ax: Any, panel: Panel) -> None:
        for own in known:
            if (own.data, own.size) == panel:
                _line(ax, own)

    path = folder / "bandwidth.png"
    draw_panels(panels, fill, "bytes a second of each host", path)
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
