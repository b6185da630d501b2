"""Rows cut for the caches: chunks by rows and outputs, blocks within a chunk by non-zeros; and a block's dictionary.

Cuts depend on the data, K and C alone, never on threads or memory: sums over chunks and blocks have the same bits
wherever and whenever each is computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numba
import numpy as np

from gbun.data.features import Entries, Features
from gbun.dtypes import FEATURE_ID, IntArray
from gbun.kernels.threads import Scratch, Threads

CHUNK = 2**20  # outputs of a chunk: 4 MB, a core's share of the last cache
MOST_ROWS, LEAST_ROWS = 2**14, 2**8
GRAM_ROWS = 2**12  # with so many rows, or 4K of them, BLAS comes near its peak
LEAST_CHUNKS = 8  # so that few rows still keep several threads busy
ENTRIES = 2**17  # non-zeros of a block: a table of its features mostly stays in the last cache
REPEATED = 0.7  # a table pays where a block has at most so many features per entry


def row_chunks(n_rows: int, n_outputs: int, n_scores: int) -> list[slice]:
    """Chunks of rows.

    >>> [len(row_chunks(10**6, K, 1)) for K in (64, 1024)], row_chunks(600, 64, 1)
    ([62, 245], [slice(0, 256, None), slice(256, 512, None), slice(512, 600, None)])
    """
    rows = CHUNK // max(n_outputs, 4 * n_scores)
    least = min(4 * n_outputs, GRAM_ROWS) if 4 * n_scores <= n_outputs else 0
    rows = min(max(rows, least, LEAST_ROWS), MOST_ROWS, max(-(-n_rows // LEAST_CHUNKS), LEAST_ROWS))
    return [slice(first, min(first + rows, n_rows)) for first in range(0, n_rows, rows)]


@dataclass
class Block:
    """Rows whose outputs are computed in one go, their entries, and the features among these if they repeat."""

    rows: slice
    entries: slice
    local: IntArray | None = None  # for each entry its feature's place in `features`
    features: IntArray | None = None

    @property
    def n_bytes(self) -> int:
        return sum(a.nbytes for a in (self.local, self.features) if a is not None)


def cut(features: Features, chunk: slice) -> list[Block]:
    """The blocks of a chunk: as many as its non-zeros need, with about as many in each."""
    sparse = features.sparse
    if sparse is None:
        return [Block(chunk, slice(0, 0))]
    ends = sparse.indptr[chunk.start : chunk.stop + 1].astype(np.int64)
    parts = max(1, -(-int(ends[-1] - ends[0]) // ENTRIES))
    wanted = ends[0] + (ends[-1] - ends[0]) * np.arange(1, parts) // parts
    places = np.unique(np.concatenate([[0], np.searchsorted(ends, wanted), [len(ends) - 1]]))
    return [
        Block(slice(chunk.start + a, chunk.start + b), slice(int(ends[a]), int(ends[b])))
        for a, b in pairwise(places.tolist())
    ]


def make_dictionaries(entries: Entries, blocks: list[Block], threads: Threads, *, always: bool = False) -> None:
    """Give a dictionary to each block in which features repeat often enough, or to all."""

    def work(block: Block) -> None:
        local, features = dictionary(entries.ids[block.entries], threads.scratch)
        if always or len(features) <= REPEATED * len(local):
            block.local, block.features = local, features

    threads.run(work, blocks)


def dictionary(ids: IntArray, scratch: Scratch) -> tuple[IntArray, IntArray]:
    """(place of each id among the distinct ones, the distinct ones in the order of their first appearance).

    >>> dictionary(np.array([7, 3, 7, 2**40]), Scratch())
    (array([0, 1, 0, 2], dtype=int32), array([            7,             3, 1099511627776], dtype=uint64))
    """
    local = np.empty(len(ids), dtype=np.int32)
    slots = scratch.array("slots", 1 << max(4, (2 * len(ids)).bit_length()), dtype=np.int32)
    distinct = scratch.array("distinct", max(1, len(ids)), dtype=FEATURE_ID)
    count = _localise(ids, local, slots, distinct)
    return local, distinct[:count].copy()


@numba.njit(cache=True, nogil=True)
def _localise(ids: Any, local: Any, slots: Any, distinct: Any) -> int:
    # A hash table with open addressing: a slot holds a place among the distinct ids.
    mask, count = np.uint64(len(slots) - 1), 0
    slots[:] = -1
    for e in range(len(ids)):
        f = np.uint64(ids[e])
        slot = ((f * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & mask
        while slots[slot] >= 0 and distinct[slots[slot]] != f:
            slot = (slot + np.uint64(1)) & mask
        if slots[slot] < 0:
            slots[slot], distinct[count] = count, f
            count += 1
        local[e] = slots[slot]
    return count
