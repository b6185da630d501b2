"""Rows cut for the caches, and the features of each chunk in the order that computes the fewest weights.

Cuts depend on the data, K and C alone, not on threads or memory. So sums over chunks have the same bits whichever
thread computes a chunk, and when.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numba
import numpy as np

from gbun.data.features import Entries, Features
from gbun.dtypes import FEATURE_ID, FloatArray, IntArray
from gbun.kernels.threads import ThreadPool

CHUNK_OUTPUTS = 2**20  # outputs of a chunk: 4 MB, a core's share of the last cache
MAX_CHUNK_ROWS, MIN_CHUNK_ROWS = 2**14, 2**8
GRAM_BLOCK_ROWS = 2**12  # with so many rows, or 4K of them, BLAS comes near its peak
MIN_CHUNKS = 8  # few rows must still keep several threads busy
MAX_DISTINCT_SHARE = 0.7  # distinct features per entry up to which it pays to compute their weights once
TABLE_FEATURES = 2**16  # beyond, a table of weights leaves the caches: 16 MB


def rows_in_chunk(n_rows: int, n_outputs: int, n_scores: int) -> int:
    """Return about how many rows a chunk has; where rows differ in length, up to twice as many."""
    rows = CHUNK_OUTPUTS // max(n_outputs, 4 * n_scores)
    least = min(4 * n_outputs, GRAM_BLOCK_ROWS) if 4 * n_scores <= n_outputs else 0
    return min(max(rows, least, MIN_CHUNK_ROWS), MAX_CHUNK_ROWS, max(-(-n_rows // MIN_CHUNKS), MIN_CHUNK_ROWS))


def gram_rows(n_outputs: int) -> int:
    """Return of how many rows a Gram is computed at a time: enough for BLAS, few enough for the caches."""
    return min(max(4 * n_outputs, 1024), GRAM_BLOCK_ROWS)


def cut_chunks(features: Features, rows: int) -> list[slice]:
    """Cut chunks of about `rows` rows. Half of the size of a row is constant, the other half are its non-zeros.

    >>> cut_chunks(Features(600), 256)
    [slice(0, 200, None), slice(200, 400, None), slice(400, 600, None)]
    """
    n = features.n_rows
    if n == 0:
        return []
    size = np.arange(n + 1, dtype=np.float64)
    if features.sparse is not None and features.sparse.indptr[-1]:
        size += features.sparse.indptr * (n / features.sparse.indptr[-1])
    count = -(-n // rows)
    places = np.searchsorted(size, size[-1] * np.arange(1, count) / count)
    return [slice(a, b) for a, b in pairwise(np.unique([0, *places, n]).tolist())]


@dataclass(frozen=True)
class FeatureTable:
    """An order row by row, from a table: the distinct features, and the place of each entry's feature among them."""

    features: IntArray
    local: IntArray


@dataclass(frozen=True)
class FeatureColumns:
    """An order feature by feature, ascending: where the entries of each one begin, their rows and values."""

    features: IntArray
    starts: IntArray
    rows: IntArray
    values: FloatArray


@dataclass
class Chunk:
    """Some rows, their entries and the order of these; None: each weight is computed on the fly."""

    rows: slice
    entries: slice
    order: FeatureTable | FeatureColumns | None = None

    def __len__(self) -> int:
        return int(self.rows.stop - self.rows.start)


def make_chunks(features: Features, rows: int, threads: ThreadPool, form: str = "auto") -> list[Chunk]:
    """Cut rows into chunks. `form` "hashed" computes every weight on the fly, "dense" never does."""
    entries = features.sparse
    if entries is None:
        return [Chunk(at, slice(0, 0)) for at in cut_chunks(features, rows)]
    chunks = [Chunk(at, slice(*entries.indptr[[at.start, at.stop]].tolist())) for at in cut_chunks(features, rows)]
    if form != "hashed":

        def work(chunk: Chunk) -> None:
            chunk.order = choose_order(entries, chunk, always=form == "dense")

        threads.run(work, chunks)
    return chunks


