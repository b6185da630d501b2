"""Curves of training: panels beside each other, and the history of one training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gbun.plots.figures import COLOURS, new_figure, trim_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Panel:
    """One plot: a curve for each learner, with a value for each round; `notes` explains short or missing curves."""

    title: str
    label: str
    curves: Mapping[str, Sequence[float]]
    notes: Mapping[str, str] = field(default_factory=dict)


def plot_curves(panels: Sequence[Panel], path: str | Path) -> Path:
    """Write panels side by side into one picture; the ending of its path (.png, .svg, .pdf) chooses the format."""
    if not panels:
        raise ValueError("panels must hold at least one Panel, got none")
    n_columns = min(2, len(panels))
    n_rows = -(-len(panels) // n_columns)
    figure = new_figure(5.4 * n_columns, 3.7 * n_rows)
    for i, panel in enumerate(panels):
        ax = figure.add_subplot(n_rows, n_columns, i + 1)
        labels = (f"{name}: {panel.notes[name]}" if name in panel.notes else name for name in panel.curves)
        for j, (label, values) in enumerate(zip(labels, panel.curves.values(), strict=True)):
            # The first curve, which is gbun's, lies on top.
            draw_curve(ax, label, values, color=COLOURS[j % len(COLOURS)], zorder=3 - 0.1 * j)
        ax.set_title(panel.title, loc="left", fontsize=10, fontweight="bold")
        ax.set_ylabel(panel.label)
        style_axes(ax)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return path


def plot_history(evals_result: Mapping[str, Mapping[str, Sequence[float]]], ax: Axes | None = None) -> Axes:
    """Draw a curve for each evaluation set and metric.

    Parameters
    ----------
    evals_result : dict
        {evaluation set: {metric: [a value for each round]}}: `evals_result_` of an estimator, or `History().values`.
    ax : matplotlib.axes.Axes or None, default None
        Where to draw; None makes a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
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
            draw_curve(ax, f"{name} {metric}", values)
    style_axes(ax)
    return ax


def draw_curve(ax: Axes, label: str, values: Sequence[float], **style: Any) -> None:
    ax.plot(range(1, len(values) + 1), values, label=label, linewidth=1.8, **style)


def style_axes(ax: Axes) -> None:
    ax.set_xlabel("rounds")
    trim_axes(ax, "both")
    ax.legend(frameon=False, fontsize=8)
