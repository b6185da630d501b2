"""Projections: bins by prediction's rule, and the same draws for any order and division of the rows."""

from __future__ import annotations

import numpy as np
import pytest

from gbun.collectives.threads import in_threads
from gbun.kernels.threads import ThreadPool
from gbun.trees import projections as module
from gbun.trees.binned_rows import allocate_binned_rows
from gbun.trees.binning import fit_bins
from gbun.trees.projections import bin_projections, column_statistics, draw_projections, fill_columns
from tests.trees.test_binning import ONE, mixed_columns, solo


def statistics_of(X):
    return column_statistics(fit_bins(X, solo, ONE))


def project(X, drawn, fill):
    """Return u of each projection as prediction computes it."""
    with np.errstate(over="ignore", invalid="ignore"):
        x = X.astype(np.float32)
        x = np.where(np.isnan(x), fill, x)
        a, b = (drawn.weight[:, k] * x[:, c] for k, c in enumerate((drawn.column, drawn.other)))
        u = (a + b) + drawn.offset
    assert u.dtype == np.float32
    return u.T


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("p", [1, 8, 24, 27])
@pytest.mark.parametrize("n", [1, 63, 1000, 9001])
def test_the_rule_of_prediction_gives_the_bins(n, p, threads, monkeypatch):
    monkeypatch.setattr(module, "ROWS_AT_A_TIME", 4096)
    X, pool = mixed_columns(n, seed=p), ThreadPool(threads)
    statistics = statistics_of(mixed_columns(3000))
    drawn = draw_projections(5, n, p, statistics)
    found = allocate_binned_rows(n, p)
    for form in (X, np.asfortranarray(X)):
        bin_projections(fill_columns(form, statistics, pool), drawn, pool, found.by_row, found.by_column)
        u = project(X, drawn, statistics.fill)
        bins = found.by_column
        np.testing.assert_array_equal(found.by_row[:, :p], bins.T)
        assert not found.by_row[:, p:].any()
        assert bins.min() >= 1
        assert bins.max() <= 32
        for b in range(1, 32):
            np.testing.assert_array_equal(u < np.float32(b), bins <= b)
    pool.close()


def test_infinite_values_go_where_prediction_sends_them():
    X = np.random.default_rng(0).normal(size=(500, 2))
    statistics = statistics_of(X)
    drawn = draw_projections(1, 0, 8, statistics)
    X[:9] = [[a, b] for a in (-np.inf, 0, np.inf) for b in (-np.inf, 0, np.inf)]
    found = allocate_binned_rows(500, 8)
    bin_projections(fill_columns(X, statistics, ONE), drawn, ONE, found.by_row, found.by_column)
    u = project(X, drawn, statistics.fill)
    assert np.isnan(u).any()
    for b in range(1, 32):
        np.testing.assert_array_equal(u < np.float32(b), found.by_column <= b)


def test_bins_cover_two_and_a_half_deviations():
    X = np.random.default_rng(0).normal(3.0, 7.0, size=(20_000, 6))
    statistics = statistics_of(X)
    drawn = draw_projections(0, 0, 40, statistics)
    u = project(X, drawn, statistics.fill)
    np.testing.assert_allclose(u.mean(axis=1), 16.0, atol=0.3)
    np.testing.assert_allclose(u.std(axis=1), 16.0 / 2.5, rtol=0.05)


def test_draws():
    statistics = statistics_of(mixed_columns(500))
    drawn = draw_projections(9, 3, 2000, statistics)
    assert (drawn.column != drawn.other).all()
    for columns in (drawn.column, drawn.other):
        np.testing.assert_array_equal(np.unique(columns), statistics.usable)
    assert np.isfinite(drawn.weight).all()
    assert np.isfinite(drawn.offset).all()
    again, others = draw_projections(9, 3, 10, statistics), draw_projections(9, 4, 10, statistics)
    np.testing.assert_array_equal(again.weight, drawn.weight[:10])
    assert not (others.weight == again.weight).any()
    assert not (draw_projections(8, 3, 10, statistics).weight == again.weight).any()
    standard = drawn.weight * statistics.deviation[np.stack([drawn.column, drawn.other], axis=1)]
    ratio = standard[:, 0] / np.abs(standard).max(axis=1)
    assert abs(ratio.mean()) < 0.1


