"""The best split of a column of categories, whose bins have no order: one of them, or a subset, against all others.

    one       gain as of any other split
    subset    the first bins in the order of  G_b / (H_b + s),
              gain with  lambda + s  in the place of lambda,  less  2 / pi (k - 1) v

Among all subsets the best is a beginning of that order (s = 0; Fisher 1958). s is the Hessian of `SMOOTHING` average
rows of the leaf: it keeps bins of few rows, whose G / H is mostly chance, from the ends of the order. What is taken
from the gain is what the best of all subsets of k equal bins gains where there is nothing but chance: v is the variance
of a gradient for each unit of the Hessian, sum g^2 / sum h of all rows. Missing values are a bin like the others. A bin
without rows in the leaf goes to the heavier side.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gbun.trees.compiled import inlined, kernel
from gbun.trees.gain import quality
from gbun.trees.histogram import N_BINS
from gbun.trees.quantise import pack_item, sum_of_g, sum_of_h

SMOOTHING = 10.0  # average rows
CHANCE = 2.0 / math.pi  # the square of the mean size of a standard normal number
FEWEST = 4  # bins with rows, below which a subset is one bin or all but one
ONE = np.uint64(1)


@kernel(error_model="numpy")
def find_subset(sums: Any, column: int, G: Any, H: Any, n: Any, penalty: Any, least: Any, variance: Any) -> Any:
    """Return the quality of the best split, the mask of the bins that go left, and their sums g and h.

    The arguments are those of `find_split`, with G and H as floats. Of equal qualities one bin's counts before that of
    subsets, then the first; a quality of 0 is no split.
    """
    at, smoothing = column * N_BINS, SMOOTHING * H / n
    best, mask, left = 0.0, np.uint64(0), np.int64(0)
    total = np.int64(0)
    empty = np.uint64(0)
    for b in range(N_BINS):
        total += sums[at + b]
        if sums[at + b] == 0:
            empty |= ONE << np.uint64(b)
            continue
        found = quality(sums[at + b], G, H, penalty, least)
        if found > best:
            best, mask, left = found, ~(ONE << np.uint64(b)), -sums[at + b]
    if mask != 0:
        left += total
    order, ratio = np.empty(N_BINS, dtype=np.int64), np.empty(N_BINS)
    k = _sort_bins(sums, at, smoothing, order, ratio)
    prefix, prefix_mask, chance = np.int64(0), np.uint64(0), CHANCE * (k - 1) * variance
    for i in range(k - 1 if k >= FEWEST else 0):
        prefix += sums[at + order[i]]
        prefix_mask |= ONE << np.uint64(order[i])
        found = quality(prefix, G, H, penalty + smoothing, least) - chance
        if found > best:
            best, mask, left = found, prefix_mask, prefix
    left_g, left_h = sum_of_g(left), sum_of_h(left)
    heavier_left = 2 * left_h > np.int64(H)
    return best, (mask | empty) if heavier_left else (mask & ~empty), left_g, left_h


@kernel()
def sum_squares(items: Any, first: int, last: int) -> Any:
    """Return sum q(g)^2 of items: at most 2^46, as a sum of sizes is at most 2^31 and a size 2^15."""
    total = np.int64(0)
    for i in range(first, last):
        g = sum_of_g(pack_item(items[i]))
        total += g * g
    return total


@inlined()
def _sort_bins(sums: Any, at: Any, smoothing: Any, order: Any, ratio: Any) -> Any:
    """Write the bins that have rows to `order`, by G / (H + s), of equal ones the first; return how many there are."""
    k = 0
    for b in range(N_BINS):
        if sums[at + b] == 0:
            continue
        value = np.float64(sum_of_g(sums[at + b])) / (np.float64(sum_of_h(sums[at + b])) + smoothing)
        i = k
        while i > 0 and ratio[i - 1] > value:
            ratio[i], order[i] = ratio[i - 1], order[i - 1]
            i -= 1
        ratio[i], order[i] = value, b
        k += 1
    return k
