"""Rows as the library holds them: dense columns, sparse entries, or both side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gbun.arrays import Array
from gbun.dtypes import FloatArray, IntArray


@dataclass(frozen=True)
class There:
    """Where a device has the same entries in memory of its own, as they came: it need not get them again."""

    ids: Array  # int32 or int64
    values: Array | None = None  # float32; None where others take their place

    def __getitem__(self, entries: slice) -> There:
        return There(self.ids[entries], None if self.values is None else self.values[entries])


@dataclass(frozen=True)
class Entries:
    """Compressed sparse rows whose columns are 64-bit feature ids: nothing here grows with the largest id."""

    indptr: IntArray
    ids: IntArray
    values: FloatArray
    there: There | None = None

    def valued(self, values: FloatArray) -> Entries:
        """The same entries with other values, which a device does not have; it may be that they are not others."""
        there = self.there if values is self.values or self.there is None else There(self.there.ids)
        return Entries(self.indptr, self.ids, values, there)

    @property
    def row_of_entry(self) -> IntArray:
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))

    def counting(self, weight: FloatArray) -> IntArray:
        """The ids of rows that have a weight."""
        return self.ids if (weight > 0).all() else self.ids[np.repeat(weight > 0, np.diff(self.indptr))]

    def take(self, rows: IntArray) -> Entries:
        lengths = np.diff(self.indptr)[rows]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        # position of each taken entry: its row's first entry plus its place within the row
        position = np.repeat(self.indptr[:-1][rows] - indptr[:-1], lengths) + np.arange(indptr[-1])
        return Entries(indptr, self.ids[position], self.values[position])


@dataclass(frozen=True)
class Features:
    """n rows of dense columns (ids 0 .. m-1) and sparse entries (any ids); either may be absent.

    >>> Features(2, dense=np.eye(2, dtype=np.float32)).take(np.array([1])).dense
    array([[0., 1.]], dtype=float32)
    """

    n_rows: int
    dense: Array | None = None
    sparse: Entries | None = None

    def block(self, first: int, last: int) -> Features:
        """Rows first .. last-1, without a copy of their entries."""
        sparse = self.sparse
        if sparse is not None:
            entries = slice(int(sparse.indptr[first]), int(sparse.indptr[last]))
            indptr = sparse.indptr[first : last + 1] - sparse.indptr[first]
            there = None if sparse.there is None else sparse.there[entries]
            sparse = Entries(indptr, sparse.ids[entries], sparse.values[entries], there)
        return Features(last - first, None if self.dense is None else self.dense[first:last], sparse)

    def contiguous(self) -> Features:
        """The same rows in arrays that lie in memory element by element; a copy only where they do not."""
        dense, sparse = self.dense, self.sparse
        if sparse is not None:
            sparse = Entries(sparse.indptr, np.ascontiguousarray(sparse.ids), np.ascontiguousarray(sparse.values))
        if isinstance(dense, np.ndarray):
            dense = np.ascontiguousarray(dense)
        return Features(self.n_rows, dense, sparse)

    def take(self, rows: IntArray) -> Features:
        return Features(
            len(rows),
            None if self.dense is None else self.dense[rows],
            None if self.sparse is None else self.sparse.take(rows),
        )


@dataclass(frozen=True)
class Schema:
    """What a model remembers of its input, so that other data is refused instead of misread.

    kind: "array" (dense or sparse matrix), "frame" (columns by name, some of them categorical), "names" (dicts)
    or "tokens" (lists of words). `names` and `categorical` belong to frames, `n_columns` to arrays and frames.
    """

    kind: str
    n_columns: int | None = None
    names: tuple[str, ...] | None = None
    categorical: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shard:
    """The rows one worker trains on: features, targets, weights, and where their scores start."""

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
