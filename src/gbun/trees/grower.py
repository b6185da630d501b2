"""Growing one tree on binned rows: the same tree for any number of threads and any division of rows among workers.

Here is what a tree needs and what it leaves. `growth_in_threads` and `growth_over_workers` take the steps of `waves`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gbun.dtypes import FloatArray, IntArray, Reduce
from gbun.kernels.threads import ThreadPool, allocate_aligned
from gbun.trees.compiled import kernel
from gbun.trees.growth_in_threads import grow_at_once
from gbun.trees.growth_over_workers import grow_wave_by_wave
from gbun.trees.histogram import N_BINS
from gbun.trees.splitter import SPLIT
from gbun.trees.waves import LEAF, NODE, Block, Memory, Rule

MIN_MOVES = 2**15  # rows moved in a tree, about, below which other threads begin too late to help
MOST_ROWS, MOST_LEAVES = 2**31 - 1, 2**16


@dataclass(frozen=True)
class GrownTree:
    """A tree in terms of histogram columns and bins, and the leaf of each row it was grown on."""

    nodes: Any  # structured, `NODE`: those of the tree in the order of their creation
    n_leaves: int
    leaf_of_row: IntArray
    sum_g: FloatArray  # by leaf, of all workers
    sum_h: FloatArray
    n_rows: IntArray  # by leaf, of this worker


class Grower:
    """Grows trees on the same rows; memory is allocated once.

    Parameters
    ----------
    by_row, by_column : uint8 (n, width), (c, n)
        Binned rows, row by row and column by column; `width` is a multiple of 8 and at least c.
    is_bundle : bool (c,)
        Whether a column's bins are members of a bundle.
    threads : ThreadPool
        Any number of growers may share it.
    n_leaves : int
        The most leaves of a tree.
    min_rows : int
        Each child has the Hessian of so many average rows of its parent.
    projections_width : int
        The most projections that `grow` will be given.
    n_categories : int
        So many of the columns, the last ones, hold categories: bins without an order.
    """

    def __init__(
        self,
        by_row: IntArray,
        by_column: IntArray,
        is_bundle: Any,
        threads: ThreadPool,
        n_leaves: int,
        min_rows: float,
        projections_width: int = 0,
        n_categories: int = 0,
    ) -> None:
        if not 1 <= n_leaves <= MOST_LEAVES:
            raise ValueError(f"n_leaves must be from 1 to {MOST_LEAVES}, got {n_leaves}")
        n = by_column.shape[1]
        if n > MOST_ROWS:
            raise ValueError(f"a worker may have {MOST_ROWS} rows at most, got {n}")
        self.base, self.n, self.n_leaves = make_block(by_row, by_column, n), n, n_leaves
        self.is_bundle = np.ascontiguousarray(is_bundle, dtype=np.bool_)
        if len(self.is_bundle) != len(by_column):
            raise ValueError(f"is_bundle has {len(self.is_bundle)} entries for {len(by_column)} columns")
        self.threads, self.min_rows, self.projections_width = threads, float(min_rows), projections_width
        self.n_plain = len(by_column) - n_categories
        self._no_projections = make_block(np.empty((n, 0), dtype=np.uint8), np.empty((0, n), dtype=np.uint8), n)
        self._items = [allocate_aligned(n, np.int64) for _ in range(2)]
        self._columns = len(by_column) + projections_width
        self._histograms = allocate_aligned(n_leaves * self._columns * N_BINS, np.int64)
        self._kept: tuple[Any, Memory] | None = None  # the last tree's arrays

    def grow(
        self,
        g: FloatArray,
        h: FloatArray,
        penalty: float,
        reduce: Reduce,
        n_processes: int,
        by_row_p: IntArray | None = None,
        by_column_p: IntArray | None = None,
        *,
        relative: bool = False,
    ) -> GrownTree:
        """Grow a tree for gradients g and Hessians h, both float32 (n,).

        `penalty` is lambda, in the unit of sums of h; where it is `relative`, a share of sum h / n_leaves. `reduce`
        sums over `n_processes` workers, all of which call this; with one it is not called. Projections, if there are
        any, are binned as the other columns, into bins 1 to 32.
        """
        g, h = (np.ascontiguousarray(v, dtype=np.float32) for v in (g, h))
        if g.shape != (self.n,) or h.shape != (self.n,):
            raise ValueError(f"g and h must have {self.n} rows, got {g.shape} and {h.shape}")
        moves = self.n * self.n_leaves.bit_length()
        n_threads = self.threads.count if moves >= MIN_MOVES else 1
        memory = self._memory(by_row_p, by_column_p, n_threads, several=n_processes > 1)
        rule = Rule(self.n_leaves, float(penalty), relative, self.min_rows)
        if n_processes > 1:
            n_leaves, exponents = grow_wave_by_wave(self.threads, memory, g, h, rule, reduce)
            n_parts = n_threads
        else:
            n_leaves, exponents, n_parts = grow_at_once(self.threads, n_threads, memory, g, h, rule)
        return _grown(memory, n_leaves, n_parts, exponents)

    def _memory(self, by_row_p: IntArray | None, by_column_p: IntArray | None, n_threads: int, several: bool) -> Memory:
        """What a tree needs: as for the tree before where that had the same arrays, except for what it gave away."""
        shape = by_row_p, by_column_p, n_threads, several
        if self._kept is None or any(a is not b for a, b in zip(shape, self._kept[0], strict=True)):
            self._kept = shape, self._allocate(by_row_p, by_column_p, n_threads, several)
        kept = self._kept[1]
        kept.counts[:] = 0
        return kept._replace(
            nodes=np.empty(self.n_leaves - 1, dtype=NODE),
            leaf_of_row=np.empty(self.n, dtype=np.uint8 if self.n_leaves <= 256 else np.uint16),
        )

    def _allocate(
        self, by_row_p: IntArray | None, by_column_p: IntArray | None, n_threads: int, several: bool
    ) -> Memory:
        projections = self._no_projections
        if by_row_p is not None and by_column_p is not None:
            if len(by_column_p) > self.projections_width:
                raise ValueError(f"{self.projections_width} projections at most, got {len(by_column_p)}")
            projections = make_block(by_row_p, by_column_p, self.n)
        entries = (len(self.base.columns) + len(projections.columns)) * N_BINS
        most = self.n_leaves // 3 + 1  # leaves that a wave splits
        n_parts = n_threads if n_threads > 1 or several else 0
        return Memory(
            base=self.base,
            projections=projections,
            is_bundle=self.is_bundle,
            n_plain=self.n_plain,
            items=self._items[0],
            spare=self._items[1],
            histograms=self._histograms[: self.n_leaves * entries].reshape(self.n_leaves, entries),
            parts=allocate_aligned(n_parts * most * entries, np.int64).reshape(n_parts, most, entries),
            counts=np.zeros((n_threads, most), dtype=np.int64),
            totals=np.zeros(n_threads, dtype=np.int64),
            squares=np.zeros(n_threads, dtype=np.int64),
            variance=np.zeros(n_threads, dtype=np.float64),
            fine_totals=np.zeros(n_threads),
            leaves=np.zeros((n_threads, self.n_leaves), dtype=LEAF),
            splits=np.zeros((n_threads, 2 * most), dtype=SPLIT),
            order=np.zeros((n_threads, self.n_leaves), dtype=np.int64),
            nodes=None,
            leaf_of_row=None,
        )


def make_block(by_row: IntArray, by_column: IntArray, n: int) -> Block:
    """Check both forms of binned rows; kernels do not."""
    c = len(by_column)
    fits = by_row.shape[0] == n and by_column.shape[1:] == (n,) and by_row.shape[1] % 8 == 0 and by_row.shape[1] >= c
    if not fits or by_row.dtype != np.uint8 or by_column.dtype != np.uint8:
        raise ValueError(f"binned rows of shapes {by_row.shape} and {by_column.shape} are not two forms of the same")
    if not by_row.flags.c_contiguous or not by_column.flags.c_contiguous:
        raise ValueError("binned rows must be contiguous")
    words = by_row.reshape(-1).view(np.uint64)
    return Block(words, by_row.shape[1] // 8, by_column)


def _grown(memory: Memory, n_leaves: int, n_parts: int, exponents: tuple[int, int]) -> GrownTree:
    sums, n_rows = np.empty((2, n_leaves)), np.empty(n_leaves, dtype=np.int64)
    _read_leaves(memory.leaves[:n_parts], *exponents, sums, n_rows)
    return GrownTree(memory.nodes[: n_leaves - 1], n_leaves, memory.leaf_of_row, sums[0], sums[1], n_rows)


@kernel()
def _read_leaves(leaves: Any, e_g: int, e_h: int, sums: Any, n_rows: Any) -> None:
    for k in range(len(n_rows)):
        sums[0, k], sums[1, k] = math.ldexp(float(leaves[0, k].G), -e_g), math.ldexp(float(leaves[0, k].H), -e_h)
        n_rows[k] = 0
        for part in range(len(leaves)):
            n_rows[k] += leaves[part, k].last - leaves[part, k].first
