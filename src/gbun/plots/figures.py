"""Figures of one style, made with matplotlib's objects: no window, no global state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#c8374d", "#2e6f95", "#e3a12f", "#66a182", "#6d597a", "#5f6368")


def trim_axes(ax: Axes, grid: Literal["both", "x"]) -> None:
    """Draw a thin grid behind what is drawn, and no frame above and to the right."""
    ax.grid(True, axis=grid, color="#e3e3e3", linewidth=0.6)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def style_bars(ax: Axes) -> Axes:
    trim_axes(ax, "x")
    ax.tick_params(labelsize=8)
    return ax


def new_axes(width: float, height: float) -> Axes:
    return new_figure(width, height).add_subplot()


def new_figure(width: float, height: float) -> Figure:
    """Make a figure on the Agg canvas; width and height are in inches."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as missing:
        raise ImportError("plotting needs matplotlib: pip install 'gbun[plots]'") from missing
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12))
    FigureCanvasAgg(figure)
    return figure
