"""Generated click data: a few categorical fields, one-hot over millions of features, memory by rows alone.

The hidden model is a function, not a table. An effect is a hash of (seed, field, value), so ten thousand and fifty
million features cost the same, and every number of rows drawn with one seed obeys the same law.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

SMALLEST_FIELD = 3
ZIPF = 1.1  # the exponent: the r-th most frequent value is met about r^-1.1 times as often as the first
FREQUENT = 2000  # values of this rank and beyond have no effect: they are too rare for anyone to learn it
POSITIVE_RATE = 0.15
REFERENCE_ROWS = 4096
MOST_FEATURES = 2**31 - 1  # ids fit int32, which scipy and the peers prefer, and `scatter` cannot overflow

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]


def make_clicks(
    n_rows: int, n_features: int, *, seed: int = 0, n_fields: int = 11
) -> tuple[csr_array[Any, tuple[int, int]], NDArray[np.int64]]:
    """Rows of `n_fields` ones among `n_features` columns, and whether each was clicked (about 15 % are).

    Values of a field follow Zipf's law; fields have from 3 values to most of `n_features`, as in the KDD Cup 2012
    click log. Log-odds are a sum of one effect per frequent value and of an interaction of two fields.

    >>> X, y = make_clicks(1000, 10_000_000)
    >>> X.shape, X.nnz, sorted(set(y.tolist()))
    ((1000, 10000000), 11000, [0, 1])
    """
    if n_rows < 1:
        raise ValueError(f"n_rows must be at least 1, got {n_rows}")
    if n_fields < 2:
        raise ValueError(f"n_fields must be at least 2, two fields interact, got {n_fields}")
    least = SMALLEST_FIELD * 2**n_fields
    if not least <= n_features <= MOST_FEATURES:
        raise ValueError(
            f"n_features must be from {least} ({n_fields} fields, each at least twice as large as the one before) to "
            f"{MOST_FEATURES}, got {n_features}"
        )
    sizes = field_sizes(n_features, n_fields)
    reference = log_odds(draw_ranks(REFERENCE_ROWS, sizes, np.random.default_rng([seed, 0])), seed)
    rng = np.random.default_rng([seed, 1])
    ranks = draw_ranks(n_rows, sizes, rng)
    odds = log_odds(ranks, seed) + intercept(reference, POSITIVE_RATE)
    y = (rng.random(n_rows) < sigmoid(odds)).astype(np.int64)
    return one_hot(ranks, sizes), y


def field_sizes(n_features: int, n_fields: int) -> Ids:
    """Sizes in geometric steps from 3 on; the last field takes all that is left.

    >>> field_sizes(10_000_000, 11).tolist()
    [3, 11, 46, 180, 706, 2767, 10840, 42466, 166353, 651661, 9124967]
    """
    step = (n_features / SMALLEST_FIELD) ** (1.0 / n_fields)
    sizes: Ids = np.floor(SMALLEST_FIELD * step ** np.arange(n_fields)).astype(np.int64)
    sizes[-1] = n_features - sizes[:-1].sum()
    return sizes


def draw_ranks(n_rows: int, sizes: Ids, rng: np.random.Generator) -> Ids:
    """A value for each row and field, named by its rank in frequency from 0.

    The inverse of the distribution function of r^-a on [1, size + 1), rounded down: Zipf's law without a table.
    """
    u = rng.random((n_rows, len(sizes)))
    power = 1.0 - ZIPF
    r = (1.0 + u * ((sizes + 1.0) ** power - 1.0)) ** (1.0 / power)
    return np.minimum(r.astype(np.int64) - 1, sizes - 1)


def log_odds(ranks: Ids, seed: int) -> Floats:
    """The hidden model, up to its intercept."""
    total = np.zeros(len(ranks))
    for f in range(ranks.shape[1]):
        total += effect(seed, f, ranks[:, f], FREQUENT)
    a, b = interacting(ranks.shape[1])
    pairs = ranks[:, a] * FREQUENT + ranks[:, b]
    frequent = (ranks[:, a] < FREQUENT) & (ranks[:, b] < FREQUENT)
    return 0.6 * total + np.where(frequent, effect(seed, ranks.shape[1], pairs, FREQUENT**2), 0.0)


def interacting(n_fields: int) -> tuple[int, int]:
    """Two of the smaller fields: their pairs recur often enough to be learnt."""
    return n_fields // 8, n_fields // 4 + (n_fields < 4)


def effect(seed: int, field: int, rank: Ids, frequent: int) -> Floats:
    """A number of mean 0 and variance 1 that belongs to a value: its hash, uniform in +-sqrt(3)."""
    uniform = mixed(rank.astype(np.uint64), (seed << 8) + field + 1).astype(np.float64) / 2.0**64
    return np.where(rank < frequent, np.sqrt(3.0) * (2.0 * uniform - 1.0), 0.0)


def mixed(x: NDArray[np.uint64], key: int) -> NDArray[np.uint64]:
    """A bijection of 64 bits in which every output bit hangs on every input bit: fold, multiply, and again.

    The multipliers are those of splitmix64.
    """
    state: NDArray[np.uint64] = x + np.uint64(key * 0x9E3779B97F4A7C15 % 2**64)
    for multiplier in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        state ^= state >> np.uint64(31)
        state *= np.uint64(multiplier)
    state ^= state >> np.uint64(32)
    return state


def intercept(odds: Floats, rate: float) -> float:
    """What to add to `odds` for a mean probability of `rate`, by bisection."""
    low, high = -30.0, 30.0
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if sigmoid(odds + middle).mean() < rate else (low, middle)
    return low


def sigmoid(x: Floats) -> Floats:
    return 0.5 + 0.5 * np.tanh(0.5 * x)


def one_hot(ranks: Ids, sizes: Ids) -> csr_array[Any, tuple[int, int]]:
    """A one for each field. Fields lie side by side; a value's place in its field says nothing of its rank."""
    n_rows, n_fields = ranks.shape
    first = np.cumsum(sizes) - sizes
    ids = first + scatter(ranks, sizes)
    indptr = np.arange(0, n_rows * n_fields + 1, n_fields)
    ones = np.ones(n_rows * n_fields, dtype=np.float32)
    index = np.int32 if indptr[-1] < 2**31 else np.int64
    shape = (n_rows, int(sizes.sum()))
    return csr_array((ones, ids.ravel().astype(index), indptr.astype(index)), shape=shape)


def scatter(ranks: Ids, sizes: Ids) -> Ids:
    """A permutation of each field's values: multiplying by a prime that is larger than the field is one."""
    return (ranks * (2**31 - 1)) % sizes
