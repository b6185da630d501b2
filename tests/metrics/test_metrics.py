"""Laws of all metrics, parity with scikit-learn, edge cases, and the registry."""

from __future__ import annotations

import functools
import itertools
import warnings

import numpy as np
import pytest
import sklearn.metrics as sk
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import huber

from gbun.collectives import Solo
from gbun.metrics import ALIASES, METRICS, FunctionMetric, MeanMetric, RankingMetric, get_metric

REGRESSION = ["rmse", "mse", "mae", "r2", "mape", "pinball:0.9", "huber:0.7"]
DEVIANCES = ["poisson_deviance", "gamma_deviance", "tweedie_deviance", "tweedie_deviance:2.5"]
COUNTED = ["log_loss", "brier", "error", "accuracy", "macro_precision", "macro_f1"]
RANKED = ["auc", "average_precision"]
SOLO = Solo()

SUMMED = [(m, t) for m in REGRESSION + DEVIANCES for t in ("number", "outputs")]
SUMMED += [(m, t) for m in COUNTED for t in ("binary", "classes", "labels")]
ALL = SUMMED + [(m, t) for m in RANKED for t in ("binary", "classes", "labels")]


def make_rows(task, n, seed, classes=4):
    """Return y, response and weight; values are coarse, so that ties and exact halves are frequent."""
    rng = np.random.default_rng(seed)
    columns = 1 if task in ("number", "binary") else classes
    if task in ("number", "outputs"):
        y, response = rng.gamma(2.0, size=(2, n, columns)) + 0.01
        y = y[:, 0] if task == "number" else y
    else:
        response = rng.integers(1, 8, size=(n, columns)) / 8
        if task == "classes":
            response /= response.sum(axis=1, keepdims=True)
        codes = {"binary": (2, n), "classes": (classes, n), "labels": (2, (n, columns))}[task]
        y = rng.integers(codes[0], size=codes[1]).astype(float)
    return y, response, rng.integers(0, 4, size=n).astype(float)


def evaluate(name, y, response, weight, collective=SOLO):
    return get_metric(name).evaluate(y, response, weight, collective)


