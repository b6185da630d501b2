"""Projections: mixtures of two columns in bins, drawn anew for every tree.

    u    = (w_a x_a + w_b x_b) + offset       float32, each operation rounded, in this order
    bin  = 1 + floor(u), at least 1 and at most 32; 32 where u is not a number
    left of a split after bin b  <=>  u < b

Weights are uniform on (-1, 1) for standardised columns; with the offset they are scaled so that bins 1 .. 32 cover 2.5
deviations on both sides of the mean, as if columns were not correlated. A missing value counts as its column's mean.
Columns, weights, means and deviations come from hashes and sums of integers, so they have the same bits for any order
of the rows and any division among workers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from gbun.dtypes import FloatArray, IntArray
from gbun.kernels.sampling import mix_bits
from gbun.kernels.threads import ThreadPool, allocate_aligned
from gbun.trees.binned_rows import transpose_rows
from gbun.trees.binning import ColumnBins
from gbun.trees.blocks import read_block, row_blocks
from gbun.trees.compiled import kernel
from gbun.trees.histogram import PROJECTION_BINS

RANGE = 2.5  # deviations on both sides of the mean
ROWS_AT_A_TIME = 2**16
TILE_ROWS = 4096  # whose bins stay in the second cache
ZERO, TOP = np.float32(0.0), np.float32(PROJECTION_BINS - 1)
S11, S32 = np.uint64(11), np.uint64(32)
HASHES = tuple(np.uint64(k) for k in range(4))  # of a projection: both columns, both weights

_mix_bits: Any = numba.njit(inline="always")(mix_bits)


@dataclass(frozen=True)
class ColumnStatistics:
    """Mean and deviation of columns.

    Attributes
    ----------
    mean, deviation : ndarray of shape (m,), float64
    fill : ndarray of shape (m,), float32
        What missing values count as: the mean, 0 in columns without values.
    usable : ndarray of shape (u,), int64
        Columns that may be drawn: not constant, and neither mean nor factor is beyond float32.
    """

    mean: FloatArray
    deviation: FloatArray
    fill: FloatArray
    usable: IntArray


@dataclass(frozen=True)
class Projections:
    """The projections of a tree.

    Attributes
    ----------
    column, other : ndarray of shape (p,), int32
        The raw columns a and b.
    weight : ndarray of shape (p, 2), float32
    offset : ndarray of shape (p,), float32
    """

    column: IntArray
    other: IntArray
    weight: FloatArray
    offset: FloatArray

    def __len__(self) -> int:
        return len(self.column)


def column_statistics(bins: ColumnBins) -> ColumnStatistics:
    """Compute means and deviations from the rows in each bin, whose sums over workers are exact.

    >>> from gbun.trees.binning import fit_bins
    >>> bins = fit_bins(np.array([[1.0, 5.0], [np.nan, 5.0], [3.0, 5.0]]), lambda sums: sums, ThreadPool(1))
    >>> found = column_statistics(bins)
    >>> found.mean, found.deviation, found.usable
    (array([2., 5.]), array([1., 0.]), array([0]))
    """
    m = len(bins.counts)
    mean, deviation = np.zeros(m), np.zeros(m)
    for j in range(m):
        held = np.flatnonzero((bins.counts[j] > 0) & ~np.isnan(bins.means[j]))
        n, x = bins.counts[j, held], bins.means[j, held]
        total = int(n.sum())
        if total:
            mean[j] = math.fsum(n * x) / total
            deviation[j] = math.sqrt(math.fsum(n * (x - mean[j]) ** 2) / total)
    info = np.finfo(np.float32)
    factor = np.divide(PROJECTION_BINS, deviation, out=np.full(m, np.inf), where=deviation > 0)
    usable = (factor > info.tiny * 2**24) & (factor < info.max)  # with room for small weights
    usable[usable] = np.abs(mean[usable]) * factor[usable] < info.max
    return ColumnStatistics(mean, deviation, mean.astype(np.float32), np.flatnonzero(usable))


def draw_projections(
    seed: int, t: int, n_projections: int, statistics: ColumnStatistics, preferred: IntArray | None = None
) -> Projections:
    """Draw the projections of tree t; none without usable columns.

    Every second one is of two `preferred` columns, if at least two of them are usable. Where a single column is usable,
    it is one projection with one input each, whose bins are shifted at random: so trees find cut points between edges.
    """
    usable = statistics.usable
    preferred = usable[:0] if preferred is None else np.intersect1d(preferred, usable)
    p = n_projections if len(usable) else 0
    column, other = np.empty((2, p), dtype=np.int32)
    weight, offset = np.empty((p, 2), dtype=np.float32), np.empty(p, dtype=np.float32)
    _draw(seed, t, usable, preferred, statistics.mean, statistics.deviation, column, other, weight, offset)
    return Projections(column, other, weight, offset)


@kernel()
def _draw(
    seed: int, t: int, usable: Any, preferred: Any, mean: Any, deviation: Any, column: Any, other: Any, weight: Any,
    offset: Any,
) -> None:  # fmt: skip
    key = _mix_bits(_mix_bits(np.uint64(seed)) + np.uint64(t))
    for p in range(len(column)):
        own = _mix_bits(key + np.uint64(p))
        columns = preferred if len(preferred) > 1 and p % 2 == 0 else usable
        first = _below(_mix_bits(own), len(columns))
        v, w, shift = _number(_mix_bits(own + HASHES[2])), _number(_mix_bits(own + HASHES[3])), 0.0
        if len(columns) > 1:
            second = _below(_mix_bits(own + HASHES[1]), len(columns) - 1)
            second += second >= first  # another one
        else:
            second, w, shift = first, 0.0, w / 2
        a, b = columns[first], columns[second]
        factor = PROJECTION_BINS / 2 / (RANGE * math.sqrt(v * v + w * w))
        weight[p, 0], weight[p, 1] = np.float32(v * (factor / deviation[a])), np.float32(w * (factor / deviation[b]))
        shift += np.float64(weight[p, 0]) * mean[a] + np.float64(weight[p, 1]) * mean[b]
        column[p], other[p], offset[p] = a, b, np.float32(PROJECTION_BINS / 2 - shift)


@numba.njit(inline="always")
def _below(hash_: Any, n: Any) -> Any:
    """An integer from 0 to n - 1, by the upper 32 bits of a hash."""
    return np.int64((hash_ >> S32) * np.uint64(n) >> S32)


@numba.njit(inline="always")
def _number(hash_: Any) -> Any:
    """A number between -1 and 1, never 0."""
    return (np.float64(hash_ >> S11) + 0.5) * 2.0**-52 - 1.0


def fill_columns(X: FloatArray, statistics: ColumnStatistics, threads: ThreadPool) -> FloatArray:
    """Return the columns of X one after the other, float32 of shape (m, n), without missing values."""
    filled = allocate_aligned(X.size, np.float32).reshape(X.shape[1], len(X))

    def work(block: slice) -> None:
        part = read_block(X, block).columns()
        filled[:, block] = np.where(np.isnan(part), statistics.fill[:, None], part)

    threads.run_compiled(work, list(row_blocks(len(X), X.shape[1])))
    return filled


def bin_projections(
    columns: FloatArray, projections: Projections, threads: ThreadPool, by_row: IntArray, by_column: IntArray
) -> None:
    """Write the bins of a tree's projections.

    Parameters
    ----------
    columns : ndarray of shape (m, n), float32
        From `fill_columns`.
    projections : Projections
    threads : ThreadPool
    by_row : ndarray of shape (n, width), uint8
        As in `BinnedRows`, for this number of projections.
    by_column : ndarray of shape (p, n), uint8
    """
    n = len(by_row)
    if not by_row.size:
        return
    words = by_row.view(np.uint64)
    size = min(ROWS_AT_A_TIME, -(-n // (64 * threads.count)) * 64)

    def work(first: int) -> None:
        own = slice(first, first + size)
        drawn = projections.column, projections.other, projections.weight, projections.offset
        _bin_projections(columns[:, own], *drawn, words[own], by_column[:, own])

    threads.run_compiled(work, range(0, n, size))


@kernel()
def _bin_projections(
    columns: Any, column: Any, other: Any, weight: Any, offset: Any, by_row: Any, by_column: Any
) -> None:
    n, width = by_row.shape
    tile = np.empty((8 * width, TILE_ROWS // 8), dtype=np.uint64)
    tile[len(column) :] = 0
    bins = tile.view(np.uint8)
    for first in range(0, n, TILE_ROWS):
        last = min(first + TILE_ROWS, n)
        for p in range(len(column)):
            x, y = columns[column[p], first:last], columns[other[p], first:last]
            _bin_projection(x, y, weight[p], offset[p], bins[p], by_column[p, first:last])
        transpose_rows(tile, by_row[first:last])


@numba.njit(inline="always")
def _bin_projection(x: Any, y: Any, weight: Any, offset: Any, bins: Any, again: Any) -> None:
    v, w = weight
    for i in range(len(x)):
        u = (v * x[i] + w * y[i]) + offset
        u = u if u < TOP else TOP  # also where it is not a number
        u = u if u > ZERO else ZERO
        bins[i] = again[i] = np.uint8(np.int32(u) + np.int32(1))
