"""Metrics from sums: for any division of the rows, the value is that of all rows, or within a known bound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gbun.collectives import Solo
from gbun.collectives.threads import in_threads
from gbun.metrics import FunctionMetric, RowMetric, SumMetric, get_metric, histogram
from gbun.metrics.histogram import MIN_BINS, Bins, HistogramMetric, choose_layout, hash_signs
from tests.metrics.test_metrics import ALL, METRICS, RANKED, SUMMED, evaluate, make_rows, same

SOLO = Solo()
ROUNDING = 1e-11


def divide(rows, how="at random", size=3, seed=0):
    """Return the share of each worker."""
    y, n = rows[0], len(rows[0])
    owner = {
        "by class": lambda: (y if y.ndim == 1 else y[:, 0]).astype(int) % size,
        "one row each": lambda: np.minimum(np.arange(n), size - 1),
        "all on one": lambda: np.full(n, size - 1),
        "at random": lambda: np.random.default_rng(seed).integers(size, size=n),
    }[how]()
    return [tuple(a[owner == rank] for a in rows) for rank in range(size)]


def evaluate_on_workers(name, shares, rounds=1):
    """Return value, bound and metric of each worker if all of them get the totals."""

    def work(collective):
        y, response, weight = shares[collective.rank]
        metric = get_metric(name).make_sum_metric(y, weight, response.shape[1], collective)
        return evaluate_rounds(metric, shares[collective.rank], rounds, collective)

    return in_threads(len(shares), work)


def evaluate_rounds(metric, rows, rounds, collective=SOLO):
    for _ in range(rounds):
        total = collective.sum(metric.sums(*rows))
        found = metric.value(total), metric.error_bound(total), metric
        metric.apply_hint(collective.broadcast(metric.make_hint(total)))
    return found


def evaluate_histograms(name, rows, rounds=1):
    """Return value and bound of AUC or average precision from histograms of a single worker's rows."""
    y, response, weight = rows
    return evaluate_rounds(get_metric(name).make_histograms(y, weight, response.shape[1], SOLO), rows, rounds)[:2]


def assert_within(value, bound, exact):
    """Check a value by its bound, which is 0 for exact sums."""
    if np.isnan(exact):
        assert np.isnan(value)
    else:
        assert abs(value - exact) <= bound + ROUNDING * max(1, abs(exact))


# Any division of the rows


def test_all_metrics_of_the_registry_are_tested():
    assert {name.partition(":")[0] for name, _ in ALL} == set(METRICS)


@pytest.mark.parametrize(("name", "task"), ALL)
@pytest.mark.parametrize("how", ["at random", "by class", "one row each", "all on one"])
@settings(max_examples=4, deadline=None)
@given(n=st.integers(0, 40), seed=st.integers(0, 2**32), size=st.integers(2, 4))
@example(n=40, seed=5, size=3)
def test_any_division_gives_the_value_of_all_rows(name, task, how, n, seed, size):
    rows = make_rows(task, n, seed)
    found, metric = evaluate_on_workers(name, divide(rows, how, size, seed)), get_metric(name)
    assert len({(value if value == value else None, m.length) for value, _, m in found}) == 1
    for value, bound, sum_metric in found:
        assert isinstance(sum_metric, SumMetric)
        assert isinstance(sum_metric, HistogramMetric) == (name in RANKED)
        assert (sum_metric.name, sum_metric.higher_is_better) == (metric.name, metric.higher_is_better)
        assert (bound == 0) or (name, task) not in SUMMED
        assert_within(value, bound, evaluate(name, *rows))


@pytest.mark.parametrize(("name", "task"), ALL)
def test_sums_of_no_rows_are_zero_and_rows_of_weight_zero_change_nothing(name, task):
    rows = y, response, weight = make_rows(task, 20, seed=2)
    empty = y[:0], response[:0], weight[:0]
    bad = np.full_like(y[:2], np.nan), np.full_like(response[:2], np.nan), np.zeros(2)
    for metric in (
        get_metric(name).make_sum_metric(y, weight, response.shape[1], SOLO),
        evaluate_on_workers(name, [rows, empty])[1][2],
    ):
        sums = metric.sums(*rows)
        assert sums.dtype == np.float64
        assert sums.shape == (metric.length,)
        both = [np.concatenate([a, b]) for a, b in zip(rows, bad, strict=True)]
        np.testing.assert_array_equal(metric.sums(*both), sums)
    np.testing.assert_array_equal(metric.sums(*bad), np.zeros(metric.length))
    np.testing.assert_array_equal(metric.sums(*empty), np.zeros(metric.length))
    assert np.isnan(metric.value(np.zeros(metric.length)))


