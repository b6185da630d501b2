"""Which rows the Hessian sums are made of: a seeded sample that depends on the content of rows, not on their order.

Row i is in the sample of a round with probability p_i = min(1, share x h_i / mean h), where the mean is that of the
round before. Rows with a large h are more likely to be in it, and those with the largest always are. A row enters with
h_i / p_i, so that the sums are unbiased; then all are scaled so that their total is exact.

The random number of a row is a hash of its key and the round. Its key is a hash of its features, its target and its
number among equal rows. So the sample is the same for any order of the rows, and for any division among workers that
keeps equal rows together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from gbun.arrays import to_host
from gbun.data.features import Features
from gbun.dtypes import FEATURE_ID, SUM, FloatArray
from gbun.kernels.interface import RowSampler, SampledRows

Keys = NDArray[np.uint64]
ROWS_AT_A_TIME = 2**14  # whose dense columns are hashed at a time
GOLDEN, FIRST, SECOND = (np.uint64(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
S11, S27, S30, S31 = (np.uint64(bits) for bits in (11, 27, 30, 31))


@dataclass(frozen=True)
class GramSample:
    """A share of the rows, another one in each round; all rows where `keys` is None."""

    seed: int
    share: float
    keys: Keys | None

    @property
    def is_complete(self) -> bool:
        return self.keys is None

    def sample_round(self, round_: int, mean_curvature: float) -> RowSampler | None:
        """Return what picks the rows of a round; None: all rows.

        `mean_curvature` is the mean h of the rows of all workers in the round before; it need not be exact.
        """
        keys = self.keys
        if keys is None or not mean_curvature > 0.0:
            return None
        round_key = mix_bits(mix_bits(np.array([self.seed], dtype=FEATURE_ID)) + np.uint64(round_))

        def pick(at: slice, h: FloatArray) -> SampledRows:
            p = np.minimum(1.0, row_curvature(h) * (self.share / mean_curvature))
            picked = np.flatnonzero((mix_bits(keys[at] ^ round_key) >> S11) * 2.0**-53 < p)
            return picked, h[picked] / (p[picked] if h.ndim == 1 else p[picked, None])

        return pick


def make_gram_sample(seed: int, share: float, features: Features, y: FloatArray) -> GramSample:
    return GramSample(seed, share, None if share >= 1.0 else row_keys(features, y))


def row_curvature(h: FloatArray) -> FloatArray:
    """Return one value a row: h, or its sum over scores."""
    return h if h.ndim == 1 else h.sum(axis=1)


def sample_correction(curvature: FloatArray) -> FloatArray:
    """Return the factor of the sampled Hessian sums that makes their total exact: sum h / sum of the sampled h / p.

    >>> sample_correction(np.array([8.0, 10.0]))
    array(0.8)
    """
    whole, sample = curvature
    ratio = np.asarray(np.divide(whole, sample, out=np.ones_like(whole), where=sample > 0), dtype=SUM)
    return ratio if ratio.ndim == 0 else ratio[:, None, None]


def mix_bits(x: Any) -> Any:
    """Mix bits, so that each one of the result depends on all of x: the finaliser of splitmix64, also for kernels."""
    x = x + GOLDEN
    x = (x ^ (x >> S30)) * FIRST
    x = (x ^ (x >> S27)) * SECOND
    return x ^ (x >> S31)


_mix_bits = numba.njit(inline="always")(mix_bits)


def row_keys(features: Features, y: FloatArray) -> Keys:
    """Hash each row: its features before scaling, its target, and how many equal rows come before it.

    Equal rows are exchangeable: it does not matter which of them has which number, but each is sampled by itself.
    """
    keys = content_keys(features, y)
    _number_equal_keys(keys, np.argsort(keys, kind="stable"))
    return keys


@numba.njit(cache=True)
def _number_equal_keys(keys: Any, order: Any) -> None:
    """Mix into each key how many equal ones come before it."""
    key, count = np.uint64(0), np.uint64(0)
    for i in range(len(order)):
        at = order[i]
        count = count + np.uint64(1) if i and keys[at] == key else np.uint64(0)
        key = keys[at]
        keys[at] = _mix_bits(key + count * SECOND)


def content_keys(features: Features, y: FloatArray) -> Keys:
    """Hash each row; rows with the same features and the same target have the same key."""
    keys = np.zeros(features.n_rows, dtype=np.uint64)
    if features.dense is not None:
        for first in range(0, features.n_rows, ROWS_AT_A_TIME):  # they may be on a device
            some = slice(first, first + ROWS_AT_A_TIME)
            with np.errstate(over="ignore"):  # what float32 cannot hold is infinite here, a number like any other
                dense = np.ascontiguousarray(to_host(features.dense[some]), dtype=np.float32)
            _add_dense(dense.view(np.uint32), keys[some])
    if features.sparse is not None:
        entries = features.sparse
        _add_entries(entries.indptr, entries.ids, np.ascontiguousarray(entries.values).view(np.uint32), keys)
    targets = np.ascontiguousarray(y, dtype=np.float64).view(np.uint64)
    for column in targets.T if targets.ndim == 2 else [targets]:
        _add_targets(column, keys)
    return keys


@numba.njit(cache=True)
def _add_targets(targets: Any, keys: Any) -> None:
    for i in range(len(keys)):
        keys[i] = _mix_bits(keys[i] + targets[i])


@numba.njit(inline="always")
def _hash_entry(feature: Any, bits: Any) -> Any:
    return _mix_bits(_mix_bits(np.uint64(feature)) + np.uint64(bits))


@numba.njit(inline="always")
def _is_zero_or_nan(bits: Any) -> Any:
    size = np.uint32(bits << np.uint32(1))  # without the sign
    return size == np.uint32(0) or size > np.uint32(0xFF000000)  # zero or NaN


@numba.njit(cache=True, nogil=True)
def _add_dense(bits: Any, keys: Any) -> None:
    for i in range(bits.shape[0]):
        for f in range(bits.shape[1]):
            if not _is_zero_or_nan(bits[i, f]):
                keys[i] += _hash_entry(f, bits[i, f])


@numba.njit(cache=True, nogil=True)
def _add_entries(indptr: Any, ids: Any, bits: Any, keys: Any) -> None:
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            if not _is_zero_or_nan(bits[e]):
                keys[i] += _hash_entry(ids[e], bits[e])
