"""Matrix products in which each row has the same bits alone, in a chunk, or in a whole matrix.

BLAS sums a row in an order that depends on the number of rows, so a row that is predicted alone would differ in its
last digits from the same row among others. Here each element is summed over inputs from left to right, one fused
multiply-add a step, as in the sparse kernels: dense and sparse input give the same bits.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from gbun.dtypes import MEMBERSHIP, FloatArray
from gbun.kernels.simd import fma, fma8, load, load8, load_splat, store, store8

ZERO = np.float32(0.0)
PANEL_OUTPUTS = 16  # outputs that are summed together: with six rows they fill twelve of sixteen registers
BLOCK_ROWS, BLOCK_INPUTS = 96, 384  # X of this size stays in the second cache, a panel of so many inputs in the first
COLUMN_ROWS = 64  # rows that share a weight when most weights are zero


def make_panels(W: FloatArray) -> FloatArray:
    """Cut W (inputs x outputs) into panels of 16 outputs, padded with zeros: panels x inputs x 16."""
    m, K = W.shape
    count = -(-K // PANEL_OUTPUTS)
    padded = np.zeros((m, count * PANEL_OUTPUTS), dtype=MEMBERSHIP)
    padded[:, :K] = W
    return np.ascontiguousarray(padded.reshape(m, count, PANEL_OUTPUTS).transpose(1, 0, 2))


@numba.njit(cache=True, nogil=True)
def multiply_add(X: Any, panels: Any, Z: Any) -> None:
    """Z += X W, with W as `make_panels` gives it. X and Z are contiguous, row by row."""
    n, m = X.shape
    K = Z.shape[1]
    edge = np.zeros((BLOCK_ROWS, PANEL_OUTPUTS), dtype=np.float32)
    for first in range(0, m, BLOCK_INPUTS):
        last = min(first + BLOCK_INPUTS, m)
        for top in range(0, n, BLOCK_ROWS):
            bottom = min(top + BLOCK_ROWS, n)
            for p in range(K // PANEL_OUTPUTS):
                _multiply(X, panels, Z, top * K + p * PANEL_OUTPUTS, K, (top, bottom), p, (first, last))
            ragged = K // PANEL_OUTPUTS * PANEL_OUTPUTS
            if ragged < K:  # the last panel is wider than what is left of Z
                for i in range(top, bottom):
                    for k in range(ragged, K):
                        edge[i - top, k - ragged] = Z[i, k]
                _multiply(X, panels, edge, 0, PANEL_OUTPUTS, (top, bottom), K // PANEL_OUTPUTS, (first, last))
                for i in range(top, bottom):
                    for k in range(ragged, K):
                        Z[i, k] = edge[i - top, k - ragged]


@numba.njit(inline="always")
def _multiply(X: Any, panels: Any, out: Any, z: int, stride: int, rows: Any, p: int, inputs: Any) -> None:
    # Some rows, from .. to, and some inputs with panel p, into what begins at `z` of `out`.
    top, bottom = rows
    whole = top + (bottom - top) // 6 * 6
    for i in range(top, whole, 6):
        _multiply_six_rows(X, panels, out, z, stride, i, p, inputs)
        z += 6 * stride
    for i in range(whole, bottom):
        _multiply_one_row(X, panels, out, z, i, p, inputs)
        z += stride


@numba.njit(inline="always")
def _multiply_six_rows(X: Any, panels: Any, out: Any, z: int, stride: int, i: int, p: int, inputs: Any) -> None:
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
    for f in range(inputs[0], inputs[1]):
        at = (p * m + f) * PANEL_OUTPUTS
        v, w = load(panels, at), load(panels, at + 8)
        x = load_splat(X, x0 + f)
        a0, b0 = fma(x, v, a0), fma(x, w, b0)
        x = load_splat(X, x1 + f)
        a1, b1 = fma(x, v, a1), fma(x, w, b1)
        x = load_splat(X, x2 + f)
        a2, b2 = fma(x, v, a2), fma(x, w, b2)
        x = load_splat(X, x3 + f)
        a3, b3 = fma(x, v, a3), fma(x, w, b3)
        x = load_splat(X, x4 + f)
        a4, b4 = fma(x, v, a4), fma(x, w, b4)
        x = load_splat(X, x5 + f)
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
def _multiply_one_row(X: Any, panels: Any, out: Any, z: int, i: int, p: int, inputs: Any) -> None:
    m = X.shape[1]
    a, b = load(out, z), load(out, z + 8)
    for f in range(inputs[0], inputs[1]):
        at, x = (p * m + f) * PANEL_OUTPUTS, load_splat(X, i * m + f)
        a, b = fma(x, load(panels, at), a), fma(x, load(panels, at + 8), b)
    store(out, z, a)
    store(out, z + 8, b)


@numba.njit(cache=True, nogil=True)
def non_zeros_by_output(W: Any) -> Any:
    """List W (inputs x outputs) output by output: where each begins, its inputs in ascending order, their weights."""
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
    """Z += X W, with W as `non_zeros_by_output` gives it: the same sums without the terms that are zero.

    64 rows at a time are transposed, so that eight registers of them are multiplied by each weight.
    """
    n, m = X.shape
    K = len(starts) - 1
    transposed = np.zeros(m * COLUMN_ROWS, dtype=np.float32)
    results = np.empty(K * COLUMN_ROWS, dtype=np.float32)
    for top in range(0, n, COLUMN_ROWS):
        rows = min(COLUMN_ROWS, n - top)
        for i in range(rows):
            for f in range(m):
                transposed[f * COLUMN_ROWS + i] = X[top + i, f]
        for i in range(rows):
            for k in range(K):
                results[k * COLUMN_ROWS + i] = Z[top + i, k]
        for k in range(K):
            s = load8(results, k * COLUMN_ROWS)
            for j in range(starts[k], starts[k + 1]):
                s = fma8(load_splat(weights, j), load8(transposed, np.int64(inputs[j]) * COLUMN_ROWS), s)
            store8(results, k * COLUMN_ROWS, s)
        for i in range(rows):
            for k in range(K):
                Z[top + i, k] = results[k * COLUMN_ROWS + i]
