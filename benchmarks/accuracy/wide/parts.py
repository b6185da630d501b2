"""The three parts: each measures a learner on a set and returns a finished contest. A learner has its own process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction import FeatureHasher

from benchmarks.accuracy.sets import WIDE_SETS, hold_out, score
from benchmarks.accuracy.wide.candidates import CANDIDATES
from benchmarks.internals import peak_megabytes
from benchmarks.peers.base import Learner, Rows, Run, Settings, Task, Watch
from benchmarks.peers.learners import CatBoost, Gbun, LightGBM, XGBoost
from benchmarks.peers.linear import Logistic, LogisticTfidf, VowpalWabbit
from benchmarks.timing import Built, Failed, Limits, Worker

_ALL: tuple[Learner, ...] = (Gbun(), LightGBM(), XGBoost(), CatBoost(), Logistic(), LogisticTfidf(), VowpalWabbit())
LEARNERS = {learner.name: learner for learner in _ALL}
HASHED_COLUMNS = 2**18  # of tokens, for learners that need columns
MEMORY = 12 * 10**9
GRACE = 0.1  # share of the budget by which a candidate may exceed it; boosters stop by themselves before
TARGET_SETS = ("rcv1_binary", "book_crossing", "news20_multi", "imdb")
TARGET_LEARNERS = ("lightgbm", "gbun")  # in this order: the first sets the goal
LIGHTGBM_DEFAULT_ROUNDS, LIGHTGBM_ROUNDS, GBUN_ROUNDS, GBUN_PATIENCE = 100, 300, 1000, 100
Finished = dict[str, Any]


Find = Callable[[str, str, str], Finished]
"""What is known of a part, a set and a learner."""


@dataclass(frozen=True)
class Contest:
    """A learner on a set, with `limit` seconds for an answer and `budget` seconds of tuning."""

    folder: Path
    set_name: str
    learner_name: str
    threads: int
    limit: float
    budget: float

    @property
    def learner(self) -> Learner:
        return LEARNERS[self.learner_name]

    @property
    def limits(self) -> Limits:
        return Limits(MEMORY, self.limit)

    def start(self) -> tuple[Task, Rows, Rows]:
        """The task, training and test rows. A short fit on generated rows comes first, so that imports and compiled
        code are in nobody's seconds."""
        train, test = WIDE_SETS[self.set_name].read(self.folder)
        task = Task(WIDE_SETS[self.set_name].metric, int(train[1].max()) + 1, self.threads)
        n = 4 * max(task.n_classes, 50)
        X = sp.random(n, 64, density=0.2, format="csr", dtype=np.float32, random_state=0)
        self.learner.fit(task, (X, np.arange(n) % task.n_classes), self.learner.quick)(X)
        return task, train, test

    def columns(self, X: Any) -> Any:
        """Lists of tokens as counts in hashed columns, unless the learner reads tokens; other rows as they are."""
        if not isinstance(X, list) or self.learner.reads_tokens:
            return X
        hasher = FeatureHasher(HASHED_COLUMNS, input_type="string", dtype=np.float32, alternate_sign=False)
        return hasher.transform(X)


@contextmanager
def build_fit(contest: Contest, settings: Settings) -> Iterator[Built]:
    """Units "fit", "predict" and "judge": all training rows, then the test rows."""
    task, train, test = contest.start()
    kept: dict[str, Any] = {}

    def fit() -> None:  # hashing tokens is part of it, as it is in gbun
        kept["predict"] = contest.learner.fit(task, (contest.columns(train[0]), train[1]), settings)

    def predict() -> None:
        kept["test"] = kept["predict"](contest.columns(test[0]))

    def judge() -> dict[str, Any]:
        return {"score": score(task.metric, test[1], kept["test"]), "megabytes": peak_megabytes()}

    peak_megabytes(reset=True)  # reading texts may take more than what is left of it
    yield {"fit": fit, "predict": predict, "judge": judge}, {}


@contextmanager
def build_search(contest: Contest, budget: float) -> Iterator[Built]:
    """A unit "attempt" for candidates, which returns a validation score and settings to refit.

    Together they have `budget` seconds: boosters look at the clock after each round.
    """
    task, train, _ = contest.start()
    fit, valid = hold_out((contest.columns(train[0]), train[1]))
    spent = 0.0

    def attempt(settings: Settings) -> tuple[float, Settings]:
        nonlocal spent
        began = perf_counter()
        found = contest.learner.choose(task, settings, fit, valid, Watch(most_seconds=budget - spent))
        spent += perf_counter() - began
        return found

    yield {"attempt": attempt}, {}