@pytest.mark.parametrize("task", ["binary", "classes", "labels"])
def test_weight_two_counts_as_the_row_twice_in_histograms(task):
    """Sums are those of one worker; the estimate of average precision depends on the weights of single rows."""
    y, response, weight = make_rows(task, 30, seed=4)
    times = weight.astype(int)
    repeated = np.repeat(y, times, axis=0), np.repeat(response, times, axis=0), np.ones(times.sum())
    found = [evaluate_on_workers("auc", divide(rows, size=2))[0] for rows in ((y, response, weight), repeated)]
    same(found[0][:2], found[1][:2])


@pytest.mark.parametrize(("name", "task"), ALL)
def test_model_that_diverged_on_one_worker_is_noticed_on_all(name, task):
    shares = divide(make_rows(task, 30, seed=1))
    shares[1][1][np.flatnonzero(shares[1][2])[0], -1] = np.nan
    for value, _, _ in evaluate_on_workers(name, shares, rounds=2):
        assert np.isnan(value)


@pytest.mark.parametrize(("name", "task"), ALL)
@pytest.mark.parametrize("how", ["at random", "all on one"])
def test_evaluate_takes_shares(name, task, how):
    rows = make_rows(task, 40, seed=3)
    shares = divide(rows, how)
    values = in_threads(3, lambda c: get_metric(name).evaluate(*shares[c.rank], c))
    assert len(set(values)) == 1
    if name in RANKED:
        assert_within(values[0], evaluate_histograms(name, rows)[1], evaluate(name, *rows))
    else:
        same(values[0], evaluate(name, *rows))


@pytest.mark.parametrize("name", RANKED)
def test_evaluate_refines_histograms(name):
    rng = np.random.default_rng(0)
    y = (rng.random(20_000) < 0.4).astype(float)
    rows = y, 0.01 * logistic(0.1 * (y + rng.normal(size=len(y))))[:, None], rng.uniform(0.5, 2, size=len(y))
    shares = divide(rows)
    values = in_threads(3, lambda c: get_metric(name).evaluate(*shares[c.rank], c))
    np.testing.assert_allclose(values, [evaluate(name, *rows)] * 3, rtol=0, atol=1e-5 if name == "auc" else 3e-5)


def test_r2_has_one_centre_for_all_workers():
    y, response, weight = make_rows("outputs", 60, seed=0)
    far = y + 2.0**30, response + 2.0**30, weight
    value, _, metric = evaluate_on_workers("r2", divide(far))[0]
    np.testing.assert_allclose(value, evaluate("r2", y, response, weight), rtol=1e-6)
    np.testing.assert_allclose(metric.centre, np.average(far[0], axis=0, weights=weight))


# Functions of users


def test_function_of_a_row_is_not_called_without_rows():
    def loss(y, response):
        assert len(y)
        return abs(y - response[:, 0])

    rows = make_rows("number", 12, seed=0)
    shares, metric = divide(rows, "all on one"), RowMetric("distance", loss)
    assert in_threads(3, lambda c: metric.evaluate(*shares[c.rank], c)) == [evaluate("mae", *rows)] * 3


def test_function_of_all_rows_is_for_one_worker():
    metric = FunctionMetric("worst", lambda y, response, weight: abs(y - response).max())
    y, _, weight = rows = make_rows("number", 12, seed=0)
    sum_metric = metric.make_sum_metric(y, weight, 1, SOLO)
    assert sum_metric.value(sum_metric.sums(*rows)) == metric.evaluate(*rows, SOLO)
    message = r"'worst' needs all rows in one place.*2 workers.*log_loss.*RowMetric\(name, f\)"
    with pytest.raises(ValueError, match=message):
        in_threads(2, lambda c: metric.make_sum_metric(y, weight, 1, c))


@pytest.mark.parametrize("name", RANKED)
def test_single_worker_is_exact(name):
    y, _, weight = rows = make_rows("labels", 30, seed=0)
    metric = get_metric(name).make_sum_metric(y, weight, 4, SOLO)
    total = metric.sums(*rows)
    assert (metric.value(total), metric.error_bound(total)) == (evaluate(name, *rows), 0)


# Order from histograms


def logistic(x):
    return 1 / (1 + np.exp(-x))


