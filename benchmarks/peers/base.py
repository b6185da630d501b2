"""What the benchmarks ask of a learner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

Settings = dict[str, Any]
Rows = tuple[Any, Any]
"""X, and y: class numbers from 0, or values."""
Predict = Callable[[Any], Any]
"""Rows -> scores of class 1 (metric "auc"), class probabilities ("probabilities"), otherwise classes or values."""

MOST_ROUNDS, PATIENCE = 1000, 20  # of boosters that watch validation rows


@dataclass(frozen=True)
class Task:
    """What is known of a data set before anyone learns. A regression has the metric "r2" and no classes.

    `fixed` are settings of all trainings beside the tuned ones; `memory_budget` is gbun's.
    """

    metric: str
    n_classes: int
    threads: int
    n_rows: int = 0
    sparse: bool = False
    words: bool = False
    fixed: Settings = field(default_factory=dict)
    memory_budget: str | None = None

    @property
    def regression(self) -> bool:
        return self.metric == "r2"


@dataclass
class Watch:
    """Record the validation score and the seconds of each round, and decide when to stop.

    Training stops after `patience` rounds without improvement, at the score `goal`, or after `most_seconds`.
    """

    patience: int = PATIENCE
    most_seconds: float = inf
    goal: float = inf
    seconds: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    began: float = field(default_factory=perf_counter)

    def add(self, score: float) -> bool:
        """Record a round; True means stop."""
        self.scores.append(float(score))
        self.seconds.append(perf_counter() - self.began)
        stale = len(self.scores) - 1 - self.best >= self.patience
        return stale or self.best_score >= self.goal or self.seconds[-1] >= self.most_seconds

    def seconds_to(self, goal: float) -> float | None:
        """Seconds until a score was at least `goal`."""
        return next((s for s, score in zip(self.seconds, self.scores, strict=True) if score >= goal), None)

    @property
    def best_score(self) -> float:
        return max(self.scores)

    @property
    def best(self) -> int:
        """Index of the highest score, the first of equals."""
        return self.scores.index(self.best_score)


@dataclass(frozen=True)
class Run:
    """A training of at most `rounds` rounds; without a seed the learner's default.

    After each round the watch gets the score on the `valid` rows (0 without them) and may stop the training.
    """

    watch: Watch
    valid: Rows | None = None
    rounds: int = MOST_ROUNDS
    seed: int | None = None

    def seed_as(self, name: str) -> Settings:
        return {} if self.seed is None else {name: self.seed}


class Learner:
    """One contestant."""

    name: ClassVar[str]
    title: ClassVar[str]
    kind: ClassVar[str]  # "ours", "trees" or "linear"
    module: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]  # whose versions its figures depend on, its distribution first
    first_round: ClassVar[int] = 1  # number of rounds that the first score of a watch belongs to
    quick: ClassVar[Settings] = {"n_estimators": 2}  # makes a fit on a few rows short
    reads_tokens: ClassVar[bool] = False  # others get counts of tokens in columns

    @property
    def booster(self) -> bool:
        return self.kind != "linear"

    def estimator(self, task: Task, settings: Settings) -> Any:
        """The learner's scikit-learn estimator, where it has one."""
        raise NotImplementedError

    def fit(self, task: Task, rows: Rows, settings: Settings) -> Predict:
        """Fit a model with the learner's own defaults, except for `settings`."""
        return predictor(task, self.estimator(task, settings).fit(*rows))

    def train(self, task: Task, settings: Settings, rows: Rows, run: Run) -> tuple[Predict, Settings]:
        """Train as `run` says; return the model and settings that make it again."""
        raise NotImplementedError

    def choose(self, task: Task, settings: Settings, fit: Rows, valid: Rows, watch: Watch) -> tuple[float, Settings]:
        """Return the best score on `valid` of a model of `fit`, and settings to train it with on all rows."""
        _, again = self.train(task, settings, fit, Run(watch, valid))
        return watch.best_score, {**again, "n_estimators": self.rounds(watch.best)}

    def rounds(self, index: int) -> int:
        """Number of rounds of the model that the watch's score `index` belongs to."""
        return index + self.first_round


def predictor(task: Task, model: Any) -> Predict:
    """The output of a scikit-learn estimator that the task's metric needs."""
    if task.metric == "probabilities":
        return lambda X: model.predict_proba(X)
    if task.metric == "auc":
        return lambda X: model.predict_proba(X)[:, 1]
    return lambda X: model.predict(X).ravel()  # CatBoost gives several classes as a column


def as_csr(X: Any) -> Any:
    """SciPy's older sparse class, which every version of the peers knows; no copy is made."""
    return sp.csr_matrix(X) if sp.issparse(X) else X


def score_of(task: Task, watched: str, value: float, valid: Rows | None) -> float:
    """The task's metric from the value of the metric that a peer watches; 0 without validation rows."""
    if valid is None:
        return 0.0
    if task.regression:
        return 1.0 - (value if watched == "l2" else value**2) / float(np.var(valid[1]))
    return 1.0 - value if "error" in watched else value
