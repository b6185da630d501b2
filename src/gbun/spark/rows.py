"""Rows of Spark columns, which arrive as Arrow batches: matrices, data frames, lists of tokens.

Sparse vectors stay sparse: they take memory for their entries, whatever their size. Spark is not imported here.
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
"""Names of the columns that workers get; "features" is a struct whose fields depend on the kind of features."""
DENSE_BYTES, SPARSE_BYTES = 8, 12  # of a number in a dense matrix; of an entry with its column in a sparse one
DENSE_VECTOR = 1  # value of the field "type" of a vector
SPLITMIX_STEP = np.uint64(0x9E3779B97F4A7C15)  # the step of SplitMix64, https://prng.di.unimi.it/splitmix64.c


@dataclass(frozen=True)
class InputColumns:
    """The columns that a training or a prediction reads, by the user's names.

    `kind` is the kind of features: "vector", "array", "tokens" or "columns".
    """

    kind: str
    features: tuple[str, ...]
    categorical: tuple[str, ...] = ()
    label: str = ""
    weight: str | None = None
    indicator: str | None = None

    def __str__(self) -> str:
        parts = {"X": ", ".join(map(repr, self.features[:5])) + (", ..." if len(self.features) > 5 else "")}
        parts |= ({"y": repr(self.label)} if self.label else {}) | (
            {} if self.weight is None else {"sample_weight": repr(self.weight)}
        )
        return "; ".join(f"{name} is column {column}" for name, column in parts.items())


@dataclass(frozen=True)
class SparseBatch:
    """Rows as entries: the number of entries of each row, their columns and values."""

    counts: NDArray[np.int64]
    columns: NDArray[np.int32]
    values: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.counts)


class VectorReader:
    """Collects vectors or arrays of numbers, batch by batch.

    Spark may write rows of one column as dense and as sparse vectors: VectorAssembler takes the shorter form of each
    row. All rows then take the form that is smaller for all of them together.
    """

    def __init__(self, kind: str, name: str) -> None:
        self.kind, self.name = kind, name
        self.n_columns: int | None = None
        self.parts: list[NDArray[np.float64] | SparseBatch] = []
        self.counts = {"rows": 0, "sparse": 0, "entries": 0}

    def add(self, column: Any) -> None:
        if not len(column):
            return
        if self.kind == "vector":
            _check_no_nulls(column, self.name)
            kind, size, indices, values = column.flatten()
            dense = kind.to_numpy(zero_copy_only=False) == DENSE_VECTOR
            sizes = size.fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False)
        else:
            (values,) = column.flatten()
            _check_no_nulls(values, self.name)
            dense, sizes, indices = np.ones(len(values), dtype=bool), 0, None
        lengths = pc.list_value_length(values).to_numpy(zero_copy_only=False)
        found = set(np.unique(np.where(dense, lengths, sizes)).tolist()) | ({self.n_columns} - {None})
        self.n_columns = _check_one_size(self.name, found)
        numbers = values.flatten().to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
        if dense.all():
            self.parts.append(numbers.reshape(len(dense), self.n_columns or 0))
            n_entries = int(np.count_nonzero(numbers))
        else:
            part = _make_sparse_batch(dense, lengths, indices.flatten().to_numpy(zero_copy_only=False), numbers)
            self.parts.append(part)
            n_entries = len(part.values)
        self.counts["rows"] += len(dense)
        self.counts["sparse"] += int((~dense).sum())
        self.counts["entries"] += n_entries

    def layout_stats(self) -> dict[str, Any]:
        """Return what all workers exchange to choose dense or sparse rows."""
        return {**self.counts, "columns": self.n_columns, "name": self.name}

    @staticmethod
    def is_dense(layout_stats: Sequence[dict[str, Any]]) -> bool:
        """Choose dense or sparse rows from the statistics of all workers."""
        n_columns = _check_one_size(layout_stats[0]["name"], {stats["columns"] for stats in layout_stats} - {None})
        rows, sparse, entries = (sum(stats[count] for stats in layout_stats) for count in ("rows", "sparse", "entries"))
        if sparse in (0, rows):
            return bool(sparse == 0)
        return bool(DENSE_BYTES * rows * n_columns <= SPARSE_BYTES * entries)

    def take_rows(self, dense: bool) -> Any:
        """Return the matrix and free its batches one by one, so that memory holds at most one and a half of it."""
        parts, self.parts = self.parts[::-1], []
        if not dense:
            return self._take_sparse(parts)
        if len(parts) == 1 and isinstance(parts[0], np.ndarray):
            return parts[0]
        matrix, first = np.zeros((self.counts["rows"], self.n_columns or 0)), 0
        while parts:
            part = parts.pop()
            if isinstance(part, np.ndarray):
                matrix[first : first + len(part)] = part
            else:
                matrix[first + np.repeat(np.arange(len(part)), part.counts), part.columns] = part.values
            first += len(part)
        return matrix

    def _take_sparse(self, parts: list[Any]) -> Any:
        n_rows, n_entries = self.counts["rows"], self.counts["entries"]
        counts = np.zeros(n_rows + 1, dtype=np.int64)
        columns, values = np.empty(n_entries, dtype=np.int32), np.empty(n_entries, dtype=np.float32)
        row = at = 0
        with np.errstate(over="ignore"):  # values too large for float32 become infinite, and are refused as such
            while parts:
                part = self._as_sparse(parts.pop())
                next_row, end = row + len(part), at + len(part.values)
                counts[row + 1 : next_row + 1] = part.counts
                columns[at:end], values[at:end] = part.columns, part.values
                row, at = next_row, end
        return scipy.sparse.csr_array((values, columns, np.cumsum(counts)), shape=(n_rows, self.n_columns or 0))

    def _as_sparse(self, part: NDArray[np.float64] | SparseBatch) -> SparseBatch:
        if isinstance(part, SparseBatch):
            return part
        dense, lengths = np.ones(len(part), dtype=bool), np.full(len(part), part.shape[1])
        return _make_sparse_batch(dense, lengths, np.zeros(0, dtype=np.int32), part.reshape(-1))

    def hashes(self) -> list[NDArray[np.uint64]]:
        """Hash each row, batch by batch; dense and sparse forms of a row have the same hash."""
        parts = (self._as_sparse(part) for part in self.parts)
        return [_sum_by_row(_mix_bits(_bits(part.values), part.columns), part.counts) for part in parts]


def _make_sparse_batch(
    dense: NDArray[np.bool_], lengths: NDArray[np.int64], indices: NDArray[np.int32], numbers: NDArray[np.float64]
) -> SparseBatch:
    """Make entries of dense and sparse vectors: `indices` are of the sparse ones; zeros of dense ones are left out."""
    row = np.repeat(np.arange(len(dense)), lengths)
    of_dense = dense[row]
    columns = np.empty(len(numbers), dtype=np.int32)
    columns[~of_dense] = indices
    first = np.cumsum(lengths) - lengths
    columns[of_dense] = (np.arange(len(numbers)) - first[row])[of_dense]
    kept = ~of_dense | (numbers != 0.0)
    return SparseBatch(np.bincount(row[kept], minlength=len(dense)), columns[kept], numbers[kept])


class TokenReader:
    """Collects lists of words."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lists: list[list[str]] = []

    def add(self, column: Any) -> None:
        (lists,) = column.flatten()
        _check_no_nulls(lists, self.name)
        words = lists.flatten()
        if words.null_count:
            raise ValueError(f"column {self.name!r} has {words.null_count} tokens that are null; drop or fill them")
        self.lists += lists.to_pylist()

    def take_rows(self, dense: bool) -> list[list[str]]:
        lists, self.lists = self.lists, []
        return lists

    def hashes(self) -> list[NDArray[np.uint64]]:
        words = np.array([word for row in self.lists for word in row], dtype=object)
        return [_sum_by_row(_mix_bits(_bits(words)), np.array([len(row) for row in self.lists], dtype=np.int64))]


