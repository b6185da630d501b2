"""The linear start: its fit, and the invariance of models that have one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge

import gbun
from gbun.collectives import Solo
from gbun.data.buckets import Buckets
from gbun.data.features import Shard
from gbun.data.ingest import ingest
from gbun.kernels.threads import ThreadPool
from gbun.lbfgs import COARSE_BITS, round_coarsely
from gbun.linear import L2_PATH, LinearFit, LinearStartFitter
from gbun.metrics import get_metric
from gbun.objectives import Huber, Logistic, MultiLogistic, MultiSquaredError, Poisson, Softmax, SquaredError
from tests.data.test_scaling import Team, parts_of_rows
from tests.model_io.test_hostile import altered, forged, parts_of, refuse

LINEAR = {"init": "linear", "n_neurons": 8}


def data(task="regression", n=300, m=40, seed=0):
    """Counts, most of them 0, and a target to which a few of them add up."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.4, size=(n, m)).astype(np.float32)
    signal = X[:, :6] @ np.array([1.0, -1.5, 0.8, -0.6, 0.5, 0.7]) + 0.3 * rng.normal(size=n)
    several = np.column_stack([signal, X[:, 7] - 0.5 * signal])
    targets = {
        "regression": signal, "binary": signal > 0.2, "classes": np.digitize(signal, [-0.5, 0.6]), "outputs": several,
        "labels": (several > 0.3).astype(int), "counts": rng.poisson(np.exp(0.4 * signal)).astype(float),
        "positive": np.exp(0.4 * signal) * rng.gamma(2.0, size=n),
    }  # fmt: skip
    return csr_array(X), targets[task]


def shard(X, y, weight=None):
    return Shard(ingest(X)[0], y.astype(float), np.ones(len(y)) if weight is None else weight)


def make_fitter(objective, rows, buckets, collective):
    objective = objective.prepare(rows.y, rows.weight, collective)
    start, metric = objective.start(rows.y, rows.weight, collective), get_metric(objective.default_metric())
    return LinearStartFitter(buckets, objective, start, metric, collective, ThreadPool(1))


# The fit


def peer(objective, D, y, penalty):
    """scikit-learn's weights and intercept for the same problem."""
    if objective.name == "squared_error":
        model = Ridge(alpha=penalty, solver="cholesky").fit(D, y)
    elif objective.name == "poisson":
        model = PoissonRegressor(alpha=penalty / len(y), tol=1e-9, max_iter=5000).fit(D, y)
    else:
        model = LogisticRegression(C=1 / penalty, tol=1e-9, max_iter=5000).fit(D, y)
    return np.atleast_2d(model.coef_).T, model.intercept_


