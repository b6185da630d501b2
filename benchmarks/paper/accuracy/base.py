"""What the comparison asks of a learner: a space to be tuned in, and training that stops when a watch says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np

from benchmarks.accuracy.wide.base import Settings, Watch
from benchmarks.accuracy.wide.sets import Rows

Answer = Callable[[Any], Any]
"""A trained model: rows -> scores of class 1 (AUC), classes' numbers (accuracy) or values (R2)."""

MOST_ROUNDS, PATIENCE = 1000, 30  # of every learner that watches validation rows


@dataclass(frozen=True)
class Task:
    """What is known of a set before anyone learns."""

    metric: str
    n_classes: int
    n_rows: int
    sparse: bool
    words: bool
    threads: int

    @property
    def regression(self) -> bool:
        return self.metric == "r2"

    @property
    def ranks(self) -> bool:
        return self.metric == "auc"


class Learner:
    """One contestant."""

    name: ClassVar[str]
    title: ClassVar[str]
    module: ClassVar[str]
    package: ClassVar[str]
    booster: ClassVar[bool] = True
    starts: ClassVar[int] = 1
    """The number of rounds that the first score a watch hears of belongs to."""

    @property
    def installed(self) -> bool:
        return find_spec(self.module) is not None

    def nearest(self, task: Task) -> Settings:
        """The point of its space that is next to its defaults."""
        raise NotImplementedError

    def space(self, trial: Any, task: Task) -> Settings:
        """Settings that an Optuna trial suggests."""
        raise NotImplementedError

    def train(
        self, task: Task, settings: Settings, rows: Rows, rounds: int, seed: int, watch: Watch, judging: Rows | None
    ) -> tuple[Answer, Settings]:
        """A model of at most `rounds` rounds, and settings that make it again.

        After each round the watch is told the score on the `judging` rows, 0 where there are none, and may say that
        it is enough.
        """
        raise NotImplementedError

    def rounds(self, index: int) -> int:
        """Of the model that a score of the watch belongs to."""
        return index + self.starts


def r2(mean_square: float, y: Any) -> float:
    return 1.0 - mean_square / float(np.var(y))
