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
    total,
    upper,
)

ZERO, ONE = np.float32(0.0), np.float32(1.0)
LOWEST = np.float32(-3e38)
BATCH = 2048  # outputs whose softmax goes on at the same time
AHEAD = 4096  # outputs between asking for some and needing them: they come from memory meanwhile
PANEL = 128  # rows that stay in the first cache while their sums are made

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
def add_moments(z: Any, first: int, last: int, weight: Any, sums: Any) -> None:
    """sums[0] += sum w z, sums[1] += sum w z^2 for outputs first .. last-1, in float64; z is contiguous."""
    n, K = z.shape
    whole = first + (last - first) // LANES * LANES
    for top in range(0, n, PANEL):
        bottom = min(top + PANEL, n)
        for k in range(first, whole, LANES):
            a, b, c, d = load(sums, k), load(sums, k + 4), load(sums, K + k), load(sums, K + k + 4)
            for i in range(top, bottom):
                v, w = load(z, i * K + k), spread(weight, i)
                low, high = lower(v), upper(v)
                w_low, w_high = w * low, w * high
                a, b = a + w_low, b + w_high
                c, d = fma(w_low, low, c), fma(w_high, high, d)
            store(sums, k, a)
            store(sums, k + 4, b)
            store(sums, K + k, c)
            store(sums, K + k + 4, d)
    for k in range(whole, last):
        for i in range(n):
            v = np.float64(z[i, k])
            sums[0, k] += weight[i] * v
            sums[1, k] += weight[i] * v * v


@numba.njit(cache=True, nogil=True)
def scaled_rows(p: Any, picked: Any, root: Any, q: Any) -> None:
    """q[j] = root[j] x p[picked[j]]: the rows whose products make the Gram."""
    K = p.shape[1]
    whole = K // LANES * LANES
    for j in range(len(picked)):
        source, r = picked[j] * K, spread(root, j)
        for k in range(0, whole, LANES):
            store(q, j * K + k, load(p, source + k) * r)
        for k in range(whole, K):
            q[j, k] = p[picked[j], k] * root[j]


@numba.njit(cache=True, nogil=True)
def add_gradient_sums(p: Any, g: Any, sums: Any) -> None:
    """sums[k] += sum_i p[i, k] g[i], float32 within a panel of rows and float64 across."""
    n, K = p.shape
    whole = K // LANES * LANES
    for first in range(0, n, PANEL):
        last = min(first + PANEL, n)
        for k in range(0, whole, LANES):
            b = lanes(ZERO)
            for i in range(first, last):
                b = fma(load(p, i * K + k), spread(g, i), b)
            store(sums, k, load(sums, k) + lower(b))
            store(sums, k + 4, load(sums, k + 4) + upper(b))
        for k in range(whole, K):
            for i in range(first, last):
                sums[k] += np.float64(p[i, k]) * np.float64(g[i])


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
