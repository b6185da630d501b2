"""Seconds of a round by the number of workers, a core for each: a panel for each data set and size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.network.picture import line
from benchmarks.paper.cells import Finding
from benchmarks.paper.experiment import Picture
from benchmarks.paper.panels import LEARNERS, Panel, draw_panels
from benchmarks.paper.scaling.paper import SECONDS
from benchmarks.paper.scaling.tables import a_core_each

CAPTION = (
    "Seconds of a round by the number of workers: lines are computation and exchange with a core for each, crosses "
    "what this machine took with its few cores, dotted lines the paper's."
)


def draw(findings: Sequence[Finding], folder: Path) -> list[Picture]:
    known = {
        (at["data"], at["size"], at["learner"], at["workers"]): one.found
        for one in findings
        if (at := one.settings) and one.found
    }
    panels = sorted({(data, size) for data, size, *_ in known})
    if not panels:
        return []

    def fill(ax: Any, panel: Panel) -> None:
        for learner, colour in LEARNERS.items():
            found = {n: one for (*of, n), one in known.items() if tuple(of) == (*panel, learner)}
            told = [(n, seconds) for (*of, n), seconds in SECONDS.items() if tuple(of) == (*panel, learner)]
            line(ax, [(n, a_core_each(one)) for n, one in found.items()], "o-", colour, learner)
            line(ax, [(n, one["seconds"]) for n, one in found.items()], "x", colour, f"{learner}, cores shared")
            line(ax, told, ":", colour, f"the paper's {learner}")

    path = folder / "scaling.png"
    draw_panels(panels, fill, "workers", path)
    return [Picture(path, CAPTION)]
