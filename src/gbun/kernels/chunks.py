"""Rows cut for the caches, and the features of each chunk in the order that makes the fewest weights.

Cuts depend on the data, K and C alone, never on threads or memory: sums over chunks have the same bits wherever and
whenever each is computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numba
import numpy as np

from gbun.data.features import Entries, Features
from gbun.dtypes import FEATURE_ID, FloatArray, IntArray
from gbun.kernels.threads import Threads

OUTPUTS = 2**20  # outputs of a chunk: 4 MB, a core's share of the last cache
MOST_ROWS, LEAST_ROWS = 2**14, 2**8
GRAM_ROWS = 2**12  # with so many rows, or 4K of them, BLAS comes near its peak
LEAST_CHUNKS = 8  # so that few rows still keep several threads busy
REPEATED = 0.7  # features per entry up to which making their weights once pays
TABLE_FEATURES = 2**16  # beyond, a table of weights leaves the caches: 16 MB


def rows_in_chunk(n_rows: int, n_outputs: int, n_scores: int) -> int:
    """How many rows a chunk has, give or take: cuts move where rows differ in length, up to twice as many."""
    rows = OUTPUTS // max(n_outputs, 4 * n_scores)
    least = min(4 * n_outputs, GRAM_ROWS) if 4 * n_scores <= n_outputs else 0
    return min(max(rows, least, LEAST_ROWS), MOST_ROWS, max(-(-n_rows // LEAST_CHUNKS), LEAST_ROWS))


def gram_rows(n_outputs: int) -> int:
    """Rows of which a Gram is made at a time: enough for BLAS, few enough to be near when it reads them."""
    return min(max(4 * n_outputs, 1024), GRAM_ROWS)


def cut(features: Features, rows: int) -> list[slice]:
    """Chunks of about `rows` rows. Half of a row's size is that it is a row, the other half its non-zeros.

    >>> cut(Features(600), 256)
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
class Table:
    """Row by row from a table: the distinct features, and for each entry its feature's place among them."""

    features: IntArray
    local: IntArray


@dataclass(frozen=True)
class Columns:
    """Feature by feature, in ascending order: where each one's entries begin, their rows and values."""

    features: IntArray
    starts: IntArray
    rows: IntArray
    values: FloatArray


@dataclass
class Chunk:
    """Some rows, their entries, and how these are visited; each weight is made on the fly where `order` is None."""

    rows: slice
    entries: slice
    order: Table | Columns | None = None

    def __len__(self) -> int:
        return int(self.rows.stop - self.rows.start)


def make_chunks(features: Features, rows: int, threads: Threads, form: str = "auto") -> list[Chunk]:
    """The chunks of some rows. `form` "hashed" makes every weight on the fly, "dense" never does."""
    entries = features.sparse
    if entries is None:
        return [Chunk(at, slice(0, 0)) for at in cut(features, rows)]
    chunks = [Chunk(at, slice(*entries.indptr[[at.start, at.stop]].tolist())) for at in cut(features, rows)]
    if form != "hashed":

        def work(chunk: Chunk) -> None:
            chunk.order = best_order(entries, chunk, always=form == "dense")

        threads.run(work, chunks)
    return chunks


def best_order(entries: Entries, chunk: Chunk, *, always: bool = False) -> Table | Columns | None:
    """From counts: a table if it stays in the caches, columns if not, neither where features hardly repeat.

    Columns keep a row's entries in their order only where that is ascending; other rows have a table or nothing.
    """
    ids, indptr = entries.ids[chunk.entries], entries.indptr[chunk.rows.start : chunk.rows.stop + 1]
    local, features = dictionary(ids)
    if len(features) > REPEATED * len(local) and not always:
        return None
    if len(features) <= TABLE_FEATURES or not rows_are_sorted(indptr, ids):
        return Table(features, local) if len(features) <= TABLE_FEATURES or always else None
    order = np.argsort(features)
    rank = np.empty(len(features), dtype=np.int32)
    rank[order] = np.arange(len(features))
    return Columns(features[order], *by_column(indptr, local, entries.values[chunk.entries], rank))


def dictionary(ids: IntArray) -> tuple[IntArray, IntArray]:
    """(place of each id among the distinct ones, the distinct ones in the order of their first appearance).

    >>> dictionary(np.array([7, 3, 7, 2**40]))
    (array([0, 1, 0, 2], dtype=int32), array([            7,             3, 1099511627776], dtype=uint64))
    """
    local = np.empty(len(ids), dtype=np.int32)
    slots = np.empty(1 << max(4, (2 * len(ids)).bit_length()), dtype=np.int32)
    distinct = np.empty(max(1, len(ids)), dtype=FEATURE_ID)
    count = _localise(ids, local, slots, distinct)
    return local, distinct[:count].copy()


@numba.njit(cache=True, nogil=True)
def rows_are_sorted(indptr: Any, ids: Any) -> bool:
    """Whether ids ascend within each row; `ids` begin with the first entry of these rows."""
    begin = indptr[0]
    for i in range(len(indptr) - 1):
        for e in range(indptr[i] - begin + 1, indptr[i + 1] - begin):
            if np.uint64(ids[e]) < np.uint64(ids[e - 1]):
                return False
    return True


@numba.njit(cache=True, nogil=True)
def by_column(indptr: Any, local: Any, values: Any, rank: Any) -> Any:
    """Entries in the order of their feature's rank, and within it of their rows: (starts, rows, values)."""
    starts = np.zeros(len(rank) + 1, dtype=np.int64)
    for e in range(len(local)):
        starts[rank[local[e]] + 1] += 1
    for j in range(len(rank)):
        starts[j + 1] += starts[j]
    rows, own = np.empty(len(local), dtype=np.int32), np.empty(len(local), dtype=np.float32)
    free, begin = starts[:-1].copy(), indptr[0]
    for i in range(len(indptr) - 1):
        for e in range(indptr[i] - begin, indptr[i + 1] - begin):
            place = free[rank[local[e]]]
            rows[place], own[place] = i, values[e]
            free[rank[local[e]]] += 1
    return starts, rows, own


@numba.njit(cache=True, nogil=True)
def _localise(ids: Any, local: Any, slots: Any, distinct: Any) -> int:
    # A hash table with open addressing: a slot holds a place among the distinct ids.
    # The upper bits of the product hang on all bits of the id.
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
