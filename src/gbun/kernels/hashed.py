"""Simhash++ compiled: the fast form of `gbun.networks.simhash` and the forward pass over sparse rows.

Compiled code holds no lock on the interpreter and is kept on disk, so a process compiles once per machine.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from gbun.kernels.products import FUSED
from gbun.networks.simhash import PRIME_2, PRIME_3, PRIME_4

P2, P3, P4 = np.uint32(PRIME_2), np.uint32(PRIME_3), np.uint32(PRIME_4)


@numba.njit(inline="always")
def _weight(state: Any, low: Any, high: Any, half: Any, inverse: Any) -> Any:
    # state is where the output's hash begins, low and high are the id's two words times prime 3;
    # simhash.xxhash32 has the same steps in NumPy.
    h = np.uint32(state + low)
    h = np.uint32(np.uint32((h << np.uint32(17)) | (h >> np.uint32(15))) * P4)
    h = np.uint32(h + high)
    h = np.uint32(np.uint32((h << np.uint32(17)) | (h >> np.uint32(15))) * P4)
    h = np.uint32(np.uint32(h ^ (h >> np.uint32(15))) * P2)
    h = np.uint32(np.uint32(h ^ (h >> np.uint32(13))) * P3)
    u = np.int32(np.uint32(h ^ (h >> np.uint32(16))) >> np.uint32(8))
    w = np.float32(np.int32(u - half)) * inverse
    return w if u < np.int32(2) * half else np.float32(0.0)


@numba.njit(cache=True, nogil=True)
def fill_weights(states: Any, features: Any, half: Any, inverse: Any, out: Any) -> None:
    """out[j, k] = w(features[j], k)."""
    for j in range(len(features)):
        f = np.uint64(features[j])
        low = np.uint32(np.uint32(f & np.uint64(0xFFFFFFFF)) * P3)
        high = np.uint32(np.uint32(f >> np.uint64(32)) * P3)
        row = out[j]
        for k in range(len(states)):
            row[k] = _weight(states[k], low, high, half, inverse)


@numba.njit(cache=True, nogil=True, fastmath=FUSED)
def forward_on_the_fly(indptr: Any, ids: Any, values: Any, states: Any, half: Any, inverse: Any, z: Any) -> None:
    """z[i, k] += sum over row i's entries of value x w(id, k), each weight made where it is used."""
    for i in range(len(indptr) - 1):
        row = z[i]
        for e in range(indptr[i], indptr[i + 1]):
            f, x = np.uint64(ids[e]), values[e]
            low = np.uint32(np.uint32(f & np.uint64(0xFFFFFFFF)) * P3)
            high = np.uint32(np.uint32(f >> np.uint64(32)) * P3)
            for k in range(len(states)):
                row[k] += x * _weight(states[k], low, high, half, inverse)


@numba.njit(cache=True, nogil=True, fastmath=FUSED)
def forward_from_table(indptr: Any, ids: Any, values: Any, table: Any, z: Any) -> None:
    """The same sums, weights read from a table with one row per feature."""
    for i in range(len(indptr) - 1):
        row = z[i]
        for e in range(indptr[i], indptr[i + 1]):
            weights, x = table[ids[e]], values[e]
            for k in range(len(row)):
                row[k] += x * weights[k]


@numba.njit(cache=True, nogil=True, fastmath=FUSED)
def forward_revived(indptr: Any, ids: Any, values: Any, outputs: Any, features: Any, weights: Any, z: Any) -> None:
    """Adds the few weights that bring dead outputs back to life."""
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            for j in range(len(outputs)):
                if np.uint64(ids[e]) == features[j]:
                    z[i, outputs[j]] += values[e] * weights[j]
