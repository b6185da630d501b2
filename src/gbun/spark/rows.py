"""Columns of Spark, which arrive as Arrow batches, as rows that gbun reads: matrices, data frames, lists of tokens.

Nothing is densified: a vector that Spark holds as sparse takes memory for its entries, whatever its size. Spark is not
imported here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse
from numpy.typing import NDArray

FEATURES, LABEL, WEIGHT, INDICATOR = "features", "label", "weight", "indicator"
"""What the columns are called on their way; features are a struct of whatever their kind consists of."""
KINDS = ("vector", "array", "tokens", "columns")
DENSE_BYTES, SPARSE_BYTES = 8, 12  # a number of a matrix; an entry of a sparse one, with its column
DENSE_VECTOR = 1  # of a vector's field "type"
ODD = np.uint64(0x9E3779B97F4A7C15)  # spreads bits: https://en.wikipedia.org/wiki/Hash_function#Fibonacci_hashing


@dataclass(frozen=True)
class Columns:
    """The columns that a training or a prediction reads, as the user calls them, and of which kind features are."""

    kind: str
    features: tuple[str, ...]
    categorical: tuple[str, ...] = ()
    label: str = ""
    weight: str | None = None
    indicator: str | None = None

    def __str__(self) -> str:
        parts = {"X": ", ".join(map(repr, self.features[:5])) + (", ..." if len(self.features) > 5 else "")}
        parts |= {"y": repr(self.label)} | ({} if self.weight is None else {"sample_weight": repr(self.weight)})
        return "; ".join(f"{name} is column {column}" for name, column in parts.items())


class Matrix:
    """Vectors or arrays of numbers, batch after batch.

    Spark may write a column's rows as dense and as sparse vectors (VectorAssembler takes the shorter form of each row).
    Where there are both, all take the form that is smaller for all rows together.

    >>> vector = pa.array([{"type": 0, "size": 9, "indices": [2], "values": [5.0]}])
    >>> matrix = Matrix("vector", "features")
    >>> matrix.add(vector)
    >>> matrix.rows(dense=False).shape, matrix.counts
    ((1, 9), {'rows': 1, 'sparse': 1, 'entries': 1})
    """

    def __init__(self, kind: str, name: str) -> None:
        self.kind, self.name = kind, name
        self.n_columns: int | None = None
        self.parts: list[NDArray[np.float64] | Entries] = []
        self.counts = {"rows": 0, "sparse": 0, "entries": 0}
        self.digest = 0

    def add(self, column: Any) -> None:
        if not len(column):
            return
        if self.kind == "vector":
            _check_present(column, self.name)
            kind, size, indices, values = column.flatten()
            dense = kind.to_numpy(zero_copy_only=False) == DENSE_VECTOR
            sizes = size.fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False)
        else:
            (values,) = column.flatten()
            _check_present(values, self.name)
            dense, sizes = np.ones(len(values), dtype=bool), np.zeros(len(values), dtype=np.int64)
            indices = None
        lengths = pc.list_value_length(values).to_numpy(zero_copy_only=False)
        self._check_columns(np.where(dense, lengths, sizes))
        numbers = values.flatten().to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
        if dense.all():
            part: Any = numbers.reshape(len(dense), self.n_columns or 0)
            (filled,) = np.nonzero(numbers)
            n_entries = len(filled)
            self.digest += _digest(numbers[filled], filled % max(1, self.n_columns or 0))
        else:
            part = _entries(dense, lengths, indices.flatten().to_numpy(zero_copy_only=False), numbers)
            n_entries = len(part.values)
            self.digest += _digest(part.values, part.columns)
        self.parts.append(part)
        for count, value in zip(self.counts, (len(dense), int((~dense).sum()), n_entries), strict=True):
            self.counts[count] += value

    def _check_columns(self, sizes: NDArray[np.int64]) -> None:
        found = np.unique(sizes).tolist()
        self.n_columns = found[0] if self.n_columns is None and found else self.n_columns
        other = next((size for size in found if size != self.n_columns), None)
        if other is not None:
            raise ValueError(_different(self.name, sorted((other, int(self.n_columns or 0)))))

    def said(self) -> dict[str, Any]:
        """What other workers must know to agree on a form."""
        return {**self.counts, "columns": self.n_columns, "name": self.name}

    @staticmethod
    def is_dense(said: Sequence[dict[str, Any]]) -> bool:
        """The form of all rows, by what all workers say.

        >>> one = {"rows": 2, "sparse": 1, "entries": 8, "columns": 5, "name": "features"}
        >>> Matrix.is_dense([one]), Matrix.is_dense([{**one, "entries": 3}])
        (True, False)
        """
        columns = sorted({one["columns"] for one in said if one["columns"] is not None})
        if len(columns) > 1:
            raise ValueError(_different(said[0]["name"], columns))
        rows, sparse, entries = (sum(one[count] for one in said) for count in ("rows", "sparse", "entries"))
        if sparse in (0, rows):
            return bool(sparse == 0)
        return bool(DENSE_BYTES * rows * columns[0] <= SPARSE_BYTES * entries)

    def rows(self, dense: bool) -> Any:
        """The matrix. What it was made of is given up on the way, so that memory holds it once and a half at most."""
        n, m = self.counts["rows"], self.n_columns or 0
        parts, self.parts = self.parts[::-1], []
        if dense:
            return _dense(parts, n, m)
        return _sparse(parts, n, m, self.counts["entries"])


@dataclass(frozen=True)
class Entries:
    """Rows of vectors as their entries: how many each row has, their columns and values."""

    counts: NDArray[np.int64]
    columns: NDArray[np.int32]
    values: NDArray[np.float64]


def _entries(
    dense: NDArray[np.bool_], lengths: NDArray[np.int64], indices: NDArray[np.int32], numbers: NDArray[np.float64]
) -> Entries:
    """Vectors of both forms: `indices` belong to those that are sparse, of the others zeros are left out."""
    row = np.repeat(np.arange(len(dense)), lengths)
    of_dense = dense[row]
    columns = np.empty(len(numbers), dtype=np.int32)
    columns[~of_dense] = indices
    first = np.cumsum(lengths) - lengths
    columns[of_dense] = (np.arange(len(numbers)) - first[row])[of_dense]
    kept = ~of_dense | (numbers != 0.0)
    return Entries(np.bincount(row[kept], minlength=len(dense)), columns[kept], numbers[kept])


def _dense(parts: list[Any], n: int, m: int) -> NDArray[np.float64]:
    if len(parts) == 1 and isinstance(parts[0], np.ndarray):
        return parts[0]
    matrix, first = np.zeros((n, m)), 0
    while parts:
        part = parts.pop()
        n_rows = len(part if isinstance(part, np.ndarray) else part.counts)
        if isinstance(part, np.ndarray):
            matrix[first : first + n_rows] = part
        else:
            matrix[first + np.repeat(np.arange(n_rows), part.counts), part.columns] = part.values
        first += n_rows
    return matrix


def _sparse(parts: list[Any], n: int, m: int, n_entries: int) -> Any:
    counts = np.zeros(n + 1, dtype=np.int64)
    columns, values = np.empty(n_entries, dtype=np.int32), np.empty(n_entries, dtype=np.float32)
    row = at = 0
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused as such
        while parts:
            part = parts.pop()
            if isinstance(part, np.ndarray):
                lengths, sizes = np.full(len(part), m), np.ones(len(part), dtype=bool)
                part = _entries(sizes, lengths, np.zeros(0, dtype=np.int32), part.reshape(-1))
            counts[row + 1 : row + 1 + len(part.counts)] = part.counts
            columns[at : at + len(part.values)], values[at : at + len(part.values)] = part.columns, part.values
            row, at = row + len(part.counts), at + len(part.values)
    return scipy.sparse.csr_array((values, columns, np.cumsum(counts)), shape=(n, m))


class Tokens:
    """Lists of words."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lists: list[list[str]] = []
        self.digest = 0

    def add(self, column: Any) -> None:
        (lists,) = column.flatten()
        _check_present(lists, self.name)
        words = lists.flatten()
        if words.null_count:
            raise ValueError(f"column {self.name!r} has {words.null_count} tokens that are null; drop or fill them")
        self.digest += _digest(words.to_pandas())
        self.lists += lists.to_pylist()

    def rows(self, dense: bool) -> list[list[str]]:
        return self.lists


