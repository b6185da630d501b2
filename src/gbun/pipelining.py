"""Pipelined rounds: sums travel while the next rounds are computed.

They give the model of sequential rounds, for a learner whose partitions do not depend on scores and a collective
whose messages travel while workers compute. While the sums of round t travel, round t + 2 is forwarded. The sums that
make the partition of round t + 1, which was forwarded before, are part of the same message, and so are the metrics of
round t - 1:

    up      A (one triangle, or the diagonal), B, and [sum h, sum h of A's rows] of round t; sums of round t + 1;
            metric sums of round t - 1
    down    the head of round t, the partition of round t + 1, and hints for the metrics
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gbun.callbacks import CallbackRunner, Evaluations
from gbun.collectives import AsyncCollective, record_round
from gbun.collectives.wire import rounding
from gbun.dtypes import FloatArray
from gbun.kernels.interface import NormalEquations
from gbun.learners import DataIndependentLearner, Partition
from gbun.rounds import RoundUpdate, broadcast_update, empty_solution, mean_evaluations, solve_round

if TYPE_CHECKING:
    from gbun.boosting import Training

HINT_ROUNDS = 2  # of histograms before the first round, so that a resumed training begins as it would have gone on


class PipelinedRounds:
    """One message up and one down a round, while the rounds ahead are forwarded."""

    def __init__(self, runs: Sequence[Training], last: int) -> None:
        self.runs, self.last = runs, last
        self.pipelines = [Pipeline(run, last) for run in runs]

    def decide_round(self, t: int, callbacks: CallbackRunner) -> list[RoundUpdate] | None:
        record_round(self.runs[0].collective)
        for pipeline in self.pipelines:
            pipeline.begin(t)
        over, updates = False, [pipeline.empty_update() for pipeline in self.pipelines]
        if self.runs[0].collective.rank == 0:  # where the sums are
            over = (
                callbacks.report(t - 1, mean_evaluations([p.evaluations() for p in self.pipelines])) or t == self.last
            )
            if not over:
                updates = [pipeline.solve(callbacks) for pipeline in self.pipelines]
        return broadcast_update(self.runs[0], over, updates)

    def finish_round(self, updates: Sequence[RoundUpdate]) -> None:
        for pipeline, update in zip(self.pipelines, updates, strict=True):
            pipeline.follow(update)


class Pipeline:
    """The rounds of one training that are under way."""

    def __init__(self, run: Training, last: int) -> None:
        assert isinstance(run.collective, AsyncCollective)  # as can_overlap said
        assert isinstance(run.learner, DataIndependentLearner)
        self.run, self.last = run, last
        self.collective: AsyncCollective = run.collective
        self.learner: DataIndependentLearner[Any] = run.learner
        n_responses = int(run.objective.response(np.zeros((0, run.start.n_scores))).shape[1])
        self.evaluated = [
            (e, [m.make_sum_metric(e.shard.y, e.shard.weight, n_responses, self.collective) for m in run.metrics])
            for e in run.evaluations
        ]
        self.metrics = [m for _, metrics in self.evaluated for m in metrics]
        for _ in range(HINT_ROUNDS if any(m.hint_length for m in self.metrics) else 0):
            self._refine_metrics()
        self.partition: Partition | None = None  # of the current round
        self.next: Partition | None = None
        self.next_sums = self.learner.no_sums()  # of this worker's rows, for the partition after the next

    def _refine_metrics(self) -> None:
        """Let metrics that are made of histograms look more closely where it matters."""
        for evaluation, metrics in self.evaluated:
            compared = evaluation.targets_and_response(self.run.objective)
            for metric in metrics:
                sums = metric.sums(*compared)
                total = self.collective.sum(sums, root=0)
                hint = metric.make_hint(total) if self.collective.rank == 0 else np.zeros(metric.hint_length)
                metric.apply_hint(self.collective.broadcast(hint))

    def begin(self, t: int) -> None:
        """Make the sums of this worker's rows and send them; forward the round after the next meanwhile."""
        run, message, self.t = self.run, Message(), t
        if t < self.last:
            if self.next is None:  # the first round: no message before it could carry its sums
                self.next = self._first_partition(t)
                self.next_sums = self._forward(t + 1)
            self.partition = self.next
            sums = run.rows.normal_equations(self.partition, run.sample_of(t))
            form = "float64" if run.rows.exact else self.collective.transport
            self.diagonal = sums.diagonal
            message.add(sums.pack_gram(), form).add(sums.B, form).add(sums.curvature).add(self.next_sums)
        for evaluation, metrics in self.evaluated:
            compared = evaluation.targets_and_response(run.objective)
            for metric in metrics:
                message.add(metric.sums(*compared))
        sent = self.collective.start_sum(message.vector, root=0, wire=message.wire)
        if t < self.last:
            self.next_sums = self._forward(t + 2)
        self.sums = message.split(sent())  # complete at the root

    def _first_partition(self, t: int) -> Partition:
        """Make the partition of the first round at the root, as those of later rounds."""
        total = self.collective.sum(self._forward(t), root=0)
        found = self.learner.complete(t, total, self.run.rows.totals) if self.collective.rank == 0 else None
        partition: Partition = self.learner.from_array(t, self.collective.broadcast(self.learner.to_array(found)))
        return partition

    def _forward(self, t: int) -> FloatArray:
        return self.learner.local_sums(t, self.run.rows) if t < self.last else self.learner.no_sums()

    def evaluations(self) -> Evaluations:
        """Compute the metrics from their sums, at the root."""
        self.totals = self.sums[len(self.sums) - len(self.metrics) :]
        values = iter(zip(self.metrics, self.totals, strict=True))
        return {e.name: {m.name: m.value(total) for m, total in (next(values) for _ in ms)} for e, ms in self.evaluated}

    def solve(self, callbacks: CallbackRunner) -> RoundUpdate:
        """Solve for the head of the round and make the partition of the next, at the root."""
        assert self.partition is not None
        callbacks.before_round(self.run, self.t)
        gram, B, curvature, next_sums = self.sums[:4]
        equations = NormalEquations.from_packed(gram, B, curvature, self.diagonal)
        exactness = self.run.rows.rounding
        if exactness is not None:  # the sums were rounded on their way, too
            exactness = max(exactness, rounding(self.collective.transport) * math.sqrt(self.collective.size))
        solution = solve_round(self.run, equations, exactness)
        following = None
        if self.t + 1 < self.last:
            following = self.learner.complete(self.t + 1, next_sums, self.run.rows.totals)
        hints = [m.make_hint(total) for m, total in zip(self.metrics, self.totals, strict=True)]
        return RoundUpdate(
            self.partition, *solution, self.learner.to_array(following), np.concatenate([np.zeros(0), *hints])
        )

    def empty_update(self) -> RoundUpdate:
        """Return an update that only has the right shapes: the root has the sums."""
        hints = np.zeros(sum(m.hint_length for m in self.metrics))
        partition = self.partition or self.learner.from_array(self.t, self.learner.to_array(None))
        return RoundUpdate(partition, *empty_solution(partition, self.run), self.learner.to_array(None), hints)

    def follow(self, update: RoundUpdate) -> None:
        """Take in what the root found: the partition of the next round, and hints for the metrics."""
        self.next = self.learner.from_array(self.t + 1, update.next_array)
        hints = update.hints
        for metric in self.metrics:
            hint, hints = np.split(hints, [metric.hint_length])
            metric.apply_hint(hint)


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

    def split(self, vector: FloatArray) -> list[FloatArray]:
        """Return the arrays in a sum of such vectors; none on workers to which no sum came back."""
        ends = np.cumsum([part.size for part in self.parts], dtype=int)
        if not len(ends) or len(vector) != ends[-1]:
            return []
        return [v.reshape(p.shape) for v, p in zip(np.split(vector, ends[:-1]), self.parts, strict=True)]
