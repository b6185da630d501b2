"""Metrics as sums: however rows are divided among workers, the value is that of all rows, or within a known bound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbun.collectives import Solo
from gbun.collectives.threads import in_threads
from gbun.metrics import FunctionMetric, RowMetric, SumMetric, get_metric
from gbun.metrics.histogram import LEAST_BINS, MOST, MOST_OF_ONE, Bins, layout, signs
from test_metrics import ALL, METRICS, RANKED, SUMMED, evaluate, make_rows, same

SOLO = Solo()
ROUNDING = 1e-11


def shares_of(rows, owner, size):
    return [tuple(a[owner == rank] for a in rows) for rank in range(size)]


def owners(rows, how, size, seed=0):
    """Which worker has which row."""
    y, n = rows[0], len(rows[0])
    if how == "by class":
        return (y if y.ndim == 1 else y[:, 0]).astype(int) % size
    if how == "one row each":
        return np.minimum(np.arange(n), size - 1)
    if how == "all at one":
        return np.full(n, size - 1)
    return np.random.default_rng(seed).integers(size, size=n)


def together(name, shares, n_outputs, rounds=1):
    """What each worker gets when it knows every total: value, bound, form."""

    def work(collective):
        y, response, weight = shares[collective.rank]
        form = get_metric(name).among(y, weight, n_outputs, collective)
        for _ in range(rounds):
            total = collective.sum(form.sums(y, response, weight))
            found = form.value(total), form.error_bound(total), form
            form.adapt(collective.broadcast(form.hint(total)))
        return found

    return in_threads(len(shares), work)


def on_one(name, rows, rounds=1):
    """Value and bound by the form for several workers, of rows that one has; AUC and average precision only."""
    y, response, weight = rows
    form = get_metric(name).histograms(y, weight, response.shape[1], SOLO)
    for _ in range(rounds):
        total = form.sums(*rows)
        found = form.value(total), form.error_bound(total)
        form.adapt(form.hint(total))
    return found


def agree(value, bound, exact):
    """Within the bound, which is 0 for sums that are exact."""
    if np.isnan(exact):
        assert np.isnan(value)
    else:
        assert abs(value - exact) <= bound + ROUNDING * max(1, abs(exact))


# However rows are divided


def test_all_metrics_of_the_registry_are_here():
    assert {name.partition(":")[0] for name, _ in ALL} == set(METRICS)


@pytest.mark.parametrize(("name", "task"), ALL)
@pytest.mark.parametrize("how", ["at random", "by class", "one row each", "all at one"])
def test_shares_add_up_to_the_value_of_all_rows(name, task, how):
    rows = make_rows(task, 40, seed=5)
    found = together(name, shares_of(rows, owners(rows, how, 3), 3), rows[1].shape[1])
    (value, bound, form), metric = found[0], get_metric(name)
    assert isinstance(form, SumMetric)
    assert (form.name, form.higher_is_better) == (metric.name, metric.higher_is_better)
    assert {v for v, _, _ in found} == {value}
    assert {f.length for _, _, f in found} == {form.length}
    assert (bound == 0) == ((name, task) in SUMMED)
    agree(value, bound, evaluate(name, *rows))


@pytest.mark.parametrize(("name", "task"), ALL)
@settings(max_examples=6, deadline=None)
@given(n=st.integers(0, 25), seed=st.integers(0, 2**32), size=st.integers(2, 4))
def test_any_division_gives_the_value_of_all_rows(name, task, n, seed, size):
    rows = make_rows(task, n, seed)
    found = together(name, shares_of(rows, owners(rows, "at random", size, seed), size), rows[1].shape[1])
    for value, bound, _ in found:
        agree(value, bound, evaluate(name, *rows))


@pytest.mark.parametrize(("name", "task"), ALL)
def test_sums_of_no_rows_are_zeros_and_those_of_weight_zero_change_nothing(name, task):
    y, response, weight = make_rows(task, 20, seed=2)
    for form in (
        get_metric(name).among(y, weight, response.shape[1], SOLO),
        together(name, [(y, response, weight), (y[:0], response[:0], weight[:0])], response.shape[1])[1][2],
    ):
        sums = form.sums(y, response, weight)
        assert sums.dtype == np.float64
        assert sums.shape == (form.length,)
        worse = np.full_like(y[:2], np.nan), np.full_like(response[:2], np.nan), np.zeros(2)
        spoilt = [np.concatenate([a, b]) for a, b in zip((y, response, weight), worse, strict=True)]
        np.testing.assert_array_equal(form.sums(*spoilt), sums)
    np.testing.assert_array_equal(form.sums(*worse), np.zeros(form.length))
    np.testing.assert_array_equal(form.sums(y[:0], response[:0], weight[:0]), np.zeros(form.length))
    assert np.isnan(form.value(np.zeros(form.length)))


@pytest.mark.parametrize(("name", "task"), ALL)
def test_weight_two_is_the_row_twice(name, task):
    y, response, weight = make_rows(task, 30, seed=4)
    times = weight.astype(int)
    twice = np.repeat(y, times, axis=0), np.repeat(response, times, axis=0), np.ones(times.sum())
    found = [
        together(name, shares_of(rows, owners(rows, "at random", 2), 2), response.shape[1])[0]
        for rows in ((y, response, weight), twice)
    ]
    if name == "average_precision":  # which is told from single rows, and these are not the same
        for value, bound, _ in found:
            agree(value, bound, evaluate(name, y, response, weight))
    else:
        same(found[0][:2], found[1][:2])


@pytest.mark.parametrize(("name", "task"), ALL)
def test_a_model_that_diverged_on_one_worker_is_seen_on_all(name, task):
    rows = make_rows(task, 30, seed=1)
    shares = shares_of(rows, owners(rows, "at random", 3), 3)
    shares[1][1][np.flatnonzero(shares[1][2])[0], -1] = np.nan
    for value, _, _ in together(name, shares, rows[1].shape[1], rounds=2):
        assert np.isnan(value)


@pytest.mark.parametrize(("name", "task"), ALL)
def test_evaluate_takes_shares(name, task):
    rows = make_rows(task, 40, seed=3)
    shares = shares_of(rows, owners(rows, "at random", 3), 3)
    values = in_threads(3, lambda c: get_metric(name).evaluate(*shares[c.rank], c))
    assert len(set(values)) == 1
    if name in RANKED:
        agree(values[0], on_one(name, rows)[1], evaluate(name, *rows))
    else:
        same(values[0], evaluate(name, *rows))


@pytest.mark.parametrize("name", RANKED)
def test_an_evaluation_of_its_own_looks_closer(name):
    rng = np.random.default_rng(0)
    y = (rng.random(20_000) < 0.4).astype(float)
    rows = y, 0.01 * logistic(0.1 * (y + rng.normal(size=len(y))))[:, None], rng.uniform(0.5, 2, size=len(y))
    shares = shares_of(rows, owners(rows, "at random", 3), 3)
    values = in_threads(3, lambda c: get_metric(name).evaluate(*shares[c.rank], c))
    np.testing.assert_allclose(values, [evaluate(name, *rows)] * 3, rtol=0, atol=1e-5 if name == "auc" else 3e-5)


def test_r2_has_one_centre_for_all_workers():
    y, response, weight = make_rows("outputs", 60, seed=0)
    far = y + 2.0**30, response + 2.0**30, weight
    value, _, form = together("r2", shares_of(far, np.arange(60) % 3, 3), 4)[0]
    np.testing.assert_allclose(value, evaluate("r2", y, response, weight), rtol=1e-6)
    np.testing.assert_allclose(form.centre, np.average(far[0], axis=0, weights=weight))


# Functions of users


def test_a_mean_over_rows_is_not_asked_about_no_rows():
    def loss(y, response):
        assert len(y)
        return abs(y - response[:, 0])

    y, response, weight = make_rows("number", 12, seed=0)
    metric = RowMetric("distance", loss)
    shares = shares_of((y, response, weight), np.zeros(12), 2)
    assert in_threads(2, lambda c: metric.evaluate(*shares[c.rank], c)) == [evaluate("mae", y, response, weight)] * 2


def test_a_function_of_all_rows_is_for_one_worker():
    metric = FunctionMetric("worst", lambda y, response, weight: abs(y - response).max())
    y, response, weight = make_rows("number", 12, seed=0)
    form = metric.among(y, weight, 1, SOLO)
    assert form.value(form.sums(y, response, weight)) == metric.evaluate(y, response, weight, SOLO)
    with pytest.raises(ValueError, match=r"'worst' needs all rows in one place.*2 workers.*RowMetric\(name, f\)"):
        in_threads(2, lambda c: metric.among(y, weight, 1, c))


@pytest.mark.parametrize("name", RANKED)
def test_one_worker_is_exact(name):
    rows = make_rows("labels", 30, seed=0)
    form = get_metric(name).among(rows[0], rows[2], 4, SOLO)
    total = form.sums(*rows)
    assert (form.value(total), form.error_bound(total)) == (evaluate(name, *rows), 0)


# Order from histograms


def logistic(x):
    return 1 / (1 + np.exp(-x))


def target_scores(case, rng):
    """y, and the scores that a model comes to in the end."""
    n = 200_000 if case == "rare" else 20_000
    y = (rng.random(n) < (0.005 if case == "rare" else 0.4)).astype(float)
    apart, spread = {"apart": (6, 1), "hardly": (0.2, 0.5), "rare": (2, 1), "sure": (28, 7)}[case]
    return y, apart * (y - (1 if case == "rare" else 0.5)) - 5 * (case == "rare") + spread * rng.normal(size=n)


def boosted(y, goal, rate, rounds, rng):
    """The response after each round of a model that starts from a constant and comes nearer to its goal."""
    scores = np.full(len(y), np.log(y.mean() / (1 - y.mean())))
    for t in range(rounds):
        yield logistic(scores)[:, None]
        scores = scores + rate * (goal - scores + 0.3 * 0.9**t * rng.normal(size=len(y)))


def followed(name, y, responses, size=2):
    """The errors and bounds of a training in which only the root sees totals, and a hint is all that it tells."""
    owner = np.arange(len(y)) % size

    def work(collective):
        mine = owner == collective.rank
        weight = np.ones(mine.sum())
        form, found = get_metric(name).among(y[mine], weight, responses[0].shape[1], collective), []
        for response in responses:
            total = collective.sum(form.sums(y[mine], response[mine], weight), root=0)
            hint = np.zeros(form.hint_length)
            if collective.rank == 0:
                hint = form.hint(total)
                found.append((form.value(total), form.error_bound(total)))
            form.adapt(collective.broadcast(hint))
        return found

    exact = [evaluate(name, y, response, np.ones(len(y))) for response in responses]
    values, bounds = np.array(in_threads(size, work)[0]).T
    assert (abs(values - exact) <= bounds + ROUNDING).all()
    return abs(values - exact), bounds


@pytest.mark.parametrize(
    ("case", "rate", "auc", "precision"),
    [
        ("apart", 0.1, 1e-6, 1e-6),
        ("hardly", 0.1, 1e-5, 3e-5),
        ("rare", 0.1, 1e-5, 2e-4),  # of 1000 positives, each that is one rank off near the top counts 1e-4
        ("rare", 1e-3, 1e-5, 2e-4),  # all scores within 0.01 of each other
        ("sure", 0.1, 1e-6, 1e-6),  # probabilities from 1e-9 to 1 - 1e-9
    ],
)
def test_order_is_told_from_histograms(case, rate, auc, precision):
    rng = np.random.default_rng(3)
    y, goal = target_scores(case, rng)
    responses = list(boosted(y, goal, rate, 8, rng))
    if rate < 0.1:
        assert np.ptp(responses[2]) < 0.01
    for name, tolerance in (("auc", auc), ("average_precision", precision)):
        errors, bounds = followed(name, y, responses)
        assert errors[0] < ROUNDING  # a constant
        assert (errors[3:] < tolerance).all(), errors
        assert (errors[1:3] < 30 * tolerance).all(), errors  # nobody knew where scores would go
        assert (bounds[3:] < 0.01).all()
        assert errors[3:].mean() < bounds[3:].mean() / 10


@pytest.mark.parametrize("task", ["classes", "labels"])
def test_order_of_classes_and_labels_is_told_from_histograms(task):
    rng = np.random.default_rng(0)
    n, classes = 10_000, 6
    y = rng.integers(classes, size=n).astype(float)
    truth = np.eye(classes)[y.astype(int)]
    goal = 2 * truth + rng.normal(size=truth.shape)
    scores = [(1 - 0.9**t) * goal for t in range(6)]
    exps = [np.exp(s) for s in scores]
    responses = [e / e.sum(axis=1, keepdims=True) if task == "classes" else logistic(np.log(e)) for e in exps]
    for name, tolerance in (("auc", 1e-5), ("average_precision", 1e-4)):
        errors, _ = followed(name, y if task == "classes" else truth, responses, size=3)
        assert (errors[3:] < tolerance).all(), errors


def test_equal_scores_are_taken_for_equal():
    # As of categorical columns: 60 kinds of rows. Read as if in some order, average precision would be 5e-3 off.
    rng = np.random.default_rng(1)
    kind = rng.integers(60, size=30_000)
    y = (rng.random(len(kind)) < 0.1 + 0.5 * kind / 60).astype(float)
    responses = [(0.1 + 0.5 * kind / 60 * (1 - 0.9**t))[:, None] for t in range(12)]
    assert (followed("auc", y, responses)[0][6:] < 1e-5).all()
    assert (followed("average_precision", y, responses)[0][6:] < 1e-3).all()


@pytest.mark.parametrize("name", RANKED)
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-12, 1e6])
@settings(max_examples=25, deadline=None)
@given(n=st.integers(2, 40), seed=st.integers(0, 2**32), rounds=st.integers(1, 3))
def test_no_order_of_rows_breaks_the_bound(name, scale, n, seed, rounds):
    rng = np.random.default_rng(seed)
    y, weight = rng.integers(2, size=n).astype(float), rng.choice([0.0, 1.0, 2.0, 100.0], size=n)
    against = rng.choice([-1.0, 0.0, 1.0])  # all positives last, none, all first
    response = (0.5 + scale * (against * y + rng.normal(size=n).round(1)))[:, None]
    value, bound = on_one(name, (y, response, weight), rounds)
    agree(value, bound, evaluate(name, y, response, weight))


@pytest.mark.parametrize(("name", "best", "worst"), [("auc", 1.0, 0.0), ("average_precision", 1.0, 0.3069)])
def test_the_bound_is_reached(name, best, worst):
    # Everybody is in one bin, and nothing is known of the order there: all are beyond the last edge.
    y, weight = np.repeat([0.0, 1.0], 1000), np.ones(2000)
    errors = []
    for sign, expected in ((1, best), (-1, worst)):
        response = (2.0**70 * (3 + sign * (y - 0.5) + 1e-6 * np.arange(2000)))[:, None]
        value, bound = on_one(name, (y, response, weight))
        exact = evaluate(name, y, response, weight)
        assert abs(exact - expected) < 1e-3
        agree(value, bound, exact)
        errors.append(abs(value - exact))
    assert max(errors) > bound - 1e-3


@pytest.mark.parametrize("name", RANKED)
def test_any_score_will_do(name):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=5000).astype(float)
    score = y + rng.normal(size=5000)
    weight = rng.uniform(0.5, 2, size=5000)
    for response in (score, 1e12 * score, -np.exp(5 * score), 1e-15 * score):
        value, bound = on_one(name, (y, response[:, None], weight), rounds=4)
        assert bound < 0.01
        np.testing.assert_allclose(value, evaluate(name, y, response[:, None], weight), atol=3e-4)
    score[:4] = [np.inf, -np.inf, np.inf, -np.inf]
    value, bound = on_one(name, (y, score[:, None], weight), rounds=4)
    assert bound < 0.01
    agree(value, bound, evaluate(name, y, score[:, None], weight))


@pytest.mark.parametrize("name", RANKED)
def test_a_hint_may_travel_narrow_and_a_total_without_sense_moves_nothing(name):
    y, response, weight = make_rows("labels", 50, seed=0)
    form = get_metric(name).histograms(y, weight, 4, SOLO)
    total = form.sums(y, response, weight)
    form.adapt(form.hint(total).astype(np.float32))
    assert (np.diff(form.edges, axis=1) >= 0).all()
    edges = form.edges
    form.adapt(form.knots[:, ::-1].ravel())
    np.testing.assert_array_equal(form.edges, edges)
    agree(form.value(total), form.error_bound(total), evaluate(name, y, response, weight))
    for empty in (np.full(form.length, np.nan), np.zeros(form.length)):
        np.testing.assert_array_equal(form.hint(empty), form.knots.ravel())
        assert np.isnan(form.value(empty))


@pytest.mark.parametrize("n_outputs", [1, 2, 7, 30, 60, 102, 103, 1000])
def test_messages_are_short(n_outputs):
    form = get_metric("auc").histograms(np.zeros(0), np.zeros(0), n_outputs, SOLO)
    n_bins = form.edges.shape[1] + 1
    assert form.length == n_outputs * len(Bins._fields) * n_bins
    assert form.length <= (MOST_OF_ONE if n_outputs == 1 else MOST) or n_bins == LEAST_BINS
    assert n_bins >= LEAST_BINS
    assert form.length > 0.9 * min(MOST, n_outputs * MOST_OF_ONE)
    assert form.hint_length == n_outputs * layout(n_outputs)[0] <= form.length / 5


def test_signs_are_by_lot_and_the_same_for_equal_scores():
    for scores in (np.linspace(0, 1, 4096), np.arange(4096.0), np.float32(1) / np.arange(1, 4097, dtype=np.float32)):
        drawn = signs(scores)
        assert set(drawn) == {-1.0, 1.0}
        assert abs(drawn.sum()) < 4 * 64
        assert abs(drawn[1:] @ drawn[:-1]) < 4 * 64
        np.testing.assert_array_equal(signs(scores[::-1])[::-1], drawn)
    assert signs(np.array([0.0])) == signs(np.array([-0.0]))
