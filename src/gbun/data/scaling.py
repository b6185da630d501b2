"""Column scaling inside the model: fitted by sums over rows, remembered, applied to whatever is predicted.

    dense column   x -> (x - centre) / deviation        a missing value becomes 0: it contributes nothing
    sparse entry   x -> x / deviation                   zeros stay zeros, nothing is densified

Centring shifts each network output by a constant, which the normalisation of the outputs takes away again; so
dense and sparse forms of the same rows give the same model, and dense columns can be centred for the sake of
float32 even where no scaling is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gbun.collectives import Collective
from gbun.data.features import Entries, Features
from gbun.dtypes import MEMBERSHIP, SUM, FloatArray, IntArray

FAR = 1e18  # values beyond it are cut: float32 holds their sums, and no softmax tells them apart


@dataclass(frozen=True)
class ColumnScale:
    """centre and factor (1 / deviation, 0 for a constant column) by column, or by sorted id when `ids` is given."""

    centre: FloatArray
    factor: FloatArray
    ids: IntArray | None = None

    def apply_dense(self, X: FloatArray, missing_is_zero: bool) -> FloatArray:
        """float32 columns, centred and scaled; chunk by chunk, so that no float64 copy of X is made."""
        out = np.empty(X.shape, dtype=MEMBERSHIP)
        for first in range(0, len(X), 4096):
            block = X[first : first + 4096].astype(SUM)
            missing = np.isnan(block)
            if missing_is_zero:
                block[missing] = 0.0
            block -= self.centre
            block *= self.factor
            if not missing_is_zero:
                block[missing] = 0.0
            out[first : first + 4096] = np.clip(block, -FAR, FAR)
        return out

    def apply_sparse(self, entries: Entries) -> Entries:
        assert self.ids is not None
        if len(self.ids) == 0:
            return Entries(entries.indptr, entries.ids, np.zeros(len(entries.ids), dtype=MEMBERSHIP))
        at = np.searchsorted(self.ids, entries.ids).clip(max=len(self.ids) - 1)
        known = self.ids[at] == entries.ids
        # A missing entry stands at its column's mean, as a centred dense column would have it.
        values = np.where(np.isnan(entries.values), self.centre[at], entries.values) * self.factor[at]
        return Entries(entries.indptr, entries.ids, np.where(known, values, 0.0).astype(MEMBERSHIP))


@dataclass(frozen=True)
class Scaling:
    """The fitted scaling of a model. `dense` is always there for dense columns, `sparse` only when asked for."""

    name: str
    dense: ColumnScale | None = None
    sparse: ColumnScale | None = None

    def apply(self, features: Features) -> Features:
        dense, sparse = features.dense, features.sparse
        if dense is not None and self.dense is not None:
            dense = self.dense.apply_dense(dense, missing_is_zero=self.name == "none")
        if sparse is not None:
            sparse = _drop_missing(sparse) if self.sparse is None else self.sparse.apply_sparse(sparse)
        return Features(features.n_rows, dense, sparse)


def fit_scaling(name: str, features: Features, weight: FloatArray, collective: Collective) -> Scaling:
    """`name` is "auto" (dense columns standardised), "standard" (sparse ones too) or "none"."""
    dense = sparse = None
    if features.dense is not None:
        dense = _fit_dense(name, features.dense, weight, collective)
    if features.sparse is not None and name == "standard":
        if collective.size > 1:
            raise ValueError(
                "scale='standard' on sparse columns needs all rows in one place; scale them before training, or use "
                "scale='auto' or 'none'"
            )
        sparse = _fit_sparse(features, weight)
    return Scaling(name, dense, sparse)


def _fit_dense(name: str, X: FloatArray, weight: FloatArray, collective: Collective) -> ColumnScale:
    # Missing values leave the mean and deviation of their column alone, except under "none", where they are zeros.
    count, first = _column_sums(X, weight, np.zeros(X.shape[1]), power=1)
    if name == "none":
        count = np.full(X.shape[1], weight.sum())
    count, first = collective.sum(np.stack([count, first]))
    centre = first / np.where(count > 0, count, 1.0)
    if name == "none":
        return ColumnScale(centre, np.ones(X.shape[1]))
    (second,) = collective.sum(_column_sums(X, weight, centre, power=2)[1:])
    if not np.isfinite(second).all():
        column = int(np.flatnonzero(~np.isfinite(second))[0])
        raise ValueError(
            f"X has values beyond 1e150 in column {column}; rescale it, or mark such values as missing (NaN)"
        )
    return ColumnScale(centre, _inverse_deviation(second / np.where(count > 0, count, 1.0), centre))


def _column_sums(X: FloatArray, weight: FloatArray, shift: FloatArray, power: int) -> FloatArray:
    """Per column: the weight of present values, and the weighted sum of (value - shift)^power."""
    count, total = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for start in range(0, len(X), 4096):
        block = X[start : start + 4096].astype(SUM) - shift
        w = weight[start : start + 4096]
        present = ~np.isnan(block)
        block[~present] = 0.0
        count += w @ present
        with np.errstate(over="ignore"):
            total += w @ (block if power == 1 else block * block)
    return np.stack([count, total])


def _fit_sparse(features: Features, weight: FloatArray) -> ColumnScale:
    entries = features.sparse
    assert entries is not None
    present = ~np.isnan(entries.values)
    ids, at = np.unique(entries.ids, return_inverse=True)
    w, x = weight[entries.row_of_entry], np.where(present, entries.values, 0.0).astype(SUM)
    # Implicit zeros are values; only explicit missing entries are left out of a column's weight.
    missing = np.bincount(at, w * ~present, minlength=len(ids))
    count = np.maximum(weight.sum() - missing, np.finfo(SUM).tiny)
    centre = np.bincount(at, w * x, minlength=len(ids)) / count
    about = np.bincount(at, w * np.where(present, (x - centre[at]) ** 2, 0.0), minlength=len(ids))
    zeros = count - np.bincount(at, w * present, minlength=len(ids))
    variance = (about + zeros.clip(min=0.0) * centre**2) / count
    return ColumnScale(centre, _inverse_deviation(variance, centre), ids)


def _inverse_deviation(variance: FloatArray, centre: FloatArray) -> FloatArray:
    deviation = np.sqrt(variance)
    # A deviation at the level of rounding is a constant column: it has nothing to say and gets factor 0.
    constant = deviation <= 1e-12 * np.abs(centre)
    with np.errstate(divide="ignore"):
        return np.where(constant, 0.0, 1.0 / np.where(constant, 1.0, deviation))


def _drop_missing(entries: Entries) -> Entries:
    missing = np.isnan(entries.values)
    values = np.where(missing, 0.0, entries.values) if missing.any() else entries.values
    return Entries(entries.indptr, entries.ids, values.astype(MEMBERSHIP, copy=False))
