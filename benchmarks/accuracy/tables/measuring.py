"""What is measured: a learner on a split of a set. Results are kept in a JSON file."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.accuracy.tables.boosters import AS_THEY_COME, TUNABLE, Fit, Settings, loss
from benchmarks.accuracy.tables.sets import Rows, TableSet, divide
from benchmarks.accuracy.tables.tuning import tune

HELD_OUT, HELD_OUT_TUNED = 0.1, 0.2  # of the training rows
WARM_UP_ROWS = 400
Found = dict[str, Any]
Results = dict[str, dict[str, dict[str, Found]]]
"""What was found of a set, a split and a learner."""


@dataclass(frozen=True)
class Contestant:
    """A learner with its settings; or tuned, by the name of its space, for so many seconds."""

    name: str
    fit: Fit
    settings: tuple[tuple[str, Any], ...] = ()
    tuned: float | None = None

    @property
    def held_share(self) -> float:
        return HELD_OUT if self.tuned is None else HELD_OUT_TUNED

    def run(self, rows: Rows) -> Found:
        warm_up(self.fit, self.settings, min(3, rows.n_classes), bool(np.isnan(rows.X).any()))
        if self.tuned is not None:
            return tune(self.name, rows, self.tuned)
        began = process_time()
        model = self.fit(rows, dict(self.settings), None)
        seconds = process_time() - began
        return {"loss": loss(model, rows.X_test, rows.y_test, rows.regression), "seconds": seconds}


def as_they_come() -> list[Contestant]:
    return [make_contestant(name, *one) for name, one in AS_THEY_COME.items()]


def tuned(seconds: float) -> list[Contestant]:
    return [Contestant(name, fit, tuned=seconds) for name, fit in TUNABLE.items()]


def make_contestant(name: str, fit: Fit, settings: Settings) -> Contestant:
    return Contestant(name, fit, tuple(settings.items()))


@cache
def warm_up(fit: Fit, settings: tuple[tuple[str, Any], ...], n_classes: int, missing: bool) -> None:
    """Fit and predict a few generated rows of the same kind, so that imports and compiled code are not measured.

    They have numbers, a category as a number, and one as one-hot columns.
    """
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 6, size=(WARM_UP_ROWS, 2))
    X = np.column_stack([rng.normal(size=(WARM_UP_ROWS, 5)), codes[:, 0], np.eye(6)[codes[:, 1]]]).astype(np.float32)
    y = X[:, 0] + X[:, 1] if n_classes == 0 else rng.permutation(np.arange(WARM_UP_ROWS) % n_classes)
    if missing:
        X[rng.random(X.shape) < 0.1] = np.nan
    a, b, c = slice(0, 300), slice(300, 350), slice(350, None)
    rows = Rows(X[a], y[a], X[b], y[b], X[c], y[c], n_classes == 0, 0)
    loss(fit(rows, dict(settings), None), rows.X_test, rows.y_test, rows.regression)


@dataclass(frozen=True)
class Cell:
    table: TableSet
    split: int
    contestant: Contestant
    most_rows: int

    @property
    def key(self) -> tuple[str, str, str]:
        return self.table.name, str(self.split), self.contestant.name


def measure(cell: Cell) -> Found:
    warnings.filterwarnings("ignore")
    with threadpool_limits(1):
        rows = divide(cell.table.read(), cell.most_rows, cell.contestant.held_share, cell.split)
        return {**cell.contestant.run(rows), "regression": rows.regression}


def measure_all(cells: Sequence[Cell], jobs: int) -> Iterator[tuple[Cell, Callable[[], Found]]]:
    """Yield cells as they end, each with a function that returns what was found or raises what went wrong."""
    if jobs == 1:
        yield from ((cell, lambda cell=cell: measure(cell)) for cell in cells)  # type: ignore[misc]
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(measure, cell): cell for cell in cells}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


class Store:
    """Results in a JSON file, which is complete at any time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results: Results = json.loads(path.read_text()) if path.exists() else {}

    def has(self, key: tuple[str, str, str]) -> bool:
        name, split, learner = key
        return learner in self.results.get(name, {}).get(split, {})

    def put(self, key: tuple[str, str, str], found: Found) -> None:
        name, split, learner = key
        self.results.setdefault(name, {}).setdefault(split, {})[learner] = found
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.results, indent=1))
        part.replace(self.path)

    def forget(self, learners: Sequence[str], sets: Sequence[str]) -> None:
        for name in sets:
            for split in self.results.get(name, {}).values():
                for learner in learners:
                    with suppress(KeyError):
                        del split[learner]

    def complete(self, sets: Sequence[str], splits: int, learners: Sequence[str]) -> Results:
        """Sets of which all splits of all learners are known."""
        numbers = [str(split) for split in range(splits)]
        return {
            name: {split: {one: self.results[name][split][one] for one in learners} for split in numbers}
            for name in sets
            if all(self.has((name, split, one)) for split in numbers for one in learners)
        }
