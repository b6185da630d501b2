"""Gradients and Hessians of common losses for the values of leaves, in one pass over some rows, as float32.

Trees take a small part of the time of a network's round, so arrays of temporary results would be most of it. Scores,
targets and weights are float64, n x C and n; results are n x C.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np


@numba.njit(cache=True, nogil=True, error_model="numpy")
def fill_logistic(y: Any, scores: Any, weight: Any, least: Any, g: Any, h: Any) -> None:
    """g = w (q - y), h = w max(q (1 - q), least), q = 1 / (1 + e^-s), of each score; y is (n, C)."""
    for i in range(scores.shape[0]):
        w = np.float32(weight[i])
        for c in range(scores.shape[1]):
            s = np.float32(scores[i, c])
            e = math.exp(-abs(s))  # at most 1: neither side overflows
            q = (np.float32(1.0) if s >= np.float32(0.0) else e) / (np.float32(1.0) + e)
            g[i, c] = w * (q - np.float32(y[i, c]))
            h[i, c] = w * max(q * (np.float32(1.0) - q), np.float32(least))


@numba.njit(cache=True, nogil=True, error_model="numpy")
def fill_squared_error(y: Any, scores: Any, weight: Any, g: Any, h: Any) -> None:
    """g = w (s - y), h = w."""
    for i in range(scores.shape[0]):
        for c in range(scores.shape[1]):
            g[i, c] = np.float32(weight[i] * (scores[i, c] - y[i, c]))
            h[i, c] = np.float32(weight[i])


@numba.njit(cache=True, nogil=True, error_model="numpy")
def fill_softmax(y: Any, scores: Any, weight: Any, least: Any, g: Any, h: Any) -> None:
    """g_c = w (q_c - 1[y = c]), h_c = w C / (C - 1) max(q_c (1 - q_c), least), q = softmax(s)."""
    C = scores.shape[1]
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
            h[i, c] = w * freedom * max(q * (one - q), np.float32(least))
            g[i, c] = w * q
        g[i, int(y[i])] -= w


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
