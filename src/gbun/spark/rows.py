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
ODD = np.uint64(0x9E3779B97F4A7C15)  # the step of SplitMix64, https://prng.di.unimi.it/splitmix64.c


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
            n_entries = int(np.count_nonzero(numbers))
        else:
            part = _entries(dense, lengths, indices.flatten().to_numpy(zero_copy_only=False), numbers)
            n_entries = len(part.values)
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

    def hashes(self) -> list[NDArray[np.uint64]]:
        """A number for each row, batch after batch, whatever its form."""
        parts = (_as_entries(part, self.n_columns or 0) for part in self.parts)
        return [_sums(_mixed(_bits(part.values), part.columns), part.counts) for part in parts]


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


def _as_entries(part: NDArray[np.float64] | Entries, m: int) -> Entries:
    if isinstance(part, Entries):
        return part
    every = np.ones(len(part), dtype=bool)
    return _entries(every, np.full(len(part), m), np.zeros(0, dtype=np.int32), part.reshape(-1))


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
            part = _as_entries(parts.pop(), m)
            counts[row + 1 : row + 1 + len(part.counts)] = part.counts
            columns[at : at + len(part.values)], values[at : at + len(part.values)] = part.columns, part.values
            row, at = row + len(part.counts), at + len(part.values)
    return scipy.sparse.csr_array((values, columns, np.cumsum(counts)), shape=(n, m))


class Tokens:
    """Lists of words."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lists: list[list[str]] = []

    def add(self, column: Any) -> None:
        (lists,) = column.flatten()
        _check_present(lists, self.name)
        words = lists.flatten()
        if words.null_count:
            raise ValueError(f"column {self.name!r} has {words.null_count} tokens that are null; drop or fill them")
        self.lists += lists.to_pylist()

    def rows(self, dense: bool) -> list[list[str]]:
        lists, self.lists = self.lists, []
        return lists

    def hashes(self) -> list[NDArray[np.uint64]]:
        words = np.array([word for row in self.lists for word in row], dtype=object)
        return [_sums(_mixed(_bits(words)), np.array([len(row) for row in self.lists], dtype=np.int64))]


class Frame:
    """Plain columns: numbers stay numbers; strings, and numbers the user says so of, are categories."""

    def __init__(self, names: Sequence[str], categorical: Sequence[str]) -> None:
        self.names, self.categorical = names, categorical
        self.batches: list[Any] = []

    def add(self, column: Any) -> None:
        self.batches.append(pa.RecordBatch.from_arrays(column.flatten(), names=list(self.names)))

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

    def hashes(self) -> list[NDArray[np.uint64]]:
        found = []
        for batch in self.batches:
            sums = np.zeros(batch.num_rows, dtype=np.uint64)
            for number, values in enumerate(batch.columns):
                sums += _mixed(_bits(values.to_pandas()), np.uint64(number))
            found.append(sums)
        return found


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

    @classmethod
    def empty(cls, columns: Columns) -> Share:
        return cls(columns, reader(columns))

    def add(self, batch: Any) -> None:
        self.features.add(batch.column(FEATURES))
        self.y.append(_numbers(batch.column(LABEL), self.columns.label))
        if self.columns.weight is not None:
            self.weights.append(_numbers(batch.column(WEIGHT), self.columns.weight))
        self.n_rows += batch.num_rows

    def fingerprint(self) -> int:
        """A number that goes with the rows: neither with their order nor with how they are divided, but for a sum.

        It is read off what the share holds, before `target`, `weight` and the features' `rows` take that away.
        """
        hashes = _joined(self.features.hashes(), np.uint64)
        for column in (self.y, self.weights):
            if column:
                hashes = _mixed(hashes ^ _bits(np.concatenate(column)))
        return int(hashes.sum(dtype=np.uint64))

    def target(self) -> NDArray[Any]:
        y, self.y = self.y, []
        return _joined(y, np.float64)

    def weight(self) -> NDArray[np.float64] | None:
        weights, self.weights = self.weights, []
        return None if self.columns.weight is None else _joined(weights, np.float64)


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
    """A column of its own: a view would keep the whole batch in memory, features and all."""
    _check_present(values, name)
    return np.array(values.to_numpy(zero_copy_only=False))


def _joined(parts: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate(parts) if len(parts) else np.zeros(0, dtype=dtype)


def _check_present(values: Any, name: str) -> None:
    if values.null_count:
        raise ValueError(f"column {name!r} is null in {values.null_count} rows of a batch; drop or fill those rows")


def _different(name: str, sizes: Sequence[int]) -> str:
    return f"column {name!r} must have vectors of one size, got {', '.join(map(str, sizes[:5]))}"


# Hashes


def _bits(values: Any) -> NDArray[np.uint64]:
    """Values as 64 bits each: numbers as they are, words by a hash."""
    array = np.asarray(values)
    if array.dtype.kind == "O":
        return pd.util.hash_array(array, categorize=True)
    if array.dtype.kind == "f":
        return (array.astype(np.float64, copy=False) + 0.0).view(np.uint64)  # -0.0 is 0.0
    return array.astype(np.int64).view(np.uint64)


def _mixed(bits: NDArray[np.uint64], column: Any = 0) -> NDArray[np.uint64]:
    """Bits, and the column they are of, so spread that sums of them tell apart what they were made of: SplitMix64."""
    bits = bits + (np.atleast_1d(column).astype(np.uint64) + np.uint64(1)) * ODD  # arrays wrap around in silence
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    spread: NDArray[np.uint64] = bits ^ (bits >> np.uint64(31))
    return spread


def _sums(hashes: NDArray[np.uint64], counts: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The sum of each row's hashes, modulo 2^64; `counts` says how many each row has."""
    upto = np.zeros(len(hashes) + 1, dtype=np.uint64)
    np.cumsum(hashes, out=upto[1:])
    ends = np.cumsum(counts)
    sums: NDArray[np.uint64] = upto[ends] - upto[ends - counts]
    return sums
