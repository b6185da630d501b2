"""The best split of a leaf, found from its histograms.

    gain = G_L^2 / (H_L + lambda) + G_R^2 / (H_R + lambda) - G^2 / (H + lambda)

Sums are integers, in units of their scales; lambda is in the unit of H. Each child must have at least the Hessian of
`min_rows` average rows of the leaf. Of equal gains the first column's counts, then the first bin's.

A split at bin b of an ordinal column sends bins 1 .. b to the left. Bin 0, missing values, goes to both sides in turn;
b = 63 separates it from all others. A bundle's bin b goes to the right, all its others to the left. Columns from
`n_plain` on are categories (`gbun.trees.subsets`), from `n_base` on projections: bins 1 .. 32, and none missing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gbun.trees.compiled import inlined, kernel
from gbun.trees.gain import quality
from gbun.trees.histogram import N_BINS, PROJECTION_BINS
from gbun.trees.quantise import sum_of_g, sum_of_h
from gbun.trees.subsets import find_subset

COLUMNS_AT_A_TIME = 8
ROOM = COLUMNS_AT_A_TIME * N_BINS
LAST = N_BINS - 1
NOISE = 2.0**-36  # of the leaf's own term: a smaller gain may be rounding
SPLIT = np.dtype(
    [
        *[("gain", "f8"), ("column", "i8"), ("bin", "i8"), ("missing_right", "i8"), ("left_g", "i8"), ("left_h", "i8")],
        ("mask", "u8"),  # of categories, the bins that go left; 0 for other columns
    ],
    align=True,
)


@kernel(error_model="numpy")
def find_split(
    sums: Any, first: int, last: int, n_plain: int, n_base: int, is_bundle: Any, G: Any, H: Any, n: Any, penalty: Any,
    min_rows: Any, variance: Any, room: Any, split: Any,
) -> None:  # fmt: skip
    """Write the best split at columns first .. last-1 of a leaf with the sums G and H and n rows.

    `variance` is that of a gradient for each unit of H, `room` int64 (ROOM,). Without a split of positive gain
    split.column is -1.
    """
    split.gain, split.column, split.mask = 0.0, -1, np.uint64(0)
    if H <= 0:
        return
    total_g, total_h = np.float64(G), np.float64(H)
    least = max(1.0, total_h * min_rows / n)
    base = total_g * total_g / (total_h + penalty)
    best, best_column = base + base * NOISE, -1
    # What is written number by number can only be read several at a time when it has reached the cache.
    for column in range(first, last, COLUMNS_AT_A_TIME):
        end = min(column + COLUMNS_AT_A_TIME, last)
        for j in range(column, end):
            _fill_packed(sums, j, j < n_base and is_bundle[j], room, (j - column) * N_BINS)
        for j in range(column, end):
            if n_plain <= j < n_base:
                top = find_subset(sums, j, total_g, total_h, n, penalty, least, variance)[0]
                if top > best:
                    best, best_column = top, j
                continue
            at = (j - column) * N_BINS
            missing = np.int64(0) if j < n_base and is_bundle[j] else sums[j * N_BINS]
            top = _best_quality(room, at, j < n_base, np.int64(0), total_g, total_h, penalty, least)
            if missing != 0:
                top = max(top, _best_quality(room, at, j < n_base, missing, total_g, total_h, penalty, least))
            if top > best:
                best, best_column = top, j
    if best_column < 0:
        return
    split.gain, split.column = best - base, best_column
    if n_plain <= best_column < n_base:
        found = find_subset(sums, best_column, total_g, total_h, n, penalty, least, variance)
        _, split.mask, split.left_g, split.left_h = found
        split.bin, split.missing_right = 0, np.int64(split.mask & np.uint64(1) == 0)
        return
    bundle = best_column < n_base and is_bundle[best_column]
    _fill_packed(sums, best_column, bundle, room, 0)
    missing = np.int64(0) if bundle else sums[best_column * N_BINS]
    _set_bin(room, missing, bundle, total_g, total_h, penalty, least, best, split)


@inlined()
def _fill_packed(sums: Any, column: Any, bundle: Any, room: Any, at: Any) -> None:
    """room[at + b - 1] = the sums of a side of the split at bin b, without missing values."""
    source, target, prefix = np.uint64(column * N_BINS + 1), np.uint64(at), np.int64(0)
    for k in range(np.uint64(LAST)):
        prefix = sums[source + k] + (np.int64(0) if bundle else prefix)
        room[target + k] = prefix
    room[at + LAST] = 0  # no split: nothing is on one side


@inlined()
def _best_quality(room: Any, at: Any, of_base: Any, missing: Any, G: Any, H: Any, penalty: Any, least: Any) -> Any:
    # Numbers of bins that are known when this is compiled leave no rest that is computed one by one.
    if of_base:
        return _best_of(room, at, N_BINS, missing, G, H, penalty, least)
    return _best_of(room, at, PROJECTION_BINS, missing, G, H, penalty, least)


@inlined()
def _best_of(room: Any, at: Any, count: Any, missing: Any, G: Any, H: Any, penalty: Any, least: Any) -> Any:
    # None is negative, so the largest has the largest bits; integers are compared several at a time, floats are not.
    first, top = np.uint64(at), np.int64(0)
    for k in range(np.uint64(count)):
        top = max(top, np.float64(quality(room[first + k] + missing, G, H, penalty, least)).view(np.int64))
    return np.int64(top).view(np.float64)


@kernel(error_model="numpy")
def _set_bin(
    packed: Any, missing: Any, bundle: bool, G: Any, H: Any, penalty: Any, least: Any, best: Any, split: Any
) -> None:
    """Write the first bin whose quality is `best`, missing values to the right before to the left."""
    k, right = 0, True
    while True:
        right = quality(packed[k], G, H, penalty, least) == best
        if right or (missing != 0 and quality(packed[k] + missing, G, H, penalty, least) == best):
            break
        k += 1
    left = packed[k] if right else packed[k] + missing
    g, h = sum_of_g(left), sum_of_h(left)
    if bundle:
        g, h = np.int64(G) - g, np.int64(H) - h
    split.bin, split.left_g, split.left_h = k + 1, g, h
    split.missing_right = np.int64(np.int64(H) - h > h if missing == 0 else right)
