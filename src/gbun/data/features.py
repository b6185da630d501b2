"""Rows of features: dense columns, sparse entries, or both side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gbun.arrays import Array
from gbun.dtypes import FloatArray, IntArray

N_BUCKETS = 2**16  # of a column of categories; bucket 0 is for missing values
ROWS_AT_A_TIME = 2**14  # whose entries are copied at a time


@dataclass(frozen=True)
class DeviceEntries:
    """The user's copy of sparse entries in the memory of a device, which need not be sent there again."""

    ids: Array  # int32 or int64
    values: Array | None = None  # float32; None if scaling has replaced them

    def __getitem__(self, entries: slice) -> DeviceEntries:
        return DeviceEntries(self.ids[entries], None if self.values is None else self.values[entries])


@dataclass(frozen=True)
class Entries:
    """Compressed sparse rows with 64-bit feature ids: no array grows with the largest id."""

    indptr: IntArray
    ids: IntArray
    values: FloatArray
    on_device: DeviceEntries | None = None

    def with_values(self, values: FloatArray) -> Entries:
        """Return the same entries with other values, which the device does not have unless they are the same array."""
        on_device = self.on_device
        if on_device is not None and values is not self.values:
            on_device = DeviceEntries(on_device.ids)
        return Entries(self.indptr, self.ids, values, on_device)

    @property
    def row_of_entry(self) -> IntArray:
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))

    def weighted_ids(self, weight: FloatArray) -> IntArray:
        """Return the ids of rows with a positive weight."""
        return self.ids if (weight > 0).all() else self.ids[np.repeat(weight > 0, np.diff(self.indptr))]

    def take(self, rows: IntArray) -> Entries:
        lengths = np.diff(self.indptr)[rows]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        ids, values = np.empty(indptr[-1], self.ids.dtype), np.empty(indptr[-1], self.values.dtype)
        for first in range(0, len(rows), ROWS_AT_A_TIME):  # what is made of positions is small beside the entries
            some = slice(first, first + ROWS_AT_A_TIME)
            begin, end = indptr[first], indptr[min(first + ROWS_AT_A_TIME, len(rows))]
            # The position of an entry is that of its row's first entry plus its place within the row.
            position = np.repeat(self.indptr[rows[some]] - indptr[:-1][some], lengths[some]) + np.arange(begin, end)
            np.take(self.ids, position, out=ids[begin:end], mode="clip")
            np.take(self.values, position, out=values[begin:end], mode="clip")
        return Entries(indptr, ids, values)


@dataclass(frozen=True)
class Features:
    """n rows of dense columns (ids 0 .. m-1) and sparse entries (any ids); either may be absent.

    For learners that split columns, `raw` has the dense columns before scaling, with NaN where a value is missing, and
    `categories` the columns of categories as buckets, uint16 (n, c): 1 + hash modulo 65535, 0 where a value is missing.

    >>> Features(2, dense=np.eye(2, dtype=np.float32)).take(np.array([1])).dense
    array([[0., 1.]], dtype=float32)
    """

    n_rows: int
    dense: Array | None = None
    sparse: Entries | None = None
    raw: Array | None = None
    categories: IntArray | None = None

    def block(self, first: int, last: int) -> Features:
        """Return rows first .. last-1 without copying their entries."""
        if first == 0 and last == self.n_rows:
            return self
        sparse = self.sparse
        if sparse is not None:
            entries = slice(int(sparse.indptr[first]), int(sparse.indptr[last]))
            indptr = sparse.indptr[first : last + 1] - sparse.indptr[first]
            on_device = None if sparse.on_device is None else sparse.on_device[entries]
            sparse = Entries(indptr, sparse.ids[entries], sparse.values[entries], on_device)
        parts = self.dense, self.raw, self.categories
        dense, raw, categories = (None if part is None else part[first:last] for part in parts)
        return Features(last - first, dense, sparse, raw, categories)

    def contiguous(self) -> Features:
        """Return the same rows in contiguous arrays, copied only if they are not contiguous."""
        dense, sparse = self.dense, self.sparse
        if sparse is not None:
            sparse = Entries(sparse.indptr, np.ascontiguousarray(sparse.ids), np.ascontiguousarray(sparse.values))
        if isinstance(dense, np.ndarray):
            dense = np.ascontiguousarray(dense)
        return Features(self.n_rows, dense, sparse, self.raw, self.categories)

    def take(self, rows: IntArray) -> Features:
        return Features(
            len(rows),
            None if self.dense is None else self.dense[rows],
            None if self.sparse is None else self.sparse.take(rows),
            None if self.raw is None else self.raw[rows],
            None if self.categories is None else self.categories[rows],
        )


@dataclass(frozen=True)
class Schema:
    """The form of a model's input, so that other data is refused instead of misread.

    `kind` is "array" (dense or sparse matrix), "frame" (named columns, some of them categorical), "columns" (a dense
    matrix, some of its columns categorical), "names" (dicts) or "tokens" (lists of strings). Frames have `names` and
    `categorical`; with "columns", these are numbers of columns as text. All three have `n_columns`. `declared` are
    those categorical columns of a frame that the user declared, which may hold numbers.
    """

    kind: str
    n_columns: int | None = None
    names: tuple[str, ...] | None = None
    categorical: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of all columns, or their numbers; none where features are names."""
        return self.names or tuple(map(str, range(self.n_columns or 0)))

    @property
    def dense_names(self) -> tuple[str, ...]:
        """The names of the dense columns, or their numbers.

        >>> Schema("frame", 3, ("age", "town", "size"), ("town",)).dense_names
        ('age', 'size')
        """
        return tuple(name for name in self.column_names if name not in self.categorical)

    def places(self) -> tuple[IntArray, IntArray]:
        """Return the number of each dense column among all columns, and of each column of categories.

        >>> Schema("frame", 3, ("age", "town", "size"), ("town",)).places()
        (array([0, 2]), array([1]))
        """
        names = self.column_names
        number = {name: j for j, name in enumerate(names)}
        categories = [number[name] for name in self.categorical]
        is_dense = np.ones(len(names), dtype=bool)
        is_dense[categories] = False
        return np.flatnonzero(is_dense), np.array(categories, dtype=np.int64)


@dataclass(frozen=True)
class Shard:
    """Rows of one worker, to train or to evaluate on: features, targets, weights and initial scores."""

    features: Features
    y: FloatArray
    weight: FloatArray
    base_margin: FloatArray | None = None

    @property
    def n_rows(self) -> int:
        return self.features.n_rows

    def take(self, rows: IntArray) -> Shard:
        margin = None if self.base_margin is None else self.base_margin[rows]
        return Shard(self.features.take(rows), self.y[rows], self.weight[rows], margin)