@pytest.mark.slow
@pytest.mark.parametrize("form", [np.asarray, csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("l2", [4.0, 0.1])
@pytest.mark.parametrize(
    ("objective", "task"),
    [(SquaredError(), "regression"), (Logistic(), "binary"), (Poisson(), "counts"), (Softmax(3), "classes")],
)
def test_the_penalised_loss_is_as_low_as_that_of_scikit_learn(objective, task, l2, form):
    X, y = data(task)
    D = X.toarray() - (X.mean(axis=0) if form is np.asarray else 0.0)  # dense columns are centred
    rows, buckets = shard(form(D), y), None if form is np.asarray else Buckets(D.shape[1])
    fit = LinearFit(rows, make_fitter(objective, rows, buckets, Solo()))
    constant, penalty = fit.scores.copy(), l2 * fit.descent.unit

    def penalised(weights, intercept):
        W = np.asarray(weights, dtype=float)
        return objective.loss(rows.y, D.astype(float) @ W + intercept).sum() + penalty / 2 * np.square(W).sum()

    wanted, intercept = peer(objective, D.astype(float), y, penalty)
    least = penalised(wanted, intercept)
    fit.fit(l2, tolerance=1e-6)
    start, linear = fit.result(l2)
    assert penalised(linear.weights, start) == pytest.approx(least, rel=1e-6)
    np.testing.assert_allclose(linear.weights, wanted, atol=1e-4 * np.abs(wanted).max())
    params = {**LINEAR, "objective": objective.name, "scale": "none", "linear_l2": l2}
    ensemble = gbun.train(params, (form(D), y), 0).ensemble  # stops at a fiftieth of the gradient
    assert least <= penalised(ensemble.linear.weights, ensemble.start.constant) * (1 + 1e-9) < 1.01 * least
    assert least < 0.98 * objective.loss(rows.y, constant).sum()


def custom_loss(y, scores, weight):
    return (scores - y) * weight, weight


OBJECTIVES = [
    ("squared_error", "regression"), ("huber", "regression"), ("quantile", "regression"), ("poisson", "counts"),
    ("gamma", "positive"), ("tweedie", "positive"), ("logistic", "binary"), ("softmax", "classes"),
    ("multi_squared_error", "outputs"), ("multi_logistic", "labels"), (custom_loss, "regression"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("hessian", ["shared", "per_class"])
@pytest.mark.parametrize(("objective", "task"), OBJECTIVES)
def test_every_objective_descends_and_further_with_a_smaller_penalty(objective, task, hessian):
    (X, y), losses = data(task), []
    for params in ({"init": "constant"}, {"linear_l2": 4.0}, {"linear_l2": 0.25}, {"linear_l2": 0.0}):
        model = gbun.train({**LINEAR, "objective": objective, "hessian": hessian, **params}, (X, y), 0)
        loss = SquaredError() if objective is custom_loss else model.ensemble.objective
        scores = model.decision_function(X).reshape(len(y), -1)
        losses.append(loss.loss(y.astype(float), scores).sum())
    assert losses[0] > losses[1] > losses[2] >= losses[3]


@pytest.mark.parametrize("buckets", [Buckets(40), Buckets(256, hashed=True)], ids=["columns", "hashed"])
@pytest.mark.parametrize(
    ("objective", "task"),
    [(SquaredError(), "regression"), (Huber(), "regression"), (Poisson(), "counts"), (Logistic(), "binary"),
     (Softmax(3), "classes"), (MultiSquaredError(), "outputs"), (MultiLogistic(), "labels")],
)  # fmt: skip
def test_any_division_among_workers_gives_the_same_weights(objective, task, buckets):
    X, y = data(task)
    whole = shard(X, y, np.random.default_rng(2).integers(0, 3, size=len(y)).astype(float))

    def work(rows, collective):
        part = whole.take(rows)
        fit = LinearFit(part, make_fitter(objective, part, buckets, collective))
        for l2 in (4.0, 1.0, 0.25):
            fit.fit(l2)
        return fit.theta

    wanted = work(np.arange(len(y)), Solo())
    for n_parts in (1, 2, 3, 7):
        team = Team(n_parts)
        found = team.run(work, parts_of_rows(len(y), n_parts))
        for theta in found:
            np.testing.assert_array_equal(theta, found[0])
        np.testing.assert_allclose(found[0], wanted, atol=1e-6 * np.abs(wanted).max())
        small = {shape for shape in team.shapes if np.prod(shape) <= wanted.shape[1] + 1 or shape == (2,)}
        # theta, its curvature, and, once, which buckets are used
        assert team.shapes - small == {wanted.shape, wanted.shape[:1], (buckets.n,)}
    assert len(wanted) - 1 == len(np.unique(buckets.place(whole.features.sparse.ids)[0]))


def test_workers_choose_the_penalty_together():
    X, y = data("binary")
    whole, judges = shard(X, y), np.arange(len(y)) % 3 == 0

    def work(rows, collective):
        fit, judge = whole.take(rows[~judges[rows]]), whole.take(rows[judges[rows]])
        start, linear, better = make_fitter(Logistic(), fit, Buckets(40), collective).choose([(fit, judge)])
        return better, linear.l2, np.append(linear.weights[:, 0], start)

    better, l2, theta = work(np.arange(len(y)), Solo())
    assert better
    assert l2 in L2_PATH[1:-1]
    for found in Team(3).run(work, parts_of_rows(len(y), 3)):
        assert (found[0], found[1]) == (better, l2)
        np.testing.assert_allclose(found[2], theta, atol=1e-6)


# The whole model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "scale"),
    [("regression", "none"), ("binary", "auto"), ("classes", "auto"), ("outputs", "none"), ("labels", "auto")],
)
def test_order_does_not_matter_and_weights_count_rows(task, scale):
    X, y = data(task)
    rng = np.random.default_rng(1)
    order, times = rng.permutation(len(y)), rng.integers(0, 4, size=len(y))
    repeated = rng.permutation(np.repeat(np.arange(len(y)), times))
    kind = "regression" if task in ("regression", "outputs") else "classification"

    def trained(*rows):
        return gbun.train({**LINEAR, "scale": scale}, rows, 3, task=kind).decision_function(X)

    wanted, weighted = trained(X, y), trained(X, y, times)
    np.testing.assert_allclose(trained(X[order], y[order]), wanted, atol=2e-6 * np.abs(wanted).max())
    np.testing.assert_allclose(trained(X[repeated], y[repeated]), weighted, atol=2e-6 * np.abs(weighted).max())
    assert np.abs(weighted - wanted).max() > 1e-3 * np.abs(wanted).max()


class Noisy(Solo):
    """One worker whose sums have random errors in their last bits."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def sum(self, values, *more, **options):
        return super().sum(values, *more, **options) * (1.0 + 1e-13 * self.rng.standard_normal(values.shape))


@pytest.mark.parametrize(
    ("objective", "task"),
    [(MultiSquaredError(), "outputs"), (Logistic(), "binary"), (Softmax(3), "classes"), (Poisson(), "counts")],
)
def test_last_bits_of_sums_change_nothing(objective, task):
    """L-BFGS would amplify them to a thousandth."""
    rows, buckets = shard(*data(task)), Buckets(40)
    exact = make_fitter(objective, rows, buckets, Solo()).fit(rows, 0.01)
    for seed in range(5):
        noisy = replace(make_fitter(objective, rows, buckets, Solo()), collective=Noisy(seed))
        start, linear = noisy.fit(rows, 0.01)
        np.testing.assert_array_equal(linear.weights, exact[1].weights)
        np.testing.assert_array_equal(start, exact[0])


@settings(deadline=None)
@given(st.floats(-(2.0**126), 2.0**126, width=32, allow_subnormal=False))
def test_coarse_numbers_are_near(x):
    rounded = float(round_coarsely(x))
    assert abs(rounded - x) <= abs(x) * 2.0**-COARSE_BITS
    assert float(round_coarsely(rounded)) == rounded
    assert float(round_coarsely(-x)) == -rounded


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 14, 72])
def test_last_bits_of_sums_do_not_choose_another_penalty(seed):
    """With these rows they did, on some processors, before sums were rounded for L-BFGS."""
    X, y = data("outputs", seed=seed)
    models = []
    for rows in (np.arange(len(y)), *(np.random.default_rng(100 * seed + t).permutation(len(y)) for t in range(3))):
        models.append(gbun.train({**LINEAR, "scale": "none"}, (X[rows], y[rows]), 0, task="regression"))
    for model in models[1:]:
        assert model.ensemble.linear.l2 == models[0].ensemble.linear.l2
        np.testing.assert_allclose(model.decision_function(X), models[0].decision_function(X), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_two_rounds_and_two_more_are_four_with_the_same_linear_part(tmp_path):
    X, y = data("classes")
    two, four = (gbun.train({**LINEAR, "objective": "softmax"}, (X, y), n) for n in (2, 4))
    two.save_model(tmp_path / "two.gbun")
    for first in (two, tmp_path / "two.gbun"):
        more = gbun.train({**LINEAR, "objective": "softmax"}, (X, y), 2, init_model=first)
        np.testing.assert_array_equal(more.ensemble.linear.weights, two.ensemble.linear.weights)
        np.testing.assert_array_equal(more.ensemble.start.constant, two.ensemble.start.constant)
        np.testing.assert_array_equal(more.decision_function(X), four.decision_function(X))
    with pytest.raises(ValueError, match="init='constant' differs from init_model's 'linear'; leave it out"):
        gbun.train({"init": "constant", "objective": "softmax"}, (X, y), 2, init_model=two)


def test_a_base_margin_takes_the_place_of_the_intercept():
    X, y = data()
    X = csr_array((X.data, X.indices, X.indptr), shape=(len(y), 80))  # forty columns more that no row has
    D, margin = X.toarray(), np.linspace(-2, 3, len(y))
    model = gbun.train({**LINEAR, "scale": "none", "linear_l2": 0.5}, (X, y, None, margin), 0)
    assert model.ensemble.start.constant == pytest.approx(y.mean())  # nothing was added to it
    unit = np.square(D).sum() / 40
    wanted = Ridge(alpha=0.5 * unit, fit_intercept=False, solver="cholesky").fit(D, y - margin).coef_
    np.testing.assert_allclose(model.ensemble.linear.weights[:, 0], wanted, atol=0.03 * np.abs(wanted).max())
    moved = model.decision_function(X, base_margin=margin) - model.decision_function(X)
    np.testing.assert_allclose(moved, margin - model.ensemble.start.constant)


def rows_by_kind(X):
    D = X.toarray()
    return {
        "csr": X,
        "dense": D,
        "tokens": [[f"w{j}" for j in np.repeat(np.arange(len(row)), row.astype(int))] for row in D],
        "dicts": [{f"w{j}": float(v) for j, v in enumerate(row) if v} for row in D],
        "frame": pd.DataFrame(D[:, :3]).rename(columns=str).assign(city=np.where(D[:, 3] > 0, "Rome", "Oslo")),
    }


@pytest.mark.parametrize("rounds", [0, 2])
@pytest.mark.parametrize("kind", ["csr", "dense", "tokens", "dicts", "frame"])
def test_a_start_alone_is_a_whole_learner_of_every_kind_of_rows_and_survives_a_file(kind, rounds, tmp_path):
    X, y = data("binary")
    X = rows_by_kind(X)[kind]
    model = gbun.GBUNClassifier(**LINEAR, n_estimators=rounds).fit(X, y)
    assert (model.predict(X) == y).mean() > max(y.mean(), 1 - y.mean()) + 0.05
    stages = list(model.staged_predict_proba(X))
    assert len(stages) == rounds + 1
    model.save_model(tmp_path / "m.gbun")
    again, linear = gbun.load_model(tmp_path / "m.gbun"), model.model_.ensemble.linear
    np.testing.assert_array_equal(again.predict_proba(X), stages[-1])
    np.testing.assert_array_equal(again.ensemble.linear.weights, linear.weights)
    assert (again.ensemble.linear.buckets, again.ensemble.linear.l2) == (linear.buckets, linear.l2)
    assert "a linear start and" in repr(again)


@pytest.mark.parametrize(("bits", "wanted"), [(None, Buckets(400)), (8, Buckets(256, hashed=True)), (9, Buckets(400))])
def test_bits_say_how_many_weights_there_are(bits, wanted):
    X, y = data(m=400)
    linear = gbun.train({**LINEAR, "linear_bits": bits}, (X, y), 0).ensemble.linear
    assert (linear.buckets, len(linear.weights)) == (wanted, wanted.n)
    named = gbun.train({**LINEAR, "linear_bits": bits}, (rows_by_kind(X)["dicts"], y), 0)
    assert named.ensemble.linear.buckets == Buckets(2 ** (bits or 9), hashed=True)


def test_auto_takes_the_linear_start_where_there_are_sparse_features_and_it_is_better():
    (X, y), (judge, right), (_, wrong) = data(), data(seed=1), data(seed=2)

    def starts_linear(init, X, *judge):
        params = {"n_neurons": 8, "early_stopping_rounds": 1, "init": init}
        return gbun.train(params, (X, y), 1, evals={"judge": judge}).ensemble.linear is not None

    assert starts_linear("auto", X, judge, right)
    assert not starts_linear("auto", X, judge, wrong)
    assert starts_linear("linear", X, judge, wrong)
    assert not starts_linear("auto", X.toarray(), judge, right)
    assert starts_linear("linear", X.toarray(), judge, right)
    assert not starts_linear("constant", X, judge, right)
    found = gbun.train({"n_neurons": 8}, (X, y), 1)  # rows held out choose, and all rows are fitted
    same = gbun.train({**LINEAR, "linear_l2": found.ensemble.linear.l2}, (X, y), 1)
    np.testing.assert_array_equal(found.decision_function(X), same.decision_function(X))


def test_a_budget_too_small_for_the_weights_says_what_needs_less():
    X = csr_array((np.ones(100), (np.arange(100), np.arange(100) * 10_000)), shape=(100, 2**20))
    params = {"n_neurons": 8, "linear_bits": 20, "memory_budget": "20MB", "scale": "none"}
    with pytest.raises(ValueError, match=r"memory_budget must be at least \d+ bytes .*init='constant' needs less"):
        gbun.train({**params, "init": "linear"}, (X, np.arange(100.0)), 1)
    gbun.train({**params, "init": "constant"}, (X, np.arange(100.0)), 1)
    assert gbun.training.plan({**params, "memory_budget": "1GB"}, (X, np.arange(100.0))).linear_bytes > 20e6


def test_files_whose_weights_do_not_fit_are_refused(tmp_path):
    model = gbun.train({**LINEAR, "objective": "softmax"}, data("classes", m=12), 1)
    header, tensors = parts_of(model.ensemble, model.description)
    for path, value, message in (
        ("linear.buckets", {"n": 1000, "hashed": True}, "hashed buckets must be a power of 2, .* got 1000"),
        ("linear.buckets", {"n": 2**25, "hashed": True}, r"hashed buckets must be .* 2\^8 to 2\^24, got 33554432"),
        ("linear.buckets", {"n": 256, "hashed": True}, r"linear.weights must be float32 of shape \(256, 3\)"),
        ("linear.buckets", {"n": 13, "hashed": False}, r"as many as the schema's \(12\), got 13"),
        ("linear.buckets", {"n": 0, "hashed": False}, "linear.buckets.n must be an integer from 1"),
        ("linear.buckets", None, r"linear.weights must be float32 of shape \(0, 3\)"),
        ("linear.l2", -1.0, "linear.l2 must be a number of at least 0, got -1"),
        ("linear", None, r"not expected \['linear.weights'\]"),
    ):
        refuse(tmp_path / "m", forged(altered(header, path.split("."), value), tensors), message)
    weights = tensors["linear.weights"]
    for bad, message in (
        (weights[:-1], r"linear.weights must be float32 of shape \(12, 3\), got float32 of \(11, 3\)"),
        (np.where(weights == weights.max(), np.float32(np.nan), weights), "linear.weights has NaN or infinite"),
        (weights.astype(np.float64), r"linear.weights must be float32 of shape \(12, 3\), got float64"),
        (np.ascontiguousarray(weights[:, :2]), r"linear.weights must be float32 of shape \(12, 3\)"),
    ):
        refuse(tmp_path / "m", forged(header, {**tensors, "linear.weights": bad}), message)
