"""Bins of categories: the frequent ones have bins of their own, the others share one.

A category is known by its bucket, 16 bits of a hash; bucket 0 is for missing values. Rows of all workers are counted by
bucket. The fullest buckets get bins 1, 2, ... in this order, of equal ones the first; if there are more than 63, the
others share bin 63. Bin 0 is for missing values and for buckets that no row was in: a category that training has not
seen counts as missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numba
import numpy as np

from gbun.checks import check_array
from gbun.data.features import N_BUCKETS
from gbun.dtypes import FloatArray, IntArray
from gbun.kernels.threads import ThreadPool
from gbun.trees.binning import Reduce
from gbun.trees.intervals import N_BINS

CATEGORY_ARRAYS = "n_buckets", "bucket", "bucket_bin"
MAX_CATEGORIES = 4096  # columns, whose tables of bins take 256 MB
COLUMNS_AT_A_TIME = 64  # whose counts, 32 MB, are summed over workers at a time


class BinnedCategories(NamedTuple):
    """Rows of columns of categories, and the bins of their buckets."""

    buckets: IntArray  # uint16 (n, c)
    bins: IntArray  # uint8 (c, N_BUCKETS)


NO_CATEGORIES = BinnedCategories(np.zeros((0, 0), dtype=np.uint16), np.zeros((0, N_BUCKETS), dtype=np.uint8))


def fit_category_bins(
    buckets: IntArray, reduce: Reduce, threads: ThreadPool, weight: FloatArray | None = None
) -> IntArray:
    """Return the bin of each bucket of each column, uint8 (c, N_BUCKETS).

    Parameters
    ----------
    buckets : ndarray of shape (n, c), uint16
        This worker's rows.
    reduce : callable
        Sums a float64 array over all workers.
    threads : ThreadPool
    weight : ndarray of shape (n,), optional
        Rows of weight 0 do not count.

    Examples
    --------
    >>> rows = np.array([[7], [9], [9], [0]], dtype=np.uint16)
    >>> bins = fit_category_bins(rows, lambda sums: sums, ThreadPool(1))
    >>> bins[0, [0, 5, 7, 9]].tolist()
    [0, 0, 2, 1]
    """
    counted = None if weight is None or (weight > 0).all() else np.flatnonzero(weight > 0)
    rows, c = buckets if counted is None else buckets[counted], buckets.shape[1]
    bins = np.zeros((c, N_BUCKETS), dtype=np.uint8)
    for first in range(0, c, COLUMNS_AT_A_TIME):
        columns = range(first, min(first + COLUMNS_AT_A_TIME, c))
        own = threads.map(lambda j: np.bincount(rows[:, j], minlength=N_BUCKETS), columns)
        counts = np.asarray(reduce(np.concatenate(list(own)).astype(np.float64))).reshape(-1, N_BUCKETS)
        for j, of_column in zip(columns, counts, strict=True):
            bins[j] = rank_buckets(of_column)
    return bins


def rank_buckets(counts: FloatArray) -> IntArray:
    """Return the bin of each bucket of a column from the rows in it."""
    counts = counts.copy()
    counts[0] = 0
    order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    bins = np.zeros(N_BUCKETS, dtype=np.uint8)
    bins[order] = np.minimum(np.arange(1, len(order) + 1), N_BINS - 1)
    return bins


def append_categories(
    column: IntArray, threshold: FloatArray, n_columns: int, n_categories: int
) -> tuple[IntArray, FloatArray]:
    """Append columns of categories to `HistogramColumns.raw_splits`; they are numbered behind the raw columns."""
    more = np.repeat(np.arange(n_columns, n_columns + n_categories)[:, None], N_BINS, axis=1)
    zeros = np.zeros((n_categories, N_BINS), dtype=np.float32)
    return np.concatenate([column, more]), np.concatenate([threshold, zeros])


def pack_bins(bins: IntArray) -> dict[str, Any]:
    """Return arrays that hold the bins of buckets: how many each column has, which, and their bins.

    >>> bins = np.zeros((2, N_BUCKETS), dtype=np.uint8)
    >>> bins[1, [4, 500]] = 2, 1
    >>> {name: array.tolist() for name, array in pack_bins(bins).items()}
    {'n_buckets': [0, 2], 'bucket': [4, 500], 'bucket_bin': [2, 1]}
    """
    column, bucket = np.nonzero(bins)
    counts = np.bincount(column, minlength=len(bins)).astype(np.int64)
    return dict(zip(CATEGORY_ARRAYS, (counts, bucket.astype(np.uint16), bins[column, bucket]), strict=True))


def unpack_bins(arrays: Mapping[str, Any], n_categories: int) -> IntArray:
    """Return the bins of buckets that `pack_bins` wrote; the arrays are untrusted."""
    counts = check_array("n_buckets", arrays["n_buckets"], "int64", (n_categories,))
    if len(counts) and not 0 <= counts.min() <= counts.max() < N_BUCKETS:
        raise ValueError(f"n_buckets must be from 0 to {N_BUCKETS - 1}, got {counts.min()} to {counts.max()}")
    total = int(counts.sum())
    bucket = check_array("bucket", arrays["bucket"], "uint16", (total,)).astype(np.int64)
    bin_ = check_array("bucket_bin", arrays["bucket_bin"], "uint8", (total,))
    place = np.repeat(np.arange(n_categories), counts) * N_BUCKETS + bucket
    if np.any(np.diff(place) <= 0) or np.any(bucket == 0) or np.any((bin_ == 0) | (bin_ >= N_BINS)):
        raise ValueError(f"buckets must be above 0 and ascend in each column, and their bins be from 1 to {N_BINS - 1}")
    bins = np.zeros(n_categories * N_BUCKETS, dtype=np.uint8)
    bins[place] = bin_
    return bins.reshape(n_categories, N_BUCKETS)


@numba.njit(cache=True, nogil=True)
def write_bins(buckets: Any, bins: Any, out: Any) -> None:
    """out[j, i] = bin of row i in column j, for all rows of `buckets`, (n, c)."""
    for j in range(len(bins)):
        for i in range(len(buckets)):
            out[j, i] = bins[j, buckets[i, j]]
