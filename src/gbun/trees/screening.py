"""Gains of the best single split of each histogram column, from one pass over the rows and sums of integers.

They are those of a tree's root whose histograms are made of all columns, some at a time: which columns the first trees
should look at, where there are too many to look at all.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gbun.dtypes import FloatArray, IntArray, Reduce
from gbun.kernels.threads import ThreadPool
from gbun.trees.compiled import kernel
from gbun.trees.growth_over_workers import common_scales, pack_sums, unpack_sums
from gbun.trees.histogram import N_BINS, count_items, sum_items
from gbun.trees.quantise import make_items, pack_item
from gbun.trees.splitter import ROOM, SPLIT, find_split

COLUMNS_AT_A_TIME = 1024  # whose sums, 1 MB, go over workers at a time
COLUMNS_PER_ITEM = 16  # of a thread
BIN = np.uint8(N_BINS - 1)


def screen_columns(
    by_column: IntArray,
    is_bundle: Any,
    g: FloatArray,
    h: FloatArray,
    penalty: float,
    min_rows: float,
    threads: ThreadPool,
    reduce: Reduce,
    n_leaves: int | None = None,
) -> tuple[FloatArray, IntArray]:
    """Return the gain of the best split of each column, 0 where there is none, and its bin: float64 (c,), int64 (c,).

    Parameters
    ----------
    by_column : ndarray of shape (c, n), uint8
    is_bundle : ndarray of shape (c,), bool
    g, h : ndarray of shape (n,), float32
        Gradients and Hessians.
    penalty : float
        Lambda, in the unit of sums of h; with `n_leaves` in that of sum h / n_leaves.
    min_rows : float
        As of `Grower`.
    threads : ThreadPool
    reduce : callable
        Sums a float64 array over workers, all of which call this.
    """
    c, n = by_column.shape
    g, h = (np.ascontiguousarray(v, dtype=np.float32) for v in (g, h))
    e_g, e_h, _ = common_scales(threads, g, h, [(0, n)], False, reduce)
    items = np.empty(n, dtype=np.int64)
    make_items(g, h, np.float32(math.ldexp(1.0, e_g)), np.float32(math.ldexp(1.0, e_h)), 0, n, items)
    total = int(sum_items(items, 0, n))
    own = np.array([total >> 32, total & 0xFFFFFFFF, count_items(items, 0, n)], dtype=np.float64)
    G, H, n_rows = (int(value) for value in reduce(own))
    lambda_ = penalty * (math.ldexp(1.0, e_h) if n_leaves is None else H / n_leaves)
    gains, bins = np.zeros(c), np.zeros(c, dtype=np.int64)
    for first in range(0, c, COLUMNS_AT_A_TIME):
        group = slice(first, min(first + COLUMNS_AT_A_TIME, c))
        sums = _sum_columns(by_column[group], items, threads, reduce)
        _find_gains(sums, is_bundle[group], G, H, n_rows, lambda_, float(min_rows), gains[group], bins[group])
    return gains * math.ldexp(1.0, e_h - 2 * e_g), bins


def _sum_columns(by_column: IntArray, items: IntArray, threads: ThreadPool, reduce: Reduce) -> IntArray:
    """Return the packed histograms of some columns over the rows of all workers, int64 (64 columns,)."""
    sums = np.zeros((len(by_column), N_BINS), dtype=np.int64)

    def work(first: int) -> None:
        some = slice(first, first + COLUMNS_PER_ITEM)
        _add_columns(by_column[some], items, sums[some])

    threads.run(work, range(0, len(by_column), COLUMNS_PER_ITEM))
    message = np.empty((2, sums.size))
    unpack_sums(sums.ravel(), *message)
    return pack_sums(*reduce(message.ravel()).reshape(2, -1))


@kernel()
def _add_columns(by_column: Any, items: Any, sums: Any) -> None:
    n = np.uint64(by_column.shape[1])
    for j in range(len(by_column)):
        bins, own = by_column[j], sums[j]
        for i in range(n):
            own[bins[i] & BIN] += pack_item(items[i])


@kernel()
def _find_gains(
    sums: Any, is_bundle: Any, G: int, H: int, n: int, penalty: float, min_rows: float, gains: Any, bins: Any
) -> None:
    splits, room = np.zeros(1, dtype=SPLIT), np.empty(ROOM, dtype=np.int64)
    split = splits[0]
    for j in range(len(gains)):
        sizes = len(gains), len(gains)  # without categories and projections
        find_split(sums, j, j + 1, *sizes, is_bundle, G, H, n, penalty, min_rows, 0.0, room, split)
        gains[j], bins[j] = split.gain, split.bin if split.column >= 0 else 0
