"""Where numbers that belong to single sparse features are kept: one place each, or 2^b places shared by a hash.

    place(f) = upper b bits of h(f),   sign(f) = +1 or -1 by the lowest bit,   h = xxHash32(f as 8 bytes; BUCKET_SEED)

Features that share a place share its number up to the sign, so that in sums over features collisions cancel on average
instead of adding up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gbun.collectives import Collective
from gbun.dtypes import FEATURE_ID, MEMBERSHIP, FloatArray, IntArray
from gbun.networks.simhash import xxhash32

BUCKET_SEED = np.uint32(0x6275636B)  # frozen: model files depend on it
LEAST_BITS, MOST_BITS = 8, 24  # the lowest of the other bits is the sign
MOST_NUMBERS = 2**22  # kept for all places together, unless the user asks for more
COUNTING_BITS = 16, 20
FEW_COLUMNS, WIDE = 2**16, 4.0  # columns are kept as they are up to so many, or so many times the features seen
BLOCK = 2**16  # ids hashed at a time, so that what is between stays in the cache


@dataclass(frozen=True)
class Buckets:
    """`n` places: the columns 0 .. n-1 themselves, or, `hashed`, 2^b places for any ids.

    >>> Buckets(4).place(np.array([2, 0]))
    (array([2, 0], dtype=int32), None)
    >>> Buckets(1024, hashed=True).place(np.array([7, 2**62]))
    (array([394, 566], dtype=int32), array([1., 1.], dtype=float32))
    """

    n: int
    hashed: bool = False

    @property
    def bits(self) -> int:
        return self.n.bit_length() - 1

    def place(self, ids: IntArray) -> tuple[IntArray, FloatArray | None]:
        """The place of each id, and its sign where there are signs."""
        if not self.hashed:
            return np.asarray(ids, dtype=np.int32), None
        places, signs = np.empty(len(ids), dtype=np.int32), np.empty(len(ids), dtype=MEMBERSHIP)
        for first in range(0, len(ids), BLOCK):
            at = slice(first, first + BLOCK)
            own = np.asarray(ids[at]).astype(FEATURE_ID)
            low, high = (own & FEATURE_ID(0xFFFFFFFF)).astype(np.uint32), (own >> FEATURE_ID(32)).astype(np.uint32)
            h = xxhash32(BUCKET_SEED, low, high)
            places[at] = h >> np.uint32(32 - self.bits)
            signs[at] = 1.0 - 2.0 * (h & np.uint32(1))
        return places, signs


def buckets_for(
    ids: IntArray, n_columns: int | None, n_scores: int, collective: Collective, bits: int | None = None
) -> Buckets:
    """Places for features with `n_scores` numbers each: columns as they are while few, otherwise 2^b by a hash.

    b is what the user says, or the least with as many places as features were seen on all workers, as long as no more
    than 2^22 numbers are kept.

    >>> from gbun.collectives import Solo
    >>> buckets_for(np.arange(5), 1000, 1, Solo()), buckets_for(np.arange(5000), 10**6, 20, Solo())
    (Buckets(n=1000, hashed=False), Buckets(n=8192, hashed=True))
    """
    if bits is not None:
        few = n_columns is not None and n_columns <= 2**bits
        return Buckets(n_columns) if few and n_columns else Buckets(2**bits, hashed=True)
    most = MOST_NUMBERS // n_scores
    if n_columns is not None and n_columns <= min(most, FEW_COLUMNS):
        return Buckets(n_columns)
    seen = distinct(ids, collective)
    if n_columns is not None and n_columns <= min(most, WIDE * seen):
        return Buckets(n_columns)
    highest = max(LEAST_BITS, most.bit_length() - 1)
    bits_of_seen = (math.ceil(seen) - 1).bit_length()  # logarithms need not be the same on all workers
    return Buckets(2 ** min(max(LEAST_BITS, bits_of_seen), highest), hashed=True)


def distinct(ids: IntArray, collective: Collective) -> float:
    """About how many different ids all workers hold: of M counters r stay 0 with about M log(M / r) of them."""
    for bits in COUNTING_BITS:
        counters = Buckets(2**bits, hashed=True)
        hit = np.zeros(counters.n)
        hit[counters.place(ids)[0]] = 1.0
        untouched = int((collective.sum(hit) == 0.0).sum())
        if untouched > 0.05 * counters.n:  # enough to tell; otherwise count again with more
            break
    seen = counters.n * np.log(counters.n / max(1, untouched))
    return max(1.0, float(collective.broadcast(np.array([seen]))[0]))  # the root's: not all logarithms are alike
