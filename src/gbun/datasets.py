"""Generated click data: categorical fields, one-hot encoded over millions of features.

The hidden model is a function, not a table: an effect is a hash of (seed, field, value). So memory depends on the rows
alone, and data of any number of rows with the same seed follow the same model.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

SMALLEST_FIELD = 3
ZIPF = 1.1  # the exponent: the r-th most frequent value occurs about r^-1.1 times as often as the first
FREQUENT_RANKS = 2000  # values from this rank on have no effect, as they are too rare to learn it
POSITIVE_RATE = 0.15
REFERENCE_ROWS = 4096
MAX_FEATURES = 2**31 - 1  # ids fit int32, which scipy and other libraries prefer; `permute_ranks` cannot overflow

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]


def make_clicks(
    n_rows: int, n_features: int, *, seed: int = 0, n_fields: int = 11
) -> tuple[csr_array[Any, tuple[int, int]], NDArray[np.int64]]:
    """Generate rows of `n_fields` ones among `n_features` columns, and whether each row was clicked (about 15 % are).

    Values of a field follow Zipf's law. The smallest field has 3 values, the largest most of `n_features`, as in the
    click log of KDD Cup 2012. The log-odds are the sum of the effects of frequent values and of an interaction of two
    fields.

    Parameters
    ----------
    n_rows : int
    n_features : int
        From 3 x 2^n_fields to 2^31 - 1.
    seed : int
    n_fields : int
        At least 2.

    Returns
    -------
    X : scipy.sparse.csr_array of shape (n_rows, n_features), float32
    y : ndarray of shape (n_rows,), int64
        1 for a click, else 0.

    >>> X, y = make_clicks(1000, 10_000_000)
    >>> X.shape, X.nnz, sorted(set(y.tolist()))
    ((1000, 10000000), 11000, [0, 1])
    """
    if n_rows < 1:
        raise ValueError(f"n_rows must be at least 1, got {n_rows}")
    if n_fields < 2:
        raise ValueError(f"n_fields must be at least 2, two fields interact, got {n_fields}")
    least = SMALLEST_FIELD * 2**n_fields
    if not least <= n_features <= MAX_FEATURES:
        raise ValueError(
            f"n_features must be from {least} ({n_fields} fields, each at least twice as large as the one before) to "
            f"{MAX_FEATURES}, got {n_features}"
        )
    sizes = field_sizes(n_features, n_fields)
    reference = log_odds(draw_ranks(REFERENCE_ROWS, sizes, np.random.default_rng([seed, 0])), seed)
    rng = np.random.default_rng([seed, 1])
    ranks = draw_ranks(n_rows, sizes, rng)
    odds = log_odds(ranks, seed) + find_intercept(reference, POSITIVE_RATE)
    y = (rng.random(n_rows) < sigmoid(odds)).astype(np.int64)
    return one_hot(ranks, sizes), y


def field_sizes(n_features: int, n_fields: int) -> Ids:
    """Return the sizes of the fields: geometric steps from 3 on, and the remaining features for the last field.

    >>> field_sizes(10_000_000, 11).tolist()
    [3, 11, 46, 180, 706, 2767, 10840, 42466, 166353, 651661, 9124967]
    """
    step = (n_features / SMALLEST_FIELD) ** (1.0 / n_fields)
    sizes: Ids = np.floor(SMALLEST_FIELD * step ** np.arange(n_fields)).astype(np.int64)
    sizes[-1] = n_features - sizes[:-1].sum()
    return sizes


def draw_ranks(n_rows: int, sizes: Ids, rng: np.random.Generator) -> Ids:
    """Draw a value for each row and field: its rank in frequency, from 0.

    This inverts the distribution function of r^-a on [1, size + 1) and rounds down: Zipf's law without a table.
    """
    u = rng.random((n_rows, len(sizes)))
    power = 1.0 - ZIPF
    r = (1.0 + u * ((sizes + 1.0) ** power - 1.0)) ** (1.0 / power)
    return np.minimum(r.astype(np.int64) - 1, sizes - 1)


def log_odds(ranks: Ids, seed: int) -> Floats:
    """Compute the hidden model, without its intercept."""
    total, n_fields = np.zeros(len(ranks)), ranks.shape[1]
    for f in range(n_fields):
        total += effect(seed, f, ranks[:, f], FREQUENT_RANKS)
    a, b = n_fields // 8, n_fields // 4 + (n_fields < 4)  # two small fields, whose pairs are frequent enough to learn
    pairs = ranks[:, a] * FREQUENT_RANKS + ranks[:, b]
    frequent = (ranks[:, a] < FREQUENT_RANKS) & (ranks[:, b] < FREQUENT_RANKS)
    return 0.6 * total + np.where(frequent, effect(seed, n_fields, pairs, FREQUENT_RANKS**2), 0.0)


def effect(seed: int, field: int, rank: Ids, frequent: int) -> Floats:
    """Return the effect of each value, with mean 0 and variance 1: its hash, uniform in +-sqrt(3)."""
    uniform = mix_bits(rank.astype(np.uint64), (seed << 8) + field + 1).astype(np.float64) / 2.0**64
    return np.where(rank < frequent, np.sqrt(3.0) * (2.0 * uniform - 1.0), 0.0)


def mix_bits(x: NDArray[np.uint64], key: int) -> NDArray[np.uint64]:
    """Map 64 bits one to one, so that every output bit depends on every input bit, with splitmix64's multipliers."""
    state: NDArray[np.uint64] = x + np.uint64(key * 0x9E3779B97F4A7C15 % 2**64)
    for multiplier in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        state ^= state >> np.uint64(31)
        state *= np.uint64(multiplier)
    state ^= state >> np.uint64(32)
    return state


def find_intercept(odds: Floats, rate: float) -> float:
    """Find by bisection the number to add to `odds` for a mean probability of `rate`."""
    low, high = -30.0, 30.0
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if sigmoid(odds + middle).mean() < rate else (low, middle)
    return low


def sigmoid(x: Floats) -> Floats:
    # Not gbun.arrays.sigmoid, whose last bits differ: labels of existing data must not change.
    return 0.5 + 0.5 * np.tanh(0.5 * x)


def one_hot(ranks: Ids, sizes: Ids) -> csr_array[Any, tuple[int, int]]:
    """Encode one value of each field. Fields are side by side; the column of a value does not tell its rank."""
    n_rows, n_fields = ranks.shape
    first = np.cumsum(sizes) - sizes
    ids = first + permute_ranks(ranks, sizes)
    indptr = np.arange(0, n_rows * n_fields + 1, n_fields)
    ones = np.ones(n_rows * n_fields, dtype=np.float32)
    index = np.int32 if indptr[-1] < 2**31 else np.int64
    shape = (n_rows, int(sizes.sum()))
    return csr_array((ones, ids.ravel().astype(index), indptr.astype(index)), shape=shape)


def permute_ranks(ranks: Ids, sizes: Ids) -> Ids:
    """Permute the values of each field: multiply by a prime larger than the field, modulo its size."""
    return (ranks * (2**31 - 1)) % sizes
