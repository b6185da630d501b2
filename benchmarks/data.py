"""Rows to measure on. A source is a recipe, so that each child process reads or draws its own rows."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

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


T = TypeVar("T")
QUICK = 20  # a quick run has this part of the rows


@dataclass(frozen=True)
class Options:
    """`data` is the folder of real sets; without it only generated rows are used. `large_rows` is for part large."""

    data: Path | None
    threads: int
    quick: bool
    device: str = "cpu"
    large_rows: int | None = None

    def rows(self, n: int) -> int:
        return n // QUICK if self.quick else n

    def sweeps(self, n: int) -> int:
        return min(n, 2) if self.quick else n

    def pick(self, whole: T, quick: T) -> T:
        return quick if self.quick else whole


@contextmanager
def write_shards(source: Source, n_shards: int) -> Iterator[Path]:
    """A folder with the rows of a source, which is removed in the end."""
    with tempfile.TemporaryDirectory(prefix="gbun-shards-") as name:
        all_rows, y = source.load()
        for rank in range(n_shards):
            X, labels = all_rows[rank::n_shards], y[rank::n_shards]
            arrays = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape, "y": labels}
            np.savez(Path(name) / f"{rank}.npz", **arrays)
        del all_rows, y, X, labels, arrays  # the workers need the memory
        yield Path(name)


def read_shard(folder: str | os.PathLike[str], rank: int) -> tuple[Any, Any]:
    with np.load(Path(folder) / f"{rank}.npz") as file:
        X = sp.csr_array((file["data"], file["indices"], file["indptr"]), shape=tuple(file["shape"]))
        return X, file["y"]
