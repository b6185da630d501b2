"""The network kernels of devices: rows in batches, computed by the portable kernels or Triton in buffers made once.

Scores, targets and derivatives are arrays of the device. Sums come back as NumPy arrays, for the collective.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from gbun.arrays import Array, namespace, to_host
from gbun.data.features import Features
from gbun.devices import Device, TorchDevice
from gbun.dtypes import MEMBERSHIP, SUM, FloatArray
from gbun.kernels import costs, portable, triton_forward
from gbun.kernels.batches import Batch, Batches
from gbun.kernels.equations import DeviceEquationSums, EquationBuffers, Softmax
from gbun.kernels.interface import NormalEquations, RowSums
from gbun.kernels.passes import RoundInFlight, RoundsInFlight, RowPasses, TrainingPasses
from gbun.kernels.placement import HEAD_BYTES, Placement
from gbun.kernels.plan import Plan
from gbun.kernels.portable import Buffers, HashedWeights
from gbun.networks import Family, Network

if TYPE_CHECKING:
    from gbun.learners.network import NetworkPartition

Weights = tuple[HashedWeights | None, HashedWeights | None]
"""Of dense columns and of sparse features; None where there are none."""
R = TypeVar("R")


class DeviceKernels(RowPasses[Batch]):
    """Finished rounds applied to rows: outputs, memberships and scores of a batch before those of the next."""

    def __init__(
        self,
        features: Features,
        family: Family,
        n_scores: int,
        device: Device,
        placement: Placement,
        weight: FloatArray | None = None,
    ) -> None:
        self.family, self.device = family, device
        self._has_dense, self._has_sparse = features.dense is not None, features.sparse is not None
        # The first launch needs memory: it comes before features take theirs.
        self._uses_triton = (
            self._has_sparse and isinstance(device, TorchDevice) and triton_forward.is_available(device.device)
        )
        self.batches = Batches(features, device, placement.capacity, placement.resident, weight)
        n_rows, K = placement.capacity.rows, family.n_outputs
        n_columns = costs.count_columns(features)
        columns = min(n_columns, costs.TABLE_WEIGHTS_AT_A_TIME // K)
        hashes_entries = self._has_sparse and not self._uses_triton
        entries = min(placement.capacity.entries, costs.HASHED_WEIGHTS_AT_A_TIME // K) if hashes_entries else 0
        self.buffers = Buffers.allocate(n_rows, K, max(1, columns, entries), device.empty(1))
        # Fewer weights of entries at a time stay in a processor's cache.
        weights, hashes = self.buffers.weights[: max(1, entries)], self.buffers.hashes[: max(1, entries)]
        self._entry_buffers = Buffers(self.buffers.outputs, weights, hashes)
        # If the weights of all dense columns fit and nothing else takes their place, all batches use them.
        self._keeps_table = n_columns == columns and not entries
        self._table: HashedWeights | None = None
        self._z, self._step = device.empty(n_rows, K), device.empty(n_rows, n_scores)

    @property
    def sparse_kernel_name(self) -> str:
        """The kernel that forwards sparse features."""
        return "Triton" if self._uses_triton else "portable" if self._has_sparse else "none"

    def _map(self, work: Callable[[Batch], R], n_rounds: int = 1, with_features: bool = True) -> Iterator[R]:
        return map(work, self.batches if with_features else self.batches.rows())

    def _rounds_at_a_time(self, n_scores: int) -> int:
        return max(1, HEAD_BYTES // costs.round_bytes(self.family, n_scores))

    def _make_weights(self, network: Network, n_rounds: int = 1) -> Weights:
        parts = (self._has_dense, self.family.density), (self._has_sparse, self.family.sparse_density)
        dense, sparse = (HashedWeights.from_network(network, d, self._z) if given else None for given, d in parts)
        return dense, sparse

    def _make_softmax(self, partition: NetworkPartition) -> Softmax:
        return self.device.put(partition.centre), self.device.put(partition.slope), self.family.softmax_width

    def _make_product(self, head: FloatArray) -> Callable[[Array, Array], None]:
        W = self.device.put(head)

        def add(p: Array, scores: Array) -> None:
            step = self._step[: len(p)]
            namespace(p).matmul(p, W, out=step)
            scores += step

        return add

    def _scratch(self, part: Batch) -> Array:
        return self._z[: len(part)]

    def _forward(self, weights: Weights, part: Batch, z: Array) -> None:
        dense, sparse = weights
        if dense is not None:
            portable.forward_dense(part.dense, dense, self.buffers, z, made=self._table is dense)
            self._table = dense if self._keeps_table else None
        if sparse is not None:
            entries, fresh = (part.indptr, part.low, part.high, part.values), part.dense is None
            if self._uses_triton:
                triton_forward.forward_sparse(*entries, sparse, z, fresh)
            else:
                portable.forward_sparse(*entries, sparse, self._entry_buffers, z, fresh)

    def _to_memberships(self, z: Array, softmax: Softmax) -> None:
        portable.to_memberships(z, *softmax)


class DeviceTrainingKernels(TrainingPasses[Batch], DeviceKernels):
    """The passes of a round over training rows, batch by batch."""

    def __init__(self, features: Features, family: Family, plan: Plan, device: Device, weight: FloatArray) -> None:
        assert plan.placement is not None, "a plan for a device"
        super().__init__(features, family, plan.n_scores, device, plan.placement, weight)
        n_rows, K = plan.placement.capacity.rows, family.n_outputs
        self.exact = plan.exact and device.has_float64
        self._weight = device.put(weight, MEMBERSHIP)
        self.rounds = RoundsInFlight([device.empty(features.n_rows, K) for _ in range(plan.n_buffers)])
        dtype = SUM if self.exact else MEMBERSHIP
        self._equation_buffers = EquationBuffers(
            scaled=device.empty(n_rows, K, dtype=SUM) if self.exact else self.buffers.outputs,
            gradient=device.empty(n_rows, plan.n_scores, dtype=dtype),
            sampled=device.empty(n_rows, K, dtype=dtype) if plan.gram_share < 1.0 else None,
            exact=device.empty(n_rows, K, dtype=SUM) if self.exact else None,
        )

    def _forward_and_sum(self, current: RoundInFlight, part: Batch) -> tuple[Array, float]:
        z = self._place(part, current)
        self._forward(current.forward_weights, part, z)
        return portable.sum_centred(z, self._weight[part.rows], part.total_weight, self.buffers), part.total_weight

    def _sum_moments(self, sums: Iterable[tuple[Array, float]]) -> FloatArray:
        total, pending = np.zeros((2, self.family.n_outputs)), iter(sums)
        # the host waits for the device, but not after each batch
        while waiting := list(islice(pending, costs.PENDING_BATCHES)):
            total = total + sum(portable.combine_moments(*centred) for centred in waiting)
        return total

    def _make_equations(self, g: Array, h: Array, softmax: Softmax) -> DeviceEquationSums:
        return DeviceEquationSums(g, h, softmax, self._equation_buffers, self.device)

    def _sum_equations(self, work: Callable[[Iterable[Batch]], NormalEquations]) -> NormalEquations:
        return work(self.batches.rows() if self.rounds.has_buffers else self.batches)

    def sum_rows(self, values: RowSums) -> FloatArray:
        """Sum what `values` gives for each batch, in their order."""
        with self.device.compute_context():
            parts = [to_host(values(at)).astype(SUM) for at in [slice(0, 0), *self.batches.cuts]]
        return np.asarray(sum(parts[1:], 0.0 * parts[0]))
