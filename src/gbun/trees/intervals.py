"""Intervals of one column's values: what sums of integers tell about them, and the cut points that follow.

A float32 is mapped to a uint32, its *key*, of the same order. Passes over the rows count the keys in intervals, first
those that agree in 12 bits, then those that agree in 5 bits more, until all 32 bits are known. Only the intervals that
matter are divided again:

    all of them, while the column has at most 63; so a column of few values gets a bin for each
    else those that contain one of the targets, ranks that are denser towards both ends

A value that several targets hit is *heavy* and gets a bin of its own. The targets that it has used up and does not need
are spread over the other values, again and again until no value is newly heavy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gbun.dtypes import FloatArray, IntArray
from gbun.trees.histogram import N_BINS

MAX_EDGES = N_BINS - 2  # bin 0 is for missing values
TOP_BITS, MORE_BITS = 12, 5
TOP, CHILDREN = 1 << TOP_BITS, 1 << MORE_BITS
KEY_OF_ZERO = 1 << 31
LARGEST, SMALLEST = float(np.finfo(np.float32).max), float(np.finfo(np.float32).tiny)


def to_keys(x: FloatArray) -> IntArray:
    """Return the keys of float32 numbers, which are not NaN, as int64; -0 has that of 0.

    >>> to_keys(np.array([-1.0, 0.0, 1.0], dtype=np.float32))
    array([1082130431, 2147483648, 3212836864])
    """
    bits = (np.asarray(x, dtype=np.float32) + np.float32(0.0)).view(np.uint32).astype(np.int64)
    return np.asarray(np.where(bits >= KEY_OF_ZERO, 2 * KEY_OF_ZERO - 1 - bits, bits + KEY_OF_ZERO))


def from_keys(keys: IntArray) -> FloatArray:
    """Return the float32 numbers of keys.

    >>> from_keys(to_keys(np.array([-1.5, 0.0, np.inf])))
    array([-1.5,  0. ,  inf], dtype=float32)
    """
    keys = np.asarray(keys, dtype=np.int64)
    bits = np.where(keys >= KEY_OF_ZERO, keys - KEY_OF_ZERO, 2 * KEY_OF_ZERO - 1 - keys)
    return bits.astype(np.uint32).view(np.float32)


INFINITE_KEYS = int(to_keys(np.array(-np.inf))), int(to_keys(np.array(np.inf)))


@dataclass
class Intervals:
    """The intervals of a column that hold values, in ascending order.

    Attributes
    ----------
    first : ndarray of shape (k,), int64
        The lowest key of each interval.
    width : ndarray of shape (k,), int64
        How many keys it has; 1 if its value is known.
    count : ndarray of shape (k,), int64
        How many rows it has.
    n_missing : int
        How many rows have no value.
    """

    first: IntArray
    width: IntArray
    count: IntArray
    n_missing: int

    @classmethod
    def from_counts(cls, counts: IntArray, n_missing: int, n_inexact: int) -> Intervals:
        """Make the intervals of the first pass; `n_inexact` is explained at `divide`."""
        column = cls(np.zeros(1, np.int64), np.full(1, 1 << 32), counts.sum(keepdims=True), n_missing)
        column.divide(np.zeros(1, np.int64), counts[None], n_inexact)
        return column

    @property
    def n_rows(self) -> int:
        return int(self.count.sum())

    @property
    def has_few(self) -> bool:
        return len(self.count) <= N_BINS - 1

    def unknown(self) -> IntArray:
        """Return the numbers of the intervals that must be divided further."""
        open_ = self.width > 1
        if not self.has_few:
            heavy, light = hit_by_targets(self.count)
            open_ &= (target_hits(self.count, MAX_EDGES) > 0) | heavy | light
        return np.flatnonzero(open_)

    def divide(self, chosen: IntArray, counts: IntArray, n_inexact: int) -> None:
        """Replace intervals by those of their equal parts that hold values.

        `counts` has the rows of each part, (chosen, parts). In `n_inexact` of them the bits of the number below those
        of the part are not all zero; if there are none, as with small integers, all values of the parts are known.
        """
        width = np.broadcast_to(self.width[chosen, None] // counts.shape[1], counts.shape)
        first = self.first[chosen, None] + width * np.arange(counts.shape[1])
        held = counts > 0
        first, width, count = first[held], width[held], counts[held]
        if n_inexact == 0:  # the key of a negative number has the complement of its bits
            first = np.where(first < KEY_OF_ZERO, first + width - 1, first)
            width = np.ones_like(width)
        kept = np.ones(len(self.first), dtype=bool)
        kept[chosen] = False
        first, width, count = (
            np.concatenate([own[kept], new])
            for own, new in ((self.first, first), (self.width, width), (self.count, count))
        )
        order = np.argsort(first, kind="stable")  # two ascending runs, which it merges
        self.first, self.width, self.count = first[order], width[order], count[order]

    def edges(self) -> FloatArray:
        """Return the cut points, ascending float32, at most `MAX_EDGES`."""
        if self.has_few:
            return midpoints(from_keys(self.first))
        heavy, light = hit_by_targets(self.count)
        below, at = heavy.copy(), heavy | light
        below[0] = at[-1] = False  # no rows beyond
        keys = np.concatenate([self.first[below] - 1, (self.first + self.width - 1)[at]])
        edges = from_keys(keys)
        edges[keys == KEY_OF_ZERO - 1] = -SMALLEST  # -0 would not be below 0
        return np.unique(np.clip(edges, -LARGEST, LARGEST))

    def summarise(self, edges: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return the rows of each bin, and the mean of its finite values as far as they are known, else NaN."""
        lowest, highest = INFINITE_KEYS
        low = from_keys(np.maximum(self.first, lowest)).astype(np.float64)
        high = from_keys(np.minimum(self.first + self.width - 1, highest))
        bins = 1 + np.searchsorted(edges, high)
        counts = np.bincount(bins, self.count, N_BINS).astype(np.int64)
        counts[0] = self.n_missing
        with np.errstate(invalid="ignore"):
            middle = (low + high) / 2
        means = np.full(N_BINS, np.nan)
        finite = np.isfinite(middle)
        bins, count, sums = bins[finite], self.count[finite], (middle[finite] * self.count[finite]).tolist()
        starts = np.flatnonzero(np.diff(bins, prepend=-1))  # intervals ascend, and so do their bins
        totals = np.add.reduceat(count, starts) if len(starts) else starts
        ends = pairwise([*starts.tolist(), len(bins)])
        means[bins[starts]] = [
            math.fsum(sums[first:last]) / n for (first, last), n in zip(ends, totals.tolist(), strict=True)
        ]
        return counts, means


