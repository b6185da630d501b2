"""How much a column tells about the targets: the share of variance that a histogram of it explains.

    r_j = max(0, sum_b (sum_i g_i)^2 / n_b  -  (B - 1) G / n) / G        G = sum_i g_i^2

g are gradients at the constant start, b are 16 bins of the standardised column that a normal distribution would fill
evenly, n_b their rows (or weights), and the term with B is what noise would explain. Networks see a column scaled by
r_j^(1/4), so that columns without a share hardly move their outputs. All sums are of fixed size.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import norm

from gbun.arrays import Array, asarray_like, namespace, to_host, widen
from gbun.collectives import Collective
from gbun.data.scaled_columns import ColumnScale
from gbun.dtypes import FloatArray

N_BINS, POWER, LEAST = 16, 0.25, 1e-3
MOST_OUTPUTS = 16  # gradients of more scores are summed in so many groups
EDGES = norm.ppf(np.arange(1, N_BINS) / N_BINS)
ROWS_AT_A_TIME = 2**12


def measure_relevance(
    X: Array, scale: ColumnScale, g: FloatArray, weight: FloatArray, collective: Collective
) -> FloatArray:
    """Return the relevance of each column, (m,), at least `LEAST` times the largest; ones if none has any.

    X are the user's dense columns, `scale` standardises them, g are the gradients at the start, (n, C).
    """
    m = X.shape[1]
    g = np.stack([g[:, c::MOST_OUTPUTS].sum(axis=1) for c in range(min(g.shape[1], MOST_OUTPUTS))], axis=1)
    C = g.shape[1]
    sums, counts = np.zeros((m, N_BINS, C)), np.zeros((m, N_BINS))
    for first in range(0, len(X), ROWS_AT_A_TIME):
        rows = slice(first, first + ROWS_AT_A_TIME)
        block = widen(X[rows])
        known = to_host(~namespace(block).isnan(block))
        z = to_host((block - asarray_like(scale.centre, block)) * asarray_like(scale.factor, block))
        bins = np.searchsorted(EDGES, np.where(known, z, 0.0))
        for j in range(m):
            seen = known[:, j]
            b, w = bins[seen, j], weight[rows][seen]
            counts[j] += np.bincount(b, w, N_BINS)
            for c in range(C):
                sums[j, :, c] += np.bincount(b, g[rows, c][seen], N_BINS)
    totals = np.array([np.sum(g * g / np.maximum(weight, 1e-300)[:, None]), weight.sum()])
    message = collective.sum(np.concatenate([sums.ravel(), counts.ravel(), totals]))
    sums, counts = message[: sums.size].reshape(sums.shape), message[sums.size : -2].reshape(counts.shape)
    G, n = message[-2:]
    explained = np.where(counts > 0.0, np.square(sums).sum(axis=2) / np.where(counts > 0.0, counts, 1.0), 0.0).sum(1)
    noise = np.maximum(np.count_nonzero(counts, axis=1) - 1, 0) * G / n
    share = np.maximum(explained - noise, 0.0)
    largest = share.max(initial=0.0)
    if not (largest > 0.0 and np.isfinite(largest)):
        return np.ones(m)
    return np.asarray(np.maximum(share / largest, LEAST) ** POWER)
