"""Learners that add one boosting round at a time, each built within a worker of its own (see children.py).

All fit a logistic loss, or cross-entropy where there are more than two classes, on the same rows with the same number
of threads. Each has two rounds before it is timed: LightGBM and XGBoost build structures in the first, gbun's compiled
code is read from disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from time import perf_counter
from typing import Any

import scipy.sparse as sp

from benchmarks.speed.children import Built
from benchmarks.speed.data import Source
from benchmarks.speed.timing import timed
from benchmarks.speed.unfused import Unfused, check
from gbun.boosting import Training, add_round
from gbun.config import Parameters
from gbun.demo import peak_megabytes
from gbun.kernels.threads import Threads, threads
from gbun.problem import Dataset
from gbun.training import prepare

WARM_UP = 2  # rounds
FEW = 1000  # rows that are enough to read compiled code
DEFAULT: Mapping[str, float | None] = {"round": None}


@contextmanager
def gbun(
    source: Source, settings: Mapping[str, Any], n_threads: int, gram_rows: Mapping[str, float | None] = DEFAULT
) -> Iterator[Built]:
    """A unit for each value of gram_rows, by name. They share one n x K buffer: what a round costs does not depend on
    the rounds before it, and at K = 1024 the buffer is 5 GB."""
    X, y = source.load()
    settings = {"objective": "logistic" if y.max() <= 1 else "softmax", **settings}
    with threads(n_threads) as pool:
        _read_compiled_code(X, y, settings, pool)
        before = peak_megabytes(forget=True)
        trainings: dict[str, Training] = {}
        facts: dict[str, Any] = {"megabytes before": before, "X megabytes": megabytes(X)}
        for name, share in gram_rows.items():
            began = perf_counter()
            training = prepare(parameters({"gram_rows": share, **settings}), Dataset(X, y), {}, pool)
            facts.setdefault("setup", perf_counter() - began)
            first = next(iter(trainings.values()), training)
            trainings[name] = training if first is training else replace(first, sample=training.sample)
            del training
        plan = first.rows.plan
        facts["plan"] = f"{'n x K kept' if plan.hold else 'made again'}, {plan.form}, {plan.n_threads} threads"
        units = {name: rounds_of(training) for name, training in trainings.items()}
        yield _warmed_up(units, facts)


def parameters(settings: Mapping[str, Any]) -> Parameters:
    return Parameters(**{"objective": "logistic", **settings})


def rounds_of(training: Training) -> Callable[[], None]:
    numbers = count()
    return lambda: add_round(training, next(numbers))


def _read_compiled_code(X: Any, y: Any, settings: Mapping[str, Any], pool: Threads) -> None:
    training = prepare(parameters({**settings, "memory_budget": None}), Dataset(X[:FEW], y[:FEW]), {}, pool)
    add_round(training, 0)


@contextmanager
def lightgbm(source: Source, num_leaves: int, n_threads: int) -> Iterator[Built]:
    import lightgbm

    X, y = source.load()
    before = peak_megabytes(forget=True)
    settings = {"num_leaves": num_leaves, "num_threads": n_threads, "verbosity": -1}
    settings |= _objective("binary", "multiclass", y)
    began = perf_counter()
    data = lightgbm.Dataset(plain(X), y, params=settings).construct()
    setup = perf_counter() - began
    booster = lightgbm.Booster(settings, data)
    yield _warmed_up({"round": booster.update}, {"setup": setup, "megabytes before": before})


@contextmanager
def xgboost(source: Source, max_depth: int, n_threads: int) -> Iterator[Built]:
    """Bins are made with the data (QuantileDMatrix), where LightGBM makes them too."""
    import xgboost

    X, y = source.load()
    before = peak_megabytes(forget=True)
    began = perf_counter()
    data = xgboost.QuantileDMatrix(plain(X), y, nthread=n_threads)
    setup = perf_counter() - began
    settings = {"tree_method": "hist", "max_depth": max_depth, "nthread": n_threads}
    settings |= _objective("binary:logistic", "multi:softprob", y)
    booster, numbers = xgboost.Booster(settings, [data]), count()
    units = {"round": lambda: booster.update(data, next(numbers))}
    yield _warmed_up(units, {"setup": setup, "megabytes before": before})


@contextmanager
def unfused(source: Source, n_neurons: int, n_threads: int) -> Iterator[Built]:
    X, y = source.load()
    with threads(n_threads) as pool:
        check(X[:FEW], y[:FEW], pool)
        before = peak_megabytes(forget=True)
        began = perf_counter()
        prototype = Unfused(X, y, n_neurons, pool)
        setup = perf_counter() - began
        yield _warmed_up({"round": prototype.add_round}, {"setup": setup, "megabytes before": before})


def _warmed_up(units: Mapping[str, Callable[[], Any]], facts: dict[str, Any]) -> Built:
    """The units after their first rounds, of which the very first is a fact too, and one that asks for memory."""
    first = [timed(unit)() for unit in units.values()]
    for _ in range(WARM_UP - 1):
        for unit in units.values():
            unit()
    return {**units, "memory": peak_megabytes}, {**facts, "first round": first[0]}


def _objective(of_two: str, of_many: str, y: Any) -> dict[str, Any]:
    n_classes = int(y.max()) + 1
    return {"objective": of_two} if n_classes <= 2 else {"objective": of_many, "num_class": n_classes}


def plain(X: Any) -> Any:
    """scipy's older sparse class, which every version of the peers knows; no copy is made."""
    return sp.csr_matrix(X) if sp.issparse(X) else X


def megabytes(X: Any) -> float:
    """What the caller's rows take."""
    parts = (X.data, X.indices, X.indptr) if sp.issparse(X) else (X,)
    return sum(part.nbytes for part in parts) / 2**20