class Frame:
    """Plain columns: numbers stay numbers; strings, and numbers the user says so of, are categories."""

    def __init__(self, names: Sequence[str], categorical: Sequence[str]) -> None:
        self.names, self.categorical = names, categorical
        self.batches: list[Any] = []
        self.digest = 0

    def add(self, column: Any) -> None:
        batch = pa.RecordBatch.from_arrays(column.flatten(), names=list(self.names))
        for number, values in enumerate(batch.columns):
            self.digest += (number + 1) * _digest(values.to_pandas())
        self.batches.append(batch)

    def rows(self, dense: bool) -> Any:
        if not self.batches:
            return pd.DataFrame({name: pd.Series(dtype=np.float64) for name in self.names})
        table, self.batches = pa.Table.from_batches(self.batches), []
        return pd.DataFrame({name: self._series(name, table[name]) for name in self.names}, copy=False)

    def _series(self, name: str, values: Any) -> Any:
        if not pa.types.is_string(values.type) and not pa.types.is_large_string(values.type):
            series = values.to_pandas()
            return series.astype("category") if name in self.categorical else series
        # Each word once, and a number for each row.
        return pa.table({name: values.dictionary_encode()}).unify_dictionaries()[name].to_pandas()


Reader = Matrix | Tokens | Frame


