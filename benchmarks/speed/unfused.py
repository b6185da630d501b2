"""A prototype of a round, for comparison: the same model, but every step is a pass over the n x K matrix.

The comparison is fair: loops are compiled in 32-bit arithmetic that the compiler can vectorise, chunks of rows run in
threads, products are those of BLAS, and exponentials are NumPy's, which are vectorised while those of a Numba loop are
not. Each block of rows is multiplied by BLAS with one thread, because threads of BLAS wait for each other by spinning,
which is slow on a busy machine. The prototype lacks what gbun's kernels have: weights that are made once for a block of
rows, sums in registers, and steps that share a pass. `check` compares its results with gbun's.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import scipy.special

from benchmarks.internals import Family, ThreadPool, add_round, make_normaliser, prepare_training, simhash, solve_head
from gbun import Dataset, Parameters

CHUNK, BLOCK = 4096, 8192  # rows of a compiled loop, and of a product
LEARNING_RATE, REG_LAMBDA = 0.1, 0.01  # gbun's defaults

P2, P3, P4 = (np.uint32(prime) for prime in (simhash.PRIME_2, simhash.PRIME_3, simhash.PRIME_4))
S8, S13, S15, S16, S17 = (np.uint32(bits) for bits in (8, 13, 15, 16, 17))
LOW_WORD, WORD_BITS = np.uint64(0xFFFFFFFF), np.uint64(32)
MIDDLE, INVERSE = np.int32(simhash.HALF), np.float32(1.0 / simhash.HALF)
ZERO, ONE, LOWEST = np.float32(0.0), np.float32(1.0), np.float32(-3e38)


@numba.njit(nogil=True, fastmath=True, cache=True)
def outputs(indptr: Any, ids: Any, values: Any, states: Any, Z: Any) -> None:
    """Z = X N, row by row, each weight made where it is used. Numba computes with 64 bits unless each step is cast;
    density is 1, so no weight is zero."""
    for i in range(len(indptr) - 1):
        z = Z[i]
        z[:] = ZERO
        for e in range(indptr[i], indptr[i + 1]):
            feature, x = np.uint64(ids[e]), values[e]
            low = np.uint32(np.uint32(feature & LOW_WORD) * P3)
            high = np.uint32(np.uint32(feature >> WORD_BITS) * P3)
            for k in range(len(states)):
                h = np.uint32(states[k] + low)
                h = np.uint32(np.uint32(np.uint32(h << S17) | np.uint32(h >> S15)) * P4)
                h = np.uint32(h + high)
                h = np.uint32(np.uint32(np.uint32(h << S17) | np.uint32(h >> S15)) * P4)
                h = np.uint32(np.uint32(h ^ np.uint32(h >> S15)) * P2)
                h = np.uint32(np.uint32(h ^ np.uint32(h >> S13)) * P3)
                u = np.uint32(np.uint32(h ^ np.uint32(h >> S16)) >> S8)
                z[k] += x * (np.float32(np.int32(np.int32(u) - MIDDLE)) * INVERSE)


@numba.njit(nogil=True, fastmath=True, cache=True)
def add_moments(Z: Any, sums: Any) -> None:
    """sums[0] += sum z, sums[1] += sum z^2, in float64."""
    for i in range(len(Z)):
        for k in range(Z.shape[1]):
            z = np.float64(Z[i, k])
            sums[0, k] += z
            sums[1, k] += z * z


@numba.njit(nogil=True, fastmath=True, cache=True)
def normalise(Z: Any, centre: Any, factor: Any) -> None:
    """z <- (z - centre) x factor, less the row's largest."""
    for i in range(len(Z)):
        z, top = Z[i], LOWEST
        for k in range(len(z)):
            z[k] = (z[k] - centre[k]) * factor[k]
            top = max(top, z[k])
        for k in range(len(z)):
            z[k] -= top


@numba.njit(nogil=True, fastmath=True, cache=True)
def to_sum_one(Z: Any) -> None:
    for i in range(len(Z)):
        z, total = Z[i], ZERO
        for k in range(len(z)):
            total += z[k]
        scale = ONE / total
        for k in range(len(z)):
            z[k] *= scale


