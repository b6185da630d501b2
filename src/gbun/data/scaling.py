"""Scaling inside the model: fitted by sums over rows, remembered, applied to whatever is predicted.

    log        x -> sign(x) log(1 + |x|)
    standard   x -> (x - mean) / deviation   dense columns; sparse entries are divided only: zeros stay zeros
    max_abs    x -> x / largest |x| of its column
    idf        x -> x (1 + log((1 + N) / (1 + N_f)))      N rows, N_f of them with feature f
    unit       x -> x / |x|, rows of length 1

A name joins steps in this order, with one of the three about columns at most: "log+idf+unit". A missing value becomes
0: it contributes nothing. Nothing is densified. What idf and max_abs know of sparse features is kept in buckets.

Centring shifts each network output by a constant, which the normalisation of the outputs takes away again; so under
the same steps dense and sparse forms of the same rows give the same networks, and dense columns can be centred for the
sake of float32 even where no scaling is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbun.arrays import Array, host, like, namespace, widened
from gbun.collectives import Collective
from gbun.data.buckets import MOST_NUMBERS, Buckets, buckets_for
from gbun.data.columns import ColumnScale, ScaledColumns, logarithm, positive
from gbun.data.features import Entries, Features, Schema
from gbun.dtypes import MEMBERSHIP, SUM, FloatArray, IntArray
from gbun.ranges import scaling_steps

TEXT = ("log", "idf", "unit")
TINY = float(np.finfo(MEMBERSHIP).tiny)  # below it an inverse is beyond float32
PIECE = 2**16  # numbers of each worker that are gathered at a time
ROWS = 2**12  # of dense columns that are summed at a time
EVEN = 0.1  # rows whose numbers of entries deviate less than this from their mean are one-hot rows


@dataclass(frozen=True)
class BucketScale:
    """A factor for each bucket of sparse features; 0 where no training row had one, for nothing is known of it."""

    buckets: Buckets
    factor: FloatArray

    def apply(self, ids: IntArray, values: FloatArray) -> FloatArray:
        return values * self.factor[self.buckets.place(ids)[0]]


@dataclass(frozen=True)
class Scaling:
    """The fitted scaling of a model: the steps, and what the one about columns has learnt.

    `dense` is always there for dense columns; `sparse` with "standard", `shared` with "idf" and "max_abs".
    """

    name: str
    dense: ColumnScale | None = None
    sparse: ColumnScale | None = None
    shared: BucketScale | None = None
    sparse_steps: tuple[str, ...] = ()

    @property
    def dense_steps(self) -> tuple[str, ...]:
        return dense_steps(self.name)

    def apply(self, features: Features, in_place: bool = False) -> Features:
        """Scaled rows. `in_place`: dense columns stay as they are, and are scaled whenever some of them are read."""
        dense, sparse = features.dense, features.sparse
        if dense is not None and self.dense is not None:
            columns = ScaledColumns(dense, self.dense, self.dense_steps)
            dense = columns if in_place else columns.copy()
        if sparse is not None:
            sparse = self._sparse(sparse)
        return Features(features.n_rows, dense, sparse)

    def _sparse(self, entries: Entries) -> Entries:
        values = entries.values
        if "log" in self.sparse_steps:
            values = logarithm(values)
        if self.sparse is not None:
            values = self.sparse.apply_sparse(entries.ids, values)
        missing = np.isnan(values)
        values = np.where(missing, 0.0, values) if missing.any() else values
        if self.shared is not None:
            values = self.shared.apply(entries.ids, values)
        if "unit" in self.sparse_steps:
            lengths = np.sqrt(row_sums(entries.indptr, np.square(values.astype(SUM))))
            values = values / np.repeat(positive(lengths), np.diff(entries.indptr))
        return entries.valued(values.astype(MEMBERSHIP, copy=False))


def dense_steps(name: str) -> tuple[str, ...]:
    steps = scaling_steps(name)
    return ("standard",) if steps is None else steps


def row_sums(indptr: IntArray, values: FloatArray) -> FloatArray:
    """The sum of each row's values; 0 for a row without any."""
    sums, filled = np.zeros(len(indptr) - 1), np.diff(indptr) > 0
    if filled.any():
        sums[filled] = np.add.reduceat(values, indptr[:-1][filled])
    return sums


