"""The network kernels of the host: rows in chunks, computed by compiled code in threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from gbun.data.features import Features
from gbun.devices import Device
from gbun.dtypes import MEMBERSHIP, SUM, FloatArray
from gbun.kernels import products, rows
from gbun.kernels.chunks import Chunk, make_chunks, rows_in_chunk
from gbun.kernels.costs import count_columns, count_entries
from gbun.kernels.equations import EquationSums, Softmax
from gbun.kernels.forward import Weights, forward, make_weights
from gbun.kernels.interface import NormalEquations, RowSums
from gbun.kernels.passes import RoundInFlight, RoundsInFlight, RowPasses, TrainingPasses
from gbun.kernels.plan import Plan
from gbun.kernels.simd import LANES
from gbun.kernels.threads import ThreadPool, allocate_aligned
from gbun.networks import Family, Network

if TYPE_CHECKING:
    from gbun.learners.network import NetworkPartition

LOG2_E = MEMBERSHIP(1.0 / np.log(2.0))  # e^v = 2^(v / log 2)
PER_OUTPUT = 16  # operations for each output of a row beside those of features: moments, a power of two, a product
RUNS = 64  # partial sums of the normal equations, which are added up in the end
R = TypeVar("R")


class HostKernels(RowPasses[Chunk]):
    """Finished rounds applied to rows: outputs, memberships and scores of a chunk before those of the next."""

    device = Device()

    def __init__(
        self, features: Features, family: Family, n_scores: int, threads: ThreadPool, form: str = "auto"
    ) -> None:
        self.features, self.family, self.threads = features.contiguous(), family, threads
        self.n_scores, self.form = n_scores, form
        self._chunks: list[Chunk] | None = None
        n_numbers = count_entries(features) + features.n_rows * count_columns(features)
        # about the operations of Z = X N and P
        self._n_operations = family.n_outputs * (float(n_numbers) + PER_OUTPUT * features.n_rows)

    def cut_chunks(self) -> list[Chunk]:
        """Cut the rows into chunks and order their features, at the first call; a start without rounds needs none."""
        if self._chunks is None:
            n_rows = rows_in_chunk(self.features.n_rows, self.family.n_outputs, self.n_scores)
            self._chunks = make_chunks(self.features, n_rows, self.threads, self.form)
        return self._chunks

    def _map(self, work: Callable[[Chunk], R], n_rounds: int = 1, with_features: bool = True) -> Iterator[R]:
        return self.threads.map(work, self.cut_chunks(), n_rounds * self._n_operations)

    def _make_weights(self, network: Network, n_rounds: int = 1) -> Weights:
        return make_weights(network, self.features, keep=n_rounds == 1)

    def _make_softmax(self, partition: NetworkPartition) -> Softmax:
        return partition.centre, partition.slope * LOG2_E, self.family.softmax_width

    def _make_product(self, head: FloatArray) -> Callable[[FloatArray, FloatArray], None]:
        if head.shape[1] == 1:
            return lambda p, scores: rows.add_dots(p, head[:, 0], scores)
        panels = products.make_panels(head)

        def add(p: FloatArray, scores: FloatArray) -> None:
            step = np.zeros((len(p), head.shape[1]), dtype=MEMBERSHIP)
            products.multiply_add(p, panels, step)
            scores += step

        return add

    def _scratch(self, part: Chunk) -> FloatArray:
        return self.threads.scratch.array("z", len(part), self.family.n_outputs)

    def _forward(self, weights: Weights, part: Chunk, z: FloatArray) -> None:
        forward(weights, self.features, part, z, self.threads.scratch)

    def _to_memberships(self, z: FloatArray, softmax: Softmax) -> None:
        rows.to_memberships(z, *softmax)


class HostTrainingKernels(TrainingPasses[Chunk], HostKernels):
    """The passes of a round over training rows, chunk by chunk."""

    def __init__(self, features: Features, family: Family, plan: Plan, threads: ThreadPool, weight: FloatArray) -> None:
        super().__init__(features, family, plan.n_scores, threads, plan.form)
        self.weight, self.exact = np.ascontiguousarray(weight), plan.exact
        n, K = features.n_rows, family.n_outputs
        self.rounds = RoundsInFlight([allocate_aligned(n * K, MEMBERSHIP).reshape(n, K) for _ in range(plan.n_buffers)])

    def _forward_and_sum(self, current: RoundInFlight, part: Chunk) -> FloatArray:
        K = self.family.n_outputs
        sums = np.zeros((2, K))
        moments, nontemporal = (self.weight[part.rows], sums), current.buffer is not None and K % LANES == 0
        z = self._place(part, current)
        forward(current.forward_weights, self.features, part, z, self.threads.scratch, moments, nontemporal)
        return sums

    def _sum_moments(self, sums: Iterable[FloatArray]) -> FloatArray:
        return sum(sums, np.zeros((2, self.family.n_outputs)))

    def _make_equations(self, g: FloatArray, h: FloatArray, softmax: Softmax) -> EquationSums:
        return EquationSums(g, h, softmax, self.exact, self.threads.scratch)

    def _sum_equations(self, work: Callable[[Iterable[Chunk]], NormalEquations]) -> NormalEquations:
        chunks = self.cut_chunks()
        runs = np.array_split(np.arange(len(chunks)), min(RUNS, len(chunks)) or 1)
        gram = 0.5 * self.features.n_rows * self.family.n_outputs**2
        parts = self.threads.map(work, [[chunks[i] for i in run] for run in runs], self._n_operations + gram)
        total = next(parts)
        for part in parts:
            total.add(part)
        total.A = np.tril(total.A) + np.swapaxes(np.tril(total.A, -1), -1, -2)  # only the lower triangle is right
        return total

    def sum_rows(self, values: RowSums) -> FloatArray:
        """Sum what `values` gives for each chunk, in their order."""
        amount = PER_OUTPUT * self.features.n_rows * self.n_scores
        parts = self.threads.map(values, [chunk.rows for chunk in self.cut_chunks()], amount)
        return np.asarray(sum(parts, 0.0 * values(slice(0, 0))), dtype=SUM)
