"""Seconds from arrays to a model of 100 trees, and peak memory beyond the arrays: ten million rows of 28 columns.

Each learner has a child process of its own, one after the other. It draws its rows (float32, two classes), fits a few
of them first, so that imports and compiled code are not measured, and then fits all: binning is part of the time. Trees
have 31 leaves, XGBoost's are of depth 5, which is 32 leaves; learning rate .1, no early stopping. LightGBM, XGBoost and
HGB have the bins of their defaults (255 or 256), and once more as many as gbun (64). The log loss on further rows says
that the models are comparable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import process_time
from typing import Any

import numpy as np

from benchmarks.data import Options
from benchmarks.internals import peak_megabytes, resident_megabytes
from benchmarks.report import Row, bars
from benchmarks.timing import Built, Failed, Worker, ratio

ROWS, COLUMNS, TREES, LEAVES, DEPTH, RATE = 10_000_000, 28, 100, 31, 5, 0.1
TEST_ROWS, FEW, BLOCK = 100_000, 5000, 500_000
Make = Callable[[int], Any]  # threads -> an estimator


def run(options: Options) -> list[Row]:
    n = options.rows(options.large_rows or ROWS)
    rows = [{"table": f"large: {n:,} x {COLUMNS}, {TREES} trees", **measure(name, n, options)} for name in LEARNERS]
    ours = rows[0]
    for row in rows:
        row["seconds / gbun's"] = ratio(row.get("seconds"), ours.get("seconds"))
        row["MB / gbun's"] = ratio(row.get("MB beyond the arrays"), ours.get("MB beyond the arrays"))
    return rows


def measure(name: str, n_rows: int, options: Options) -> Row:
    try:
        with Worker(build, name, n_rows, options.threads) as worker:
            seconds, (megabytes, processor) = worker.ask("fit")
            _, loss = worker.ask("judge")
    except Failed as failure:
        return {"learner": name, "threads": options.threads, "note": str(failure)}
    memory = {"MB beyond the arrays": megabytes, "MB of the arrays": worker.facts["megabytes"]}
    times = {"seconds": seconds, "of the processor": processor}
    return {"learner": name, "threads": options.threads, **times, **memory, "log loss": loss}


@contextmanager
def build(name: str, n_rows: int, n_threads: int) -> Iterator[Built]:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(n_threads):  # HGB takes its threads from here
        LEARNERS[name](n_threads).fit(*make_rows(FEW, 2))
        X, y = make_rows(n_rows, 0)
        model = LEARNERS[name](n_threads)

        def fit() -> tuple[float | None, float]:
            before, began = resident_megabytes(), process_time()
            peak_megabytes(reset=True)
            model.fit(X, y)
            peak, processor = peak_megabytes(), process_time() - began
            return None if peak is None or before is None else peak - before, processor

        def judge() -> float:
            X_test, y_test = make_rows(TEST_ROWS, 1)
            q = model.predict_proba(X_test)[np.arange(TEST_ROWS), y_test]
            return float(-np.log(q.clip(1e-15)).mean())

        yield {"fit": fit, "judge": judge}, {"megabytes": (X.nbytes + y.nbytes) / 2**20}


def make_rows(n_rows: int, seed: int) -> tuple[Any, Any]:
    """Draw rows block by block, so that nothing else of their size was ever in memory."""
    X, y = np.empty((n_rows, COLUMNS), dtype=np.float32), np.empty(n_rows, dtype=np.int64)
    for first in range(0, n_rows, BLOCK):
        rng, block = np.random.default_rng([seed, first]), slice(first, min(first + BLOCK, n_rows))
        X[block] = rng.standard_normal(X[block].shape, dtype=np.float32)
        x = X[block].T
        margin = x[0] * x[1] + np.sin(2 * x[2]) + np.abs(x[3]) + x[4:12].sum(axis=0) / 3 - 0.8
        y[block] = margin + rng.logistic(size=len(margin)) > 0
    return X, y


def make_gbun(n_threads: int, **settings: Any) -> Any:
    from gbun import GBUNClassifier

    given = {"learner": "tree", "n_estimators": TREES, "n_leaves": LEAVES, "learning_rate": RATE}
    return GBUNClassifier(**given, n_jobs=n_threads, **settings)


def make_lightgbm(n_threads: int, **settings: Any) -> Any:
    from lightgbm import LGBMClassifier

    given = {"n_estimators": TREES, "num_leaves": LEAVES, "learning_rate": RATE}
    return LGBMClassifier(**given, n_jobs=n_threads, verbose=-1, **settings)


def make_xgboost(n_threads: int, **settings: Any) -> Any:
    from xgboost import XGBClassifier

    given = {"n_estimators": TREES, "max_depth": DEPTH, "learning_rate": RATE, "tree_method": "hist"}
    return XGBClassifier(**given, n_jobs=n_threads, **settings)


def make_hgb(n_threads: int, **settings: Any) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    given = {"max_iter": TREES, "max_leaf_nodes": LEAVES, "learning_rate": RATE, "early_stopping": False}
    return HistGradientBoostingClassifier(**given, **settings)


LEARNERS: dict[str, Make] = {
    "gbun trees": make_gbun,
    "gbun trees of columns": lambda n: make_gbun(n, n_projections=0),
    "LightGBM": make_lightgbm,
    "LightGBM, 64 bins": lambda n: make_lightgbm(n, max_bin=64),
    "LightGBM, 64 bins, quantised": lambda n: make_lightgbm(n, max_bin=64, use_quantized_grad=True),
    "XGBoost, depth 5": make_xgboost,
    "XGBoost, depth 5, 64 bins": lambda n: make_xgboost(n, max_bin=64),
    "HGB": make_hgb,
    "HGB, 64 bins": lambda n: make_hgb(n, max_bins=64),
}


def draw(ax: Any, rows: list[Row]) -> None:
    known = [row for row in rows if row.get("seconds") is not None]
    words = [f"{row['seconds']:.3g} s, {row['MB beyond the arrays'] or 0:,.0f} MB" for row in known]
    names = [row["learner"] for row in known]
    bars(ax, names, [row["seconds"] for row in known], words)
    ax.set_title(f"{known[0]['table']}: seconds from arrays to model, and memory beyond the arrays" if known else "")
