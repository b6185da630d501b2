"""Learners of `target`: a unit "round" that trains and a unit "score" that judges, each within a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize

from benchmarks.accuracy.problems import VALIDATION_SEED, given_split, news20_multi
from benchmarks.speed.children import Built
from benchmarks.speed.learners import plain, rounds_of
from benchmarks.speed.options import QUICK
from gbun.boosting import add_round, evaluate
from gbun.config import Parameters
from gbun.kernels.threads import threads
from gbun.training import Dataset, prepare


@dataclass(frozen=True)
class Problem:
    """Training rows, a fifth of which judge by `metric`; `settings` are gbun's, which gets `unit_rows` if so said."""

    name: str
    load: Callable[[], tuple[Any, Any]]
    metric: str
    settings: dict[str, Any]
    unit_rows: bool = False
    thin: bool = False  # a quick run's few rows

    def split(self) -> tuple[Any, Any, Any, Any]:
        """X to fit, X to judge, y to fit, y to judge; classes are numbered from 0."""
        X, y = self.load()
        if self.thin:
            X, y = X[::QUICK], y[::QUICK]
        codes = np.searchsorted(np.unique(y), y)
        return tuple(train_test_split(X, codes, test_size=0.2, random_state=VALIDATION_SEED, stratify=codes))

    @property
    def several(self) -> bool:
        return self.metric == "accuracy"


def read(folder: Path, name: str) -> tuple[Any, Any]:
    """All training rows of a set."""
    if name == "book_crossing":
        return sp.load_npz(folder / name / "X.npz"), np.load(folder / name / "y.npz")["explicit"]
    load = news20_multi if name == "news20_multi" else given_split(name)
    X, y, _, _ = load(folder)
    return X, y


@contextmanager
def gbun(problem: Problem, n_threads: int) -> Iterator[Built]:
    X, X_valid, y, y_valid = problem.split()
    if problem.unit_rows:
        X, X_valid = normalize(X), normalize(X_valid)
    parameters = Parameters(eval_metric=problem.metric, **problem.settings)
    with threads(n_threads) as pool:
        few = Dataset(X[:1000], y[:1000])
        add_round(prepare(parameters, few, {"valid": few}, pool, task="classification"), 0)  # reads compiled code
        began = perf_counter()
        watched = {"valid": Dataset(X_valid, y_valid)}
        training = prepare(parameters, Dataset(X, y), watched, pool, task="classification")
        facts = {"setup": perf_counter() - began}
        units = {"round": rounds_of(training), "score": lambda: evaluate(training)["valid"][problem.metric]}
        yield units, facts


@contextmanager
def lightgbm(problem: Problem, n_threads: int) -> Iterator[Built]:
    import lightgbm

    X, X_valid, y, y_valid = problem.split()
    settings: dict[str, Any] = {"objective": "binary", "metric": "auc"}
    if problem.several:
        settings = {"objective": "multiclass", "metric": "multi_error", "num_class": int(y.max()) + 1}
    settings |= {"num_threads": n_threads, "verbosity": -1}
    began = perf_counter()
    train = lightgbm.Dataset(plain(X), y, params=settings).construct()
    setup = perf_counter() - began
    booster = lightgbm.Booster(settings, train)
    booster.add_valid(lightgbm.Dataset(plain(X_valid), y_valid, reference=train).construct(), "valid")

    def judge() -> float:
        value = booster.eval_valid()[0][2]
        return 1.0 - value if problem.several else value

    yield {"round": booster.update, "score": judge}, {"setup": setup}


@contextmanager
def xgboost(problem: Problem, n_threads: int) -> Iterator[Built]:
    import xgboost

    X, X_valid, y, y_valid = problem.split()
    settings: dict[str, Any] = {"objective": "binary:logistic", "eval_metric": "auc"}
    if problem.several:
        settings = {"objective": "multi:softprob", "eval_metric": "merror", "num_class": int(y.max()) + 1}
    settings |= {"tree_method": "hist", "nthread": n_threads}
    began = perf_counter()
    train = xgboost.QuantileDMatrix(plain(X), y, nthread=n_threads)
    setup = perf_counter() - began
    valid = xgboost.DMatrix(plain(X_valid), y_valid, nthread=n_threads)
    booster, numbers = xgboost.Booster(settings, [train, valid]), count()

    def judge() -> float:  # from the margins it keeps: predicting all rounds anew takes many seconds
        value = float(booster.eval(valid).rsplit(":", 1)[1])
        return 1.0 - value if problem.several else value

    yield {"round": lambda: booster.update(train, next(numbers)), "score": judge}, {"setup": setup}
