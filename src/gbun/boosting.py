"""The round, and the loop around it. Everything else in this package exists so that this can be read.

    W = -(P'HP + lambda I)^-1 P'G,   P = softmax(tau x normalise(X N_t)),   scores += eta alpha P W
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from gbun.callbacks import Callback, Evaluations, RoundReport
from gbun.collectives import Collective
from gbun.config import Parameters
from gbun.data.features import Shard
from gbun.data.scaling import Scaling
from gbun.description import Description
from gbun.dtypes import FloatArray
from gbun.ensemble import Ensemble, Rows
from gbun.metrics.base import Metric
from gbun.model import Model
from gbun.networks import Family
from gbun.objectives import Objective
from gbun.solve import Normaliser, normaliser, solve_head

LONGEST_STEP = 20.0  # the line search lengthens a step at most so much: beyond, the quadratic means nothing


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
    start: NDArray[np.float64]
    description: Description
    shard: Shard
    rows: Rows
    evaluations: list[Evaluation]
    metrics: Sequence[Metric]
    collective: Collective
    learning_rate: float
    normalisers: list[Normaliser] = field(default_factory=list)
    heads: list[FloatArray] = field(default_factory=list)
    best_round: int | None = None
    best_score: float | None = None

    @property
    def n_rounds(self) -> int:
        return len(self.heads)

    def ensemble(self) -> Ensemble:
        K, C = self.family.n_outputs, len(self.start)
        return Ensemble(
            self.family,
            self.scaling,
            self.objective,
            self.start,
            np.array([n.centre for n in self.normalisers], dtype=np.float32).reshape(-1, K),
            np.array([n.factor for n in self.normalisers], dtype=np.float32).reshape(-1, K),
            np.array(self.heads, dtype=np.float32).reshape(-1, K, C),
        )

    def model(self) -> Model:
        found = replace(self.description, best_round=self.best_round, best_score=self.best_score)
        return Model(self.ensemble(), found)

    def keep_first(self, n_rounds: int) -> None:
        """Forget the rounds after the first `n_rounds`."""
        del self.normalisers[n_rounds:], self.heads[n_rounds:]


def boost(training: Training, n_rounds: int, callbacks: Sequence[Callback]) -> None:
    """Add up to `n_rounds` rounds. An interrupt loses none of those that are complete."""
    first, began = training.n_rounds, perf_counter()
    for callback in callbacks:
        callback.before_training(training, n_rounds)
    try:
        for t in range(first, first + n_rounds):
            for callback in callbacks:
                callback.before_round(training, t)
            add_round(training, t)
            report = RoundReport(t, evaluate(training), perf_counter() - began)
            if any([callback.after_round(training, report) for callback in callbacks]):  # noqa: C419 - all must see it
                break
    except BaseException:
        for callback in callbacks:
            callback.on_failure(training)
        raise
    for callback in callbacks:
        callback.after_training(training)


def add_round(training: Training, t: int) -> None:
    """One round, as in the paper."""
    config, collective, shard, rows = training.parameters, training.collective, training.shard, training.rows
    total_weight = float(collective.sum(np.array([shard.weight.sum()]))[0])

    network = training.family.draw(t)  # a recipe, no weights
    rows.kernels.forward(network)  # Z = X N_t
    norm = normaliser(total_weight, collective.sum(rows.kernels.moments(shard.weight)))
    rows.split(norm)  # P = softmax(tau normalise(Z)), in the place of Z

    def derivatives(at: slice) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return training.objective.derivatives(shard.y[at], rows.scores[at], shard.weight[at])

    A, B = (collective.sum(part) for part in rows.kernels.normal_equations(derivatives))
    head = solve_head(A, B, config.reg_lambda, config.reg_form)  # W = -(A + lambda I)^-1 B
    alpha = step_length(training, head, B) if training.objective.line_search else 1.0
    head = head * np.float32(training.learning_rate * alpha)
    rows.add(head)  # scores += eta alpha P W

    training.normalisers.append(norm)
    training.heads.append(head)
    for evaluation in training.evaluations:
        evaluation.rows.add_round(network, norm, head)


def step_length(training: Training, head: FloatArray, B: NDArray[np.float64]) -> float:
    """alpha = -g'd / d'Hd along d = P W, with the true Hessian of the loss; g'd = trace(B'W) is known already."""
    shard, rows = training.shard, training.rows
    parts: dict[int, float] = {}

    def bend(at: slice, d: FloatArray) -> None:
        parts[at.start] = training.objective.curvature(shard.y[at], rows.scores[at], shard.weight[at], d)

    rows.kernels.apply(head, bend)
    local = sum(parts[start] for start in sorted(parts))
    curvature = float(training.collective.sum(np.array([local]))[0])
    slope = float(np.vdot(B, head))
    if not (slope < 0.0 < curvature):
        return 1.0
    return min(-slope / curvature, LONGEST_STEP)


def evaluate(training: Training) -> Evaluations:
    """Each metric on each evaluation set, as of now."""
    values: Evaluations = {}
    for evaluation in training.evaluations:
        response = training.objective.response(evaluation.rows.scores)
        values[evaluation.name] = {
            m.name: m.evaluate(evaluation.shard.y, response, evaluation.shard.weight, training.collective)
            for m in training.metrics
        }
    return values

