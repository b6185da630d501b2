"""Milliseconds of a tree beside LightGBM's, on generated rows: a boosting round of binary classification.

A round is scores, gradients and a tree of 31 leaves, and in a case of its own 24 projections that are drawn, binned
and searched beside the columns. LightGBM is measured row by row and column by column, with plain
and with quantised gradients, and the fastest of these counts. All take turns within one process.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from typing import Any

import numba
import numpy as np

from benchmarks.data import Options
from benchmarks.internals import (
    ColumnStatistics,
    Grower,
    ThreadPool,
    allocate_aligned,
    allocate_binned_rows,
    bin_projections,
    draw_projections,
    fill_columns,
    thread_pool,
)
from benchmarks.report import Row, bars, goal
from benchmarks.timing import interleave, make_unit, ratio

TABLE = "trees: milliseconds of a tree"
GBUN, LIGHTGBM = "gbun", "LightGBM {}, {}"
WITH_PROJECTIONS = "gbun, 24 projections"
N_LEAVES, MIN_ROWS, RATE, N_PROJECTIONS = 31, 20, np.float32(0.1), 24
MOST_RATIO = {GBUN: 0.5, WITH_PROJECTIONS: 1.0}
SWEEPS, WARM_UP = 40, 3


@dataclass(frozen=True)
class Rows:
    """Raw columns for LightGBM, and the same binned by hand: one-hot columns as bundles."""

    name: str
    X: Any
    y: Any
    columns: Any  # uint8 (c, n)
    is_bundle: Any


def run(options: Options) -> list[Row]:
    found: list[Row] = []
    for make, n in ((cover_types, 50_000), (numbers, 1_000_000)):
        rows = make(options.rows(n))
        for n_threads in dict.fromkeys((1, options.threads)):
            found += compare(rows, n_threads, options.sweeps(SWEEPS if n < 100_000 else SWEEPS // 4))
    return found


def cover_types(n: int) -> Rows:
    """Like forest cover types: ten numbers, and two categories of 4 and 40 values as one-hot columns."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 10)).astype(np.float32)
    few, many = rng.integers(0, 4, n), np.minimum(rng.exponential(8, n).astype(int), 39)
    margin = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + (few == 1) - 0.1 * (many % 7) + np.abs(X[:, 3])
    one_hot = np.concatenate([np.eye(4)[few], np.eye(40)[many]], axis=1, dtype=np.float32)
    columns = np.concatenate([bin_by_quantiles(X), [few + 1, many + 1]]).astype(np.uint8)
    raw = np.concatenate([X, one_hot], axis=1)
    y = margin + rng.logistic(size=n) > np.median(margin)
    return Rows(f"{n:,} x 54, 44 of them one-hot", raw, y, columns, np.arange(12) >= 10)


def numbers(n: int) -> Rows:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 28)).astype(np.float32)
    margin = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + np.abs(X[:, 3]) + X[:, 4:12].sum(axis=1) / 3
    y = margin + rng.logistic(size=n) > np.median(margin)
    return Rows(f"{n:,} x 28", X, y, bin_by_quantiles(X), np.zeros(28, dtype=bool))


def bin_by_quantiles(X: Any) -> Any:
    cuts = np.quantile(X[:100_000], np.arange(1, 63) / 63, axis=0).astype(np.float32)
    pairs = zip(cuts.T, X.T, strict=True)
    return np.stack([1 + np.searchsorted(cut, x) for cut, x in pairs]).astype(np.uint8)


def compare(rows: Rows, n_threads: int, sweeps: int) -> list[Row]:
    with ExitStack() as stack:
        pool = stack.enter_context(thread_pool(n_threads))
        boosters = {name: make_booster(rows, n_threads, **way) for name, way in ways_of_lightgbm().items()}
        trainings = {GBUN: PlainBoosting(rows, pool), WITH_PROJECTIONS: PlainBoosting(rows, pool, N_PROJECTIONS)}
        rounds: dict[str, Callable[[], object]] = {name: t.add for name, t in trainings.items()}
        rounds |= {name: booster.update for name, booster in boosters.items()}
        units = {name: make_unit(add) for name, add in rounds.items()}
        interleave(units, WARM_UP)
        times = interleave(units, sweeps)
        losses = {name: booster.eval_train()[0][2] for name, booster in boosters.items()}
        losses |= {name: training.loss() for name, training in trainings.items()}
    medians = {name: found.median for name, found in times.items()}
    peer = min(median for name, median in medians.items() if name in boosters and median is not None)
    row = {"table": TABLE, "data": rows.name, "threads": n_threads}
    found = [
        {**row, "learner": name, "median": 1e3 * t.median, "best": 1e3 * t.best, "of LightGBM's best": t.median / peer}
        | {"training loss": losses[name]}
        for name, t in times.items()
        if t.median is not None and t.best is not None
    ]
    what = f"time of a tree, of LightGBM's best, {n_threads} threads"
    goals = [
        goal(rows.name, f"{name}: {what}", ratio(medians[name], peer), most=most) for name, most in MOST_RATIO.items()
    ]
    return [*found, *goals]


