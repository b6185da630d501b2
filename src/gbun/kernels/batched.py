"""The kernels of rows on a device: the two passes of a round, batch by batch, in buffers that are made once.

The same methods as `dispatch.Kernels` and `dispatch.TrainingKernels`. Scores, targets and derivatives are the device's
arrays; sums come back as NumPy's, for the collective.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gbun.arrays import Array, host
from gbun.data.features import Features
from gbun.devices import Device, TorchDevice
from gbun.dtypes import MEMBERSHIP, SUM, FloatArray
from gbun.kernels import portable, triton_forward
from gbun.kernels.batches import Batch, Batches
from gbun.kernels.device_plan import HASHED, HEADS, TABLE, WAITING, DevicePlan, Placement, round_bytes
from gbun.kernels.dispatch import Derivatives, Picker, RowSums, Step
from gbun.kernels.portable import Buffers, HashedWeights
from gbun.kernels.underway import AHEAD, Round, UnderWay
from gbun.networks import Family, Network

Weights = tuple[HashedWeights | None, HashedWeights | None]
"""Of dense columns and of sparse features; None where there are none."""


class BatchedKernels:
    """Rounds applied to rows: outputs, memberships and scores of a batch before the next; nothing of n x K is held."""

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
        # Asked before features take memory: a first launch needs some.
        self._in_registers = (
            self._has_sparse and isinstance(device, TorchDevice) and triton_forward.available(device.device)
        )
        self.batches = Batches(features, device, placement.room, placement.resident, weight)
        rows, K = placement.room.rows, family.n_outputs
        n_columns = 0 if features.dense is None else features.dense.shape[1]
        columns = min(n_columns, TABLE // K)
        entries = 0 if features.sparse is None or self._in_registers else min(placement.room.entries, HASHED // K)
        self.buffers = Buffers.for_batches(rows, K, max(1, columns, entries), device.empty(1))
        # Fewer weights of entries at a time stay in a processor's cache.
        weights, hashes = self.buffers.weights[: max(1, entries)], self.buffers.hashes[: max(1, entries)]
        self._for_entries = Buffers(self.buffers.outputs, weights, hashes)
        # The weights of all dense columns, if they fit and nothing else takes their place, serve batch after batch.
        self._keeps_table = n_columns == columns and not entries
        self._table: HashedWeights | None = None
        self._z, self._step = device.empty(rows, K), device.empty(rows, n_scores)

    @property
    def sparse_kernel(self) -> str:
        """What forwards sparse features, in a word."""
        return "Triton" if self._in_registers else "portable" if self._has_sparse else "none"

    def add_rounds(self, steps: Sequence[Step], scores: Array) -> None:
        """scores += P W for one round after the other."""
        if not steps:
            return
        put, at_a_time = self.device.put, max(1, HEADS // round_bytes(self.family, scores.shape[1]))
        with self.device.computing():
            for first in range(0, len(steps), at_a_time):
                own = steps[first : first + at_a_time]
                made = [(self._weights(s.network), put(s.centre), put(s.factor), put(s.head)) for s in own]
                for batch in self.batches:
                    z = self._z[: len(batch)]
                    for weights, centre, factor, head in made:
                        self._forward(weights, batch, z)
                        portable.memberships(z, centre, factor, self.family.softmax_width)
                        self._add(z, head, scores[batch.rows])

    def _weights(self, network: Network) -> Weights:
        of_columns = HashedWeights.of(network, self.family.density, self._z) if self._has_dense else None
        return of_columns, HashedWeights.of(network, self.family.sparse_density, self._z) if self._has_sparse else None

    def _forward(self, weights: Weights, batch: Batch, z: Array) -> None:
        """z = X N"""
        of_columns, of_entries = weights
        if of_columns is not None:
            portable.forward_dense(batch.dense, of_columns, self.buffers, z, made=self._table is of_columns)
            self._table = of_columns if self._keeps_table else None
        if of_entries is not None:
            entries, fresh = (batch.indptr, batch.low, batch.high, batch.values), batch.dense is None
            if self._in_registers:
                triton_forward.forward_sparse(*entries, of_entries, z, fresh)
            else:
                portable.forward_sparse(*entries, of_entries, self._for_entries, z, fresh)

    def _add(self, p: Array, head: Array, scores: Array) -> None:
        """scores += P W"""
        step = self._step[: len(p)]
        portable.product(p, head, step)
        scores += step


class BatchedTrainingKernels(BatchedKernels):
    """The two passes of a round over training rows, and what a line search asks for between rounds.

    With buffers of n x K, Z and then P stay in one from pass to pass. Without, each pass makes them again.
    """

    def __init__(
        self,
        features: Features,
        family: Family,
        n_scores: int,
        plan: DevicePlan,
        device: Device,
        weight: FloatArray,
        exact: bool,
    ) -> None:
        super().__init__(features, family, n_scores, device, plan.placement, weight)
        n, rows, K = features.n_rows, plan.placement.room.rows, family.n_outputs
        self.exact = exact and device.has_float64
        self._weight = device.put(weight, MEMBERSHIP)
        n_buffers = (AHEAD if plan.ahead else 1) if plan.hold else 0
        self.rounds = UnderWay([device.empty(n, K) for _ in range(n_buffers)])
        dtype = SUM if self.exact else MEMBERSHIP
        self._gradient = device.empty(rows, n_scores, dtype=dtype)
        self._sampled = device.empty(rows, K, dtype=dtype) if plan.gram_share < 1.0 else None
        self._exact = [device.empty(rows, K, dtype=SUM) for _ in range(2)] if self.exact else None

    def first_pass(self, network: Network, head: FloatArray | None, scores: Array) -> FloatArray:
        """scores += P W with the P of the round before, unless `head` is None; Z = X N; [sum w z ; sum w z^2]."""
        sums, waiting = np.zeros((2, self.family.n_outputs)), []
        before = None if head is None else self.rounds.split
        with self.device.computing():
            begun, step = self.rounds.begin(self._weights(network), before), self._put(head)
            for batch in self.batches:
                if before is not None:
                    self._add(self._memberships(batch, before), step, scores[batch.rows])
                z = self._place(batch, begun)
                self._forward(begun.made, batch, z)
                own = portable.centred_sums(z, self._weight[batch.rows], batch.total_weight, self.buffers)
                waiting.append((own, batch.total_weight))
                if len(waiting) == WAITING:  # the host waits for the device, which it does not after each batch
                    sums, waiting = sums + _added(waiting), []
            return sums + _added(waiting)

    def second_pass(
        self,
        centre: FloatArray,
        factor: FloatArray,
        derivatives: Derivatives,
        pick: Picker | None = None,
        head: FloatArray | None = None,
        scores: Array = None,
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """P = softmax((Z - centre) x factor) in the place of Z, then A = P'HP and B = P'G.

        Where `pick` chooses rows, A is made of those alone, and [sum h, sum h of A's rows] says what they stand for.
        With `head`, scores += P W of the round before comes first, where the first pass had to do without it.
        """
        current, K = self.rounds.forwarded, self.family.n_outputs
        split, step = (self.device.put(centre), self.device.put(factor)), self._put(head)
        before = None if head is None else self.rounds.split
        with self.device.computing():
            g, h = derivatives(slice(0, 0))
            A, B = self._zeros(*h.shape[1:], K, K), self._zeros(K, g.shape[1])
            curvature = np.zeros((2, *h.shape[1:]))
            for batch in self._batches(current, before):
                if before is not None:
                    self._add(self._memberships(batch, before), step, scores[batch.rows])
                g, h = derivatives(batch.rows)
                p = self._outputs(batch, current)
                portable.memberships(p, *split, self.family.softmax_width)
                p, q = self._exactly(p)
                self._complete(B, portable.transposed_product(p, g, self._gradient))
                if pick is not None:
                    rows, h, curvature_of_batch = self._picked(pick, batch, h)
                    curvature += curvature_of_batch
                    p = portable.rows_into(p, rows, self._sampled)
                self._complete(A, portable.grams(p, h, q))
        current.split = split
        if before is not None:
            self.rounds.end(before)
        return host(A).astype(SUM), host(B).astype(SUM), curvature

    def _put(self, head: FloatArray | None) -> Array:
        return None if head is None else self.device.put(head)

    def _zeros(self, *shape: int) -> Array:
        """Where sums over batches go: float64, on the host if the device has none."""
        zeros = np.zeros(shape, dtype=SUM)
        return self.device.put(zeros) if self.device.has_float64 else zeros

    def _complete(self, total: Array, part: Array) -> None:
        total += part if self.device.has_float64 else host(part)

    def _exactly(self, p: Array) -> tuple[Array, Array]:
        """P, in float64 where few rows are to be summed exactly; and room for another array like it."""
        if self._exact is None:
            return p, self.buffers.outputs
        exact, room = (a[: len(p)] for a in self._exact)
        exact[...] = p
        return exact, room

    def _picked(self, pick: Picker, batch: Batch, h: Array) -> tuple[Array, Array, FloatArray]:
        """The sample's rows and their h, and [sum h, sum h of those]. Chance is a hash that the host makes."""
        on_host = host(h)
        rows, own = pick(batch.rows, on_host)
        sums = np.array([on_host.sum(axis=0, dtype=SUM), own.sum(axis=0, dtype=SUM)])
        return self.device.put(rows, np.int64), self.device.put(own, self.device.score_dtype), sums

    def add_step(self, head: FloatArray, scores: Array) -> None:
        """scores += P W"""
        with self.device.computing():
            step, current = self.device.put(head), self.rounds.split
            for batch in self._batches(current):
                self._add(self._memberships(batch, current), step, scores[batch.rows])

    def sum_rows(self, values: RowSums) -> FloatArray:
        """The sum over batches of what `values` gives for each, added in their order."""
        with self.device.computing():
            parts = [host(values(at)).astype(SUM) for at in [slice(0, 0), *self.batches.cuts]]
        return np.asarray(sum(parts[1:], 0.0 * parts[0]))

    def _batches(self, *rounds: Round | None) -> Iterable[Batch]:
        """With their features, unless buffers keep all that these rounds made of them."""
        kept = all(of is None or of.buffer is not None for of in rounds)
        return self.batches.rows() if kept else self.batches

    def _place(self, batch: Batch, of: Round) -> Array:
        """Where Z and P of a batch live."""
        return self._z[: len(batch)] if of.buffer is None else of.buffer[batch.rows]

    def _outputs(self, batch: Batch, of: Round) -> Array:
        """What the buffer keeps, Z or P; or Z made again."""
        z = self._place(batch, of)
        if of.buffer is None:
            self._forward(of.made, batch, z)
        return z

    def _memberships(self, batch: Batch, of: Round) -> Array:
        """P, after the second pass."""
        p = self._outputs(batch, of)
        if of.buffer is None and of.split is not None:
            portable.memberships(p, *of.split, self.family.softmax_width)
        return p


def _added(waiting: Sequence[tuple[Array, float]]) -> FloatArray:
    return np.asarray(sum(portable.moments_of(*own) for own in waiting))