def reader(columns: Columns) -> Reader:
    if columns.kind == "columns":
        return Frame(columns.features, columns.categorical)
    return Tokens(columns.features[0]) if columns.kind == "tokens" else Matrix(columns.kind, columns.features[0])


@dataclass
class Share:
    """A worker's rows of one set: features, targets, weights."""

    columns: Columns
    features: Reader
    y: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)
    n_rows: int = 0
    digest: int = 0

    @classmethod
    def empty(cls, columns: Columns) -> Share:
        return cls(columns, reader(columns))

    def add(self, batch: Any) -> None:
        self.features.add(batch.column(FEATURES))
        self.y.append(_numbers(batch.column(LABEL), self.columns.label))
        self.digest += _digest(self.y[-1])
        if self.columns.weight is not None:
            self.weights.append(_numbers(batch.column(WEIGHT), self.columns.weight))
            self.digest += 3 * _digest(self.weights[-1])
        self.n_rows += batch.num_rows

    @property
    def fingerprint(self) -> int:
        """A number that goes with the rows: neither with their order nor with how they are divided, but for a sum."""
        return (self.digest + self.features.digest) % 2**64

    def target(self) -> NDArray[Any]:
        return np.concatenate(self.y) if self.y else np.zeros(0)

    def weight(self) -> NDArray[np.float64] | None:
        if self.columns.weight is None:
            return None
        return np.concatenate(self.weights) if self.weights else np.zeros(0)


def read(batches: Iterable[Any], columns: Columns) -> tuple[Share, Share | None]:
    """Rows to train on, and those that the indicator sets aside to evaluate on; None where there is none."""
    train = Share.empty(columns)
    watched = None if columns.indicator is None else Share.empty(columns)
    for batch in batches:
        if watched is None:
            train.add(batch)
            continue
        aside = batch.column(INDICATOR)
        _check_present(aside, str(columns.indicator))
        train.add(batch.filter(pc.invert(aside)))
        watched.add(batch.filter(aside))
    return train, watched


def _numbers(values: Any, name: str) -> NDArray[Any]:
    _check_present(values, name)
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _check_present(values: Any, name: str) -> None:
    if values.null_count:
        raise ValueError(f"column {name!r} is null in {values.null_count} rows of a batch; drop or fill those rows")


def _different(name: str, sizes: Sequence[int]) -> str:
    return f"column {name!r} must have vectors of one size, got {', '.join(map(str, sizes[:5]))}"


def _digest(values: Any, columns: NDArray[Any] | None = None) -> int:
    """The sum of the values' hashes, modulo 2^64: addition does not mind order."""
    array = np.asarray(values)
    if array.dtype.kind == "O":
        bits = pd.util.hash_array(array, categorize=True)
    else:
        bits = (array.astype(np.float64, copy=False) + 0.0).reshape(-1).view(np.uint64)
    if columns is not None:
        bits = bits ^ (columns.astype(np.uint64) * ODD)
    mixed = bits * ODD
    return int(((mixed ^ (mixed >> np.uint64(29))) * ODD).sum(dtype=np.uint64))
