"""Places for the numbers of sparse features: one for each column, or 2^b that features share by a hash.

    place(f) = upper b bits of h(f),   sign(f) = +1 or -1 by the lowest bit,   h = xxHash32(f as 8 bytes; BUCKET_SEED)

Features in one place share its number up to the sign, so collisions cancel on average in sums over features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gbun.collectives import Collective
from gbun.dtypes import MEMBERSHIP, FloatArray, IntArray
from gbun.networks.simhash import split_words, xxhash32

BUCKET_SEED = np.uint32(0x6275636B)  # frozen: model files depend on it
MIN_BITS, MAX_BITS = 8, 24  # the lowest of the other bits is the sign
MAX_NUMBERS = 2**22  # for all places together, unless the user asks for more
COUNTER_BITS = 16, 20
# Columns are not hashed up to so many, or up to so many for each distinct feature in the data.
FEW_COLUMNS, MAX_COLUMNS_PER_SEEN = 2**16, 4.0
BLOCK = 2**16  # ids hashed at a time, so that intermediate results stay in the cache


@dataclass(frozen=True)
class Buckets:
    """`n` places: one for each of the columns 0 .. n-1, or, if `hashed`, 2^b places for any ids.

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
        """Return the place of each id, and its sign if places are hashed."""
        if not self.hashed:
            return np.asarray(ids, dtype=np.int32), None
        places, signs = np.empty(len(ids), dtype=np.int32), np.empty(len(ids), dtype=MEMBERSHIP)
        for first in range(0, len(ids), BLOCK):
            at = slice(first, first + BLOCK)
            h = xxhash32(BUCKET_SEED, *split_words(ids[at]))
            places[at] = h >> np.uint32(32 - self.bits)
            signs[at] = 1.0 - 2.0 * (h & np.uint32(1))
        return places, signs


def choose_buckets(
    ids: IntArray, n_columns: int | None, n_scores: int, collective: Collective, bits: int | None = None
) -> Buckets:
    """Choose places for features with `n_scores` numbers each: columns themselves if they are few, else 2^b hashed.

    b is `bits`, or the smallest with a place for each distinct feature of all workers, limited by 2^22 numbers.

    >>> from gbun.collectives import Solo
    >>> choose_buckets(np.arange(5), 1000, 1, Solo()), choose_buckets(np.arange(5000), 10**6, 20, Solo())
    (Buckets(n=1000, hashed=False), Buckets(n=8192, hashed=True))
    """
    if bits is not None:
        few = n_columns is not None and n_columns <= 2**bits
        return Buckets(n_columns) if few and n_columns else Buckets(2**bits, hashed=True)
    most = MAX_NUMBERS // n_scores
    if n_columns is not None and n_columns <= min(most, FEW_COLUMNS):
        return Buckets(n_columns)
    seen = estimate_distinct(ids, collective)
    if n_columns is not None and n_columns <= min(most, MAX_COLUMNS_PER_SEEN * seen):
        return Buckets(n_columns)
    highest = max(MIN_BITS, most.bit_length() - 1)
    bits_of_seen = (math.ceil(seen) - 1).bit_length()  # no logarithm: workers may differ in its last bit
    return Buckets(2 ** min(max(MIN_BITS, bits_of_seen), highest), hashed=True)


def estimate_distinct(ids: IntArray, collective: Collective) -> float:
    """Estimate the number of distinct ids of all workers: M log(M / r) if r of M hashed counters stay 0."""
    for bits in COUNTER_BITS:
        counters = Buckets(2**bits, hashed=True)
        hit = np.zeros(counters.n)
        hit[counters.place(ids)[0]] = 1.0
        untouched = int((collective.sum(hit) == 0.0).sum())
        if untouched > 0.05 * counters.n:  # enough for the estimate; otherwise count again with more counters
            break
    seen = counters.n * np.log(counters.n / max(1, untouched))
    return max(1.0, float(collective.broadcast(np.array([seen]))[0]))  # of the root: logarithms differ
