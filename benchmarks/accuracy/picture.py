"""The comparison as bars, one panel a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

COLOURS = {"gbun": "#1b6ca8", "lightgbm": "#8fb339", "xgboost": "#e08e45"}


def draw(results: list[dict[str, Any]], metrics: dict[str, str], path: Path) -> None:
    names = list(dict.fromkeys(r["problem"] for r in results))
    figure = Figure(figsize=(2.6 * len(names) + 1, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    for ax, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        rows = [r for r in results if r["problem"] == name]
        values = [r[metrics[name]] for r in rows]
        bars = ax.bar([r["learner"] for r in rows], values, color=[COLOURS[r["learner"]] for r in rows])
        ax.bar_label(bars, [f"{v:.4f}" for v in values], fontsize=8)
        spread = max(values) - min(values)
        ax.set_ylim(max(0.0, min(values) - max(0.01, spread)), min(1.005, max(values) + max(0.004, 0.3 * spread)))
        ax.set_title(f"{name}\n{metrics[name]} on test rows", fontsize=9)
        ax.tick_params(labelsize=8)
    figure.savefig(path, dpi=120)
