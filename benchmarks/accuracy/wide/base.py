"""What the parts ask of a learner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from time import perf_counter
from typing import Any, ClassVar

from benchmarks.accuracy.wide.candidates import CANDIDATES
from benchmarks.accuracy.wide.sets import Rows, WideSet, judge

Settings = dict[str, Any]
Answer = Callable[[Any], Any]
"""A fitted model: rows -> a score of class 1 where ranking is judged (AUC), otherwise the classes' numbers."""

MOST_ROUNDS, PATIENCE = 1000, 20  # of boosters that watch validation rows


@dataclass(frozen=True)
class Task:
    metric: str
    n_classes: int
    threads: int

    @property
    def ranks(self) -> bool:
        return self.metric == "auc"


class Learner:
    """One contestant."""

    name: ClassVar[str]
    kind: ClassVar[str]  # "ours", "trees" or "linear"
    package: ClassVar[str]
    quick: ClassVar[Settings] = {}  # makes a fit on a few rows short
    reads_tokens: ClassVar[bool] = False  # others get the tokens' counts in columns

    @property
    def candidates(self) -> list[Settings]:
        return CANDIDATES[self.name]

    def suits(self, wide_set: WideSet, part: str) -> bool:
        return True

    def fit(self, task: Task, train: Rows, settings: Settings) -> Answer:
        raise NotImplementedError

    def choose(self, task: Task, fit: Rows, valid: Rows, settings: Settings, seconds: float) -> tuple[float, Settings]:
        """The score on `valid` of a model of `fit`, and settings to train it with on all rows.

        Boosters find their number of rounds, and look at the clock after each.
        """
        return judge(task.metric, valid[1], self.fit(task, fit, settings)(valid[0])), settings


@dataclass
class Watch:
    """The validation score of each round with the seconds since the start; says when to stop.

    That is when the score has not improved for `patience` rounds, has reached `goal`, or `most_seconds` have passed.
    """

    patience: int = PATIENCE
    most_seconds: float = inf
    goal: float = inf
    seconds: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    began: float = field(default_factory=perf_counter)

    def add(self, score: float) -> bool:
        self.scores.append(float(score))
        self.seconds.append(perf_counter() - self.began)
        stale = len(self.scores) - 1 - self.best >= self.patience
        return stale or self.best_score >= self.goal or self.seconds[-1] >= self.most_seconds

    def reached(self, goal: float) -> float | None:
        """The seconds after which a score was at least this."""
        return next((s for s, score in zip(self.seconds, self.scores, strict=True) if score >= goal), None)

    @property
    def best_score(self) -> float:
        return max(self.scores)

    @property
    def best(self) -> int:
        """Where the highest score is, the first of equals."""
        return self.scores.index(self.best_score)
