"""A tree of several workers: the steps of a tree wave by wave, and between them sums over all workers.

message of a wave:   histograms of g and of h, rows of each leaf, sums of the root
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from gbun.dtypes import FloatArray, IntArray, Reduce
from gbun.kernels.threads import ThreadPool
from gbun.trees.quantise import MOST_G, MOST_H, MOST_SUM, N_SIZES, check_exponent, count_sizes, find_exponent
from gbun.trees.waves import (
    Memory,
    Rule,
    begin,
    choose,
    fine_scale,
    leaf_penalty,
    mark_rows,
    move,
    search,
    set_root,
    settle,
)


def grow_wave_by_wave(
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
            lambda_ = leaf_penalty(rule, fine_total, fine, e_h)
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
    return e_g, e_h, fine_scale(of_all[1], relative)


def _sum_over_workers(memory: Memory, count: int, reduce: Reduce) -> tuple[int, float, int]:
    """Replace the first part by the sums of all parts of all workers; return those of the root's rows.

    These are the packed sum, that of h on the fine scale, and sum g^2.
    """
    wave = max(1, count)
    entries = wave * memory.parts.shape[2]
    message = np.empty(2 * entries + wave + 4, dtype=np.float64)
    packed = memory.parts[:, :wave].sum(axis=0).ravel()
    unpack_sums(packed, message[:entries], message[entries : 2 * entries])
    message[2 * entries : -4] = memory.counts[:, :wave].sum(axis=0)
    unpack_sums(memory.totals.sum(keepdims=True), message[-4:-3], message[-3:-2])
    message[-2:] = memory.fine_totals.sum(), memory.squares.sum()
    of_all = reduce(message)
    memory.parts[0, :wave] = pack_sums(of_all[:entries], of_all[entries : 2 * entries]).reshape(wave, -1)
    memory.counts[:] = 0
    memory.counts[0, :wave] = of_all[2 * entries : -4]
    return int(pack_sums(of_all[-4:-3], of_all[-3:-2])[0]), float(of_all[-2]), int(of_all[-1])


def unpack_sums(packed: IntArray, g: FloatArray, h: FloatArray) -> None:
    g[:] = packed >> 32
    h[:] = packed & 0xFFFFFFFF


def pack_sums(g: FloatArray, h: FloatArray) -> IntArray:
    packed: IntArray = (g.astype(np.int64) << 32) + h.astype(np.int64)
    return packed
