"""The rows of the experiments on several hosts: KDD12.sub is generated, book_crossing is in the data folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.speed import data
from benchmarks.speed.data import KDD12_FEATURES, KDD12_ROWS, Source
from benchmarks.speed.options import Options

GENERATED, REAL = "KDD12.sub", "book_crossing"
QUICK_ROWS, QUICK_FEATURES = 20_000, 10_000


def sources(folder: Path | None, quick: bool, most_rows: int | None = None) -> dict[str, tuple[Source, dict[str, Any]]]:
    """By name, with what its figures depend on. `most_rows` keeps the first ones only."""
    rows = QUICK_ROWS if quick else min(KDD12_ROWS, most_rows or KDD12_ROWS)
    features = QUICK_FEATURES if quick else KDD12_FEATURES
    found = {GENERATED: (data.clicks(rows, features), {"rows": rows, "features": features})}
    real = None if quick else data.real(Options(folder, 1, False, Console(quiet=True)), REAL)
    if real is not None:
        found[REAL] = Source(REAL, First(real, most_rows)), {"rows": most_rows or "all"}
    return found


class First:
    """The first rows of a source."""

    def __init__(self, source: Source, most: int | None) -> None:
        self.source, self.most = source, most

    def __call__(self) -> tuple[Any, Any]:
        X, y = self.source.load()
        return X[: self.most], y[: self.most]
