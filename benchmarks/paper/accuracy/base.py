"""What the comparison asks of a learner: a space to be tuned in, and training that stops when a watch says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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

    also: ClassVar[tuple[str, ...]] = ()
    """Other packages that its figures depend on."""

    def nearest(self, task: Task) -> Settings:
        """The point of its space that is next to its defaults."""
        raise NotImplementedError

    def space(self, trial: Any, task: Task) -> Settings:
        """Settings that an Optuna trial suggests."""
        raise NotImplementedError

    def fixed(self, sparse: bool) -> Settings:
        """What all its trainings on such rows have beside the settings that are tuned."""
        return {}

    def spaces(self) -> dict[str, Any]:
        """All that a trial may be asked for, as JSON can write it: what a study is about."""
        found: dict[str, Any] = {}
        for sparse in (False, True):
            asked = Asked()
            self.space(asked, Task("accuracy", 3, 1000, sparse, sparse, 1))
            found["sparse" if sparse else "dense"] = asked.told
        return found

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


class Asked:
    """In place of a trial: remembers what it is asked for, and gives the first there is."""

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}

    def suggest_float(self, name: str, low: float, high: float, **more: Any) -> float:
        self.told[name] = [low, high, more]
        return low

    def suggest_int(self, name: str, low: int, high: int, **more: Any) -> int:
        self.told[name] = [low, high, more]
        return low

    def suggest_categorical(self, name: str, choices: list[Any]) -> Any:
        self.told[name] = choices
        return choices[0]


def r2(mean_square: float, y: Any) -> float:
    return 1.0 - mean_square / float(np.var(y))
