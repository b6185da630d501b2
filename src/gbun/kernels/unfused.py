"""The kernels of partitions that map rows to memberships themselves: dense P, or one leaf of each tree for each row.

Rows are cut into blocks whose size does not depend on threads, and sums are added in the order of blocks in float64:
the bits do not depend on the number of threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba
import numpy as np
import scipy.sparse

from gbun.data.features import Features
from gbun.dtypes import SUM, FloatArray, IntArray
from gbun.kernels.interface import Derivatives, NormalEquations, RowSampler, RowSums, SampledRows
from gbun.kernels.threads import ThreadPool

if TYPE_CHECKING:
    from gbun.learners.base import Partition, StepRun

BLOCK = 2**14  # rows


class UnfusedKernels:
    """Rounds applied to rows, and the sums of a round over training rows, block by block."""

    exact = True  # sums are float64

    def __init__(self, features: Features, threads: ThreadPool) -> None:
        self.features, self.threads = features, threads
        n = features.n_rows
        self.blocks = [slice(first, min(first + BLOCK, n)) for first in range(0, n, BLOCK)]
        self._partition: Partition | None = None
        self._codes: list[FloatArray | IntArray] = []  # of the last partition, a block each

    def add_rounds(self, steps: StepRun, scores: FloatArray) -> None:
        """scores += P W for one round after the other."""
        kind = type(steps[0].partition)

        def work(at: slice) -> None:
            block = self.features.block(at.start, at.stop)
            if not kind.add_steps(steps, block, scores[at]):
                for step in steps:
                    scores[at] += _multiply(step.partition, _encode(step.partition, block), step.head)

        self.threads.run(work, self.blocks)

    def normal_equations(
        self,
        partition: Partition,
        derivatives: Derivatives,
        pick: RowSampler | None = None,
        head: FloatArray | None = None,
        scores: FloatArray | None = None,
    ) -> NormalEquations:
        """Sum A = P'HP, B = P'G and the curvature of the rows; see `TrainingKernels`."""
        if head is not None and scores is not None:
            self.add_step(head, scores)

        def work(at: slice) -> tuple[FloatArray | IntArray, NormalEquations]:
            codes = _encode(partition, self.features.block(at.start, at.stop))
            g, h = derivatives(at)
            return codes, _block_equations(partition, codes, g, h, None if pick is None else pick(at, h))

        g, h = derivatives(slice(0, 0))
        no_codes = np.zeros((0, partition.n_trees or partition.n_outputs), dtype=np.intp)
        total = _block_equations(partition, no_codes, g, h, None)
        self._partition, self._codes = partition, []
        for codes, part in self.threads.map(work, self.blocks):
            self._codes.append(codes)
            total.add(part)
        return total

    def take_leaves(self, partition: Partition, leaves: IntArray) -> None:
        """Take the leaf of each row, (n,), of a partition with one tree, instead of making its normal equations."""
        self._partition, self._codes = partition, [leaves[at, None] for at in self.blocks]

    def add_step(self, head: FloatArray, scores: FloatArray) -> None:
        """scores += P W, with the P of the last `normal_equations` or `take_leaves`."""
        partition = self._partition
        assert partition is not None, "normal equations come first"

        def work(number: int) -> None:
            own, codes = scores[self.blocks[number]], self._codes[number]
            if partition.n_trees == 1 and own.flags.c_contiguous:
                _add_leaf_values(own, codes, head)
            else:
                own += _multiply(partition, codes, head)

        self.threads.run(work, range(len(self.blocks)))

    def sum_rows(self, values: RowSums) -> FloatArray:
        """Sum what `values` gives for each block, in the order of blocks."""
        return np.asarray(sum(self.threads.map(values, self.blocks), 0.0 * values(slice(0, 0))), dtype=SUM)


@numba.njit(cache=True, nogil=True)
def _add_leaf_values(scores: Any, leaves: Any, head: Any) -> None:
    """scores[i] += head[leaf of i], without an array of the values."""
    for i in range(scores.shape[0]):
        leaf = leaves[i, 0]
        for c in range(scores.shape[1]):
            scores[i, c] += head[leaf, c]


def _encode(partition: Partition, features: Features) -> FloatArray | IntArray:
    """P of some rows: n x K numbers, or the leaf of each tree, n x n_trees."""
    name, width = ("leaves", partition.n_trees) if partition.n_trees else ("memberships", partition.n_outputs)
    codes: FloatArray | IntArray = getattr(partition, name)(features)
    if getattr(codes, "shape", None) != (features.n_rows, width):
        raise ValueError(
            f"{type(partition).__name__}.{name} must return an array of shape ({features.n_rows}, {width}), got "
            f"{getattr(codes, 'shape', type(codes).__name__)}"
        )
    if partition.n_trees and len(codes) and not 0 <= codes.min() <= codes.max() < partition.n_outputs:
        raise ValueError(
            f"{type(partition).__name__}.leaves must be from 0 to {partition.n_outputs - 1}, got {codes.min()} to "
            f"{codes.max()}"
        )
    return codes


def _multiply(partition: Partition, codes: FloatArray | IntArray, head: FloatArray) -> FloatArray:
    """P W. Each row is computed by itself: its bits do not depend on the rows beside it."""
    if partition.n_trees:
        product = head[codes[:, 0]]
        for leaves in codes.T[1:]:
            product = product + head[leaves]
        return product
    return np.asarray(np.einsum("nk,kc->nc", codes, head))


def _block_equations(
    partition: Partition,
    codes: FloatArray | IntArray,
    g: FloatArray,
    h: FloatArray,
    sample: SampledRows | None,
) -> NormalEquations:
    K = partition.n_outputs
    curvature = np.zeros((2, *h.shape[1:]), dtype=SUM)
    picked, picked_h = (slice(None), h) if sample is None else sample
    if sample is not None:
        curvature[:] = h.sum(axis=0), picked_h.sum(axis=0)
    columns = picked_h.T if h.ndim == 2 else picked_h[None]
    if not partition.n_trees:
        P = codes.astype(SUM)
        Q = P[picked]
        A = np.array([(Q * column[:, None]).T @ Q for column in columns])
        return NormalEquations(A if h.ndim == 2 else A[0], P.T @ g, curvature)
    B = np.zeros((K, g.shape[1]))
    for tree in codes.T:
        B += np.stack([np.bincount(tree, column, K) for column in g.T], axis=1)
    diagonal = partition.n_trees == 1
    A = np.array([_leaf_sums(codes[picked], column, K, diagonal) for column in columns])
    return NormalEquations(A if h.ndim == 2 else A[0], B, curvature, diagonal)


def _leaf_sums(leaves: IntArray, h: FloatArray, K: int, diagonal: bool) -> FloatArray:
    """P'HP of hard leaves: within a tree it is diagonal, and then only the diagonal is kept; across trees it counts the
    rows that two leaves share."""
    if diagonal:
        return np.bincount(leaves[:, 0], h, K).astype(SUM, copy=False)
    n, n_trees = leaves.shape
    P = scipy.sparse.csr_array((np.ones(leaves.size), leaves.ravel(), np.arange(0, leaves.size + 1, n_trees)), (n, K))
    return np.asarray((P.T @ (P * h[:, None])).todense())
