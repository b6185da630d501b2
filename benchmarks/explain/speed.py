"""Seconds and memory of explanations.

Wide rows are explained by integrated gradients of 100 rounds of networks, and predicted in turns. Memory is the peak
beyond what the process has before, each number of features in a process of its own. Trees have 31 leaves; their exact
values against one baseline take turns with LightGBM's `pred_contrib`, whose game is another one, and with shap's
PermutationExplainer, which samples the same values as gbun computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.data import Options, Source, clicks, real
from benchmarks.explain.problems import draw_sparse
from benchmarks.internals import peak_megabytes, resident_megabytes
from benchmarks.report import Row, bars, goal
from benchmarks.timing import Built, Worker, interleave, make_unit, ratio
from gbun import train
from gbun.learners import TreeLearner

TEXT_ROWS, TEXT_FEATURES, TEXT_ENTRIES = 19_996, 1_355_191, 455  # those of news20_binary
EXPLAINED, SWEEPS = 1000, 5
MOST_OF_PREDICTION = 5.0
MEMORY_ROWS, MEMORY_FEATURES, MOST_MEGABYTES_MORE = 20_000, (10**4, 10**5, 10**6, 10**7), 8.0
TABLE_ROWS, TABLE_COLUMNS, N_TREES, N_LEAVES, MIN_ROWS = 20_000, 30, 100, 31, 20
SAMPLED_ROWS = 20  # by shap


def run(options: Options) -> list[Row]:
    return [*wide_rows(options), *memory(options), *table_rows(options)]


def wide_rows(options: Options) -> list[Row]:
    """Explanation beside prediction of the same rows."""
    n, rounds = options.rows(TEXT_ROWS), options.pick(100, 10)
    source = real(options, "news20_binary") or Source(f"generated, {n:,} rows", partial(make_text, n))
    X, y = source.load()
    n_explained = min(EXPLAINED, X.shape[0] // 5)
    model = train({"n_jobs": options.threads}, (X[:-n_explained], y[:-n_explained]), rounds, task="classification")
    rows = X[-n_explained:]
    work: dict[str, Callable[[], Any]] = {
        "prediction": partial(model.decision_function, rows, n_jobs=options.threads),
        "explanation": partial(model.explain, rows, n_jobs=options.threads),
    }
    medians = time_in_turns(work, options.sweeps(SWEEPS))
    explained = work["explanation"]()
    row = {"table": f"explanation of {n_explained:,} rows by {rounds} rounds: seconds", "data": source.name}
    row |= {"features": X.shape[1], "entries of a row": rows.nnz / n_explained, "threads": options.threads}
    row |= {**medians, "ratio": ratio(medians["explanation"], medians["prediction"])}
    row["largest residual"] = float(np.abs(explained.residual).max())
    what = "explanation / prediction"
    return [row, goal(f"{source.name}, {X.shape[1]:,} features", what, row["ratio"], most=MOST_OF_PREDICTION)]


def make_text(n_rows: int) -> tuple[Any, Any]:
    """Rows of the shape of news20_binary, unit norm. Half of the features that are frequent speak for a class."""
    rng = np.random.default_rng(0)
    X = draw_sparse(n_rows, TEXT_FEATURES, TEXT_ENTRIES, rng)
    X.data /= np.repeat(np.sqrt(np.diff(X.indptr)), np.diff(X.indptr)).astype(np.float32)
    weights = rng.normal(size=TEXT_FEATURES) * (rng.random(TEXT_FEATURES) < 0.5)
    score = X @ weights
    return X, (score > np.median(score)).astype(int)


def memory(options: Options) -> list[Row]:
    n, rounds = options.rows(MEMORY_ROWS), options.pick(100, 10)
    table = f"peak memory of explaining {min(EXPLAINED, n):,} rows of 11 entries by {rounds} rounds"
    found: list[Row] = []
    for n_features in MEMORY_FEATURES:
        source = clicks(n, n_features, f"clicks, {n_features:,} features")
        with Worker(explain_clicks, source, rounds, options.threads) as worker:
            seconds, megabytes = worker.ask("explain")
        found.append({"table": table, "features": n_features, "megabytes": megabytes, "seconds": seconds})
    known = [row["megabytes"] for row in found if row["megabytes"] is not None]
    more = max(known) - known[0] if known else None
    what = "megabytes beyond those of 10^4 features"  # a number for each of 10^7 features would take 40 or more
    return [*found, goal("clicks, 10^4 to 10^7 features", what, more, most=MOST_MEGABYTES_MORE)]


@contextmanager
def explain_clicks(source: Source, rounds: int, n_threads: int) -> Iterator[Built]:
    X, y = source.load()
    model = train({"n_jobs": n_threads}, (X, y), rounds, task="classification")
    model.explain(X[:10], n_jobs=n_threads)  # compiled code is read

    def explain() -> float | None:
        before = resident_megabytes()
        peak_megabytes(reset=True)
        model.explain(X[:EXPLAINED], n_jobs=n_threads)
        peak = peak_megabytes()
        return None if before is None or peak is None else peak - before

    yield {"explain": explain}, {}


def table_rows(options: Options) -> list[Row]:
    """Trees beside LightGBM's, seconds for 1,000 rows each."""
    n, n_trees, n_threads = options.rows(TABLE_ROWS), options.pick(N_TREES, 10), options.threads
    X, y = make_table(n)
    explained, few = X[:EXPLAINED], X[: options.pick(SAMPLED_ROWS, 2)]
    models = {f"gbun, {p} projections": train_trees(X, y, n_trees, p, n_threads) for p in (0, 24)}
    work: dict[str, Callable[[], Any]] = {
        name: partial(model.explain, explained, n_jobs=n_threads) for name, model in models.items()
    }
    booster = train_lightgbm(X, y, n_trees, n_threads)
    work["LightGBM"] = partial(booster.predict, explained, pred_contrib=True, num_threads=n_threads)
    name, model = next(iter(models.items()))
    base, note = X.mean(axis=0, dtype=float)[None, :], ""
    try:
        shap: Any = import_module("shap")
    except ImportError:
        note = "shap is not installed"
    else:
        score = partial(model.decision_function, n_jobs=n_threads)
        sampler = shap.PermutationExplainer(score, shap.maskers.Independent(base), seed=0)
        work[f"shap's PermutationExplainer of {name}"] = partial(sampler, few, silent=True)
    medians = time_in_turns(work, options.sweeps(SWEEPS))
    row = {"table": f"explanation by {n_trees} trees, {n:,} x {TABLE_COLUMNS}: seconds for 1,000 rows"}
    row["threads"] = n_threads
    found = []
    for name, seconds in medians.items():
        n_rows = len(few) if name.startswith("shap") else len(explained)
        found.append({**row, "what": name, "rows": n_rows, "seconds": 1000 * seconds / n_rows})
    peer = next(each["seconds"] for each in found if each["what"] == "LightGBM")
    for each in found:
        each["of LightGBM's"] = each["seconds"] / peer
    if note:
        found.append({**row, "what": "shap's PermutationExplainer", "note": note})
    return found


