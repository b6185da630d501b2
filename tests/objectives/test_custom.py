"""`Custom`: objectives that are functions of users."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbun import load_model
from gbun.objectives import Custom
from gbun.training import train

seeds = st.integers(0, 10**6)


def squared(y, scores, weight):
    return (scores - y) * weight, weight


def logistic(y, scores, weight):
    q = 1 / (1 + np.exp(-scores))
    return (q - y) * weight, q * (1 - q) * weight


def squared_outputs(y, scores, weight):
    return (scores - y) * weight[:, None], weight


def numbers(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, X[:, 0] * X[:, 1] + 0.1 * rng.normal(size=n), rng.random(n)


def fitted(objective, X, y, weight, margin=None):
    return train({"objective": objective, "n_neurons": 8}, (X, y, weight, margin), 5)


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_function_that_computes_the_same_gives_the_same_bits(outputs):
    X, y, weight = numbers()
    if outputs == 2:
        y = np.column_stack([y, X[:, 2]])
    function, name = (squared, "squared_error") if outputs == 1 else (squared_outputs, "multi_squared_error")
    margin = np.full(y.shape, 0.5)
    a, b = fitted(function, X, y, weight, margin), fitted(name, X, y, weight, margin)
    np.testing.assert_array_equal(a.ensemble.heads, b.ensemble.heads)
    scores = [m.decision_function(X, base_margin=margin) for m in (a, b)]
    np.testing.assert_array_equal(*scores)
    # without a margin the start is found by a search
    a, b = fitted(function, X, y, weight), fitted(name, X, y, weight)
    np.testing.assert_allclose(a.ensemble.start.constant, b.ensemble.start.constant, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(a.predict(X), b.predict(X), atol=1e-5)


def test_a_function_of_classes_starts_and_learns_as_the_built_in_one():
    X, y, weight = numbers()
    y = (y > 0.3).astype(int)
    params = {"n_neurons": 8}
    a = train({"objective": logistic, **params}, (X, y, weight), 5, task="classification")
    b = train({"objective": "logistic", **params}, (X, y, weight), 5)
    np.testing.assert_allclose(a.ensemble.start.constant, b.ensemble.start.constant, rtol=1e-9)
    np.testing.assert_allclose(a.decision_function(X), b.decision_function(X), atol=1e-4)
    np.testing.assert_array_equal(a.predict(X), b.predict(X))


def softmax(y, scores, weight):
    e = np.exp(scores.astype(float))
    q = e / e.sum(axis=1, keepdims=True)
    return (q - np.eye(3)[y.astype(int)]) * weight[:, None], q * (1 - q) * weight[:, None]


def multi_logistic(y, scores, weight):
    return logistic(y, scores, weight[:, None])


def labels(kind):
    X, y, weight = numbers()
    several = np.column_stack([y > 0.3, X[:, 2] > 0]).astype(int)
    y = {"logistic": several[:, 0], "softmax": np.digitize(y, [-0.4, 0.4]), "multi_logistic": several}[kind]
    return X, y, weight


@pytest.mark.parametrize(
    ("function", "link"), [(logistic, "logistic"), (softmax, "softmax"), (multi_logistic, "logistic")]
)
def test_a_function_of_classes_has_probabilities(function, link, tmp_path):
    X, y, weight = labels(function.__name__)
    params = {"n_neurons": 8, "hessian": "per_class"}
    zero = np.zeros(y.shape if function is not softmax else (len(y), 3))  # where not every function finds its start
    a, b = (
        train({**params, "objective": o}, (X, y, weight, zero), 5, task="classification")
        for o in (function, function.__name__)
    )
    assert a.ensemble.objective.link == link
    assert a.ensemble.objective.default_metric() == "log_loss"
    np.testing.assert_allclose(*(m.predict_proba(X, base_margin=zero) for m in (a, b)), atol=1e-5)
    if function is not multi_logistic:
        np.testing.assert_allclose(a.predict_proba(X).sum(axis=1), 1.0)
    np.testing.assert_array_equal(list(a.staged_predict_proba(X))[-1], a.predict_proba(X))
    a.save_model(tmp_path / "m.gbun")
    loaded = load_model(tmp_path / "m.gbun")
    np.testing.assert_array_equal(loaded.predict_proba(X), a.predict_proba(X))
    assert loaded.ensemble.objective.link == link


def test_a_function_of_numbers_has_the_identity():
    X, y, weight = numbers()
    model = fitted(squared, X, y, weight)
    assert model.ensemble.objective == Custom(squared, 1, "identity")
    assert model.ensemble.objective.default_metric() == "rmse"
    np.testing.assert_array_equal(model.predict(X), model.decision_function(X))
    with pytest.raises(ValueError, match="predict_proba needs"):
        model.predict_proba(X)


def test_one_hessian_for_each_output_is_one_system_for_each():
    X, y, weight = numbers()
    y = np.column_stack([y, X[:, 2]])
    shared = fitted(squared_outputs, X, y, weight)
    each = fitted(lambda y, s, w: (squared_outputs(y, s, w)[0], np.column_stack([w, w])), X, y, weight)
    np.testing.assert_allclose(shared.predict(X), each.predict(X), atol=1e-5)


def test_derivatives_may_be_columns():
    X, y, weight = numbers()
    a = fitted(lambda *given: tuple(d[:, None] for d in squared(*given)), X, y, weight)
    np.testing.assert_array_equal(a.predict(X), fitted(squared, X, y, weight).predict(X))


WRONG = {
    "not a pair": (lambda y, s, w: s - y, "must return the pair"),
    "three things": (lambda y, s, w: (s, s, s), "must return the pair"),
    "nothing": (lambda y, s, w: None, "must return the pair"),
    "a short gradient": (lambda y, s, w: (s[:-1], w), "gradient of shape"),
    "a number for gradient": (lambda y, s, w: (1.0, w), "gradient of shape"),
    "a short Hessian": (lambda y, s, w: (s, w[:-1]), "Hessian of shape"),
    "a square Hessian": (lambda y, s, w: (s, np.eye(len(s))), "Hessian of shape"),
    "nan in the gradient": (lambda y, s, w: (s * np.nan, w), "gradient that is not finite"),
    "infinite Hessian": (lambda y, s, w: (s, w * np.inf), "Hessian that is not finite"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_returns_are_errors_that_say_what_is_wrong(case):
    function, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        fitted(function, *numbers(n=30))


@settings(deadline=None)
@given(seeds)
def test_negative_hessians_count_as_zero(seed):
    rng = np.random.default_rng(seed)
    y, s, w = rng.normal(size=9), rng.normal(size=(9, 1)), np.ones(9)
    wavy = Custom(lambda y, s, w: (np.sin(s - y), np.cos(s - y)))
    g, h = wavy.derivatives(y, s, w)
    np.testing.assert_array_equal(h, np.cos(s[:, 0] - y).clip(0))
    np.testing.assert_array_equal(g[:, 0], np.sin(s[:, 0] - y))


def test_hessians_that_are_negative_everywhere_are_refused():
    X, y, weight = numbers(n=60)
    with pytest.raises(ValueError, match="objective returned a Hessian that is negative, or 0, in all rows"):
        fitted(lambda y, s, w: ((s - y) * w, -w), X, y, weight)
    some = fitted(lambda y, s, w: ((s - y) * w, np.where(np.arange(len(y)) % 2, w, -w)), X, y, weight)
    assert np.isfinite(some.predict(X)).all()
    zero = fitted(lambda y, s, w: ((s - y) * w, 0 * w), X, y, weight)
    assert np.isfinite(zero.predict(X)).all()


def test_a_stored_function_predicts_and_says_that_it_cannot_train(tmp_path):
    X, y, weight = numbers(n=60)
    model = fitted(squared, X, y, weight)
    model.save_model(tmp_path / "m.gbun")
    loaded = load_model(tmp_path / "m.gbun")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="pass the function"):
        loaded.ensemble.objective.derivatives(y, np.zeros((60, 1)), weight)
    longer = train({"objective": squared, "n_neurons": 8}, (X, y, weight), 3, init_model=loaded)
    assert longer.n_rounds == 8
