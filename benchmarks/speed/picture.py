"""The report as one picture, a panel for each part."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

COLOURS = {"gbun": "#1b6ca8", "LightGBM": "#8fb339", "XGBoost": "#e08e45", "unfused": "#999999"}


def bars(ax: Any, names: list[str], values: list[float], words: list[str], learners: list[str] | None = None) -> None:
    """Horizontal bars with a few words behind each, in the colour of its learner, whose name it begins with."""
    colours = [COLOURS[name.split()[0]] for name in learners] if learners else COLOURS["gbun"]
    ax.bar_label(ax.barh(names, values, color=colours), words, fontsize=7, padding=2)
    ax.margins(x=0.15)
    ax.invert_yaxis()


def draw(parts: Mapping[str, Any], modules: Mapping[str, Any], path: Path) -> None:
    """`parts` are the report's; `modules` have a `draw(ax, rows)` each."""
    names = [name for name in modules if name in parts]
    figure = Figure(figsize=(9.0, 5.0 * len(names)), layout="constrained")
    FigureCanvasAgg(figure)
    for ax, name in zip(figure.subplots(len(names), 1, squeeze=False)[:, 0], names, strict=True):
        modules[name].draw(ax, parts[name]["rows"])
        ax.tick_params(labelsize=7)
        ax.title.set_fontsize(9)
    figure.savefig(path, dpi=120)
