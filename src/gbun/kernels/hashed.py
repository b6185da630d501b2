"""Simhash++ compiled: weights by the vector, and the forward pass over sparse rows.

Outputs are taken 64 at a time, a *tile*: eight registers hold them. Three forms of the product serve a tile:

    from a table    row by row; the weights of the features that a block of rows holds were made once before
    by column       feature by feature: its weights stay in registers while the rows that have it are visited
    on the fly      row by row; each weight is made where it is used

Each adds up a row's entries in their own order with one rounding an entry: all have the same bits. Compiled code holds
no lock on the interpreter and is kept on disk.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from gbun.kernels.simd import LANES, fma, lanes, load, prefetch, spread, store, to_floats, zero_unless_below
from gbun.networks.simhash import PRIME_2, PRIME_3, PRIME_4

P2, P3, P4 = np.uint32(PRIME_2), np.uint32(PRIME_3), np.uint32(PRIME_4)
LEFT, S8, S13, S15, S16 = (np.uint32(bits) for bits in (17, 8, 13, 15, 16))
ZERO, TWO = np.float32(0.0), np.uint32(2)
LOW_WORD, WORD_BITS = np.uint64(0xFFFFFFFF), np.uint64(32)

TILE = 64
AHEAD = 12  # entries between asking for a feature's weights and adding them: a cache miss takes about as long


@numba.njit(inline="always")
def _weights(states: Any, low: Any, high: Any, half: Any, inverse: Any) -> Any:
    # states is where the outputs' hashes begin, low and high are the id's two words times prime 3;
    # simhash.xxhash32 and simhash.weights_of have the same steps in NumPy.
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
        s0, s1, s2, s3, s4, s5, s6, s7 = _zeros() if fresh else _load(tile, i * TILE)
        for e in range(indptr[i] - begin, indptr[i + 1] - begin):
            later = np.int64(local[min(e + AHEAD, last)]) * TILE
            prefetch(table, later)
            prefetch(table, later + 16)
            prefetch(table, later + 32)
            prefetch(table, later + 48)
            x, w = spread(values, e), np.int64(local[e]) * TILE
            s0 = fma(x, load(table, w), s0)
            s1 = fma(x, load(table, w + 8), s1)
            s2 = fma(x, load(table, w + 16), s2)
            s3 = fma(x, load(table, w + 24), s3)
            s4 = fma(x, load(table, w + 32), s4)
            s5 = fma(x, load(table, w + 40), s5)
            s6 = fma(x, load(table, w + 48), s6)
            s7 = fma(x, load(table, w + 56), s7)
        _store(tile, i * TILE, s0, s1, s2, s3, s4, s5, s6, s7)


@numba.njit(cache=True, nogil=True)
def forward_by_column(
    starts: Any, rows: Any, values: Any, features: Any, states: Any, half: Any, inverse: Any, tile: Any
) -> None:
    """tile[row] += value x weights of the feature, for each feature and each of its entries, which `starts` divides."""
    last = len(rows) - 1
    for j in range(len(features)):
        low, high = _words(features[j])
        w0 = _weights(load(states, 0), low, high, half, inverse)
        w1 = _weights(load(states, 8), low, high, half, inverse)
        w2 = _weights(load(states, 16), low, high, half, inverse)
        w3 = _weights(load(states, 24), low, high, half, inverse)
        w4 = _weights(load(states, 32), low, high, half, inverse)
        w5 = _weights(load(states, 40), low, high, half, inverse)
        w6 = _weights(load(states, 48), low, high, half, inverse)
        w7 = _weights(load(states, 56), low, high, half, inverse)
        for e in range(starts[j], starts[j + 1]):
            later = np.int64(rows[min(e + AHEAD, last)]) * TILE
            prefetch(tile, later)
            prefetch(tile, later + 16)
            prefetch(tile, later + 32)
            prefetch(tile, later + 48)
            x, at = spread(values, e), np.int64(rows[e]) * TILE
            store(tile, at, fma(x, w0, load(tile, at)))
            store(tile, at + 8, fma(x, w1, load(tile, at + 8)))
            store(tile, at + 16, fma(x, w2, load(tile, at + 16)))
            store(tile, at + 24, fma(x, w3, load(tile, at + 24)))
            store(tile, at + 32, fma(x, w4, load(tile, at + 32)))
            store(tile, at + 40, fma(x, w5, load(tile, at + 40)))
            store(tile, at + 48, fma(x, w6, load(tile, at + 48)))
            store(tile, at + 56, fma(x, w7, load(tile, at + 56)))


@numba.njit(cache=True, nogil=True)
def forward_on_the_fly(
    indptr: Any, ids: Any, values: Any, states: Any, half: Any, inverse: Any, fresh: bool, tile: Any
) -> None:
    """The sums of `forward_from_table`, each weight made where it is used."""
    begin = indptr[0]
    for i in range(len(indptr) - 1):
        s0, s1, s2, s3, s4, s5, s6, s7 = _zeros() if fresh else _load(tile, i * TILE)
        for e in range(indptr[i] - begin, indptr[i + 1] - begin):
            low, high = _words(ids[e])
            x = spread(values, e)
            s0 = fma(x, _weights(load(states, 0), low, high, half, inverse), s0)
            s1 = fma(x, _weights(load(states, 8), low, high, half, inverse), s1)
            s2 = fma(x, _weights(load(states, 16), low, high, half, inverse), s2)
            s3 = fma(x, _weights(load(states, 24), low, high, half, inverse), s3)
            s4 = fma(x, _weights(load(states, 32), low, high, half, inverse), s4)
            s5 = fma(x, _weights(load(states, 40), low, high, half, inverse), s5)
            s6 = fma(x, _weights(load(states, 48), low, high, half, inverse), s6)
            s7 = fma(x, _weights(load(states, 56), low, high, half, inverse), s7)
        _store(tile, i * TILE, s0, s1, s2, s3, s4, s5, s6, s7)


@numba.njit(inline="always")
def _zeros() -> Any:
    zero = lanes(ZERO)
    return zero, zero, zero, zero, zero, zero, zero, zero


@numba.njit(inline="always")
def _load(a: Any, at: int) -> Any:
    return (
        load(a, at),
        load(a, at + 8),
        load(a, at + 16),
        load(a, at + 24),
        load(a, at + 32),
        load(a, at + 40),
        load(a, at + 48),
        load(a, at + 56),
    )


@numba.njit(inline="always")
def _store(a: Any, at: int, s0: Any, s1: Any, s2: Any, s3: Any, s4: Any, s5: Any, s6: Any, s7: Any) -> None:
    store(a, at, s0)
    store(a, at + 8, s1)
    store(a, at + 16, s2)
    store(a, at + 24, s3)
    store(a, at + 32, s4)
    store(a, at + 40, s5)
    store(a, at + 48, s6)
    store(a, at + 56, s7)


@numba.njit(cache=True, nogil=True)
def forward_revived(indptr: Any, ids: Any, values: Any, outputs: Any, features: Any, weights: Any, tile: Any) -> None:
    """Adds the few weights that bring dead outputs back to life."""
    begin = indptr[0]
    for i in range(len(indptr) - 1):
        for e in range(indptr[i] - begin, indptr[i + 1] - begin):
            for j in range(len(outputs)):
                if np.uint64(ids[e]) == features[j]:
                    tile[i, outputs[j]] = fma(values[e], weights[j], tile[i, outputs[j]])
