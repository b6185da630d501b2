"""Candidates of a tree: a sample of fixed size where there are many histogram columns, guided by the gains so far.

    drawn   half of them: the next columns of an order that is drawn by hash; after its last column comes another order
    kept    the others: of the rest, those with the largest gain so far

    gain of a column  <-  DECAY x gain  +  gain of its splits in the tree / gain of all splits in the tree

So every column is tried again and again, and time, traffic and histograms of a tree do not depend on the number of
columns. Half of the gain of a projection's split counts for each of its two columns. Before the first tree a column's
gain is that of its best single split (`gbun.trees.screening`). Every second projection mixes two columns of large gain.

Pages of categories are not counted: a tree looks at all of them.

Gains come from a model's trees, in the order of their nodes, each operation rounded to float64. So a training that goes
on from a model has the same candidates as one that was not interrupted.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gbun.dtypes import FloatArray, IntArray
from gbun.kernels.sampling import mix_bits
from gbun.kernels.threads import ThreadPool
from gbun.trees.binned_rows import BinnedRows, allocate_binned_rows, transpose_rows
from gbun.trees.bundling import HistogramColumns
from gbun.trees.categories import append_categories
from gbun.trees.compiled import kernel
from gbun.trees.tree import Tree

DECAY = 0.95
ROWS_AT_A_TIME = 2**16
TILE_ROWS = 1024  # whose bins stay in the second cache


class ColumnGuide:
    """Chooses the histogram columns of each tree.

    Parameters
    ----------
    seed : int
    columns : HistogramColumns
    n_candidates : int
        How many columns a tree gets, fewer than there are.

    Attributes
    ----------
    gains : ndarray of shape (m,), float64
        Of raw columns; that of a histogram column is their sum.
    n_trees : int
    """

    def __init__(self, seed: int, columns: HistogramColumns, n_candidates: int) -> None:
        m = len(columns.bins.n_edges)
        self.n_candidates, self.n_columns = n_candidates, len(columns)
        self._first_gains = np.zeros(m)
        self.restart()
        self._key = mix_bits(mix_bits(np.array([seed], dtype=np.uint64)) + np.uint64(len(columns)))
        self._column_of = np.full(m, len(columns), dtype=np.int64)  # of each raw column; that of none is the last
        held = columns.members >= 0
        self._column_of[columns.members[held]] = np.nonzero(held)[0]
        self._number, self._orders = -1, np.zeros(0, dtype=np.int64)

    def start_from(self, raw_column: IntArray, gains: FloatArray) -> None:
        """Take the gains of single splits for those of a tree before the first."""
        np.add.at(self._first_gains, raw_column, _shares(gains))
        self.restart()

    def restart(self) -> None:
        """Forget all trees."""
        self.gains, self.n_trees = self._first_gains.copy(), 0

    def choose(self) -> IntArray:
        """Return the columns of the next tree, ascending."""
        c, n_drawn = self.n_columns, (self.n_candidates + 1) // 2
        number, first = divmod(self.n_trees * n_drawn, c)
        if number != self._number:
            self._number, self._orders = number, np.concatenate([self._order(number), self._order(number + 1)])
        chosen = np.zeros(c, dtype=bool)
        chosen[self._orders[first : first + n_drawn]] = True
        rest = self._orders[:c]
        rest = rest[~chosen[rest]]
        gains = np.bincount(self._column_of, self.gains, c + 1)
        best = np.argsort(-gains[rest], kind="stable")  # of equal ones the first of the order
        chosen[rest[best[: self.n_candidates - int(chosen.sum())]]] = True
        return np.flatnonzero(chosen)

    def best_raw_columns(self) -> IntArray:
        """Return the raw columns of the largest gains, half as many as candidates at most."""
        best = np.argsort(-self.gains, kind="stable")[: self.n_candidates // 2]
        return np.asarray(best[self.gains[best] > 0.0])

    def add(self, tree: Tree) -> None:
        """Learn from the gains of a tree."""
        self.n_trees += 1
        self.gains *= DECAY
        projected, plain = tree.other >= 0, tree.column < len(self.gains)
        shares = _shares(tree.gain) * np.where(projected, 0.5, 1.0)
        np.add.at(self.gains, tree.column[plain], shares[plain])
        np.add.at(self.gains, tree.other[projected], shares[projected])

    def _order(self, number: int) -> IntArray:
        key = mix_bits(self._key + np.uint64(number))
        return np.argsort(mix_bits(key + np.arange(self.n_columns, dtype=np.uint64)), kind="stable")


def _shares(gains: FloatArray) -> FloatArray:
    """Return numbers divided by their sum, which does not depend on the order of addition.

    >>> _shares(np.array([1.0, 3.0]))
    array([0.25, 0.75])
    """
    total = math.fsum(gains)
    return np.asarray(gains, dtype=np.float64) / (total if total > 0.0 else 1.0)


class Candidates:
    """The binned rows that trees are grown on: all histogram columns, or where there are more a sample for each tree.

    Parameters
    ----------
    binned : BinnedRows
        Rows of all histogram columns, by column at least.
    columns : HistogramColumns
    n_candidates : int
        The most columns of a tree.
    seed : int
    n_pages : int
        So many further columns of `binned`, the last ones, are pages of categories, which every tree has.

    Attributes
    ----------
    rows : BinnedRows
        What the grower reads; `draw` writes the bins of a sample to the same place.
    is_bundle : ndarray of shape (c,), bool
        Of the columns of `rows`; it changes with them.
    guide : ColumnGuide or None
        None where a tree has all columns.
    """

    def __init__(
        self, binned: BinnedRows, columns: HistogramColumns, n_candidates: int, seed: int, n_pages: int = 0
    ) -> None:
        self._all, self._splits = binned, append_categories(*columns.raw_splits(), len(columns.bins.n_edges), n_pages)
        self._is_bundle = np.concatenate([columns.is_bundle, np.zeros(n_pages, dtype=bool)])
        self._pages = np.arange(len(columns), len(columns) + n_pages)
        self.guide = ColumnGuide(seed, columns, n_candidates) if len(columns) > n_candidates else None
        self.rows, self.is_bundle = binned, self._is_bundle
        if self.guide is not None:
            self.rows = allocate_binned_rows(binned.by_column.shape[1], n_candidates + n_pages)
            self.is_bundle = np.zeros(n_candidates + n_pages, dtype=bool)

    def draw(self, threads: ThreadPool) -> tuple[IntArray, FloatArray]:
        """Choose the columns of the next tree; return the `HistogramColumns.raw_splits` of them."""
        if self.guide is None:
            return self._splits
        chosen = np.concatenate([self.guide.choose(), self._pages])
        gather_columns(self._all.by_column, chosen, threads, self.rows)
        self.is_bundle[:] = self._is_bundle[chosen]
        column, threshold = self._splits
        return column[chosen], threshold[chosen]

    def add(self, tree: Tree) -> None:
        """Learn from a tree of the model."""
        if self.guide is not None:
            self.guide.add(tree)


def gather_columns(by_column: IntArray, chosen: IntArray, threads: ThreadPool, rows: BinnedRows) -> None:
    """Write the bins of chosen columns to `rows`, by column and by row.

    >>> rows = allocate_binned_rows(3, 2)
    >>> gather_columns(np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], np.uint8), np.array([0, 2]), ThreadPool(1), rows)
    >>> rows.by_column.tolist(), rows.by_row[:, :2].tolist()
    ([[1, 2, 3], [7, 8, 9]], [[1, 7], [2, 8], [3, 9]])
    """
    n = by_column.shape[1]
    words = rows.by_row.view(np.uint64)
    size = max(64, min(ROWS_AT_A_TIME, -(-n // (64 * threads.count)) * 64))

    def work(first: int) -> None:
        own = slice(first, first + size)
        _gather(by_column[:, own], chosen, words[own], rows.by_column[:, own])

    threads.run(work, range(0, n, size))


@kernel()
def _gather(columns: Any, chosen: Any, by_row: Any, by_column: Any) -> None:
    n, width = by_row.shape
    tile = np.zeros((8 * width, TILE_ROWS // 8), dtype=np.uint64)
    bins = tile.view(np.uint8)
    for first in range(0, n, TILE_ROWS):
        last = min(first + TILE_ROWS, n)
        for k in range(len(chosen)):
            source, in_tile, in_column = columns[chosen[k]], bins[k], by_column[k]
            for i in range(np.uint64(last - first)):
                b = source[np.uint64(first) + i]
                in_tile[i] = b
                in_column[np.uint64(first) + i] = b
        transpose_rows(tile, by_row[first:last])
