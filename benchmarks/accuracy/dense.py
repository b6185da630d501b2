"""Dense sets as the defaults' study sees them: letter, usps, epsilon_5k, aloi and the small tabular ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from benchmarks.accuracy.problems import aloi, letter

Split = tuple[Any, Any, Any, Any]
"""X_train, y_train, X_test, y_test"""


@dataclass(frozen=True)
class DenseSet:
    """Judged by accuracy, or by R2 where `regression`."""

    name: str
    load: Callable[[int], Split]
    regression: bool = False


def dense_sets(folder: Path, most_rows: int) -> dict[str, DenseSet]:
    """Tabular sets are cut to `most_rows`, 70 % of them to train, divided anew for each seed; the others are whole."""
    found = {path.stem: _tabular(path, most_rows) for path in sorted((folder / "tabular_small").glob("*.npz"))}
    found["letter"] = DenseSet("letter", lambda seed: letter(folder))
    found["usps"] = DenseSet("usps", lambda seed: divided(folder / "usps" / "usps.npz"))
    found["epsilon_5k"] = DenseSet("epsilon_5k", lambda seed: divided(folder / "epsilon_5k" / "epsilon_5k.npz"))
    found["aloi"] = DenseSet("aloi", lambda seed: aloi(folder))
    return found


def _tabular(path: Path, most_rows: int) -> DenseSet:
    regression = path.name[0].isdigit()  # so the collection names its sets

    def load(seed: int) -> Split:
        data = np.load(path)
        rows = np.random.default_rng(seed).permutation(len(data["y"]))[:most_rows]
        X, y = data["X"][rows], data["y"][rows]
        X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=seed)
        return X_train, y_train, X_test, y_test

    return DenseSet(path.stem, load, regression)


def divided(path: Path) -> Split:
    """A file that has test rows of its own."""
    data = np.load(path)
    return data["X_train"], data["y_train"], data["X_test"], data["y_test"]
