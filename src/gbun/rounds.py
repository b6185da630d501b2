"""How the sums of a round come about: in turn, where all rows are here; ahead of time, where workers have them.

In turn, a round is two passes over the rows, one after the other. Among workers sums have to travel, and networks do
not depend on data. So while the sums of round t are on their way, round t + 2 is forwarded; the moments of round t + 1,
which was forwarded before, ride in the same message, and so does what round t - 1 was worth on evaluation sets:

    up      one triangle of A, B, and [sum h, sum h of A's rows] of round t; moments of t + 1; metric sums of t - 1
    down    the head of round t, centre and factor of round t + 1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from gbun.arrays import Array
from gbun.callbacks import Evaluations
from gbun.collectives import Courier
from gbun.dtypes import MEMBERSHIP, FloatArray, IntArray
from gbun.solve import Normaliser

if TYPE_CHECKING:
    from gbun.boosting import Training


REFINEMENTS = 2  # of histograms before the first round: they begin as they go on, also after a training was resumed


@dataclass(frozen=True)
class Equations:
    """A = P'HP, B = P'G and [sum h, sum h of A's rows], over all rows."""

    A: FloatArray
    B: FloatArray
    curvature: FloatArray


class InTurn:
    """Rounds of rows that are all here: every sum is complete as it is made."""

    def __init__(self, training: Training, last: int) -> None:
        self.training = training

    def begin(self, t: int) -> None:
        self.t = t

    def evaluations(self) -> Evaluations | None:
        """What the model is worth now."""
        return evaluate(self.training)

    def equations(self) -> Equations:
        run, rows = self.training, self.training.rows
        # scores += the step before; Z = X N_t; [sum w z; sum w z^2]
        moments = rows.first_pass(run.family.draw(self.t))
        self.norm = run.normaliser(moments)
        # P = softmax(tau normalise(Z)), in the place of Z; A = P'HP, B = P'G
        return Equations(*rows.second_pass(self.norm, derivatives_of(run), run.sample_of(self.t)))

    def ahead(self) -> tuple[FloatArray, FloatArray]:
        """What the others need to know for the next round; nothing: there are none."""
        return np.zeros((0, 0), dtype=MEMBERSHIP), np.zeros(0)

    def follow(self, ahead: FloatArray, hints: FloatArray) -> None:
        """Take in what `ahead` gave where the sums came together."""


class Ahead:
    """Rounds of workers, each with its share of the rows: one message up, one down."""

    def __init__(self, training: Training, last: int) -> None:
        assert isinstance(training.collective, Courier)
        self.training, self.last, self.courier = training, last, training.collective
        self.courier.traffic.clear()
        self.watched = [
            (e, [m.among(e.shard.y, e.shard.weight, _n_responses(training), self.courier) for m in training.metrics])
            for e in training.evaluations
        ]
        self._metrics = [m for _, metrics in self.watched for m in metrics]
        for _ in range(REFINEMENTS if any(m.hint_length for m in self._metrics) else 0):
            for evaluation, metrics in self.watched:
                for metric in metrics:
                    total = self.courier.sum(metric.sums(*evaluation.answers(training.objective)), root=0)
                    leads = self.courier.rank == 0
                    metric.adapt(self.courier.broadcast(metric.hint(total) if leads else np.zeros(metric.hint_length)))
        self._next: Normaliser | None = None  # of the round that begins next
        self._moments = np.zeros((2, training.family.n_outputs))  # of this worker's rows, of the one after it

    def begin(self, t: int) -> None:
        """Make the sums of this worker's rows and send them; forward the round after the next meanwhile."""
        self.courier.mark()
        run, message, self.t = self.training, Message(), t
        if t < self.last:
            if self._next is None:  # the first round: there was no message that its moments could ride in
                self._next = self._first_normaliser(self._forward(t))
                self._moments = self._forward(t + 1)
            self.norm = self._next
            A, B, curvature = run.rows.second_pass(self.norm, derivatives_of(run), run.sample_of(t))
            large = "float64" if run.rows.few else self.courier.transport  # whatever each one's device has
            rows, columns = triangle(A.shape[-1])
            message.add(A[..., rows, columns], large).add(B, large).add(curvature).add(self._moments)
        for evaluation, metrics in self.watched:
            for metric in metrics:
                message.add(metric.sums(*evaluation.answers(run.objective)))
        sent = self.courier.send(message.vector, root=0, wire=message.wire)
        if t < self.last:
            self._moments = self._forward(t + 2)
        self._sums = message.divided(sent())

    def _first_normaliser(self, moments: FloatArray) -> Normaliser:
        """From the sums over all workers' rows, by the root, as those of later rounds."""
        total, told = self.courier.sum(moments, root=0), np.zeros(moments.shape, dtype=MEMBERSHIP)
        if self.courier.rank == 0:
            found = self.training.normaliser(total)
            told = np.stack([found.centre, found.factor])
        return Normaliser(*self.courier.broadcast(told))

    def _forward(self, t: int) -> FloatArray:
        run = self.training
        return run.rows.forward(run.family.draw(t)) if t < self.last else np.zeros((2, run.family.n_outputs))

    def evaluations(self) -> Evaluations | None:
        """What the model is worth now; None where the sums do not come together."""
        if self._sums is None:
            return None
        self._totals = self._sums[len(self._sums) - len(self._metrics) :]
        values = iter(zip(self._metrics, self._totals, strict=True))
        return {e.name: {m.name: m.value(total) for m, total in (next(values) for _ in ms)} for e, ms in self.watched}

    def equations(self) -> Equations:
        assert self._sums is not None
        packed, B, curvature, moments = self._sums[:4]
        self._next = self.training.normaliser(moments) if self.t + 1 < self.last else self.norm
        K = len(B)
        A = np.zeros((*packed.shape[:-1], K, K))
        rows, columns = triangle(K)
        A[..., rows, columns] = A[..., columns, rows] = packed
        return Equations(A, B, curvature)

    def ahead(self) -> tuple[FloatArray, FloatArray]:
        """Centre and factor of the next round's outputs, and where metrics want to look more closely."""
        if self._sums is None or self._next is None:  # it is known elsewhere, or there will be no round
            K = self.training.family.n_outputs
            return np.zeros((2, K), dtype=MEMBERSHIP), np.zeros(sum(m.hint_length for m in self._metrics))
        hints = [m.hint(total) for m, total in zip(self._metrics, self._totals, strict=True)]
        return np.stack([self._next.centre, self._next.factor]), np.concatenate([np.zeros(0), *hints])

    def follow(self, ahead: FloatArray, hints: FloatArray) -> None:
        self._next = Normaliser(*ahead)
        for metric in self._metrics:
            own, hints = np.split(hints, [metric.hint_length])
            metric.adapt(own)


def evaluate(run: Training) -> Evaluations:
    """Each metric on each evaluation set, as of now."""
    return {
        e.name: {m.name: m.evaluate(*e.answers(run.objective), run.collective) for m in run.metrics}
        for e in run.evaluations
    }


def rounds_of(training: Training, last: int) -> InTurn | Ahead:
    """How this training's rounds, up to the one before `last`, come about."""
    return (Ahead if isinstance(training.collective, Courier) else InTurn)(training, last)


def derivatives_of(run: Training) -> Callable[[slice], tuple[Array, Array]]:
    rows = run.rows

    def derivatives(at: slice) -> tuple[Array, Array]:
        return run.objective.derivatives(rows.y[at], rows.scores[at], rows.weight[at])

    return derivatives


class Message:
    """Arrays that travel as one vector, each in a format of its own."""

    def __init__(self) -> None:
        self.parts: list[FloatArray] = []
        self.wire: list[tuple[int, str]] = []

    def add(self, values: FloatArray, form: str = "float64") -> Message:
        self.parts.append(values)
        self.wire.append((values.size, form))
        return self

    @property
    def vector(self) -> FloatArray:
        return np.concatenate([np.zeros(0), *(part.ravel() for part in self.parts)])

    def divided(self, vector: FloatArray) -> list[FloatArray] | None:
        """The arrays in a sum of such vectors; None where no sum came back."""
        if len(vector) != sum(part.size for part in self.parts) or not self.parts:
            return [] if not self.parts else None
        ends = np.cumsum([part.size for part in self.parts])
        return [v.reshape(p.shape) for v, p in zip(np.split(vector, ends[:-1]), self.parts, strict=True)]


@dataclass(frozen=True)
class Verdict:
    """What was decided of a round where its sums came together."""

    numbers: FloatArray  # the learning rate, and the mean h of all rows
    head: FloatArray  # before shrinkage
    ahead: FloatArray  # centre and factor of the next round
    hints: FloatArray

    @property
    def parts(self) -> tuple[FloatArray, ...]:
        return self.numbers, self.head, self.ahead, self.hints


def agreed(run: Training, over: bool, verdicts: Sequence[Verdict]) -> tuple[bool, list[Verdict]]:
    """What was decided at the root, everywhere. Elsewhere, verdicts tell shapes only."""
    own = [np.array([float(over)]), *(part for verdict in verdicts for part in verdict.parts)]
    told = run.collective.broadcast(np.concatenate([np.ascontiguousarray(p).reshape(-1).view(np.uint8) for p in own]))
    parts = iter(np.split(told, np.cumsum([part.nbytes for part in own])[:-1]))
    found = [next(parts).copy().view(part.dtype).reshape(part.shape) for part in own]
    return bool(found[0][0]), [Verdict(*found[first : first + 4]) for first in range(1, len(found), 4)]


@cache
def triangle(K: int) -> tuple[IntArray, IntArray]:
    """Rows and columns of the lower triangle."""
    return np.tril_indices(K)


def _n_responses(run: Training) -> int:
    return int(run.objective.response(np.zeros((0, len(run.start)))).shape[1])
