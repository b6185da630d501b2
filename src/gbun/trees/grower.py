"""Growing one tree on binned rows: the same tree for any number of threads and any division of rows among workers.

On one machine a tree is one call: each thread runs all steps for its shard of the rows, and they meet in shared memory.
Several workers do the same steps wave by wave, and what decides is summed over all of them between the steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from gbun.dtypes import FloatArray, IntArray
from gbun.kernels.threads import ThreadPool, allocate_aligned
from gbun.trees.barrier import join, meet, new_meeting
from gbun.trees.compiled import kernel
from gbun.trees.histogram import N_BINS
from gbun.trees.quantise import (
    MOST_FINE,
    MOST_FINE_SUM,
    MOST_G,
    MOST_H,
    MOST_SUM,
    N_SIZES,
    check_exponent,
    count_sizes,
    find_exponent,
)
from gbun.trees.splitter import SPLIT
from gbun.trees.waves import LEAF, NODE, Block, Memory, begin, choose, mark_rows, move, search, set_root, settle

Reduce = Callable[[FloatArray], FloatArray]  # sums a float64 array over all workers
MIN_MOVES = 2**15  # rows moved in a tree, about, below which other threads begin too late to help
MOST_ROWS, MOST_LEAVES = 2**31 - 1, 2**16
OUTCOME = 4  # the number of leaves, exponents of g and h, how many threads took part


class Rule(NamedTuple):
    """When a leaf is split, and how many are."""

    n_leaves: int
    penalty: float
    relative: bool  # to sum h / n_leaves
    min_rows: float


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
            n_leaves, exponents = _grow_wave_by_wave(self.threads, memory, g, h, rule, reduce)
            n_parts = n_threads
        else:
            n_leaves, exponents, n_parts = _grow_at_once(self.threads, n_threads, memory, g, h, rule)
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


@kernel()
def _fine_scale(counts: Any, relative: Any) -> float:
    """The scale for the sum of all h, which a relative penalty needs; else 0."""
    return math.ldexp(1.0, find_exponent(counts, MOST_FINE, MOST_FINE_SUM)) if relative else 0.0


@kernel()
def _lambda(rule: Any, fine_total: float, fine: float, e_h: int) -> float:
    """The penalty in the unit of the quantised h."""
    share = fine_total / fine / rule.n_leaves if rule.relative else 1.0
    penalty: float = rule.penalty * share * math.ldexp(1.0, e_h)
    return penalty


# One machine: all steps in one call


def _grow_at_once(
    threads: ThreadPool, n_threads: int, memory: Memory, g: FloatArray, h: FloatArray, rule: Rule
) -> tuple[int, tuple[int, int], int]:
    """Return the number of leaves, the exponents of the scales and how many threads took part."""
    sync, outcome = new_meeting(), np.zeros(OUTCOME, dtype=np.int64)
    sizes = np.zeros((n_threads, 2, N_SIZES), dtype=np.int64)
    bits = g.view(np.uint32), h.view(np.uint32)

    def work(_: int) -> None:
        _grow_shard(memory, g, h, *bits, sizes, sync, n_threads, rule, outcome)

    threads.run_compiled(work, range(n_threads))
    found, e_g, e_h, n_parts = outcome.tolist()
    check_exponent(min(e_g, e_h))
    return found, (e_g, e_h), n_parts


@kernel()
def _grow_shard(
    memory: Any, g: Any, h: Any, g_bits: Any, h_bits: Any, sizes: Any, sync: Any, wanted: int, rule: Any, outcome: Any
) -> None:
    """All steps of a tree for one thread. Each one decides for itself, from the same numbers.

    What a thread reads of others they wrote before a barrier, and do not write again before the next one.
    """
    part, size = join(sync, wanted)
    if part < 0:
        return
    n, barriers = len(g), 1
    first, last = n * part // size, n * (part + 1) // size
    count_sizes(g_bits, first, last, True, sizes[part, 0])
    count_sizes(h_bits, first, last, False, sizes[part, 1])
    meet(sync, size, barriers)
    counts = sizes[0].copy()
    for p in range(1, size):
        counts += sizes[p]
    e_g, e_h = find_exponent(counts[0], MOST_G, MOST_SUM), find_exponent(counts[1], MOST_H, MOST_SUM)
    if part == 0:
        outcome[1], outcome[2], outcome[3] = e_g, e_h, size
    if min(e_g, e_h) < -500:
        return
    columns = len(memory.base.columns) + len(memory.projections.columns)
    column, end = columns * part // size, columns * (part + 1) // size
    n_parts = size if len(memory.parts) else 0
    fine, gain_unit = _fine_scale(counts[1], rule.relative), math.ldexp(1.0, e_h - 2 * e_g)
    begin(
        memory, g, h, np.float32(math.ldexp(1.0, e_g)), np.float32(math.ldexp(1.0, e_h)), fine, part, first, last
    )  # fmt: skip
    n_leaves, count, lambda_ = 1, 0, 0.0
    while True:
        barriers += 1
        meet(sync, size, barriers)
        if count == 0:
            total, squares, fine_total = np.int64(0), np.int64(0), 0.0
            for p in range(size):
                total, fine_total = total + memory.totals[p], fine_total + memory.fine_totals[p]
                squares += memory.squares[p]
            set_root(memory, part, total, squares)
            lambda_ = _lambda(rule, fine_total, fine, e_h)
        search(memory, part, n_parts, n_leaves, count, column, end, lambda_, rule.min_rows)
        barriers += 1
        meet(sync, size, barriers)
        settle(memory, part, size, n_leaves, count)
        n_leaves += count
        count = choose(memory, part, n_leaves, rule.n_leaves)
        if count > 0:
            move(memory, part, n_leaves, count, rule.n_leaves, gain_unit)
        if count == 0 or n_leaves + count == rule.n_leaves:
            break
    n_leaves += count
    mark_rows(memory, part, n_leaves)
    if part == 0:
        outcome[0] = n_leaves


# Several workers: sums over all of them between the steps


def _grow_wave_by_wave(
    threads: ThreadPool,
    memory: Memory,
    g: FloatArray,
    h: FloatArray,
    rule: Rule,
    reduce: Reduce,
) -> tuple[int, tuple[int, int]]:
    parts = range(len(memory.parts))
    n, columns = len(g), len(memory.base.columns) + len(memory.projections.columns)
    rows = [(n * p // len(parts), n * (p + 1) // len(parts)) for p in parts]
    own = [(columns * p // len(parts), columns * (p + 1) // len(parts)) for p in parts]
    e_g, e_h, fine = common_scales(threads, g, h, rows, rule.relative, reduce)
    scales = np.float32(math.ldexp(1.0, e_g)), np.float32(math.ldexp(1.0, e_h)), fine
    gain_unit, lambda_ = math.ldexp(1.0, e_h - 2 * e_g), 0.0
    threads.run_compiled(lambda p: begin(memory, g, h, *scales, p, *rows[p]), parts)
    n_leaves, count = 1, 0
    while True:
        total, fine_total, squares = _sum_over_workers(memory, count, reduce)
        if count == 0:
            lambda_ = _lambda(rule, fine_total, fine, e_h)
            for p in parts:
                set_root(memory, p, total, squares)
        wave = n_leaves, count
        threads.run_compiled(partial(_search, memory, wave, own, lambda_, rule.min_rows), parts)
        for p in parts:
            settle(memory, p, len(parts), n_leaves, count)
        n_leaves += count
        for p in parts:
            count = choose(memory, p, n_leaves, rule.n_leaves)
        if count > 0:
            threads.run_compiled(partial(_move, memory, (n_leaves, count, rule.n_leaves, gain_unit)), parts)
        if count == 0 or n_leaves + count == rule.n_leaves:
            break
    n_leaves += count
    threads.run_compiled(lambda p: mark_rows(memory, p, n_leaves), parts)
    return n_leaves, (e_g, e_h)


def _search(
    memory: Memory, wave: tuple[int, int], columns: list[tuple[int, int]], penalty: float, min_rows: float, part: int
) -> None:
    search(memory, part, 1, *wave, *columns[part], penalty, min_rows)


def _move(memory: Memory, wave: tuple[int, int, int, float], part: int) -> None:
    move(memory, part, *wave)


def common_scales(
    threads: ThreadPool, g: FloatArray, h: FloatArray, rows: list[tuple[int, int]], relative: bool, reduce: Reduce
) -> tuple[int, int, float]:
    """Return the exponents of the scales of g and h, and the fine scale of h."""
    sizes = np.zeros((len(rows), 2, N_SIZES), dtype=np.int64)

    def count(p: int) -> None:
        count_sizes(g.view(np.uint32), *rows[p], True, sizes[p, 0])
        count_sizes(h.view(np.uint32), *rows[p], False, sizes[p, 1])

    threads.run_compiled(count, range(len(rows)))
    of_all = reduce(sizes.sum(axis=0).astype(np.float64).ravel()).astype(np.int64).reshape(2, N_SIZES)
    e_g, e_h = find_exponent(of_all[0], MOST_G, MOST_SUM), find_exponent(of_all[1], MOST_H, MOST_SUM)
    check_exponent(min(e_g, e_h))
    return e_g, e_h, _fine_scale(of_all[1], relative)


def _sum_over_workers(memory: Memory, count: int, reduce: Reduce) -> tuple[int, float, int]:
    """Replace the first part by the sums of all parts of all workers; return those of the root's rows.

    These are the packed sum, that of h on the fine scale, and sum g^2.
    """
    wave = max(1, count)
    entries = wave * memory.parts.shape[2]
    message = np.empty(2 * entries + wave + 4, dtype=np.float64)
    packed = memory.parts[:, :wave].sum(axis=0).ravel()
    _unpack(packed, message[:entries], message[entries : 2 * entries])
    message[2 * entries : -4] = memory.counts[:, :wave].sum(axis=0)
    _unpack(memory.totals.sum(keepdims=True), message[-4:-3], message[-3:-2])
    message[-2:] = memory.fine_totals.sum(), memory.squares.sum()
    of_all = reduce(message)
    memory.parts[0, :wave] = _pack(of_all[:entries], of_all[entries : 2 * entries]).reshape(wave, -1)
    memory.counts[:] = 0
    memory.counts[0, :wave] = of_all[2 * entries : -4]
    return int(_pack(of_all[-4:-3], of_all[-3:-2])[0]), float(of_all[-2]), int(of_all[-1])


def _unpack(packed: IntArray, g: FloatArray, h: FloatArray) -> None:
    g[:] = packed >> 32
    h[:] = packed & 0xFFFFFFFF


def _pack(g: FloatArray, h: FloatArray) -> IntArray:
    packed: IntArray = (g.astype(np.int64) << 32) + h.astype(np.int64)
    return packed
