"""What happens to network outputs row by row: moments, softmax, the scaled copy for the Gram, gradient sums, P w.

Every result of a row depends on that row alone, and sums over rows run in the order of rows.
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
    lanes,
    larger,
    largest,
    load,
    lower,
    prefetch,
    spread,
    store,
    store_past_caches,
    total,
    upper,
)

ZERO, ONE = np.float32(0.0), np.float32(1.0)
LOWEST = np.float32(-3e38)
BATCH = 2048  # outputs whose softmax goes on at the same time
AHEAD = 4096  # outputs between asking for some and needing them: they come from memory meanwhile
PANEL = 128  # rows that are near while one thing after the other is done with them
FLUSH = 2048  # rows whose Gram is kept in float32 before it joins that in float64

# 2^x = 2^n 2^r with n = round(x) and r = x - n, which is exact; 2^r = 1 + r q(r), q fitted for the least relative
# error on |r| <= 1/2, where it is 2e-9. What is left is rounding.
Q0, Q1, Q2 = np.float32(0.69314718), np.float32(0.24022648), np.float32(0.055503324)
Q3, Q4, Q5 = np.float32(0.0096184369), np.float32(0.0013398874), np.float32(0.00015353362)
LEAST_EXPONENT = np.float32(-126.0)
ROUNDING = np.float32(12582912.0)  # 1.5 x 2^23: adding it leaves round(x) in the lowest bits
MANTISSA = np.uint32(23)


@numba.njit(inline="always")
def _power_of_two(x: Any) -> Any:
    """2^x for x <= 0, to within 1.2e-7 of itself; what is below 2^-126, 1.2e-38, counts as that."""
    x = larger(x, lanes(LEAST_EXPONENT))
    n = x + ROUNDING
    r = x - (n - ROUNDING)
    q = fma(r, lanes(Q5), lanes(Q4))
    q = fma(r, q, lanes(Q3))
    q = fma(r, q, lanes(Q2))
    q = fma(r, q, lanes(Q1))
    q = fma(r, q, lanes(Q0))
    p = fma(r, q, lanes(ONE))
    return as_floats(as_words(p) + (as_words(n) << MANTISSA))  # n is added to the exponent


@numba.njit(cache=True, nogil=True)
def powers_of_two(x: Any) -> None:
    """x <- 2^x in place, for the softmax's own arguments, x <= 0; length a multiple of eight."""
    for k in range(0, len(x), LANES):
        store(x, k, _power_of_two(load(x, k)))


@numba.njit(inline="always")
def _softmax(z: Any, first: int, last: int, centre: Any, factor: Any, width: int, tops: Any) -> None:
    # Groups first .. last-1 of z, each of `width` outputs, a multiple of eight. Step by step for all of them: the
    # steps of one group wait for each other, those of several groups overlap.
    shift = first * width % len(centre)  # where the group's centres and factors begin
    for group in range(first, last):
        at, top = group * width, lanes(LOWEST)
        for k in range(0, width, LANES):
            v = (load(z, at + k) - load(centre, shift + k)) * load(factor, shift + k)
            store(z, at + k, v)
            top = larger(v, top)
        tops[group - first] = largest(top)
        shift = shift + width if shift + width < len(centre) else 0
    for group in range(first, last):
        at, top, sums = group * width, lanes(tops[group - first]), lanes(ZERO)
        for k in range(0, width, LANES):
            prefetch(z, at + k + AHEAD)
            e = _power_of_two(load(z, at + k) - top)
            store(z, at + k, e)
            sums = sums + e
        tops[group - first] = ONE / total(sums)
    for group in range(first, last):
        at, scale = group * width, lanes(tops[group - first])
        for k in range(0, width, LANES):
            store(z, at + k, load(z, at + k) * scale)


