"""One round against the paper's formulas, as corrected, in a few lines of float64."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from gbun.config import Parameters
from gbun.solve import make_normaliser
from tests.kernels.kernel_cases import moments
from tests.trainings import add_round, train_rounds

N_ROWS, N_COLUMNS = 60, 5


def data(task, seed=0, n=N_ROWS):
    rng = np.random.default_rng(seed)
    X, weight = rng.normal(size=(n, N_COLUMNS)), rng.integers(1, 4, size=n).astype(float)
    signal = X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=n)
    y = {"squared_error": signal, "logistic": (signal > 0).astype(int), "softmax": np.digitize(signal, [-0.4, 0.4])}
    return X, y[task], weight


# The paper's round, corrected: sample deviation with N - 1, W with one minus sign, lambda I once


def paper_start(task, y, weight):
    if task == "squared_error":
        return np.array([np.average(y, weights=weight)])
    share = np.bincount(y, weight) / weight.sum()
    return np.log(share) if task == "softmax" else np.log(share[1:] / share[0])


def paper_derivatives(task, y, s, weight):
    w = weight[:, None]
    if task == "squared_error":
        return w * (s - y[:, None]), w * np.ones_like(s)
    q = 1 / (1 + np.exp(-s)) if task == "logistic" else np.exp(s) / np.exp(s).sum(axis=1, keepdims=True)
    target = y[:, None] if task == "logistic" else np.eye(s.shape[1])[y]
    return w * (q - target), w * q * (1 - q)


def paper_round(task, X, y, weight, scores, network, tau, group, reg_lambda, reg_form, eta):
    Z = X @ network
    N = weight.sum()
    mean = weight @ Z / N
    sigma = np.sqrt(weight @ (Z - mean) ** 2 / (N - 1))
    normalised = np.divide(Z - mean, sigma, out=np.zeros_like(Z), where=sigma > 1e-6)
    P = np.exp(tau * normalised).reshape(len(X), -1, group)
    P = (P / P.sum(axis=2, keepdims=True)).reshape(Z.shape)
    G, H = paper_derivatives(task, y, scores, weight)
    W = np.empty((Z.shape[1], G.shape[1]))
    for c in range(G.shape[1]):
        A = P.T @ (H[:, c : c + 1] * P)
        penalty = reg_lambda * (np.trace(A) / len(A) if reg_form == "relative" else 1.0)
        W[:, c] = -np.linalg.solve(A + penalty * np.eye(len(A)), P.T @ G[:, c])
    return mean, sigma, W * eta, scores + eta * P @ W


def trained(X, y, weight=None, rounds=1, **parameters):
    """The state of a training after some rounds."""
    return train_rounds((X, y, weight), rounds, Parameters(**{"n_neurons": 6, "scale": "none", **parameters}))


def norm_of(training, t):
    return training.steps[t].partition.normaliser


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("group", [None, 3])
@pytest.mark.parametrize(("reg_form", "reg_lambda"), [("relative", 1e-3), ("absolute", 0.5), ("relative", 1.0)])
@pytest.mark.parametrize("task", ["squared_error", "logistic", "softmax"])
def test_rounds_are_the_papers(task, reg_form, reg_lambda, group, form):
    X, y, weight = data(task)
    training = trained(
        form(X), y, weight, rounds=3, objective=task, hessian="per_class", density=0.6, temperature=1.7,
        group_size=group, reg_form=reg_form, reg_lambda=reg_lambda, learning_rate=0.4, random_state=3,
    )  # fmt: skip
    start = paper_start(task, y, weight)
    np.testing.assert_allclose(training.start.constant, start, rtol=1e-12)
    centred = X - np.average(X, axis=0, weights=weight) * (form is np.asarray)
    scores = np.tile(start, (N_ROWS, 1))
    for t in range(3):
        network = training.learner.family.draw(t).column_weights(np.arange(N_COLUMNS)).astype(float)
        mean, sigma, head, scores = paper_round(
            task, centred, y, weight, scores, network, 1.7, group or 6, reg_lambda, reg_form, 0.4
        )
        np.testing.assert_allclose(norm_of(training, t).centre, mean, atol=1e-6)
        np.testing.assert_allclose(norm_of(training, t).factor, 1 / sigma, rtol=1e-5)
        np.testing.assert_allclose(training.steps[t].head, head, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(training.rows.current_scores(), scores, rtol=1e-5, atol=1e-5)


def test_a_shared_hessian_is_one_system_and_its_step_descends():
    X, y, weight = data("softmax")
    training = trained(X, y, weight, rounds=0, objective="softmax")
    losses = [weight @ training.objective.loss(training.rows.y, training.rows.current_scores())]
    for _ in range(10):
        add_round(training)
        losses.append(weight @ training.objective.loss(training.rows.y, training.rows.current_scores()))
    assert (np.diff(losses) < 0).all()


# Normalisation


def test_a_constant_output_is_normalised_to_zero_for_every_row():
    """One column of two is constant and density is low: outputs that see only it have no deviation."""
    X, y, _ = data("squared_error")
    X = np.column_stack([np.full(N_ROWS, 0.1), X[:, 0]])
    training = trained(scipy.sparse.csr_array(X), y, density=0.01, n_neurons=12, rounds=2)
    norm = norm_of(training, 0)
    network = training.learner.family.draw(0).sparse_weights(np.arange(2))
    blind = network[1] == 0
    assert blind.any()
    assert not blind.all()
    assert (norm.factor[blind] == 0).all()
    assert (norm.factor[~blind] > 0).all()
    # tau (z - centre) x 0 is 0: all blind outputs of a row have the same membership
    again = trained(scipy.sparse.csr_array(X), y, density=0.01, n_neurons=12, rounds=1)
    P = again.rows.kernels.rounds._rounds[-1].buffer
    assert (P[:, blind] == P[:, blind][:, :1]).all()


@settings(deadline=None)
@given(st.floats(-(2.0**100), 2.0**100, width=32), st.integers(2, 3000), st.integers(0, 99))
def test_an_output_that_is_the_same_for_all_rows_is_constant_whatever_its_sums_round_to(value, n, seed):
    weight = np.random.default_rng(seed).random(n)
    norm = make_normaliser(weight.sum(), n, moments(np.full((n, 2), value, dtype=np.float32), weight))
    np.testing.assert_array_equal(norm.factor, 0.0)
    np.testing.assert_allclose(norm.centre, value, rtol=1e-6)


def test_rows_that_are_all_alike_learn_the_mean_and_nothing_else():
    _, y, _ = data("squared_error")
    training = trained(np.ones((N_ROWS, 3)), y, rounds=4)
    assert all((norm_of(training, t).factor == 0).all() for t in range(4))
    np.testing.assert_allclose(training.rows.current_scores(), y.mean(), atol=1e-6)


@settings(deadline=None)
@given(st.floats(0.1, 100), st.floats(-1e6, 1e6), st.integers(0, 99))
def test_moments_give_mean_and_deviation_of_shifted_outputs(deviation, offset, seed):
    z = (offset + deviation * np.random.default_rng(seed).normal(size=(500, 1))).astype(np.float32)
    norm = make_normaliser(500.0, 500, moments(z, np.ones(500)))
    exact = z.astype(np.float64)
    np.testing.assert_allclose(norm.centre, exact.mean(), rtol=1e-6, atol=1e-6 * deviation)
    # r deviations from zero, float64 sums lose 1e-16 r^2 of the variance; z itself has lost 6e-8 r before
    r = abs(offset) / exact.std()
    if r < 1e6:
        np.testing.assert_allclose(1 / norm.factor, exact.std(ddof=1), rtol=1e-6 + 1e-15 * r * r)


def test_a_column_far_from_zero_is_as_good_as_a_centred_one():
    X, y, _ = data("squared_error")
    for scale in ("none", "auto"):
        near = trained(X, y, rounds=5, scale=scale).rows.current_scores()
        far = trained(X + 1e6, y, rounds=5, scale=scale).rows.current_scores()
        np.testing.assert_allclose(far, near, atol=1e-4)


@settings(deadline=None)
@given(st.lists(st.floats(0.01, 10), min_size=2, max_size=20))
def test_weights_count_rows(weights):
    """[n, mean, deviation] of rows with integer weights is that of the rows repeated."""
    z = np.random.default_rng(len(weights)).normal(size=(len(weights), 3)).astype(np.float32)
    whole = np.ceil(weights)
    a = make_normaliser(whole.sum(), len(whole), moments(z, whole))
    again = np.repeat(z, whole.astype(int), axis=0)
    b = make_normaliser(float(len(again)), len(again), moments(again, np.ones(len(again))))
    np.testing.assert_allclose(a.centre, b.centre, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(a.factor, b.factor, rtol=1e-5)


@settings(deadline=None)
@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=20), st.floats(1e-6, 1))
def test_the_scale_of_weights_that_are_shares_of_rows_changes_nothing(weights, scale):
    """The divisor is max(N - 1, N (n - 1) / n): the second wherever the weights sum to less than the rows."""
    n, w = len(weights), np.array(weights)
    z = np.random.default_rng(n).normal(size=(n, 3)).astype(np.float32)
    a, b = (make_normaliser(v.sum(), n, moments(z, v)) for v in (w, scale * w))
    np.testing.assert_allclose(a.centre, b.centre, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(a.factor, b.factor, rtol=1e-6)
    ones = make_normaliser(n, n, moments(z, np.ones(n)))
    tenths = make_normaliser(n / 10, n, moments(z, np.full(n, 0.1)))
    np.testing.assert_allclose(tenths.factor, ones.factor, rtol=1e-6)


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
def test_rows_of_no_weight_are_not_counted(form):
    """n is the number of rows that have a weight: shares of half the rows are those of that half alone."""
    X, y, _ = data("squared_error")
    share = np.where(np.arange(N_ROWS) % 2, 0.3, 0.0)
    a = trained(form(X), y, share, rounds=3, reg_lambda=0.1)
    b = trained(form(X[1::2]), y[1::2], share[1::2], rounds=3, reg_lambda=0.1)
    whole = trained(form(X[1::2]), y[1::2], rounds=3, reg_lambda=0.1)
    for t in range(3):
        np.testing.assert_allclose(norm_of(a, t).factor, norm_of(b, t).factor, rtol=1e-5)
        np.testing.assert_allclose(norm_of(a, t).factor, norm_of(whole, t).factor, rtol=1e-5)
    np.testing.assert_allclose(a.rows.current_scores()[1::2], whole.rows.current_scores(), atol=1e-4)


def test_one_row_has_no_deviation():
    for weight in (0.3, 1.0, 5.0):
        norm = make_normaliser(weight, 1, moments(np.full((1, 2), 3.0, dtype=np.float32), np.array([weight])))
        np.testing.assert_array_equal(norm.factor, 0.0)


@pytest.mark.parametrize("task", ["squared_error", "logistic", "softmax"])
@pytest.mark.parametrize("reg_lambda", [0.0, 1e-3])
def test_more_outputs_than_rows(task, reg_lambda):
    X, y, _ = data(task, n=12)
    training = trained(X, y, rounds=5, n_neurons=40, objective=task, reg_lambda=reg_lambda, learning_rate=0.5)
    loss = training.objective.loss(training.rows.y, training.rows.current_scores()).mean()
    start = training.objective.loss(training.rows.y, np.tile(training.start.constant, (12, 1))).mean()
    assert np.isfinite(training.rows.current_scores()).all()
    assert loss < 0.5 * start


def test_dead_outputs_without_a_penalty():
    X, y, _ = data("squared_error")
    training = trained(X[:, :1], y, rounds=5, reg_lambda=0.0, n_neurons=16)
    assert np.isfinite(training.rows.current_scores()).all()
    assert np.mean((training.rows.current_scores()[:, 0] - y) ** 2) < np.var(y)
