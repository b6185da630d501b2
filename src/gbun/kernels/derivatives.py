"""Gradients and Hessians of common losses for the values of leaves, in one pass over some rows, as float32.

Trees take a small part of the time of a network's round, so arrays of temporary results would be most of it. Scores,
targets and weights are float64, n x C and n; results are n x C.

Newton's step of a leaf whose rows are classified with certainty, but one wrongly, would be of any length. So the
Hessian of a row is at least `share` times the size of its gradient, and no leaf steps farther than 1 / share.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np


@numba.njit(cache=True, nogil=True, error_model="numpy")
def fill_logistic(y: Any, scores: Any, weight: Any, least: Any, share: Any, g: Any, h: Any) -> None:
    """g = w (q - y), h = w max(q (1 - q), share |q - y|, least), q = 1 / (1 + e^-s), of each score; y is (n, C)."""
    least_h, least_share = np.float32(least), np.float32(share)
    for i in range(scores.shape[0]):
        w = np.float32(weight[i])
        for c in range(scores.shape[1]):
            s = np.float32(scores[i, c])
            e = math.exp(-abs(s))  # at most 1: neither side overflows
            q = (np.float32(1.0) if s >= np.float32(0.0) else e) / (np.float32(1.0) + e)
            slope = q - np.float32(y[i, c])
            g[i, c] = w * slope
            h[i, c] = w * max(q * (np.float32(1.0) - q), least_share * abs(slope), least_h)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def fill_squared_error(y: Any, scores: Any, weight: Any, g: Any, h: Any) -> None:
    """g = w (s - y), h = w."""
    for i in range(scores.shape[0]):
        for c in range(scores.shape[1]):
            g[i, c] = np.float32(weight[i] * (scores[i, c] - y[i, c]))
            h[i, c] = np.float32(weight[i])


@numba.njit(cache=True, nogil=True, error_model="numpy")
def fill_softmax(y: Any, scores: Any, weight: Any, least: Any, share: Any, g: Any, h: Any) -> None:
    """g_c = w d_c, d_c = q_c - 1[y = c], h_c = w C / (C - 1) max(q_c (1 - q_c), share |d_c|, least), q = softmax(s)."""
    C = scores.shape[1]
    least_h, least_share = np.float32(least), np.float32(share)
    one, freedom = np.float32(1.0), np.float32(C / (C - 1.0))
    for i in range(scores.shape[0]):
        highest = scores[i, 0]
        for c in range(1, C):
            highest = max(highest, scores[i, c])
        total = np.float32(0.0)
        for c in range(C):
            e = math.exp(np.float32(scores[i, c] - highest))
            g[i, c] = e
            total += e
        w, factor = np.float32(weight[i]), one / total
        for c in range(C):
            q = g[i, c] * factor
            slope = q - one if c == int(y[i]) else q
            h[i, c] = w * freedom * max(q * (one - q), least_share * abs(slope), least_h)
            g[i, c] = w * slope


@numba.njit(cache=True, nogil=True, error_model="numpy")
def sum_along(g: Any, h: Any, direction: Any, one_g: Any, one_h: Any) -> None:
    """one_g = g'd, one_h = d'Hd of each row, summed from the first score to the last: not in BLAS's order."""
    for i in range(g.shape[0]):
        slope = curvature = np.float32(0.0)
        for c in range(g.shape[1]):
            d = direction[c]
            slope += g[i, c] * d
            curvature += h[i, c] * (d * d)
        one_g[i], one_h[i] = slope, curvature