def target_scores(case, rng):
    """Return y, and the scores to which a model converges."""
    n = 200_000 if case == "rare" else 20_000
    y = (rng.random(n) < (0.005 if case == "rare" else 0.4)).astype(float)
    apart, spread = {"apart": (6, 1), "hardly": (0.2, 0.5), "rare": (2, 1), "sure": (28, 7)}[case]
    return y, apart * (y - (1 if case == "rare" else 0.5)) - 5 * (case == "rare") + spread * rng.normal(size=n)


def boost(y, goal, rate, rounds, rng):
    """Yield the response after each round of a model that starts from a constant and converges to its goal."""
    scores = np.full(len(y), np.log(y.mean() / (1 - y.mean())))
    for t in range(rounds):
        yield logistic(scores)[:, None]
        scores = scores + rate * (goal - scores + 0.3 * 0.9**t * rng.normal(size=len(y)))


def follow(name, y, responses, size=2):
    """Return the errors and bounds of a training in which only the root gets totals, and hints are all it sends."""
    owner = np.arange(len(y)) % size

    def work(collective):
        local = owner == collective.rank
        weight, found = np.ones(local.sum()), []
        metric = get_metric(name).make_sum_metric(y[local], weight, responses[0].shape[1], collective)
        for response in responses:
            total = collective.sum(metric.sums(y[local], response[local], weight), root=0)
            hint = np.zeros(metric.hint_length)
            if collective.rank == 0:
                hint = metric.make_hint(total)
                found.append((metric.value(total), metric.error_bound(total)))
            metric.apply_hint(collective.broadcast(hint))
        return found

    exact = [evaluate(name, y, response, np.ones(len(y))) for response in responses]
    values, bounds = np.array(in_threads(size, work)[0]).T
    assert (abs(values - exact) <= bounds + ROUNDING).all()
    return abs(values - exact), bounds


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "rate", "auc", "precision"),
    [
        ("apart", 0.1, 1e-6, 1e-6),
        ("hardly", 0.1, 1e-5, 3e-5),
        ("rare", 0.1, 1e-5, 2e-4),  # one of 1000 positives that is one rank off near the top counts 1e-4
        ("rare", 1e-3, 1e-5, 2e-4),  # all scores within 0.01 of each other
        ("sure", 0.1, 1e-6, 1e-6),  # probabilities from 1e-9 to 1 - 1e-9
    ],
)
def test_histograms_follow_a_training(case, rate, auc, precision):
    rng = np.random.default_rng(3)
    y, goal = target_scores(case, rng)
    responses = list(boost(y, goal, rate, 8, rng))
    if rate < 0.1:
        assert np.ptp(responses[2]) < 0.01
    for name, tolerance in (("auc", auc), ("average_precision", precision)):
        errors, bounds = follow(name, y, responses)
        assert errors[0] < ROUNDING  # a constant
        assert (errors[3:] < tolerance).all(), errors
        assert (errors[1:3] < 30 * tolerance).all(), errors  # it was unknown where scores would go
        assert (bounds[3:] < 0.01).all()
        assert errors[3:].mean() < bounds[3:].mean() / 10


@pytest.mark.parametrize("task", ["classes", "labels"])
def test_histograms_of_classes_and_labels_follow_a_training(task):
    rng = np.random.default_rng(0)
    n, classes = 10_000, 6
    y = rng.integers(classes, size=n).astype(float)
    truth = np.eye(classes)[y.astype(int)]
    goal = 2 * truth + rng.normal(size=truth.shape)
    scores = [(1 - 0.9**t) * goal for t in range(6)]
    exps = [np.exp(s) for s in scores]
    responses = [e / e.sum(axis=1, keepdims=True) if task == "classes" else logistic(np.log(e)) for e in exps]
    for name, tolerance in (("auc", 1e-5), ("average_precision", 1e-4)):
        errors, _ = follow(name, y if task == "classes" else truth, responses, size=3)
        assert (errors[3:] < tolerance).all(), errors


def test_ties_are_recognised():
    # As with categorical columns: 60 distinct scores. Without ties, average precision would be wrong by 5e-3.
    rng = np.random.default_rng(1)
    kind = rng.integers(60, size=30_000)
    y = (rng.random(len(kind)) < 0.1 + 0.5 * kind / 60).astype(float)
    responses = [(0.1 + 0.5 * kind / 60 * (1 - 0.9**t))[:, None] for t in range(12)]
    assert (follow("auc", y, responses)[0][6:] < 1e-5).all()
    assert (follow("average_precision", y, responses)[0][6:] < 1e-3).all()


