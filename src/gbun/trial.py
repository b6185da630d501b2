"""How many rounds: what the user asks for, early stopping on an evaluation set, or a trial on part of the rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gbun.boosting import PLANNED_ROUNDS, Training, boost
from gbun.callbacks import Callback, EarlyStopping, Evaluations, RoundReport, callbacks_for_verbosity
from gbun.defaults import (
    DEFAULT_ROUNDS,
    FIRST_PATIENCE,
    FOLDS,
    LEAD,
    MAX_ROUNDS,
    MAX_TREE_ROUNDS,
    MIN_GAIN,
    MIN_GAIN_OF_START,
    MIN_ROWS_FOR_LOSS_ALONE,
    MIN_ROWS_FOR_ONE_SPLIT,
    MIN_ROWS_FOR_ONE_SPLIT_OF_TREES,
    MIN_ROWS_TO_HOLD_OUT,
    PATIENCE,
    RACE_ROUNDS,
    TREE_PATIENCE,
)
from gbun.kernels.threads import ThreadPool
from gbun.learner_choice import ResolvedSettings, candidate_learners, choose_learner, may_begin_linear
from gbun.learners import MixedFitter, MixedLearner
from gbun.metrics import get_metric, metrics_for
from gbun.model import Model
from gbun.objectives import Custom
from gbun.preparation import prepare
from gbun.problem import Problem, divide_rows
from gbun.rounds import evaluate, mean_evaluations


@dataclass(frozen=True)
class StoppingPolicy:
    """At most `n_rounds` rounds; fewer where the last evaluation set sees no improvement for `patience` rounds.

    `automatic`: the user asked for nothing, so a trial finds the number of rounds.
    """

    n_rounds: int
    patience: int | None = None
    automatic: bool = False
    needs_held_out_rows: bool = False


def choose_policy(problem: Problem, callbacks: Sequence[Callback]) -> StoppingPolicy:
    """Decide how many rounds at most, and who stops earlier."""
    parameters = problem.parameters
    n_rounds, patience = parameters.n_estimators, parameters.early_stopping_rounds
    has_stopper = any(isinstance(callback, EarlyStopping) for callback in callbacks)
    has_stopper = bool(problem.collective.broadcast(np.array([has_stopper]))[0])  # callbacks are those of the root
    automatic = n_rounds is None and patience is None and problem.initial is None and not has_stopper
    initial = None if problem.initial is None else problem.initial.ensemble.learner
    has_trees = (initial or choose_learner(problem, ResolvedSettings())).splits_columns
    if automatic and problem.totals.n_weighted >= MIN_ROWS_TO_HOLD_OUT:
        patience = TREE_PATIENCE if has_trees else PATIENCE
    if n_rounds is None:
        most = MAX_TREE_ROUNDS if has_trees else MAX_ROUNDS
        n_rounds = DEFAULT_ROUNDS if patience is None and not has_stopper else most
    needs_held_out_rows = patience is not None and (automatic or not problem.shards)
    if needs_held_out_rows and problem.initial is not None:
        raise ValueError(
            "early_stopping_rounds with init_model needs an evaluation set: rows held out now may be rows that the "
            "model has learnt from"
        )
    return StoppingPolicy(n_rounds, patience, automatic, needs_held_out_rows)


def count_divisions(problem: Problem, policy: StoppingPolicy) -> int:
    """Return how many times rows are divided into those to fit and those to judge by: several times for few rows."""
    if not policy.needs_held_out_rows:
        return 0
    has_trees = choose_learner(problem, ResolvedSettings()).splits_columns
    few = problem.totals.n_weighted < (MIN_ROWS_FOR_ONE_SPLIT_OF_TREES if has_trees else MIN_ROWS_FOR_ONE_SPLIT)
    return FOLDS if policy.automatic and problem.parameters.refit and few else 1


def hold_out(problem: Problem, policy: StoppingPolicy) -> list[NDArray[np.bool_]]:
    """Choose the rows to judge by, for each division."""
    parameters, rows = problem.parameters, problem.shard
    parts = problem.choose_held_out(several=count_divisions(problem, policy) > 1)
    if not parts and not policy.automatic:
        raise ValueError(
            f"validation_fraction={parameters.validation_fraction} of {rows.n_rows} rows leaves a side empty (equal "
            "rows stay together); pass an evaluation set, or train without early stopping"
        )
    return parts


@dataclass(frozen=True)
class TrialOutcome:
    """What a trial found: its own best round, the number of rounds for all rows, and what is settled by it."""

    n_rounds: int
    best_round: int | None
    best_score: float | None
    settings: ResolvedSettings

    @classmethod
    def from_checkpoint(cls, known: Model) -> TrialOutcome:
        """Return the outcome that a checkpoint remembers."""
        found = known.description
        n_rounds = found.parameters[PLANNED_ROUNDS]
        return cls(n_rounds, found.best_round, found.best_score, ResolvedSettings.of(known.ensemble))


@dataclass(frozen=True)
class Contender:
    """A training after its first rounds, and the metrics before each of them."""

    training: Training
    evaluations: list[Evaluations]
    loss: float


@dataclass(frozen=True)
class Trial:
    """Trainings on parts of the rows, judged by the others: they find out what is best for all rows.

    `parts` say which rows are held out. A part is copied when it is prepared.
    """

    problem: Problem
    parts: Sequence[NDArray[np.bool_]]
    policy: StoppingPolicy
    pool: ThreadPool
    callbacks: Sequence[Callback]

    def run(self) -> TrialOutcome:
        """Choose the learner, the start and its penalty, and the number of rounds."""
        outcome = self._run_from(ResolvedSettings(candidate_learners(self.problem)[0]))
        if not may_begin_linear(self.problem, outcome.settings.learner) or outcome.best_score is None:
            return outcome
        # a linear model that is better than all these rounds begins another training
        objective = self.problem.target.objective
        watched = metrics_for(self.problem.parameters.eval_metric, objective)[-1]
        to_beat = outcome.best_score if watched.name == objective.default_metric() else None
        runs = self._prepare_parts(replace(outcome.settings, init="linear or constant", to_beat=to_beat))
        stopper = self._add_stopper(runs)
        return self._boost(runs, stopper) if begins_better(runs, stopper, outcome.best_score) else outcome

    def _run_from(self, settings: ResolvedSettings) -> TrialOutcome:
        """Choose the learner, and the number of rounds from the start that these settings ask for."""
        if len(candidate_learners(self.problem)) > 1:
            first = self._prepare_part(self.parts[0], settings)
            stopper = self._add_stopper([first])
            n_rounds = min(RACE_ROUNDS, self.policy.n_rounds)
            raced = race(first, n_rounds, self.problem.held_out_name, [c for c in self.callbacks if c.during_race])
            if len(self.parts) == 1:
                return self._boost([raced.training], stopper, raced.evaluations)
            settings = ResolvedSettings(raced.training.learner)
            del first, raced  # their memory goes to the others
        runs = self._prepare_parts(settings)
        return self._boost(runs, self._add_stopper(runs))

    def _add_stopper(self, runs: Sequence[Training]) -> EarlyStopping:
        return add_stopper(self.problem, runs, self.policy, self.problem.held_out_name)

    def _prepare_parts(self, settings: ResolvedSettings) -> list[Training]:
        if len(self.parts) > 1:  # one start for all, chosen by all of them
            settings = ResolvedSettings.of(prepare(self.problem, self.pool, settings=settings))
        return [self._prepare_part(held, settings) for held in self.parts]

    def _prepare_part(self, held: NDArray[np.bool_], settings: ResolvedSettings) -> Training:
        fit, judge = divide_rows(self.problem.shard, held)
        name, n_parts = self.problem.held_out_name, len(self.parts)
        divided = self.problem.with_rows(fit, {name: judge})
        return prepare(divided, self.pool, judge=name, settings=settings, n_in_step=n_parts, trial=True)

    def _boost(
        self, runs: Sequence[Training], stopper: EarlyStopping, raced: Sequence[Evaluations] = ()
    ) -> TrialOutcome:
        """Boost until that helps no longer.

        The more rows there are to learn from, the longer rounds help: all rows get more rounds in proportion.
        """
        problem, run = self.problem, runs[0]
        verbosity = callbacks_for_verbosity(problem.parameters.verbose, "finding the number of rounds")
        callbacks = [*(c for c in self.callbacks if c.during_trial), *verbosity, stopper]
        boost(run, self.policy.n_rounds, callbacks, runs[1:], raced=raced)
        share = np.mean([each.rows.totals.weight for each in runs]) / problem.totals.weight
        n_rounds = min(self.policy.n_rounds, round(run.n_rounds / share))
        return TrialOutcome(n_rounds, run.best_round, run.best_score, ResolvedSettings.of(run))


def begins_better(runs: Sequence[Training], stopper: EarlyStopping, to_beat: float) -> bool:
    """Whether linear starts alone have a better metric, on average, than rounds without one had in the end."""
    if runs[0].start.linear is None:
        return False
    metric = next(m for m in runs[0].metrics if m.name in stopper.metrics)
    (values,) = mean_evaluations([evaluate(run) for run in runs]).values()
    ahead = (values[metric.name] - to_beat) * (1.0 if metric.higher_is_better else -1.0) > 0.0
    return bool(runs[0].collective.broadcast(np.array([ahead]))[0])


def race(mixed: Training, n_rounds: int, judge: str, callbacks: Sequence[Callback]) -> Contender:
    """Compare the first rounds of trees alone with those of trees and networks in turn; return who goes on.

    Networks cost more and stay only where they are clearly ahead. Both use the same rows, one after the other.
    """
    assert isinstance(mixed.learner, MixedLearner)
    assert isinstance(mixed.fitter, MixedFitter)
    alone = mixed.with_learner(mixed.learner.tree, mixed.fitter.trees)
    trees = run_first_rounds(alone, n_rounds, judge, callbacks)
    mixed.restart()
    both = run_first_rounds(mixed, n_rounds, judge, callbacks)
    ahead = both.loss < trees.loss - LEAD * abs(trees.loss)
    if mixed.collective.broadcast(np.array([ahead]))[0]:
        return both
    alone.restart()
    alone.replay()
    return trees


def run_first_rounds(run: Training, n_rounds: int, judge: str, callbacks: Sequence[Callback]) -> Contender:
    history = list[Evaluations]()
    boost(run, n_rounds, [*callbacks, Recorder(history)])
    metric = run.metrics[-1] if isinstance(run.objective, Custom) else get_metric(run.objective.default_metric())
    evaluation = next(e for e in run.evaluations if e.name == judge)
    value = metric.evaluate(*evaluation.targets_and_response(run.objective), run.collective)
    reports = history[: run.n_rounds] or [{}] * run.n_rounds  # callbacks are called at the root
    return Contender(run, reports, -value if metric.higher_is_better else value)


class Recorder(Callback):
    """Keeps the metrics before the first round and after each."""

    def __init__(self, history: list[Evaluations]) -> None:
        self.history = history

    def after_start(self, training: Training, report: RoundReport) -> None:
        self.history.append(report.evaluations)

    def after_round(self, training: Training, report: RoundReport) -> bool:
        self.history.append(report.evaluations)
        return False


def add_stopper(problem: Problem, runs: Sequence[Training], policy: StoppingPolicy, judge: str) -> EarlyStopping:
    """Make the callback that stops trainings early, and add the metrics it needs to them.

    A user who gives no patience does not wait for gains that nobody would notice. Where the user gives no metric
    either, classes of few rows are also judged by accuracy: it may still rise when the log loss begins to suffer from
    single rows that are wrong and certain.
    """
    parameters, target = problem.parameters, problem.target
    if (parameters.early_stopping_rounds is None or runs[0].trial) and any(
        np.isnan(evaluate(run)[judge][run.metrics[-1].name]) for run in runs
    ):  # judging rows lack a class: the metric of the objective is a number all the same
        for run in runs:
            run.metrics = [*run.metrics, get_metric(run.objective.default_metric())]
    metrics = [runs[0].metrics[-1].name]
    assert policy.patience is not None
    if parameters.early_stopping_rounds is not None:
        return EarlyStopping(policy.patience, metric=metrics)
    n_classes = 0 if target.classes is None or parameters.eval_metric is not None else len(target.classes)
    if problem.totals.n_weighted < MIN_ROWS_FOR_LOSS_ALONE * n_classes:
        metrics.append("accuracy")
        for run in runs:
            run.metrics = [*run.metrics, get_metric("accuracy")]
    return PatientStopping(policy.patience, metric=metrics, min_gain=MIN_GAIN)


class PatientStopping(EarlyStopping):
    """Waits longer the more rounds there are already, and for no gain that is nothing beside the start."""

    def after_start(self, training: Training, report: RoundReport) -> None:
        super().after_start(training, report)
        start = report.evaluations[self.watched_set][self.watched_metrics[0]]
        self.min_delta = 0.0 if math.isnan(start) else MIN_GAIN_OF_START * abs(start)

    def patience_after(self, n_rounds: int) -> float:
        return min(self.rounds, FIRST_PATIENCE + n_rounds / 5)