def fit_scaling(
    name: str, features: Features, weight: FloatArray, collective: Collective, schema: Schema | None = None
) -> Scaling:
    """`name` is steps joined by "+", "none", or "auto": dense columns "standard", sparse ones as `seen_steps` says."""
    schema = schema or Schema("array")
    steps = scaling_steps(name)
    sparse_steps: tuple[str, ...] = ()
    dense = sparse = shared = None
    if features.dense is not None:
        dense = _told(_fit_dense(dense_steps(name), features.dense, weight, collective), collective)
    if features.sparse is not None:
        sparse_steps = seen_steps(features.sparse, weight, schema.kind, collective) if steps is None else steps
        entries = features.sparse
        if "log" in sparse_steps:
            entries = Entries(entries.indptr, entries.ids, logarithm(entries.values))
        n_columns = schema.n_columns if schema.kind == "array" else None
        if "standard" in sparse_steps:
            sparse = _told(_fit_sparse(entries, weight, n_columns, collective), collective)
        elif {"idf", "max_abs"} & set(sparse_steps):
            shared = _fit_shared(sparse_steps, entries, weight, n_columns, collective)
    return Scaling(name, dense, sparse, shared, sparse_steps)


def _told(scale: ColumnScale, collective: Collective) -> ColumnScale:
    """As the root has made it of the sums: workers need not agree on the last bit of a logarithm, but in models."""
    centre, factor = collective.broadcast(np.stack([scale.centre, scale.factor]))
    return replace(scale, centre=centre, factor=factor)


def seen_steps(entries: Entries, weight: FloatArray, kind: str, collective: Collective) -> tuple[str, ...]:
    """What "auto" does with sparse entries, from what can be seen of them:

    counts, or words that are there or not,
    more in some rows than in others          log, idf, unit
    ones, about as many in every row          nothing: one-hot columns
    rows of length 1                          nothing: someone has scaled them
    other numbers, and numbers in dicts       max_abs
    """
    values, present = entries.values, (entries.values != 0) & ~np.isnan(entries.values)
    values = np.where(present, values, 0.0).astype(SUM)
    counts = row_sums(entries.indptr, present.astype(SUM))
    lengths = row_sums(entries.indptr, np.square(values))
    w = np.where(counts > 0, weight, 0.0)
    w_of_entry = np.where(present, np.repeat(w, np.diff(entries.indptr)), 0.0)
    n, n_present, squares, other, many, off = collective.sum(
        np.array(
            [
                w.sum(),
                w @ counts,
                w @ np.square(counts),
                w_of_entry @ ((values < 0) | (values != np.rint(values))),  # not a count
                w_of_entry @ (values != 1),  # not a one
                w @ (np.abs(lengths - 1.0) > 1e-2),  # a row not of length 1
            ]
        )
    )
    if not n:
        return ()
    mean = n_present / n
    even = squares / n - mean**2 <= (EVEN * mean) ** 2
    if not many and (even or kind in ("names", "frame")):
        return ()
    if not other and not even and kind != "names":
        return TEXT
    return () if not off else ("max_abs",)


def _fit_shared(
    steps: tuple[str, ...], entries: Entries, weight: FloatArray, n_columns: int | None, collective: Collective
) -> BucketScale:
    buckets = buckets_for(entries.counting(weight), n_columns, 1, collective)
    places, _ = buckets.place(entries.ids)
    size = np.abs(np.nan_to_num(entries.values, nan=0.0)).astype(SUM) * (weight[entries.row_of_entry] > 0)
    if "idf" in steps:
        found = collective.sum(
            np.append(np.bincount(places, weight[entries.row_of_entry] * (size > 0), buckets.n), weight.sum())
        )
        rows, total = found[:-1], found[-1]
        rows = np.minimum(rows, total)  # features of one row may share a bucket
        factor = np.where(rows > 0, 1.0 + np.log((1.0 + total) / (1.0 + rows)), 0.0)
    else:
        largest = np.zeros(buckets.n)
        np.maximum.at(largest, places, size)
        factor = _inverse(_maximum(largest, collective))
    return BucketScale(buckets, collective.broadcast(factor.astype(MEMBERSHIP)))


def _maximum(values: NDArray[Any], collective: Collective) -> NDArray[Any]:
    """The elementwise maximum over workers, piece by piece: one worker sees the numbers of all."""
    if collective.size == 1:
        return values
    parts = []
    for first in range(0, len(values), PIECE):
        own = values[first : first + PIECE]
        found = collective.gather(own)
        parts.append(collective.broadcast(own if found is None else np.max(found, axis=0)))
    return np.concatenate(parts) if parts else values


def _inverse(values: FloatArray) -> FloatArray:
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > TINY)


