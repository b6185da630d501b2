"""Rows as bins, and bundles: against plain NumPy, for any form of the rows, threads and workers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbun.collectives.threads import in_threads
from gbun.kernels.threads import ThreadPool
from gbun.trees import bundling
from gbun.trees.binned_rows import allocate_binned_rows, bin_rows, write_tile
from gbun.trees.binning import fit_bins
from gbun.trees.bundling import find_bundles, single_columns
from tests.trees.test_binning import ONE, mixed_columns, solo


def one_hot_columns(n, seed=0):
    """Return two groups of one-hot columns, one with rows of its own kind, among others."""
    rng = np.random.default_rng(seed)
    group, rare = np.eye(6)[rng.integers(0, 6, n)], np.eye(81)[rng.integers(0, 81, n)][:, :80]
    return np.hstack([rng.normal(size=(n, 2)), 3 * group - 1, mixed_columns(n), rare])


def plain_bins(X, columns):
    with np.errstate(over="ignore"):
        x = X.astype(np.float32)
    edges = columns.bins.edges
    bins = np.zeros((len(columns), len(X)), dtype=np.uint8)
    for h, members in enumerate(columns.members):
        if columns.is_bundle[h]:
            for k, j in enumerate(members[members >= 0]):
                bins[h][x[:, j] > edges[j, 0]] |= k + 1
        else:
            j = members[0]
            bins[h] = np.where(np.isnan(x[:, j]), 0, 1 + np.searchsorted(edges[j], x[:, j]))
    return bins


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 7, 8, 500, 3001])
def test_bins_are_the_plain_ones(n, threads):
    X, pool = one_hot_columns(n), ThreadPool(threads)
    columns = find_bundles(X, fit_bins(X, solo, pool), solo, pool)
    wanted = plain_bins(X, columns)
    with np.errstate(over="ignore"):
        single = X.astype(np.float32)
    for form in (X, np.asfortranarray(X), single, np.asfortranarray(single), np.repeat(X, 2, axis=1)[:, ::2]):
        found = bin_rows(form, columns, pool)
        np.testing.assert_array_equal(found.by_column, wanted)
        np.testing.assert_array_equal(found.by_row[:, : len(columns)], wanted.T)
        assert not found.by_row[:, len(columns) :].any()
        assert found.by_row.shape[1] % 8 == 0
        assert found.by_row.size == 0 or found.by_row.ctypes.data % 64 == 0
    pool.close()


def test_rows_other_than_those_of_the_fit():
    columns = single_columns(fit_bins(mixed_columns(200), solo, ONE))
    X = mixed_columns(400, seed=1)
    X[::5] = np.nan
    X[1::5] = np.inf
    X[2::5] = -np.inf
    X[3] = -np.float32(np.nan)
    found = bin_rows(X, columns, ONE)
    np.testing.assert_array_equal(found.by_column, plain_bins(X, columns))
    assert (found.by_column[:, ::5] == 0).all()
    assert found.by_column.max() <= 63


def test_negative_nan_is_missing_too():
    X = one_hot_columns(300)
    columns = find_bundles(X, fit_bins(X, solo, ONE), solo, ONE)
    bad = np.full((9, X.shape[1]), 0xFFC00001, dtype=np.uint32).view(np.float32)
    assert not bin_rows(bad, columns, ONE).by_column.any()


def test_integers_and_bools():
    X = np.random.default_rng(0).integers(0, 90, (300, 3))
    for form in (X, X.astype(np.uint8), X > 40):
        columns = single_columns(fit_bins(form, solo, ONE))
        np.testing.assert_array_equal(bin_rows(form, columns, ONE).by_column, plain_bins(form, columns))


@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (4, 2)])
def test_no_rows_or_nothing_to_split(shape):
    X = np.zeros(shape)
    columns = find_bundles(X, fit_bins(X, solo, ONE), solo, ONE)
    found = bin_rows(X, columns, ONE)
    assert len(columns) == 0
    assert found.by_row.shape == (shape[0], 0)
    assert found.by_column.shape == (0, shape[0])


@given(st.integers(0, 40), st.integers(1, 20), st.integers(0, 9))
def test_a_tile_is_transposed(n, c, seed):
    found = allocate_binned_rows(n, c)
    bins = np.zeros((found.by_row.shape[1], -(-n // 8) * 8), dtype=np.uint8)
    bins[:c, :n] = np.random.default_rng(seed).integers(0, 256, (c, n))
    write_tile(bins.view(np.uint64), found.by_row, found.by_column)
    np.testing.assert_array_equal(found.by_column, bins[:c, :n])
    np.testing.assert_array_equal(found.by_row, bins[:, :n].T)


# Bundles


def assert_exclusive(X, columns):
    with np.errstate(over="ignore"):
        on = X.astype(np.float32) > columns.bins.edges[:, 0]
    for members in columns.members[columns.is_bundle]:
        assert on[:, members[members >= 0]].sum(axis=1).max() <= 1


def test_groups_of_one_hot_columns_are_bundles():
    X = one_hot_columns(4000)
    columns = find_bundles(X, fit_bins(X, solo, ONE), solo, ONE)
    groups = [set(members[members >= 0].tolist()) for members in columns.members]
    assert set(range(2, 8)) in groups
    assert set(range(20, 83)) in groups  # 63 of 80
    assert set(range(83, 100)) in groups
    assert_exclusive(X, columns)
    assert sorted(j for group in groups for j in group) == sorted(
        set(range(100)) - {13, 14}
    )  # all but the constant ones


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_any_division_gives_the_same_bundles(size):
    rng = np.random.default_rng(size)
    X = (rng.random((900, 60)) < 0.004).astype(float)
    X[:, :20] = one_hot_columns(900)[:, :20]
    wanted = find_bundles(X, fit_bins(X, solo, ONE), solo, ONE)
    assert_exclusive(X, wanted)
    share = np.minimum(rng.integers(0, 2 * size, len(X)), size - 1)
    share[share == 0] = size - 1

    def work(collective):
        own, pool = X[share == collective.rank], ThreadPool(2)
        columns = find_bundles(own, fit_bins(own, collective.sum, pool), collective.sum, pool)
        pool.close()
        return columns

    for found in in_threads(size, work):
        np.testing.assert_array_equal(found.members, wanted.members)
        np.testing.assert_array_equal(found.n_members, wanted.n_members)


def test_what_the_sample_does_not_show_is_found_on_all_rows(monkeypatch):
    monkeypatch.setattr(bundling, "SAMPLED_ROWS", 500)
    X = one_hot_columns(4000)
    keys = np.random.default_rng(0).integers(2**62, 2**64, 4000, dtype=np.uint64)
    bins = fit_bins(X, solo, ONE)
    X[7, 2:8] = 1.0, 3.0, -1.0, 2.0, -1.0, -1.0  # columns 2, 3 and 5 are on
    X[9, 30] = np.nan
    columns = find_bundles(X, bins, solo, ONE, keys=keys)
    groups = [members[members >= 0].tolist() for members in columns.members]
    assert [2, 4, 6, 7] in groups
    assert [3] in groups
    assert [5] in groups
    assert [30] in groups
    np.testing.assert_array_equal(bin_rows(X, columns, ONE).by_column, plain_bins(X, columns))


def test_rows_without_weight_do_not_count():
    X, weight = one_hot_columns(500), np.ones(500)
    X[::10, 2:8], weight[::10] = 2.0, 0.0
    bins = fit_bins(X, solo, ONE, weight)
    wanted = find_bundles(X[weight > 0], bins, solo, ONE)
    np.testing.assert_array_equal(find_bundles(X, bins, solo, ONE, weight).members, wanted.members)


def test_columns_beyond_the_limit_stay_single(monkeypatch):
    monkeypatch.setattr(bundling, "MAX_CANDIDATES", 10)
    columns = find_bundles(np.eye(40), fit_bins(np.eye(40), solo, ONE), solo, ONE)
    assert columns.n_members.tolist() == [10] + [1] * 30


def test_raw_splits_say_where_rows_go():
    X = one_hot_columns(600)
    columns = find_bundles(X, fit_bins(X, solo, ONE), solo, ONE)
    bins = bin_rows(X, columns, ONE).by_column
    column, threshold = columns.raw_splits()
    with np.errstate(over="ignore"):
        x = X.astype(np.float32)
    for h in range(len(columns)):
        for b in range(1, 64):
            j = column[h, b]
            if columns.is_bundle[h] and j < 0:
                assert not (bins[h] == b).any()
            elif columns.is_bundle[h]:
                np.testing.assert_array_equal(x[:, j] > threshold[h, b], bins[h] == b)
            else:
                there = ~np.isnan(x[:, j])
                np.testing.assert_array_equal((x[:, j] <= threshold[h, b])[there], (bins[h] <= b)[there])
