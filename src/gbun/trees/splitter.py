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

import numba
import numpy as np

from gbun.trees.gain import quality
from gbun.trees.histogram import N_BINS
from gbun.trees.quantise import sum_of_g, sum_of_h
from gbun.trees.subsets import find_subset

PROJECTION_BINS = 33
LAST = N_BINS - 1
NOISE = 2.0**-36  # of the leaf's own term: a smaller gain may be rounding
SPLIT = np.dtype(
    [
        *[("gain", "f8"), ("column", "i8"), ("bin", "i8"), ("missing_right", "i8"), ("left_g", "i8"), ("left_h", "i8")],
        ("mask", "u8"),  # of categories, the bins that go left; 0 for other columns
    ],
    align=True,
)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def find_split(
    sums: Any, first: int, last: int, n_plain: int, n_base: int, is_bundle: Any, G: Any, H: Any, n: Any, penalty: Any,
    min_rows: Any, variance: Any, room: Any, split: Any,
) -> None:  # fmt: skip
    """Write the best split at columns first .. last-1 of a leaf with the sums G and H and n rows.

    `variance` is that of a gradient for each unit of H, `room` float64 (3, 64). Without a split of positive gain
    split.column is -1.
    """
    split.gain, split.column, split.mask = 0.0, -1, np.uint64(0)
    if H <= 0:
        return
    total_g, total_h = np.float64(G), np.float64(H)
    least = max(1.0, total_h * min_rows / n)
    base = total_g * total_g / (total_h + penalty)
    best, best_column = base + base * NOISE, -1
    for j in range(first, last):
        if n_plain <= j < n_base:
            top = find_subset(sums, j, total_g, total_h, n, penalty, least, variance, room)[0]
        else:
            top = _fill_qualities(sums, j, n_base, is_bundle, total_g, total_h, penalty, least, room)
        if top > best:
            best, best_column = top, j
    if best_column < 0:
        return
    split.gain, split.column = best - base, best_column
    if n_plain <= best_column < n_base:
        _, split.mask, split.left_g, split.left_h = find_subset(
            sums, best_column, total_g, total_h, n, penalty, least, variance, room
        )
        split.bin, split.missing_right = 0, np.int64(split.mask & np.uint64(1) == 0)
        return
    _fill_qualities(sums, best_column, n_base, is_bundle, total_g, total_h, penalty, least, room)
    _set_bin(sums, best_column, best_column < n_base and is_bundle[best_column], total_g, total_h, best, room, split)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _fill_qualities(
    sums: Any, column: int, n_base: int, is_bundle: Any, G: Any, H: Any, penalty: Any, least: Any, room: Any
) -> Any:
    """Fill room[0] with the qualities of a column's bins, room[1] with those where missing values go left.

    Returns the largest. The loops have no branches, so that several bins are computed at a time.
    """
    at = column * N_BINS
    n_bins = N_BINS if column < n_base else PROJECTION_BINS
    packed = room[2].view(np.int64)
    missing = sums[at]
    if column < n_base and is_bundle[column]:
        for b in range(1, N_BINS):
            packed[b] = sums[at + b]
        missing = np.int64(0)
    else:
        prefix = np.int64(0)
        for b in range(1, n_bins):
            prefix += sums[at + b]
            packed[b] = prefix
    right = room[0]
    for b in range(1, n_bins):
        right[b] = quality(np.float64(sum_of_g(packed[b])), np.float64(sum_of_h(packed[b])), G, H, penalty, least)
    top = 0.0
    for b in range(1, n_bins):
        top = max(top, right[b])
    left = room[1]
    if missing == 0:
        left[:] = 0.0
        return top
    for b in range(1, n_bins):
        with_missing = packed[b] + missing
        left[b] = quality(np.float64(sum_of_g(with_missing)), np.float64(sum_of_h(with_missing)), G, H, penalty, least)
    for b in range(1, n_bins):
        top = max(top, left[b])
    return top


@numba.njit(cache=True, nogil=True)
def _set_bin(sums: Any, column: int, bundle: bool, G: Any, H: Any, best: Any, room: Any, split: Any) -> None:
    """Write the first bin whose quality is `best`, missing values to the right before to the left."""
    b = 1
    while room[0, b] != best and room[1, b] != best:
        b += 1
    found = room[2].view(np.int64)[b]
    missing = sums[column * N_BINS]
    with_missing_right = room[0, b] == best
    if bundle:
        g, h = np.int64(G) - sum_of_g(found), np.int64(H) - sum_of_h(found)
    else:
        left = found if with_missing_right else found + missing
        g, h = sum_of_g(left), sum_of_h(left)
    never = bundle or missing == 0
    split.bin, split.left_g, split.left_h = b, g, h
    split.missing_right = np.int64(np.int64(H) - h > h if never else with_missing_right)
