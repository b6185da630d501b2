"""Categories that training has seen. To a model all others are missing: it has learnt nothing of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gbun.collectives import Collective
from gbun.data.features import N_BUCKETS, Entries, Features
from gbun.dtypes import FloatArray, IntArray

COLUMNS_AT_A_TIME = 4  # whose buckets are exchanged at a time: 2 MB


@dataclass(frozen=True)
class SeenCategories:
    """For each column of categories the buckets of those that rows of training have, ascending, uint16."""

    buckets: tuple[IntArray, ...]

    def join(self, more: SeenCategories | None) -> SeenCategories:
        """Return the categories of both."""
        if more is None:
            return self
        return SeenCategories(tuple(np.union1d(a, b) for a, b in zip(self.buckets, more.buckets, strict=True)))

    def drop_others(self, features: Features) -> Features:
        """Make other categories missing: they lose their bucket and their entry.

        >>> sparse = Entries(np.array([0, 1, 2]), np.array([70, 90]), np.ones(2, dtype=np.float32))
        >>> rows = Features(2, sparse=sparse, categories=np.array([[7], [9]], dtype=np.uint16))
        >>> known = SeenCategories((np.array([7], dtype=np.uint16),)).drop_others(rows)
        >>> known.categories.tolist(), known.sparse.ids.tolist()
        ([[7], [0]], [70])
        """
        categories, sparse = features.categories, features.sparse
        if categories is None or sparse is None:
            return features
        present, known = categories != 0, np.empty(categories.shape, dtype=bool)
        for j, buckets in enumerate(self.buckets):
            place = np.searchsorted(buckets, categories[:, j])
            known[:, j] = (place < len(buckets)) & (np.append(buckets, 0)[place] == categories[:, j])
        known &= present
        if known.sum() == present.sum():
            return features
        kept = known[present]  # entries are in the order of rows, and of columns within a row
        indptr = np.concatenate([[0], np.cumsum(known.sum(axis=1))])
        entries = Entries(indptr, sparse.ids[kept], sparse.values[kept])
        return replace(features, sparse=entries, categories=np.where(known, categories, 0).astype(categories.dtype))


def find_seen_categories(
    features: Features, n_columns: int, weight: FloatArray, collective: Collective
) -> SeenCategories | None:
    """Return the categories of rows with a weight, of all workers; None without columns of categories."""
    if not n_columns:
        return None
    rows = np.zeros((0, n_columns), np.uint16) if features.categories is None else features.categories[weight > 0]
    found = list[IntArray]()
    for first in range(0, n_columns, COLUMNS_AT_A_TIME):
        columns = range(first, min(first + COLUMNS_AT_A_TIME, n_columns))
        seen = np.zeros((len(columns), N_BUCKETS))
        for k, j in enumerate(columns):
            seen[k, rows[:, j]] = 1.0
        seen[:, 0] = 0.0  # missing values
        of_all = collective.sum(seen.ravel()).reshape(seen.shape)
        found += [np.flatnonzero(one).astype(np.uint16) for one in of_all]
    return SeenCategories(tuple(found))


def pack_seen(seen: SeenCategories) -> dict[str, IntArray]:
    """Return the buckets of all columns, one after the other, and how many each column has."""
    counts = np.array([len(buckets) for buckets in seen.buckets], dtype=np.int64)
    return {"categories.seen": np.concatenate([np.zeros(0, np.uint16), *seen.buckets]), "categories.n_seen": counts}


def unpack_seen(buckets: IntArray, counts: IntArray) -> SeenCategories:
    """Return what was packed, checked."""
    if (counts < 0).any() or (counts > N_BUCKETS).any() or counts.sum() != len(buckets):
        raise ValueError(f"categories.n_seen must add up to the {len(buckets)} buckets of categories.seen")
    columns = tuple(np.split(buckets, np.cumsum(counts)[:-1])) if len(counts) else ()
    if any(len(column) and (column[0] == 0 or (column[1:] <= column[:-1]).any()) for column in columns):
        raise ValueError("categories.seen must increase within a column, from 1")
    return SeenCategories(columns)