def test_weights_are_uniform():
    X = np.random.default_rng(0).normal(size=(300, 2))
    drawn = draw_projections(0, 0, 20_000, statistics_of(X))
    share, _ = np.histogram(np.arctan2(drawn.weight[:, 0], drawn.weight[:, 1]), bins=4, range=(-np.pi, np.pi))
    np.testing.assert_allclose(share / 20_000, 0.25, atol=0.02)


def test_a_single_column_that_varies_is_binned_with_random_shifts():
    X = np.stack([np.zeros(900), np.random.default_rng(0).normal(size=900)], axis=1)
    statistics = statistics_of(X)
    drawn = draw_projections(0, 0, 40, statistics)
    assert (drawn.column == 1).all()
    assert (drawn.other == 1).all()
    assert (drawn.weight[:, 1] == 0.0).all()
    u = project(X, drawn, statistics.fill)
    np.testing.assert_allclose(u.std(axis=1), 16.0 / 2.5, rtol=1e-3)
    cuts = np.sort((np.ceil(drawn.offset) - drawn.offset) / drawn.weight[:, 0])  # edges that are nearest to 0
    assert len(np.unique(cuts)) == 40
    assert np.ptp(u.mean(axis=1)) > 0.8


@pytest.mark.parametrize("X", [np.zeros((9, 0)), np.zeros((9, 3)), np.full((9, 2), np.nan)])
def test_columns_that_do_not_vary_have_no_projections(X):
    statistics = statistics_of(X)
    drawn = draw_projections(0, 0, 24, statistics)
    assert len(drawn) == 0
    found = allocate_binned_rows(9, 0)
    bin_projections(fill_columns(X, statistics, ONE), drawn, ONE, found.by_row, found.by_column)


def test_statistics_are_those_of_the_rows():
    X = np.random.default_rng(0).normal(size=(5000, 4)) * [1, 1e-3, 1e6, 0] + [0, 5, -1e7, 3]
    X[:, 1] = np.round(X[:, 1], 3)  # few values
    X[::3, 2] = np.nan
    found = statistics_of(X)
    assert (np.abs(found.mean - np.nanmean(X, axis=0)) <= 0.02 * np.nanstd(X, axis=0) + 1e-12).all()
    np.testing.assert_allclose(found.deviation, np.nanstd(X, axis=0), rtol=0.05, atol=1e-12)
    np.testing.assert_array_equal(found.usable, [0, 1, 2])


@pytest.mark.parametrize("size", [2, 3, 7])
def test_any_division_gives_the_same_draws(size):
    X = mixed_columns(600)
    wanted = draw_projections(1, 2, 24, statistics_of(X))
    share = np.random.default_rng(size).integers(1, size, len(X))  # worker 0 has none

    def work(collective):
        bins = fit_bins(X[share == collective.rank], collective.sum, ONE)
        return draw_projections(1, 2, 24, column_statistics(bins))

    for found in in_threads(size, work):
        for name in ("column", "other", "weight", "offset"):
            np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))


def test_every_second_projection_is_of_preferred_columns():
    statistics = statistics_of(mixed_columns(3000))
    usable = statistics.usable
    plain, preferred = draw_projections(5, 3, 24, statistics), usable[[-1, 2, 0]]
    drawn = draw_projections(5, 3, 24, statistics, np.append(preferred, 10**6))  # the last one is not usable
    pairs = np.stack([drawn.column, drawn.other])
    assert np.isin(pairs[:, ::2], preferred).all()
    assert (pairs[0] != pairs[1]).all()
    assert len(np.unique(pairs[:, ::2])) == 3
    for name, values in vars(plain).items():
        np.testing.assert_array_equal(getattr(drawn, name)[1::2], values[1::2])
        one = draw_projections(5, 3, 24, statistics, preferred[:1])  # too few
        np.testing.assert_array_equal(getattr(one, name), values)
