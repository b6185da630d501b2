"""Kernels that go through network outputs row by row: moments, softmax, scaled rows, gradient sums, P w.

Each result of a row depends on that row alone, and sums over rows run in the order of rows.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from gbun.kernels.simd import (
    LANES,
    as_floats,
    as_words,
    fma,
    load,
    load_splat,
    lower_half,
    maximum,
    prefetch,
    reduce_max,
    reduce_sum,
    splat,
    store,
    store_nontemporal,
    upper_half,
)

ZERO, ONE = np.float32(0.0), np.float32(1.0)
LOWEST = np.float32(-3e38)
SOFTMAX_BATCH_OUTPUTS = 2048  # outputs whose softmax is computed at the same time
PREFETCHED_OUTPUTS = 4096  # outputs between prefetching and using them
PANEL_ROWS = 128  # rows that stay in the cache from one step to the next
FLUSH_ROWS = 2048  # rows whose Gram is summed in float32 before it is added to that in float64

# 2^x = 2^n 2^r with n = round(x) and r = x - n, which is exact; 2^r = 1 + r q(r), where q has the least relative error
# on |r| <= 1/2, 2e-9. The rest of the error is rounding.
Q0, Q1, Q2 = np.float32(0.69314718), np.float32(0.24022648), np.float32(0.055503324)
Q3, Q4, Q5 = np.float32(0.0096184369), np.float32(0.0013398874), np.float32(0.00015353362)
LEAST_EXPONENT = np.float32(-126.0)
ROUNDING = np.float32(12582912.0)  # 1.5 x 2^23: adding it leaves round(x) in the lowest bits
MANTISSA = np.uint32(23)


@numba.njit(inline="always")
def _power_of_two(x: Any) -> Any:
    """2^x for x <= 0, with a relative error of 1.2e-7; results below 2^-126 = 1.2e-38 are raised to it."""
    x = maximum(x, splat(LEAST_EXPONENT))
    n = x + ROUNDING
    r = x - (n - ROUNDING)
    q = fma(r, splat(Q5), splat(Q4))
    q = fma(r, q, splat(Q3))
    q = fma(r, q, splat(Q2))
    q = fma(r, q, splat(Q1))
    q = fma(r, q, splat(Q0))
    p = fma(r, q, splat(ONE))
    return as_floats(as_words(p) + (as_words(n) << MANTISSA))  # n is added to the exponent


@numba.njit(inline="always")
def _softmax(z: Any, first: int, last: int, centre: Any, factor: Any, width: int, tops: Any) -> None:
    # Groups first .. last-1 of z, each of `width` outputs, a multiple of eight. Each step is done for all groups: the
    # steps of one group depend on each other, those of several groups overlap.
    shift = first * width % len(centre)  # where the group's centres and factors begin
    for group in range(first, last):
        at, top = group * width, splat(LOWEST)
        for k in range(0, width, LANES):
            v = (load(z, at + k) - load(centre, shift + k)) * load(factor, shift + k)
            store(z, at + k, v)
            top = maximum(v, top)
        tops[group - first] = reduce_max(top)
        shift = shift + width if shift + width < len(centre) else 0
    for group in range(first, last):
        at, top, sums = group * width, splat(tops[group - first]), splat(ZERO)
        for k in range(0, width, LANES):
            prefetch(z, at + k + PREFETCHED_OUTPUTS)
            e = _power_of_two(load(z, at + k) - top)
            store(z, at + k, e)
            sums = sums + e
        tops[group - first] = ONE / reduce_sum(sums)
    for group in range(first, last):
        at, scale = group * width, splat(tops[group - first])
        for k in range(0, width, LANES):
            store(z, at + k, load(z, at + k) * scale)


@numba.njit(cache=True, nogil=True)
def to_memberships(z: Any, centre: Any, factor: Any, width: int) -> None:
    """z <- 2^v / sum 2^v over groups of `width` outputs, v = (z - centre) x factor, in place; z is contiguous.

    With 1 / log 2 in the factor it is the softmax. Groups that do not fill whole vectors are copied and padded with
    outputs of almost no weight.
    """
    n, K = z.shape
    batch = max(1, SOFTMAX_BATCH_OUTPUTS // width)
    tops = np.empty(batch, dtype=np.float32)
    if width % LANES == 0:
        groups = n * (K // width)
        for first in range(0, groups, batch):
            _softmax(z, first, min(first + batch, groups), centre, factor, width, tops)
        return
    padded = (width // LANES + 1) * LANES
    group = np.empty((1, padded), dtype=np.float32)
    group_centre, group_factor = np.zeros(padded, dtype=np.float32), np.ones(padded, dtype=np.float32)
    for i in range(n):
        for first in range(0, K, width):
            for k in range(width):
                group[0, k] = z[i, first + k]
                group_centre[k], group_factor[k] = centre[first + k], factor[first + k]
            for k in range(width, padded):
                group[0, k] = LOWEST
            _softmax(group, 0, 1, group_centre, group_factor, padded, tops)
            for k in range(width):
                z[i, first + k] = group[0, k]


@numba.njit(cache=True, nogil=True)
def add_moments(tile: Any, weight: Any, sums: Any, first: int, width: int) -> None:
    """sums[0, first + k] += sum w z, sums[1, first + k] += sum w z^2 for outputs k < width of a tile, in float64.

    For outputs r deviations away from zero the variance loses 1e-16 r^2 of itself, and z, a float32, has lost 6e-8 r
    already: plain sums do not limit accuracy.
    """
    n, stride = tile.shape
    K = sums.shape[1]
    whole = width // LANES * LANES
    for top in range(0, n, PANEL_ROWS):
        bottom = min(top + PANEL_ROWS, n)
        for k in range(0, whole, LANES):
            at = first + k
            a, b, c, d = load(sums, at), load(sums, at + 4), load(sums, K + at), load(sums, K + at + 4)
            for i in range(top, bottom):
                v, w = load(tile, i * stride + k), load_splat(weight, i)
                low, high = lower_half(v), upper_half(v)
                w_low, w_high = w * low, w * high
                a, b = a + w_low, b + w_high
                c, d = fma(w_low, low, c), fma(w_high, high, d)
            store(sums, at, a)
            store(sums, at + 4, b)
            store(sums, K + at, c)
            store(sums, K + at + 4, d)
    for k in range(whole, width):
        for i in range(n):
            v = np.float64(tile[i, k])
            sums[0, first + k] += weight[i] * v
            sums[1, first + k] += weight[i] * v * v


@numba.njit(cache=True, nogil=True)
def copy_tile(tile: Any, z: Any, first: int, nontemporal: bool) -> None:
    """Copy the tile to the columns of z from `first` on, or as many columns as z has.

    `nontemporal` is for a z that is not needed soon. It and its rows begin at multiples of 32 bytes.
    """
    n, stride = tile.shape
    K = z.shape[1]
    width = min(stride, K - first)
    whole = width // LANES * LANES
    for i in range(n):
        source, target = i * stride, i * K + first
        if nontemporal:
            for k in range(0, whole, LANES):
                store_nontemporal(z, target + k, load(tile, source + k))
        else:
            for k in range(0, whole, LANES):
                store(z, target + k, load(tile, source + k))
        for k in range(whole, width):
            z[i, first + k] = tile[i, k]


@numba.njit(cache=True, nogil=True)
def scale_rows(p: Any, picked: Any, root: Any, q: Any) -> None:
    """q[j] = root[j] x p[picked[j]]: the rows whose products sum to the Gram."""
    _scale_panel_rows(p, picked, root, 0, q)


@numba.njit(inline="always")
def _scale_panel_rows(p: Any, picked: Any, root: Any, top: int, q: Any) -> None:
    # p begins with row `top`.
    K = p.shape[1]
    whole = K // LANES * LANES
    for j in range(len(picked)):
        source, r = (picked[j] - top) * K, load_splat(root, j)
        for k in range(0, whole, LANES):
            store(q, j * K + k, load(p, source + k) * r)
        for k in range(whole, K):
            q[j, k] = p[picked[j] - top, k] * root[j]


@numba.njit(cache=True, nogil=True)
def add_gradient_sums(p: Any, g: Any, sums: Any) -> None:
    """sums[k] += sum_i p[i, k] g[i], float32 within a panel of rows and float64 across."""
    n, K = p.shape
    partial = np.empty(K, dtype=np.float32)
    for top in range(0, n, PANEL_ROWS):
        partial[:] = ZERO
        bottom = min(top + PANEL_ROWS, n)
        for i in range(top, bottom - 3, 4):
            _add_four_rows(p, g, i, partial)
        for i in range(top + (bottom - top) // 4 * 4, bottom):
            for k in range(K):
                partial[k] = fma(p[i, k], g[i], partial[k])
        for k in range(K):
            sums[k] += partial[k]


@numba.njit(inline="always")
def _add_four_rows(p: Any, g: Any, i: int, sums: Any) -> None:
    K = p.shape[1]
    whole = K // LANES * LANES
    a, b, c, d = load_splat(g, i), load_splat(g, i + 1), load_splat(g, i + 2), load_splat(g, i + 3)
    at = i * K
    for k in range(0, whole, LANES):
        s = fma(a, load(p, at + k), load(sums, k))
        s = fma(b, load(p, at + K + k), s)
        s = fma(c, load(p, at + 2 * K + k), s)
        store(sums, k, fma(d, load(p, at + 3 * K + k), s))
    for k in range(whole, K):
        for j in range(i, i + 4):
            sums[k] = fma(p[j, k], g[j], sums[k])


@numba.njit(cache=True, nogil=True)
def split(z: Any, softmax: Any, g: Any, sums: Any, picked: Any, root: Any, q: Any) -> None:
    """Do `to_memberships`, `add_gradient_sums` and `scale_rows` in one go, for a few rows at a time, in the cache.

    `softmax` is (centre, factor, width).
    """
    centre, factor, width = softmax
    first = 0
    for top in range(0, len(z), PANEL_ROWS):
        panel = z[top : top + PANEL_ROWS]
        to_memberships(panel, centre, factor, width)
        add_gradient_sums(panel, g[top : top + PANEL_ROWS], sums)
        last = _panel_end(picked, first, top + PANEL_ROWS)
        _scale_panel_rows(panel, picked[first:last], root[first:last], top, q[first:last])
        first = last


@numba.njit(cache=True, nogil=True)
def to_memberships_and_gram(z: Any, softmax: Any, g: Any, sums: Any, picked: Any, root: Any, gram: Any) -> None:
    """Do `split`, and gram += Q'Q of the same few rows: the triangle j <= i, for K a multiple of 16."""
    centre, factor, width = softmax
    K = z.shape[1]
    q, partial_gram = np.empty((PANEL_ROWS, K), dtype=np.float32), np.zeros((K, K), dtype=np.float32)
    first, waiting = 0, 0
    for top in range(0, len(z), PANEL_ROWS):
        panel = z[top : top + PANEL_ROWS]
        to_memberships(panel, centre, factor, width)
        add_gradient_sums(panel, g[top : top + PANEL_ROWS], sums)
        last = _panel_end(picked, first, top + PANEL_ROWS)
        _scale_panel_rows(panel, picked[first:last], root[first:last], top, q)
        _add_gram(q, last - first, partial_gram)
        first, waiting = last, waiting + last - first
        if waiting >= FLUSH_ROWS or top + PANEL_ROWS >= len(z):
            for i in range(K):
                for j in range(i + 1):
                    gram[i, j] += partial_gram[i, j]
            partial_gram[:] = ZERO
            waiting = 0


