"""Rows to measure on. A source is a recipe, so that each child process reads or draws its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.speed.options import QUICK, Options
from gbun.datasets import make_clicks

SEED = 0
KDD12_ROWS, KDD12_FEATURES = 1_200_000, 390_000  # the paper's KDD12.sub, whose shape the generated rows have


@dataclass(frozen=True)
class Source:
    """`load()` gives X, y with two classes."""

    name: str
    load: Callable[[], tuple[Any, Any]]


def clicks(n_rows: int, n_features: int = KDD12_FEATURES, name: str = "KDD12.sub") -> Source:
    return Source(name, partial(make_clicks, n_rows, n_features, seed=SEED))


def spread_clicks(n_rows: int, n_features: int, distinct: int) -> Source:
    """The same rows for every `n_features`: ids of `distinct` features, multiplied until the largest is about that."""
    return Source(f"{n_features:,} ids", partial(_spread_clicks, n_rows, n_features, distinct))


def _spread_clicks(n_rows: int, n_features: int, distinct: int) -> tuple[Any, Any]:
    X, y = make_clicks(n_rows, distinct, seed=SEED)
    ids = X.indices.astype(np.int64) * (n_features // distinct)
    return sp.csr_array((X.data, ids.astype(np.int32), X.indptr), shape=(n_rows, n_features)), y


def kdd12_sub(options: Options) -> Source:
    return clicks(options.rows(KDD12_ROWS))


def real(options: Options, name: str) -> Source | None:
    """A set of the data folder, by name; None where there is no such folder."""
    if options.data is None:
        return None
    return Source(name, partial(read, options.data, name, QUICK if options.quick else 1))


FILES = {
    "book_crossing": ("X.npz", "explicit"),
    "news20_binary": ("X.npz", "y"),
    "imdb": ("X_train.npz", "y_train"),
    "rcv1_binary": ("X_train.npz", "y_train"),
}


def read(folder: Path, name: str, step: int = 1) -> tuple[Any, Any]:
    """Every row, or each of so many steps; classes are numbered."""
    rows, target = FILES[name]
    X, y = sp.load_npz(folder / name / rows)[::step], np.load(folder / name / "y.npz")[target][::step]
    return X, np.searchsorted(np.unique(y), y)
