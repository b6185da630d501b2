"""Pictures of training, made with matplotlib's objects: no window, no global state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#c8374d", "#2e6f95", "#e3a12f", "#66a182", "#6d597a", "#5f6368")


@dataclass(frozen=True)
class Panel:
    """One pair of axes: a curve for each learner, a value for each round; `notes` names learners without a curve."""

    title: str
    label: str
    curves: Mapping[str, Sequence[float]]
    notes: Mapping[str, str] = field(default_factory=dict)


def plot_curves(panels: Sequence[Panel], path: str | Path) -> Path:
    """Write the panels side by side into one picture; the ending of `path` (.png, .svg, .pdf) names its format."""
    if not panels:
        raise ValueError("panels must hold at least one Panel, got none")
    n_columns = min(2, len(panels))
    n_rows = -(-len(panels) // n_columns)
    figure = new_figure(5.4 * n_columns, 3.7 * n_rows)
    for i, panel in enumerate(panels):
        draw_panel(figure.add_subplot(n_rows, n_columns, i + 1), panel)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return path


def draw_panel(ax: Axes, panel: Panel) -> None:
    for i, (name, values) in enumerate(panel.curves.items()):
        label = f"{name}: {panel.notes[name]}" if name in panel.notes else name
        # Our own curve lies on top of the others.
        line = {"color": COLOURS[i % len(COLOURS)], "linewidth": 1.8, "zorder": 3 - 0.1 * i}
        ax.plot(range(1, len(values) + 1), values, label=label, **line)  # type: ignore[arg-type]
    ax.set_title(panel.title, loc="left", fontsize=10, fontweight="bold")
    ax.set_xlabel("rounds")
    ax.set_ylabel(panel.label)
    tidy(ax)


def plot_history(evals_result: Mapping[str, Mapping[str, Sequence[float]]], ax: Axes | None = None) -> Axes:
    """Draw `evals_result_` of an estimator, or `History().values`: a curve for each set and metric.

    >>> ax = plot_history({"valid": {"rmse": [3.0, 2.0, 1.5]}})
    >>> ax.get_legend_handles_labels()[1]
    ['valid rmse']
    """
    if not any(evals_result.values()):
        raise ValueError("evals_result is empty: train with eval_set= or evals= to have something to draw")
    if ax is None:
        ax = new_figure(5.6, 3.6).add_subplot()
    for name, metrics in evals_result.items():
        for metric, values in metrics.items():
            ax.plot(range(1, len(values) + 1), values, label=f"{name} {metric}", linewidth=1.8)
    ax.set_xlabel("rounds")
    tidy(ax)
    return ax


def tidy(ax: Axes) -> None:
    ax.grid(True, color="#e3e3e3", linewidth=0.6)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.legend(frameon=False, fontsize=8)


def new_figure(width: float, height: float) -> Figure:
    """A figure on the Agg canvas, in inches."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as missing:
        raise ImportError("plotting needs matplotlib: pip install 'gbun[plots]'") from missing
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12))
    FigureCanvasAgg(figure)
    return figure
