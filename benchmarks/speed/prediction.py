"""Prediction: a million rows at once, and one row at a time."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import scipy.sparse as sp

from benchmarks.speed.children import PEERS, Built, Worker, together
from benchmarks.speed.data import KDD12_FEATURES, KDD12_ROWS, Source, clicks
from benchmarks.speed.learners import plain
from benchmarks.speed.options import Options
from benchmarks.speed.picture import bars
from benchmarks.speed.report import Row
from benchmarks.speed.timing import Times, interleave, ratio
from gbun import train
from gbun.datasets import make_clicks

TRAINING_SHARE = 6  # 200,000 of 1,200,000 rows train, the other million are predicted
SWEEPS = 5


def run(options: Options) -> list[Row]:
    return [*many_rows(options), *one_row(options)]


def many_rows(options: Options) -> list[Row]:
    source, rounds = clicks(options.rows(KDD12_ROWS)), options.pick(100, 10)
    starters = {
        f"gbun {rounds} x K=64": partial(Worker, gbun_predicts, source, rounds, options.threads),
        f"LightGBM {rounds} x 64 leaves": partial(
            Worker, lightgbm_predicts, source, rounds, options.threads, limits=PEERS
        ),
        f"XGBoost {rounds} x depth 6": partial(Worker, xgboost_predicts, source, rounds, options.threads, limits=PEERS),
    }
    with together(starters) as (workers, failed):
        times = interleave({name: w.unit("predict") for name, w in workers.items()}, options.sweeps(SWEEPS))
    times |= {name: Times(note=note) for name, note in failed.items()}
    ours = next(iter(times.values())).median
    n = options.rows(KDD12_ROWS) * (TRAINING_SHARE - 1) // TRAINING_SHARE
    return [
        {
            "table": f"prediction: seconds for {n:,} rows",
            "learner": name,
            **found.row(),
            "gbun's / this": ratio(ours, found.median),
        }
        for name, found in times.items()
    ]


def divided(source: Source) -> tuple[Any, Any, Any]:
    """X and y to train on, and the rows to predict."""
    X, y = source.load()
    n = X.shape[0] // TRAINING_SHARE
    return X[:n], y[:n], X[n:]


def done(work: Callable[[], Any]) -> Callable[[], None]:
    """The work without its result, which need not travel to the parent."""

    def unit() -> None:
        work()

    return unit


@contextmanager
def gbun_predicts(source: Source, rounds: int, threads: int) -> Iterator[Built]:
    X, y, others = divided(source)
    settings = {"objective": "logistic", "n_neurons": 64, "n_jobs": threads}
    model = train(settings, (X, y), rounds, task="classification")
    model.predict_proba(others[:1000], n_jobs=threads)
    yield {"predict": done(lambda: model.predict_proba(others, n_jobs=threads))}, {}


@contextmanager
def lightgbm_predicts(source: Source, rounds: int, threads: int) -> Iterator[Built]:
    import lightgbm

    X, y, others = divided(source)
    settings = {"objective": "binary", "num_leaves": 64, "num_threads": threads, "verbosity": -1}
    model, rows = lightgbm.train(settings, lightgbm.Dataset(plain(X), y), rounds), plain(others)
    yield {"predict": done(lambda: model.predict(rows, num_threads=threads))}, {}


@contextmanager
def xgboost_predicts(source: Source, rounds: int, threads: int) -> Iterator[Built]:
    """Through a DMatrix, whose making counts: on rows of many columns that is faster than `inplace_predict`."""
    import xgboost

    X, y, others = divided(source)
    settings = {"objective": "binary:logistic", "tree_method": "hist", "max_depth": 6, "nthread": threads}
    model = xgboost.train(settings, xgboost.QuantileDMatrix(plain(X), y, nthread=threads), rounds)
    rows = plain(others)
    yield {"predict": done(lambda: model.predict(xgboost.DMatrix(rows, nthread=threads)))}, {}


def one_row(options: Options) -> list[Row]:
    """The first prediction of a fresh process, from its start on, and those after it; several processes."""
    K, rounds = options.pick((256, 300), (64, 30))
    X, y = make_clicks(20_000, KDD12_FEATURES)
    settings = {"objective": "logistic", "n_neurons": K, "n_jobs": options.threads}
    with tempfile.TemporaryDirectory() as folder:
        model, row = Path(folder) / "model.gbun", Path(folder) / "row.npz"
        train(settings, (X, y), rounds, task="classification").save_model(model)
        sp.save_npz(row, X[:1])
        command = [sys.executable, "-m", "benchmarks.speed.latency", str(model), str(row), str(options.threads)]
        runs = [
            json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            for _ in range(options.sweeps(5))
        ]
    table = f"prediction: one row, K = {K}, {rounds} rounds, seconds"
    return [{"table": table, "step": step, **Times([run[step] for run in runs]).row()} for step in runs[0]]


def draw(ax: Any, rows: list[Row]) -> None:
    own = [row for row in rows if "step" not in row and row.get("median") is not None]
    names, medians = [row["learner"] for row in own], [row["median"] for row in own]
    bars(ax, names, medians, [f"{m:.3g} s" for m in medians], names)
    later = next((row["median"] for row in rows if row.get("step") == "later predictions"), None)
    ax.set_title(own[0]["table"] + (f"; one row {1e3 * later:.2f} ms" if later else ""))
