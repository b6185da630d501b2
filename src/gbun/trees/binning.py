"""Bins of columns: cut points, found from sums of integers alone.

Bin 0 is for missing values, bins 1 .. 63 for values in their order:

    bin of x = 1 + number of edges < x        x rounded to float32

The edges are the same for any order of the rows and any division among workers; see `gbun.trees.intervals` for how they
are found. A fit takes six sums over workers for every 1024 columns, less for small integers, one or two more where
heavy values leave targets to others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numba
import numpy as np

from gbun.dtypes import FloatArray, IntArray, Reduce
from gbun.kernels.threads import ThreadPool
from gbun.trees.blocks import Block, read_block, row_blocks
from gbun.trees.compiled import kernel
from gbun.trees.histogram import N_BINS
from gbun.trees.intervals import CHILDREN, MAX_EDGES, TOP, Intervals

SAMPLED_ROWS = 200_000  # about as many rows are looked at, of more
COLUMNS_AT_A_TIME = 1024  # whose counts, 32 MB, are summed over workers at a time
COLUMNS_PER_ITEM = 32  # of a thread: two cache lines of a row
MAX_DIVIDED = 128  # intervals of a column that a pass divides, and one before them
MISSING, INEXACT = TOP, TOP + 1  # where the first pass counts missing and inexact values
ABSOLUTE, INFINITE, SIGN, NO_KEY = (np.uint32(b) for b in (0x7FFFFFFF, 0x7F800000, 0x80000000, 0xFFFFFFFF))
S20, S31, S63 = np.uint32(20), np.int32(31), np.int64(63)
STEPS = tuple(np.uint64(MAX_DIVIDED >> k) for k in range(1, 8))
BELOW_TOP = np.uint32((1 << 20) - 1)


@dataclass(frozen=True)
class ColumnBins:
    """The cut points of all raw columns, and what the rows they were found from have in each bin.

    Attributes
    ----------
    edges : ndarray of shape (m, 62), float32
        Ascending and finite, padded with infinity.
    n_edges : ndarray of shape (m,), int64
    counts : ndarray of shape (m, 64), int64
        Rows of all workers, or of the sample.
    means : ndarray of shape (m, 64), float64
        The value that stands for a bin; NaN where it has no finite values.
    """

    edges: FloatArray
    n_edges: IntArray
    counts: IntArray
    means: FloatArray

    @property
    def has_missing(self) -> IntArray:
        """Which columns have missing values among the rows that were looked at."""
        return np.asarray(self.counts[:, 0] > 0)


def fit_bins(
    X: FloatArray,
    reduce: Reduce,
    threads: ThreadPool,
    weight: FloatArray | None = None,
    keys: IntArray | None = None,
) -> ColumnBins:
    """Find the cut points of all columns.

    Parameters
    ----------
    X : ndarray of shape (n, m)
        This worker's rows, of any dtype that becomes float32 and in any order.
    reduce : callable
        Sums a float64 array over all workers.
    threads : ThreadPool
    weight : ndarray of shape (n,), optional
        Rows of weight 0 do not count; other weights are not looked at.
    keys : ndarray of shape (n,), uint64, optional
        Hashes of rows. With them, about `SAMPLED_ROWS` rows are looked at if all workers have more.
    """
    rows = choose_rows(len(X), reduce, weight, keys, SAMPLED_ROWS)
    starts = range(0, X.shape[1], COLUMNS_AT_A_TIME)
    groups = [np.arange(first, min(first + COLUMNS_AT_A_TIME, X.shape[1])) for first in starts]
    parts = [_to_bins(_find_intervals(X, rows, columns, reduce, threads)) for columns in groups] or [_to_bins([])]
    return ColumnBins(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(ColumnBins)))


def choose_rows(
    n: int, reduce: Reduce, weight: FloatArray | None, keys: IntArray | None, n_sampled: int
) -> IntArray | None:
    """Return the numbers of the rows to look at, None for all: those with a weight, and of many a sample by key."""
    counts = np.ones(n, dtype=bool) if weight is None else np.asarray(weight) > 0
    total = int(reduce(np.array([np.count_nonzero(counts)], dtype=np.float64))[0])
    if keys is not None and total > n_sampled:
        counts = counts & (keys < np.uint64((n_sampled << 64) // total))
    return None if counts.all() else np.flatnonzero(counts)


def _to_bins(columns: list[Intervals]) -> ColumnBins:
    m = len(columns)
    edges = np.full((m, MAX_EDGES), np.inf, dtype=np.float32)
    n_edges, counts = np.zeros(m, dtype=np.int64), np.zeros((m, N_BINS), dtype=np.int64)
    means = np.full((m, N_BINS), np.nan)
    for j, column in enumerate(columns):
        own = column.edges()
        n_edges[j], edges[j, : len(own)] = len(own), own
        counts[j], means[j] = column.summarise(own)
    return ColumnBins(edges, n_edges, counts, means)


def _find_intervals(
    X: FloatArray, rows: IntArray | None, columns: IntArray, reduce: Reduce, threads: ThreadPool
) -> list[Intervals]:
    """Count the rows of these columns in intervals, pass by pass, until all that matter are known."""
    counts = np.zeros((len(columns), TOP + 2), dtype=np.int64)
    _run(X, rows, columns, threads, lambda part, block: _count_top(*block, counts[part]))
    counts = _sum(counts, reduce)
    found = [Intervals.from_counts(c[:TOP], int(c[MISSING]), int(c[INEXACT])) for c in counts]
    while True:
        chosen = [column.unknown() for column in found]
        open_ = np.flatnonzero([len(numbers) for numbers in chosen])
        if not len(open_):
            return found
        parts = _count_parts(X, rows, columns[open_], [(found[j], chosen[j]) for j in open_], reduce, threads)
        for j, (counts, n_inexact) in zip(open_, parts, strict=True):
            found[j].divide(chosen[j], counts, n_inexact)


def _count_parts(
    X: FloatArray,
    rows: IntArray | None,
    columns: IntArray,
    divided: list[tuple[Intervals, IntArray]],
    reduce: Reduce,
    threads: ThreadPool,
) -> list[tuple[IntArray, int]]:
    """Return the rows in each part of the divided intervals of each column, and how many are inexact."""
    starts = np.full((len(columns), MAX_DIVIDED), NO_KEY, dtype=np.uint32)
    widths = np.zeros((len(columns), MAX_DIVIDED), dtype=np.uint32)
    starts[:, 0] = 0  # an interval without keys, for what is below the first one
    for j, (column, numbers) in enumerate(divided):
        starts[j, 1 : len(numbers) + 1] = column.first[numbers]
        widths[j, 1 : len(numbers) + 1] = column.width[numbers]
    shifts = np.log2(np.maximum(widths // CHILDREN, 1)).astype(np.uint32)
    counts = np.zeros((len(columns), MAX_DIVIDED * CHILDREN + 1), dtype=np.int64)
    sizes = np.array([len(numbers) for _, numbers in divided])

    def count(part: slice, block: Block) -> None:
        _count_children(*block, starts[part], widths[part], shifts[part], counts[part])

    _run(X, rows, columns, threads, count)
    sent = [np.append(c[CHILDREN : CHILDREN * (size + 1)], c[-1]) for c, size in zip(counts, sizes, strict=True)]
    totals = np.split(_sum(np.concatenate(sent), reduce), np.cumsum([len(s) for s in sent])[:-1])
    return [(total[:-1].reshape(-1, CHILDREN), int(total[-1])) for total in totals]


def _sum(counts: IntArray, reduce: Reduce) -> IntArray:
    return np.asarray(reduce(counts.reshape(-1).astype(np.float64))).astype(np.int64).reshape(counts.shape)


def _run(
    X: FloatArray, rows: IntArray | None, columns: IntArray, threads: ThreadPool, count: Callable[[slice, Block], None]
) -> None:
    """Call `count(part of the columns, block)` for all blocks; a thread has all rows of its columns."""
    size = max(1, min(COLUMNS_PER_ITEM, -(-len(columns) // threads.count)))

    def work(first: int) -> None:
        own = columns[first : first + size]
        picked: Any = slice(own[0], own[-1] + 1) if own[-1] - own[0] == len(own) - 1 else own
        for block in row_blocks(len(X) if rows is None else len(rows), len(own)):
            values = read_block(X, block if rows is None else rows[block], picked)
            count(slice(first, first + size), values._replace(values=values.values.view(np.uint32)))

    threads.run(work, range(0, len(columns), size))


@numba.njit(inline="always")
def _to_key(bits: Any) -> Any:
    """Return the key of the bits of a float32; missing values have the largest of all."""
    if np.uint32(bits & ABSOLUTE) > INFINITE:
        return NO_KEY
    bits = np.uint32(0) if bits == SIGN else np.uint32(bits)
    return np.uint32(bits ^ (np.uint32(np.int32(bits) >> S31) | SIGN))


@kernel()
def _count_top(values: Any, row_stride: int, column_stride: int, n_rows: int, n_columns: int, counts: Any) -> None:
    """Count the keys by their upper 12 bits."""
    for j in range(n_columns):
        for i in range(n_rows):
            bits = values[i * row_stride + j * column_stride]
            key = _to_key(bits)
            counts[j, MISSING if key == NO_KEY else np.int64(key >> S20)] += 1
            counts[j, INEXACT] += np.int64(key != NO_KEY) & np.int64(np.uint32(bits & BELOW_TOP) != np.uint32(0))


@kernel()
def _count_children(
    values: Any,
    row_stride: int,
    column_stride: int,
    n_rows: int,
    n_columns: int,
    starts: Any,
    widths: Any,
    shifts: Any,
    counts: Any,
) -> None:
    """Count the keys in the parts of divided intervals; those in no interval are counted in part 0 of interval 0."""
    inexact = counts.shape[1] - 1
    for j in range(n_columns):
        own, width, of_part, n_inexact = starts[j], widths[j], shifts[j], np.int64(0)
        for i in range(n_rows):
            bits = values[i * row_stride + j * column_stride]
            key = np.int64(_to_key(bits))
            at = np.uint64(0)  # the last interval that begins at the key or below it
            for step in STEPS:  # without comparisons, of which compilers make jumps
                at += step & np.uint64(~((key - np.int64(own[at + step])) >> S63))
            place, shift = key - np.int64(own[at]), np.int64(of_part[at])
            inside = (place - np.int64(width[at])) >> S63  # -1, else 0
            counts[j, np.uint64(inside & (np.int64(at) * CHILDREN + (place >> shift)))] += 1
            below = np.int64(bits) & ((np.int64(1) << shift) - np.int64(1))
            n_inexact -= inside & (-below >> S63)
        counts[j, inexact] += n_inexact
