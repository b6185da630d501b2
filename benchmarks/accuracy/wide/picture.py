"""Finished cells as one picture: a row of panels for each part, a panel for each set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.accuracy.wide.learners import LEARNERS
from benchmarks.accuracy.wide.sets import SETS
from benchmarks.accuracy.wide.store import Finished
from benchmarks.accuracy.wide.tables import sorted_cells

COLOURS = {"ours": "#1b6ca8", "trees": "#8fb339", "linear": "#e08e45"}
FAR = 0.15  # a score this much below the best is told in figures only


def draw(parts: dict[str, list[Finished]], path: Path) -> None:
    """`parts` without cells are left out."""
    present = {part: sorted_cells(cells) for part, cells in parts.items() if cells}
    names = [n for n in SETS if any(c["data"] == n for cells in present.values() for c in cells)]
    if not names:
        return
    figure = Figure(figsize=(2.5 * len(names) + 1.0, 2.6 * len(present)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(present), len(names), squeeze=False)
    for line, (part, cells) in zip(panels, present.items(), strict=True):
        for ax, name in zip(line, names, strict=True):
            own = [c for c in cells if c["data"] == name]
            if not own:
                ax.set_axis_off()
                continue
            (seconds if part == "target" else scores)(ax, own)
            what = "seconds to LightGBM's best" if part == "target" else f"{SETS[name].metric}, {part}"
            ax.set_title(f"{name}\n{what}", fontsize=8)
            ax.tick_params(labelsize=7)
            ax.invert_yaxis()
    figure.savefig(path, dpi=120)


def scores(ax: Any, cells: list[Finished]) -> None:
    """Differences are what is to be seen: bars begin below the worst score that is not far from the best."""
    values = [c["score"] for c in cells if "score" in c]
    top = max(values, default=1.0)
    low = min((v for v in values if v > top - FAR), default=0.0)
    floor = low - max(0.25 * (top - low), 0.002)
    words = [f"{c['score']:.4f}" if "score" in c else c["note"] for c in cells]
    _bars(ax, cells, [max(c.get("score", floor) - floor, 0.0) for c in cells], words, floor)


def seconds(ax: Any, cells: list[Finished]) -> None:
    words = [c.get("note") or f"{c['seconds']:.2f} s" for c in cells]
    _bars(ax, cells, [c.get("seconds") or 0.0 for c in cells], words, 0.0)


def _bars(ax: Any, cells: list[Finished], widths: list[float], words: list[str], floor: float) -> None:
    colours = [COLOURS[LEARNERS[c["learner"]].kind] for c in cells]
    bars = ax.barh([c["learner"] for c in cells], widths, left=floor, color=colours)
    ax.bar_label(bars, words, fontsize=6, padding=2)
    ax.set_xlim(floor, floor + 1.45 * max([*widths, 1e-9]))