def target_hits(count: IntArray, n: int) -> IntArray:
    """Return how many of n targets each interval contains.

    Targets are ranks N (3 x^2 - 2 x^3), x = 1 / (n + 1), 2 / (n + 1), ...: two thirds as dense as equally distant ranks
    in the middle, and denser towards both ends, where values are far from each other.

    >>> target_hits(np.array([1, 2, 5]), 3)
    array([0, 1, 2])
    """
    total, k = int(count.sum()), np.arange(1, n + 1)
    ranks = -(-k * k * (3 * (n + 1) - 2 * k) * total // (n + 1) ** 3)  # rounded up
    return np.bincount(np.searchsorted(np.cumsum(count), ranks), minlength=len(count)) if total else 0 * count


def hit_by_targets(count: IntArray) -> tuple[IntArray, IntArray]:
    """Return which intervals are heavy, and which others contain a target.

    A heavy one takes two edges and has used up at least as many targets, so that there are never too many edges.
    """
    heavy = np.zeros(len(count), dtype=bool)
    while True:
        hits = target_hits(np.where(heavy, 0, count), MAX_EDGES - 2 * int(heavy.sum()))
        if not (hits > 1).any():
            return heavy, hits > 0
        heavy |= hits > 1


def midpoints(values: FloatArray) -> FloatArray:
    """Return a finite float32 between each two neighbours, lower <= edge < upper.

    (Between -inf and the lowest finite number there is none; these two share a bin.)

    >>> midpoints(np.array([0.0, 1.0, np.inf], dtype=np.float32))
    array([5.0000000e-01, 3.4028235e+38], dtype=float32)
    """
    lower, upper = values[:-1], values[1:]
    with np.errstate(invalid="ignore", over="ignore"):
        middle = np.nan_to_num((lower.astype(np.float64) + upper) / 2).clip(-LARGEST, LARGEST).astype(np.float32)
        below = np.nextafter(upper, np.float32(-np.inf))
    return np.asarray(np.clip(np.maximum(np.minimum(middle, below), lower), -LARGEST, LARGEST), dtype=np.float32)
