"""Sums of a linear model over rows: scores F theta and gradients F'G, F being dense columns and buckets side by side.

Sparse entries are kept twice, by row and by bucket. So no two threads add to the same number, and the order of sums
does not depend on the number of threads.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from gbun.arrays import to_host
from gbun.data.buckets import Buckets
from gbun.data.features import Features
from gbun.dtypes import MEMBERSHIP, SUM, FloatArray, IntArray
from gbun.kernels import products
from gbun.kernels.chunks import sort_by_column
from gbun.kernels.costs import count_columns, count_entries
from gbun.kernels.threads import ThreadPool

PIECE_ROWS = 4096  # of a piece of work
MAX_PIECES, MIN_PIECE_ENTRIES = 64, 2**15  # of the buckets: pieces at most, entries of a piece at least
HISTORY = 6  # pairs of steps and changes of the gradient that L-BFGS remembers
PIECE_NUMBERS = 2**17  # of a vector


def count_weights(features: Features, buckets: Buckets | None) -> int:
    """Count the weights of a linear model for each score."""
    return count_columns(features) + (0 if buckets is None else buckets.n)


def linear_bytes(features: Features, n_weights: int, n_used: int, n_scores: int, n_fits: int = 1) -> int:
    """Estimate what fitting takes: entries by row and by bucket, a copy while rows are held out, scores, and L-BFGS.

    L-BFGS has weights of features that occur. All weights are counted, and returned.
    """
    if not n_weights:
        return 0
    data = 28 * count_entries(features) + 4 * features.n_rows * count_columns(features)
    fit = data + n_scores * (32 * features.n_rows + (56 + 8 * (HISTORY + 1)) * n_used)
    return n_fits * fit + (24 + 8 * n_scores) * n_weights


class LinearRows:
    """Rows of a linear model: phi(x) = [dense columns ; sum of sign(f) x_f over the features of a bucket]."""

    def __init__(self, features: Features, buckets: Buckets | None, threads: ThreadPool) -> None:
        self.n_rows, self.threads = features.n_rows, threads
        self.dense = None if features.dense is None else np.ascontiguousarray(to_host(features.dense), dtype=MEMBERSHIP)
        self.n_dense, self.n_weights = count_columns(features), count_weights(features, buckets)
        self.pieces = [slice(i, min(i + PIECE_ROWS, self.n_rows)) for i in range(0, self.n_rows, PIECE_ROWS)]
        self._has_buckets = False
        if features.sparse is not None and buckets is not None:
            self._has_buckets = True
            entries = features.sparse
            places, signs = buckets.place(entries.ids)
            self.places = np.ascontiguousarray(places)
            values = np.asarray(entries.values, dtype=MEMBERSHIP)
            self.values = np.ascontiguousarray(values if signs is None else values * signs)
            self.indptr = np.ascontiguousarray(entries.indptr, dtype=np.int64)

    def find_used(self) -> FloatArray:
        """Return 1 for each dense column and each bucket of an entry, 0 for the other weights."""
        used = np.zeros(self.n_weights, dtype=SUM)
        used[: self.n_dense] = 1.0
        if self._has_buckets:
            used[self.n_dense + self.places] = 1.0
        return used

    def keep(self, used: NDArray[np.bool_]) -> None:
        """Leave out the weights that are not used: others take their numbers."""
        if used.all():
            return
        self.n_weights = int(used.sum())
        if self._has_buckets:
            numbers = np.cumsum(used[self.n_dense :], dtype=np.int32) - np.int32(1)
            self.places = numbers[self.places]

    def scores(self, weights: FloatArray) -> FloatArray:
        """Compute F theta, n x C, with theta as float32. The bits of a row do not depend on the rows beside it."""
        out = np.zeros((self.n_rows, weights.shape[1]), dtype=SUM)
        panels = None if self.dense is None else products.make_panels(weights[: self.n_dense].astype(MEMBERSHIP))
        theta = np.ascontiguousarray(weights[self.n_dense :], dtype=MEMBERSHIP)

        def work(rows: slice) -> None:
            if self.dense is not None:
                part = np.zeros((rows.stop - rows.start, weights.shape[1]), dtype=MEMBERSHIP)
                products.multiply_add(self.dense[rows], panels, part)
                out[rows] += part
            if self._has_buckets:
                if weights.shape[1] == 1:
                    _row_sums(self.indptr, self.places, self.values, theta[:, 0], out[:, 0], rows.start, rows.stop)
                else:
                    _row_sums_of_many(self.indptr, self.places, self.values, theta, out, rows.start, rows.stop)

        self.threads.run(work, self.pieces)
        return out

    def gradient(self, g: FloatArray) -> FloatArray:
        """Compute F'G, a row of C numbers for each weight."""
        return self._sum_by_weight(np.ascontiguousarray(g, dtype=SUM), squared=False)

    def curvature(self, h: FloatArray) -> FloatArray:
        """Compute sum_i h_i phi_i^2 of each weight, without products of two features of a row that share a bucket."""
        return self._sum_by_weight(np.ascontiguousarray(h, dtype=SUM)[:, None], squared=True)[:, 0]

    def _sum_by_weight(self, g: FloatArray, squared: bool) -> FloatArray:
        out = np.zeros((self.n_weights, g.shape[1]), dtype=SUM)
        if self.dense is not None:
            X = self.dense

            def of_dense(rows: slice) -> FloatArray:
                block = X[rows].astype(SUM)
                return np.asarray((np.square(block) if squared else block).T @ g[rows])

            for part in self.threads.map(of_dense, self.pieces):
                out[: self.n_dense] += part
        if self._has_buckets:
            (starts, rows, values, pieces), sums = self._by_bucket, out[self.n_dense :]

            def of_buckets(piece: tuple[int, int]) -> None:
                if g.shape[1] == 1:
                    _column_sums(starts, rows, values, g[:, 0], sums[:, 0], *piece, squared)
                else:
                    _column_sums_of_many(starts, rows, values, g, sums, *piece)

            self.threads.run(of_buckets, pieces)
        return out

    @cached_property
    def _by_bucket(self) -> tuple[IntArray, IntArray, FloatArray, list[tuple[int, int]]]:
        """Entries sorted by bucket: starts of buckets, rows, values, and pieces of equal work."""
        n_buckets = self.n_weights - self.n_dense
        starts, rows, values = sort_by_column(self.indptr, self.places, self.values, n_buckets)
        goals = np.linspace(0, starts[-1], min(MAX_PIECES, 1 + int(starts[-1]) // MIN_PIECE_ENTRIES) + 1)[1:-1]
        inner = np.searchsorted(starts, goals, side="right").clip(max=n_buckets)
        cuts = np.unique([0, *inner, n_buckets]).tolist()
        return starts, rows, values, list(pairwise(cuts))


@numba.njit(cache=True, nogil=True)
def _row_sums(indptr: Any, places: Any, values: Any, weights: Any, out: Any, first: int, last: int) -> None:
    for i in range(first, last):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            total += np.float64(values[e]) * np.float64(weights[places[e]])
        out[i] += total


@numba.njit(cache=True, nogil=True)
def _row_sums_of_many(indptr: Any, places: Any, values: Any, weights: Any, out: Any, first: int, last: int) -> None:
    C = weights.shape[1]
    for i in range(first, last):
        for e in range(indptr[i], indptr[i + 1]):
            j, x = places[e], np.float64(values[e])
            for c in range(C):
                out[i, c] += x * np.float64(weights[j, c])


@numba.njit(cache=True, nogil=True)
def _column_sums(starts: Any, rows: Any, values: Any, g: Any, out: Any, first: int, last: int, squared: bool) -> None:
    for j in range(first, last):
        total = 0.0
        for e in range(starts[j], starts[j + 1]):
            x = np.float64(values[e])
            total += (x * x if squared else x) * g[rows[e]]
        out[j] = total


@numba.njit(cache=True, nogil=True)
def _column_sums_of_many(starts: Any, rows: Any, values: Any, g: Any, out: Any, first: int, last: int) -> None:
    C = g.shape[1]
    for j in range(first, last):
        for e in range(starts[j], starts[j + 1]):
            i, x = rows[e], np.float64(values[e])
            for c in range(C):
                out[j, c] += x * g[i, c]


class VectorSums:
    """Sums over long float32 arrays, in pieces, with the same bits for every number of threads."""

    def __init__(self, threads: ThreadPool) -> None:
        self.threads = threads

    def dot(self, a: FloatArray, b: FloatArray) -> float:
        """Return the inner product of two arrays of the same shape, summed in float64."""
        a, b = a.reshape(-1), b.reshape(-1)
        return float(sum(self.threads.map(lambda at: _dot(a[at], b[at]), self._split(a), a.size)))

    def add(self, a: FloatArray, factor: float, b: FloatArray) -> None:
        """Add a multiple of `b` to `a`, in place."""
        a, b, narrow = a.reshape(-1), b.reshape(-1), np.float32(factor)
        for _ in self.threads.map(lambda at: _add_multiple(a[at], narrow, b[at]), self._split(a), a.size):
            pass

    def _split(self, a: FloatArray) -> list[slice]:
        return [slice(i, i + PIECE_NUMBERS) for i in range(0, a.size, PIECE_NUMBERS)]


@numba.njit(cache=True, nogil=True, fastmath={"reassoc"})
def _dot(a: Any, b: Any) -> float:
    total = 0.0
    for i in range(len(a)):
        total += np.float64(a[i]) * np.float64(b[i])
    return total


@numba.njit(cache=True, nogil=True)
def _add_multiple(a: Any, factor: Any, b: Any) -> None:
    for i in range(len(a)):
        a[i] += factor * b[i]
