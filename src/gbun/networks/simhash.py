"""Simhash++: the weight of (feature, output) in a round is a hash, so no weight is ever stored.

    h(t, f, k) = xxHash32(message = t as 4 bytes, f as 8 bytes, little-endian; hash seed = offset(seed) + k)
    u          = h >> 8                                       uniform on {0, ..., 2^24 - 1}
    w          = (u - N) / N  if u < 2N  else 0               N = round(density x 2^23)

With density 1 this is uniform on [-1, 1); with a smaller density a weight survives with that probability and is
again uniform on [-1, 1), from the bits of one hash. Every step is exact in float32 or rounds once, so all machines
and all devices make the same weights.

The round comes first in the message because xxHash32 reads it in 4-byte words from the left:

* the state after the round's word is the same for all features, so a round computes it once and each weight costs
  two words and the final mixing, with 64-bit ids as cheap as 32-bit ones;
* the state starts as (hash seed + word x prime): with the feature first, output k of feature f and output k + d of
  feature g would share *all* their bits in *every* round whenever d = (f - g) x prime mod 2^32, which among 54
  million features happens for d of a few dozen. With the round first that sum is scrambled before a feature enters.

This is the plain NumPy form; `gbun.kernels.hashed` holds the fast one. Golden values in tests/golden freeze both.
"""

from __future__ import annotations

import numpy as np
import xxhash
from numpy.typing import NDArray

from gbun.dtypes import FEATURE_ID, MEMBERSHIP, IntArray

PRIME_2, PRIME_3, PRIME_4, PRIME_5 = 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
MESSAGE_BYTES = 12
HALF = 1 << 23  # N at density 1
UNUSED_ID = 2**64 - 1  # an id no feature has: source of the hash that picks an input for a dead output


def seed_offset(seed: int) -> int:
    """The hash seed of output 0: 0 for seed 0 (the paper's), scattered over 32 bits for all others.

    >>> seed_offset(0), seed_offset(1)
    (0, 1021498063)
    """
    return 0 if seed == 0 else int(xxhash.xxh32_intdigest(seed.to_bytes(8, "little")))


def output_states(seed: int, round_: int, n_outputs: int) -> NDArray[np.uint32]:
    """The K hash states after the round's word: what all features of a round have in common."""
    hash_seeds = np.arange(n_outputs, dtype=np.uint32) + np.uint32(seed_offset(seed))
    return _absorb(hash_seeds + np.uint32((PRIME_5 + MESSAGE_BYTES) & 0xFFFFFFFF), np.uint32(round_))


def hashes(states: NDArray[np.uint32], features: IntArray) -> NDArray[np.uint32]:
    """xxHash32 of (round, feature) for each feature and output: len(features) x K."""
    ids = np.asarray(features).astype(FEATURE_ID)
    low = (ids & FEATURE_ID(0xFFFFFFFF)).astype(np.uint32)[:, None]
    high = (ids >> FEATURE_ID(32)).astype(np.uint32)[:, None]
    h = _absorb(_absorb(states[None, :], low), high)
    h ^= h >> np.uint32(15)
    h *= np.uint32(PRIME_2)
    h ^= h >> np.uint32(13)
    h *= np.uint32(PRIME_3)
    h ^= h >> np.uint32(16)
    return h


def half_width(density: float) -> int:
    """N: hashes whose upper 24 bits are below 2N give a non-zero weight."""
    return max(1, round(density * HALF))


def weights(seed: int, round_: int, features: IntArray, n_outputs: int, density: float = 1.0) -> NDArray[np.float32]:
    """w(seed, round, feature, output) for the given features and outputs 0 .. K-1.

    >>> weights(seed=0, round_=0, features=np.array([0, 7, 2**63]), n_outputs=2).round(3)
    array([[-0.434, -0.884],
           [ 0.604, -0.549],
           [ 0.459,  0.557]], dtype=float32)
    """
    return weights_of(hashes(output_states(seed, round_, n_outputs), features), half_width(density))


def weights_of(h: NDArray[np.uint32], half: int) -> NDArray[np.float32]:
    u = (h >> np.uint32(8)).astype(np.int32)
    w = (u - np.int32(half)).astype(MEMBERSHIP) * MEMBERSHIP(1.0 / half)
    return np.asarray(np.where(u < 2 * half, w, MEMBERSHIP(0.0)))


def hash_name(name: str) -> int:
    """The feature id of a name: 63 bits of xxHash64, so that names need no vocabulary.

    >>> hash_name("city=Paris")
    7137218373440018586
    """
    return int(xxhash.xxh64_intdigest(name.encode("utf-8", "surrogatepass"))) >> 1


def _absorb(state: NDArray[np.uint32], word: NDArray[np.uint32] | np.uint32) -> NDArray[np.uint32]:
    # One 4-byte step of xxHash32: state <- rotate_left(state + word x prime3, 17) x prime4
    with np.errstate(over="ignore"):
        s = state + word * np.uint32(PRIME_3)
        return np.asarray(((s << np.uint32(17)) | (s >> np.uint32(15))) * np.uint32(PRIME_4))
