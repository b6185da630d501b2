"""A figure of panels one below the other, for a phone too: seconds of a round, a colour for each learner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.network.picture import COLOURS

LEARNERS = dict(zip(("GBUN", "LightGBM", "XGBoost"), COLOURS, strict=False))
Panel = tuple[str, int]
"""Data set, and K or leaves."""


def draw_panels(panels: Sequence[Panel], fill: Callable[[Any, Panel], None], label: str, path: Path) -> None:
    figure = Figure(figsize=(5.0, 4.0 * len(panels)), layout="constrained")
    FigureCanvasAgg(figure)
    for ax, panel in zip(figure.subplots(len(panels), 1, squeeze=False)[:, 0], panels, strict=True):
        fill(ax, panel)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel(label, fontsize=8)
        ax.set_ylabel("seconds of a round", fontsize=8)
        ax.set_title(f"{panel[0]}, K or leaves = {panel[1]}", fontsize=9)
        ax.legend(fontsize=7)
    figure.savefig(path, dpi=150)
