"""Prediction by 500 trees beside LightGBM's: a million rows at once, and one row at a time.

Trees have 31 leaves, of columns alone and with projections, and were grown on the first rows. All take turns within
one process.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.data import Options
from benchmarks.report import Row, bars, goal
from benchmarks.speed.trees import MIN_ROWS, N_LEAVES, N_PROJECTIONS, Rows, numbers
from benchmarks.timing import interleave, make_unit, ratio
from gbun import train
from gbun.learners import TreeLearner

TABLE = "prediction by {:,} trees: milliseconds for {:,} rows"
GBUN, WITH_PROJECTIONS, LIGHTGBM = "gbun", "gbun, 24 projections", "LightGBM"
SWEEPS, ONE_ROW_SWEEPS, WARM_UP, TRAINING_ROWS = 3, 300, 1, 20_000


def run(options: Options) -> list[Row]:
    rows, n_trees = numbers(options.rows(1_000_000)), options.pick(500, 50)
    models = {name: make_model(rows, n_trees, p) for name, p in ((GBUN, 0), (WITH_PROJECTIONS, N_PROJECTIONS))}
    booster = make_booster(rows, n_trees)
    found: list[Row] = []
    for n, sweeps, most in ((len(rows.X), SWEEPS, 1.0), (1, ONE_ROW_SWEEPS, 2.0)):
        X = rows.X[:n]
        for n_threads in dict.fromkeys((1, options.threads)):
            work: dict[str, Any] = {
                name: partial(model.predict_proba, X, n_jobs=n_threads) for name, model in models.items()
            }
            work[LIGHTGBM] = partial(booster.predict, X, num_threads=n_threads)
            units = {name: make_unit(predict) for name, predict in work.items()}
            interleave(units, WARM_UP)
            medians = {name: t.median for name, t in interleave(units, options.sweeps(sweeps)).items()}
            row = {"table": TABLE.format(n_trees, n), "threads": n_threads}
            found += [
                {**row, "learner": name, "median": 1e3 * median, "of LightGBM's": median / medians[LIGHTGBM]}
                for name, median in medians.items()
            ]
            what = f"time of LightGBM's, {n_threads} threads"
            found += [
                goal(
                    f"{n:,} rows, {n_trees} trees",
                    f"{name}: {what}",
                    ratio(medians[name], medians[LIGHTGBM]),
                    most=most,
                )
                for name in models
            ]
    return found


def make_model(rows: Rows, n_trees: int, n_projections: int) -> Any:
    X, y = rows.X[:TRAINING_ROWS], rows.y[:TRAINING_ROWS].astype(float)
    learner = TreeLearner(0, X.shape[1], N_LEAVES, MIN_ROWS, n_projections)
    settings = {"objective": "logistic", "learning_rate": 0.1}
    return train(settings, (X, y), n_trees, task="classification", learner=learner)


def make_booster(rows: Rows, n_trees: int) -> Any:
    import lightgbm

    settings = {"objective": "binary", "num_leaves": N_LEAVES, "min_data_in_leaf": MIN_ROWS, "verbose": -1}
    return lightgbm.train(settings, lightgbm.Dataset(rows.X[:TRAINING_ROWS], rows.y[:TRAINING_ROWS]), n_trees)


def draw(ax: Any, rows: list[Row]) -> None:
    known = [row for row in rows if "of LightGBM's" in row]
    names = [f"{row['table'].split()[-2]} rows, {row['threads']} threads: {row['learner']}" for row in known]
    bars(ax, names, [row["median"] for row in known], learners=[row["learner"].replace(",", "") for row in known])
    ax.set_xscale("log")
    ax.set_title("milliseconds of a prediction by trees, median")
