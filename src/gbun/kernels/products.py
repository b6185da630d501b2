"""Matrix products whose every row has the same bits wherever it stands: alone, in a chunk, in a whole matrix.

BLAS sums a row in an order that depends on how many rows stand beside it, so a row predicted alone would differ in
its last digits from the same row predicted among others. Here each element is summed over inputs from left to right,
one fused multiply-add a step, as the sparse kernels do: dense and sparse input agree to the last bit.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from gbun.dtypes import MEMBERSHIP, FloatArray
from gbun.kernels.simd import fma, load, spread, store

ZERO = np.float32(0.0)
PANEL = 16  # outputs that are summed together: with six rows they fill twelve of sixteen registers
ROWS, INPUTS = 96, 384  # X of this size stays in the second cache, a panel of so many inputs in the first
COLUMN = 64  # rows that share a weight when most weights are zero


def panels_of(W: FloatArray) -> FloatArray:
    """W (inputs x outputs) cut into panels of 16 outputs, padded with zeros: panels x inputs x 16."""
    m, K = W.shape
    count = -(-K // PANEL)
    padded = np.zeros((m, count * PANEL), dtype=MEMBERSHIP)
    padded[:, :K] = W
    return np.ascontiguousarray(padded.reshape(m, count, PANEL).transpose(1, 0, 2))


@numba.njit(cache=True, nogil=True)
def multiply_add(X: Any, panels: Any, Z: Any) -> None:
    """Z += X W, W being given as `panels_of` it. X and Z are contiguous, row by row."""
    n, m = X.shape
    K = Z.shape[1]
    edge = np.zeros((ROWS, PANEL), dtype=np.float32)
    for first in range(0, m, INPUTS):
        last = min(first + INPUTS, m)
        for top in range(0, n, ROWS):
            bottom = min(top + ROWS, n)
            for p in range(K // PANEL):
                _multiply(X, panels, Z, top * K + p * PANEL, K, top, bottom, p, first, last)
            ragged = K // PANEL * PANEL
            if ragged < K:  # the last panel is wider than what is left of Z
                for i in range(top, bottom):
                    for k in range(ragged, K):
                        edge[i - top, k - ragged] = Z[i, k]
                _multiply(X, panels, edge, 0, PANEL, top, bottom, K // PANEL, first, last)
                for i in range(top, bottom):
                    for k in range(ragged, K):
                        Z[i, k] = edge[i - top, k - ragged]


@numba.njit(inline="always")
def _multiply(
    X: Any, panels: Any, out: Any, z: int, stride: int, top: int, bottom: int, p: int, first: int, last: int
) -> None:
    # Rows top .. bottom-1 and inputs first .. last-1 with panel p, into what begins at `z` of `out`.
    whole = top + (bottom - top) // 6 * 6
    for i in range(top, whole, 6):
        _six_rows(X, panels, out, z, stride, i, p, first, last)
        z += 6 * stride
    for i in range(whole, bottom):
        _one_row(X, panels, out, z, i, p, first, last)
        z += stride


@numba.njit(inline="always")
def _six_rows(X: Any, panels: Any, out: Any, z: int, stride: int, i: int, p: int, first: int, last: int) -> None:
    m = X.shape[1]
    z1, z2, z3, z4, z5 = z + stride, z + 2 * stride, z + 3 * stride, z + 4 * stride, z + 5 * stride
    a0, b0 = load(out, z), load(out, z + 8)
    a1, b1 = load(out, z1), load(out, z1 + 8)
    a2, b2 = load(out, z2), load(out, z2 + 8)
    a3, b3 = load(out, z3), load(out, z3 + 8)
    a4, b4 = load(out, z4), load(out, z4 + 8)
    a5, b5 = load(out, z5), load(out, z5 + 8)
    x0 = i * m
    x1, x2, x3, x4, x5 = x0 + m, x0 + 2 * m, x0 + 3 * m, x0 + 4 * m, x0 + 5 * m
    for f in range(first, last):
        at = (p * m + f) * PANEL
        v, w = load(panels, at), load(panels, at + 8)
        x = spread(X, x0 + f)
        a0, b0 = fma(x, v, a0), fma(x, w, b0)
        x = spread(X, x1 + f)
        a1, b1 = fma(x, v, a1), fma(x, w, b1)
        x = spread(X, x2 + f)
        a2, b2 = fma(x, v, a2), fma(x, w, b2)
        x = spread(X, x3 + f)
        a3, b3 = fma(x, v, a3), fma(x, w, b3)
        x = spread(X, x4 + f)
        a4, b4 = fma(x, v, a4), fma(x, w, b4)
        x = spread(X, x5 + f)
        a5, b5 = fma(x, v, a5), fma(x, w, b5)
    store(out, z, a0)
    store(out, z + 8, b0)
    store(out, z1, a1)
    store(out, z1 + 8, b1)
    store(out, z2, a2)
    store(out, z2 + 8, b2)
    store(out, z3, a3)
    store(out, z3 + 8, b3)
    store(out, z4, a4)
    store(out, z4 + 8, b4)
    store(out, z5, a5)
    store(out, z5 + 8, b5)


@numba.njit(inline="always")
def _one_row(X: Any, panels: Any, out: Any, z: int, i: int, p: int, first: int, last: int) -> None:
    m = X.shape[1]
    a, b = load(out, z), load(out, z + 8)
    for f in range(first, last):
        at, x = (p * m + f) * PANEL, spread(X, i * m + f)
        a, b = fma(x, load(panels, at), a), fma(x, load(panels, at + 8), b)
    store(out, z, a)
    store(out, z + 8, b)


@numba.njit(cache=True, nogil=True)
def non_zeros_by_output(W: Any) -> Any:
    """W (inputs x outputs) output by output: where each begins, its inputs in ascending order, their weights."""
    m, K = W.shape
    starts = np.zeros(K + 1, dtype=np.int64)
    for f in range(m):
        for k in range(K):
            starts[k + 1] += W[f, k] != ZERO
    for k in range(K):
        starts[k + 1] += starts[k]
    inputs, weights = np.empty(starts[K], dtype=np.int32), np.empty(starts[K], dtype=np.float32)
    free = starts[:K].copy()
    for f in range(m):
        for k in range(K):
            if W[f, k] != ZERO:
                inputs[free[k]], weights[free[k]] = f, W[f, k]
                free[k] += 1
    return starts, inputs, weights


@numba.njit(cache=True, nogil=True)
def multiply_add_sparse(X: Any, starts: Any, inputs: Any, weights: Any, Z: Any) -> None:
    """Z += X W, W being given as `non_zeros_by_output`: the same sums without the terms that are zero.

    64 rows at a time are turned so that they lie side by side, eight registers of them for each weight.
    """
    n, m = X.shape
    K = len(starts) - 1
    turned = np.zeros(m * COLUMN, dtype=np.float32)
    results = np.empty(K * COLUMN, dtype=np.float32)
    for top in range(0, n, COLUMN):
        rows = min(COLUMN, n - top)
        for i in range(rows):
            for f in range(m):
                turned[f * COLUMN + i] = X[top + i, f]
        for i in range(rows):
            for k in range(K):
                results[k * COLUMN + i] = Z[top + i, k]
        for k in range(K):
            at = k * COLUMN
            s0, s1, s2, s3 = load(results, at), load(results, at + 8), load(results, at + 16), load(results, at + 24)
            s4, s5, s6 = load(results, at + 32), load(results, at + 40), load(results, at + 48)
            s7 = load(results, at + 56)
            for j in range(starts[k], starts[k + 1]):
                w, x = spread(weights, j), np.int64(inputs[j]) * COLUMN
                s0 = fma(w, load(turned, x), s0)
                s1 = fma(w, load(turned, x + 8), s1)
                s2 = fma(w, load(turned, x + 16), s2)
                s3 = fma(w, load(turned, x + 24), s3)
                s4 = fma(w, load(turned, x + 32), s4)
                s5 = fma(w, load(turned, x + 40), s5)
                s6 = fma(w, load(turned, x + 48), s6)
                s7 = fma(w, load(turned, x + 56), s7)
            store(results, at, s0)
            store(results, at + 8, s1)
            store(results, at + 16, s2)
            store(results, at + 24, s3)
            store(results, at + 32, s4)
            store(results, at + 40, s5)
            store(results, at + 48, s6)
            store(results, at + 56, s7)
        for i in range(rows):
            for k in range(K):
                Z[top + i, k] = results[k * COLUMN + i]