def same(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


# Laws


@pytest.mark.parametrize(("name", "task"), ALL)
@settings(max_examples=12, deadline=None)
@given(n=st.integers(0, 25), seed=st.integers(0, 2**32))
def test_weight_k_counts_as_the_row_k_times(name, task, n, seed):
    y, response, weight = make_rows(task, n, seed)
    times = weight.astype(int)
    repeated = np.repeat(y, times, axis=0), np.repeat(response, times, axis=0), np.ones(times.sum())
    same(evaluate(name, y, response, weight), evaluate(name, *repeated))


@pytest.mark.parametrize(("name", "task"), ALL)
@settings(max_examples=8, deadline=None)
@given(n=st.integers(0, 25), seed=st.integers(0, 2**32), scale=st.floats(1e-3, 1e3))
def test_neither_order_of_rows_nor_scale_of_weights_matters(name, task, n, seed, scale):
    y, response, weight = make_rows(task, n, seed)
    order = np.random.default_rng(seed).permutation(n)
    same(evaluate(name, y, response, weight), evaluate(name, y[order], response[order], scale * weight[order]))


@pytest.mark.parametrize(("name", "task"), ALL)
def test_rows_of_weight_zero_may_hold_anything(name, task):
    y, response, weight = make_rows(task, 20, seed=1)
    bad = np.full_like(y[:2], np.nan), np.full_like(response[:2], np.inf), np.zeros(2)
    both = [np.concatenate([a, b]) for a, b in zip((y, response, weight), bad, strict=True)]
    assert evaluate(name, *both) == evaluate(name, y, response, weight)


@pytest.mark.parametrize(("name", "task"), ALL)
def test_without_weight_the_value_is_nan(name, task):
    y, response, weight = make_rows(task, 5, seed=0)
    assert np.isnan(evaluate(name, y, response, 0 * weight))
    assert np.isnan(evaluate(name, y[:0], response[:0], weight[:0]))


@pytest.mark.parametrize(("name", "task"), ALL)
def test_diverged_model_is_noticed(name, task):
    y, response, weight = make_rows(task, 20, seed=1)
    response[np.flatnonzero(weight)[0], 0] = np.nan
    assert np.isnan(evaluate(name, y, response, weight))


@settings(max_examples=40, deadline=None)
@given(n=st.integers(2, 20), seed=st.integers(0, 2**32))
def test_auc_is_a_probability_over_pairs(n, seed):
    y, response, weight = make_rows("binary", n, seed)
    gap = response[y == 1] - response[y == 0].T
    pairs = np.outer(weight[y == 1], weight[y == 0])
    wins = (pairs * (np.sign(gap) + 1) / 2).sum()
    same(evaluate("auc", y, response, weight), wins / pairs.sum() if pairs.sum() else np.nan)


@settings(max_examples=20, deadline=None)
@given(n=st.integers(1, 20), seed=st.integers(0, 2**32))
def test_auc_and_average_precision_depend_on_the_order_only(n, seed):
    y, response, weight = make_rows("binary", n, seed)
    for name in RANKED:
        same(evaluate(name, y, response, weight), evaluate(name, y, np.exp(5 * response), weight))


# Parity with scikit-learn

per_label = lambda f: lambda y, r, w: np.mean([f(y[:, c], r[:, c], w) for c in range(y.shape[1])])  # noqa: E731
tweedie = lambda power: functools.partial(sk.mean_tweedie_deviance, power=power)  # noqa: E731


def mean_huber(y, response, sample_weight):
    return np.average(huber(0.7, y - response).reshape(len(y), -1).mean(axis=1), weights=sample_weight)


PARITY_REGRESSION = {
    "rmse": sk.root_mean_squared_error, "mse": sk.mean_squared_error, "mae": sk.mean_absolute_error,
    "r2": sk.r2_score, "mape": sk.mean_absolute_percentage_error, "pinball": sk.mean_pinball_loss,
    "pinball:0.9": functools.partial(sk.mean_pinball_loss, alpha=0.9), "huber:0.7": mean_huber,
}  # fmt: skip
PARITY_DEVIANCE = {
    "poisson_deviance": sk.mean_poisson_deviance, "gamma_deviance": sk.mean_gamma_deviance,
    "tweedie_deviance": tweedie(1.5), "tweedie_deviance:1": sk.mean_poisson_deviance,
    "tweedie_deviance:1.2": tweedie(1.2), "tweedie_deviance:2": sk.mean_gamma_deviance,
    "tweedie_deviance:3": tweedie(3),
}  # fmt: skip
ZERO_ALLOWED = ("poisson_deviance", "tweedie_deviance", "tweedie_deviance:1", "tweedie_deviance:1.2")
PARITY_PREDICTED = {
    "accuracy": sk.accuracy_score,
    "error": sk.zero_one_loss,
    "macro_precision": functools.partial(sk.precision_score, average="macro", zero_division=0),
    "macro_f1": functools.partial(sk.f1_score, average="macro", zero_division=0),
}


def make_weighted_rows(task, seed, n=60):
    y, response, _ = make_rows(task, n, seed)
    return y, response, np.random.default_rng(seed).uniform(0.1, 3, size=n)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("name", "task"),
    [*itertools.product(PARITY_REGRESSION, ["number", "outputs"]), *((name, "number") for name in PARITY_DEVIANCE)],
)
def test_numbers_agree_with_sklearn_and_scipy(name, task, seed):
    y, response, weight = make_weighted_rows(task, seed)
    y.flat[: 7 * (name in ZERO_ALLOWED) + (name == "mape")] = 0.0
    expected = {**PARITY_REGRESSION, **PARITY_DEVIANCE}[name]
    guess = response[:, 0] if task == "number" else response
    same(evaluate(name, y, response, weight), expected(y, guess, sample_weight=weight))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", PARITY_PREDICTED)
@pytest.mark.parametrize("task", ["binary", "classes", "never predicted", "never present"])
def test_predicted_classes_agree_with_sklearn(name, task, seed):
    y, response, weight = make_weighted_rows("binary" if task == "binary" else "classes", seed)
    if task == "never predicted":
        response[:, 2] = 0
    if task == "never present":
        y[y == 2] = 1
        response[:, 3] = 0
    guess = response[:, 0] > 0.5 if task == "binary" else response.argmax(axis=1)
    expected = PARITY_PREDICTED[name](y, guess.astype(float), sample_weight=weight)
    same(evaluate(name, y, response, weight), expected)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", PARITY_PREDICTED)
def test_predicted_labels_agree_with_sklearn(name, seed):
    y, response, weight = make_weighted_rows("labels", seed)
    score = PARITY_PREDICTED[name]
    if name.startswith("macro"):
        expected = score(y, response > 0.5, sample_weight=weight)
    else:  # element by element; sklearn counts a row as right only if all of its labels are
        expected = per_label(lambda y, r, w: score(y, r > 0.5, sample_weight=w))(y, response, weight)
    same(evaluate(name, y, response, weight), expected)


