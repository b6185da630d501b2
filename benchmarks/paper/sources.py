"""The rows of the experiments on several hosts: KDD12.sub is generated, book_crossing is in the data folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.network.parameters import SEEDS
from benchmarks.speed import data
from benchmarks.speed.data import KDD12_FEATURES, KDD12_ROWS, SEED, Source
from benchmarks.speed.timing import Absent

GENERATED, REAL = "KDD12.sub", "book_crossing"
Rows = tuple[Source, dict[str, Any]]
"""Where they come from, and what figures depend on beside the name."""
QUICK_ROWS, QUICK_FEATURES = 20_000, 10_000


def sources(folder: Path | None, quick: bool, most_rows: int | None = None) -> dict[str, Rows]:
    """By name. `most_rows` keeps the first ones only.

    The real set is there also where the folder lacks it, so that reports list it among what was not run.
    """
    rows = QUICK_ROWS if quick else min(KDD12_ROWS, most_rows or KDD12_ROWS)
    features = QUICK_FEATURES if quick else KDD12_FEATURES
    found = {GENERATED: (data.clicks(rows, features), {"rows": rows, "features": features})}
    if not quick:
        n_bytes = sum(file.stat().st_size for file in (folder / REAL).glob("*")) if folder else 0
        found[REAL] = Source(REAL, First(folder, most_rows)), {"rows": most_rows or "all", "bytes of files": n_bytes}
    return found


def missing_of(data: str, rows: Rows) -> str:
    """For a cell: why there are no rows, if there are none."""
    return f"{data} is not in the data folder" if rows[1].get("bytes of files") == 0 else ""


def seeds_of(data: str, learner: str) -> dict[str, Any]:
    """For a cell's record."""
    return {"rows": "as they come" if data == REAL else SEED, learner: SEEDS[learner]}


class First:
    """The first rows of the real set."""

    def __init__(self, folder: Path | None, most: int | None) -> None:
        self.folder, self.most = folder, most

    def __call__(self) -> tuple[Any, Any]:
        assert self.folder is not None  # or the cell is missing
        try:
            X, y = data.read(self.folder, REAL)
        except FileNotFoundError as error:
            raise Absent(f"{REAL} is not in the data folder: {error.strerror}") from None
        return X[: self.most], y[: self.most]
