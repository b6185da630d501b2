"""The round, and the loop around it. Everything else in this package exists so that this can be read.

W = -(P'HP + lambda I)^-1 P'G,   P = softmax(tau x normalise(X N_t)),   scores += eta alpha P W
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gbun.arrays import Array, host
from gbun.callbacks import Callback, Evaluations, Watch
from gbun.collectives import Collective, Courier
from gbun.collectives.wire import rounding
from gbun.config import Parameters
from gbun.data.features import Shard
from gbun.data.scaling import Scaling
from gbun.description import Description
from gbun.dtypes import HEAD, FloatArray
from gbun.ensemble import Ensemble, Rows, TrainingRows, step_of
from gbun.kernels import Step
from gbun.kernels.dispatch import Picker
from gbun.kernels.sampling import GramSample, row_curvature, whole_from_sample
from gbun.linear import LinearStart
from gbun.metrics.base import Metric
from gbun.model import Model
from gbun.networks import Family
from gbun.objectives import Objective
from gbun.rounds import Ahead, InTurn, Verdict, agreed, derivatives_of, evaluate, rounds_of
from gbun.solve import Normaliser, minimise_together, normaliser, solve_head

PLANNED = "rounds_planned"
"""What a checkpoint tells beside the parameters: how many rounds its training was to have."""


@dataclass
class Evaluation:
    """A named set of rows that is scored after each round."""

    name: str
    shard: Shard
    rows: Rows

    def answers(self, objective: Objective) -> tuple[FloatArray, FloatArray, FloatArray]:
        """What metrics compare: the targets, the model's response, and weights."""
        return self.shard.y, objective.response(host(self.rows.scores)), self.shard.weight


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
    total_weight: float  # of all workers' rows
    n_counting: int  # of all workers' rows, those that have a weight
    learning_rate: float
    normalisers: list[Normaliser] = field(default_factory=list)
    heads: list[FloatArray] = field(default_factory=list)
    best_round: int | None = None
    best_score: float | None = None
    mean_curvature: float | None = None  # the mean h of all rows, as of the last round: what the Gram's sample goes by
    n_known: int = 0  # rounds that a checkpoint has, and that are being taken over
    planned: int = 0  # rounds it will have unless it is stopped
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

    def take(self, ensemble: Ensemble, t: int) -> None:
        """A round of another ensemble, for the model and the evaluation sets."""
        for evaluation in self.evaluations:
            evaluation.rows.add_rounds([ensemble.steps[t]])
        self.normalisers.append(Normaliser(ensemble.centres[t], ensemble.factors[t]))
        self.heads.append(ensemble.heads[t])

    def normaliser(self, moments: FloatArray) -> Normaliser:
        """From the sums over all workers' rows."""
        return normaliser(self.total_weight, self.n_counting, moments)

    @property
    def rounding(self) -> float | None:
        """How exact the normal equations are, after their way to the root; None: as float64 is."""
        own, collective = self.rows.rounding, self.collective
        if own is None or not isinstance(collective, Courier):
            return own
        return max(own, rounding(collective.transport) * math.sqrt(collective.size))

    def sample_of(self, t: int) -> Picker | None:
        """Which rows the Hessian sums of a round are made of; None: all."""
        if self.sample.is_everything:
            return None
        if self.mean_curvature is None:
            self.note_curvature()
        return self.sample.of_round(t, self.mean_curvature or 0.0)

    def note_curvature(self) -> None:
        """The mean h at the scores as they are."""
        derivatives = derivatives_of(self)
        own = self.rows.kernels.sum_rows(lambda at: row_curvature(derivatives(at)[1]).sum()[None])
        self.mean_curvature = float(self.collective.sum(own)[0]) / self.n_counting

    def checkpoint(self) -> Model:
        """The model so far; unless it is that of a trial, it knows how many rounds it was to have."""
        model = self.model()
        if self.trial:
            return model
        parameters = {**model.description.parameters, PLANNED: self.planned}
        return Model(model.ensemble, replace(model.description, parameters=parameters))

    def keep_first(self, n_rounds: int) -> None:
        """Forget the rounds after the first `n_rounds`."""
        del self.normalisers[n_rounds:], self.heads[n_rounds:]


def boost(
    training: Training,
    n_rounds: int,
    callbacks: Sequence[Callback],
    others: Sequence[Training] = (),
    known: Ensemble | None = None,
) -> None:
    """Add up to `n_rounds` rounds. An interrupt loses none of those that are complete.

    `others` are boosted in step, on other parts of the same rows; callbacks then see means of what all of them report.
    Among workers they watch at the root, where sums come together; what they decide holds for all. `known` has the
    first of these rounds already, from a run that was cut short.
    """
    runs, collective = [training, *others], training.collective
    last = training.planned = training.n_rounds + n_rounds
    with Watch(training, callbacks if collective.rank == 0 else (), n_rounds) as watch:
        over = known is not None and catch_up(training, known.first(min(known.n_rounds, last)), watch)
        rounds = [rounds_of(run, last) for run in runs]
        while not over:
            t = training.n_rounds
            for each in rounds:
                each.begin(t)
            over, verdicts = agreed(training, *decided(runs, rounds, t, last, watch))
            if not over:
                for run, each, verdict in zip(runs, rounds, verdicts, strict=True):
                    complete(run, t, each, verdict)
        training.n_known = 0
        watch.end()
        keep_alike(training)


