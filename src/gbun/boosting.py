"""The round, and the loop around it. Everything else in this package exists so that this can be read.

W = -(P'HP + lambda I)^-1 P'G,   P = softmax(tau x normalise(X N_t)),   scores += eta alpha P W
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np

from gbun.arrays import Array, host
from gbun.callbacks import Callback, Evaluations, RoundReport
from gbun.collectives import Collective
from gbun.config import Parameters
from gbun.data.features import Shard
from gbun.data.scaling import Scaling
from gbun.description import Description
from gbun.dtypes import FloatArray
from gbun.ensemble import Ensemble, Rows, TrainingRows, step_of
from gbun.kernels.sampling import GramSample, whole_from_sample
from gbun.linear import LinearStart
from gbun.metrics.base import Metric
from gbun.model import Model
from gbun.networks import Family
from gbun.objectives import Objective
from gbun.solve import Normaliser, minimise_convex, normaliser, solve_head


@dataclass
class Evaluation:
    """A named set of rows that is scored after each round."""

    name: str
    shard: Shard
    rows: Rows


@dataclass
class Training:
    """The state of a training run; the fitted model is what `ensemble()` makes of it."""

    parameters: Parameters
    family: Family
    scaling: Scaling
    objective: Objective
    start: FloatArray
    linear: LinearStart | None
    description: Description
    shard: Shard
    rows: TrainingRows
    sample: GramSample
    evaluations: list[Evaluation]
    metrics: Sequence[Metric]
    collective: Collective
    learning_rate: float
    normalisers: list[Normaliser] = field(default_factory=list)
    heads: list[FloatArray] = field(default_factory=list)
    best_round: int | None = None
    best_score: float | None = None
    trial: bool = False  # a training on part of the rows that finds out how many rounds help

    @property
    def n_rounds(self) -> int:
        return len(self.heads)

    def ensemble(self) -> Ensemble:
        K, C = self.family.n_outputs, len(self.start)
        complete = self.normalisers[: self.n_rounds]  # an interrupt may have come before the round's head
        return Ensemble(
            self.family,
            self.scaling,
            self.objective,
            self.start,
            np.array([n.centre for n in complete], dtype=np.float32).reshape(-1, K),
            np.array([n.factor for n in complete], dtype=np.float32).reshape(-1, K),
            np.array(self.heads, dtype=np.float32).reshape(-1, K, C),
            self.linear,
        )

    def model(self) -> Model:
        found = replace(self.description, best_round=self.best_round, best_score=self.best_score)
        return Model(self.ensemble(), found)

    def keep_first(self, n_rounds: int) -> None:
        """Forget the rounds after the first `n_rounds`."""
        del self.normalisers[n_rounds:], self.heads[n_rounds:]


def boost(training: Training, n_rounds: int, callbacks: Sequence[Callback], others: Sequence[Training] = ()) -> None:
    """Add up to `n_rounds` rounds. An interrupt loses none of those that are complete.

    `others` are boosted in step, on other parts of the same rows; callbacks then see means of what all of them report.
    """
    runs, first, began = [training, *others], training.n_rounds, perf_counter()
    watching: list[Callback] = []
    try:
        for callback in sorted(callbacks, key=lambda c: c.last):
            callback.before_training(training, n_rounds)
            watching.append(callback)
        at_start = RoundReport(first - 1, means([evaluate(run) for run in runs]), perf_counter() - began)
        for callback in watching:
            callback.after_start(training, at_start)
        for t in range(first, first + n_rounds):
            for run in runs:
                for callback in watching:
                    callback.before_round(run, t)
                add_round(run, t)
            report = RoundReport(t, means([evaluate(run) for run in runs]), perf_counter() - began)
            if any([callback.after_round(training, report) for callback in watching]):  # noqa: C419 - all must see it
                break
        for callback in watching:
            callback.after_training(training)
    except BaseException:
        for callback in watching:
            callback.on_failure(training)
        raise


def add_round(training: Training, t: int) -> None:
    """One round, as in the paper, in two passes over the rows."""
    config, collective, shard, rows = training.parameters, training.collective, training.shard, training.rows
    total_weight, n_rows = collective.sum(np.array([shard.weight.sum(), np.count_nonzero(shard.weight)]))

    def derivatives(at: slice) -> tuple[Array, Array]:
        return training.objective.derivatives(rows.y[at], rows.scores[at], rows.weight[at])

    network = training.family.draw(t)  # a recipe, no weights
    # scores += the step before; Z = X N_t; [sum w z; sum w z^2]
    moments, curvature = (collective.sum(part) for part in rows.first_pass(network, training.sample.asks(derivatives)))
    norm = normaliser(total_weight, n_rows, moments)

    # P = softmax(tau normalise(Z)), in the place of Z; A = P'HP, B = P'G
    sample = training.sample.of_round(t, curvature)
    A, B, curvature = (collective.sum(part) for part in rows.second_pass(norm, derivatives, sample))
    A *= whole_from_sample(curvature)
    head = solve_head(A, B, config.reg_lambda, config.reg_form, rows.rounding)  # W = -(A + lambda I)^-1 B
    alpha = step_length(training, head) if training.objective.line_search else 1.0
    head = head * np.float32(training.learning_rate * alpha)
    rows.add(head)  # scores += eta alpha P W

    training.normalisers.append(norm)
    training.heads.append(head)
    for evaluation in training.evaluations:
        evaluation.rows.add_rounds([step_of(network, norm, head)])


def step_length(training: Training, head: FloatArray) -> float:
    """alpha that minimises the loss along d = P W, to within a tenth of the slope at 0.

    The slope phi'(alpha) = g'd is a sum over rows, and so is the curvature phi''(alpha) = d'Hd; both are taken at
    scores + alpha d. The loss is convex, so Newton's steps within the bracket of the slope's sign find it.
    """
    rows = training.rows
    d = rows.directions(head)

    def along(alpha: float) -> tuple[float, float]:
        def part(at: slice) -> Array:
            return training.objective.along(rows.y[at], rows.scores[at] + alpha * d[at], rows.weight[at], d[at])

        slope, curvature = training.collective.sum(rows.kernels.sum_rows(part))
        return float(slope), float(curvature)

    return minimise_convex(along)


def evaluate(training: Training) -> Evaluations:
    """Each metric on each evaluation set, as of now."""
    values: Evaluations = {}
    for evaluation in training.evaluations:
        response = training.objective.response(host(evaluation.rows.scores))
        values[evaluation.name] = {
            m.name: m.evaluate(evaluation.shard.y, response, evaluation.shard.weight, training.collective)
            for m in training.metrics
        }
    return values


def means(evaluations: Sequence[Evaluations]) -> Evaluations:
    """The mean of each metric on each set."""
    return {
        name: {metric: float(np.mean([e[name][metric] for e in evaluations])) for metric in metrics}
        for name, metrics in evaluations[0].items()
    }
