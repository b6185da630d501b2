"""Which of the user's columns a contribution belongs to, and how columns are named."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from gbun.data.features import Entries, Features, Schema
from gbun.data.ingest import name_feature
from gbun.dtypes import FloatArray, IntArray
from gbun.networks import hash_name


@dataclass(frozen=True)
class Layout:
    """Columns of an explanation.

    Attributes
    ----------
    n_columns : int
    names : tuple of str, optional
    dense, categories : int64
        The column of each dense feature, and of each column of categories.
    ids : int64, optional
        The feature of each column, ascending, where columns are those features that some row has; None where the number
        of a feature is that of its column.
    is_sparse : bool
        Whether contributions are kept for present features alone.
    """

    n_columns: int
    names: tuple[str, ...] | None
    dense: IntArray
    categories: IntArray
    ids: IntArray | None = None
    is_sparse: bool = False

    def of_entries(self, features: Features) -> IntArray:
        """Return the column of each entry."""
        assert features.sparse is not None
        if len(self.categories):  # a frame: entries of a row are in the order of the columns whose value is not missing
            assert features.categories is not None
            return np.asarray(self.categories[np.nonzero(features.categories)[1]])
        ids = features.sparse.ids.astype(np.uint64)
        return ids.astype(np.int64) if self.ids is None else np.searchsorted(self.ids, ids)

    def assemble(
        self, difference: Features, dense: FloatArray, entries: FloatArray, categories: FloatArray, at: IntArray
    ) -> Any:
        """Put contributions of dense columns, entries (whose columns are `at`) and categories into the user's columns.

        Returns (n, columns, C), or with `is_sparse` a list of C CSR matrices.
        """
        n, C = dense.shape[0], dense.shape[2]
        if self.is_sparse:
            assert difference.sparse is not None
            indptr = difference.sparse.indptr
            return [_to_csr(entries[:, c], at, indptr, (n, self.n_columns)) for c in range(C)]
        values = np.zeros((n, self.n_columns, C))
        values[:, self.dense] = dense
        values[:, self.categories] += categories
        if difference.sparse is not None:
            np.add.at(values, (difference.sparse.row_of_entry, at), entries)
        return values


def _to_csr(values: FloatArray, at: IntArray, indptr: IntArray, shape: tuple[int, int]) -> Any:
    matrix = scipy.sparse.csr_array((values, at.copy(), indptr.copy()), shape=shape)  # sorted in place
    matrix.sum_duplicates()
    return matrix


def make_layout(schema: Schema, X: Any, features: Features, others: Features | None = None) -> Layout:
    """Return the columns of an explanation of rows X; `others` are background rows, which may have more features."""
    no_columns = np.zeros(0, dtype=np.int64)
    if schema.kind in ("frame", "columns"):
        return Layout(int(schema.n_columns or 0), schema.names, *schema.places())
    if schema.kind == "array":
        m = int(schema.n_columns or 0)
        columns = np.arange(m if features.dense is not None else 0)
        return Layout(m, schema.names, columns, no_columns, is_sparse=features.dense is None)
    known = [part.sparse.ids for part in (features, others) if part is not None and part.sparse is not None]
    ids = np.unique(np.concatenate(known).astype(np.uint64))
    by_id = {hash_name(name): name for name in feature_names(X)}
    names = tuple(by_id.get(int(i), f"id {i}") for i in ids)
    return Layout(len(ids), names, no_columns, no_columns, ids, is_sparse=True)


def feature_names(X: Iterable[Any]) -> set[str]:
    """Return the names of all features of a list of dicts or of token lists.

    >>> sorted(feature_names([{"age": 31, "town": "Rome"}, {}])), sorted(feature_names([["a", "b"], ["a"]]))
    (['age', 'town=Rome'], ['a', 'b'])
    """
    names = set[str]()
    for row in X:
        if isinstance(row, dict):
            names.update(name_feature(key, value)[0] for key, value in row.items() if value is not None)
        else:
            names.update(row)
    return names


def subtract(x: Features, base: Features) -> tuple[Features, IntArray]:
    """Return x less one baseline row: differences of dense columns; entries of x, and those of the baseline negated.

    The second value says for each entry whether it is one of x, 0, or of the baseline, 1.
    """
    dense = None if x.dense is None else np.asarray(x.dense) - np.asarray(base.dense)
    if x.sparse is None or base.sparse is None:
        return Features(x.n_rows, dense), np.zeros(0, dtype=np.int64)
    n, more = x.n_rows, len(base.sparse.ids)
    lengths = np.diff(x.sparse.indptr) + more
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    of_base = np.ones(indptr[-1], dtype=np.int64)
    own = np.repeat(indptr[:-1] - x.sparse.indptr[:-1], np.diff(x.sparse.indptr)) + np.arange(len(x.sparse.ids))
    of_base[own] = 0
    ids = np.empty(indptr[-1], dtype=x.sparse.ids.dtype)
    values = np.empty(indptr[-1], dtype=x.sparse.values.dtype)
    ids[own], values[own] = x.sparse.ids, x.sparse.values
    rest = of_base == 1
    ids[rest], values[rest] = np.tile(base.sparse.ids, n), np.tile(-base.sparse.values, n)
    return Features(n, dense, Entries(indptr, ids, values)), of_base