def log_loss(y, response, weight):
    return sk.log_loss(y, response, sample_weight=weight, labels=[0, 1] if response.ndim == 1 else None)


def brier(y, response, weight):
    if response.ndim == 1:
        return sk.brier_score_loss(y, response, sample_weight=weight)
    return np.average(((response - np.eye(4)[y.astype(int)]) ** 2).sum(axis=1), weights=weight)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("name", "loss"), [("log_loss", log_loss), ("brier", brier)])
@pytest.mark.parametrize("task", ["binary", "labels", "classes"])
@pytest.mark.parametrize("certain", [False, True])
def test_losses_of_probabilities_agree_with_sklearn(name, loss, task, certain, seed):
    """Also where a probability is 0 or 1, which the log loss clips."""
    y, response, weight = make_weighted_rows(task, seed)
    if certain:
        response = np.eye(4)[response.argmax(axis=1)] if task == "classes" else np.round(response)
    expected = per_label(loss) if task == "labels" else loss
    guess = response[:, 0] if task == "binary" else response
    same(evaluate(name, y, response, weight), expected(y, guess, weight))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("task", ["binary", "classes", "labels"])
def test_rankings_agree_with_sklearn(task, seed):
    y, response, weight = make_weighted_rows(task, seed)
    scores = response[:, 0] if task == "binary" else response
    auc = sk.roc_auc_score(y, scores, sample_weight=weight, multi_class="ovr")
    same(evaluate("auc", y, response, weight), auc)
    precision = sk.average_precision_score(y, scores, sample_weight=weight)
    same(evaluate("average_precision", y, response, weight), precision)


# Edge cases


def test_half_is_class_0_and_the_first_class_wins_ties():
    assert evaluate("accuracy", np.array([0.0]), np.array([[0.5]]), np.ones(1)) == 1
    assert evaluate("accuracy", np.array([0.0]), np.array([[0.4, 0.4, 0.2]]), np.ones(1)) == 1


def test_rankings_of_one_class_only():
    response, weight = np.array([[0.2], [0.7]]), np.ones(2)
    for y in (np.zeros(2), np.ones(2)):
        assert np.isnan(evaluate("auc", y, response, weight))
    assert np.isnan(evaluate("average_precision", np.zeros(2), response, weight))
    assert evaluate("average_precision", np.ones(2), response, weight) == 1


def test_an_absent_class_or_label_is_left_out_of_macro_averages():
    y, response, weight = make_weighted_rows("labels", 0)
    y[:, 3] = 0
    response[:, 3] = 0.1
    for name in ("macro_precision", "macro_f1", *RANKED):
        same(evaluate(name, y, response, weight), evaluate(name, y[:, :3], response[:, :3], weight))
    y, response, weight = make_weighted_rows("classes", 0)
    y[y == 3] = 0
    by_class = [evaluate("auc", (y == c).astype(float), response[:, [c]], weight) for c in range(3)]
    same(evaluate("auc", y, response, weight), np.mean(by_class))


def test_infinite_scores_still_rank():
    y, response = np.array([0.0, 1.0, 0.0, 1.0]), np.array([[-np.inf], [np.inf], [np.inf], [0.5]])
    assert evaluate("auc", y, response, np.ones(4)) == 0.625


def test_r2_far_from_zero_and_of_constants():
    y, response, weight = make_weighted_rows("number", 0)
    far = evaluate("r2", y + 2.0**30, response + 2.0**30, weight)
    np.testing.assert_allclose(far, evaluate("r2", y, response, weight), rtol=1e-6)
    flat = np.full(60, 0.1)
    assert evaluate("r2", flat, flat[:, None], weight) == 1
    assert evaluate("r2", flat, response, weight) == 0


@pytest.mark.parametrize("name", DEVIANCES)
def test_deviances_name_what_they_cannot_take(name):
    one, bad = np.ones(1), -np.ones(1)
    with pytest.raises(ValueError, match=r"y: .*deviance.* needs values"):
        evaluate(name, bad, one[:, None], one)
    with pytest.raises(ValueError, match=r"response: .*deviance.* needs values > 0"):
        evaluate(name, one, bad[:, None], one)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert evaluate(name, one, np.zeros((1, 1)), one) > 100


