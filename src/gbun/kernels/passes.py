"""The passes of network kernels over rows, written once for the host and for devices.

Rows come in parts: chunks on the host, batches on a device. The base classes decide what is computed in which order and
where Z and P are kept. Subclasses know how one part is computed and how parts are divided among threads or sent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gbun.arrays import Array
from gbun.devices import Device
from gbun.dtypes import FloatArray
from gbun.kernels.batches import Batch
from gbun.kernels.chunks import Chunk
from gbun.kernels.equations import DeviceEquationSums, EquationSums, Softmax
from gbun.kernels.interface import Derivatives, NormalEquations, RowSampler
from gbun.networks import Family, Network

if TYPE_CHECKING:
    from gbun.learners.base import Step
    from gbun.learners.network import NetworkPartition

IN_FLIGHT = 3
"""Rounds in flight where rounds are pipelined: one waits for its head, one for its normalisation, one is forwarded."""

R = TypeVar("R")
Part = TypeVar("Part", Chunk, Batch)


@dataclass(eq=False)
class RoundInFlight:
    """The weights of a round, the buffer that keeps its Z and then P (or None), and, once known, how Z becomes P."""

    network: Network
    forward_weights: Any
    buffer: Array | None
    softmax: Softmax | None = None


class RoundsInFlight:
    """Rounds between their first pass and their step, the oldest first, and the n x K buffers they share.

    Sequential rounds need one buffer. Pipelined rounds are forwarded while sums travel and need up to `IN_FLIGHT`.
    Without buffers nothing is kept, and every pass computes Z again.
    """

    def __init__(self, buffers: Sequence[Array]) -> None:
        self.has_buffers, self._free, self._rounds = bool(buffers), list(buffers), list[RoundInFlight]()

    def begin(self, network: Network, weights: Any, previous: RoundInFlight | None = None) -> RoundInFlight:
        """Start a round; it takes the buffer of the `previous` one, which ends."""
        if previous is None and self.has_buffers and not self._free:
            previous = self._rounds[0]  # it was abandoned
        if previous is not None:
            self.end(previous)
        begun = RoundInFlight(network, weights, self._free.pop() if self.has_buffers else None)
        self._rounds.append(begun)
        if not self.has_buffers:
            del self._rounds[:-IN_FLIGHT]
        return begun

    def end(self, done: RoundInFlight) -> None:
        self._rounds.remove(done)
        if done.buffer is not None:
            self._free.append(done.buffer)

    def find_forwarded(self, network: Network) -> RoundInFlight | None:
        """Return the oldest round of this network that has a Z but no P."""
        return next((r for r in self._rounds if r.softmax is None and r.network == network), None)

    @property
    def normalised(self) -> RoundInFlight:
        """The round that has a P and waits for its head."""
        found = next((r for r in reversed(self._rounds) if r.softmax is not None), None)
        assert found is not None, "the normal equations come second"
        return found


class RowPasses(ABC, Generic[Part]):
    """Finished rounds applied to rows, part by part: nothing of the size n x K is kept."""

    family: Family
    device: Device

    @abstractmethod
    def _map(self, work: Callable[[Part], R], n_rounds: int = 1, with_features: bool = True) -> Iterator[R]:
        """Yield `work` of each part in their order; `n_rounds` networks are forwarded in it."""

    @abstractmethod
    def _make_weights(self, network: Network, n_rounds: int = 1) -> Any:
        """Prepare the weights of a network, one of `n_rounds` that are applied together."""

    @abstractmethod
    def _make_softmax(self, partition: NetworkPartition) -> Softmax: ...

    @abstractmethod
    def _make_product(self, head: FloatArray) -> Callable[[Array, Array], None]:
        """Return a function of P (n x K) and scores (n x C): scores += P W, the product in float32."""

    @abstractmethod
    def _scratch(self, part: Part) -> Array:
        """Return working memory for Z of a part."""

    @abstractmethod
    def _forward(self, weights: Any, part: Part, z: Array) -> None:
        """z = X N"""

    @abstractmethod
    def _to_memberships(self, z: Array, softmax: Softmax) -> None:
        """Turn Z into P in its place."""

    def _rounds_at_a_time(self, n_scores: int) -> int | None:
        """Return how many rounds are applied together; None: all of them."""
        return None

    def add_rounds(self, steps: Sequence[Step], scores: Array) -> None:
        """Add P W of one round after the other; partitions are of the family of these kernels."""
        count = self._rounds_at_a_time(scores.shape[1]) or len(steps)
        with self.device.compute_context():
            for first in range(0, len(steps), count or 1):
                self._add_together(steps[first : first + count], scores)

    def _add_together(self, steps: Sequence[Step], scores: Array) -> None:
        rounds = []
        for step in steps:
            partition: Any = step.partition
            weights = self._make_weights(partition.network, len(steps))
            rounds.append((weights, self._make_softmax(partition), self._make_product(step.head)))

        def work(part: Part) -> None:
            z = self._scratch(part)
            for weights, softmax, add_product in rounds:
                self._forward(weights, part, z)
                self._to_memberships(z, softmax)
                add_product(z, scores[part.rows])

        for _ in self._map(work, len(steps)):
            pass


class TrainingPasses(RowPasses[Part]):
    """The two passes of a round over training rows, and what a line search asks for between rounds.

    Where there are buffers of n x K, Z and then P stay in one from pass to pass. Otherwise each pass computes them
    again; the bits are the same.
    """

    rounds: RoundsInFlight
    exact: bool

    @abstractmethod
    def _forward_and_sum(self, current: RoundInFlight, part: Part) -> Any:
        """Compute Z of a part and return what `_sum_moments` makes the moments of."""

    @abstractmethod
    def _sum_moments(self, sums: Iterable[Any]) -> FloatArray: ...

    @abstractmethod
    def _make_equations(self, g: Array, h: Array, softmax: Softmax) -> EquationSums | DeviceEquationSums:
        """Return sums that are zero; g and h tell the number of scores and of Hessians."""

    @abstractmethod
    def _sum_equations(self, work: Callable[[Iterable[Part]], NormalEquations]) -> NormalEquations:
        """Sum `work` over runs of parts, which together are all parts."""

    def first_pass(self, network: Network, head: FloatArray | None, scores: Array) -> FloatArray:
        """Add the step of the round before, then forward a network; see `NetworkKernels`."""
        with self.device.compute_context():
            previous, add_previous = self._make_previous_step(head, scores)
            current = self.rounds.begin(network, self._make_weights(network), previous)

            def work(part: Part) -> Any:
                if add_previous is not None:
                    add_previous(part)
                return self._forward_and_sum(current, part)

            return self._sum_moments(self._map(work))

    def normal_equations(
        self,
        partition: NetworkPartition,
        derivatives: Derivatives,
        pick: RowSampler | None = None,
        head: FloatArray | None = None,
        scores: Array = None,
    ) -> NormalEquations:
        """Sum the normal equations of P = softmax((Z - centre) x slope), which takes the place of Z."""
        with self.device.compute_context():
            current, softmax = self._find_or_forward(partition.network), self._make_softmax(partition)
            previous, add_previous = self._make_previous_step(head, scores)

            def work(run: Iterable[Part]) -> NormalEquations:
                totals = None
                for part in run:
                    if add_previous is not None:
                        add_previous(part)
                    g, h = derivatives(part.rows)
                    z = self._outputs(part, current)
                    totals = totals or self._make_equations(g, h, softmax)
                    totals.add(z, g, h, None if pick is None else partial(pick, part.rows))
                if totals is None:  # the share of this worker has no rows
                    totals = self._make_equations(*derivatives(slice(0, 0)), softmax)
                return totals.finish()

            equations = self._sum_equations(work)
        current.softmax = softmax
        if previous is not None:
            self.rounds.end(previous)
        return equations

    def add_step(self, head: FloatArray, scores: Array) -> None:
        """Add P W, with the P of the last normal equations, to scores of shape (n, C)."""
        with self.device.compute_context():
            _, add = self._make_previous_step(head, scores)
            assert add is not None
            for _ in self._map(add, with_features=not self.rounds.has_buffers):
                pass

    def _make_previous_step(
        self, head: FloatArray | None, scores: Array
    ) -> tuple[RoundInFlight, Callable[[Part], None]] | tuple[None, None]:
        """Return the round that waits for its head, and what adds its step to the scores of a part."""
        if head is None:
            return None, None
        waiting, add_product = self.rounds.normalised, self._make_product(head)

        def add(part: Part) -> None:
            p = self._outputs(part, waiting)
            if waiting.buffer is None and waiting.softmax is not None:
                self._to_memberships(p, waiting.softmax)
            add_product(p, scores[part.rows])

        return waiting, add

    def _find_or_forward(self, network: Network) -> RoundInFlight:
        """Return the round of a network; forward it again if its outputs gave way to those of other networks."""
        found = self.rounds.find_forwarded(network)
        if found is not None:
            return found
        again = self.rounds.begin(network, self._make_weights(network))
        if again.buffer is not None:
            for _ in self._map(lambda part: self._forward(again.forward_weights, part, self._place(part, again))):
                pass
        return again

    def _place(self, part: Part, of: RoundInFlight) -> Array:
        """Return where Z and P of a part are kept."""
        return self._scratch(part) if of.buffer is None else of.buffer[part.rows]

    def _outputs(self, part: Part, of: RoundInFlight) -> Array:
        """Return Z or P as the buffer keeps it; without a buffer, compute Z again."""
        z = self._place(part, of)
        if of.buffer is None:
            self._forward(of.forward_weights, part, z)
        return z
