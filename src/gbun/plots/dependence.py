"""Partial dependence: the score when one or two columns have given values, others as they are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gbun.plots.figures import COLOURS, new_axes, style_bars

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_dependence(
    model: Any, X: Any, columns: Any, ax: Axes | None = None, *, n_points: int = 40, n_lines: int = 50, output: int = 0
) -> Axes:
    """Draw partial dependence: the mean score when one or two columns have given values in all rows.

    With one column, thin lines are those of single rows (ICE); with two, colours are the mean score.

    Parameters
    ----------
    model : Model or estimator
    X : array or data frame
        Rows whose other columns are kept.
    columns : column, or pair of columns
        By name or number; columns of numbers.
    ax : matplotlib.axes.Axes or None, default None
    n_points, n_lines : int
        Values of a column, and rows that are drawn.
    output : int, default=0
        Which of several scores.

    Returns
    -------
    matplotlib.axes.Axes
    """
    model = getattr(model, "model_", model)
    pair = list(columns) if isinstance(columns, (list, tuple)) else [columns]
    if not 1 <= len(pair) <= 2:
        raise ValueError(f"columns must be one column or a pair, got {columns!r}")
    X = X.to_pandas() if hasattr(X, "to_pandas") else X
    if not hasattr(X, "iloc"):
        if hasattr(X, "toarray") or not hasattr(X, "shape") or len(X.shape) != 2:
            raise ValueError(f"X must be a dense array or a data frame, got {type(X).__name__}")
        X = np.array(X, dtype=float)  # not integers: columns take values in between
    if n_points < 2:
        raise ValueError(f"n_points must be at least 2, got {n_points}")
    if not 0 <= output < model.ensemble.n_scores:
        raise ValueError(f"output must be from 0 to {model.ensemble.n_scores - 1}, got {output}")
    names = [str(c) for c in getattr(X, "columns", range(X.shape[1]))]
    places = [_find(names, c) for c in pair]
    grids = [_grid(X, j, n_points if len(pair) == 1 else min(n_points, 20)) for j in places]
    scores = np.array([_score_with(model, X, places, point, output) for point in itertools.product(*grids)])
    ax = new_axes(5.6, 3.8) if ax is None else ax
    if len(pair) == 1:
        few = np.random.default_rng(0).permutation(scores.shape[1])[:n_lines]
        ax.plot(grids[0], scores[:, few], color=COLOURS[1], linewidth=0.5, alpha=0.35)
        ax.plot(grids[0], scores.mean(axis=1), color=COLOURS[0], linewidth=2.2, label="mean of all rows")
        ax.set_xlabel(names[places[0]])
        ax.set_ylabel("score")
        ax.legend(frameon=False, fontsize=8)
        return style_bars(ax)
    mean = scores.mean(axis=1).reshape(len(grids[0]), len(grids[1]))
    image = ax.contourf(grids[0], grids[1], mean.T, levels=12, cmap="coolwarm")
    ax.figure.colorbar(image, ax=ax, label="mean score")
    ax.set_xlabel(names[places[0]])
    ax.set_ylabel(names[places[1]])
    return ax


def _find(names: list[str], column: Any) -> int:
    if str(column) in names:
        return names.index(str(column))
    if isinstance(column, (int, np.integer)) and 0 <= column < len(names):
        return int(column)
    shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
    raise ValueError(f"columns must be among {shown}; got {column!r}")


def _grid(X: Any, j: int, n_points: int) -> Any:
    column = X.iloc[:, j].to_numpy() if hasattr(X, "iloc") else X[:, j]
    try:
        column = np.asarray(column, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"columns must hold numbers; column {j} does not") from None
    values = np.unique(column[~np.isnan(column)])
    if len(values) < 2:
        raise ValueError(f"columns must hold several values; column {j} has {len(values)}")
    if len(values) <= n_points:
        return values
    return np.unique(np.quantile(values, np.linspace(0.0, 1.0, n_points)))


def _score_with(model: Any, X: Any, places: Sequence[int], point: Sequence[float], output: int) -> Any:
    rows = X.copy()
    for j, value in zip(places, point, strict=True):
        if hasattr(rows, "iloc"):
            rows.isetitem(j, value)
        else:
            rows[:, j] = value
    scores = model.decision_function(rows)
    return scores if scores.ndim == 1 else scores[:, output]
