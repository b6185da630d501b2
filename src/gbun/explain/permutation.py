"""Permutation: how much worse a model gets when the columns of a group are shuffled among the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse

from gbun.data.ingest import is_sparse
from gbun.dtypes import FloatArray

MAX_SHUFFLED = 5000  # groups
Groups = Mapping[str, Sequence[int]]


def choose_groups(X: Any, groups: Mapping[str, Sequence[Any]] | None) -> Groups:
    """Return the numbers of the columns of each group; None: each column by itself."""
    if not hasattr(X, "shape") or len(X.shape) != 2:
        raise ValueError(
            f"kind='permutation' shuffles columns of an array, a matrix or a frame, got {type(X).__name__}"
        )
    columns = [str(c) for c in getattr(X, "columns", range(X.shape[1]))]
    if groups is None:
        return {name: [j] for j, name in enumerate(columns)}
    if any(isinstance(some, str) for some in groups.values()):
        raise ValueError("groups must be lists of columns by name, got a str in the place of a list")
    return {name: [find_column(columns, c, name) for c in some] for name, some in groups.items()}


def find_column(columns: Sequence[str], wanted: Any, group: str) -> int:
    """Return the number of a column that is given by name or by number."""
    if isinstance(wanted, str) and wanted in columns:
        return columns.index(wanted)
    if isinstance(wanted, Integral) and 0 <= int(wanted) < len(columns):
        return int(wanted)
    raise ValueError(f"groups[{group!r}] must name columns of X, got {wanted!r}")


def permutation_importance(
    X: Any, score: Callable[[Any], float], groups: Groups, n_repeats: int, seed: int
) -> tuple[FloatArray, tuple[str, ...], str, FloatArray]:
    """Return how much lower the score is when a group is shuffled, names, kind and standard errors: an `Importance`.

    `X` is an array, a data frame or a CSR matrix. Columns without entries are the same in any order.
    """
    filled = np.unique(X.tocoo().col) if is_sparse(X) else np.arange(X.shape[1])
    at = [g for g, some in enumerate(groups.values()) if np.isin(some, filled).any()]
    if len(at) > MAX_SHUFFLED:
        raise ValueError(
            f"kind='permutation' would predict the rows for each of {len(at):,} columns; pass groups= of columns, or "
            "kind='contribution'"
        )
    rng, n = np.random.default_rng(seed), X.shape[0]
    best, drops, columns = score(X), np.zeros((len(groups), n_repeats)), list(groups.values())
    for g in at:
        for r in range(n_repeats):
            drops[g, r] = best - score(shuffle_columns(X, columns[g], rng.permutation(n)))
    errors = drops.std(axis=1, ddof=1) / np.sqrt(n_repeats) if n_repeats > 1 else np.full(len(groups), np.nan)
    return drops.mean(axis=1), tuple(groups), "permutation", errors


def shuffle_columns(X: Any, columns: Sequence[int], order: Any) -> Any:
    """Return X with some columns in another order of rows, the same for all of them."""
    columns = list(columns)
    if is_sparse(X):
        chosen = np.zeros(X.shape[1], dtype=bool)
        chosen[columns] = True
        keep = scipy.sparse.diags_array((~chosen).astype(X.dtype))
        take = scipy.sparse.diags_array(chosen.astype(X.dtype))
        return scipy.sparse.csr_array(X @ keep + X.tocsr()[order] @ take)
    if isinstance(X, np.ndarray):
        shuffled = X.copy()
        shuffled[:, columns] = X[order][:, columns]
        return shuffled
    if hasattr(X, "iloc"):
        shuffled = X.copy()
        for j in columns:
            shuffled.isetitem(j, X.iloc[order, j].set_axis(X.index))
        return shuffled
    return X.with_columns([X[:, j].gather(order) for j in columns])
