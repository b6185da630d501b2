"""A tree on one machine, in one call: each thread takes all steps for its shard of the rows.

Threads meet in shared memory between the steps, and each of them decides for itself, from the same numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gbun.dtypes import FloatArray
from gbun.kernels.threads import ThreadPool
from gbun.trees.barrier import join, meet, new_meeting
from gbun.trees.compiled import kernel
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

OUTCOME = 4  # the number of leaves, exponents of g and h, how many threads took part


def grow_at_once(
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
    fine, gain_unit = fine_scale(counts[1], rule.relative), math.ldexp(1.0, e_h - 2 * e_g)
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
            lambda_ = leaf_penalty(rule, fine_total, fine, e_h)
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