def _fit_dense(steps: tuple[str, ...], X: Array, weight: FloatArray, collective: Collective) -> ColumnScale:
    m = X.shape[1]
    if "idf" in steps:
        rows, total = _column_sums(X, weight, np.zeros(m), "present"), np.full(m, weight.sum())
        rows, total = collective.sum(np.stack([rows, total]))
        return ColumnScale(np.zeros(m), np.where(rows > 0, 1.0 + np.log((1.0 + total) / (1.0 + rows)), 0.0))
    if "max_abs" in steps:
        largest = np.zeros(m)
        for top in range(0, len(X), ROWS):
            block = np.abs(host(widened(X[top : top + ROWS])))[weight[top : top + ROWS] > 0]
            largest = np.fmax(largest, np.fmax.reduce(block, axis=0, initial=0.0))
        largest = np.log1p(largest) if "log" in steps else largest
        return ColumnScale(np.zeros(m), _inverse(_maximum(largest, collective)))
    log = "log" in steps
    # Missing values leave the mean and deviation of their column alone; without "standard" they are zeros.
    count, first = _column_sums(X, weight, np.zeros(m), "known"), _column_sums(X, weight, np.zeros(m), "sum", log)
    if "standard" not in steps:
        count = np.full(m, weight.sum())
    count, first = collective.sum(np.stack([count, first]))
    centre = first / np.where(count > 0, count, 1.0)
    if "standard" not in steps:  # rows that are to get length 1 are not moved before
        return ColumnScale(np.zeros(m) if "unit" in steps else centre, np.ones(m))
    second = collective.sum(_column_sums(X, weight, centre, "squares", log))
    if not np.isfinite(second).all():
        column = int(np.flatnonzero(~np.isfinite(second))[0])
        raise ValueError(
            f"X has values beyond 1e150 in column {column}; rescale it, or mark such values as missing (NaN)"
        )
    return ColumnScale(centre, _inverse_deviation(second / np.where(count > 0, count, 1.0), centre))


def _column_sums(X: Array, weight: FloatArray, shift: FloatArray, what: str, log: bool = False) -> FloatArray:
    """Per column, the weighted sum over known values of 1 ("known"), of 1 where not 0 ("present"), of value - shift
    ("sum") or of its square ("squares")."""
    total, xp = np.zeros(X.shape[1]), namespace(X)
    for start in range(0, len(X), ROWS):
        block = widened(X[start : start + ROWS])
        block = (logarithm(block) if log else block) - like(shift, block)
        known = ~xp.isnan(block)
        block[~known] = 0.0
        with np.errstate(over="ignore"):
            values = {"known": known, "present": block != 0.0, "sum": block}.get(what)
            values = block * block if values is None else xp.astype(values, block.dtype)
            total += host(like(weight[start : start + ROWS], block) @ values)
    return total


def _fit_sparse(entries: Entries, weight: FloatArray, n_columns: int | None, collective: Collective) -> ColumnScale:
    present = ~np.isnan(entries.values)
    ids, at = np.unique(entries.ids, return_inverse=True)
    if collective.size > 1:
        ids = all_ids(ids, n_columns, collective)
        at = np.searchsorted(ids, entries.ids)
    w, x, n = weight[entries.row_of_entry], np.where(present, entries.values, 0.0).astype(SUM), len(ids)
    sums = [np.bincount(at, values, minlength=n) for values in (w * ~present, w * x, w * present)]
    found = collective.sum(np.append(np.concatenate(sums), weight.sum()))
    missing, first, filled = found[:-1].reshape(3, n)
    # Implicit zeros are values; only explicit missing entries are left out of a column's weight.
    count = np.maximum(found[-1] - missing, np.finfo(SUM).tiny)
    centre = first / count
    squares = w * np.where(present, (x - centre[at]) ** 2, 0.0)
    about = collective.sum(np.bincount(at, squares, minlength=n).astype(SUM, copy=False))
    zeros = count - filled
    zeros[zeros <= 1e-12 * count] = 0.0  # what rounding leaves of a column without zeros
    variance = (about + zeros * centre**2) / count
    return ColumnScale(centre, _inverse_deviation(variance, centre), ids)


def all_ids(ids: IntArray, n_columns: int | None, collective: Collective) -> IntArray:
    """The ids that any worker has, sorted, of the different ones that each has, found by maxima.

    Ids are thrown into buckets; the largest of each bucket is told and taken out, until all buckets are empty.
    """
    buckets = buckets_for(ids, n_columns, 1, collective)
    left, found, n_found = ids.astype(np.int64), [], 0
    while True:
        places, _ = buckets.place(left)
        largest = np.full(buckets.n, -1, dtype=np.int64)
        np.maximum.at(largest, places, left)
        largest = _maximum(largest, collective)
        found.append(largest[largest >= 0])
        n_found += len(found[-1])
        if n_found > MOST_NUMBERS:
            raise ValueError(
                f"scale='standard' keeps two numbers for each sparse feature, and there are more than {MOST_NUMBERS}, "
                "too many for workers to tell each other; use scale='max_abs', 'auto' or 'none'"
            )
        if not len(found[-1]):
            return np.sort(np.concatenate(found))
        left = left[largest[places] != left]


def _inverse_deviation(variance: FloatArray, centre: FloatArray) -> FloatArray:
    deviation = np.sqrt(variance)
    # A deviation at the level of rounding is a constant column: it has nothing to say and gets factor 0.
    constant = deviation <= 1e-12 * np.abs(centre)
    with np.errstate(divide="ignore"):
        return np.where(constant, 0.0, 1.0 / np.where(constant, 1.0, deviation))
