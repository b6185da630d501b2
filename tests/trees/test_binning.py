"""Bins of columns: cut points against plain NumPy, and the same ones for any order and division of the rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gbun.collectives.threads import in_threads
from gbun.kernels.threads import ThreadPool
from gbun.trees import binning
from gbun.trees.binning import fit_bins
from gbun.trees.intervals import MAX_EDGES, from_keys, hit_by_targets, midpoints, target_hits, to_keys

ONE = ThreadPool(1)
MAX = np.finfo(np.float32).max


def solo(sums):
    return sums


def fit(X, threads=ONE, **options):
    return fit_bins(X, solo, threads, **options)


def assert_same(found, wanted):
    for name in ("edges", "n_edges", "counts", "means"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name), err_msg=name)


def mixed_columns(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 12))
    X[:, 1] = rng.integers(-6, 6, n)
    X[:, 2] = X[:, 2] > 1
    X[rng.random(n) < 0.3, 3] = np.nan
    X[rng.random(n) < 0.5, 4] = 0.0
    X[:, 5], X[:, 6] = np.nan, 7.0
    X[:, 7] = rng.choice([-np.inf, -1e300, -1e-40, -0.0, 0.0, 1e-40, 1e30, np.inf], n)
    X[:, 8] = np.exp(8 * X[:, 8])
    X[:, 9] = rng.integers(0, 1000, n)
    X[rng.random(n) < 0.92, 10] = 0.0
    X[:, 10] = np.round(X[:, 10], 2)
    X[:, 11] = 1e9 + rng.integers(0, 100, n) * 64
    return X


def plain_edges(x):
    """Return the cut points of a column from its distinct values and their counts."""
    x = np.asarray(x, dtype=np.float64).astype(np.float32)
    values, counts = np.unique(x[~np.isnan(x)] + np.float32(0), return_counts=True)
    if len(values) <= 63:
        return midpoints(values)
    heavy, light = hit_by_targets(counts)
    at, below = values[heavy | light], values[heavy]
    lower = np.where(below == 0, -np.finfo(np.float32).tiny, np.nextafter(below, np.float32(-np.inf)))
    edges = np.unique(np.concatenate([at, lower])).clip(-MAX, MAX).astype(np.float32)
    return edges[(edges >= values[0]) & (edges < values[-1])]


@pytest.mark.parametrize("n", [0, 1, 2, 63, 64, 200, 5000])
def test_edges_are_the_plain_ones(n):
    X = mixed_columns(n)
    found = fit(X)
    for j in range(X.shape[1]):
        with np.errstate(over="ignore"):
            wanted = plain_edges(X[:, j])
        np.testing.assert_array_equal(found.edges[j, : found.n_edges[j]], wanted, err_msg=str(j))
        assert (found.edges[j, found.n_edges[j] :] == np.inf).all()
    np.testing.assert_array_equal(found.has_missing, np.isnan(X).any(axis=0))


@pytest.mark.parametrize("n", [1, 40, 3000])
def test_counts_and_means_are_those_of_the_bins(n):
    X = mixed_columns(n)
    found = fit(X)
    with np.errstate(over="ignore"):
        x = X.astype(np.float32)
    for j in range(X.shape[1]):
        bins = np.where(np.isnan(x[:, j]), 0, 1 + np.searchsorted(found.edges[j], x[:, j]))
        np.testing.assert_array_equal(found.counts[j], np.bincount(bins, minlength=64))
        for b in range(1, 64):
            finite = x[(bins == b) & np.isfinite(x[:, j]), j].astype(np.float64)
            if len(finite) == 0:
                assert np.isnan(found.means[j, b])
            else:  # values are known to four bits at least
                np.testing.assert_allclose(found.means[j, b], finite.mean(), rtol=0.2, atol=0.07 * abs(finite).max())


values = st.one_of(
    st.floats(width=32, allow_nan=True), st.sampled_from([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, MAX, -MAX, 1e-45])
)


@settings(max_examples=60, deadline=None)
@given(arrays(np.float32, st.tuples(st.integers(0, 63), st.integers(1, 3)), elements=values))
def test_few_values_have_a_bin_each(X):
    found = fit(X)
    for j in range(X.shape[1]):
        x = np.unique(X[~np.isnan(X[:, j]), j] + np.float32(0))
        bins = np.searchsorted(found.edges[j], x)
        if not {-np.inf, -MAX} <= {float(v) for v in x}:
            np.testing.assert_array_equal(bins, np.arange(len(x)))
        assert np.isfinite(found.edges[j, : found.n_edges[j]]).all()


@settings(max_examples=30, deadline=None)
@given(arrays(np.float32, st.integers(64, 400), elements=values))
def test_any_column_has_ordered_finite_edges_and_no_empty_bin(x):
    found = fit(x[:, None])
    k = found.n_edges[0]
    assert k <= MAX_EDGES
    assert np.isfinite(found.edges[0, :k]).all()
    assert (np.diff(found.edges[0, :k]) > 0).all()
    bins = np.where(np.isnan(x), 0, 1 + np.searchsorted(found.edges[0], x))
    np.testing.assert_array_equal(found.counts[0], np.bincount(bins, minlength=64))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_any_division_and_any_threads_give_the_same_bins(size, threads):
    X = mixed_columns(700)
    wanted = fit(X)
    rng = np.random.default_rng(size)
    share = np.minimum(rng.integers(0, 2 * size, len(X)), size - 1)  # skewed
    share[share == 0] = size - 1 if size > 2 else 0  # and an empty one

    def work(collective):
        pool = ThreadPool(threads)
        found = fit_bins(X[share == collective.rank], collective.sum, pool)
        pool.close()
        return found

    for found in in_threads(size, work):
        assert_same(found, wanted)


def test_order_of_rows_and_form_of_the_array_do_not_matter():
    X = mixed_columns(500)
    wanted = fit(X)
    with np.errstate(over="ignore"):
        single = X.astype(np.float32)
    forms = (X[::-1], np.asfortranarray(X), single, np.asfortranarray(single), np.repeat(X, 2, axis=1)[:, ::2])
    for form in forms:
        assert_same(fit(form), wanted)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64, np.uint64, np.float16])
def test_other_dtypes_are_what_they_are_as_float32(dtype):
    X = np.random.default_rng(0).integers(0, 100, (300, 3)).astype(dtype)
    assert_same(fit(X), fit(X.astype(np.float32)))


def test_rows_of_weight_zero_do_not_count():
    X = mixed_columns(400)
    weight = np.random.default_rng(0).integers(0, 3, 400) / 2
    assert_same(fit(X, weight=weight), fit(X[weight > 0]))


def test_a_sample_by_key_is_the_same_for_any_division(monkeypatch):
    monkeypatch.setattr(binning, "SAMPLED_ROWS", 300)
    X = mixed_columns(3000)
    keys = np.random.default_rng(1).integers(0, 2**64, 3000, dtype=np.uint64)
    wanted = fit(X, keys=keys)
    assert 200 < wanted.counts[0].sum() < 400
    bounds = [0, 0, 100, 3000]

    def work(collective):
        own = slice(bounds[collective.rank], bounds[collective.rank + 1])
        return fit_bins(X[own], collective.sum, ONE, keys=keys[own])

    for found in in_threads(3, work):
        assert_same(found, wanted)
    assert_same(fit(X[:300], keys=keys[:300]), fit(X[:300]))  # few rows are all looked at


def test_columns_in_several_helpings(monkeypatch):
    X = mixed_columns(200)
    wanted = fit(X)
    monkeypatch.setattr(binning, "COLUMNS_AT_A_TIME", 5)
    monkeypatch.setattr(binning, "COLUMNS_PER_ITEM", 2)
    assert_same(fit(X), wanted)


def test_a_heavy_value_is_alone_and_the_others_share_what_it_leaves():
    rng = np.random.default_rng(0)
    x = rng.normal(size=10_000)
    x[:9_000] = 0.5
    found = fit(x[:, None])
    assert found.counts[0].max() == 9_000
    assert found.n_edges[0] >= 55
    rest = np.sort(found.counts[0][found.counts[0] > 0])[:-1]
    assert rest.max() <= 3 * 1000 / 55


def test_few_sums_are_exchanged():
    calls = []

    def reduce(sums):
        calls.append(len(sums))
        return sums

    fit_bins(mixed_columns(500), reduce, ONE)
    assert len(calls) <= 8
    calls.clear()
    fit_bins(np.eye(30), reduce, ONE)
    assert len(calls) == 2  # small integers are known after the first pass


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (5, 0)])
def test_nothing_to_bin(shape):
    assert len(fit(np.zeros(shape)).n_edges) == shape[1]


@given(arrays(np.float32, 20, elements=st.floats(width=32, allow_nan=False)))
def test_keys_have_the_order_of_their_numbers(x):
    x = np.sort(x)
    assert (np.diff(to_keys(x)) >= 0).all()
    np.testing.assert_array_equal(from_keys(to_keys(x)), x)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=80), st.integers(0, 62))
def test_targets_are_ranks(counts, n):
    counts = np.array(counts)
    hits = target_hits(counts, n)
    assert hits.sum() == (n if counts.sum() else 0)
    assert not hits[counts == 0].any()
