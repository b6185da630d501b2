"""The sample of rows for the Hessian sums: it goes by what a row holds, not by where it stands."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import gbun
from gbun.config import Parameters
from gbun.data.features import Entries, Features
from gbun.defaults import gram_share
from gbun.kernels.sampling import content_keys, make_gram_sample, row_curvature, row_keys, sample_correction
from gbun.kernels.threads import thread_pool
from tests.trainings import prepare_training

ONE = 1.0  # the mean h, where every h is 1


def rows(n=3000, m=12, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m)) * (rng.random((n, m)) < 0.4)
    return X.astype(np.float32), rng.integers(0, 2, n).astype(float)


def dense(X):
    return Features(len(X), dense=X)


def sparse(csr):
    return Features(csr.shape[0], sparse=Entries(csr.indptr, csr.indices, csr.data))


def picked(sample, round_, n):
    """The sample where all rows have the same curvature."""
    return sample.sample_round(round_, ONE)(slice(0, n), np.ones(n))[0]


def test_keys_belong_to_what_a_row_holds():
    X, y = rows()
    X[100:120] = X[100]
    y[100:120] = 1.0
    keys = content_keys(dense(X), y)
    np.testing.assert_array_equal(content_keys(sparse(scipy.sparse.csr_array(X)), y), keys)
    order = np.random.default_rng(1).permutation(len(X))
    np.testing.assert_array_equal(content_keys(dense(X[order]), y[order]), keys[order])
    assert len(np.unique(keys)) == len(np.unique(np.column_stack([X, y]), axis=0))
    assert (content_keys(dense(X), 1.0 - y) != keys).all()
    numbered, reordered = np.sort(row_keys(dense(X), y)), np.sort(row_keys(dense(X[order]), y[order]))
    assert len(np.unique(numbered)) == len(X)
    np.testing.assert_array_equal(reordered, numbered)  # equal rows have the same keys, in some order
    explicit = scipy.sparse.csr_array(np.ones_like(X))
    explicit.data = X.ravel().copy()  # zeros that are stored are zeros
    np.testing.assert_array_equal(content_keys(sparse(explicit), y), keys)


def test_no_rows_and_huge_numbers_have_keys_too():
    assert len(row_keys(dense(np.zeros((0, 3))), np.zeros(0))) == 0
    assert len(row_keys(dense(np.zeros((0, 3))), np.zeros((0, 2)))) == 0
    assert len(np.unique(row_keys(dense(np.array([[1e100], [1e120]])), np.zeros(2)))) == 2


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["logistic", "squared_error"])
def test_few_distinct_rows_that_are_many(objective):
    """Equal rows each have a chance of their own: none of the few kinds is ever missing."""
    rng = np.random.default_rng(0)
    kinds, share = rng.normal(size=(100, 5)), 1.0 / np.arange(1, 101)
    X = kinds[rng.choice(100, size=60_000, p=share / share.sum())]
    y = (rng.random(60_000) < 1 / (1 + np.exp(-2 * X[:, 0] * X[:, 1]))).astype(int)
    parameters, losses = {"objective": objective, "n_neurons": 64, "n_estimators": 40}, []
    for gram_rows in (1.0, 0.03):
        model = gbun.train({**parameters, "gram_rows": gram_rows}, (X, y))
        losses.append(model.ensemble.objective.loss(y.astype(float), model.decision_function(X)[:, None]).mean())
    assert losses[1] < losses[0] + 0.003


@pytest.mark.parametrize("share", [0.02, 0.25, 0.9])
def test_the_sample_has_the_share_it_should_and_changes_from_round_to_round(share):
    X, y = rows(n=20_000)
    sample = make_gram_sample(0, share, dense(X), y)
    taken = [picked(sample, t, len(X)) for t in range(4)]
    for t in range(4):
        assert abs(len(taken[t]) / len(X) - share) < 5 * np.sqrt(share * (1 - share) / len(X))
        assert (np.diff(taken[t]) > 0).all()
        np.testing.assert_array_equal(taken[t], picked(sample, t, len(X)))
    both = len(np.intersect1d(taken[0], taken[1])) / len(X)
    assert abs(both - share**2) < 5 * np.sqrt(share**2 / len(X))
    other = make_gram_sample(1, share, dense(X), y)
    assert len(np.intersect1d(taken[0], picked(other, 0, len(X)))) < len(taken[0])


def test_a_chunk_is_sampled_as_the_whole_is():
    X, y = rows()
    sample = make_gram_sample(0, 0.3, dense(X), y)
    pick, h = sample.sample_round(5, ONE), np.ones(3000)
    parts = [at.start + pick(at, h[at])[0] for at in (slice(0, 7), slice(7, 1200), slice(1200, 3000))]
    np.testing.assert_array_equal(np.concatenate(parts), picked(sample, 5, 3000))


def test_all_rows_need_no_keys():
    X, y = rows()
    sample = make_gram_sample(0, 1.0, dense(X), y)
    assert sample.is_complete
    assert sample.sample_round(3, ONE) is None
    assert make_gram_sample(0, 0.5, dense(X), y).sample_round(3, 0.0 * ONE) is None  # no curvature to go by


@pytest.mark.parametrize("per_class", [False, True])
def test_rows_count_for_what_they_are_more_likely_to_be_in_and_sums_are_right_in_the_mean(per_class):
    X, y = rows(n=4000)
    rng = np.random.default_rng(3)
    h = np.where(rng.random(4000) < 0.01, 50.0, 0.1) * rng.random(4000)
    h = np.column_stack([h, 0.5 * h]) if per_class else h
    sample, at = make_gram_sample(0, 0.1, dense(X), y), slice(0, 4000)
    mean = row_curvature(h).mean()
    sums, sizes = [], []
    for t in range(300):
        taken, weighted = sample.sample_round(t, mean)(at, h)
        assert set(np.flatnonzero(row_curvature(h) >= 10 * mean)) <= set(taken)
        sums.append(weighted.sum(axis=0))
        sizes.append(len(taken))
    assert np.mean(sizes) <= 400
    error = np.std(sums, axis=0) / np.sqrt(300)
    assert (np.abs(np.mean(sums, axis=0) - h.sum(axis=0)) < 5 * error).all()
    assert (error < 0.01 * h.sum(axis=0)).all()


def test_the_default_is_all_rows_until_they_are_many():
    for n, everything in ((32_000, True), (33_000, False)):
        X, y = rows(n, m=2)
        with thread_pool(1) as pool:
            training = prepare_training(Parameters(n_neurons=16), (X, y), pool)
        assert training.setup.sample.is_complete == everything
    assert gram_share(None, 10**6, 1024) == 128 * 1024 / 10**6
    # a share that would leave too few rows is raised
    assert gram_share(0.001, 10_000, 32) == pytest.approx(16 * 32 / 10_000)
    assert gram_share(0.001, 100, 32) == 1.0


def test_the_scale_of_the_whole():
    np.testing.assert_array_equal(sample_correction(np.array([[8.0, 6.0], [2.0, 0.0]])), [[[4.0]], [[1.0]]])
    assert sample_correction(np.zeros(2)) == 1.0


def fitted(X, y, **more):
    parameters = {"n_neurons": 32, "n_estimators": 8, "gram_rows": 0.5, **more}
    return gbun.GBUNClassifier(**parameters).fit(X, y).decision_function(X)


@pytest.mark.usefixtures("handed_over")
@pytest.mark.parametrize("n", [900, 6000])
def test_a_sampled_model_is_close_to_the_whole_one_and_has_seeded_bits(n):
    X, y = rows(n)
    y = (X[:, 0] * X[:, 1] + X[:, 2] > 0).astype(int)
    half, whole = fitted(X, y), fitted(X, y, gram_rows=1.0)
    assert not np.array_equal(half, whole)
    assert np.corrcoef(half, whole)[0, 1] > 0.98
    for n_jobs in (1, 2, 3):
        np.testing.assert_array_equal(fitted(X, y, n_jobs=n_jobs), half)
    tolerance = 2e-6 * np.abs(half).max() if n == 900 else 2e-4 * np.abs(half).max()
    order = np.random.default_rng(1).permutation(n)
    np.testing.assert_allclose(fitted(X[order], y[order]), half[order], atol=tolerance)
    sparse_form = {"temperature": 2.0, "group_size": 16, "density": 0.1, "scale": "none", "init": "constant"}
    np.testing.assert_allclose(
        fitted(scipy.sparse.csr_array(X), y, **sparse_form), fitted(X, y, **sparse_form), atol=1e-3
    )


def test_rows_of_great_weight_are_always_in_the_sample():
    """A hundred rows that weigh as much as all others: a plain share of them would be no more than a few."""
    X, y = rows(20_000)
    y = (X[:, 0] + X[:, 1] > 0).astype(int)
    weight = np.where(np.arange(20_000) < 100, 200.0, 1.0)
    whole, sampled = (
        gbun.GBUNClassifier(n_neurons=32, n_estimators=10, gram_rows=share).fit(X, y, sample_weight=weight)
        for share in (1.0, 0.03)
    )
    heavy = X[:100]
    assert np.corrcoef(whole.decision_function(heavy), sampled.decision_function(heavy))[0, 1] > 0.97


def test_ten_rounds_and_ten_more_are_twenty_with_a_sample():
    X, y = rows(500)
    parameters, data = {"n_neurons": 16, "gram_rows": 0.5, "learning_rate": 0.3}, (X, y.astype(int))
    twenty, ten = gbun.train(parameters, data, 20), gbun.train(parameters, data, 10)
    more = gbun.train(parameters, data, 10, init_model=ten)
    np.testing.assert_array_equal(more.ensemble.heads, twenty.ensemble.heads)