class FrameReader:
    """Collects plain columns: numbers, and categories (strings, and the columns in `categorical`)."""

    def __init__(self, names: Sequence[str], categorical: Sequence[str]) -> None:
        self.names, self.categorical = names, categorical
        self.batches: list[Any] = []

    def add(self, column: Any) -> None:
        self.batches.append(pa.RecordBatch.from_arrays(column.flatten(), names=list(self.names)))

    def take_rows(self, dense: bool) -> Any:
        if not self.batches:
            return pd.DataFrame({name: pd.Series(dtype=np.float64) for name in self.names})
        table, self.batches = pa.Table.from_batches(self.batches), []
        return pd.DataFrame({name: self._series(name, table[name]) for name in self.names}, copy=False)

    def _series(self, name: str, values: Any) -> Any:
        if not pa.types.is_string(values.type) and not pa.types.is_large_string(values.type):
            series = values.to_pandas()
            return series.astype("category") if name in self.categorical else series
        # A dictionary keeps each word once, and a number for each row.
        return pa.table({name: values.dictionary_encode()}).unify_dictionaries()[name].to_pandas()

    def hashes(self) -> list[NDArray[np.uint64]]:
        def hash_rows(batch: Any) -> Any:
            return sum(_mix_bits(_bits(values.to_pandas()), number) for number, values in enumerate(batch.columns))

        return [hash_rows(batch) for batch in self.batches]


