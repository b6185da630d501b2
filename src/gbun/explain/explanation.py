"""An explanation: what each column adds to the scores of each row, beginning at a base."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
import scipy.sparse

from gbun.data.ingest import is_sparse
from gbun.dtypes import FloatArray, IntArray

OTHERS = "other features"
MOST_DENSE = 2**28  # numbers: 2 GB


@dataclass(frozen=True)
class Explanation:
    """Contributions of columns to scores: score = base + sum of values + residual.

    Scores are those before the link: log odds of classes, the logarithm of a Poisson mean, the value of squared error.

    Attributes
    ----------
    values : ndarray of shape (n, m), or (n, m, C) with several scores; CSR matrix, or a list of C, for sparse rows
        The contribution of each column. Of CSR rows, features that are absent there and in the baseline contribute 0.
    base : ndarray of shape (n,), or (n, C)
        The score at the baseline.
    scores : ndarray of shape (n,), or (n, C)
        What is explained.
    residual : ndarray of shape (n,), or (n, C)
        What the values leave of score - base: the error of an integral, or rounding.
    start, rounds : ndarray of shape (n,), or (n, C)
        The sums of the contributions of the linear start, and of the rounds.
    errors : like values, optional
        The standard errors of sampled values.
    names : tuple of str, optional
        Of the columns.
    data : Any
        The rows as they were given.
    ids : uint64, optional
        The hashes of the features of dicts and tokens.
    method : str
    """

    values: Any
    base: FloatArray
    scores: FloatArray
    residual: FloatArray
    start: FloatArray
    rounds: FloatArray
    errors: Any
    names: tuple[str, ...] | None
    data: Any
    method: str
    ids: IntArray | None = None

    @property
    def n_rows(self) -> int:
        return len(self.base)

    @property
    def n_columns(self) -> int:
        return int((self.values[0] if isinstance(self.values, list) else self.values).shape[1])

    def name(self, column: int) -> str:
        return self.names[column] if self.names else str(column)

    def __repr__(self) -> str:
        residual = float(np.abs(self.residual).max(initial=0.0))
        return (
            f"<Explanation of {self.n_rows} row(s) by {self.n_columns} column(s), method {self.method!r}, "
            f"residual at most {residual:.1e}>"
        )

    def output(self, c: int) -> Explanation:
        """Return the explanation of one of several scores."""
        if self.base.ndim == 1:
            if c == 0:
                return self
            raise ValueError(f"output must be 0: there is one score, got {c}")
        if not 0 <= c < self.base.shape[1]:
            raise ValueError(f"output must be from 0 to {self.base.shape[1] - 1}, got {c}")

        def take(values: Any) -> Any:
            if values is None:
                return None
            return values[c] if isinstance(values, list) else values[:, :, c]

        of_rows = {name: getattr(self, name)[:, c] for name in ("base", "scores", "residual", "start", "rounds")}
        return replace(self, values=take(self.values), errors=take(self.errors), **of_rows)

    def sum_abs(self) -> FloatArray:
        """Return the sum of absolute contributions of each column over the rows, their mean over the scores: (m,)."""
        matrices = self.values if isinstance(self.values, list) else [self.values]
        if is_sparse(matrices[0]):
            return np.asarray(np.mean([np.asarray(abs(v).sum(axis=0)).ravel() for v in matrices], axis=0))
        total = np.abs(self.values).sum(axis=0)
        return np.asarray(total if total.ndim == 1 else total.mean(axis=1))

    def mean_abs(self) -> FloatArray:
        """Return the mean absolute contribution of each column over the rows, and over the scores: (m,)."""
        return self.sum_abs() / self.n_rows

    def top(self, n: int) -> Explanation:
        """Keep the n columns with the largest mean absolute contribution; the others become one column."""
        check_top(n)
        if n >= self.n_columns:
            return self
        size = self.mean_abs()
        kept = np.argsort(-size, kind="stable")[:n]
        others = np.setdiff1d(np.arange(self.n_columns), kept)

        def shrink(values: Any) -> Any:
            if values is None:
                return None
            if isinstance(values, list):
                return [shrink(v) for v in values]
            if is_sparse(values):
                rest = scipy.sparse.csr_array(
                    np.asarray(values.sum(axis=1)).reshape(-1, 1) - _row_sums(values[:, kept])
                )
                return scipy.sparse.hstack([values[:, kept], rest], format="csr")
            return np.concatenate([values[:, kept], values[:, others].sum(axis=1, keepdims=True)], axis=1)

        names = (*(self.name(int(j)) for j in kept), OTHERS)
        data = _take_columns(self.data, kept)
        return replace(self, values=shrink(self.values), errors=None, names=names, data=data, ids=None)

    def to_shap(self) -> Any:
        """Return a `shap.Explanation` for the plots of the shap package; several scores are its last axis."""
        try:
            shap: Any = import_module("shap")
        except ImportError:
            raise ImportError("to_shap needs the shap package: pip install shap") from None
        matrices = self.values if isinstance(self.values, list) else [self.values]
        if is_sparse(matrices[0]):
            if len(matrices) * self.n_rows * self.n_columns > MOST_DENSE:
                raise ValueError(
                    f"to_shap makes a dense array of {self.n_rows:,} x {self.n_columns:,} numbers; explain with top="
                )
            dense = np.stack([matrix.toarray() for matrix in matrices], axis=-1)
            values = dense if isinstance(self.values, list) else dense[..., 0]
        else:
            values = self.values
        data = _to_dense(self.data, values.shape[:2])
        names = list(self.names) if self.names else [str(j) for j in range(self.n_columns)]
        return shap.Explanation(values=values, base_values=self.base, data=data, feature_names=names)


def check_top(n: Any) -> None:
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
        raise ValueError(f"top must be a whole number of at least 1, got {n!r}")


def _row_sums(matrix: Any) -> FloatArray:
    return np.asarray(matrix.sum(axis=1)).reshape(-1, 1)


def _take_columns(data: Any, kept: Any) -> Any:
    """Return some columns of the data, and an empty one for the others; None where data have no such columns."""
    matrix: Any = data
    if is_sparse(matrix):
        columns = matrix.tocsr()[:, kept]
        nothing: Any = scipy.sparse.csr_array(np.zeros((columns.shape[0], 1)))
        return scipy.sparse.hstack([columns, nothing], format="csr")
    values = data.to_numpy() if hasattr(data, "to_numpy") else data
    if not isinstance(values, np.ndarray) or values.ndim != 2:
        return None
    missing = np.full((len(values), 1), np.nan) if values.dtype.kind == "f" else np.full((len(values), 1), None, object)
    return np.concatenate([values[:, kept], missing], axis=1)


def _to_dense(data: Any, shape: tuple[int, ...]) -> Any:
    matrix: Any = data
    if is_sparse(matrix):
        return matrix.toarray()
    values = data.to_numpy() if hasattr(data, "to_numpy") else data
    return values if isinstance(values, np.ndarray) and values.shape == shape else None
