"""Simhash++: the weight of (feature, output) in a round is a hash, so no weight is stored.

    s(t, k)    = xxHash32(t, k as 4 bytes each; hash seed = xxHash32(seed as 8 bytes))      the K hash seeds of a round
    h(t, f, k) = xxHash32(f as 8 bytes; hash seed = s(t, k))
    u          = h >> 8                                       uniform on {0, ..., 2^24 - 1}
    w          = (u - N) x float32(1 / N)  if u < 2N  else 0            N = round(density x 2^23)

All bytes are little-endian. With density 1, w is uniform on [-1, 1). With a smaller density a weight is non-zero with
that probability and then uniform on [-1, 1); both come from the bits of one hash. Every step is exact in float32 or
rounds in one defined place, so all machines and devices compute the same weights.

The paper uses the hash seeds 0 .. K-1 and hashes the feature id followed by the round. But xxHash32 begins with
(hash seed + first word x prime), so with neighbouring seeds output k of feature f and output k + d of feature g share
*all* bits in *every* round if d = (f - g) x prime mod 2^32: among 54 million ids there are pairs with d = 41. With the
round first, other pairs share them (ids 30,670,848 apart, d = 34). Seeds that are hashes have no such pairs, change
from round to round, and cost nothing: they are computed once a round, and a 64-bit id costs two words.

This is the NumPy reference; `gbun.kernels.hashed` is the fast form. Golden values in tests/golden freeze both.
"""

from __future__ import annotations

import numpy as np
import xxhash
from numpy.typing import NDArray

from gbun.dtypes import FEATURE_ID, MEMBERSHIP, IntArray

PRIME_2, PRIME_3, PRIME_4, PRIME_5 = 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
MESSAGE_BYTES = 8
HALF = 1 << 23  # N at density 1
UNUSED_ID = 2**64 - 1  # an id of no feature: its hash picks the input of an output whose weights are all zero

Words = NDArray[np.uint32]


def xxhash32(seed: Words | np.uint32, first: Words | np.uint32, second: Words | np.uint32) -> Words:
    """Compute xxHash32 of eight bytes, given as two 4-byte words; any argument may be an array.

    >>> message = np.array([1, 2], dtype="<u4").tobytes()
    >>> int(xxhash32(np.uint32(7), np.uint32(1), np.uint32(2))) == xxhash.xxh32_intdigest(message, seed=7)
    True
    """
    with np.errstate(over="ignore"):
        h = _absorb(_absorb(initial_hash_state(seed), first), second)
        h = (h ^ (h >> np.uint32(15))) * np.uint32(PRIME_2)
        h = (h ^ (h >> np.uint32(13))) * np.uint32(PRIME_3)
        return np.asarray(h ^ (h >> np.uint32(16)))


def initial_hash_state(seed: Words | np.uint32) -> Words:
    """Return the first state of xxHash32 for a message of eight bytes."""
    return np.asarray(np.asarray(seed) + np.uint32(PRIME_5 + MESSAGE_BYTES))


def _absorb(state: Words, word: Words | np.uint32) -> Words:
    # One 4-byte step: state <- rotate_left(state + word x prime3, 17) x prime4
    s = state + word * np.uint32(PRIME_3)
    return np.asarray(((s << np.uint32(17)) | (s >> np.uint32(15))) * np.uint32(PRIME_4))


def output_seeds(seed: int, round_: int, n_outputs: int) -> Words:
    """Compute the K hash seeds of a round, one for each output."""
    model = np.uint32(xxhash.xxh32_intdigest(seed.to_bytes(8, "little")))
    return xxhash32(model, np.uint32(round_), np.arange(n_outputs, dtype=np.uint32))


def split_words(ids: IntArray) -> tuple[Words, Words]:
    """Split 64-bit ids into their low and high 4-byte words."""
    ids = np.asarray(ids).astype(FEATURE_ID)
    return (ids & FEATURE_ID(0xFFFFFFFF)).astype(np.uint32), (ids >> FEATURE_ID(32)).astype(np.uint32)


def hash_features(seeds: Words, features: IntArray) -> Words:
    """Compute xxHash32 of each feature with each seed, len(features) x K."""
    low, high = split_words(features)
    return xxhash32(seeds[None, :], low[:, None], high[:, None])


def half_width(density: float) -> int:
    """Return N: hashes whose upper 24 bits are below 2N give a non-zero weight."""
    return max(1, round(density * HALF))


def weights(seed: int, round_: int, features: IntArray, n_outputs: int, density: float = 1.0) -> NDArray[np.float32]:
    """Compute the weights w(seed, round, feature, output) of some features for the outputs 0 .. K-1.

    Parameters
    ----------
    seed : int
        From 0 to 2^63 - 1.
    round_ : int
        The round, from 0.
    features : ndarray of shape (n,), integers
        Feature ids.
    n_outputs : int
        K.
    density : float
        The fraction of non-zero weights.

    Returns
    -------
    ndarray of shape (n, K), float32

    >>> weights(seed=0, round_=0, features=np.array([0, 7, 2**63], dtype=np.uint64), n_outputs=2).round(3)
    array([[-0.403,  0.307],
           [ 0.274,  0.509],
           [ 0.586, -0.721]], dtype=float32)
    """
    return weights_from_hashes(hash_features(output_seeds(seed, round_, n_outputs), features), half_width(density))


def weights_from_hashes(h: Words, half: int) -> NDArray[np.float32]:
    """Return (u - N) / N for u < 2N, else 0, with u = h >> 8 and N = half."""
    u = (h >> np.uint32(8)).astype(np.int32)
    w = (u - np.int32(half)).astype(MEMBERSHIP) * MEMBERSHIP(1.0 / half)
    return np.asarray(np.where(u < 2 * half, w, MEMBERSHIP(0.0)))


def hash_name(name: str) -> int:
    """Return the feature id of a name, 63 bits of xxHash64, so that no vocabulary is needed.

    >>> hash_name("city=Paris")
    2289919594175583795
    """
    return int(xxhash.xxh64_intdigest(name.encode("utf-8", "surrogatepass"))) >> 1
