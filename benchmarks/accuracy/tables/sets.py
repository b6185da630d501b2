"""Tables: where they are, how a file is read, and how rows are divided.

Files of a folder: csv, parquet and npz. The target is the column `y`, `target` or `class` (the first of these names
that there is, in any case of letters), otherwise the last column. An npz file has arrays `X` and `y`, or one array
whose last column is the target. A target is regressed on if it has floating-point numbers with more than 20 distinct
values, otherwise its values are classes. Rows without a target are left out. Columns of text and categories become
numbers in the order of their sorted values, dates become days, for every learner alike; missing values stay missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from benchmarks.accuracy.sets import split_rows

TARGETS, MANY_VALUES = ("y", "target", "class"), 20
TEST_SHARE = 0.3
COLLECTION, WHOLE = "tabular_small", {"letter": "letter/letter_libsvm_order.npz", "usps": "usps/usps.npz"}


@dataclass(frozen=True)
class Table:
    """All rows of a set. Columns are float32; classes are any labels."""

    X: Any
    y: Any
    regression: bool


@dataclass(frozen=True)
class TableSet:
    name: str
    read: Callable[[], Table]


@dataclass(frozen=True)
class Rows:
    """Rows to fit, held-out rows and test rows. Classes are numbers from 0; rows to fit have all of them."""

    X: Any
    y: Any
    X_held: Any
    y_held: Any
    X_test: Any
    y_test: Any
    regression: bool
    seed: int

    @property
    def training(self) -> tuple[Any, Any]:
        """Rows to fit and held-out rows together."""
        return np.concatenate([self.X, self.X_held]), np.concatenate([self.y, self.y_held])

    @property
    def n_classes(self) -> int:
        return 0 if self.regression else int(self.y.max()) + 1


def known_sets(data: Path | None, folder: Path | None) -> dict[str, TableSet]:
    """Sets by name. A file of --folder must not have the name of a set of --data."""
    paths = sorted(folder.iterdir()) if folder else []
    own = [TableSet(path.stem, partial(READERS[path.suffix], path)) for path in paths if path.suffix in READERS]
    found = [*(collected_sets(data) if data else []), *own]
    sets = {one.name: one for one in found}
    if len(sets) < len(found):
        names = [one.name for one in found]
        raise ValueError(f"names of sets must differ, got twice {sorted({n for n in names if names.count(n) > 1})}")
    return sets


def collected_sets(data: Path) -> list[TableSet]:
    paths = sorted((data / COLLECTION).glob("*.npz"))
    small = [TableSet(path.stem, partial(read_collected, path)) for path in paths]
    return [*small, *(TableSet(name, partial(read_whole, data / path)) for name, path in WHOLE.items())]


def read_collected(path: Path) -> Table:
    """The collection names regressions by numbers."""
    with np.load(path) as data:
        return Table(data["X"].astype(np.float32), data["y"], path.name[0].isdigit())


def read_whole(path: Path) -> Table:
    """Training and test rows together: these sets are divided anew, as all others are."""
    with np.load(path) as data:
        X, y = (np.concatenate([data[f"{name}_train"], data[f"{name}_test"]]) for name in ("X", "y"))
    return Table(X.astype(np.float32), y, False)


def read_arrays(path: Path) -> Table:
    with np.load(path) as data:
        if "X" in data and "y" in data:
            X, y = data["X"], data["y"]
        elif len(data.files) == 1 and data[data.files[0]].ndim == 2:
            array = data[data.files[0]]
            X, y = array[:, :-1], array[:, -1]
        else:
            raise ValueError(f"{path} must have arrays X and y, or one array of two dimensions, got {data.files}")
    return make_table(X.astype(np.float32), y)


def read_frame(path: Path) -> Table:
    import pandas as pd

    frame = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
    names = {str(name).lower(): name for name in reversed(frame.columns)}
    target = next((names[name] for name in TARGETS if name in names), frame.columns[-1])
    y = frame.pop(target)
    known = y.notna().to_numpy()
    columns = [number_column(frame[name]) for name in frame.columns]
    y = y[known]
    labels = y.to_numpy() if pd.api.types.is_numeric_dtype(y.dtype) else y.astype(str).to_numpy()
    return make_table(np.stack(columns, axis=1)[known], labels)


def number_column(column: Any) -> Any:
    """Return a column as float32; text and categories are numbered in the order of their values."""
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return ((column - column.min()) / pd.Timedelta(days=1)).to_numpy(np.float32)
    if pd.api.types.is_numeric_dtype(column.dtype):  # booleans too
        return column.to_numpy(dtype=np.float32, na_value=np.nan)
    codes, _ = pd.factorize(column.astype(object).where(column.notna(), None).map(str, na_action="ignore"), sort=True)
    return np.where(codes < 0, np.nan, codes).astype(np.float32)


def make_table(X: Any, y: Any) -> Table:
    numbers = np.issubdtype(y.dtype, np.floating)
    if numbers:
        X, y = X[~np.isnan(y)], y[~np.isnan(y)]
    return Table(X, y, bool(numbers and len(np.unique(y)) > MANY_VALUES))


READERS: dict[str, Callable[[Path], Table]] = {".csv": read_frame, ".parquet": read_frame, ".npz": read_arrays}


def divide(table: Table, most_rows: int, held_share: float, seed: int) -> Rows:
    """Divide at most so many rows of a table at random. Test rows of classes that cannot be learnt are left out."""
    chosen = np.random.default_rng(seed).permutation(len(table.y))[:most_rows]
    X, y, X_test, y_test = split_rows(table.X[chosen], table.y[chosen], TEST_SHARE, stratify=False, seed=seed)
    if table.regression:
        y, y_test = y.astype(float), y_test.astype(float)
    else:
        labels, y = np.unique(y, return_inverse=True)
        known = np.isin(y_test, labels)
        X_test, y_test = X_test[known], np.searchsorted(labels, y_test[known])
    fit, held = hold_out(y, held_share, table.regression, seed)
    return Rows(X[fit], y[fit], X[held], y[held], X_test, y_test, table.regression, seed)


def hold_out(y: Any, share: float, regression: bool, seed: int) -> tuple[Any, Any]:
    """Row numbers to fit and to hold out; classes have their share of both, and a row to fit at least."""
    counts = None if regression else np.bincount(y)
    divisible = counts is not None and counts.min() >= 2 and share * len(y) >= len(counts)
    fit, held = train_test_split(
        np.arange(len(y)), test_size=share, random_state=seed, stratify=y if divisible else None
    )
    if regression:
        return fit, held
    lost = ~np.isin(y[held], y[fit])
    return np.concatenate([fit, held[lost]]), held[~lost]
