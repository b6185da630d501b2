"""Simhash++ compiled: weights by the vector, and the forward pass over sparse rows.

Outputs are computed 64 at a time, a *tile*: eight registers hold them. There are three forms of the product:

    from a table    row by row; the weights of all features of a chunk are computed once before
    by column       feature by feature; its weights stay in registers while its entries are visited
    on the fly      row by row; each weight is computed where it is used

Each form adds the entries of a row in their order with one rounding an entry, so all have the same bits. Compiled code
releases the interpreter's lock and is cached on disk.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from gbun.kernels.simd import (
    LANES,
    fma,
    fma8,
    load,
    load8,
    load_splat,
    prefetch,
    reduce_sum,
    splat,
    store,
    store8,
    to_floats,
    zero_unless_below,
)
from gbun.networks.simhash import PRIME_2, PRIME_3, PRIME_4

P2, P3, P4 = np.uint32(PRIME_2), np.uint32(PRIME_3), np.uint32(PRIME_4)
LEFT, S8, S13, S15, S16 = (np.uint32(bits) for bits in (17, 8, 13, 15, 16))
ZERO, TWO = np.float32(0.0), np.uint32(2)
LOW_WORD, WORD_BITS = np.uint64(0xFFFFFFFF), np.uint64(32)

TILE = 64
PREFETCHED_ENTRIES = 12  # entries between prefetching weights and adding them: a cache miss takes about as long


@numba.njit(inline="always")
def _weights(states: Any, low: Any, high: Any, half: Any, inverse: Any) -> Any:
    # The hashes of outputs begin at `states`; low and high are the two words of the id times prime 3.
    # simhash.xxhash32 and simhash.weights_from_hashes have the same steps in NumPy.
    h = states + low
    h = (h << LEFT | h >> S15) * P4
    h = h + high
    h = (h << LEFT | h >> S15) * P4
    h = (h ^ h >> S15) * P2
    h = (h ^ h >> S13) * P3
    u = (h ^ h >> S16) >> S8
    return zero_unless_below(to_floats(u - half) * inverse, u, np.uint32(half * TWO))


@numba.njit(inline="always")
def _words(feature: Any) -> Any:
    f = np.uint64(feature)
    return np.uint32(np.uint32(f & LOW_WORD) * P3), np.uint32(np.uint32(f >> WORD_BITS) * P3)


@numba.njit(cache=True, nogil=True)
def fill_table(states: Any, features: Any, half: Any, inverse: Any, table: Any) -> None:
    """table[j, k] = w(features[j], k); states and columns are a multiple of eight."""
    width = table.shape[1]
    for j in range(len(features)):
        low, high = _words(features[j])
        for k in range(0, width, LANES):
            store(table, j * width + k, _weights(load(states, k), low, high, half, inverse))


@numba.njit(cache=True, nogil=True)
def forward_from_table(indptr: Any, local: Any, values: Any, table: Any, fresh: bool, tile: Any) -> None:
    """tile[i] = sum over row i's entries of value x table[local], added to what is there unless `fresh`.

    `local` and `values` begin with the first entry of these rows.
    """
    last, begin = len(local) - 1, indptr[0]
    for i in range(len(indptr) - 1):
        s = _zeros() if fresh else load8(tile, i * TILE)
        for e in range(indptr[i] - begin, indptr[i + 1] - begin):
            _prefetch_tile(table, np.int64(local[min(e + PREFETCHED_ENTRIES, last)]) * TILE)
            s = fma8(load_splat(values, e), load8(table, np.int64(local[e]) * TILE), s)
        store8(tile, i * TILE, s)


@numba.njit(cache=True, nogil=True)
def forward_by_column(
    starts: Any, rows: Any, values: Any, features: Any, states: Any, half: Any, inverse: Any, tile: Any
) -> None:
    """tile[row] += value x weights of the feature, for each feature and each of its entries, which `starts` divides."""
    last = len(rows) - 1
    for j in range(len(features)):
        w = _tile_weights(states, features[j], half, inverse)
        for e in range(starts[j], starts[j + 1]):
            _prefetch_tile(tile, np.int64(rows[min(e + PREFETCHED_ENTRIES, last)]) * TILE)
            at = np.int64(rows[e]) * TILE
            store8(tile, at, fma8(load_splat(values, e), w, load8(tile, at)))


@numba.njit(cache=True, nogil=True)
def transposed_by_column(
    starts: Any, rows: Any, features: Any, states: Any, half: Any, inverse: Any, slopes: Any, first: int, sums: Any
) -> None:
    """sums[e, c] += weights of the feature . slopes[row, c, first : first + TILE], for each feature and its entries.

    `slopes` is (n, C, K), K a multiple of a tile; entries are sorted by feature, which `starts` divides.
    """
    last, n_scores, K = len(rows) - 1, slopes.shape[1], slopes.shape[2]
    for j in range(len(features)):
        w = _tile_weights(states, features[j], half, inverse)
        for e in range(starts[j], starts[j + 1]):
            _prefetch_tile(slopes, np.int64(rows[min(e + PREFETCHED_ENTRIES, last)]) * n_scores * K + first)
            for c in range(n_scores):
                s = load8(slopes, (np.int64(rows[e]) * n_scores + c) * K + first)
                a = fma(w[0], s[0], fma(w[1], s[1], fma(w[2], s[2], w[3] * s[3])))
                b = fma(w[4], s[4], fma(w[5], s[5], fma(w[6], s[6], w[7] * s[7])))
                sums[e, c] += reduce_sum(a + b)


@numba.njit(cache=True, nogil=True)
def forward_on_the_fly(
    indptr: Any, ids: Any, values: Any, states: Any, half: Any, inverse: Any, fresh: bool, tile: Any
) -> None:
    """The sums of `forward_from_table`; each weight is computed where it is used."""
    begin = indptr[0]
    for i in range(len(indptr) - 1):
        s = _zeros() if fresh else load8(tile, i * TILE)
        for e in range(indptr[i] - begin, indptr[i + 1] - begin):
            s = fma8(load_splat(values, e), _tile_weights(states, ids[e], half, inverse), s)
        store8(tile, i * TILE, s)


@numba.njit(inline="always")
def _zeros() -> Any:
    zero = splat(ZERO)
    return zero, zero, zero, zero, zero, zero, zero, zero


@numba.njit(inline="always")
def _prefetch_tile(array: Any, at: Any) -> None:
    prefetch(array, at)
    prefetch(array, at + 16)
    prefetch(array, at + 32)
    prefetch(array, at + 48)


@numba.njit(inline="always")
def _tile_weights(states: Any, feature: Any, half: Any, inverse: Any) -> Any:
    low, high = _words(feature)
    return (
        _weights(load(states, 0), low, high, half, inverse),
        _weights(load(states, 8), low, high, half, inverse),
        _weights(load(states, 16), low, high, half, inverse),
        _weights(load(states, 24), low, high, half, inverse),
        _weights(load(states, 32), low, high, half, inverse),
        _weights(load(states, 40), low, high, half, inverse),
        _weights(load(states, 48), low, high, half, inverse),
        _weights(load(states, 56), low, high, half, inverse),
    )


@numba.njit(cache=True, nogil=True)
def add_revived(indptr: Any, ids: Any, values: Any, outputs: Any, features: Any, weights: Any, tile: Any) -> None:
    """Add the few weights that revive outputs without any input."""
    begin = indptr[0]
    for i in range(len(indptr) - 1):
        for e in range(indptr[i] - begin, indptr[i + 1] - begin):
            for j in range(len(outputs)):
                if np.uint64(ids[e]) == features[j]:
                    tile[i, outputs[j]] = fma(values[e], weights[j], tile[i, outputs[j]])
