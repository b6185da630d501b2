"""Which share of the relevant features is among as many features with the largest importances.

gbun and LightGBM have their defaults and learn from four fifths of the rows; contributions are those to the scores of
the others, at most 1,000, averaged over the scores. A feature whose importance is zero is never counted as found. The
gain of gbun is that of its trees, without what the linear start has explained before. LightGBM has a process of its
own, with limits of memory and time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from benchmarks.data import Options
from benchmarks.explain.problems import DENSE, SPARSE, Problem
from benchmarks.report import SERIES_COLOURS, Row
from benchmarks.timing import PEERS, Built, Failed, Worker
from gbun import train

TABLE, MEANS = "truth: precision at the number of relevant features", "truth: means over problems"
METHODS = ("gbun contribution", "gbun gain", "LightGBM gain", "LightGBM TreeSHAP")
DRAWS, TRAINED, MOST_EXPLAINED = 3, 0.8, 1000


def run(options: Options) -> list[Row]:
    found = []
    for problem in (*DENSE, *SPARSE) if not options.quick else (DENSE[0], SPARSE[0]):
        n_rows = problem.n_rows // options.pick(1, 4)
        draws = [compare(problem, n_rows, seed, options.threads) for seed in range(options.pick(DRAWS, 1))]
        row = {"table": TABLE, "features": kind(problem), "problem": problem.name, "rows": n_rows}
        row |= {"relevant": problem.n_relevant, "draws": len(draws)}
        found.append({**row, **mean(draws), "note": next((d["note"] for d in draws if d.get("note")), "")})
    kinds = dict.fromkeys(row["features"] for row in found)
    means = [
        {"table": MEANS, "features": kind, **mean([row for row in found if row["features"] == kind])} for kind in kinds
    ]
    return [*found, *means]


def kind(problem: Problem) -> str:
    return f"{'sparse' if problem.is_sparse else 'dense'}, {problem.n_features:,}"


def mean(rows: Sequence[Row]) -> Row:
    """The mean of each method over the rows that have it."""
    known = {method: [row[method] for row in rows if row.get(method) is not None] for method in METHODS}
    return {method: float(np.mean(values)) if values else None for method, values in known.items()}


def compare(problem: Problem, n_rows: int, seed: int, n_threads: int) -> Row:
    X, y, relevant = problem.draw(n_rows, seed)
    found: Row = {}
    for name, importances in rank_by_gbun(X, y, problem.task, n_threads).items():
        found[name] = precision(importances, relevant)
    try:
        with Worker(rank_by_lightgbm, problem, n_rows, seed, n_threads, limits=PEERS) as worker:
            for method in METHODS[2:]:
                found[method] = worker.ask(method)[1]
    except Failed as failure:
        found["note"] = f"LightGBM: {failure}"
    return found


def precision(importances: Any, relevant: Any) -> float:
    first = np.argsort(-importances, kind="stable")[: len(relevant)]
    return float(np.isin(first[importances[first] > 0], relevant).mean()) if importances.any() else 0.0


def divide(X: Any, y: Any) -> tuple[Any, Any, Any]:
    """The rows to learn from, with their targets, and the rows to explain."""
    n = int(TRAINED * X.shape[0])
    return X[:n], y[:n], X[n : n + MOST_EXPLAINED]


def rank_by_gbun(X: Any, y: Any, task: str, n_threads: int) -> dict[str, Any]:
    X_train, y_train, rest = divide(X, y)
    model = train({"n_jobs": n_threads}, (X_train, y_train), task=task)
    found = {METHODS[0]: model.importance(rest, kind="contribution", n_jobs=n_threads).values}
    if model.ensemble.learner.kind != "network":
        found[METHODS[1]] = model.importance(kind="gain").values
    return found


@contextmanager
def rank_by_lightgbm(problem: Problem, n_rows: int, seed: int, n_threads: int) -> Iterator[Built]:
    import lightgbm

    X, y, relevant = problem.draw(n_rows, seed)
    X_train, y_train, rest = divide(X, y)
    make = lightgbm.LGBMRegressor if problem.task == "regression" else lightgbm.LGBMClassifier
    booster = make(n_jobs=n_threads, verbose=-1, force_row_wise=problem.is_sparse).fit(X_train, y_train).booster_

    def contribution() -> float:
        values = booster.predict(rest, pred_contrib=True, num_threads=n_threads)
        if isinstance(values, np.ndarray):  # the columns of each class, then its base, one class after the other
            values = [part[:, :-1] for part in np.split(values, booster.num_model_per_iteration(), axis=1)]
        else:
            values = [part.tocsc()[:, :-1] for part in (values if isinstance(values, list) else [values])]
        return precision(sum(np.asarray(abs(part).mean(axis=0)).ravel() for part in values), relevant)

    gain = partial(precision, booster.feature_importance("gain"), relevant)
    yield {METHODS[2]: gain, METHODS[3]: contribution}, {}


def draw(ax: Any, rows: list[Row]) -> None:
    known = [row for row in rows if row["table"] == TABLE]
    names = [f"{row['features'].split(',')[0]}: {row['problem']}" for row in known]
    for i, (method, colour) in enumerate(zip(METHODS, SERIES_COLOURS, strict=False)):
        places = np.arange(len(known)) + 0.2 * (i - 1.5)
        ax.barh(places, [row.get(method) or 0.0 for row in known], 0.2, color=colour, label=method)
    ax.set_yticks(range(len(known)), names)
    ax.invert_yaxis()
    ax.set_xlim(0.0, 1.3)  # beside the bars there is room for the legend
    ax.legend(fontsize=7, loc="upper right")
    ax.set_title("share of the relevant features among as many with the largest importances")