def catch_up(training: Training, known: Ensemble, watch: Watch) -> bool:
    """Take over rounds that are known, with callbacks seeing what they were worth as if they were new; True: enough."""
    first, training.n_known = training.n_rounds, known.n_rounds
    for t in range(first, known.n_rounds):
        over, _ = agreed(training, watch.hears(t - 1, evaluate(training)), [])
        if over:
            return True
        watch.before_round(training, t)
        training.take(known, t)
    take_rounds(training, known.steps[first:])
    return False


def take_rounds(training: Training, steps: Sequence[Step]) -> None:
    """Bring the scores of the training rows to where these rounds left them."""
    training.rows.add_rounds(steps[:-1])
    if steps and not training.sample.is_everything:
        training.note_curvature()  # as of the last round's beginning: what the next one's sample goes by
    training.rows.add_rounds(steps[-1:])


def decided(
    runs: Sequence[Training], rounds: Sequence[InTurn | Ahead], t: int, last: int, watch: Watch
) -> tuple[bool, list[Verdict]]:
    """Where sums come together: whether training is over before round t, and if not, what round t adds."""
    evaluations = [each.evaluations() for each in rounds]
    seen = [found for found in evaluations if found is not None]
    if not seen:  # it is decided elsewhere
        return False, [undecided(run, each) for run, each in zip(runs, rounds, strict=True)]
    if watch.hears(t - 1, means(seen)) or t == last:
        return True, [undecided(run, each) for run, each in zip(runs, rounds, strict=True)]
    verdicts = []
    for run, each in zip(runs, rounds, strict=True):
        watch.before_round(run, t)
        verdicts.append(solved(run, each))
    return False, verdicts


def solved(run: Training, each: InTurn | Ahead) -> Verdict:
    """W = -(P'HP + lambda I)^-1 P'G, from the sums over all rows."""
    sums, config = each.equations(), run.parameters
    A = sums.A * whole_from_sample(sums.curvature)
    head = solve_head(A, sums.B, config.reg_lambda, config.reg_form, run.rounding)
    curvature = float(np.sum(sums.curvature[0])) / run.n_counting
    numbers = np.array([run.learning_rate, curvature if curvature > 0.0 else run.mean_curvature or 0.0])
    return Verdict(numbers, head, *each.ahead())


def undecided(run: Training, each: InTurn | Ahead) -> Verdict:
    """A verdict that only says how large one is."""
    head = np.zeros((run.family.n_outputs, len(run.start)), dtype=HEAD)
    return Verdict(np.zeros(2), head, *each.ahead())


def add_round(training: Training, t: int) -> None:
    """One round of a training that nobody watches."""
    alone = InTurn(training, t + 1)
    alone.begin(t)
    complete(training, t, alone, solved(training, alone))


def complete(run: Training, t: int, each: InTurn | Ahead, verdict: Verdict) -> None:
    """scores += eta alpha P W, for all rows that are here."""
    (rate, run.mean_curvature), head = verdict.numbers.tolist(), verdict.head
    alpha = step_length(run, head) if run.objective.line_search else 1.0
    head = head * np.float32(rate * alpha)
    run.rows.add(head)  # with the next pass over the rows
    run.normalisers.append(each.norm)
    run.heads.append(head)
    for evaluation in run.evaluations:
        evaluation.rows.add_rounds([step_of(run.family.draw(t), each.norm, head)])
    each.follow(verdict.ahead, verdict.hints)


def keep_alike(training: Training) -> None:
    """Callbacks may have cut the model back, at the root: so do all."""
    best = [np.nan if v is None else float(v) for v in (training.best_round, training.best_score)]
    n_rounds, best_round, best_score = training.collective.broadcast(np.array([training.n_rounds, *best])).tolist()
    training.keep_first(int(n_rounds))
    training.best_round = None if np.isnan(best_round) else int(best_round)
    training.best_score = None if np.isnan(best_score) else best_score


def step_length(training: Training, head: FloatArray) -> float:
    """alpha that minimises the loss along d = P W, to within a tenth of the slope at 0.

    The slope phi'(alpha) = g'd is a sum over rows, and so is the curvature phi''(alpha) = d'Hd; both are taken at
    scores + alpha d. The loss is convex, so Newton's steps within the bracket of the slope's sign find it.
    """
    rows = training.rows
    d = rows.directions(head)

    def along(alpha: float) -> FloatArray:
        def part(at: slice) -> Array:
            return training.objective.along(rows.y[at], rows.scores[at] + alpha * d[at], rows.weight[at], d[at])

        return rows.kernels.sum_rows(part)

    return minimise_together(training.collective, along)


def means(evaluations: Sequence[Evaluations]) -> Evaluations:
    """The mean of each metric on each set."""
    return {
        name: {metric: float(np.mean([e[name][metric] for e in evaluations])) for metric in metrics}
        for name, metrics in evaluations[0].items()
    }
