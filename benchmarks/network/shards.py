"""Shards in files: row i of a data set belongs to host i mod S, whichever learner reads it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.speed.data import Source

Rows = tuple[Any, Any]  # X, y


@contextmanager
def written(source: Source, n_shards: int) -> Iterator[Path]:
    """A folder with the rows of a source, which is removed in the end."""
    with tempfile.TemporaryDirectory(prefix="gbun-shards-") as name:
        X, y = source.load()
        for rank in range(n_shards):
            write(Path(name), rank, (X[rank::n_shards], y[rank::n_shards]))
        del X, y  # the workers need the memory
        yield Path(name)


def write(folder: Path, rank: int, rows: Rows) -> None:
    X, y = rows
    np.savez(folder / f"{rank}.npz", data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape, y=y)


def read(folder: str | os.PathLike[str], rank: int) -> Rows:
    with np.load(Path(folder) / f"{rank}.npz") as file:
        X = sp.csr_array((file["data"], file["indices"], file["indptr"]), shape=tuple(file["shape"]))
        return X, file["y"]
