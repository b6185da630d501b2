"""One round against the paper's formulas, as corrected, in a few lines of float64."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from gbun.boosting import add_round
from gbun.config import Parameters
from gbun.kernels.portable import moments
from gbun.kernels.threads import threads
from gbun.problem import Dataset
from gbun.solve import minimise_convex, normaliser, solve_head
from gbun.training import prepare

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
    with threads(1) as pool:
        parameters = Parameters(**{"n_neurons": 6, "scale": "none", **parameters})
        training = prepare(parameters, Dataset(X, y, weight), {}, pool)
        for t in range(rounds):
            add_round(training, t)
    return training


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
    np.testing.assert_allclose(training.start, start, rtol=1e-12)
    centred = X - np.average(X, axis=0, weights=weight) * (form is np.asarray)
    scores = np.tile(start, (N_ROWS, 1))
    for t in range(3):
        network = training.family.draw(t).column_weights(np.arange(N_COLUMNS)).astype(float)
        mean, sigma, head, scores = paper_round(
            task, centred, y, weight, scores, network, 1.7, group or 6, reg_lambda, reg_form, 0.4
        )
        np.testing.assert_allclose(training.normalisers[t].centre, mean, atol=1e-6)
        np.testing.assert_allclose(training.normalisers[t].factor, 1 / sigma, rtol=1e-5)
        np.testing.assert_allclose(training.heads[t], head, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(training.rows.scores, scores, rtol=1e-5, atol=1e-5)


def test_a_shared_hessian_is_one_system_and_its_step_descends():
    X, y, weight = data("softmax")
    training = trained(X, y, weight, rounds=0, objective="softmax")
    losses = [weight @ training.objective.loss(training.shard.y, training.rows.scores)]
    for t in range(10):
        add_round(training, t)
        losses.append(weight @ training.objective.loss(training.shard.y, training.rows.scores))
    assert (np.diff(losses) < 0).all()


# Normalisation


def test_a_constant_output_is_normalised_to_zero_for_every_row():
    """One column of two is constant and density is low: outputs that see only it have no deviation."""
    X, y, _ = data("squared_error")
    X = np.column_stack([np.full(N_ROWS, 0.1), X[:, 0]])
    training = trained(scipy.sparse.csr_array(X), y, density=0.01, n_neurons=12, rounds=2)
    norm = training.normalisers[0]
    network = training.family.draw(0).sparse_weights(np.arange(2))
    blind = network[1] == 0
    assert blind.any()
    assert not blind.all()
    assert (norm.factor[blind] == 0).all()
    assert (norm.factor[~blind] > 0).all()
    # tau (z - centre) x 0 is 0: all blind outputs of a row have the same membership
    again = trained(scipy.sparse.csr_array(X), y, density=0.01, n_neurons=12, rounds=1)
    P = again.rows.kernels.buffer
    assert (P[:, blind] == P[:, blind][:, :1]).all()


@settings(deadline=None)
@given(st.floats(-(2.0**100), 2.0**100, width=32), st.integers(2, 3000), st.integers(0, 99))
def test_an_output_that_is_the_same_for_all_rows_is_constant_whatever_its_sums_round_to(value, n, seed):
    weight = np.random.default_rng(seed).random(n)
    norm = normaliser(weight.sum(), n, moments(np.full((n, 2), value, dtype=np.float32), weight))
    np.testing.assert_array_equal(norm.factor, 0.0)
    np.testing.assert_allclose(norm.centre, value, rtol=1e-6)


def test_rows_that_are_all_alike_learn_the_mean_and_nothing_else():
    _, y, _ = data("squared_error")
    training = trained(np.ones((N_ROWS, 3)), y, rounds=4)
    assert all((n.factor == 0).all() for n in training.normalisers)
    np.testing.assert_allclose(training.rows.scores, y.mean(), atol=1e-6)


@settings(deadline=None)
@given(st.floats(0.1, 100), st.floats(-1e6, 1e6), st.integers(0, 99))
def test_moments_give_mean_and_deviation_of_shifted_outputs(deviation, offset, seed):
    z = (offset + deviation * np.random.default_rng(seed).normal(size=(500, 1))).astype(np.float32)
    norm = normaliser(500.0, 500, moments(z, np.ones(500)))
    exact = z.astype(np.float64)
    np.testing.assert_allclose(norm.centre, exact.mean(), rtol=1e-6, atol=1e-6 * deviation)
    # r deviations from zero, float64 sums lose 1e-16 r^2 of the variance; z itself has lost 6e-8 r before
    r = abs(offset) / exact.std()
    if r < 1e6:
        np.testing.assert_allclose(1 / norm.factor, exact.std(ddof=1), rtol=1e-6 + 1e-15 * r * r)


def test_a_column_far_from_zero_is_as_good_as_a_centred_one():
    X, y, _ = data("squared_error")
    for scale in ("none", "auto"):
        near = trained(X, y, rounds=5, scale=scale).rows.scores
        far = trained(X + 1e6, y, rounds=5, scale=scale).rows.scores
        np.testing.assert_allclose(far, near, atol=1e-4)


@settings(deadline=None)
@given(st.lists(st.floats(0.01, 10), min_size=2, max_size=20))
def test_weights_count_rows(weights):
    """[n, mean, deviation] of rows with integer weights is that of the rows repeated."""
    z = np.random.default_rng(len(weights)).normal(size=(len(weights), 3)).astype(np.float32)
    whole = np.ceil(weights)
    a = normaliser(whole.sum(), len(whole), moments(z, whole))
    again = np.repeat(z, whole.astype(int), axis=0)
    b = normaliser(float(len(again)), len(again), moments(again, np.ones(len(again))))
    np.testing.assert_allclose(a.centre, b.centre, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(a.factor, b.factor, rtol=1e-5)


@settings(deadline=None)
@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=20), st.floats(1e-6, 1))
def test_the_scale_of_weights_that_are_shares_of_rows_changes_nothing(weights, scale):
    """The divisor is max(N - 1, N (n - 1) / n): the second wherever the weights sum to less than the rows."""
    n, w = len(weights), np.array(weights)
    z = np.random.default_rng(n).normal(size=(n, 3)).astype(np.float32)
    a, b = (normaliser(v.sum(), n, moments(z, v)) for v in (w, scale * w))
    np.testing.assert_allclose(a.centre, b.centre, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(a.factor, b.factor, rtol=1e-6)
    ones = normaliser(n, n, moments(z, np.ones(n)))
    tenths = normaliser(n / 10, n, moments(z, np.full(n, 0.1)))
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
        np.testing.assert_allclose(a.normalisers[t].factor, b.normalisers[t].factor, rtol=1e-5)
        np.testing.assert_allclose(a.normalisers[t].factor, whole.normalisers[t].factor, rtol=1e-5)
    np.testing.assert_allclose(a.rows.scores[1::2], whole.rows.scores, atol=1e-4)


def test_one_row_has_no_deviation():
    for weight in (0.3, 1.0, 5.0):
        norm = normaliser(weight, 1, moments(np.full((1, 2), 3.0, dtype=np.float32), np.array([weight])))
        np.testing.assert_array_equal(norm.factor, 0.0)


# The head


def system(rank, size, seed=0, n_scores=2):
    rng = np.random.default_rng(seed)
    P = rng.random((40, rank)) @ rng.random((rank, size)) if rank < size else rng.random((40, size))
    return P, P.T @ P, P.T @ rng.normal(size=(40, n_scores))


@settings(deadline=None)
@given(st.integers(1, 12), st.floats(1e-6, 10), st.sampled_from(["relative", "absolute"]), st.integers(0, 99))
def test_the_head_solves_its_system(size, reg_lambda, reg_form, seed):
    _, A, B = system(size, size, seed)
    head = solve_head(A, B, reg_lambda, reg_form)
    ridge = reg_lambda * (np.trace(A) / size if reg_form == "relative" else 1.0)
    wanted = -np.linalg.solve(A + ridge * np.eye(size), B)
    np.testing.assert_allclose(head, wanted, rtol=1e-3, atol=1e-5 * np.abs(wanted).max())
    # the relative penalty knows no unit: scaling the loss, or the weights, changes nothing
    if reg_form == "relative":
        np.testing.assert_allclose(solve_head(1e5 * A, 1e5 * B, reg_lambda), head, rtol=1e-3)


def test_one_system_for_each_output_is_that_many_systems():
    systems = [system(5, 5, seed, n_scores=1) for seed in range(3)]
    A, B = np.stack([s[1] for s in systems]), np.hstack([s[2] for s in systems])
    alone = [solve_head(s[1], s[2], 0.01) for s in systems]
    np.testing.assert_array_equal(solve_head(A, B, 0.01), np.hstack(alone))


@pytest.mark.parametrize("rank", [1, 3, 7])
def test_without_a_penalty_a_singular_system_has_the_least_norm_solution(rank):
    _, A, B = system(rank, 8, seed=rank)
    head = solve_head(A, B, 0.0)
    assert np.isfinite(head).all()
    wanted = -np.linalg.pinv(A, rcond=1e-10, hermitian=True) @ B
    np.testing.assert_allclose(head, wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())


def test_equal_outputs_without_a_penalty_share_their_weight():
    _, A, B = system(4, 4)
    twice = np.array([0, 1, 2, 3, 3])
    head = solve_head(A[np.ix_(twice, twice)], B[twice], 0.0)
    single = solve_head(A, B, 0.0)
    np.testing.assert_allclose(head[3], head[4], rtol=1e-3)
    np.testing.assert_allclose(head[3] + head[4], single[3], rtol=1e-3)
    np.testing.assert_allclose(head[:3], single[:3], rtol=1e-3)


def test_no_curvature_means_no_step():
    np.testing.assert_array_equal(solve_head(np.zeros((3, 3)), np.ones((3, 1)), 0.1), np.zeros((3, 1)))


@pytest.mark.parametrize("task", ["squared_error", "logistic", "softmax"])
@pytest.mark.parametrize("reg_lambda", [0.0, 1e-3])
def test_more_outputs_than_rows(task, reg_lambda):
    X, y, _ = data(task, n=12)
    training = trained(X, y, rounds=5, n_neurons=40, objective=task, reg_lambda=reg_lambda, learning_rate=0.5)
    loss = training.objective.loss(training.shard.y, training.rows.scores).mean()
    start = training.objective.loss(training.shard.y, np.tile(training.start, (12, 1))).mean()
    assert np.isfinite(training.rows.scores).all()
    assert loss < 0.5 * start


def test_dead_outputs_without_a_penalty():
    X, y, _ = data("squared_error")
    training = trained(X[:, :1], y, rounds=5, reg_lambda=0.0, n_neurons=16)
    assert np.isfinite(training.rows.scores).all()
    assert np.mean((training.rows.scores[:, 0] - y) ** 2) < np.var(y)


# The step's length


def log_cosh(steepness, best):
    """phi(a) = log cosh(steepness (a - best)), and its slope and curvature."""

    def phi(alpha):
        x = abs(steepness * (alpha - best))
        return x + np.log1p(np.exp(-2 * x))

    def along(alpha):
        slope = np.tanh(steepness * (alpha - best))
        return float(steepness * slope), float(steepness**2 * (1 - slope**2))

    return phi, along


@settings(deadline=None)
@given(st.floats(0.01, 50), st.floats(0.1, 10))
def test_the_step_ends_where_the_slope_has_fallen_to_a_tenth(best, steepness):
    """log cosh is convex, and nearly straight where Newton's steps overshoot."""
    _, along = log_cosh(steepness, best)
    alpha = minimise_convex(along, most=60)
    first = abs(along(0.0)[0])
    assert along(0.0)[1] == 0.0 or abs(along(alpha)[0]) <= 0.1 * first * (1 + 1e-9)


@settings(deadline=None)
@given(st.floats(1e-3, 17), st.floats(0.01, 100))
def test_a_step_that_was_not_found_in_time_does_not_ascend(distance, steepness):
    """Far away log cosh is straight, and the usual number of evaluations may not do."""
    phi, along = log_cosh(steepness, distance / steepness)
    alpha = minimise_convex(along)
    assert alpha >= 0.0
    assert phi(alpha) <= phi(0.0) * (1 + 1e-12)


@pytest.mark.parametrize("best", [1.0, 2.0, 5.0, 10.0, 15.0])
def test_a_step_descends(best):
    phi, along = log_cosh(1.0, best)
    assert phi(minimise_convex(along)) < phi(0.0)


@pytest.mark.parametrize("slope", [0.0, 1.0, np.nan])
def test_without_a_descent_the_step_is_kept(slope):
    assert minimise_convex(lambda alpha: (slope, 1.0)) == 1.0