@numba.njit(cache=True, nogil=True)
def memberships(z: Any, centre: Any, factor: Any, width: int) -> None:
    """z <- 2^v / sum 2^v over groups of `width` outputs, v = (z - centre) x factor, in place; z is contiguous.

    A factor that holds 1 / log 2 makes it the softmax of e^v.

    Groups that do not fill whole vectors are computed in a copy that does, padded with outputs that never win.
    """
    n, K = z.shape
    batch = max(1, BATCH // width)
    tops = np.empty(batch, dtype=np.float32)
    if width % LANES == 0:
        groups = n * (K // width)
        for first in range(0, groups, batch):
            _softmax(z, first, min(first + batch, groups), centre, factor, width, tops)
        return
    padded = (width // LANES + 1) * LANES
    own = np.empty((1, padded), dtype=np.float32)
    own_centre, own_factor = np.zeros(padded, dtype=np.float32), np.ones(padded, dtype=np.float32)
    for i in range(n):
        for first in range(0, K, width):
            for k in range(width):
                own[0, k] = z[i, first + k]
                own_centre[k], own_factor[k] = centre[first + k], factor[first + k]
            for k in range(width, padded):
                own[0, k] = LOWEST
            _softmax(own, 0, 1, own_centre, own_factor, padded, tops)
            for k in range(width):
                z[i, first + k] = own[0, k]


@numba.njit(cache=True, nogil=True)
def add_moments(tile: Any, weight: Any, sums: Any, first: int, width: int) -> None:
    """sums[0, first + k] += sum w z, sums[1, first + k] += sum w z^2 for outputs k < width of a tile, in float64."""
    n, stride = tile.shape
    K = sums.shape[1]
    whole = width // LANES * LANES
    for top in range(0, n, PANEL):
        bottom = min(top + PANEL, n)
        for k in range(0, whole, LANES):
            at = first + k
            a, b, c, d = load(sums, at), load(sums, at + 4), load(sums, K + at), load(sums, K + at + 4)
            for i in range(top, bottom):
                v, w = load(tile, i * stride + k), spread(weight, i)
                low, high = lower(v), upper(v)
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
def move_out(tile: Any, z: Any, first: int, past_caches: bool) -> None:
    """Columns first .. of z = the tile, or as many of its columns as z has room for.

    `past_caches` is for a z that is not needed soon and begins at a multiple of 32 bytes, as do its rows.
    """
    n, stride = tile.shape
    K = z.shape[1]
    width = min(stride, K - first)
    whole = width // LANES * LANES
    for i in range(n):
        source, target = i * stride, i * K + first
        if past_caches:
            for k in range(0, whole, LANES):
                store_past_caches(z, target + k, load(tile, source + k))
        else:
            for k in range(0, whole, LANES):
                store(z, target + k, load(tile, source + k))
        for k in range(whole, width):
            z[i, first + k] = tile[i, k]


@numba.njit(cache=True, nogil=True)
def scaled_rows(p: Any, picked: Any, root: Any, q: Any) -> None:
    """q[j] = root[j] x p[picked[j]]: the rows whose products make the Gram."""
    _scale_rows(p, picked, root, 0, q)


@numba.njit(inline="always")
def _scale_rows(p: Any, picked: Any, root: Any, top: int, q: Any) -> None:
    # p begins with row `top`.
    K = p.shape[1]
    whole = K // LANES * LANES
    for j in range(len(picked)):
        source, r = (picked[j] - top) * K, spread(root, j)
        for k in range(0, whole, LANES):
            store(q, j * K + k, load(p, source + k) * r)
        for k in range(whole, K):
            q[j, k] = p[picked[j] - top, k] * root[j]


@numba.njit(cache=True, nogil=True)
def add_gradient_sums(p: Any, g: Any, sums: Any) -> None:
    """sums[k] += sum_i p[i, k] g[i], float32 within a panel of rows and float64 across."""
    n, K = p.shape
    own = np.empty(K, dtype=np.float32)
    for top in range(0, n, PANEL):
        own[:] = ZERO
        bottom = min(top + PANEL, n)
        for i in range(top, bottom - 3, 4):
            _add_four_rows(p, g, i, own)
        for i in range(top + (bottom - top) // 4 * 4, bottom):
            for k in range(K):
                own[k] = fma(p[i, k], g[i], own[k])
        for k in range(K):
            sums[k] += own[k]


@numba.njit(inline="always")
def _add_four_rows(p: Any, g: Any, i: int, sums: Any) -> None:
    K = p.shape[1]
    whole = K // LANES * LANES
    a, b, c, d = spread(g, i), spread(g, i + 1), spread(g, i + 2), spread(g, i + 3)
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
def split(z: Any, centre: Any, factor: Any, width: int, g: Any, sums: Any, picked: Any, root: Any, q: Any) -> None:
    """`memberships`, `add_gradient_sums` and `scaled_rows` in one go: a few rows at a time, while they are near."""
    first = 0
    for top in range(0, len(z), PANEL):
        own = z[top : top + PANEL]
        memberships(own, centre, factor, width)
        add_gradient_sums(own, g[top : top + PANEL], sums)
        last = _end_of_panel(picked, first, top + PANEL)
        _scale_rows(own, picked[first:last], root[first:last], top, q[first:last])
        first = last


@numba.njit(cache=True, nogil=True)
def split_and_gram(
    z: Any, centre: Any, factor: Any, width: int, g: Any, sums: Any, picked: Any, root: Any, gram: Any
) -> None:
    """`split`, and gram += Q'Q of each few rows at once: the triangle j <= i, for K a multiple of 16."""
    K = z.shape[1]
    q, own_gram = np.empty((PANEL, K), dtype=np.float32), np.zeros((K, K), dtype=np.float32)
    first, waiting = 0, 0
    for top in range(0, len(z), PANEL):
        own = z[top : top + PANEL]
        memberships(own, centre, factor, width)
        add_gradient_sums(own, g[top : top + PANEL], sums)
        last = _end_of_panel(picked, first, top + PANEL)
        _scale_rows(own, picked[first:last], root[first:last], top, q)
        _add_gram(q, last - first, own_gram)
        first, waiting = last, waiting + last - first
        if waiting >= FLUSH or top + PANEL >= len(z):
            for i in range(K):
                for j in range(i + 1):
                    gram[i, j] += own_gram[i, j]
            own_gram[:] = ZERO
            waiting = 0


@numba.njit(inline="always")
def _end_of_panel(picked: Any, first: int, bottom: int) -> int:
    last = first
    while last < len(picked) and picked[last] < bottom:
        last += 1
    return last


@numba.njit(inline="always")
def _add_gram(q: Any, n: int, gram: Any) -> None:
    # Four rows of the result by sixteen columns: eight registers of sums, two of q, one of each q that multiplies.
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
                x = spread(q, row + i)
                a0, b0 = fma(x, v, a0), fma(x, w, b0)
                x = spread(q, row + i + 1)
                a1, b1 = fma(x, v, a1), fma(x, w, b1)
                x = spread(q, row + i + 2)
                a2, b2 = fma(x, v, a2), fma(x, w, b2)
                x = spread(q, row + i + 3)
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
        s = lanes(ZERO)
        for k in range(0, whole, LANES):
            s = fma(load(p, i * K + k), load(w, k), s)
        dot = total(s)
        for k in range(whole, K):
            dot += p[i, k] * w[k]
        scores[i, 0] += dot
