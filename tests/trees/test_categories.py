import numpy as np
import pytest

from gbun.data.features import N_BUCKETS
from gbun.kernels.threads import ThreadPool, thread_pool
from gbun.trees.binned_rows import bin_rows
from gbun.trees.binning import fit_bins
from gbun.trees.bundling import single_columns
from gbun.trees.categories import (
    UNSEEN,
    append_categories,
    pack_categories,
    rank_buckets,
    rank_categories,
    unpack_categories,
)
from tests.trees import plain_trees

ONE = ThreadPool(1)


def alone(array):
    return array


def make_buckets(n, sizes, seed=0):
    """Rows of columns of so many categories, some more frequent than others, some missing."""
    rng = np.random.default_rng(seed)
    columns = [rng.choice(N_BUCKETS - 1, size, replace=False) + 1 for size in sizes]
    rows = [of[(len(of) * rng.random(n) ** 2).astype(int)] * (rng.random(n) < 0.9) for of in columns]
    return np.column_stack(rows).astype(np.uint16)


def plain_pages(column):
    """The bin of each row on each page: by count, the most frequent first; 63 for those of other pages."""
    found, counts = np.unique(column[column > 0], return_counts=True)
    order = [bucket for _, bucket in sorted(zip(-counts, found.tolist(), strict=True))]
    if len(order) <= 63:
        return [[order.index(bucket) + 1 if bucket else 0 for bucket in column.tolist()]]
    pages = []
    for first in range(0, min(len(order), 8 * 62), 62):
        bins = dict.fromkeys(order, 63) | {0: 0}
        bins |= {bucket: 1 + k for k, bucket in enumerate(order[first : first + 62])}
        pages.append([bins[bucket] for bucket in column.tolist()])
    return pages


@pytest.mark.parametrize("sizes", [(1, 2, 5), (62, 63, 64, 124, 125), (3000,), (7,) * 70])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_frequent_buckets_have_bins_of_their_own(sizes, n_threads):
    buckets = make_buckets(5000, sizes)
    with thread_pool(n_threads) as threads:
        categories = rank_categories(buckets, alone, threads)
        nothing = single_columns(fit_bins(np.zeros((5000, 0)), alone, ONE))
        binned = bin_rows(np.zeros((5000, 0)), nothing, threads, categories, buckets)
    np.testing.assert_array_equal(binned.by_column, np.concatenate([plain_pages(column) for column in buckets.T]))
    assert (categories.ranks[:, 0] == UNSEEN).all()


@pytest.mark.parametrize("n_workers", [2, 3, 7])
def test_any_order_and_division_of_rows(n_workers):
    buckets, rng = make_buckets(3000, (4, 70, 900)), np.random.default_rng(1)
    weight = rng.choice([0.0, 0.5, 2.0], 3000)
    expected = rank_categories(buckets[weight > 0], alone, ONE).ranks
    np.testing.assert_array_equal(rank_categories(buckets, alone, ONE, weight).ranks, expected)
    owner, order = rng.integers(0, n_workers - 1, 3000), rng.permutation(3000)  # the last has no rows

    def job(worker, reduce):
        rows = order[owner[order] == worker]
        return rank_categories(buckets[rows], reduce, ONE, weight[rows])

    for found in plain_trees.among_workers(n_workers, job):
        np.testing.assert_array_equal(found.ranks, expected)


def test_no_rows_and_only_missing_ones():
    assert (rank_buckets(np.zeros(N_BUCKETS)) == UNSEEN).all()
    for n, c in ((0, 2), (9, 1)):
        categories = rank_categories(np.zeros((n, c), dtype=np.uint16), alone, ONE)
        assert (categories.ranks == UNSEEN).all()
        assert categories.pages.tolist() == [[j, 0] for j in range(c)]


@pytest.mark.parametrize("m", [0, 1, 9])
@pytest.mark.parametrize("n", [0, 1, 7, 700])
def test_rows_are_binned_behind_the_other_columns(m, n):
    X, buckets = np.random.default_rng(0).normal(size=(n, m)), make_buckets(n, (3, 80))
    columns = single_columns(fit_bins(X, alone, ONE))
    categories = rank_categories(buckets, alone, ONE)
    with thread_pool(2) as threads:
        binned = bin_rows(X, columns, threads, categories, buckets)
    k, p = len(columns), len(categories.pages)
    np.testing.assert_array_equal(binned.by_column[:k], bin_rows(X, columns, ONE).by_column)
    expected = np.array([page for column in buckets.T for page in plain_pages(column)]).reshape(p, n)
    np.testing.assert_array_equal(binned.by_column[k:], expected)
    np.testing.assert_array_equal(binned.by_row[:, : k + p], binned.by_column.T)
    assert not binned.by_row[:, k + p :].any()


def test_columns_are_numbered_behind_the_raw_ones():
    column, threshold = append_categories(np.zeros((3, 64), dtype=int), np.ones((3, 64), dtype=np.float32), 7, 2)
    assert column[3:, 0].tolist() == [7, 8]
    assert threshold.shape == (5, 64)


def test_categories_are_written_and_read():
    categories = rank_categories(make_buckets(900, (2, 1, 400)), alone, ONE)
    categories.ranks[1] = UNSEEN  # a column of missing values only
    others = rank_categories(make_buckets(900, (5, 90, 7), seed=1), alone, ONE)
    arrays = pack_categories([categories, others, categories._replace(ranks=categories.ranks.copy()), others])
    assert {name: array.dtype.name for name, array in arrays.items()} == {
        "category_set": "int64", "n_buckets": "int64", "bucket": "uint16",
    }  # fmt: skip
    assert arrays["category_set"].tolist() == [0, 1, 0, 1]
    found = unpack_categories(arrays, 3, 4)
    assert found[0] is found[2]
    for one, wanted in zip(found, (categories, others), strict=False):
        np.testing.assert_array_equal(one.ranks, wanted.ranks)
        np.testing.assert_array_equal(one.pages, wanted.pages)
    assert unpack_categories(pack_categories([]), 3, 0) == []


def test_forged_categories_are_refused():
    arrays = pack_categories([rank_categories(make_buckets(900, (5, 90)), alone, ONE)] * 2)
    counts, bucket = arrays["n_buckets"], arrays["bucket"]
    forged = {
        "category_set": [
            arrays["category_set"] + 1, arrays["category_set"] - [0, 1], arrays["category_set"][1:],
            np.zeros((2, 1), dtype=int),
        ],
        "n_buckets": [
            np.array(3), np.append(counts, counts), counts[:0],
            counts + 1, counts * [1, -1], counts + 2**62, counts[:1], np.array([2**16, len(bucket) - 2**16])
        ],
        "bucket": [
            bucket * 0, bucket.astype(np.int64), bucket[1:], np.where(bucket == bucket[0], 0, bucket),
            np.where(bucket == bucket[1], bucket[0], bucket),
        ],
    }  # fmt: skip
    for name, arrays_of_name in forged.items():
        for array in arrays_of_name:
            with pytest.raises(ValueError, match=r"bucket|category_set"):
                unpack_categories(arrays | {name: array.copy()}, 2, 2)


def test_few_bytes_make_no_large_tables():
    n = 2049
    arrays = {"category_set": np.arange(n), "n_buckets": np.zeros(n, np.int64), "bucket": np.zeros(0, np.uint16)}
    with pytest.raises(ValueError, match="2048 columns of all sets at most, got 2049"):
        unpack_categories(arrays, 1, n)
