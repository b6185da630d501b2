"""Integrated gradients of networks: how much each feature adds along the straight path from a baseline to a row.

    x(a) = b + a (x - b),   z(a) = z_b + a (z - z_b)        outputs are linear in the features

    phi_j = (x_j - b_j) sum_tk N_tjk D_tk,   D_tkc = integral over a of  d s_c / d z_tk
    d s_c / d z_k = slope_k p_k (W_kc - sum over l in the group of p_l W_lc)

The integral is one number for each output, whatever the number of features. It is computed at Gauss-Legendre nodes,
twice as many until the sum over outputs, sum_k (z - z_b)_k D_tkc, is what the round adds. What is left is one pass over
the features with the weights of the network transposed. Rounds come one after the other, so that memory does not grow
with their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numba
import numpy as np

from gbun.arrays import to_host
from gbun.data.features import Entries, Features
from gbun.dtypes import FEATURE_ID, MEMBERSHIP, FloatArray
from gbun.kernels import hashed, rows
from gbun.kernels.chunks import Chunk, FeatureColumns, choose_order, cut_chunks, index_features, rows_in_chunk
from gbun.kernels.forward import TABLE_LIMIT, forward, make_weights, weight_scale
from gbun.kernels.hashed import TILE
from gbun.kernels.host import LOG2_E
from gbun.kernels.threads import Scratch, ThreadPool
from gbun.learners import NetworkPartition, Step
from gbun.networks.simhash import initial_hash_state

FEWEST_NODES, MOST_NODES = 8, 256
BLOCK_NUMBERS = 2**23  # outputs and slopes of a block of rows: 32 MB


@dataclass(frozen=True)
class NetworkRounds:
    """Rounds of networks of one family, and what explaining rows by them takes.

    Attributes
    ----------
    tolerance : ndarray of shape (C,)
        What the integrals of a round may leave of a row's scores.
    """

    steps: Sequence[Step]
    tolerance: FloatArray

    def __post_init__(self) -> None:
        assert self.steps

    @property
    def partitions(self) -> list[NetworkPartition]:
        return [step.partition for step in self.steps if isinstance(step.partition, NetworkPartition)]

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
        K, C = self.steps[0].head.shape
        baseline_outputs = np.zeros((len(self.steps), 1, K), dtype=MEMBERSHIP)
        if base.n_rows:
            chunk, scratch = make_chunk(base), Scratch()
            for partition, z in zip(self.partitions, baseline_outputs, strict=True):
                forward(make_weights(partition.network, base, keep=True), base, chunk, z, scratch)

        def work(block: slice) -> None:
            part, own = x.block(block.start, block.stop), difference.block(block.start, block.stop)
            at = slice(0, 0)
            if difference.sparse is not None:
                at = slice(*difference.sparse.indptr[[block.start, block.stop]].tolist())
            self._explain_block(part, own, baseline_outputs, dense[block], entries[at])

        few = min(rows_in_chunk(x.n_rows, K, C), max(1, BLOCK_NUMBERS // (K * (3 + C))))
        pool.run(work, cut_chunks(x, few))

    def _explain_block(
        self, x: Features, difference: Features, baseline_outputs: FloatArray, dense: FloatArray, entries: FloatArray
    ) -> None:
        n, (K, C) = x.n_rows, self.steps[0].head.shape
        chunk, scratch, z = make_chunk(x), Scratch(), np.empty((n, K), dtype=MEMBERSHIP)
        slopes = np.zeros((n, C, -(-K // TILE) * TILE), dtype=MEMBERSHIP)
        X = None if difference.dense is None else np.asarray(to_host(difference.dense), dtype=MEMBERSHIP)
        if difference.sparse is not None:
            columns, order = sort_by_feature(difference.sparse)
            sums = np.zeros((len(order), C), dtype=MEMBERSHIP)
        for partition, step, z_base in zip(self.partitions, self.steps, baseline_outputs, strict=True):
            forward(make_weights(partition.network, x, keep=True), x, chunk, z, scratch)
            self._integrate(partition, step.head, z_base, z, slopes)
            if X is not None:
                add_dense(partition, X, slopes[:, :, :K], dense)
            if difference.sparse is not None:
                add_transposed(partition, columns, slopes, sums)
        if difference.sparse is not None:
            entries[order] += columns.values[:, None] * sums

    def _integrate(
        self, partition: NetworkPartition, head: FloatArray, z_base: FloatArray, z: FloatArray, slopes: FloatArray
    ) -> None:
        """slopes[i, c, k] = the integral of d s_c / d z_k along the path of row i."""
        width, n_outputs = partition.network.family.softmax_width, z.shape[1]
        added = memberships(partition, z.copy()) @ head - memberships(partition, z_base.copy()) @ head
        step, p, n_nodes = z - z_base, np.empty_like(z), FEWEST_NODES
        heads, slope = np.ascontiguousarray(head.T, dtype=MEMBERSHIP), partition.slope.astype(MEMBERSHIP)
        while True:
            slopes[:] = 0.0
            for node, weight in zip(*gauss_legendre(n_nodes), strict=True):
                np.multiply(step, node, out=p)
                p += z_base
                _add_slopes(memberships(partition, p), heads, weight, width, slopes)
            slopes[:, :, :n_outputs] *= slope
            found = np.matmul(slopes[:, :, :n_outputs], step[:, :, None])[:, :, 0]
            n_nodes *= 2
            if n_nodes > MOST_NODES or np.all(np.abs(found - added) <= self.tolerance):
                return


@lru_cache(maxsize=8)
def gauss_legendre(n_nodes: int) -> tuple[FloatArray, FloatArray]:
    """Return nodes from 0 to 1 and their weights.

    >>> [values.tolist() for values in gauss_legendre(1)]
    [[0.5], [1.0]]
    """
    nodes, weights = np.polynomial.legendre.leggauss(n_nodes)
    return (0.5 + nodes / 2).astype(MEMBERSHIP), (weights / 2).astype(MEMBERSHIP)


def make_chunk(features: Features) -> Chunk:
    """Return all rows as one chunk."""
    if features.sparse is None:
        return Chunk(slice(0, features.n_rows), slice(0, 0))
    chunk = Chunk(slice(0, features.n_rows), slice(0, len(features.sparse.ids)))
    chunk.order = choose_order(features.sparse, chunk)
    return chunk


def memberships(partition: NetworkPartition, z: FloatArray) -> FloatArray:
    """Turn outputs into memberships, in place."""
    rows.to_memberships(z, partition.centre, partition.slope * LOG2_E, partition.network.family.softmax_width)
    return z


def add_dense(partition: NetworkPartition, X: FloatArray, slopes: FloatArray, out: FloatArray) -> None:
    """out[i, j, c] += x_ij sum_k N_jk slopes[i, c, k]."""
    (n, C, K), m = slopes.shape, X.shape[1]
    flat = np.ascontiguousarray(slopes).reshape(n * C, K)
    for first in range(0, m, max(1, TABLE_LIMIT // K)):
        part = slice(first, min(first + max(1, TABLE_LIMIT // K), m))
        table = dense_weights(partition, np.arange(part.start, part.stop, dtype=FEATURE_ID))
        gradient = (flat @ table.T).reshape(n, C, -1)
        for c in range(C):
            gradient[:, c] *= X[:, part]
            out[:, part, c] += gradient[:, c]


def dense_weights(partition: NetworkPartition, columns: Any) -> FloatArray:
    """Return the weights of dense columns, (columns, K)."""
    network, density = partition.network, partition.network.family.density
    states = hash_states(partition)
    table = np.empty((len(columns), len(states)), dtype=MEMBERSHIP)
    hashed.fill_table(states, columns, *weight_scale(density), table)
    for output, feature, weight in network.revived(density):
        table[columns == feature, output] = weight
    return table[:, : network.family.n_outputs]


def add_transposed(partition: NetworkPartition, columns: FeatureColumns, slopes: FloatArray, sums: FloatArray) -> None:
    """sums[e, c] += sum_k N_jk slopes[i, c, k] for entries e, in the order of `columns`, of row i and feature j."""
    density, states = partition.network.family.sparse_density, hash_states(partition)
    half, inverse = weight_scale(density)
    for first in range(0, len(states), TILE):
        own = states[first : first + TILE]
        hashed.transposed_by_column(
            columns.starts, columns.rows, columns.features, own, half, inverse, slopes, first, sums
        )
    for output, feature, weight in partition.network.revived(density):  # the other weights of such an output are 0
        for j in np.flatnonzero(columns.features == FEATURE_ID(feature)):
            at = slice(columns.starts[j], columns.starts[j + 1])
            sums[at] += MEMBERSHIP(weight) * slopes[columns.rows[at], :, output]


def hash_states(partition: NetworkPartition) -> Any:
    """Return where the hashes of outputs begin, padded to whole tiles."""
    K = partition.network.family.n_outputs
    states = np.zeros(-(-K // TILE) * TILE, dtype=np.uint32)
    states[:K] = initial_hash_state(partition.network.seeds)
    return states


def sort_by_feature(entries: Entries) -> tuple[FeatureColumns, Any]:
    """Return entries feature by feature, and the place where each of them was."""
    local, distinct = index_features(entries.ids)
    order = np.argsort(local, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(local, minlength=len(distinct)))])
    rows_of_entries = entries.row_of_entry[order].astype(np.int32)
    return FeatureColumns(distinct, starts, rows_of_entries, entries.values[order].astype(MEMBERSHIP)), order


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _add_slopes(p: Any, heads: Any, weight: Any, width: int, slopes: Any) -> None:
    """slopes[i, c, k] += weight x p_ik (W_kc - sum over l in the group of p_il W_lc)."""
    n, K = p.shape
    for i in range(n):
        for group in range(K // width):
            first, last = group * width, (group + 1) * width
            p_group = p[i, first:last]
            for c in range(len(heads)):
                head, of_row = heads[c, first:last], slopes[i, c, first:last]
                mean = np.float32(0.0)
                for k in range(len(p_group)):
                    mean += p_group[k] * head[k]
                for k in range(len(p_group)):
                    of_row[k] += weight * p_group[k] * (head[k] - mean)
