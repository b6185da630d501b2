"""One round: the partition, the normal equations, the head and the step. All else exists so that this can be read.

    P = partition_t(rows),   W = -(P'HP + lambda I)^-1 P'G,   scores += eta alpha P W

Every sum goes through the collective, so any learner trains on any number of workers. `gbun.pipelining` has the form of
rounds in which sums travel while the next rounds are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from gbun.callbacks import CallbackRunner, Evaluations
from gbun.collectives import record_round
from gbun.dtypes import HEAD, FloatArray
from gbun.kernels.interface import NormalEquations
from gbun.kernels.sampling import sample_correction
from gbun.learners import Partition, Step
from gbun.solve import minimise_over_workers, solve_head

if TYPE_CHECKING:
    from gbun.boosting import Training


@dataclass(frozen=True)
class RoundUpdate:
    """What a round adds: the root solves for the head, and all workers apply it."""

    partition: Partition  # every worker has it
    head: FloatArray  # before shrinkage, K x C
    rate_and_curvature: FloatArray  # the learning rate, and the mean h of all rows
    next_array: FloatArray = field(default_factory=lambda: np.zeros(0))  # describes the partition of the next round
    hints: FloatArray = field(default_factory=lambda: np.zeros(0))  # where metrics look more closely
    exact: bool = field(default=False, kw_only=True)  # the Hessian is no bound: no line search

    @property
    def arrays(self) -> list[FloatArray]:
        """What the root sends."""
        return [self.head, self.rate_and_curvature, self.next_array, self.hints]


def compute_update(run: Training, t: int) -> RoundUpdate:
    """Make the partition of round t, complete its sums, and at the root solve for its head."""
    if not run.learner.data_independent:
        run.rows.current_scores()  # adds the step before, so that the learner's threads see complete scores
    fitted = run.fitter.fit_round(t)
    partition, equations = fitted.partition, fitted.equations
    if equations is not None:
        assert fitted.leaves is not None, "leaves come with their sums"
        run.rows.take_leaves(partition, fitted.leaves)
        return RoundUpdate(partition, *solve_round(run, equations, None), exact=True)
    local = run.rows.normal_equations(partition, run.sample_of(t))
    A, B, curvature = (run.collective.sum(part, root=0) for part in (local.A, local.B, local.curvature))
    if run.collective.rank != 0:  # the root has the sums
        return RoundUpdate(partition, *empty_solution(partition, run))
    sums = NormalEquations(A, B, curvature, local.diagonal)
    return RoundUpdate(partition, *solve_round(run, sums, run.rows.rounding))


def solve_round(run: Training, sums: NormalEquations, rounding: float | None) -> tuple[FloatArray, FloatArray]:
    """Solve W = -(P'HP + lambda I)^-1 P'G; return it with the learning rate and the mean curvature."""
    config = run.parameters
    scale = sample_correction(sums.curvature)
    scale = scale[..., 0] if sums.diagonal and scale.ndim else scale
    head = solve_head(sums.A * scale, sums.B, config.reg_lambda, config.reg_form, rounding, sums.diagonal)
    curvature = float(np.sum(sums.curvature[0])) / run.rows.totals.n_weighted
    return head, np.array([run.learning_rate, curvature if curvature > 0.0 else run.mean_curvature or 0.0])


def apply_update(run: Training, update: RoundUpdate) -> None:
    """scores += eta alpha P W, for all rows of this worker."""
    rate, run.mean_curvature = update.rate_and_curvature.tolist()
    alpha = find_step_length(run, update.head) if run.objective.line_search and not update.exact else 1.0
    head = update.head * np.float32(rate * alpha)
    run.rows.add(head)  # by the next pass over the rows
    run.add_step(Step(update.partition, head))


def find_step_length(run: Training, head: FloatArray) -> float:
    """Find alpha that minimises the loss along d = P W, to within a tenth of the slope at 0.

    The slope phi'(alpha) = g'd is a sum over rows, and so is the curvature phi''(alpha) = d'Hd; both are taken at
    scores + alpha d. The loss is convex, so Newton's steps within the bracket of the slope's sign find it.
    """
    d = run.rows.directions(head)
    return minimise_over_workers(run.collective, lambda alpha: run.rows.slope_along(d, alpha))


def evaluate(run: Training) -> Evaluations:
    """Compute each metric on each evaluation set, over the rows of all workers."""
    values = {}
    for e in run.evaluations:
        y, response, weight = e.targets_and_response(run.objective)
        values[e.name] = {m.name: m.evaluate(y, response, weight, run.collective) for m in run.metrics}
    return values


def broadcast_update(run: Training, over: bool, updates: Sequence[RoundUpdate]) -> list[RoundUpdate] | None:
    """Send what the root decided to all workers; elsewhere, updates have the right shapes only. None: it is over."""
    if run.collective.size == 1:  # nobody to send to: a short round would spend its time on packing
        return None if over else list(updates)
    local = [array for update in updates for array in update.arrays]
    packed = b"".join([bytes([over]), *(array.tobytes() for array in local)])
    received = run.collective.broadcast(np.frombuffer(packed, dtype=np.uint8)).tobytes()
    if received[0]:
        return None
    arrays, first = [], 1
    for array in local:  # copies are aligned, as compiled kernels want them
        values = np.frombuffer(received, array.dtype, array.size, first).copy() if array.size else array
        arrays.append(values.reshape(array.shape))
        first += array.nbytes
    parts = iter(arrays)
    return [RoundUpdate(u.partition, *(next(parts) for _ in u.arrays), exact=u.exact) for u in updates]


def mean_evaluations(evaluations: Sequence[Evaluations]) -> Evaluations:
    """Average each metric on each set over trainings in step."""
    return {
        name: {metric: float(np.mean([e[name][metric] for e in evaluations])) for metric in metrics}
        for name, metrics in evaluations[0].items()
    }


class Rounds(Protocol):
    """Trainings that are boosted in step, round by round."""

    def decide_round(self, t: int, callbacks: CallbackRunner) -> list[RoundUpdate] | None:
        """Report what round t - 1 was worth, and find what round t adds to each training; None: training is over."""

    def finish_round(self, updates: Sequence[RoundUpdate]) -> None:
        """Take in what the updates say about the rounds to come."""


class SequentialRounds:
    """Every sum is complete before the next is made."""

    def __init__(self, runs: Sequence[Training], last: int) -> None:
        self.runs, self.last, self.collective = runs, last, runs[0].collective

    def decide_round(self, t: int, callbacks: CallbackRunner) -> list[RoundUpdate] | None:
        record_round(self.collective)
        evaluations = mean_evaluations([evaluate(run) for run in self.runs])
        over = callbacks.report(t - 1, evaluations) or t >= self.last
        if self.collective.broadcast(np.array([over]))[0]:
            return None
        updates = []
        for run in self.runs:
            callbacks.before_round(run, t)
            updates.append(compute_update(run, t))
        return broadcast_update(self.runs[0], False, updates)

    def finish_round(self, updates: Sequence[RoundUpdate]) -> None:
        """Nothing is under way."""


def empty_solution(partition: Partition, run: Training) -> tuple[FloatArray, FloatArray]:
    """Return the arrays of `solve_round` with the right shapes only: the root fills them."""
    return np.zeros((partition.n_outputs, run.start.n_scores), dtype=HEAD), np.zeros(2)
