"""Integrated gradients of networks: how much each feature adds along the straight path from a baseline to a row.

    x(a) = b + a (x - b),   z(a) = z_b + a (z - z_b)        outputs are linear in the features

    phi_j = (x_j - b_j) sum_tk N_tjk D_tk,   D_tkc = integral over a of  d s_c / d z_tk
    d s_c / d z_k = slope_k p_k (W_kc - sum over l in the group of p_l W_lc)

The integral is one number for each output, whatever the number of features. It is computed at Gauss-Legendre nodes,
twice as many until the sum over features, sum_tk (z - z_b)_tk D_tkc, is the difference of the scores. What is left is
one pass over the features with the weights of the networks transposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from gbun.arrays import to_host
from gbun.data.features import Features
from gbun.dtypes import FEATURE_ID, MEMBERSHIP, FloatArray
from gbun.kernels import hashed, rows
from gbun.kernels.chunks import Chunk, FeatureTable, index_features
from gbun.kernels.forward import forward, make_weights, weight_scale
from gbun.kernels.host import LOG2_E
from gbun.kernels.threads import Scratch, ThreadPool
from gbun.learners import NetworkPartition, Step
from gbun.networks.simhash import initial_hash_state

FEWEST_NODES, MOST_NODES = 8, 256
BLOCK_NUMBERS = 2**23  # outputs and slopes of a block of rows: 32 MB
TABLE_NUMBERS = 2**23  # weights that are computed at a time


@dataclass(frozen=True)
class NetworkRounds:
    """Rounds of networks of one family, and what explaining rows by them takes."""

    steps: Sequence[Step]
    tolerance: float

    def __post_init__(self) -> None:
        assert self.steps

    @property
    def partitions(self) -> list[NetworkPartition]:
        return [step.partition for step in self.steps if isinstance(step.partition, NetworkPartition)]

    def block_rows(self) -> int:
        K, C = self.steps[0].head.shape
        return int(max(1, BLOCK_NUMBERS // (len(self.steps) * K * (1 + C))))

    def add_contributions(
        self,
        x: Features,
        difference: Features,
        base: Features,
        dense: FloatArray,
        entries: FloatArray,
        pool: ThreadPool,
    ) -> None:
        """dense[i, j, c] and entries[e, c] += what columns and entries of `difference`, x less the baseline, add.

        Features are scaled; `base` is one row, or has no rows where the baseline is 0.
        """
        blocks = range(0, x.n_rows, self.block_rows())

        def work(first: int) -> None:
            last = min(first + self.block_rows(), x.n_rows)
            part, own = x.block(first, last), difference.block(first, last)
            slopes = self._slopes(part, base)
            if own.dense is not None:
                self._add_dense(own, slopes, dense[first:last])
            if own.sparse is not None and difference.sparse is not None:
                at = slice(*difference.sparse.indptr[[first, last]].tolist())
                self._add_entries(own, slopes, entries[at])

        pool.run(work, blocks)

    def _slopes(self, x: Features, base: Features) -> FloatArray:
        """Integrate the slopes of the rows' scores by the outputs: (T, n, K, C)."""
        n, (K, C), T = x.n_rows, self.steps[0].head.shape, len(self.steps)
        z, z_base = np.empty((T, n, K), dtype=MEMBERSHIP), np.zeros((T, 1, K), dtype=MEMBERSHIP)
        of_rows, of_base, scratch = make_chunk(x), make_chunk(base), Scratch()
        for t, partition in enumerate(self.partitions):
            weights = make_weights(partition.network, x, keep=True)
            forward(weights, x, of_rows, z[t], scratch)
            if base.n_rows:
                forward(weights, base, of_base, z_base[t], scratch)
        wanted, step = np.zeros((n, C)), z - z_base
        for t, (partition, each) in enumerate(zip(self.partitions, self.steps, strict=True)):
            wanted += memberships(partition, z[t]) @ each.head - memberships(partition, z_base[t]) @ each.head
        slopes, n_nodes = np.empty((T, n, K, C), dtype=MEMBERSHIP), FEWEST_NODES
        size = np.maximum(np.abs(wanted).mean(axis=0), np.abs(wanted).std(axis=0))
        while True:
            found = np.zeros((n, C))
            for t, (partition, each) in enumerate(zip(self.partitions, self.steps, strict=True)):
                self._integrate(partition, each.head, z_base[t], step[t], n_nodes, slopes[t])
                found += np.einsum("nk,nkc->nc", step[t], slopes[t], optimize=True)
            n_nodes *= 2
            if n_nodes > MOST_NODES or np.all(np.abs(found - wanted) <= self.tolerance * size):
                return slopes

    def _integrate(
        self, partition: NetworkPartition, head: FloatArray, z_base: FloatArray, step: FloatArray, n_nodes: int,
        slopes: FloatArray,
    ) -> None:  # fmt: skip
        slopes[:] = 0.0
        nodes, weights = np.polynomial.legendre.leggauss(n_nodes)
        width, head = partition.network.family.softmax_width, np.ascontiguousarray(head, dtype=MEMBERSHIP)
        for node, weight in zip(0.5 + nodes / 2, weights / 2, strict=True):
            p = memberships(partition, z_base + MEMBERSHIP(node) * step)
            _add_slopes(p, head, partition.slope.astype(MEMBERSHIP), MEMBERSHIP(weight), width, slopes)

    def _add_dense(self, difference: Features, slopes: FloatArray, out: FloatArray) -> None:
        X = np.asarray(to_host(difference.dense), dtype=MEMBERSHIP)
        (n, m), (T, _, K, C) = X.shape, slopes.shape
        for first in range(0, m, max(1, TABLE_NUMBERS // K)):
            columns = np.arange(first, min(first + max(1, TABLE_NUMBERS // K), m), dtype=FEATURE_ID)
            gradient = np.zeros((len(columns), n * C))
            for t in range(T):
                table = dense_weights(self.partitions[t], columns)
                gradient += table @ np.ascontiguousarray(slopes[t].transpose(1, 0, 2)).reshape(K, n * C)
            part = slice(first, first + len(columns))
            out[:, part] += X[:, part, None] * gradient.reshape(len(columns), n, C).transpose(1, 0, 2)

    def _add_entries(self, difference: Features, slopes: FloatArray, out: FloatArray) -> None:
        sparse = difference.sparse
        assert sparse is not None
        local, distinct = index_features(sparse.ids)
        (T, _, K, C), values = slopes.shape, np.ascontiguousarray(sparse.values, dtype=MEMBERSHIP)
        indptr, few = np.ascontiguousarray(sparse.indptr), max(1, TABLE_NUMBERS // K)
        gradient = np.zeros((len(local), C), dtype=MEMBERSHIP)
        for t in range(T):
            own = np.ascontiguousarray(slopes[t].transpose(0, 2, 1))
            for first in range(0, len(distinct), few):
                table = sparse_weights(self.partitions[t], distinct[first : first + few])
                _add_transposed(indptr, local, first, table, own, gradient)
        out += values[:, None] * gradient


def make_chunk(features: Features) -> Chunk:
    """Return all rows as one chunk, with the distinct features of their entries."""
    if features.sparse is None:
        return Chunk(slice(0, features.n_rows), slice(0, 0))
    local, distinct = index_features(features.sparse.ids)
    return Chunk(slice(0, features.n_rows), slice(0, len(local)), FeatureTable(distinct, local))


def memberships(partition: NetworkPartition, z: FloatArray) -> FloatArray:
    p = np.array(z, dtype=MEMBERSHIP, order="C")
    rows.to_memberships(p, partition.centre, partition.slope * LOG2_E, partition.network.family.softmax_width)
    return p


def dense_weights(partition: NetworkPartition, columns: Any) -> FloatArray:
    """Return the weights of dense columns, (columns, K)."""
    family = partition.network.family
    return weight_table(partition, columns, family.density)


def sparse_weights(partition: NetworkPartition, features: Any) -> FloatArray:
    return weight_table(partition, features, partition.network.family.sparse_density)


def weight_table(partition: NetworkPartition, features: Any, density: float) -> FloatArray:
    network = partition.network
    K = network.family.n_outputs
    states = np.zeros(-(-K // 8) * 8, dtype=np.uint32)
    states[:K] = initial_hash_state(network.seeds)
    table = np.empty((len(features), len(states)), dtype=MEMBERSHIP)
    hashed.fill_table(states, np.ascontiguousarray(features, dtype=FEATURE_ID), *weight_scale(density), table)
    for output, feature, weight in network.revived(density):
        table[np.asarray(features) == feature, output] = weight
    return np.ascontiguousarray(table[:, :K])


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _add_slopes(p: Any, head: Any, slope: Any, weight: Any, width: int, slopes: Any) -> None:
    """slopes[i, k, c] += weight x slope_k p_ik (W_kc - sum over l in the group of p_il W_lc)."""
    n, K = p.shape
    for i in range(n):
        for first in range(0, K, width):
            for c in range(head.shape[1]):
                mean = np.float32(0.0)
                for k in range(first, first + width):
                    mean += p[i, k] * head[k, c]
                for k in range(first, first + width):
                    slopes[i, k, c] += weight * slope[k] * p[i, k] * (head[k, c] - mean)


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _add_transposed(indptr: Any, local: Any, first: int, table: Any, slopes: Any, out: Any) -> None:
    """out[e, c] += sum_k table[local_e - first, k] slopes[i, c, k] for entries e of row i that the table has."""
    C, K = slopes.shape[1], slopes.shape[2]
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            j = local[e] - first
            if 0 <= j < len(table):
                for c in range(C):
                    total = np.float32(0.0)
                    for k in range(K):
                        total += table[j, k] * slopes[i, c, k]
                    out[e, c] += total