class Unfused:
    """Logistic loss, temperature 1, one softmax over all outputs: gbun's defaults for sparse rows."""

    def __init__(self, X: Any, y: Any, n_neurons: int, pool: ThreadPool) -> None:
        self.indptr, self.ids = X.indptr, X.indices
        self.values = np.ascontiguousarray(X.data, dtype=np.float32)
        self.y, self.pool, self.family = np.asarray(y, dtype=np.float64), pool, Family(0, n_neurons)
        self.Z = np.empty((X.shape[0], n_neurons), dtype=np.float32)
        mean = self.y.mean()
        self.scores = np.full(len(self.y), np.log(mean / (1.0 - mean)))
        self.heads: list[Any] = []

    def add_round(self) -> None:
        n = len(self.y)
        self.make_outputs(len(self.heads))
        norm = make_normaliser(n, n, self.moments())
        self.make_memberships(norm.centre, norm.factor)
        q = scipy.special.expit(self.scores)
        A, B = self.gram((q * (1.0 - q)).astype(np.float32)), self.gradient_sums((q - self.y).astype(np.float32))
        head = solve_head(A, B[:, None], REG_LAMBDA)[:, 0] * np.float32(LEARNING_RATE)
        self.update(head)
        self.heads.append(head)

    def make_outputs(self, round_: int) -> None:
        """Z = X N"""
        states = simhash.initial_hash_state(self.family.draw(round_).seeds)

        def work(at: slice) -> None:
            outputs(self.indptr[at.start : at.stop + 1], self.ids, self.values, states, self.Z[at])

        self.pool.run(work, self._parts(CHUNK))

    def moments(self) -> Any:
        def work(at: slice) -> Any:
            sums = np.zeros((2, self.Z.shape[1]))
            add_moments(self.Z[at], sums)
            return sums

        return sum(self.pool.map(work, self._parts(CHUNK)))

    def make_memberships(self, centre: Any, factor: Any) -> None:
        """P = softmax((Z - centre) x factor), in the place of Z."""

        def work(at: slice) -> None:
            z = self.Z[at]
            normalise(z, centre, factor)
            np.exp(z, out=z)
            to_sum_one(z)

        self.pool.run(work, self._parts(CHUNK))

    def gram(self, h: Any) -> Any:
        """P'HP: the full square, float32 within a block and float64 across."""

        def work(at: slice) -> Any:
            P = self.Z[at]
            return P.T @ (h[at, None] * P)

        return sum(self.pool.map(work, self._parts(BLOCK)), np.zeros((self.Z.shape[1],) * 2))

    def gradient_sums(self, g: Any) -> Any:
        """P'G, float32 within a block and float64 across."""
        return sum(self.pool.map(lambda at: g[at] @ self.Z[at], self._parts(BLOCK)), np.zeros(self.Z.shape[1]))

    def update(self, head: Any) -> None:
        """scores += P W"""

        def work(at: slice) -> None:
            self.scores[at] += self.Z[at] @ head

        self.pool.run(work, self._parts(BLOCK))

    def _parts(self, rows: int) -> list[slice]:
        n = len(self.Z)
        return [slice(first, min(first + rows, n)) for first in range(0, n, rows)]


def check(X: Any, y: Any, pool: ThreadPool, n_neurons: int = 64, n_rounds: int = 2) -> None:
    """The prototype has gbun's own outputs and heads, otherwise raise an AssertionError."""
    prototype = Unfused(X, y, n_neurons, pool)
    prototype.make_outputs(0)
    dense = X[:8].toarray()
    used = np.flatnonzero(dense.any(axis=0))
    weights = prototype.family.draw(0).sparse_weights(used)
    np.testing.assert_allclose(prototype.Z[:8], dense[:, used] @ weights, atol=1e-4)
    settings = Parameters(objective="logistic", n_neurons=n_neurons, gram_rows=1.0, init="constant")
    training = prepare_training(settings, Dataset(X, y), pool)
    for t in range(n_rounds):
        prototype.add_round()
        add_round(training, t)
    heads = training.ensemble().heads[:, :, 0]
    np.testing.assert_allclose(prototype.heads, heads, atol=1e-3 * np.abs(heads).max())
