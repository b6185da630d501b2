"""Learners that add one round at a time to a model of two or more classes, each built in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.paper.accuracy.sets import sets_of
from benchmarks.speed.children import Build, Built
from benchmarks.speed.learners import rounds_of
from benchmarks.speed.timing import timed
from gbun.config import Parameters
from gbun.kernels.threads import threads
from gbun.problem import Dataset
from gbun.training import prepare


def _rows(name: str, folder: Path | None) -> tuple[Any, Any, int]:
    """Training rows and the number of classes."""
    (X, y), _, _ = sets_of(folder)[name].read()
    return X, y, int(y.max()) + 1


def _begun(add: Callable[[], Any], setup: float) -> Built:
    """After the first round, in which structures are built and compiled code is read."""
    return {"round": add}, {"setup": setup, "first": timed(add)()}


@contextmanager
def gbun(name: str, folder: Path | None, size: int, n_threads: int) -> Iterator[Built]:
    """From a constant, as the paper has it: what a round costs does not depend on the start."""
    X, y, n_classes = _rows(name, folder)
    objective = "logistic" if n_classes == 2 else "softmax"
    with threads(n_threads) as pool:
        began = perf_counter()
        settings = Parameters(objective=objective, init="constant", n_neurons=size, n_estimators=1)
        training = prepare(settings, Dataset(X, y), {}, pool, task="classification")
        yield _begun(rounds_of(training), perf_counter() - began)


@contextmanager
def lightgbm(name: str, folder: Path | None, size: int, n_threads: int) -> Iterator[Built]:
    import lightgbm

    X, y, n_classes = _rows(name, folder)
    told = {"objective": "binary"} if n_classes == 2 else {"objective": "multiclass", "num_class": n_classes}
    settings = {**told, "num_leaves": size, "num_threads": n_threads, "verbosity": -1}
    began = perf_counter()
    booster = lightgbm.Booster(settings, lightgbm.Dataset(X, y, params=settings).construct())
    yield _begun(booster.update, perf_counter() - began)


@contextmanager
def xgboost(name: str, folder: Path | None, size: int, n_threads: int) -> Iterator[Built]:
    """Trees as deep as so many leaves want; bins are made with the data, where LightGBM makes them too."""
    import xgboost

    X, y, n_classes = _rows(name, folder)
    told = {"objective": "binary:logistic"}
    if n_classes > 2:
        told = {"objective": "multi:softprob", "num_class": str(n_classes)}
    began = perf_counter()
    data = xgboost.QuantileDMatrix(X, y, nthread=n_threads)
    settings = {**told, "tree_method": "hist", "max_depth": size.bit_length() - 1, "nthread": n_threads}
    booster, numbers = xgboost.Booster(settings, [data]), count()
    yield _begun(lambda: booster.update(data, next(numbers)), perf_counter() - began)


BUILDS: dict[str, Build] = {"gbun": gbun, "xgboost": xgboost, "lightgbm": lightgbm}
TITLES = {"gbun": "gbun", "xgboost": "XGBoost", "lightgbm": "LightGBM"}