@contextmanager
def build_race(contest: Contest, rounds: int, settings: Settings, watch: Watch) -> Iterator[Built]:
    """A unit "train" that returns the watch: seconds from the beginning of `fit` and validation scores."""
    task, train, _ = contest.start()
    fit, valid = hold_out(train)

    def train_on() -> Watch:
        running = replace(watch, began=perf_counter())
        contest.learner.train(task, settings, fit, Run(running, valid, rounds))
        return running

    yield {"train": train_on}, {}


def fit_defaults(contest: Contest, find: Find) -> Finished:
    return refit(contest, {})


def tune(contest: Contest, find: Find) -> Finished:
    """The best of the candidates that the budget has time for, trained on all rows."""
    attempts = search(contest)
    judged = [attempt for attempt in attempts if attempt["validation"] is not None]
    if not judged:
        return {"attempts": attempts, "note": attempts[0]["note"]}
    best = max(judged, key=lambda attempt: attempt["validation"])  # the first of equals
    found = refit(contest, best["refit"])
    return {"validation": best["validation"], "settings": best["refit"], **found, "attempts": attempts}


def search(contest: Contest) -> list[dict[str, Any]]:
    """Candidates in turn until the budget is spent; one that fails costs its seconds and a new process."""
    attempts: list[dict[str, Any]] = []
    left, worker = contest.budget, None
    try:
        for settings in CANDIDATES[contest.learner_name]:
            if left <= 0:
                break
            row: dict[str, Any] = {"settings": settings, "validation": None}
            began = None
            try:
                worker = worker or Worker(build_search, contest, left, limits=contest.limits)
                began = perf_counter()
                _, found = worker.ask("attempt", left + GRACE * contest.budget, settings=settings)
                row["validation"], row["refit"] = found
            except Failed as failure:
                row["note"] = str(failure)
                worker = worker and worker.close()
            row["seconds"] = left if began is None else perf_counter() - began  # a failed start fails later too
            left -= row["seconds"]
            attempts.append(row)
    finally:
        if worker:
            worker.close()
    return attempts


def refit(contest: Contest, settings: Settings) -> Finished:
    found: Finished = {}
    try:
        with Worker(build_fit, contest, settings, limits=contest.limits) as worker:
            found["fit"], _ = worker.ask("fit")
            found["predict"], _ = worker.ask("predict")
            found |= worker.ask("judge")[1]
    except Failed as failure:
        found["note"] = str(failure)
    return found


def race(contest: Contest, find: Find) -> Finished:
    """Seconds until LightGBM's best validation score: reading, the linear start and evaluations are counted.

    There are two goals: the best that LightGBM has in the 100 rounds of its defaults, and in up to 300.
    """
    first = find("target", contest.set_name, "lightgbm")
    if contest.learner_name == "lightgbm":
        rounds, settings, watch = LIGHTGBM_ROUNDS, {}, Watch(LIGHTGBM_ROUNDS, contest.limit)
    else:
        rounds, settings = GBUN_ROUNDS, {"early_stopping_rounds": GBUN_PATIENCE}
        watch = Watch(GBUN_PATIENCE, contest.limit, first.get("best", inf))
    try:
        # It stops by itself when its time is up; the rest is for reading rows and for the last round.
        with Worker(build_race, contest, rounds, settings, watch, limits=Limits(MEMORY, 2 * contest.limit)) as worker:
            _, watch = worker.ask("train")
    except Failed as failure:
        return {"note": str(failure)}
    found = {"best": watch.best_score, "rounds": len(watch.scores), "curve": [watch.seconds, watch.scores]}
    if contest.learner_name == "lightgbm":
        goal, last = max(watch.scores[:LIGHTGBM_DEFAULT_ROUNDS]), watch.best_score
    elif "goal" not in first:
        return {**found, "note": "LightGBM has no score"}
    else:
        goal, last = first["goal"], first["best"]
    reached = watch.seconds_to(goal)
    note = {} if reached is not None else {"note": f"not reached in {watch.seconds[-1]:.0f} s"}
    return {**found, "goal": goal, "seconds": reached, "last_seconds": watch.seconds_to(last), **note}


PARTS: dict[str, Callable[[Contest, Find], Finished]] = {"defaults": fit_defaults, "tuned": tune, "target": race}


def list_learners(part: str, set_name: str, learners: list[str]) -> list[str]:
    """Those that have a cell in this part; LightGBM goes first where it sets the goal."""
    if part == "target":
        return [name for name in TARGET_LEARNERS if name in learners and set_name in TARGET_SETS]
    tfidf = WIDE_SETS[set_name].words and part == "defaults"  # when tuned, `logistic` chooses its scale itself
    return [name for name in learners if name != "logistic_tfidf" or tfidf]
