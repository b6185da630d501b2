"""The search for the learner, the start and the number of rounds that are best for rows nobody learns from.

Learners that may suit the rows are compared by their first rounds, and the better one goes on. Where a linear model
alone is better than its best round, it begins another training.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from gbun.boosting import Training, boost
from gbun.callbacks import Callback, EarlyStopping, Evaluations, RoundReport
from gbun.defaults import FIRST_PATIENCE, LEAD, MIN_GAIN, MIN_GAIN_OF_START, MIN_ROWS_FOR_LOSS_ALONE, RACE_ROUNDS
from gbun.ensemble import Ensemble
from gbun.kernels.threads import ThreadPool
from gbun.learner_choice import ResolvedSettings, candidate_learners, may_begin_linear
from gbun.learners import MixedFitter, MixedLearner
from gbun.metrics import get_metric, metrics_for
from gbun.objectives import Custom
from gbun.problem import Problem
from gbun.rounds import evaluate, mean_evaluations

Result = TypeVar("Result")


@dataclass(frozen=True)
class StoppingPolicy:
    """At most `n_rounds` rounds; fewer where the last evaluation set sees no improvement for `patience` rounds.

    `automatic`: the user asked for nothing, so a trial finds the number of rounds.
    """

    n_rounds: int
    patience: int | None = None
    automatic: bool = False
    needs_held_out_rows: bool = False


@dataclass(frozen=True)
class Contender:
    """A training after its first rounds, and the metrics before each of them."""

    training: Training
    evaluations: list[Evaluations]
    loss: float


@dataclass(frozen=True)
class Search(ABC, Generic[Result]):
    """Trainings in step, judged by rows that they do not learn from; `judge` is the name of these rows."""

    problem: Problem
    policy: StoppingPolicy
    pool: ThreadPool
    callbacks: Sequence[Callback]
    judge: str

    n_runs = 1

    @abstractmethod
    def prepare_run(self, k: int, settings: ResolvedSettings) -> Training:
        """Prepare one of the trainings; what `settings` leave open is settled by the rows that judge."""

    @abstractmethod
    def watchers(self) -> list[Callback]:
        """Return the callbacks that see every round."""

    @abstractmethod
    def result(self, runs: Sequence[Training]) -> Result:
        """Return what is kept of trainings that have ended."""

    def prepare_runs(self, settings: ResolvedSettings) -> list[Training]:
        return [self.prepare_run(k, settings) for k in range(self.n_runs)]

    def known_rounds(self) -> Ensemble | None:
        """Return the first rounds of this very search, from a run that was cut short."""
        return None

    def run(self) -> Result:
        """Choose the learner, the start and its penalty, and the number of rounds."""
        known = self.known_rounds()
        runs, stopper, raced = self._begin(known)
        self._boost(runs, stopper, raced, known)
        first, result = runs[0], self.result(runs)
        best_score, learner, linear = first.best_score, first.learner, first.start.linear
        cut_short = first.collective.broadcast(np.array([stopper.was_cut_short]))[0]  # callbacks are those of the root
        del runs, first  # their memory goes to others
        if best_score is None or linear is not None or cut_short or not may_begin_linear(self.problem, learner):
            return result
        # a linear model that is better than all these rounds begins another training
        objective = self.problem.target.objective
        watched = metrics_for(self.problem.parameters.eval_metric, objective)[-1]
        to_beat = best_score if watched.name == objective.default_metric() else None
        runs = self.prepare_runs(ResolvedSettings(learner, "linear or constant", to_beat=to_beat))
        stopper = self._add_stopper(runs)
        if not begins_better(runs, self.judge, stopper, best_score):
            return result
        self._boost(runs, stopper)
        return self.result(runs)

    def _begin(self, known: Ensemble | None) -> tuple[list[Training], EarlyStopping, list[Evaluations]]:
        """Prepare the trainings and their stopper; where learners race, the winner has its first rounds already."""
        candidates, raced = candidate_learners(self.problem), list[Evaluations]()
        settings = ResolvedSettings(candidates[0])
        if known is not None or len(candidates) == 1:
            runs = self.prepare_runs(settings)
            return runs, self._add_stopper(runs), raced
        first = self.prepare_run(0, settings)
        stopper = self._add_stopper([first])
        n_rounds = min(RACE_ROUNDS, self.policy.n_rounds)
        winner = race(first, n_rounds, self.judge, [c for c in self.callbacks if c.during_race])
        if self.n_runs == 1:
            return [winner.training], stopper, winner.evaluations
        settings = ResolvedSettings(winner.training.learner)
        del first, winner
        runs = self.prepare_runs(settings)
        return runs, self._add_stopper(runs), raced

    def _boost(
        self,
        runs: Sequence[Training],
        stopper: EarlyStopping,
        raced: Sequence[Evaluations] = (),
        known: Ensemble | None = None,
    ) -> None:
        boost(runs[0], self.policy.n_rounds, [*self.watchers(), stopper], runs[1:], known, raced)

    def _add_stopper(self, runs: Sequence[Training]) -> EarlyStopping:
        return add_stopper(self.problem, runs, self.policy, self.judge)


def begins_better(runs: Sequence[Training], judge: str, stopper: EarlyStopping, to_beat: float) -> bool:
    """Whether linear starts alone have a better metric, on average, than rounds without one had in the end."""
    if runs[0].start.linear is None:
        return False
    metric = next(m for m in runs[0].metrics if m.name in stopper.metrics)
    values = mean_evaluations([evaluate(run) for run in runs])[judge]
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
