"""How many rounds: what the user asks for, early stopping on an evaluation set, or a trial on part of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gbun.boosting import PLANNED_ROUNDS, Training, boost
from gbun.callbacks import Callback, EarlyStopping, callbacks_for_verbosity
from gbun.defaults import (
    DEFAULT_ROUNDS,
    FOLDS,
    MAX_ROUNDS,
    MAX_TREE_ROUNDS,
    MIN_GAIN,
    MIN_ROWS_FOR_ONE_SPLIT,
    MIN_ROWS_TO_HOLD_OUT,
    PATIENCE,
    TREE_PATIENCE,
)
from gbun.kernels.threads import ThreadPool
from gbun.learners import AnyLearner
from gbun.metrics import get_metric
from gbun.model import Model
from gbun.preparation import ResolvedSettings, candidate_learners, choose_learner, prepare
from gbun.problem import Problem, divide_rows
from gbun.rounds import evaluate


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
    few = problem.totals.n_weighted < MIN_ROWS_FOR_ONE_SPLIT
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


def run_trial(
    problem: Problem,
    parts: Sequence[NDArray[np.bool_]],
    policy: StoppingPolicy,
    pool: ThreadPool,
    callbacks: Sequence[Callback],
) -> TrialOutcome:
    """Find out on parts of the rows what is best for all: the learner, the number of rounds, the start, its penalty.

    `parts` say which rows are held out. A part is copied when it is prepared.
    """
    learners = candidate_learners(problem)
    if len(learners) > 1:  # one division tells them apart
        tried = [try_learner(problem, parts[:1], policy, pool, callbacks, learner) for learner in learners]
        best = max(range(len(tried)), key=lambda i: tried[i][1])
        if len(parts) == 1:
            return tried[best][0]
        learners = [learners[best]]
    return try_learner(problem, parts, policy, pool, callbacks, learners[0])[0]


def try_learner(
    problem: Problem,
    parts: Sequence[NDArray[np.bool_]],
    policy: StoppingPolicy,
    pool: ThreadPool,
    callbacks: Sequence[Callback],
    learner: AnyLearner,
) -> tuple[TrialOutcome, float]:
    """Train a learner on parts of the rows; return what it needs, and how good it was: larger is better.

    The more rows there are to learn from, the longer rounds help: all rows get more rounds in proportion.
    """
    settings = ResolvedSettings(learner)
    if len(parts) > 1:  # one start for all, chosen by all of them
        settings = ResolvedSettings.of(prepare(problem, pool, settings=settings))
    name = problem.held_out_name
    runs = []
    for held in parts:
        fit, judge = divide_rows(problem.shard, held)
        divided = problem.with_rows(fit, {name: judge})
        runs.append(prepare(divided, pool, judge=name, settings=settings, n_in_step=len(parts), trial=True))
        del fit, judge, divided
    verbosity = callbacks_for_verbosity(problem.parameters.verbose, "finding the number of rounds")
    stopper = add_stopper(problem, runs, policy, name)
    boost(runs[0], policy.n_rounds, [*(c for c in callbacks if c.during_trial), *verbosity, stopper], runs[1:])
    value = next(iter(stopper.best_values.values())) if problem.collective.rank == 0 else 0.0
    share = np.mean([run.rows.totals.weight for run in runs]) / problem.totals.weight
    n_rounds = min(policy.n_rounds, round(runs[0].n_rounds / share))
    outcome = TrialOutcome(n_rounds, runs[0].best_round, runs[0].best_score, ResolvedSettings.of(runs[0]))
    return outcome, float(problem.collective.broadcast(np.array([value]))[0])


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
        return EarlyStopping(policy.patience)
    n_classes = 0 if target.classes is None or parameters.eval_metric is not None else len(target.classes)
    if problem.totals.n_weighted < MIN_ROWS_FOR_ONE_SPLIT * n_classes:
        metrics.append("accuracy")
        for run in runs:
            run.metrics = [*run.metrics, get_metric("accuracy")]
    return EarlyStopping(policy.patience, metric=metrics, min_gain=MIN_GAIN)