def choose_order(entries: Entries, chunk: Chunk, *, always: bool = False) -> FeatureTable | FeatureColumns | None:
    """Choose an order from counts: a table if it fits the caches, columns if not, none where features hardly repeat.

    Columns keep the entries of a row in their order only where that is ascending; other rows get a table or none.
    """
    ids, indptr = entries.ids[chunk.entries], entries.indptr[chunk.rows.start : chunk.rows.stop + 1]
    local, features = index_features(ids)
    if len(features) > MAX_DISTINCT_SHARE * len(local) and not always:
        return None
    if len(features) <= TABLE_FEATURES or not rows_are_sorted(indptr, ids):
        return FeatureTable(features, local) if len(features) <= TABLE_FEATURES or always else None
    order = np.argsort(features)
    rank = np.empty(len(features), dtype=np.int32)
    rank[order] = np.arange(len(features))
    sorted_entries = sort_by_column(indptr, rank[local], entries.values[chunk.entries], len(features))
    return FeatureColumns(features[order], *sorted_entries)


def index_features(ids: IntArray) -> tuple[IntArray, IntArray]:
    """Return the place of each id among the distinct ones, and the distinct ones in the order they first appear.

    >>> index_features(np.array([7, 3, 7, 2**40]))
    (array([0, 1, 0, 2], dtype=int32), array([            7,             3, 1099511627776], dtype=uint64))
    """
    local = np.empty(len(ids), dtype=np.int32)
    slots = np.empty(1 << max(4, (2 * len(ids)).bit_length()), dtype=np.int32)
    distinct = np.empty(max(1, len(ids)), dtype=FEATURE_ID)
    count = _fill_feature_index(ids, local, slots, distinct)
    return local, distinct[:count].copy()


@numba.njit(cache=True, nogil=True)
def rows_are_sorted(indptr: Any, ids: Any) -> bool:
    """Return whether ids ascend within each row; `ids` begin with the first entry of these rows."""
    begin = indptr[0]
    for i in range(len(indptr) - 1):
        for e in range(indptr[i] - begin + 1, indptr[i + 1] - begin):
            if np.uint64(ids[e]) < np.uint64(ids[e - 1]):
                return False
    return True


@numba.njit(cache=True, nogil=True)
def sort_by_column(indptr: Any, columns: Any, values: Any, n_columns: int) -> Any:
    """Sort entries by their column, and within it by row: (starts, rows, values)."""
    starts = np.zeros(n_columns + 1, dtype=np.int64)
    for e in range(len(columns)):
        starts[columns[e] + 1] += 1
    for j in range(n_columns):
        starts[j + 1] += starts[j]
    rows, sorted_values = np.empty(len(columns), dtype=np.int32), np.empty(len(columns), dtype=np.float32)
    free, begin = starts[:-1].copy(), indptr[0]
    for i in range(len(indptr) - 1):
        for e in range(indptr[i] - begin, indptr[i + 1] - begin):
            place = free[columns[e]]
            rows[place], sorted_values[place] = i, values[e]
            free[columns[e]] += 1
    return starts, rows, sorted_values


@numba.njit(cache=True, nogil=True)
def _fill_feature_index(ids: Any, local: Any, slots: Any, distinct: Any) -> int:
    # A hash table with open addressing: a slot holds a place among the distinct ids.
    # The upper bits of the product depend on all bits of the id.
    mask, count, shift = np.uint64(len(slots) - 1), 0, np.uint64(64)
    while np.uint64(1) << (np.uint64(64) - shift) < np.uint64(len(slots)):
        shift -= np.uint64(1)
    slots[:] = -1
    for e in range(len(ids)):
        f = np.uint64(ids[e])
        slot = (f * np.uint64(0x9E3779B97F4A7C15)) >> shift
        while slots[slot] >= 0 and distinct[slots[slot]] != f:
            slot = (slot + np.uint64(1)) & mask
        if slots[slot] < 0:
            slots[slot], distinct[count] = count, f
            count += 1
        local[e] = slots[slot]
    return count
