"""How many rounds: what the user asks for, early stopping on an evaluation set, or a trial on part of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gbun.boosting import PLANNED_ROUNDS, Training
from gbun.callbacks import Callback, EarlyStopping, callbacks_for_verbosity
from gbun.defaults import (
    DEFAULT_ROUNDS,
    FOLDS,
    MIN_ROWS_FOR_ONE_SPLIT,
    MIN_ROWS_FOR_ONE_SPLIT_OF_TREES,
    MIN_ROWS_TO_HOLD_OUT,
    PATIENCE,
    TREE_PATIENCE,
    most_rounds,
)
from gbun.ensemble import Ensemble
from gbun.learner_choice import ResolvedSettings, choose_learner
from gbun.model import Model
from gbun.preparation import prepare
from gbun.problem import Problem, divide_rows
from gbun.search import Search, StoppingPolicy


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
        most = most_rounds(has_trees, problem.target.objective.n_outputs(problem.target.y))
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
class Trial(Search[TrialOutcome]):
    """A search on part of the rows, judged by the others: it finds out what is best for all rows.

    `parts` say which rows are held out. A part is copied when it is prepared.
    """

    parts: Sequence[NDArray[np.bool_]]

    @property
    def n_runs(self) -> int:  # type: ignore[override]
        return len(self.parts)

    def prepare_runs(self, settings: ResolvedSettings) -> list[Training]:
        if self.n_runs > 1:  # one start for all, chosen by all of them
            settings = ResolvedSettings.of(prepare(self.problem, self.pool, settings=settings))
        return super().prepare_runs(settings)

    def prepare_run(self, k: int, settings: ResolvedSettings) -> Training:
        fit, judge = divide_rows(self.problem.shard, self.parts[k])
        divided = self.problem.with_rows(fit, {self.judge: judge})
        return prepare(divided, self.pool, judge=self.judge, settings=settings, n_in_step=self.n_runs, trial=True)

    def watchers(self) -> list[Callback]:
        verbosity = callbacks_for_verbosity(self.problem.parameters.verbose, "finding the number of rounds")
        return [*(c for c in self.callbacks if c.during_trial), *verbosity]

    def result(self, runs: Sequence[Training]) -> TrialOutcome:
        """The more rows there are to learn from, the longer rounds help: all rows get more rounds in proportion."""
        run = runs[0]
        share = np.mean([each.rows.totals.weight for each in runs]) / self.problem.totals.weight
        n_rounds = min(self.policy.n_rounds, round(run.n_rounds / share))
        return TrialOutcome(n_rounds, run.best_round, run.best_score, ResolvedSettings.of(run))


@dataclass(frozen=True)
class JudgedTraining(Search[Model]):
    """A search on all rows of a problem, judged by its last evaluation set: it ends with the model itself.

    `known` is a checkpoint of it.
    """

    known: Model | None = None

    def known_rounds(self) -> Ensemble | None:
        return None if self.known is None else self.known.ensemble

    def prepare_run(self, k: int, settings: ResolvedSettings) -> Training:
        known = self.known if settings.init is None else None  # another start begins anew
        return prepare(self.problem, self.pool, judge=self.judge, known=known, settings=settings)

    def watchers(self) -> list[Callback]:
        return [*self.callbacks, *callbacks_for_verbosity(self.problem.parameters.verbose)]

    def result(self, runs: Sequence[Training]) -> Model:
        return runs[0].model()
