"""Pictures of explanations: importances, one row, many rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gbun.plots.figures import COLOURS, new_axes, style_bars

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