@pytest.mark.parametrize("name", RANKED)
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-12, 1e6])
@settings(max_examples=25, deadline=None)
@given(n=st.integers(2, 40), seed=st.integers(0, 2**32), rounds=st.integers(1, 3))
def test_bound_holds_for_any_order_of_rows(name, scale, n, seed, rounds):
    rng = np.random.default_rng(seed)
    y, weight = rng.integers(2, size=n).astype(float), rng.choice([0.0, 1.0, 2.0, 100.0], size=n)
    against = rng.choice([-1.0, 0.0, 1.0])  # all positives last, none, all first
    response = (0.5 + scale * (against * y + rng.normal(size=n).round(1)))[:, None]
    value, bound = evaluate_histograms(name, (y, response, weight), rounds)
    assert_within(value, bound, evaluate(name, y, response, weight))


@pytest.mark.parametrize(("name", "best", "worst"), [("auc", 1.0, 0.0), ("average_precision", 1.0, 0.3069)])
def test_bound_is_tight(name, best, worst):
    # All rows are in one bin, beyond the last edge, where nothing is known about their order.
    y, weight = np.repeat([0.0, 1.0], 1000), np.ones(2000)
    errors = []
    for sign, expected in ((1, best), (-1, worst)):
        response = (2.0**70 * (3 + sign * (y - 0.5) + 1e-6 * np.arange(2000)))[:, None]
        value, bound = evaluate_histograms(name, (y, response, weight))
        exact = evaluate(name, y, response, weight)
        assert abs(exact - expected) < 1e-3
        assert_within(value, bound, exact)
        errors.append(abs(value - exact))
    assert max(errors) > bound - 1e-3


@pytest.mark.parametrize("name", RANKED)
def test_any_range_of_scores(name):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=5000).astype(float)
    score = y + rng.normal(size=5000)
    weight = rng.uniform(0.5, 2, size=5000)
    for response in (score, 1e12 * score, -np.exp(5 * score), 1e-15 * score):
        value, bound = evaluate_histograms(name, (y, response[:, None], weight), rounds=4)
        assert bound < 0.01
        np.testing.assert_allclose(value, evaluate(name, y, response[:, None], weight), atol=3e-4)
    score[:4] = [np.inf, -np.inf, np.inf, -np.inf]
    value, bound = evaluate_histograms(name, (y, score[:, None], weight), rounds=4)
    assert bound < 0.01
    assert_within(value, bound, evaluate(name, y, score[:, None], weight))


@pytest.mark.parametrize("name", RANKED)
def test_hint_may_be_sent_as_float32_and_totals_without_meaning_change_nothing(name):
    y, response, weight = make_rows("labels", 50, seed=0)
    metric = get_metric(name).make_histograms(y, weight, 4, SOLO)
    total = metric.sums(y, response, weight)
    metric.apply_hint(metric.make_hint(total).astype(np.float32))
    assert (np.diff(metric.edges, axis=1) >= 0).all()
    edges = metric.edges
    metric.apply_hint(metric.knots[:, ::-1].ravel())
    np.testing.assert_array_equal(metric.edges, edges)
    assert_within(metric.value(total), metric.error_bound(total), evaluate(name, y, response, weight))
    for empty in (np.full(metric.length, np.nan), np.zeros(metric.length)):
        np.testing.assert_array_equal(metric.make_hint(empty), metric.knots.ravel())
        assert np.isnan(metric.value(empty))


@pytest.mark.parametrize("n_outputs", [1, 2, 7, 30, 60, 102, 103, 1000])
def test_messages_are_small(n_outputs):
    metric = get_metric("auc").make_histograms(np.zeros(0), np.zeros(0), n_outputs, SOLO)
    n_bins = metric.edges.shape[1] + 1
    assert metric.length == n_outputs * len(Bins._fields) * n_bins
    most = min(histogram.MAX_NUMBERS, n_outputs * histogram.MAX_NUMBERS_PER_TASK)
    assert metric.length <= most or n_bins == MIN_BINS
    assert n_bins >= MIN_BINS
    assert metric.length > 0.9 * most
    assert metric.hint_length == n_outputs * choose_layout(n_outputs)[0] <= metric.length / 5


def test_signs_look_random_and_are_the_same_for_equal_scores():
    for scores in (np.linspace(0, 1, 4096), np.arange(4096.0), np.float32(1) / np.arange(1, 4097, dtype=np.float32)):
        signs = hash_signs(scores)
        assert set(signs) == {-1.0, 1.0}
        assert abs(signs.sum()) < 4 * 64
        assert abs(signs[1:] @ signs[:-1]) < 4 * 64
        np.testing.assert_array_equal(hash_signs(scores[::-1])[::-1], signs)
    assert hash_signs(np.array([0.0])) == hash_signs(np.array([-0.0]))
