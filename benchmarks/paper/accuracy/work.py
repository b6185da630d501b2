"""What happens within a cell's own process: rows are read once, then the learner does what it is asked to.

A request is a name of one of the functions below and its arguments, as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.accuracy.wide.base import Settings, Watch
from benchmarks.accuracy.wide.sets import Rows, take
from benchmarks.paper.accuracy.base import MOST_ROUNDS, PATIENCE, Learner, Task
from benchmarks.paper.accuracy.judging import judge, strata
from benchmarks.paper.accuracy.learners import LEARNERS
from benchmarks.paper.accuracy.sets import choosing, sets_of
from benchmarks.speed.children import Built

MOST_POINTS = 100  # of a curve that is kept
NEVER = 10**9  # rounds of patience


@dataclass(frozen=True)
class Bench:
    """A learner with its rows."""

    learner: Learner
    task: Task
    train: Rows
    test: Rows

    @cached_property
    def choosing(self) -> tuple[Rows, Rows]:
        return choosing(self.train, self.task.metric)

    def attempt(self, settings: Settings, seconds: float) -> dict[str, Any]:
        """Train on four fifths, judge on the fifth: its best score and what makes that model on all rows."""
        fit, valid = self.choosing
        watch = Watch(PATIENCE, seconds)
        _, again = self.learner.train(self.task, settings, fit, MOST_ROUNDS, 0, watch, valid)
        return {"score": watch.best_score, "settings": again, "rounds": self.learner.rounds(watch.best)}

    def refit(self, settings: Settings, rounds: int, seed: int, seconds: float) -> dict[str, Any]:
        """Train on all training rows in the order of a seed, at most so many seconds; judge on the test rows."""
        order = np.random.default_rng(seed).permutation(len(self.train[1]))
        watch = Watch(NEVER, seconds)
        answer, _ = self.learner.train(self.task, settings, take(self.train, order), rounds, seed, watch, None)
        judgement = judge(self.task.metric, self.test[1], answer(self.test[0]))
        trained = self.learner.rounds(len(watch.scores) - 1)
        return {**vars(judgement), "rounds": trained, "cut": watch.seconds[-1] >= seconds}

    def groups(self) -> NDArray[np.int8]:
        """Of the test rows, as the test of differences has them."""
        return strata(self.task.metric, self.test[1])

    def curve(self, settings: Settings, rounds: int, seconds: float, metric: str) -> dict[str, Any]:
        """The score on test rows after each round, with the seconds since training began; evaluations count in them."""
        watch = Watch(NEVER, seconds)
        self.learner.train(replace(self.task, metric=metric), settings, self.train, rounds, 0, watch, self.test)
        kept = np.unique(np.linspace(0, len(watch.scores) - 1, MOST_POINTS).round().astype(int))
        return {
            "best": watch.best_score,
            "best round": self.learner.rounds(watch.best),
            "rounds": [self.learner.rounds(int(i)) for i in kept],
            "seconds": [round(watch.seconds[i], 4) for i in kept],
            "scores": [round(watch.scores[i], 6) for i in kept],
        }


class Requests(dict[str, Callable[[], Any]]):
    """A unit of work for every request."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    def __missing__(self, request: str) -> Callable[[], Any]:
        name, arguments = json.loads(request)
        return partial(getattr(self.bench, name), **arguments)


def request(name: str, **arguments: Any) -> str:
    """
    >>> request("attempt", settings={"C": 1.0}, seconds=2.0)
    '["attempt", {"settings": {"C": 1.0}, "seconds": 2.0}]'
    """
    return json.dumps([name, arguments])


@contextmanager
def bench(set_name: str, folder: Path | None, learner_name: str, threads: int) -> Iterator[Built]:
    """Reading rows, imports and compiled code are in nobody's seconds."""
    found, learner = sets_of(folder)[set_name], LEARNERS[learner_name]
    with threadpool_limits(threads):
        train, test, metric = found.read()
        if sp.issparse(train[0]) != found.sparse:
            raise ValueError(f"rows of {set_name} must be sparse={found.sparse}, got {type(train[0]).__name__}")
        n_classes = 0 if found.regression else int(train[1].max()) + 1
        task = Task(metric, n_classes, len(train[1]), found.sparse, found.words, threads)
        warm_up(learner, task)
        facts = {
            "metric": metric,
            "classes": n_classes,
            "rows": len(train[1]),
            "test rows": len(test[1]),
            "features": train[0].shape[1],
            "task": task,
        }
        ready = Bench(learner, task, train, test)
        _ = ready.choosing  # divided before the clock runs
        yield Requests(ready), facts


def warm_up(learner: Learner, task: Task) -> None:
    """A short training on made-up rows of the same kind."""
    n = 4 * max(task.n_classes, 50)
    made = sp.random(n, 16, density=0.2, format="csr", dtype=np.float32, random_state=0)
    y = np.arange(n) % max(task.n_classes, 2)
    rows = (made if task.sparse else made.toarray(), y.astype(float) if task.regression else y)
    learner.train(task, {}, rows, 2, 0, Watch(), rows)
