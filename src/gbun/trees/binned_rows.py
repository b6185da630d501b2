"""Rows as bins, twice: by row, for histograms of all columns in one pass, and by column, for partitions.

Each row begins at a multiple of 8 bytes, so that one load gives the bins of eight columns; the array begins at a
multiple of 64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from gbun.dtypes import FloatArray, IntArray
from gbun.kernels.threads import ThreadPool, allocate_aligned
from gbun.trees.blocks import read_block, row_blocks
from gbun.trees.bundling import HistogramColumns
from gbun.trees.categories import NO_BUCKETS, NO_CATEGORIES, Categories, write_bins
from gbun.trees.compiled import kernel
from gbun.trees.histogram import N_BINS

ABSOLUTE, INFINITE = np.uint32(0x7FFFFFFF), np.uint32(0x7F800000)
SIGN = np.uint32(0x80000000)
S63 = np.int64(63)
STEPS = tuple(np.uint64(N_BINS >> k) for k in range(1, 7))
NO_EDGE = np.iinfo(np.int32).max  # above that of infinity
SWAP_1, SWAP_2, SWAP_4 = (np.uint64(b) for b in (0x00FF00FF00FF00FF, 0x0000FFFF0000FFFF, 0x00000000FFFFFFFF))
S8, S16, S32 = np.uint64(8), np.uint64(16), np.uint64(32)


@dataclass(frozen=True)
class BinnedRows:
    """The bins of rows.

    Attributes
    ----------
    by_row : ndarray of shape (n, width), uint8
        The width is the number of columns, rounded up to a multiple of 8; the bins in excess are 0.
    by_column : ndarray of shape (c, n), uint8
    """

    by_row: IntArray
    by_column: IntArray


def allocate_binned_rows(n: int, n_columns: int, has_rows: bool = True) -> BinnedRows:
    """Return arrays of the right shapes and addresses, not initialised; unless it `has_rows` the width is 0."""
    width = -(-n_columns // 8) * 8 if has_rows else 0
    by_row = allocate_aligned(n * width, np.uint8).reshape(n, width)
    return BinnedRows(by_row, allocate_aligned(n_columns * n, np.uint8).reshape(n_columns, n))


def bin_rows(
    X: FloatArray,
    columns: HistogramColumns,
    threads: ThreadPool,
    categories: Categories = NO_CATEGORIES,
    buckets: IntArray = NO_BUCKETS,
    has_rows: bool = True,
) -> BinnedRows:
    """Replace the values of rows by the bins of histogram columns, by column only unless it `has_rows`.

    Those of categories come last.

    >>> from gbun.trees.binning import fit_bins
    >>> from gbun.trees.bundling import single_columns
    >>> X, one = np.array([[1.0, 5.0], [np.nan, 7.0], [3.0, 5.0]]), ThreadPool(1)
    >>> rows = bin_rows(X, single_columns(fit_bins(X, lambda sums: sums, one)), one)
    >>> rows.by_column
    array([[1, 0, 2],
           [1, 2, 1]], dtype=uint8)
    >>> rows.by_row.shape
    (3, 8)
    """
    n_plain, n_pages = len(columns), len(categories.pages)
    binned = allocate_binned_rows(len(X), n_plain + n_pages, has_rows)
    edges = np.full((len(columns.bins.n_edges), N_BINS), NO_EDGE, dtype=np.int32)
    held = columns.bins.edges < np.inf
    edges[:, 1:-1][held] = ordered(columns.bins.edges[held])
    edges[:, 0] = np.iinfo(np.int32).min

    def work(block: slice) -> None:
        read = read_block(X, block)
        tile = np.zeros((-(-(n_plain + n_pages) // 8) * 8, -(-read.n_rows // 8)), dtype=np.uint64)  # eight rows a word
        bits = read.values.view(np.uint32)
        _bin_block(bits, *read[1:4], columns.members, columns.n_members, edges, tile)
        if n_pages:
            write_bins(buckets[block], *categories, tile.view(np.uint8)[n_plain:])
        write_tile(tile, binned.by_row[block], binned.by_column[:, block])

    threads.run(work, list(row_blocks(len(X), X.shape[1] + n_pages)))
    return binned


def ordered(x: FloatArray) -> IntArray:
    """Return int32 of the same order as float32 numbers, as the kernels compute them.

    >>> ordered(np.array([-np.inf, -1.0, -0.0, 0.0, 2.0], dtype=np.float32)).tolist()
    [-2139095040, -1065353216, 0, 0, 1073741824]
    """
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.int32)
    return np.where(bits < 0, -(bits & np.int32(ABSOLUTE)), bits)


def write_tile(tile: IntArray, by_row: IntArray, by_column: IntArray) -> None:
    """Copy a tile of bins, (width, words of eight rows), to rows of `by_row` and to columns of `by_column`."""
    n = len(by_row)
    by_column[:] = tile.view(np.uint8)[: len(by_column), :n]
    if by_row.size:
        transpose_rows(tile, by_row.view(np.uint64))


@kernel()
def _bin_block(
    bits: Any, row_stride: int, column_stride: int, n_rows: int, members: Any, n_members: Any, edges: Any, tile: Any
) -> None:
    bins = tile.view(np.uint8)
    for h in range(len(members)):
        if n_members[h] == 1:
            column = members[h, 0]
            _bin_column(bits[column * column_stride :], row_stride, n_rows, edges[column], bins[h])
        else:
            for k in range(n_members[h]):
                column = members[h, k]
                edge, bin_ = np.int64(edges[column, 1]), k + 1
                for i in range(n_rows):
                    # a missing value is off, whatever its sign
                    x = _ordered(bits[column * column_stride + i * row_stride])
                    bins[h, i] |= bin_ & ((edge - x) >> S63) & ~_if_missing(x)


@numba.njit(cache=True, nogil=True, inline="always")
def _bin_column(bits: Any, stride: int, n_rows: int, edges: Any, bins: Any) -> None:
    # A binary search without comparisons, of which compilers make jumps that take ten times as long
    for i in range(n_rows):
        x = _ordered(bits[np.uint64(i) * np.uint64(stride)])
        at = np.uint64(0)
        for step in STEPS:
            at += step & np.uint64((np.int64(edges[at + step]) - x) >> S63)
        bins[np.uint64(i)] = (np.int64(at) + 1) & ~_if_missing(x)


@numba.njit(inline="always")
def _ordered(bits: Any) -> Any:
    """Return the int64 of `ordered`."""
    size = np.int64(bits & ABSOLUTE)
    sign = -np.int64(np.uint32(bits) >> np.uint32(31))
    return (size ^ sign) - sign


@numba.njit(inline="always")
def _if_missing(x: Any) -> Any:
    """Return -1 if an ordered number is NaN, else 0."""
    infinity = np.int64(INFINITE)
    return ((infinity - x) >> S63) | ((x + infinity) >> S63)


@kernel()
def transpose_rows(tile: Any, by_row: Any) -> None:
    """Copy a tile of bins, (columns, words of eight rows), to rows, (n, words of eight columns).

    Blocks of eight columns and eight rows are transposed by swapping halves of ever smaller squares.
    """
    n = len(by_row)
    last = np.empty(8, dtype=np.uint64)
    for group in range(len(tile) // 8):
        t = tile[8 * group : 8 * group + 8]
        for block in range((n + 7) // 8):
            a, e = _swap(t[0, block], t[4, block], S32, SWAP_4)
            b, f = _swap(t[1, block], t[5, block], S32, SWAP_4)
            c, g = _swap(t[2, block], t[6, block], S32, SWAP_4)
            d, h = _swap(t[3, block], t[7, block], S32, SWAP_4)
            a, c = _swap(a, c, S16, SWAP_2)
            b, d = _swap(b, d, S16, SWAP_2)
            e, g = _swap(e, g, S16, SWAP_2)
            f, h = _swap(f, h, S16, SWAP_2)
            a, b = _swap(a, b, S8, SWAP_1)
            c, d = _swap(c, d, S8, SWAP_1)
            e, f = _swap(e, f, S8, SWAP_1)
            g, h = _swap(g, h, S8, SWAP_1)
            at = 8 * block
            if at + 8 <= n:
                by_row[at, group], by_row[at + 1, group] = a, b
                by_row[at + 2, group], by_row[at + 3, group] = c, d
                by_row[at + 4, group], by_row[at + 5, group] = e, f
                by_row[at + 6, group], by_row[at + 7, group] = g, h
            else:
                last[0], last[1], last[2], last[3], last[4], last[5], last[6], last[7] = a, b, c, d, e, f, g, h
                for i in range(n - at):
                    by_row[at + i, group] = last[i]


@numba.njit(inline="always")
def _swap(low: Any, high: Any, shift: Any, mask: Any) -> Any:
    """Exchange the upper parts of `low` with the lower parts of `high`."""
    return (low & mask) | ((high & mask) << shift), ((low >> shift) & mask) | (high & ~mask)