def test_gamma_deviance_refuses_zero():
    with pytest.raises(ValueError, match="needs values > 0, the least that came is 0"):
        evaluate("gamma_deviance", np.zeros(1), np.ones((1, 1)), np.ones(1))


@pytest.mark.parametrize(
    ("y", "response", "weight", "message"),
    [
        (np.ones(2), np.ones(2), np.ones(2), r"response: came with shape \(2,\)"),
        (np.ones(3), np.ones((2, 1)), np.ones(2), r"y: came with shape \(3,\)"),
        (np.ones(2), np.ones((2, 1)), np.ones((2, 1)), r"weight: came with shape \(2, 1\)"),
        (np.ones(2), np.ones((2, 3)), np.ones(2), r"y: came with 1 column\(s\), expected 3"),
    ],
)
def test_shapes_that_do_not_match_are_named(y, response, weight, message):
    with pytest.raises(ValueError, match=message):
        evaluate("mae", y, response, weight)


@pytest.mark.parametrize("code", [-1.0, 0.5, 3.0, np.nan])
@pytest.mark.parametrize("name", COUNTED + RANKED)
def test_invalid_class_codes_are_named(name, code):
    with pytest.raises(ValueError, match=r"is not a class code.* 0\.\.2"):
        evaluate(name, np.array([0.0, code]), np.full((2, 3), 1 / 3), np.ones(2))


# Registry


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_is_found_by_its_name(name):
    metric = get_metric(name)
    assert metric.name == name
    assert get_metric(metric) is metric
    assert type(get_metric(METRICS[name])) is METRICS[name]
    assert isinstance(metric, (MeanMetric, RankingMetric))


def test_aliases_are_of_metrics_and_hide_none():
    assert set(ALIASES.values()) <= set(METRICS)
    assert not set(ALIASES) & set(METRICS)


@pytest.mark.parametrize("name", ["pinball:0.9", "tweedie_deviance:1.2", "huber:0.1"])
def test_parameter_is_part_of_the_name(name):
    assert get_metric(get_metric(name).name).name == name


def test_metrics_that_are_better_when_higher():
    higher = {name for name in METRICS if get_metric(name).higher_is_better}
    assert higher == {"r2", "accuracy", "macro_precision", "macro_f1", "auc", "average_precision"}


@pytest.mark.parametrize(
    ("given_name", "message"),
    [
        ("rsme", "unknown name 'rsme'.*Did you mean 'rmse'.*average_precision"),
        ("zzzzzzzzz", "unknown name 'zzzzzzzzz'. Names are rmse, mse"),
        ("", "unknown name ''"),
        ("rmse:2", "'rmse' takes none; write 'rmse'"),
        ("pinball:", "expected a number, the quantile of pinball"),
        ("pinball:high", "expected a number, the quantile of pinball"),
        ("pinball:1.5", "quantile: came as 1.5"),
        ("pinball:nan", "quantile: came as nan"),
        ("huber:0", "delta: came as 0.0"),
        ("tweedie:0.5", "power: came as 0.5.*use mse"),
        (3, "metric: came as 3, expected a name"),
        (("name", len), "metric: came as .*expected a name"),
        (("", len, True), "name: came as ''"),
        (("name", 3, True), "function: came as 3"),
    ],
)
def test_invalid_metrics_are_named(given_name, message):
    with pytest.raises(ValueError, match=message):
        get_metric(given_name)


def test_function_is_a_metric_with_its_name():
    def bias(y, response, weight):
        return np.average(response - y, weights=weight)  # with one output both are vectors

    (y, response, weight), metric = make_rows("number", 20, seed=0), get_metric(bias)
    assert isinstance(metric, FunctionMetric)
    assert (metric.name, metric.higher_is_better) == ("bias", False)
    same(metric.evaluate(y, response, weight, SOLO), bias(y, response[:, 0], weight))
    gain = get_metric(("gain", bias, True))
    assert (gain.name, gain.higher_is_better) == ("gain", True)
    assert get_metric(functools.partial(bias)).name == "partial"
    assert np.isnan(metric.evaluate(y, response, 0 * weight, SOLO))


@pytest.mark.parametrize("wrong", [None, "much", np.ones(3)])
def test_function_must_return_a_number(wrong):
    with pytest.raises(ValueError, match=r"'strange' returned .* expected one number"):
        evaluate(("strange", lambda *_: wrong, False), np.ones(3), np.ones((3, 1)), np.ones(3))
