"""The boosting loop, and the state of a training run; `gbun.rounds` has the round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gbun.arrays import to_host
from gbun.callbacks import Callback, CallbackRunner, Evaluations
from gbun.collectives import Collective, can_overlap
from gbun.config import Parameters
from gbun.data.features import Shard
from gbun.data.scaling import Scaling
from gbun.description import Description
from gbun.dtypes import FloatArray
from gbun.ensemble import Ensemble
from gbun.kernels.interface import RowSampler
from gbun.kernels.sampling import GramSample
from gbun.learners import AnyLearner, RoundFitter, Step
from gbun.metrics.base import Metric
from gbun.model import Model
from gbun.objectives import Objective
from gbun.pipelining import PipelinedRounds
from gbun.rounds import Rounds, SequentialRounds, apply_update, evaluate
from gbun.scored_rows import ScoredRows, Start, TrainingRows

PLANNED_ROUNDS = "rounds_planned"
"""The entry of a checkpoint's parameters that says how many rounds its training was to have."""
TRIAL = "trial"
"""The entry of a checkpoint's parameters that says that its training was a trial, on part of the rows."""


@dataclass
class Evaluation:
    """A named set of rows that is scored after each round."""

    name: str
    shard: Shard
    rows: ScoredRows

    def targets_and_response(self, objective: Objective) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return what metrics compare: the targets, the model's response, and weights."""
        return self.shard.y, objective.response(to_host(self.rows.scores)), self.shard.weight


@dataclass(frozen=True)
class Setup:
    """What a training does not change: how its model is made, apart from the rounds."""

    parameters: Parameters
    learner: AnyLearner
    scaling: Scaling
    objective: Objective
    start: Start
    description: Description
    sample: GramSample
    collective: Collective
    trial: bool = False  # a training on part of the rows, which finds out how many rounds help


@dataclass
class Training:
    """The state of a training run: its rows, and the rounds so far. Callbacks see it."""

    setup: Setup
    rows: TrainingRows
    evaluations: list[Evaluation]
    metrics: Sequence[Metric]
    learning_rate: float
    steps: list[Step] = field(default_factory=list)
    best_round: int | None = None
    best_score: float | None = None
    mean_curvature: float | None = None  # the mean h of the last round, by which the next sample is drawn
    n_resumed: int = 0  # rounds that a checkpoint has, while they are taken over
    planned: int = 0  # rounds it will have unless it is stopped
    _fitter: RoundFitter | None = None

    @property
    def parameters(self) -> Parameters:
        return self.setup.parameters

    @property
    def learner(self) -> AnyLearner:
        return self.setup.learner

    @property
    def fitter(self) -> RoundFitter:
        """The learner at work on these rows; it begins at the scores of the start, unless rounds are pipelined."""
        if self._fitter is None:  # no cached_property: before Python 3.12 its lock would be held while workers meet
            self._fitter = self.learner.begin(self.rows, self.collective)
        return self._fitter

    @property
    def objective(self) -> Objective:
        return self.setup.objective

    @property
    def start(self) -> Start:
        return self.setup.start

    @property
    def collective(self) -> Collective:
        return self.setup.collective

    @property
    def trial(self) -> bool:
        return self.setup.trial

    @property
    def n_rounds(self) -> int:
        return len(self.steps)

    def ensemble(self) -> Ensemble:
        return Ensemble(self.learner, self.setup.scaling, self.objective, self.start, tuple(self.steps))

    def model(self) -> Model:
        """Return the fitted model of the rounds so far."""
        return Model(
            self.ensemble(), replace(self.setup.description, best_round=self.best_round, best_score=self.best_score)
        )

    def checkpoint(self) -> Model:
        """Return the model so far, marked as that of a trial or with the number of rounds it was to have."""
        model = self.model()
        mark = {TRIAL: True} if self.trial else {PLANNED_ROUNDS: self.planned}
        parameters = {**model.description.parameters, **mark}
        return Model(model.ensemble, replace(model.description, parameters=parameters))

    def keep_first(self, n_rounds: int) -> None:
        """Forget the rounds after the first `n_rounds`."""
        del self.steps[n_rounds:]

    def sample_of(self, t: int) -> RowSampler | None:
        """Choose the rows that the Hessian sums of round t are made of; None: all."""
        sample = self.setup.sample
        if sample.is_complete:
            return None
        if self.mean_curvature is None:
            self.update_mean_curvature()
        return sample.sample_round(t, self.mean_curvature or 0.0)

    def update_mean_curvature(self) -> None:
        """Compute the mean h of all rows at the current scores."""
        self.mean_curvature = float(self.collective.sum(self.rows.curvature())[0]) / self.rows.totals.n_weighted

    def add_step(self, step: Step) -> None:
        """Add a round to the model and to the evaluation sets."""
        for evaluation in self.evaluations:
            evaluation.rows.add_rounds([step])
        self.steps.append(step)

    def with_learner(self, learner: AnyLearner, fitter: RoundFitter) -> Training:
        """Return a training of another learner on the same rows; only one of both can be boosted at a time."""
        setup = replace(self.setup, learner=learner)
        return replace(self, setup=setup, steps=[], _fitter=fitter)

    def restart(self) -> None:
        """Bring all scores back to the start."""
        self.rows.restart()
        self.fitter.restart()
        for evaluation in self.evaluations:
            evaluation.rows.restart()
        self.mean_curvature = None

    def replay(self) -> None:
        """Bring all scores from the start to where the rounds so far leave them."""
        for evaluation in self.evaluations:
            evaluation.rows.add_rounds(self.steps)
        self.take_rounds(self.steps)

    def take_rounds(self, steps: Sequence[Step]) -> None:
        """Bring the scores of the training rows, and the learner, to where these rounds left them."""
        if steps and not self.learner.data_independent:
            self.fitter.take_rounds([step.partition for step in steps])  # it begins at the scores of the start
        self.rows.add_rounds(steps[:-1])
        if steps and not self.setup.sample.is_complete:
            self.update_mean_curvature()  # at the beginning of the last round: the next one's sample depends on it
        self.rows.add_rounds(steps[-1:])


