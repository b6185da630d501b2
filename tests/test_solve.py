"""The head solves its system; the search of a step length takes few evaluations and never ascends."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits, load_iris

import gbun
from gbun import solve
from gbun.solve import minimise_convex, solve_head


def search(along, **more):
    """Return the step and the number of evaluations."""
    steps = []

    def watched(alpha):
        steps.append(alpha)
        return along(alpha)

    return minimise_convex(watched, **more), len(steps)


def kinks(at, weights, first=-1.0, curvature=lambda slope: slope**2):
    """A piecewise linear phi: its slope is `first` at 0 and rises by a weight at each kink."""
    at, weights = np.asarray(at), np.asarray(weights)

    def phi(alpha):
        return first * alpha + float(weights @ np.maximum(alpha - at, 0.0))

    def along(alpha):
        slope = first + float(weights[at < alpha].sum())
        return slope, curvature(slope)

    return phi, along


# True curvatures


@pytest.mark.parametrize("best", [1e-3, 1.0, 1e3])
def test_a_parabola_takes_one_step(best):
    assert search(lambda a: (a - best, 1.0)) == (best, 2)


@settings(deadline=None)
@given(st.floats(-3.0, 3.0), st.floats(-2.0, 2.0), st.booleans())
def test_exponentials_take_few(log_rate, log_pull, slope_known):
    """phi = e^(k a) - (1 + p) k a, as along a Poisson loss: the minimum is where e^(k a) = 1 + p."""
    k, pull = 10.0**log_rate, 10.0**log_pull

    def along(a):
        e = math.exp(min(k * a, 700.0))
        return k * (e - 1.0 - pull), k * k * e

    first = along(0.0)[0]
    alpha, n_evaluations = search(along, slope_at_zero=first if slope_known else None)
    assert alpha > 0.0
    if not slope_known:
        assert abs(along(alpha)[0]) <= 0.1 * abs(first) or n_evaluations == 9
    assert n_evaluations <= 10
    assert alpha <= math.log1p(pull) / k * 1.2


def counted(monkeypatch):
    lengths = []

    def watched(along, **more):
        alpha, n_evaluations = search(along, **more)
        lengths.append(n_evaluations)
        return alpha

    monkeypatch.setattr(solve, "minimise_convex", watched)
    return lengths


@pytest.mark.parametrize(("load", "most"), [(load_iris, 3.3), (load_digits, 3.0)])
def test_many_classes_take_about_three_evaluations_a_round(load, most, monkeypatch):
    """Each is an exchange among workers."""
    lengths = counted(monkeypatch)
    gbun.train({"objective": "softmax", "n_neurons": 32}, load(return_X_y=True), 30)
    assert np.mean(lengths) <= most
    assert max(lengths) <= 5


# Wrong curvatures


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.tuples(st.floats(-6.0, 3.0), st.floats(-3.0, 3.0)), min_size=1, max_size=40),
    st.floats(-6.0, 6.0),
    st.integers(0, 2**32),
)
def test_straight_pieces_whatever_their_curvature_is_said_to_be(pieces, log_curvature, seed):
    at, weights = 10.0 ** np.array(pieces).T
    weights[-1] += 2.0  # the slope does turn
    chance = np.random.default_rng(seed)
    phi, along = kinks(at, weights, curvature=lambda slope: 10.0 ** (log_curvature + chance.normal()))
    alpha, n_evaluations = search(along)
    assert alpha > 0.0
    assert phi(alpha) <= phi(0.0) + 0.1 * alpha  # a tenth of the slope may be left
    assert n_evaluations <= 25
    order = np.argsort(at)
    turn = at[order][np.argmax(np.cumsum(weights[order]) >= 1.0)]  # where the slope is no longer negative
    assert n_evaluations <= 9 or alpha <= turn * 10.0  # only to find any step at all


@pytest.mark.parametrize("unit", [1e-4, 1e-2, 1.0, 1e3, 1e6])
def test_the_unit_of_the_step_does_not_matter(unit):
    """Many small pieces, as of many rows: the slope is almost a line. With the squared slope as curvature, the first
    step is 1."""
    at = unit * (np.arange(1000) + 0.5) / 500.0
    _, along = kinks(at, np.full(1000, 2e-3), curvature=lambda slope: slope**2)
    alpha, n_evaluations = search(along)
    assert abs(along(alpha)[0]) <= 0.1
    assert n_evaluations <= 9


@pytest.mark.parametrize("nothing", [math.nan, math.inf])
def test_steps_into_nothing_come_back(nothing):
    alpha, n_evaluations = search(lambda a: (a - 1e-3, 1e-6) if a < 0.1 else (nothing, nothing))
    assert alpha == pytest.approx(1e-3, rel=0.2)
    assert n_evaluations <= 9


def test_searches_end():
    assert search(lambda a: (-1.0 if a < 0.3 else 1.0, 1.0), most=60)[0] == pytest.approx(0.3)  # of neighbours
    assert search(lambda a: (-1.0 if a == 0.0 else 1.0, 1.0)) == (0.0, 25)  # every step ascends
    for slope in (0.0, 1.0, math.nan):  # no step descends: it is kept
        assert search(lambda a, slope=slope: (slope, 1.0))[0] == 1.0


def test_flat_stretches_end():
    assert 1e4 < search(lambda a: (-1.0 if a < 1e5 else 1.0, 1.0))[0] <= 1e5
    assert search(lambda a: (-1.0, 1e-300))[0] > 0.0
    assert math.isfinite(search(lambda a: (-1.0, 1.0), most=500)[0])


# Piecewise linear losses, by the squared gradient


def absolute(scale, rate=1.0):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 4))
    y = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + 0.3 * rng.normal(size=800)
    loss = gbun.TorchLoss(lambda y, s: scale * abs(s - y), hessian="gauss_newton")
    model = gbun.train({"objective": loss, "n_neurons": 64, "temperature": 2.0, "learning_rate": rate}, (X, y), 20)
    return 1.0 - float(((model.predict(X) - y) ** 2).mean() / y.var()), model.ensemble.heads


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_the_scale_of_a_loss_changes_next_to_nothing(rate):
    pytest.importorskip("torch")
    wanted, _ = absolute(1.0, rate)
    assert wanted > (0.7 if rate == 1.0 else 0.6)
    for scale in (1e-4, 1e-2, 1e2, 1e4):
        found, heads = absolute(scale, rate)
        assert found == pytest.approx(wanted, abs=0.02)
        assert heads.any(axis=(1, 2)).all()


@pytest.mark.slow
def test_rounds_of_classes_by_the_squared_gradient_are_not_lost(monkeypatch):
    torch = pytest.importorskip("torch")
    lengths = counted(monkeypatch)
    X, y = load_digits(return_X_y=True)
    loss = gbun.TorchLoss(
        lambda y, s: torch.nn.functional.cross_entropy(s, y.long(), reduction="none"), hessian="gauss_newton"
    )
    model = gbun.train({"objective": loss, "n_neurons": 32}, (X, y), 40, task="classification")
    assert model.ensemble.heads.any(axis=(1, 2)).all()
    assert loss.loss(y * 1.0, model.decision_function(X)).mean() < 0.07
    assert np.mean(lengths) < 6.0


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
    assert phi(alpha) < phi(0.0) if 1 <= distance <= 15 else phi(alpha) <= phi(0.0) * (1 + 1e-12)
