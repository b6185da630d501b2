"""Learners that add one boosting round at a time, or predict many rows, each built within a worker of its own.

All fit a logistic loss, or cross-entropy for more than two classes, on the same rows with the same number of threads.
Each has two rounds before it is timed: LightGBM and XGBoost build structures in the first, gbun's compiled code is read
from disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from time import perf_counter
from typing import Any

import scipy.sparse as sp

from benchmarks.data import Source
from benchmarks.internals import Training, add_round, peak_megabytes, prepare_training, thread_pool
from benchmarks.peers.base import as_csr
from benchmarks.timing import Built, make_unit
from gbun import Dataset, Parameters, train

WARM_UP = 2  # rounds
FEW = 1000  # rows that are enough to read compiled code
TRAINING_SHARE = 6  # a sixth of the rows trains, the others are predicted


@contextmanager
def gbun(
    source: Source, settings: Mapping[str, Any], n_threads: int, gram_rows: Mapping[str, float | None] = {"round": None}
) -> Iterator[Built]:
    """A unit for each value of gram_rows, by name. They share one n x K buffer: what a round costs does not depend on
    the rounds before it, and at K = 1024 the buffer is 5 GB."""
    X, y = source.load()
    settings = {"objective": "logistic" if y.max() <= 1 else "softmax", **settings}
    with thread_pool(n_threads) as pool:
        few = Parameters(**{**settings, "memory_budget": None})
        add_round(prepare_training(few, Dataset(X[:FEW], y[:FEW]), pool), 0)  # reads compiled code
        parts = (X.data, X.indices, X.indptr) if sp.issparse(X) else (X,)
        facts: dict[str, Any] = {"megabytes before": peak_megabytes(reset=True)}
        facts["X megabytes"] = sum(part.nbytes for part in parts) / 2**20
        trainings: dict[str, Training] = {}
        for name, share in gram_rows.items():
            began = perf_counter()
            training = prepare_training(Parameters(**{"gram_rows": share, **settings}), Dataset(X, y), pool)
            facts.setdefault("setup", perf_counter() - began)
            first = next(iter(trainings.values()), training)
            trainings[name] = replace(first, setup=replace(first.setup, sample=training.setup.sample))
            del training
        plan = first.rows.plan
        facts["plan"] = f"{'n x K kept' if plan.hold else 'made again'}, {plan.form}, {plan.n_threads} threads"
        units = {name: partial(_add_next_round, training, count()) for name, training in trainings.items()}
        yield _warm_up(units, facts)


def _add_next_round(training: Training, numbers: Iterator[int]) -> None:
    add_round(training, next(numbers))


@contextmanager
def lightgbm(source: Source, num_leaves: int, n_threads: int) -> Iterator[Built]:
    import lightgbm

    X, y = source.load()
    settings = {"num_leaves": num_leaves, "num_threads": n_threads, "verbosity": -1}
    settings |= _objective("binary", "multiclass", y)
    with _clock_setup() as facts:
        data = lightgbm.Dataset(as_csr(X), y, params=settings).construct()
    yield _warm_up({"round": lightgbm.Booster(settings, data).update}, facts)


@contextmanager
def xgboost(source: Source, max_depth: int, n_threads: int) -> Iterator[Built]:
    """Bins are made with the data (QuantileDMatrix), where LightGBM makes them too."""
    import xgboost

    X, y = source.load()
    settings = {"tree_method": "hist", "max_depth": max_depth, "nthread": n_threads}
    settings |= _objective("binary:logistic", "multi:softprob", y)
    with _clock_setup() as facts:
        data = xgboost.QuantileDMatrix(as_csr(X), y, nthread=n_threads)
    booster, numbers = xgboost.Booster(settings, [data]), count()
    yield _warm_up({"round": lambda: booster.update(data, next(numbers))}, facts)


@contextmanager
def unfused(source: Source, n_neurons: int, n_threads: int) -> Iterator[Built]:
    from benchmarks.speed.unfused import Unfused, check

    X, y = source.load()
    with thread_pool(n_threads) as pool:
        check(X[:FEW], y[:FEW], pool)
        with _clock_setup() as facts:
            prototype = Unfused(X, y, n_neurons, pool)
        yield _warm_up({"round": prototype.add_round}, facts)


@contextmanager
def _clock_setup() -> Iterator[dict[str, Any]]:
    """Facts: the peak of memory before the block, and its seconds."""
    facts, began = {"megabytes before": peak_megabytes(reset=True)}, perf_counter()
    yield facts
    facts["setup"] = perf_counter() - began


def _warm_up(units: Mapping[str, Callable[[], Any]], facts: dict[str, Any]) -> Built:
    """The units after their first rounds, and one that asks for memory; the seconds of the first round are a fact."""
    first = [make_unit(unit)() for unit in units.values()]
    for _ in range(WARM_UP - 1):
        for unit in units.values():
            unit()
    return {**units, "memory": peak_megabytes}, {**facts, "first round": first[0]}


def _objective(of_two: str, of_many: str, y: Any) -> dict[str, Any]:
    n_classes = int(y.max()) + 1
    return {"objective": of_two} if n_classes <= 2 else {"objective": of_many, "num_class": n_classes}


@contextmanager
def predict_rows(source: Source, learner: str, rounds: int, n_threads: int) -> Iterator[Built]:
    """A unit that predicts all rows but a sixth, with a model of that sixth."""
    X, y = source.load()
    n = X.shape[0] // TRAINING_SHARE
    X, y, X_new = X[:n], y[:n], X[n:]
    if learner == "gbun":
        settings = {"objective": "logistic", "n_neurons": 64, "n_jobs": n_threads}
        model = train(settings, (X, y), rounds, task="classification")
        model.predict_proba(X_new[:FEW], n_jobs=n_threads)
        predict = partial(model.predict_proba, X_new, n_jobs=n_threads)
    elif learner == "LightGBM":
        import lightgbm

        settings = {"objective": "binary", "num_leaves": 64, "num_threads": n_threads, "verbosity": -1}
        model = lightgbm.train(settings, lightgbm.Dataset(as_csr(X), y), rounds)
        predict = partial(model.predict, as_csr(X_new), num_threads=n_threads)
    else:
        import xgboost

        settings = {"objective": "binary:logistic", "tree_method": "hist", "max_depth": 6, "nthread": n_threads}
        model = xgboost.train(settings, xgboost.QuantileDMatrix(as_csr(X), y, nthread=n_threads), rounds)
        rows = as_csr(X_new)

        def predict() -> Any:  # a DMatrix within the clock: on wide rows that is faster than `inplace_predict`
            return model.predict(xgboost.DMatrix(rows, nthread=n_threads))

    def unit() -> None:
        predict()  # the result need not travel to the parent

    yield {"predict": unit}, {}