def boost(
    training: Training,
    n_rounds: int,
    callbacks: Sequence[Callback],
    in_step: Sequence[Training] = (),
    known: Ensemble | None = None,
    raced: Sequence[Evaluations] = (),
) -> None:
    """Add up to `n_rounds` rounds. An interrupt loses none of those that are complete.

    Callbacks are those of the root, where sums come together; what they decide holds for all workers. They see
    `training`, and the mean of its evaluations and those of the trainings `in_step`, on other parts of the same rows.
    `known` has the first of these rounds already, from a run that was cut short. `raced` has the metrics before each
    round that the training has already, of which callbacks do not know yet.
    """
    first = training.n_rounds - len(raced)
    runs, last = [training, *in_step], first + n_rounds
    training.planned = last
    with CallbackRunner(training, callbacks if training.collective.rank == 0 else (), n_rounds, first) as runner:
        over = known is not None and catch_up(training, known.first(min(known.n_rounds, last)), runner)
        over = over or report_race(training, first, raced, runner)
        rounds = make_rounds(runs, last)
        while not over:
            t = training.n_rounds
            updates = rounds.decide_round(t, runner)
            if updates is None:
                break
            for run, update in zip(runs, updates, strict=True):
                apply_update(run, update)
            rounds.finish_round(updates)
        training.n_resumed = 0
        runner.end()
        synchronize_result(training)


def make_rounds(runs: Sequence[Training], last: int) -> Rounds:
    """Choose how the rounds before `last` are computed: pipelined where learner and collective permit it."""
    if can_overlap(runs[0].collective) and runs[0].learner.data_independent:
        return PipelinedRounds(runs, last)
    return SequentialRounds(runs, last)


def catch_up(training: Training, known: Ensemble, callbacks: CallbackRunner) -> bool:
    """Take over rounds that are known; callbacks see them as if they were new. Return whether they end the training."""
    first, training.n_resumed = training.n_rounds, known.n_rounds
    for t in range(first, known.n_rounds):
        over = callbacks.report(t - 1, evaluate(training))
        if training.collective.broadcast(np.array([over]))[0]:
            return True
        callbacks.before_round(training, t)
        training.add_step(known.steps[t])
    training.take_rounds(known.steps[first:])
    return False


def report_race(training: Training, first: int, raced: Sequence[Evaluations], callbacks: CallbackRunner) -> bool:
    """Tell callbacks of rounds that the training has already; forget those after the one at which they end it."""
    steps, over = training.steps, False
    for t, evaluations in enumerate(raced, first):
        training.steps = steps[:t]  # callbacks see what they would have seen
        over = callbacks.report(t - 1, evaluations)
        if over:
            break
        callbacks.before_round(training, t)
    n_rounds, over = training.collective.broadcast(np.array([len(training.steps) if over else len(steps), over]))
    training.steps = steps[: int(n_rounds)]
    return bool(over)


def synchronize_result(training: Training) -> None:
    """Cut the model back on all workers as callbacks did at the root."""
    best = [np.nan if v is None else float(v) for v in (training.best_round, training.best_score)]
    n_rounds, best_round, best_score = training.collective.broadcast(np.array([training.n_rounds, *best])).tolist()
    training.keep_first(int(n_rounds))
    training.best_round = None if np.isnan(best_round) else int(best_round)
    training.best_score = None if np.isnan(best_score) else best_score
