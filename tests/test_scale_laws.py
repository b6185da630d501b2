"""Laws of scale: y x 10^k gives the model x 10^k, and steps stay bounded where nothing bounds the best scores."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import gbun
from gbun.kernels.threads import ThreadPool
from gbun.lbfgs import LbfgsDescent

rng = np.random.default_rng(5)
X = rng.normal(size=(600, 6))
POSITIVE = np.exp(0.5 * X[:, 0] + 0.3 * np.sin(2 * X[:, 1]) + 0.2 * rng.normal(size=600))
SPARSE = sp.csr_array(np.where(np.abs(X) > 0.7, X, 0.0))
OBJECTIVES = ("squared_error", "huber", "quantile", "gamma", "tweedie", "poisson", "multi_squared_error")


def predict(objective, init, rows, power):
    """Predictions in units of 10^power, of a model whose targets are in that unit."""
    y = POSITIVE * 10.0**power
    y = np.stack([y, -2.0 * y], axis=1) if objective == "multi_squared_error" else y
    # The penalty is given: which rows are held out to choose it depends on the digits of y.
    params = {"objective": objective, "init": init, "linear_l2": 0.1, "n_neurons": 16, "n_jobs": 1}
    params = {name: value for name, value in params.items() if name != "linear_l2" or init == "linear"}
    return gbun.train(params, (rows, y), 6, task="regression").predict(rows) / 10.0**power


@pytest.mark.parametrize("rows", [X, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize("init", ["constant", "linear"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_targets_in_another_unit_give_the_model_in_that_unit(objective, init, rows):
    wanted = predict(objective, init, rows, 0)
    for power in (-20, -4, 3, 20):
        found = predict(objective, init, rows, power)
        if (objective, init) == ("quantile", "linear"):  # a kinked loss: the fit ends elsewhere in a flat valley
            losses = [np.abs(POSITIVE - values).mean() for values in (found, wanted)]
            assert losses[0] == pytest.approx(losses[1], rel=0.02)
        else:
            np.testing.assert_allclose(found, wanted, atol=1e-4 * wanted.std())


@pytest.mark.parametrize("power", [-300, 60])
def test_targets_beyond_float32_are_refused_or_learnt_by_the_linear_start(power):
    with pytest.raises(ValueError, match=r"linear start has no finite step: y, .* init='constant'|y has .* float32"):
        predict("squared_error", "linear", X, power)


def test_a_direction_that_is_not_finite_begins_anew():
    descent = LbfgsDescent(np.ones(4), free_intercept=True, threads=ThreadPool(1))
    descent.begin(1.0, 1e-6)
    theta, gradient = np.zeros((4, 1)), np.arange(1.0, 5.0)[:, None]
    first = descent.direction(gradient.copy(), theta)
    descent.take(0.5)
    descent.pairs.append((np.full((4, 1), np.inf, np.float32), np.ones((4, 1), np.float32), 1.0))
    found = descent.direction(0.5 * gradient, theta + 0.5 * first)
    assert np.isfinite(found).all()
    assert np.vdot(found, gradient) < 0.0
    assert not descent.pairs


@pytest.mark.parametrize("objective", ["logistic", "multi_logistic", "softmax"])
@pytest.mark.parametrize("shared", [True, False])
def test_steps_are_bounded_without_a_penalty_where_classes_can_be_separated(objective, shared):
    y = (X[:, 0] > 0).astype(int)
    y = {"logistic": y, "multi_logistic": np.stack([y, 1 - y], 1), "softmax": y + (X[:, 1] > 0)}[objective]
    params = {"objective": objective, "init": "constant", "n_neurons": 64, "reg_lambda": 0.0, "learning_rate": 1.0}
    params |= {} if objective == "logistic" else {"hessian": "shared" if shared else "per_class"}
    model = gbun.train(params, (X, y), 80, task="classification")
    assert max(np.abs(scores).max() for scores in model.staged_decision_function(X)) < 1e7  # without a bound: 1e14
    assert (model.predict(X) == y).mean() > 0.97
