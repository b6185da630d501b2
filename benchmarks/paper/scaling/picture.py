"""Seconds of a round by the number of workers, a core for each: a panel for each data set and size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.network.picture import COLOURS, line
from benchmarks.paper.cells import Finding
from benchmarks.paper.experiment import Picture
from benchmarks.paper.scaling.paper import SECONDS
from benchmarks.paper.scaling.tables import a_core_each

LEARNERS = dict(zip(("GBUN", "LightGBM", "XGBoost"), COLOURS, strict=False))
CAPTION = (
    "Seconds of a round by the number of workers: lines are computation and exchange with a core for each, crosses "
    "what this machine took with its few cores, dotted lines the paper's."
)


def draw(findings: Sequence[Finding], folder: Path) -> list[Picture]:
    known = [one for one in findings if one.found]
    panels = sorted({(one.settings["data"], one.settings["size"]) for one in known})
    if not panels:
        return []
    figure = Figure(figsize=(5.0 * len(panels), 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    for ax, (data, size) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for learner, colour in LEARNERS.items():
            own = [one for one in known if (one.settings["data"], one.settings["size"]) == (data, size)]
            found = {one.settings["workers"]: one.found for one in own if one.settings["learner"] == learner}
            line(ax, [(n, a_core_each(f)) for n, f in found.items()], "o-", colour, learner)
            line(ax, [(n, f["seconds"]) for n, f in found.items()], "x", colour, f"{learner}, cores shared")
            told = [(n, s) for (d, k, name, n), s in SECONDS.items() if (d, k, name) == (data, size, learner)]
            line(ax, told, ":", colour, f"the paper's {learner}")
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.set_xlabel("workers", fontsize=8)
        ax.set_title(f"{data}, K or leaves = {size}", fontsize=9)
        ax.legend(fontsize=6)
    path = folder / "scaling.png"
    figure.savefig(path, dpi=120)
    return [Picture(path, CAPTION)]
