"""Scaling inside the model: fitted by sums over rows, stored in the model, applied to all rows it predicts.

    log        x -> sign(x) log(1 + |x|)
    standard   x -> (x - mean) / deviation   dense columns; sparse entries are only divided, so zeros stay zeros
    max_abs    x -> x / largest |x| of its column
    idf        x -> x (1 + log((1 + N) / (1 + N_f)))      N rows, N_f of them with feature f
    unit       x -> x / |x|, rows of length 1

A name joins steps in this order, with at most one of standard, max_abs and idf: "log+idf+unit". A missing value becomes
0, so it contributes nothing. Nothing is densified. idf and max_abs keep the factors of sparse features in buckets.

Centring shifts each network output by a constant, which the normalisation of the outputs removes. So dense and sparse
forms of the same rows give the same networks, and dense columns can be centred for the accuracy of float32 even if no
scaling is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbun.arrays import Array, asarray_like, namespace, to_host, widen
from gbun.collectives import Collective
from gbun.data.buckets import MAX_NUMBERS, Buckets, choose_buckets
from gbun.data.features import Entries, Features, Schema
from gbun.data.scaled_columns import ColumnScale, ScaledColumns, replace_zeros_by_ones, signed_log
from gbun.data.seen_categories import SeenCategories, find_seen_categories
from gbun.dtypes import MEMBERSHIP, SUM, FloatArray, IntArray
from gbun.ranges import parse_scaling_steps

TEXT_STEPS = ("log", "idf", "unit")
TINY = float(np.finfo(MEMBERSHIP).tiny)  # below it an inverse is beyond float32
GATHER_BLOCK = 2**16  # numbers gathered from each worker at a time
CLIP = 4.0  # deviations
LEAST_DEVIATION = 1e-150  # its square is a normal number of float64
VALUES_PER_BLOCK, ROWS_PER_BLOCK = 2**19, 2**12  # of dense columns, summed at a time
ONE_HOT_DEVIATION = 0.1  # relative deviation of the entries per row up to which rows are taken as one-hot


@dataclass(frozen=True)
class BucketScale:
    """A factor for each bucket of sparse features; 0 for features that no training row had."""

    buckets: Buckets
    factor: FloatArray

    def apply(self, ids: IntArray, values: FloatArray) -> FloatArray:
        return values * self.factor[self.buckets.place(ids)[0]]


@dataclass(frozen=True)
class Scaling:
    """The fitted scaling of a model: its steps, and the factors of columns and features.

    Categories that are not `seen` are missing. Dense columns have `dense`. Sparse features have `sparse` with
    "standard", `bucketed` with "idf" and "max_abs".
    """

    name: str
    dense: ColumnScale | None = None
    sparse: ColumnScale | None = None
    bucketed: BucketScale | None = None
    sparse_steps: tuple[str, ...] = ()
    seen: SeenCategories | None = None

    def apply(self, features: Features, lazy: bool = False) -> Features:
        """Scale rows. With `lazy`, dense columns stay as they are and are scaled each time they are read."""
        if self.seen is not None:
            features = self.seen.drop_others(features)
        dense, sparse = features.dense, features.sparse
        if dense is not None and self.dense is not None:
            columns = ScaledColumns(dense, self.dense, resolve_dense_steps(self.name))
            dense = columns if lazy else columns.copy()
        if sparse is not None:
            sparse = self._scale_entries(sparse)
        return Features(features.n_rows, dense, sparse, categories=features.categories)

    def unscale_dense(self, scaled: FloatArray) -> FloatArray:
        """Return the columns whose scaled values these are; constant columns have their value."""
        assert self.dense is not None
        factor = self.dense.factor
        values = self.dense.centre + np.divide(scaled, factor, out=np.zeros(scaled.shape), where=factor != 0.0)
        return np.sign(values) * np.expm1(np.abs(values)) if "log" in resolve_dense_steps(self.name) else values

    def _scale_entries(self, entries: Entries) -> Entries:
        values = entries.values
        if "log" in self.sparse_steps:
            values = signed_log(values)
        if self.sparse is not None:
            values = self.sparse.apply_sparse(entries.ids, values)
        missing = np.isnan(values)
        values = np.where(missing, 0.0, values) if missing.any() else values
        if self.bucketed is not None:
            values = self.bucketed.apply(entries.ids, values)
        if "unit" in self.sparse_steps:
            lengths = np.sqrt(row_sums(entries.indptr, np.square(values.astype(SUM))))
            values = values / np.repeat(replace_zeros_by_ones(lengths), np.diff(entries.indptr))
        return entries.with_values(values.astype(MEMBERSHIP, copy=False))


def weigh_columns(scaling: Scaling, relevance: FloatArray) -> Scaling:
    """Return a scaling whose dense columns are scaled by their relevance too."""
    assert scaling.dense is not None
    dense = scaling.dense
    bound = None if dense.bound is None else dense.bound * relevance
    return replace(scaling, dense=replace(dense, factor=dense.factor * relevance, bound=bound))


def resolve_dense_steps(name: str) -> tuple[str, ...]:
    steps = parse_scaling_steps(name)
    return ("standard",) if steps is None else steps


def blocks_of_entries(indptr: IntArray, n_entries: int = 2**18) -> Iterator[slice]:
    """Yield blocks of rows with about so many entries, or one row with more."""
    first, n_rows = 0, len(indptr) - 1
    while first < n_rows:
        last = int(np.searchsorted(indptr, indptr[first] + n_entries, side="right")) - 1
        last = min(max(last, first + 1), n_rows)
        yield slice(first, last)
        first = last


def row_sums(indptr: IntArray, values: FloatArray) -> FloatArray:
    """Sum the values of each row; 0 for a row without entries."""
    sums, filled = np.zeros(len(indptr) - 1), np.diff(indptr) > 0
    if filled.any():
        sums[filled] = np.add.reduceat(values, indptr[:-1][filled])
    return sums


def fit_scaling(
    name: str, features: Features, weight: FloatArray, collective: Collective, schema: Schema | None = None
) -> Scaling:
    """Fit a scaling to the rows of all workers.

    `name` is steps joined by "+", "none", or "auto": "standard" for dense columns, `choose_sparse_steps` for sparse.
    """
    schema = schema or Schema("array")
    steps = parse_scaling_steps(name)
    sparse_steps: tuple[str, ...] = ()
    dense = sparse = bucketed = None
    if features.dense is not None:
        scale = _fit_dense_columns(resolve_dense_steps(name), features.dense, weight, collective)
        dense = _broadcast_scale(scale, collective)
        if "clip" in resolve_dense_steps(name):
            dense = replace(dense, bound=np.full(len(dense.centre), CLIP))
    if features.sparse is not None:
        sparse_steps = choose_sparse_steps(features.sparse, weight, schema.kind, collective) if steps is None else steps
        entries = features.sparse
        if "log" in sparse_steps:
            entries = Entries(entries.indptr, entries.ids, signed_log(entries.values))
        n_columns = schema.n_columns if schema.kind == "array" else None
        if "standard" in sparse_steps:
            sparse = _broadcast_scale(_fit_sparse_columns(entries, weight, n_columns, collective), collective)
        elif {"idf", "max_abs"} & set(sparse_steps):
            bucketed = _fit_buckets(sparse_steps, entries, weight, n_columns, collective)
    seen = find_seen_categories(features, len(schema.categorical), weight, collective)
    return Scaling(name, dense, sparse, bucketed, sparse_steps, seen)


def _broadcast_scale(scale: ColumnScale, collective: Collective) -> ColumnScale:
    """Take the scale of the root: workers may differ in the last bit of a logarithm, their models must not."""
    centre, factor = collective.broadcast(np.stack([scale.centre, scale.factor]))
    return replace(scale, centre=centre, factor=factor)


def choose_sparse_steps(entries: Entries, weight: FloatArray, kind: str, collective: Collective) -> tuple[str, ...]:
    """Choose the steps of "auto" for sparse entries:

    counts or ones, with different numbers of entries in rows     log, idf, unit
    ones, about as many in every row                              none: one-hot columns
    rows of length 1                                              none: they are scaled already
    other numbers, and numbers in dicts                           max_abs
    """
    sums = np.zeros(6)
    for rows in blocks_of_entries(entries.indptr):  # what is made of entries is small beside them
        indptr = entries.indptr[rows.start : rows.stop + 1]
        values = entries.values[indptr[0] : indptr[-1]]
        present = (values != 0) & ~np.isnan(values)
        values = np.where(present, values, 0.0).astype(SUM)
        counts = row_sums(indptr - indptr[0], present.astype(SUM))
        lengths = row_sums(indptr - indptr[0], np.square(values))
        w = np.where(counts > 0, weight[rows], 0.0)
        w_of_entry = np.where(present, np.repeat(w, np.diff(indptr)), 0.0)
        sums += [
            w.sum(),
            w @ counts,
            w @ np.square(counts),
            w_of_entry @ ((values < 0) | (values != np.rint(values))),  # not a count
            w_of_entry @ (values != 1),  # not a one
            w @ (np.abs(lengths - 1.0) > 1e-2),  # a row not of length 1
        ]
    n, n_present, squares, other, many, off = collective.sum(sums)
    if not n:
        return ()
    mean = n_present / n
    even = squares / n - mean**2 <= (ONE_HOT_DEVIATION * mean) ** 2
    if not many and (even or kind in ("names", "frame")):
        return ()
    if not other and not even and kind != "names":
        return TEXT_STEPS
    return () if not off else ("max_abs",)


def _fit_buckets(
    steps: tuple[str, ...], entries: Entries, weight: FloatArray, n_columns: int | None, collective: Collective
) -> BucketScale:
    buckets = choose_buckets(entries.weighted_ids(weight), n_columns, 1, collective)
    places, _ = buckets.place(entries.ids)
    size = np.abs(np.nan_to_num(entries.values, nan=0.0)).astype(SUM) * (weight[entries.row_of_entry] > 0)
    if "idf" in steps:
        counts = np.bincount(places, weight[entries.row_of_entry] * (size > 0), buckets.n)
        sums = collective.sum(np.append(counts, weight.sum()))
        factor = _idf(np.minimum(sums[:-1], sums[-1]), sums[-1])  # features of one row may share a bucket
    else:
        largest = np.zeros(buckets.n)
        np.maximum.at(largest, places, size)
        factor = _invert(_reduce_maximum(largest, collective))
    return BucketScale(buckets, collective.broadcast(factor.astype(MEMBERSHIP)))


def _idf(rows: FloatArray, total: FloatArray) -> FloatArray:
    return np.where(rows > 0, 1.0 + np.log((1.0 + total) / (1.0 + rows)), 0.0)


def _reduce_maximum(values: NDArray[Any], collective: Collective) -> NDArray[Any]:
    """Return the elementwise maximum over workers, block by block, as the root holds a block of every worker."""
    parts = []
    for first in range(0, len(values), GATHER_BLOCK):
        local = values[first : first + GATHER_BLOCK]
        gathered = collective.gather(local)
        parts.append(collective.broadcast(local if gathered is None else np.max(gathered, axis=0)))
    return np.concatenate(parts) if parts else values


def _invert(values: FloatArray) -> FloatArray:
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > TINY)


def _fit_dense_columns(steps: tuple[str, ...], X: Array, weight: FloatArray, collective: Collective) -> ColumnScale:
    m, log = X.shape[1], "log" in steps
    if "idf" in steps:
        (rows,) = _column_sums(X, weight, [lambda x, known: x != 0.0])
        return ColumnScale(np.zeros(m), _idf(*collective.sum(np.stack([rows, np.full(m, weight.sum())]))))
    if "max_abs" in steps:
        largest = np.zeros(m)
        for rows in _dense_blocks(X):
            block = np.abs(to_host(widen(X[rows])))[weight[rows] > 0]
            largest = np.fmax(largest, np.fmax.reduce(block, axis=0, initial=0.0))
        largest = np.log1p(largest) if log else largest
        largest = _reduce_maximum(largest, collective)
        _refuse_small(np.flatnonzero((largest > 0.0) & (largest <= TINY)), TINY)
        return ColumnScale(np.zeros(m), _invert(largest))
    # Missing values do not change the mean and deviation of their column; without "standard" they are zeros.
    count, total = _column_sums(X, weight, [lambda x, known: known, lambda x, known: x], log)
    if "standard" not in steps:
        count = np.full(m, weight.sum())
    count, total = collective.sum(np.stack([count, total]))
    divisor = np.where(count > 0, count, 1.0)
    centre = total / divisor
    if "standard" not in steps:  # rows that get length 1 are not centred
        return ColumnScale(np.zeros(m) if "unit" in steps else centre, np.ones(m))
    squares = collective.sum(_column_sums(X, weight, [lambda x, known: x * x], log, centre)[0])
    if not np.isfinite(squares).all():
        column = int(np.flatnonzero(~np.isfinite(squares))[0])
        raise ValueError(
            f"X has values beyond 1e150 in column {column}; rescale it, or mark such values as missing (NaN)"
        )
    variance = squares / divisor
    _check_deviations(X, weight, log, centre, variance, collective)
    return ColumnScale(centre, _invert_deviation(variance, centre))


def _check_deviations(
    X: Array, weight: FloatArray, log: bool, centre: FloatArray, variance: FloatArray, collective: Collective
) -> None:
    """Raise an error if a column is not constant but so small that the squares of its deviations underflow."""
    columns = np.flatnonzero((variance < LEAST_DEVIATION**2) & (np.abs(centre) < LEAST_DEVIATION * 1e12))
    if not len(columns):
        return
    rounding = 1e-12 * np.abs(centre[columns])
    larger: list[Callable[[Array, Array], Array]] = [
        lambda x, known: abs(x) > asarray_like(rounding, x),
        lambda x, known: abs(x) > LEAST_DEVIATION,
    ]
    counts = _column_sums(X, (weight > 0.0).astype(SUM), larger, log, centre[columns], columns)
    all_counts = np.zeros((2, len(centre)))
    all_counts[:, columns] = counts
    different, visible = collective.sum(all_counts)
    _refuse_small(np.flatnonzero((different > 0.0) & (visible == 0.0)), LEAST_DEVIATION)


def _refuse_small(columns: IntArray, least: float) -> None:
    if len(columns):
        raise ValueError(
            f"X has values in column {columns[0]} that differ by less than {least:.0e}; rescale it, or leave it out"
        )


def _dense_blocks(X: Array) -> Iterator[slice]:
    """Cut rows into blocks of a few megabytes, however many columns there are."""
    size = min(ROWS_PER_BLOCK, max(1, VALUES_PER_BLOCK // max(1, X.shape[1])))
    return (slice(start, start + size) for start in range(0, len(X), size))


def _column_sums(
    X: Array,
    weight: FloatArray,
    quantities: Sequence[Callable[[Array, Array], Array]],
    log: bool = False,
    shift: FloatArray | None = None,
    columns: IntArray | None = None,
) -> FloatArray:
    """Return sum_i w_i q(x_ij - shift_j, known_ij) for each quantity q and column j; a missing x - shift is 0.

    `columns` are those to sum, if not all.
    """
    n_columns, xp = X.shape[1] if columns is None else len(columns), namespace(X)
    totals = np.zeros((len(quantities), n_columns))
    shift = np.zeros(n_columns) if shift is None else shift
    for rows in _dense_blocks(X):
        block = X[rows]
        block = widen(block if columns is None else block[:, columns])
        block = (signed_log(block) if log else block) - asarray_like(shift, block)
        known = ~xp.isnan(block)
        block[~known] = 0.0
        w = asarray_like(weight[rows], block)
        with np.errstate(over="ignore"):
            for total, quantity in zip(totals, quantities, strict=True):
                total += to_host(w @ xp.astype(quantity(block, known), block.dtype, copy=False))
    return totals


def _fit_sparse_columns(
    entries: Entries, weight: FloatArray, n_columns: int | None, collective: Collective
) -> ColumnScale:
    present = ~np.isnan(entries.values)
    ids, at = np.unique(entries.ids, return_inverse=True)
    if collective.size > 1:  # one worker has all ids: this saves the passes that find them
        ids = gather_ids(ids, n_columns, collective)
        at = np.searchsorted(ids, entries.ids)
    w, x, n = weight[entries.row_of_entry], np.where(present, entries.values, 0.0).astype(SUM), len(ids)
    local = [np.bincount(at, values, minlength=n) for values in (w * ~present, w * x, w * present)]
    sums = collective.sum(np.append(np.concatenate(local), weight.sum()))
    missing, total, filled = sums[:-1].reshape(3, n)
    # Implicit zeros are values; only missing entries are left out of a column's weight.
    count = np.maximum(sums[-1] - missing, np.finfo(SUM).tiny)
    centre = total / count
    squares = w * np.where(present, (x - centre[at]) ** 2, 0.0)
    squares = collective.sum(np.bincount(at, squares, minlength=n).astype(SUM, copy=False))
    zeros = count - filled
    zeros[zeros <= 1e-12 * count] = 0.0  # a column without zeros, up to rounding
    variance = (squares + zeros * centre**2) / count
    return ColumnScale(centre, _invert_deviation(variance, centre), ids)


def gather_ids(ids: IntArray, n_columns: int | None, collective: Collective) -> IntArray:
    """Return the sorted ids that any worker has, from the distinct ids of this worker.

    Each worker puts its ids into buckets. The largest id of each bucket over all workers is taken out, until all are
    empty.
    """
    buckets = choose_buckets(ids, n_columns, 1, collective)
    remaining, parts, n_ids = ids.astype(np.int64), [], 0
    while True:
        places, _ = buckets.place(remaining)
        largest = np.full(buckets.n, -1, dtype=np.int64)
        np.maximum.at(largest, places, remaining)
        largest = _reduce_maximum(largest, collective)
        parts.append(largest[largest >= 0])
        n_ids += len(parts[-1])
        if n_ids > MAX_NUMBERS:
            raise ValueError(
                f"scale='standard' keeps two numbers for each sparse feature, and there are more than {MAX_NUMBERS}, "
                "too many to exchange among workers; use scale='max_abs', 'auto' or 'none'"
            )
        if not len(parts[-1]):
            return np.sort(np.concatenate(parts))
        remaining = remaining[largest[places] != remaining]


def _invert_deviation(variance: FloatArray, centre: FloatArray) -> FloatArray:
    deviation = np.sqrt(variance)
    # A deviation at the level of rounding means a constant column, which gets factor 0.
    constant = deviation <= 1e-12 * np.abs(centre)
    with np.errstate(divide="ignore"):
        return np.where(constant, 0.0, 1.0 / np.where(constant, 1.0, deviation))
