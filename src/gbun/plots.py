"""Plots of training and of explanations, made with matplotlib's objects: no window, no global state."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#c8374d", "#2e6f95", "#e3a12f", "#66a182", "#6d597a", "#5f6368")


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


def plot_importance(importance: Any, ax: Axes | None = None, *, top: int = 15) -> Axes:
    """Draw a bar for each of the most important columns.

    Parameters
    ----------
    importance : Importance or Explanation
        From `model.importance(...)` or `model.explain(X)`: then the mean absolute contribution.
    ax : matplotlib.axes.Axes or None, default None
    top : int, default=15

    Returns
    -------
    matplotlib.axes.Axes
    """
    label, errors = "mean |contribution|", None
    if hasattr(importance, "mean_abs"):
        values, names = importance.mean_abs(), [importance.name(j) for j in range(importance.n_columns)]
    else:
        values, names, errors = importance.values, list(importance.names), importance.errors
        label = {"contribution": label, "permutation": "how much worse the metric gets"}.get(
            importance.kind, importance.kind
        )
    order = np.argsort(-values, kind="stable")[:top][::-1]
    ax = new_axes(5.6, 0.9 + 0.27 * len(order)) if ax is None else ax
    ax.barh(
        [_plain(names[j]) for j in order], values[order], color=COLOURS[1], height=0.7,
        xerr=None if errors is None else errors[order], error_kw={"elinewidth": 1.0, "ecolor": COLOURS[5]},
    )  # fmt: skip
    ax.set_xlabel(label)
    return style_bars(ax)


def plot_waterfall(explanation: Any, row: int = 0, ax: Axes | None = None, *, top: int = 10) -> Axes:
    """Draw how the contributions of one row lead from the base to its score.

    Parameters
    ----------
    explanation : Explanation
        Of one score: `model.explain(X, output=c)` where there are several.
    row : int, default=0
    ax : matplotlib.axes.Axes or None, default None
    top : int, default=10
        Columns with bars of their own; all others have one together.

    Returns
    -------
    matplotlib.axes.Axes
    """
    if not hasattr(explanation, "base"):
        raise ValueError(f"explanation must be what explain(X) returns, got {type(explanation).__name__}")
    values, data = _row_of(explanation, row)
    order = np.argsort(-np.abs(values), kind="stable")
    order = order[values[order] != 0.0]
    shown, rest = order[:top], order[top:]
    names = [_label(explanation.name(int(j)), data, int(j)) for j in shown]
    sizes = list(values[shown])
    left = float(explanation.scores[row] - explanation.base[row] - sum(sizes))
    if len(rest):
        names, sizes = [*names, f"{len(rest)} other features"], [*sizes, left]
    ends = explanation.base[row] + np.cumsum(sizes[::-1])  # from the smallest, below, to the largest
    begins = ends - sizes[::-1]
    ax = new_axes(6.0, 1.2 + 0.32 * len(names)) if ax is None else ax
    colours = [COLOURS[0] if size > 0 else COLOURS[1] for size in sizes[::-1]]
    ax.barh(range(len(names)), sizes[::-1], left=begins, color=colours, height=0.7)
    for y, (size, end) in enumerate(zip(sizes[::-1], ends, strict=True)):
        offset = (4, 0) if size > 0 else (-4, 0)
        side = "left" if size > 0 else "right"
        ax.annotate(
            f"{size:+,.0f}" if abs(size) >= 1000 else f"{size:+.3g}",
            (end, y),
            offset,
            textcoords="offset points",
            va="center",
            ha=side,
            fontsize=8,
        )
    ax.set_yticks(range(len(names)), names[::-1])
    base, score = float(explanation.base[row]), float(explanation.scores[row])
    ax.axvline(base, color=COLOURS[5], linewidth=0.8, linestyle=":")
    ax.axvline(score, color=COLOURS[5], linewidth=0.8)
    ax.set_xlabel(f"score: from {base:,.4g} at the baseline to {score:,.4g}")
    low, high = min([base, score, *begins, *ends]), max([base, score, *begins, *ends])
    room = 0.2 * ((high - low) or 1.0)
    ax.set_xlim(low - room, high + room)
    return style_bars(ax)


def plot_contributions(explanation: Any, ax: Axes | None = None, *, top: int = 12) -> Axes:
    """Draw the contributions of all rows, a dot each, coloured by the value of the column: a beeswarm.

    Parameters
    ----------
    explanation : Explanation
        Of one score.
    ax : matplotlib.axes.Axes or None, default None
    top : int, default=12

    Returns
    -------
    matplotlib.axes.Axes
    """
    if not hasattr(explanation, "base"):
        raise ValueError(f"explanation must be what explain(X) returns, got {type(explanation).__name__}")
    if explanation.base.ndim != 1:
        raise ValueError("plot_contributions draws one score; choose it with explain(X, output=c)")
    order = np.argsort(-explanation.mean_abs(), kind="stable")[:top]
    values, data = _matrix(explanation.values[:, order]), _numbers(explanation, order)
    ax = new_axes(6.2, 1.0 + 0.36 * len(order)) if ax is None else ax
    dots = None
    for y, j in enumerate(range(len(order))[::-1]):
        x = values[:, j]
        place = y + _spread(x)
        known = np.zeros(len(x), dtype=bool) if data is None else ~np.isnan(data[:, j])
        ax.scatter(x[~known], place[~known], s=9, linewidths=0, alpha=0.8, color="#9aa0a6")  # missing, or no number
        if data is not None:
            colour: dict[str, Any] = {"c": _ranks(data[known, j]), "cmap": "coolwarm", "vmin": 0.0, "vmax": 1.0}
            dots = ax.scatter(x[known], place[known], s=9, linewidths=0, alpha=0.8, **colour)
    ax.axvline(0.0, color=COLOURS[5], linewidth=0.8)
    ax.set_yticks(range(len(order)), [_plain(explanation.name(int(j))) for j in order[::-1]])
    ax.set_xlabel("contribution to the score")
    if dots is not None and data is not None:
        bar = ax.figure.colorbar(dots, ax=ax, ticks=[0.0, 1.0], aspect=30, pad=0.02)
        bar.set_ticklabels(["low", "high"])
        bar.outline.set_visible(False)
    return style_bars(ax)


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


def _row_of(explanation: Any, row: int) -> tuple[Any, Any]:
    if explanation.base.ndim != 1:
        raise ValueError("plot_waterfall draws one score; choose it with explain(X, output=c)")
    if not -len(explanation.base) <= row < len(explanation.base):
        raise ValueError(f"row must be one of the {len(explanation.base)} explained rows, got {row}")
    data = explanation.data
    own = None
    if hasattr(data, "iloc"):
        own = data.iloc[row].tolist()
    elif hasattr(data, "row"):
        own = list(data.row(row))
    elif hasattr(data, "shape") and not hasattr(data, "tocsr"):
        own = list(data[row])
    elif hasattr(data, "tocsr"):
        own = data.tocsr()[[row]].toarray()[0].tolist()
    values = explanation.values[[row]]
    return np.asarray(values.toarray() if hasattr(values, "toarray") else values)[0], own


def _plain(name: str) -> str:
    """Escape what matplotlib would read as mathematics."""
    return name.replace("$", r"\$")


def _label(name: str, data: Any, j: int) -> str:
    name = _plain(name)
    if data is None or j >= len(data):
        return name
    value = data[j]
    return f"{name} = {value:.4g}" if isinstance(value, (int, float, np.number)) else f"{name} = {value}"


def _matrix(values: Any) -> Any:
    return values.toarray() if hasattr(values, "toarray") else values


def _numbers(explanation: Any, chosen: Any) -> Any:
    """Return chosen columns of the data as numbers, nan for categories; None where the data have other columns."""
    data = explanation.data
    if getattr(data, "shape", (0, 0))[1:] != (explanation.n_columns,):
        return None
    if hasattr(data, "toarray"):
        return data.tocsr()[:, chosen].toarray().astype(float)
    if hasattr(data, "columns"):
        is_number = [kind.kind in "biuf" if hasattr(kind, "kind") else kind.is_numeric() for kind in data.dtypes]
        columns = [data[c].to_numpy() for c in data.columns]
        columns = [c if number else np.full(len(data), np.nan) for c, number in zip(columns, is_number, strict=True)]
        data = np.column_stack(columns).astype(float)
    if not isinstance(data, np.ndarray) or data.dtype.kind not in "biuf":
        return None
    return data[:, chosen].astype(float)


def _ranks(x: Any) -> Any:
    """Return the place of each value among the others, from 0 to 1; one half for missing values."""
    known = ~np.isnan(x)
    ranks = np.full(len(x), 0.5)
    _, place = np.unique(x[known], return_inverse=True)
    ranks[known] = place / max(1, place.max(initial=0))
    return ranks


def _spread(x: Any) -> Any:
    """Return offsets that keep dots with like values apart."""
    offsets = np.zeros(len(x))
    span = np.ptp(x) or 1.0
    bins = np.floor((x - x.min()) / span * 60).astype(int)
    for b in np.unique(bins):
        own = np.flatnonzero(bins == b)
        places = (np.arange(len(own)) + 1) // 2 * np.where(np.arange(len(own)) % 2, 1, -1)
        offsets[own] = places / max(6.0, np.abs(places).max()) * 0.36
    return offsets


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


def draw_curve(ax: Axes, label: str, values: Sequence[float], **style: Any) -> None:
    ax.plot(range(1, len(values) + 1), values, label=label, linewidth=1.8, **style)


def style_axes(ax: Axes) -> None:
    ax.set_xlabel("rounds")
    ax.grid(True, color="#e3e3e3", linewidth=0.6)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.legend(frameon=False, fontsize=8)


def style_bars(ax: Axes) -> Axes:
    ax.grid(True, axis="x", color="#e3e3e3", linewidth=0.6)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
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
