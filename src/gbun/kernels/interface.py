"""What the boosting loop asks of kernels, whatever computes them: compiled code, torch, or a partition itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gbun.arrays import Array
from gbun.dtypes import FloatArray, IntArray

if TYPE_CHECKING:
    from gbun.learners.base import StepRun
    from gbun.networks import Network

MAX_EXACT_ROWS = 2**12
"""Up to so many rows normal equations are float64 throughout: rounding errors have no rows to average over."""

Derivatives = Callable[[slice], tuple[Array, Array]]
"""g (n x C) and h (n, or n x C with a Hessian for each score) of some rows."""
RowSums = Callable[[slice], Array]
"""Sums over some rows; an empty slice gives zeros of the right shape."""
SampledRows = tuple[IntArray, FloatArray]
"""Rows of a chunk, counted from its first and ascending, and their h."""
RowSampler = Callable[[slice, FloatArray], SampledRows]
"""(chunk, its h) -> the rows that the Hessian sums are made of."""


@dataclass
class NormalEquations:
    """Sums over rows from which the head is solved.

    A = P'HP is K x K, or C x K x K with a Hessian for each score; where `diagonal`, only its diagonal is kept, (K,) or
    C x K. B = P'G is K x C. `curvature` is [sum h, sum h of the rows that A is made of]; zeros where A has all rows.
    """

    A: FloatArray
    B: FloatArray
    curvature: FloatArray
    diagonal: bool = False

    def add(self, other: NormalEquations) -> None:
        self.A += other.A
        self.B += other.B
        self.curvature += other.curvature

    def pack_gram(self) -> FloatArray:
        """Return the numbers of A that must be sent: its diagonal, or one triangle of it."""
        rows, columns = _triangle(len(self.B))
        return self.A if self.diagonal else self.A[..., rows, columns]

    @classmethod
    def from_packed(cls, packed: FloatArray, B: FloatArray, curvature: FloatArray, diagonal: bool) -> NormalEquations:
        """Make the equations of which `pack_gram` gave `packed`."""
        if diagonal:
            return cls(packed, B, curvature, diagonal)
        rows, columns = _triangle(len(B))
        A = np.zeros((*packed.shape[:-1], len(B), len(B)))
        A[..., rows, columns] = A[..., columns, rows] = packed
        return cls(A, B, curvature)


@cache
def _triangle(K: int) -> tuple[IntArray, IntArray]:
    """Return rows and columns of the lower triangle."""
    return np.tril_indices(K)


class RowKernels(Protocol):
    """Apply finished rounds to rows."""

    def add_rounds(self, steps: StepRun, scores: Array) -> None:
        """scores += P W for one round after the other, all of one kind."""


class TrainingKernels(RowKernels, Protocol):
    """Make the sums of a round over training rows, and apply its step."""

    exact: bool
    """Whether the normal equations are float64 throughout."""

    def normal_equations(
        self,
        partition: Any,
        derivatives: Derivatives,
        pick: RowSampler | None = None,
        head: FloatArray | None = None,
        scores: Array = None,
    ) -> NormalEquations:
        """Sum A = P'HP and B = P'G at the current scores.

        A is made of the rows that `pick` chooses; the curvature tells what they stand for. `head` (K x C, float32) is
        that of the round before, where its step was not added yet: scores += P W comes first, in place.
        """

    def add_step(self, head: FloatArray, scores: Array) -> None:
        """scores += P W, with the P of the last normal equations."""

    def sum_rows(self, values: RowSums) -> FloatArray:
        """Sum what `values` gives for each chunk of rows, in their order."""


class NetworkKernels(TrainingKernels, Protocol):
    """Training kernels that forward networks in passes of their own, several rounds ahead where asked."""

    def first_pass(self, network: Network, head: FloatArray | None, scores: Array) -> FloatArray:
        """scores += P W of the round before, unless `head` is None; Z = X N; return [sum w z; sum w z^2].

        The head (K x C, float32) is None in the first round, and where its step is added elsewhere. The scores (n x C)
        are changed in place, and the sums are 2 x K, float64.
        """
