"""The length of a step: few evaluations where the curvature is true, a step that descends where it is not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes, load_digits, load_iris

import gbun
from gbun import solve
from gbun.solve import minimise_convex


def search(along, **more):
    """The step, and how many evaluations it took."""
    asked = []

    def watched(alpha):
        asked.append(alpha)
        return along(alpha)

    return minimise_convex(watched, **more), len(asked)


def kinks(at, weights, first=-1.0, curvature=lambda slope: slope**2):
    """phi of straight pieces: its slope begins at `first` and rises by a weight at each kink."""
    at, weights = np.asarray(at), np.asarray(weights)

    def phi(alpha):
        return first * alpha + float(weights @ np.maximum(alpha - at, 0.0))

    def along(alpha):
        slope = first + float(weights[at < alpha].sum())
        return slope, curvature(slope)

    return phi, along


# Where the curvature is true


@pytest.mark.parametrize("best", [1e-3, 1.0, 1e3])
def test_a_parabola_takes_one_step(best):
    alpha, asked = search(lambda a: (a - best, 1.0))
    assert (alpha, asked) == (best, 2)


@settings(deadline=None)
@given(st.floats(-3.0, 3.0), st.floats(-2.0, 2.0), st.booleans())
def test_exponentials_take_few(log_rate, log_pull, told):
    """phi = e^(k a) - (1 + p) k a, as along a Poisson loss: the minimum is where e^(k a) = 1 + p."""
    k, pull = 10.0**log_rate, 10.0**log_pull

    def along(a):
        e = math.exp(min(k * a, 700.0))
        return k * (e - 1.0 - pull), k * k * e

    first = along(0.0)[0]
    alpha, asked = search(along, slope_at_zero=first if told else None)
    assert alpha > 0.0
    if not told:
        assert abs(along(alpha)[0]) <= 0.1 * abs(first) or asked == 9
    assert asked <= 10
    assert alpha <= math.log1p(pull) / k * 1.2


def counted(monkeypatch):
    lengths = []

    def watched(along, **more):
        alpha, asked = search(along, **more)
        lengths.append(asked)
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


# Where it is not


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
    alpha, asked = search(along)
    assert alpha > 0.0
    assert phi(alpha) <= phi(0.0) + 0.1 * alpha  # a tenth of the slope may be left
    assert asked <= 25
    assert asked <= 9 or alpha <= at.min() * 10.0  # only to find any step at all


@pytest.mark.parametrize("unit", [1e-4, 1e-2, 1.0, 1e3, 1e6])
def test_the_unit_of_the_step_does_not_matter(unit):
    """Many small pieces, as of many rows: the slope is a line, and what is said of its curvature is the slope squared,
    so that the first step is of length 1."""
    at = unit * (np.arange(1000) + 0.5) / 500.0
    _, along = kinks(at, np.full(1000, 2e-3), curvature=lambda slope: slope**2)
    alpha, asked = search(along)
    assert abs(along(alpha)[0]) <= 0.1
    assert asked <= 9


def test_a_bracket_of_neighbours_is_an_end():
    assert search(lambda a: (-1.0 if a < 0.3 else 1.0, 1.0), most=60)[0] == pytest.approx(0.3)


@pytest.mark.parametrize("nothing", [math.nan, math.inf])
def test_steps_into_nothing_come_back(nothing):
    alpha, asked = search(lambda a: (a - 1e-3, 1e-6) if a < 0.1 else (nothing, nothing))
    assert alpha == pytest.approx(1e-3, rel=0.2)
    assert asked <= 9


def test_where_every_step_ascends_there_is_none():
    alpha, asked = search(lambda a: (-1.0 if a == 0.0 else 1.0, 1.0))
    assert (alpha, asked) == (0.0, 25)


def test_flat_stretches_end():
    assert 1e4 < search(lambda a: (-1.0 if a < 1e5 else 1.0, 1.0))[0] <= 1e5
    assert search(lambda a: (-1.0, 1e-300))[0] > 0.0
    assert math.isfinite(search(lambda a: (-1.0, 1.0), most=500)[0])


# Losses of straight pieces, by the squared gradient


def absolute(scale, rate=1.0):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 4))
    y = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + 0.3 * rng.normal(size=800)
    own = gbun.TorchLoss(lambda y, s: scale * abs(s - y), hessian="gauss_newton")
    model = gbun.train({"objective": own, "n_neurons": 64, "learning_rate": rate}, (X, y), 20)
    return 1.0 - float(((model.predict(X) - y) ** 2).mean() / y.var()), model.ensemble.heads


@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_the_scale_of_a_loss_changes_next_to_nothing(rate):
    pytest.importorskip("torch")
    wanted, _ = absolute(1.0, rate)
    assert wanted > (0.7 if rate == 1.0 else 0.6)
    for scale in (1e-4, 1e-2, 1e2, 1e4):
        found, heads = absolute(scale, rate)
        assert found == pytest.approx(wanted, abs=0.02)
        assert heads.any(axis=(1, 2)).all()


def test_quantiles_that_do_not_cross_are_learnt():
    """The example of docs/autograd.md: its penalty bends the loss forty times as much as the first slope says."""
    torch = pytest.importorskip("torch")

    def quantiles(y, scores):
        q, r = y.new_tensor([0.1, 0.5, 0.9]), y[:, None] - scores
        crossing = torch.relu(scores[:, :-1] - scores[:, 1:]).sum(dim=1)
        return torch.maximum(q * r, (q - 1) * r).sum(dim=1) + 5 * crossing

    X, y = load_diabetes(return_X_y=True)
    y = (y - y.mean()) / y.std()
    own = gbun.TorchLoss(quantiles, outputs=3, hessian="gauss_newton")
    model = gbun.GBUNRegressor(objective=own, n_estimators=40, n_neurons=32).fit(X[:300], y[:300])
    found, start = model.predict(X[300:]), model.predict(X[300:], n_rounds=0)
    assert model.model_.ensemble.heads.any(axis=(1, 2)).all()
    assert (found.std(axis=0) > 0.1).all()
    assert own.loss(y[300:], found).mean() < 0.9 * own.loss(y[300:], start).mean()


def test_rounds_of_classes_by_the_squared_gradient_are_not_lost(monkeypatch):
    torch = pytest.importorskip("torch")
    lengths = counted(monkeypatch)
    X, y = load_digits(return_X_y=True)
    own = gbun.TorchLoss(
        lambda y, s: torch.nn.functional.cross_entropy(s, y.long(), reduction="none"), hessian="gauss_newton"
    )
    model = gbun.train({"objective": own, "n_neurons": 32}, (X, y), 40, task="classification")
    assert model.ensemble.heads.any(axis=(1, 2)).all()
    assert own.loss(y * 1.0, model.decision_function(X)).mean() < 0.07
    assert np.mean(lengths) < 6.0