def ways_of_lightgbm() -> dict[str, dict[str, bool]]:
    return {
        LIGHTGBM.format(side, kind): {f"force_{side}_wise": True, "use_quantized_grad": kind == "quantised"}
        for side, kind in product(("row", "col"), ("plain", "quantised"))
    }


def make_booster(rows: Rows, n_threads: int, **way: bool) -> Any:
    import lightgbm

    settings = {"objective": "binary", "num_leaves": N_LEAVES, "min_data_in_leaf": MIN_ROWS, "max_bin": 63}
    settings |= {"learning_rate": float(RATE), "num_threads": n_threads, "verbose": -1, **way}
    return lightgbm.Booster(settings, lightgbm.Dataset(rows.X, rows.y, params=settings))


class PlainBoosting:
    """As little as can be around the grower: scores and logistic gradients, a thread for each part of the rows."""

    def __init__(self, rows: Rows, pool: ThreadPool, n_projections: int = 0) -> None:
        c, n = rows.columns.shape
        width = (c + 7) // 8 * 8
        by_row = allocate_aligned(n * width, np.uint8).reshape(n, width)
        by_row[:], by_row[:, :c] = 0, rows.columns.T
        self.grower = Grower(by_row, rows.columns, rows.is_bundle, pool, N_LEAVES, MIN_ROWS, n_projections)
        self.projected, self.t = allocate_binned_rows(n, n_projections), 0
        if n_projections:
            usable = np.arange(rows.X.shape[1])
            deviation = rows.X.std(axis=0, dtype=np.float64)
            self.statistics = ColumnStatistics(rows.X.mean(axis=0, dtype=np.float64), deviation, rows.X[0], usable)
            self.filled = fill_columns(rows.X, self.statistics, pool)
        self.y, self.pool, self.scores = rows.y.astype(np.float32), pool, np.zeros(n, dtype=np.float32)
        self.g, self.h = np.empty(n, dtype=np.float32), np.empty(n, dtype=np.float32)
        self.leaf_of_row, self.values = np.zeros(n, dtype=np.uint8), np.zeros(N_LEAVES, dtype=np.float32)

    def add(self) -> None:
        self._update()
        tree = self.grower.grow(self.g, self.h, 0.0, lambda sums: sums, 1, *self._project())
        self.leaf_of_row, self.values = tree.leaf_of_row, (-RATE * tree.sum_g / tree.sum_h).astype(np.float32)

    def _project(self) -> tuple[Any, ...]:
        by_row, by_column = self.projected.by_row, self.projected.by_column
        if not len(by_column):
            return ()
        drawn = draw_projections(0, self.t, len(by_column), self.statistics)
        bin_projections(self.filled, drawn, self.pool, by_row, by_column)
        self.t += 1
        return by_row, by_column

    def _update(self) -> None:
        n, parts = len(self.y), self.pool.count
        arrays = self.scores, self.leaf_of_row, self.values, self.y, self.g, self.h
        self.pool.run(lambda p: update(*arrays, n * p // parts, n * (p + 1) // parts), range(parts))

    def loss(self) -> float:
        self._update()
        return float(np.mean(np.logaddexp(0.0, np.where(self.y > 0, -self.scores, self.scores))))


@numba.njit(cache=True, nogil=True)
def update(
    scores: Any, leaf_of_row: Any, values: Any, y: Any, g: Any, h: Any, first: int, last: int
) -> None:  # fmt: skip
    one = np.float32(1.0)
    for i in range(first, last):
        scores[i] += values[leaf_of_row[i]]
        p = one / (one + np.exp(-scores[i]))
        g[i], h[i] = p - y[i], p * (one - p)


def draw(ax: Any, rows: list[Row]) -> None:
    known = [row for row in rows if row["table"] == TABLE]
    names = [f"{row['data']}, {row['threads']} threads: {row['learner']}" for row in known]
    bars(ax, names, [row["median"] for row in known], learners=[row["learner"].replace(",", "") for row in known])
    ax.set_xscale("log")
    ax.set_title("milliseconds of a tree of 31 leaves, median")
