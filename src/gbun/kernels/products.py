"""Matrix products whose every row has the same bits wherever it stands: alone, in a chunk, in a whole matrix.

BLAS sums a row in an order that depends on how many rows stand beside it, so a row predicted alone would differ in
its last digits from the same row predicted among others. Here each element is summed over columns from left to
right with one fused multiply-add a step, as the sparse kernels do: dense and sparse input agree to the last bit.
"""

from __future__ import annotations

from typing import Any

import numba

FUSED = {"contract"}  # allows x * w + z in one rounding, and nothing else
TILE = 256


@numba.njit(cache=True, nogil=True, fastmath=FUSED)
def multiply_add(X: Any, W: Any, Z: Any) -> None:
    """Z += X W, in tiles of W's columns that stay in cache; X, W and Z are stored row by row."""
    for first in range(0, W.shape[1], TILE):
        _multiply_add_tile(X, W, Z, first, min(first + TILE, W.shape[1]))


@numba.njit(cache=True, nogil=True, fastmath=FUSED)
def _multiply_add_tile(X: Any, W: Any, Z: Any, first: int, last: int) -> None:
    # Four rows and four inputs at a time: each weight that is loaded serves four rows.
    n, m = X.shape
    for i in range(0, n - n % 4, 4):
        z0, z1 = Z[i, first:last], Z[i + 1, first:last]
        z2, z3 = Z[i + 2, first:last], Z[i + 3, first:last]
        for f in range(0, m - m % 4, 4):
            v0, v1 = W[f, first:last], W[f + 1, first:last]
            v2, v3 = W[f + 2, first:last], W[f + 3, first:last]
            a0, a1, a2, a3 = X[i, f], X[i, f + 1], X[i, f + 2], X[i, f + 3]
            b0, b1, b2, b3 = X[i + 1, f], X[i + 1, f + 1], X[i + 1, f + 2], X[i + 1, f + 3]
            c0, c1, c2, c3 = X[i + 2, f], X[i + 2, f + 1], X[i + 2, f + 2], X[i + 2, f + 3]
            d0, d1, d2, d3 = X[i + 3, f], X[i + 3, f + 1], X[i + 3, f + 2], X[i + 3, f + 3]
            for k in range(last - first):
                w0, w1, w2, w3 = v0[k], v1[k], v2[k], v3[k]
                z0[k] = (((z0[k] + a0 * w0) + a1 * w1) + a2 * w2) + a3 * w3
                z1[k] = (((z1[k] + b0 * w0) + b1 * w1) + b2 * w2) + b3 * w3
                z2[k] = (((z2[k] + c0 * w0) + c1 * w1) + c2 * w2) + c3 * w3
                z3[k] = (((z3[k] + d0 * w0) + d1 * w1) + d2 * w2) + d3 * w3
        for f in range(m - m % 4, m):
            v, a, b, c, d = W[f, first:last], X[i, f], X[i + 1, f], X[i + 2, f], X[i + 3, f]
            for k in range(last - first):
                z0[k] += a * v[k]
                z1[k] += b * v[k]
                z2[k] += c * v[k]
                z3[k] += d * v[k]
    for i in range(n - n % 4, n):
        z = Z[i, first:last]
        for f in range(m):
            x, v = X[i, f], W[f, first:last]
            for k in range(last - first):
                z[k] += x * v[k]


@numba.njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def dot_rows(P: Any, w: Any, out: Any) -> None:
    """out[i] = P[i] . w; all rows have K terms, so all are summed in the same order."""
    for i in range(len(P)):
        p = P[i]
        total = p[0] * w[0]
        for k in range(1, len(w)):
            total += p[k] * w[k]
        out[i] = total