def make_table(n: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, TABLE_COLUMNS)).astype(np.float32)
    score = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + np.abs(X[:, 3]) + X[:, 4:12].sum(axis=1) / 3
    return X, (score + rng.logistic(size=n) > np.median(score)).astype(int)


def train_trees(X: Any, y: Any, n_trees: int, n_projections: int, n_threads: int) -> Any:
    learner = TreeLearner(0, X.shape[1], N_LEAVES, MIN_ROWS, n_projections)
    settings = {"objective": "logistic", "learning_rate": 0.1, "init": "constant", "n_jobs": n_threads}
    return train(settings, (X, y), n_trees, task="classification", learner=learner)


def train_lightgbm(X: Any, y: Any, n_trees: int, n_threads: int) -> Any:
    import lightgbm

    settings = {"objective": "binary", "num_leaves": N_LEAVES, "min_data_in_leaf": MIN_ROWS, "verbose": -1}
    return lightgbm.train({**settings, "num_threads": n_threads}, lightgbm.Dataset(X, y), n_trees)


def time_in_turns(work: dict[str, Callable[[], Any]], sweeps: int) -> dict[str, float]:
    """The median seconds of each, after one turn that is not measured."""
    units = {name: make_unit(each) for name, each in work.items()}
    interleave(units, 1)
    return {name: float(times.median or 0.0) for name, times in interleave(units, sweeps).items()}


def draw(ax: Any, rows: list[Row]) -> None:
    known = [row for row in rows if "seconds" in row and "what" in row]
    wide = next(row for row in rows if "prediction" in row)
    names = [f"tables: {row['what']}" for row in known] + ["wide rows: prediction", "wide rows: explanation"]
    seconds = [row["seconds"] for row in known] + [wide["prediction"], wide["explanation"]]
    bars(ax, names, seconds)
    ax.set_xscale("log")
    ax.set_title("seconds for 1,000 rows of a table, and for the wide rows")
