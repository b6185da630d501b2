"""Bins of categories: the frequent ones have bins of their own, the others share one.

A category is known by its bucket, 16 bits of a hash; bucket 0 is for missing values. Rows of all workers are counted by
bucket, and buckets are ranked: the fullest first, of equal ones the first. A column of up to 63 buckets is a histogram
column. One of more is up to 8 of them, its pages, each of which tells the buckets of 62 ranks from each other:

    bin of rank r on page p  =  1 + r - 62 p   if  62 p <= r < 62 (p + 1),   else 63

Bin 0 is for missing values and for buckets that no row was in: a category that training has not seen counts as missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gbun.checks import check_array
from gbun.data.features import N_BUCKETS
from gbun.dtypes import FloatArray, IntArray, Reduce
from gbun.kernels.threads import ThreadPool
from gbun.trees.compiled import inlined, kernel
from gbun.trees.histogram import N_BINS

PAGE = N_BINS - 2  # ranks that have bins of their own on a page
OTHERS = N_BINS - 1  # the bin of those on other pages, and on none
MOST_PAGES = 8
UNSEEN = 2**16 - 1  # the rank of missing values and of buckets without rows
CATEGORY_ARRAYS = "category_set", "n_buckets", "bucket"
MAX_CATEGORIES = 2048  # columns, whose ranks take 256 MB
COLUMNS_AT_A_TIME = 64  # whose counts, 32 MB, are summed over workers at a time


class Categories(NamedTuple):
    """How columns of categories are binned."""

    ranks: IntArray  # uint16 (c, N_BUCKETS), of each bucket
    pages: IntArray  # int64 (p, 2): of each histogram column, the column of categories and its first rank

    @classmethod
    def from_ranks(cls, ranks: IntArray) -> Categories:
        """Give each column as many pages as its buckets ask for."""
        seen = np.count_nonzero(ranks != UNSEEN, axis=1)
        n_pages = np.where(seen <= N_BINS - 1, 1, np.minimum(-(-seen // PAGE), MOST_PAGES))
        pages = [(column, PAGE * page) for column, n in enumerate(n_pages.tolist()) for page in range(n)]
        return cls(ranks, np.array(pages, dtype=np.int64).reshape(-1, 2))


NO_CATEGORIES = Categories.from_ranks(np.zeros((0, N_BUCKETS), dtype=np.uint16))
NO_BUCKETS = np.zeros((0, 0), dtype=np.uint16)


def rank_categories(
    buckets: IntArray, reduce: Reduce, threads: ThreadPool, weight: FloatArray | None = None
) -> Categories:
    """Rank the buckets of each column by their rows.

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
    >>> found = rank_categories(rows, lambda sums: sums, ThreadPool(1))
    >>> found.ranks[0, [9, 7, 5, 0]].tolist(), found.pages.tolist()
    ([0, 1, 65535, 65535], [[0, 0]])
    """
    counted = None if weight is None or (weight > 0).all() else np.flatnonzero(weight > 0)
    rows, c = buckets if counted is None else buckets[counted], buckets.shape[1]
    ranks = np.empty((c, N_BUCKETS), dtype=np.uint16)
    for first in range(0, c, COLUMNS_AT_A_TIME):
        columns = range(first, min(first + COLUMNS_AT_A_TIME, c))
        own = threads.map(lambda j: np.bincount(rows[:, j], minlength=N_BUCKETS), columns)
        counts = np.asarray(reduce(np.concatenate(list(own)).astype(np.float64))).reshape(-1, N_BUCKETS)
        for j, of_column in zip(columns, counts, strict=True):
            ranks[j] = rank_buckets(of_column)
    return Categories.from_ranks(ranks)


def rank_buckets(counts: FloatArray) -> IntArray:
    """Return the rank of each bucket of a column from the rows in it."""
    counts = counts.copy()
    counts[0] = 0
    return _to_ranks(np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)])


def _to_ranks(order: IntArray) -> IntArray:
    ranks = np.full(N_BUCKETS, UNSEEN, dtype=np.uint16)
    ranks[order] = np.arange(len(order))
    return ranks


def append_categories(column: IntArray, threshold: FloatArray, n_columns: int, n_pages: int) -> tuple[Any, FloatArray]:
    """Append pages to `HistogramColumns.raw_splits`; they are numbered behind the raw columns."""
    more = np.repeat(np.arange(n_columns, n_columns + n_pages)[:, None], N_BINS, axis=1)
    zeros = np.zeros((n_pages, N_BINS), dtype=np.float32)
    return np.concatenate([column, more]), np.concatenate([threshold, zeros])


def pack_categories(of_trees: Sequence[Categories]) -> dict[str, Any]:
    """Return the buckets of each column in the order of their ranks, and how many it has.

    Trees that were grown on other rows may have other ranks: there is a set of columns for each.

    >>> ranks = np.stack([_to_ranks(np.array([], dtype=int)), _to_ranks(np.array([500, 4]))])
    >>> {name: array.tolist() for name, array in pack_categories([Categories.from_ranks(ranks)] * 3).items()}
    {'category_set': [0, 0, 0], 'n_buckets': [0, 2], 'bucket': [500, 4]}
    """
    sets: list[Categories] = []
    numbers: dict[int, int] = {}
    for categories in of_trees:
        if id(categories) not in numbers:
            same = [k for k, other in enumerate(sets) if np.array_equal(other.ranks, categories.ranks)]
            numbers[id(categories)] = same[0] if same else len(sets)
            sets += [] if same else [categories]
    ranks_of_all = [ranks for categories in sets for ranks in categories.ranks]
    orders = [np.argsort(ranks, kind="stable")[: np.count_nonzero(ranks != UNSEEN)] for ranks in ranks_of_all]
    return {
        "category_set": np.array([numbers[id(categories)] for categories in of_trees], dtype=np.int64),
        "n_buckets": np.array([len(order) for order in orders], dtype=np.int64),
        "bucket": np.concatenate([np.zeros(0), *orders]).astype(np.uint16),
    }


def unpack_categories(arrays: Mapping[str, Any], n_columns: int, n_trees: int) -> list[Categories]:
    """Return what `pack_categories` wrote, for each tree; the arrays are untrusted."""
    numbers = check_array("category_set", arrays["category_set"], "int64", (n_trees,))
    n_sets = len(arrays["n_buckets"]) // n_columns if arrays["n_buckets"].ndim else 0
    counts = check_array("n_buckets", arrays["n_buckets"], "int64", (n_sets * n_columns,))
    if not np.array_equal(np.unique(numbers), np.arange(n_sets)):
        raise ValueError(f"category_set must name each of the {n_sets} sets")
    if len(counts) > MAX_CATEGORIES:
        raise ValueError(f"n_buckets must be of {MAX_CATEGORIES} columns of all sets at most, got {len(counts)}")
    if len(counts) and not 0 <= counts.min() <= counts.max() < N_BUCKETS:
        raise ValueError(f"n_buckets must be from 0 to {N_BUCKETS - 1}, got {counts.min()} to {counts.max()}")
    bucket = check_array("bucket", arrays["bucket"], "uint16", (int(counts.sum()),))
    orders = np.split(bucket, np.cumsum(counts)[:-1]) if n_sets else []
    if any(0 in order or len(np.unique(order)) < len(order) for order in orders):
        raise ValueError("each bucket of a column must be there once, and none may be 0")
    ranks = [np.stack([_to_ranks(o) for o in orders[k * n_columns : (k + 1) * n_columns]]) for k in range(n_sets)]
    sets = [Categories.from_ranks(of_set) for of_set in ranks]
    return [sets[number] for number in numbers.tolist()]


@inlined()
def to_bin(rank: Any, first_rank: Any) -> Any:
    """Return the bin of a rank on the page that begins with `first_rank`."""
    place = np.int64(rank) - first_rank
    own = place + 1 if 0 <= place < PAGE else OTHERS
    return 0 if rank == UNSEEN else own


@kernel()
def write_bins(buckets: Any, ranks: Any, pages: Any, out: Any) -> None:
    """out[p, i] = bin of row i on page p, for all rows of `buckets`, (n, c)."""
    for p in range(len(pages)):
        column, first_rank = pages[p]
        of_bucket = ranks[column]
        for i in range(len(buckets)):
            out[p, i] = to_bin(of_bucket[buckets[i, column]], first_rank)