@numba.njit(inline="always")
def _panel_end(picked: Any, first: int, bottom: int) -> int:
    last = first
    while last < len(picked) and picked[last] < bottom:
        last += 1
    return last


@numba.njit(inline="always")
def _add_gram(q: Any, n: int, gram: Any) -> None:
    # Four rows of the result by sixteen columns: eight registers of sums, two of q, one of the factor.
    K = q.shape[1]
    for j in range(0, K, 16):
        for i in range(j, K, 4):
            at = i * K + j
            a0, b0 = load(gram, at), load(gram, at + 8)
            a1, b1 = load(gram, at + K), load(gram, at + K + 8)
            a2, b2 = load(gram, at + 2 * K), load(gram, at + 2 * K + 8)
            a3, b3 = load(gram, at + 3 * K), load(gram, at + 3 * K + 8)
            for r in range(n):
                row = r * K
                v, w = load(q, row + j), load(q, row + j + 8)
                x = load_splat(q, row + i)
                a0, b0 = fma(x, v, a0), fma(x, w, b0)
                x = load_splat(q, row + i + 1)
                a1, b1 = fma(x, v, a1), fma(x, w, b1)
                x = load_splat(q, row + i + 2)
                a2, b2 = fma(x, v, a2), fma(x, w, b2)
                x = load_splat(q, row + i + 3)
                a3, b3 = fma(x, v, a3), fma(x, w, b3)
            store(gram, at, a0)
            store(gram, at + 8, b0)
            store(gram, at + K, a1)
            store(gram, at + K + 8, b1)
            store(gram, at + 2 * K, a2)
            store(gram, at + 2 * K + 8, b2)
            store(gram, at + 3 * K, a3)
            store(gram, at + 3 * K + 8, b3)


@numba.njit(cache=True, nogil=True)
def add_dots(p: Any, w: Any, scores: Any) -> None:
    """scores[i, 0] += p[i] . w, the product in float32, summed in the same order for every row."""
    n, K = p.shape
    whole = K // LANES * LANES
    for i in range(n):
        s = splat(ZERO)
        for k in range(0, whole, LANES):
            s = fma(load(p, i * K + k), load(w, k), s)
        dot = reduce_sum(s)
        for k in range(whole, K):
            dot += p[i, k] * w[k]
        scores[i, 0] += dot
