"""What happens within a cell's own process: rows are read, then a learner does what it is asked to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction import FeatureHasher

from benchmarks.accuracy.wide.base import Learner, Settings, Task, Watch
from benchmarks.accuracy.wide.learners import LEARNERS
from benchmarks.accuracy.wide.sets import SETS, Rows, WideSet, held_out, judge
from benchmarks.speed.children import Built
from gbun.demo import peak_megabytes

HASHED_COLUMNS = 2**18  # of tokens, for learners that need columns


@dataclass(frozen=True)
class Cell:
    """A learner on a set."""

    folder: Path
    set_name: str
    learner_name: str
    threads: int

    @property
    def wide_set(self) -> WideSet:
        return SETS[self.set_name]

    @property
    def learner(self) -> Learner:
        return LEARNERS[self.learner_name]

    def start(self) -> tuple[Task, Rows, Rows]:
        """The task, rows to train on and rows to test on, once the learner has been imported and compiled."""
        train, test = self.wide_set.read(self.folder)
        task = Task(self.wide_set.metric, int(train[1].max()) + 1, self.threads)
        warm_up(self.learner, task)
        return task, train, test

    def columns(self, X: Any) -> Any:
        """Lists of tokens as counts in hashed columns, unless the learner reads tokens; other rows as they are."""
        if not isinstance(X, list) or self.learner.reads_tokens:
            return X
        hasher = FeatureHasher(HASHED_COLUMNS, input_type="string", dtype=np.float32, alternate_sign=False)
        return hasher.transform(X)


def warm_up(learner: Learner, task: Task) -> None:
    """A short fit on a few made-up rows, so that nobody's seconds have imports or compiled code being read in them."""
    n = 4 * max(task.n_classes, 50)
    X = sp.random(n, 64, density=0.2, format="csr", dtype=np.float32, random_state=0)
    learner.fit(task, (X, np.arange(n) % task.n_classes), learner.quick)(X)


@contextmanager
def trained(cell: Cell, settings: Settings) -> Iterator[Built]:
    """Units "fit", "predict" and "judge": all training rows, then the test rows."""
    task, train, test = cell.start()
    kept: dict[str, Any] = {}

    def fit() -> None:  # hashing tokens is part of it, as it is in gbun
        kept["answer"] = cell.learner.fit(task, (cell.columns(train[0]), train[1]), settings)

    def predict() -> None:
        kept["test"] = kept["answer"](cell.columns(test[0]))

    def evaluate() -> dict[str, Any]:
        return {"score": judge(task.metric, test[1], kept["test"]), "megabytes": peak_megabytes()}

    peak_megabytes(forget=True)  # reading texts may take more than what is left of it
    yield {"fit": fit, "predict": predict, "judge": evaluate}, {}


@contextmanager
def tried(cell: Cell, budget: float) -> Iterator[Built]:
    """A unit for each of the learner's candidates, by its number, which gives a validation score and what to refit.

    Together they have `budget` seconds: boosters look at the clock after each round.
    """
    task, train, _ = cell.start()
    fit, valid = held_out((cell.columns(train[0]), train[1]))
    spent = 0.0

    def attempt(settings: Settings) -> tuple[float, Settings]:
        nonlocal spent
        began = perf_counter()
        found = cell.learner.choose(task, fit, valid, settings, budget - spent)
        spent += perf_counter() - began
        return found

    yield {str(i): partial(attempt, settings) for i, settings in enumerate(cell.learner.candidates)}, {}


@contextmanager
def watched(cell: Cell, settings: Settings, watch: Watch) -> Iterator[Built]:
    """A unit "train" that gives the watch back: seconds from the beginning of `fit` and validation scores."""
    task, train, _ = cell.start()
    fit, valid = held_out(train)

    def train_on() -> Watch:
        running = replace(watch, began=perf_counter())
        cell.learner.watched(task, fit, valid, settings, running)  # type: ignore[attr-defined]
        return running

    yield {"train": train_on}, {}