FeatureReader = VectorReader | TokenReader | FrameReader


def make_reader(columns: InputColumns) -> FeatureReader:
    if columns.kind == "columns":
        return FrameReader(columns.features, columns.categorical)
    (name,) = columns.features
    return TokenReader(name) if columns.kind == "tokens" else VectorReader(columns.kind, name)


@dataclass
class WorkerRows:
    """Rows of one worker, to train or to evaluate on: features, targets, weights."""

    columns: InputColumns
    y: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)
    n_rows: int = 0

    def __post_init__(self) -> None:
        self.features = make_reader(self.columns)

    def add(self, batch: Any) -> None:
        self.features.add(batch.column(FEATURES))
        self.y.append(_copy_column(batch.column(LABEL), self.columns.label))
        if self.columns.weight is not None:
            self.weights.append(_copy_column(batch.column(WEIGHT), self.columns.weight))
        self.n_rows += batch.num_rows

    def fingerprint(self) -> int:
        """Return the sum of the hashes of the rows, modulo 2^64; their order does not matter. Call it before `take`."""
        hashes = _concatenate(self.features.hashes(), np.uint64)
        for column in (self.y, self.weights):
            if column:
                hashes = _mix_bits(hashes ^ _bits(np.concatenate(column)))
        return int(hashes.sum(dtype=np.uint64))

    def take(self, dense: bool) -> tuple[Any, NDArray[Any], NDArray[np.float64] | None]:
        """Return features, targets and weights, and remove them from this object."""
        y, weights, self.y, self.weights = self.y, self.weights, [], []
        weight = None if self.columns.weight is None else _concatenate(weights, np.float64)
        return self.features.take_rows(dense), _concatenate(y, np.float64), weight


def read_batches(batches: Iterable[Any], columns: InputColumns) -> tuple[WorkerRows, WorkerRows | None]:
    """Read rows to train on and rows to evaluate on, which the indicator column selects; None without such a column."""
    train = WorkerRows(columns)
    valid = None if columns.indicator is None else WorkerRows(columns)
    for batch in batches:
        if valid is None:
            train.add(batch)
            continue
        indicator = batch.column(INDICATOR)
        _check_no_nulls(indicator, str(columns.indicator))
        train.add(batch.filter(pc.invert(indicator)))
        valid.add(batch.filter(indicator))
    return train, valid


def _copy_column(values: Any, name: str) -> NDArray[Any]:
    """Copy a column: a view would keep the whole batch in memory, features included."""
    _check_no_nulls(values, name)
    return np.array(values.to_numpy(zero_copy_only=False))


def _concatenate(parts: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate(parts) if len(parts) else np.zeros(0, dtype=dtype)


def _check_no_nulls(values: Any, name: str) -> None:
    if values.null_count:
        raise ValueError(f"column {name!r} is null in {values.null_count} rows of a batch; drop or fill those rows")


def _check_one_size(name: str, sizes: set[Any]) -> int:
    """Return the size of all vectors; 0 if there are none."""
    if len(sizes) > 1:
        raise ValueError(f"column {name!r} must have vectors of one size, got {', '.join(map(str, sorted(sizes)[:5]))}")
    return int(next(iter(sizes), 0))


# Hashes


def _bits(values: Any) -> NDArray[np.uint64]:
    """Return 64 bits for each value: those of numbers, or a hash of a word."""
    array = np.asarray(values)
    if array.dtype.kind == "O":
        return pd.util.hash_array(array, categorize=True)
    if array.dtype.kind == "f":
        return (array.astype(np.float64, copy=False) + 0.0).view(np.uint64)  # -0.0 becomes 0.0
    return array.astype(np.int64).view(np.uint64)


def _mix_bits(bits: NDArray[np.uint64], column: Any = 0) -> NDArray[np.uint64]:
    """Hash values together with their column by SplitMix64, so that sums of hashes tell different rows apart."""
    # Arrays, unlike scalars, overflow without a warning.
    bits = bits + (np.atleast_1d(column).astype(np.uint64) + np.uint64(1)) * SPLITMIX_STEP
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    hashes: NDArray[np.uint64] = bits ^ (bits >> np.uint64(31))
    return hashes


def _sum_by_row(hashes: NDArray[np.uint64], counts: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Sum the hashes of each row modulo 2^64; `counts` has the number of hashes of each row."""
    cumulative = np.zeros(len(hashes) + 1, dtype=np.uint64)
    np.cumsum(hashes, out=cumulative[1:])
    ends = np.cumsum(counts)
    sums: NDArray[np.uint64] = cumulative[ends] - cumulative[ends - counts]
    return sums
