"""Histogram columns: single columns, and bundles of columns that are never on together, as one-hot columns are.

A column of two values is on where x > its edge. Up to 63 such columns share one histogram column, whose bin says which
of them is on. Which pairs are on together is looked up in packed bits, on all rows or a sample; then every bundle is
checked on all rows, and a column that is on, or missing, where a column before it is on leaves its bundle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gbun.dtypes import FloatArray, IntArray, Reduce
from gbun.kernels.threads import ThreadPool
from gbun.trees.binning import ColumnBins, choose_rows
from gbun.trees.blocks import read_block, row_blocks
from gbun.trees.compiled import kernel
from gbun.trees.histogram import N_BINS

MAX_MEMBERS = N_BINS - 1
MAX_CANDIDATES = 4096  # further ones, in the order of columns, stay single
SAMPLED_ROWS = 2**16
FLAGS_PER_NUMBER, FLAG_BITS = 4, 13  # so one float64 sums four flags of up to 8191 workers
WORDS_AT_A_TIME = 64  # looked at before a pair that is on together is given up
ZERO = np.uint64(0)


@dataclass(frozen=True)
class HistogramColumns:
    """The columns that histograms are made of, in the order of their first raw columns.

    Attributes
    ----------
    members : ndarray of shape (c, 63), int64
        Raw columns of each histogram column, padded with -1. Bin k + 1 of a bundle: member k is on; bin 0: none is.
    n_members : ndarray of shape (c,), int64
        1 for a single column, which has the bins of its raw column.
    bins : ColumnBins
        Those of all raw columns.
    """

    members: IntArray
    n_members: IntArray
    bins: ColumnBins

    def __len__(self) -> int:
        return len(self.members)

    @property
    def is_bundle(self) -> IntArray:
        return np.asarray(self.n_members > 1)

    def raw_splits(self) -> tuple[IntArray, FloatArray]:
        """Return the raw column and threshold of each bin, two arrays of shape (c, 64).

        A split after bin b of a single column sends x <= threshold to the left; the threshold is infinite behind the
        last edge, and -inf at bin 0. The split of bin b of a bundle sends x > threshold to the right; bin 0, and bins
        without a member, have column -1.
        """
        column = np.repeat(self.members[:, :1], N_BINS, axis=1)
        threshold = np.full((len(self), N_BINS), np.inf, dtype=np.float32)
        threshold[:, 0] = -np.inf
        threshold[:, 1:-1] = self.bins.edges[self.members[:, 0]]
        bundle = self.is_bundle
        column[bundle, 0] = -1
        column[bundle, 1:] = self.members[bundle]
        threshold[bundle, 1:] = np.where(column[bundle, 1:] < 0, np.inf, self.bins.edges[column[bundle, 1:], 0])
        return column, threshold


def single_columns(bins: ColumnBins) -> HistogramColumns:
    """Return histogram columns without bundles: all raw columns that can be split."""
    return _arrange([[int(j)] for j in np.flatnonzero(splittable(bins))], bins)


def splittable(bins: ColumnBins) -> IntArray:
    """Return which columns have two values, or one and missing ones."""
    return np.asarray((bins.n_edges > 0) | (bins.has_missing & (bins.counts[:, 1] > 0)))


def find_bundles(
    X: FloatArray,
    bins: ColumnBins,
    reduce: Reduce,
    threads: ThreadPool,
    weight: FloatArray | None = None,
    keys: IntArray | None = None,
) -> HistogramColumns:
    """Bundle columns that are never on together; the arguments are those of `fit_bins`."""
    candidate = (bins.n_edges == 1) & ~bins.has_missing & (bins.counts[:, 2] <= bins.counts[:, 1])
    columns = np.flatnonzero(candidate)[:MAX_CANDIDATES]
    if len(columns) < 2:
        return single_columns(bins)
    rows = choose_rows(len(X), reduce, weight, keys, SAMPLED_ROWS)
    on = _pack(X, rows, columns, bins.edges[columns, 0], threads)
    bundles = _bundle(columns, _meet(on, reduce, threads))
    weighted = None if weight is None else np.flatnonzero(np.asarray(weight) > 0)
    left = _find_leavers(X, weighted, bundles, bins, reduce, threads)
    bundles = [[j for j in bundle if j not in left] for bundle in bundles]
    single = np.setdiff1d(np.flatnonzero(splittable(bins)), np.concatenate([np.array(b, dtype=int) for b in bundles]))
    return _arrange([b for b in bundles if b] + [[int(j)] for j in single], bins)


def _arrange(groups: list[list[int]], bins: ColumnBins) -> HistogramColumns:
    members = np.full((len(groups), MAX_MEMBERS), -1, dtype=np.int64)
    for h, group in enumerate(sorted(groups)):
        members[h, : len(group)] = group
    return HistogramColumns(members, np.count_nonzero(members >= 0, axis=1), bins)


def _pack(X: FloatArray, rows: IntArray | None, columns: IntArray, edges: FloatArray, threads: ThreadPool) -> IntArray:
    """Return where columns are on, 64 rows a word, (columns, words)."""
    n = len(X) if rows is None else len(rows)
    packed = np.zeros((len(columns), -(-n // 64) * 8), dtype=np.uint8)

    def work(block: slice) -> None:
        read = read_block(X, block if rows is None else rows[block], columns)
        bits = np.packbits(read.columns() > edges[:, None], axis=1)
        packed[:, block.start // 8 : block.start // 8 + bits.shape[1]] = bits

    threads.run(work, list(row_blocks(n, len(columns))))
    return packed.view(np.uint64)


def _meet(on: IntArray, reduce: Reduce, threads: ThreadPool) -> IntArray:
    """Return whether columns i and j > i are ever on together, on any worker: (columns, columns) bool."""
    k = len(on)
    meet = np.zeros((k, k), dtype=bool)
    threads.run(lambda i: _meet_later(on, i, meet[i]), range(k))
    upper = np.triu_indices(k, 1)
    flags = meet[upper]
    padded = np.zeros((-(-len(flags) // FLAGS_PER_NUMBER), FLAGS_PER_NUMBER))
    padded.reshape(-1)[: len(flags)] = flags
    sums = np.asarray(reduce(padded @ (2.0 ** (FLAG_BITS * np.arange(FLAGS_PER_NUMBER))))).astype(np.int64)
    counts = (sums[:, None] >> (FLAG_BITS * np.arange(FLAGS_PER_NUMBER))) & ((1 << FLAG_BITS) - 1)
    meet[upper] = counts.reshape(-1)[: len(flags)] > 0
    return meet


@kernel()
def _meet_later(on: Any, i: int, meet: Any) -> None:
    words = on.shape[1]
    for j in range(i + 1, len(on)):
        for first in range(0, words, WORDS_AT_A_TIME):
            both = ZERO
            for w in range(first, min(first + WORDS_AT_A_TIME, words)):
                both |= on[i, w] & on[j, w]
            if both != ZERO:
                meet[j] = True
                break


def _bundle(columns: IntArray, meet: IntArray) -> list[list[int]]:
    """Put each column, in their order, into the first bundle with room none of whose members it ever meets."""
    bundles: list[list[int]] = []
    blocked = np.zeros((len(columns), len(columns)), dtype=bool)  # bundle, column
    sizes = np.zeros(len(columns), dtype=np.int64)
    for at, column in enumerate(columns):
        free = np.flatnonzero(~blocked[: len(bundles), at] & (sizes[: len(bundles)] < MAX_MEMBERS))
        b = int(free[0]) if len(free) else len(bundles)
        if b == len(bundles):
            bundles.append([])
        bundles[b].append(int(column))
        sizes[b] += 1
        blocked[b] |= meet[at]
    return bundles


def _find_leavers(
    X: FloatArray,
    rows: IntArray | None,
    bundles: list[list[int]],
    bins: ColumnBins,
    reduce: Reduce,
    threads: ThreadPool,
) -> set[int]:
    """Return the members of bundles that are missing anywhere, or on where an earlier member of their bundle is."""
    groups = [bundle for bundle in bundles if len(bundle) > 1]
    if not groups:
        return set()
    columns = np.concatenate([np.array(group) for group in groups])
    ends = np.cumsum([len(group) for group in groups])
    edges = bins.edges[columns, 0]
    n = len(X) if rows is None else len(rows)

    def count(block: slice) -> FloatArray:
        conflicts = np.zeros(len(columns))
        _count_conflicts(*read_block(X, block if rows is None else rows[block], columns), edges, ends, conflicts)
        return conflicts

    counts = np.zeros(len(columns))
    for part in threads.map(count, list(row_blocks(n, len(columns)))):
        counts += part
    return set(columns[np.asarray(reduce(counts)) > 0].tolist())


@kernel()
def _count_conflicts(
    values: Any,
    row_stride: int,
    column_stride: int,
    n_rows: int,
    n_columns: int,
    edges: Any,
    ends: Any,
    conflicts: Any,
) -> None:
    taken = np.empty(n_rows, dtype=np.uint8)
    first = 0
    for last in ends:
        taken[:] = 0
        for j in range(first, last):
            found = np.int64(0)
            for i in range(n_rows):
                x = values[i * row_stride + j * column_stride]
                on = np.uint8(x > edges[j])
                found += np.int64((on & taken[i]) | np.uint8(x != x))
                taken[i] |= on
            conflicts[j] += found
        first = last
