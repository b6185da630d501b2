"""Histograms: sums of gradients and Hessians of a leaf's rows for each bin of each column.

    H[64 j + b] = sum over rows of the leaf whose column j is in bin b of  q(g) 2^32 + q(h)

one addition of an integer for both sums. Bins lie row by row, eight columns a word; a word is read once for eight
additions. Where a leaf is sparse its rows are not neighbours in memory, and they are fetched ahead.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gbun.kernels.simd import prefetch
from gbun.trees.compiled import inlined, kernel
from gbun.trees.quantise import pack_item

N_BINS = 64  # of a column; bin 0 is for missing values
PROJECTION_BINS = 32  # of those, the ones that projections use
BINS_OF_WORD = np.uint64(8 * N_BINS)  # entries of a histogram that belong to the columns of a word
COLUMNS_AT_A_TIME = 64  # their histograms stay in the nearest cache
AHEAD = 16  # rows between fetching and using
DENSE = 3  # a leaf with a third of the rows it spans is read without fetching ahead
U1, U8, U16, U24, U32, U40, U48, U56, BIN = (np.uint64(c) for c in (1, 8, 16, 24, 32, 40, 48, 56, N_BINS - 1))
W0, W2, W3, W4, W5, W6, W7 = (np.uint64(k) for k in (0, 2, 3, 4, 5, 6, 7))
B1, B2, B3, B4, B5, B6, B7 = (np.uint64(k * N_BINS) for k in range(1, 8))


@inlined()
def _add_word(word: Any, a: Any, at: Any, sums: Any) -> None:
    sums[at + (word & BIN)] += a
    sums[at + B1 + (word >> U8 & BIN)] += a
    sums[at + B2 + (word >> U16 & BIN)] += a
    sums[at + B3 + (word >> U24 & BIN)] += a
    sums[at + B4 + (word >> U32 & BIN)] += a
    sums[at + B5 + (word >> U40 & BIN)] += a
    sums[at + B6 + (word >> U48 & BIN)] += a
    sums[at + B7 + (word >> U56 & BIN)] += a


@inlined()
def _add_first(word: Any, count: Any, a: Any, at: Any, sums: Any) -> None:
    # The first `count` columns of a word, 1 to 7: the same for all rows, so that branches are foreseen.
    sums[at + (word & BIN)] += a
    if count > 1:
        sums[at + B1 + (word >> U8 & BIN)] += a
        if count > 2:
            sums[at + B2 + (word >> U16 & BIN)] += a
            if count > 3:
                sums[at + B3 + (word >> U24 & BIN)] += a
                if count > 4:
                    sums[at + B4 + (word >> U32 & BIN)] += a
                    if count > 5:
                        sums[at + B5 + (word >> U40 & BIN)] += a
                        if count > 6:
                            sums[at + B6 + (word >> U48 & BIN)] += a


@inlined()
def _add_row(item: Any, words: Any, stride: Any, start: Any, whole: Any, rest: Any, sums: Any) -> None:
    # `whole` words of a row from `start` on, 8 at most, and `rest` columns of the next. Where each word's sums begin is
    # known when this is compiled, which a loop over words would not give: a quarter of the time.
    at, a = (np.uint64(item) >> U32) * stride + start, pack_item(item)
    if whole > 0:
        _add_word(words[at], a, W0, sums)
        if whole > 1:
            _add_word(words[at + U1], a, U1 * BINS_OF_WORD, sums)
            if whole > 2:
                _add_word(words[at + W2], a, W2 * BINS_OF_WORD, sums)
                if whole > 3:
                    _add_word(words[at + W3], a, W3 * BINS_OF_WORD, sums)
                    if whole > 4:
                        _add_word(words[at + W4], a, W4 * BINS_OF_WORD, sums)
                        if whole > 5:
                            _add_word(words[at + W5], a, W5 * BINS_OF_WORD, sums)
                            if whole > 6:
                                _add_word(words[at + W6], a, W6 * BINS_OF_WORD, sums)
                                if whole > 7:
                                    _add_word(words[at + W7], a, W7 * BINS_OF_WORD, sums)
    if rest > 0:
        next_ = np.uint64(whole)
        _add_first(words[at + next_], rest, a, next_ * BINS_OF_WORD, sums)


@kernel()
def add_histogram(items: Any, first: int, last: int, words: Any, stride: int, n_columns: int, sums: Any) -> None:
    """Add items[first:last] to the histograms of `n_columns` columns; `words` holds `stride` words a row."""
    if last <= first:
        return
    row = np.uint64(stride)
    span = (items[last - 1] >> 32) - (items[first] >> 32)
    dense = (last - first) * DENSE >= span
    for column in range(0, n_columns, COLUMNS_AT_A_TIME):
        count = min(n_columns - column, COLUMNS_AT_A_TIME)
        start, whole, rest = np.uint64(column // 8), count // 8, count % 8
        own = sums[column * N_BINS :]
        end = start + np.uint64((count - 1) // 8)
        i = np.uint64(first)
        if not dense:
            middle, straddles = np.uint64(max(first, last - AHEAD)), stride & (stride - 1) != 0
            for j in range(first, min(last, first + AHEAD)):
                prefetch(words, (np.uint64(items[j]) >> U32) * row + start)
            while i < middle:
                at = (np.uint64(items[i + np.uint64(AHEAD)]) >> U32) * row
                prefetch(words, at + start)
                if straddles:
                    prefetch(words, at + end)
                _add_row(items[i], words, row, start, whole, rest, own)
                i += U1
        while i < np.uint64(last):
            _add_row(items[i], words, row, start, whole, rest, own)
            i += U1


@kernel()
def count_items(items: Any, first: int, last: int) -> Any:
    """Return the number of items with a gradient or Hessian other than zero: those of weight 0 do not count."""
    n = np.int64(0)
    for i in range(first, last):
        n += np.int64(items[i] & 0xFFFFFFFF != 0)
    return n


@kernel()
def sum_items(items: Any, first: int, last: int) -> Any:
    """Return the packed sum of all items."""
    total = np.int64(0)
    for i in range(first, last):
        total += pack_item(items[i])
    return total
