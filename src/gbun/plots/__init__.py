"""Pictures of trainings and explanations; each function returns matplotlib's Axes and takes one."""

from gbun.plots.curves import Panel, plot_curves, plot_history
from gbun.plots.dependence import plot_dependence
from gbun.plots.explanations import plot_contributions, plot_importance, plot_waterfall
from gbun.plots.figures import COLOURS, new_axes, new_figure

__all__ = [
    "COLOURS",
    "Panel",
    "new_axes",
    "new_figure",
    "plot_contributions",
    "plot_curves",
    "plot_dependence",
    "plot_history",
    "plot_importance",
    "plot_waterfall",
]
