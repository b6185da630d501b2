"""Gradients and Hessians as integers: sums of integers are the same in any order and for any division of rows.

    q(g) = floor(g x scale_g + 1/2)   |q(g)| <= 32767
    q(h) = floor(h x scale_h + 1/2)   0 <= q(h) <= 65535

A scale is the largest power of two for which also no sum over all rows exceeds 2^31 - 1. It follows from upper bounds
of the largest number and of the sum, and these from how many numbers have which size: the exponent and two bits of the
mantissa. The counts are integers, so that all workers find the same scale.

Numbers that are zero are not counted: a row of weight 0 changes nothing.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gbun.trees.compiled import inlined, kernel

N_SIZES = 1024
SIZE_SHIFT = 21  # what is left of the 32 bits: sign, exponent and two bits of the mantissa
LEAST_REFUSED = 1020  # the first size of numbers that are not finite
MOST_G, MOST_H, MOST_SUM = 32767.0, 65535.0, 2.0**31 - 1.0
MOST_FINE, MOST_FINE_SUM = 2.0**40, 2.0**52  # where sums are to be exact in float64, and items are not packed
MOST_EXPONENT = 126  # the scale and its inverse are float32
REFUSED = -1000  # no exponent: a number is not finite, or an h is negative
TOO_MANY = -1001  # no exponent: rounding alone could exceed the largest sum

ONE_HALF, ZERO_BITS = np.float32(0.5), np.uint32(0x80000000)
LOW16, LOW32 = np.int64(0xFFFF), np.int64(0xFFFFFFFF)


@kernel()
def count_sizes(values: Any, first: int, last: int, signed: bool, counts: Any) -> None:
    """counts[size] = numbers of each size among values[first:last], float32 given as uint32; zeros do not count.

    Negative numbers that are not `signed` get the size of numbers that are refused.
    """
    # Neighbours are of like size: four tables, so that one count need not wait for the one before.
    tables = np.zeros((4, 2 * N_SIZES), dtype=np.int64)
    a, b, c, d = tables[0], tables[1], tables[2], tables[3]
    quarter = (last - first) // 4
    start, step = np.uint64(first), np.uint64(quarter)
    for i in range(np.uint64(quarter)):
        _count(values[start + i], a)
        _count(values[start + step + i], b)
        _count(values[start + step + step + i], c)
        _count(values[start + step + step + step + i], d)
    for i in range(first + 4 * quarter, last):
        _count(values[i], a)
    for k in range(N_SIZES):
        counts[k] = tables[0, k] + tables[1, k] + tables[2, k] + tables[3, k]
    for k in range(N_SIZES):
        negative = tables[0, N_SIZES + k] + tables[1, N_SIZES + k] + tables[2, N_SIZES + k] + tables[3, N_SIZES + k]
        counts[k if signed else N_SIZES - 1] += negative


@inlined()
def _count(value: Any, table: Any) -> None:
    table[value >> np.uint32(SIZE_SHIFT)] += np.int64(value & np.uint32(0x7FFFFFFF) != np.uint32(0))


@kernel()
def largest_exponent(top: float, total: float, n: float, most: float, most_sum: float) -> int:
    """Return the largest e for which top x 2^e is at most `most`, and the rounded sum of n numbers x 2^e `most_sum`."""
    e = MOST_EXPONENT
    while top * math.ldexp(1.0, e) > most or total * math.ldexp(1.0, e) + n / 2 > most_sum:
        e -= 1
        if e < -MOST_EXPONENT:
            return TOO_MANY
    return e


@kernel()
def find_exponent(counts: Any, most: float, most_sum: float) -> int:
    """Return the largest e so that numbers of these sizes x 2^e are at most `most`, and sums of them `most_sum`.

    Returns REFUSED or TOO_MANY where there is none.
    """
    n, top, total = np.int64(0), 0.0, 0.0
    for k in range(N_SIZES):
        if counts[k] > 0:
            if k >= LEAST_REFUSED:
                return REFUSED
            above = k + 1  # the first number of the next size
            exponent, quarters = above >> 2, above & 3
            top = math.ldexp(1.0 + quarters / 4, exponent - 127) if exponent > 0 else math.ldexp(quarters / 4, -126)
            total += counts[k] * top
            n += np.int64(counts[k])
    return largest_exponent(top, total, n, most, most_sum)


def check_exponent(e: int) -> None:
    if e == REFUSED:
        raise ValueError(
            "the objective's gradients and Hessians, times sample_weight, must be finite numbers that float32 can hold "
            "(below 3.4e38), and no Hessian may be negative; change the unit of y or of the loss"
        )
    if e == TOO_MANY:
        raise ValueError("sums over so many rows do not fit: there may be at most 2^32 of all workers together")


@kernel()
def make_items(g: Any, h: Any, scale_g: Any, scale_h: Any, first: int, last: int, items: Any) -> None:
    """items[i] = i << 32 | (q(g_i) & 0xffff) << 16 | q(h_i) for rows first .. last-1; scales are float32."""
    for i in range(first, last):
        q = np.int32(np.floor(g[i] * scale_g + ONE_HALF))
        k = np.int32(np.floor(h[i] * scale_h + ONE_HALF))
        items[i] = (np.int64(i) << 32) | (np.int64((q << 16) | k) & LOW32)


@kernel(fastmath={"reassoc"})
def sum_exactly(values: Any, scale: Any, first: int, last: int) -> float:
    """Return the sum of floor(v x scale + 1/2) over values[first:last], whole numbers below 2^53 in any order."""
    total = 0.0
    for i in range(first, last):
        total += np.floor(np.float64(values[i]) * scale + 0.5)
    return total


@inlined()
def pack_item(item: Any) -> Any:
    """q(g) in the upper 32 bits, q(h) in the lower: sums of such numbers hold both sums."""
    return ((item << 32) >> 48 << 32) + (item & LOW16)


@inlined()
def sum_of_g(packed: Any) -> Any:
    return packed >> 32


@inlined()
def sum_of_h(packed: Any) -> Any:
    return packed & LOW32
