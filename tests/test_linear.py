"""The linear start: where its weights are kept, its sums, its fit, and that a model with it keeps every law."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge

import gbun
from gbun.collectives import Solo
from gbun.data.buckets import BUCKET_SEED, Buckets, buckets_for, distinct
from gbun.data.features import Entries, Features, Shard
from gbun.data.ingest import ingest
from gbun.kernels.linear import LinearRows
from gbun.kernels.threads import Threads, threads
from gbun.linear import BITS, PATH, Fitting, LinearFit, coarse
from gbun.metrics import get_metric
from gbun.objectives import Huber, Logistic, MultiLogistic, MultiSquaredError, Poisson, Softmax, SquaredError
from test_model_io_hostile import altered, forged, parts_of, refuse
from test_scaling import Team, parts_of_rows

LINEAR = {"init": "linear", "n_neurons": 8}


def data(task="regression", n=300, m=40, seed=0):
    """Counts, most of them 0, and a target in which a few of them add up."""
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


def fitting_of(objective, rows, buckets, collective):
    objective = objective.prepared(rows.y, rows.weight, collective)
    start, metric = objective.start(rows.y, rows.weight, collective), get_metric(objective.default_metric())
    return Fitting(buckets, objective, start, metric, collective, Threads(1))


# Buckets


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20), st.integers(8, 24))
def test_hashed_places_are_the_upper_bits_of_xxhash_and_signs_its_lowest(ids, bits):
    places, signs = Buckets(2**bits, hashed=True).place(np.array(ids, dtype=np.uint64))
    hashes = [xxhash.xxh32_intdigest(i.to_bytes(8, "little"), seed=int(BUCKET_SEED)) for i in ids]
    assert places.tolist() == [h >> (32 - bits) for h in hashes]
    assert signs.tolist() == [-1.0 if h & 1 else 1.0 for h in hashes]


def test_places_are_frozen():
    """Model files depend on them: these numbers must never change."""
    ids = np.array([0, 1, 7, 2**31, 2**32, 2**62, 2**63 - 1])
    places, signs = Buckets(2**16, hashed=True).place(ids)
    assert places.tolist() == [38899, 30138, 25228, 6678, 38579, 36228, 64742]
    assert signs.tolist() == [-1, 1, 1, 1, -1, 1, 1]


@pytest.mark.parametrize("ids", [np.arange(50_000), np.arange(50_000) << 40], ids=["low", "high"])
def test_places_are_even_and_signs_balanced(ids):
    places, signs = Buckets(256, hashed=True).place(ids)
    counts = np.bincount(places, minlength=256)
    assert len(counts) == 256
    assert np.square(counts - counts.mean()).sum() / counts.mean() < 256 + 5 * np.sqrt(2 * 256)  # chi^2
    assert abs(signs.mean()) < 5 / np.sqrt(len(ids))
    assert abs(np.mean(signs * np.where(places % 2, 1.0, -1.0))) < 5 / np.sqrt(len(ids))  # of each other


CHOICES = [  # features seen, columns, scores, bits asked for; buckets, and whether they are hashed
    ((5, 2**16, 1, None), 2**16, False),
    ((5, 2**16 + 1, 1, None), 256, True),
    ((20_000, 70_000, 1, None), 70_000, False),  # no more than four columns for each feature seen
    ((20_000, 100_000, 1, None), 2**15, True),
    ((20_000, 70_000, 100, None), 2**15, True),  # seven million numbers would be too many
    ((20_000, None, 1000, None), 2**12, True),  # 2^22 numbers, no more
    ((0, None, 1, None), 256, True),
    ((5, 1000, 1, 8), 256, True),
    ((5, 256, 1, 8), 256, False),
]


@pytest.mark.parametrize(("given_", "n", "hashed"), CHOICES)
def test_columns_stay_as_they_are_while_they_are_few(given_, n, hashed):
    seen, columns, scores, bits = given_
    buckets = buckets_for(np.arange(seen), columns, scores, Solo(), bits)
    assert buckets == Buckets(n, hashed)
    places, signs = buckets.place(np.arange(5))
    assert (signs is None, places.tolist() == [0, 1, 2, 3, 4]) == (not hashed, not hashed)


@settings(max_examples=15, deadline=None)
@given(st.integers(2000, 60_000), st.integers(1, 5), st.integers(0, 2**40))
def test_distinct_features_are_counted_within_five_percent_by_one_or_several(n, times, shift):
    ids = np.tile((np.arange(n) << 20) + shift, times)
    assert abs(distinct(ids, Solo()) / n - 1) < 0.05
    found = Team(3).run(distinct, [ids[:0], ids[: 2 * n // 3], ids[n // 3 :]])
    assert found[0] == found[1] == found[2] == pytest.approx(n, rel=0.05)


# Sums


def rows_of(form, n):
    """Rows of a form, some without entries; their buckets; and the same as a matrix phi, and as one of squares."""
    rng = np.random.default_rng(0)
    D = rng.normal(size=(n, 3 if form in ("dense", "both") else 0)).astype(np.float32)
    if form == "dense":
        return Features(n, D), None, D.astype(float), D.astype(float) ** 2
    lengths = rng.integers(0, 6, size=n) * (np.arange(n) % 4 > 0)
    ids = rng.integers(0, 9, size=lengths.sum()) * (2**55 if form == "hashed" else 1)
    E = Entries(np.append(0, np.cumsum(lengths)), ids, rng.normal(size=len(ids)).astype(np.float32))
    buckets = Buckets(4, hashed=True) if form == "hashed" else Buckets(9)  # nine features share four buckets
    (places, signs), phi, squares = buckets.place(ids), np.zeros((n, buckets.n)), np.zeros((n, buckets.n))
    values = E.values.astype(float) * (1.0 if signs is None else signs)
    np.add.at(phi, (E.row_of_entry, places), values)
    np.add.at(squares, (E.row_of_entry, places), values**2)
    D64, both = D.astype(float), D if form == "both" else None
    return Features(n, both, E), buckets, np.hstack([D64, phi]), np.hstack([D64**2, squares])


@pytest.mark.usefixtures("handed_over")
@pytest.mark.parametrize("C", [1, 3])
@pytest.mark.parametrize("n", [0, 1, 50, 9000])  # the last in three pieces
@pytest.mark.parametrize("form", ["dense", "sparse", "both", "hashed"])
def test_sums_are_products_with_a_matrix_for_any_threads_and_rows_alone(form, n, C):
    (features, buckets, phi, squares), rng = rows_of(form, n), np.random.default_rng(1)
    shapes = ((phi.shape[1], C), (n, C), n)
    weights, g, h = (rng.normal(size=shape).astype(np.float32).astype(float) for shape in shapes)
    found = []
    for n_jobs in (1, 2, 4):
        with threads(n_jobs) as pool:
            rows = LinearRows(features, buckets, pool)
            found.append((rows.scores(weights), rows.gradient(g), rows.curvature(h)))
    for one, *others, wanted in zip(*found, (phi @ weights, phi.T @ g, h @ squares), strict=True):
        np.testing.assert_allclose(one, wanted, atol=1e-5 if wanted.shape == (n, C) else 1e-9)  # scores in float32
        for other in others:
            np.testing.assert_array_equal(other, one)
    for i in np.unique(np.array([0, 1, 5, 4095, 4096, 8999]).clip(max=n - 1))[: 6 * n]:
        alone = LinearRows(features.take(np.array([i])), buckets, Threads(1)).scores(weights)
        np.testing.assert_array_equal(alone[0], found[0][0][i])


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
    fit = LinearFit(rows, fitting_of(objective, rows, buckets, Solo()))
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
    asked = {**LINEAR, "objective": objective.name, "scale": "none", "linear_l2": l2}
    whole = gbun.train(asked, (form(D), y), 0).ensemble  # stops at a hundredth of the gradient
    assert least <= penalised(whole.linear.weights, whole.start) * (1 + 1e-9) < 1.01 * least
    assert least < 0.98 * objective.loss(rows.y, constant).sum()


def own_loss(y, scores, weight):
    return (scores - y) * weight, weight


OBJECTIVES = [
    ("squared_error", "regression"), ("huber", "regression"), ("quantile", "regression"), ("poisson", "counts"),
    ("gamma", "positive"), ("tweedie", "positive"), ("logistic", "binary"), ("softmax", "classes"),
    ("multi_squared_error", "outputs"), ("multi_logistic", "labels"), (own_loss, "regression"),
]  # fmt: skip


@pytest.mark.parametrize("hessian", ["shared", "per_class"])
@pytest.mark.parametrize(("objective", "task"), OBJECTIVES)
def test_every_objective_descends_and_further_with_a_smaller_penalty(objective, task, hessian):
    (X, y), losses = data(task), []
    for given_ in ({"init": "constant"}, {"linear_l2": 4.0}, {"linear_l2": 0.25}, {"linear_l2": 0.0}):
        model = gbun.train({**LINEAR, "objective": objective, "hessian": hessian, **given_}, (X, y), 0)
        loss = SquaredError() if objective is own_loss else model.ensemble.objective
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
        fit = LinearFit(part, fitting_of(objective, part, buckets, collective))
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
        assert team.shapes - small == {wanted.shape, wanted.shape[:1]}  # theta, and its curvature


def test_workers_choose_the_penalty_together():
    X, y = data("binary")
    whole, judges = shard(X, y), np.arange(len(y)) % 3 == 0

    def work(rows, collective):
        fit, judge = whole.take(rows[~judges[rows]]), whole.take(rows[judges[rows]])
        start, linear, better = fitting_of(Logistic(), fit, Buckets(40), collective).choose([(fit, judge)])
        return better, linear.l2, np.append(linear.weights[:, 0], start)

    better, l2, theta = work(np.arange(len(y)), Solo())
    assert better
    assert l2 in PATH[1:-1]
    for found in Team(3).run(work, parts_of_rows(len(y), 3)):
        assert (found[0], found[1]) == (better, l2)
        np.testing.assert_allclose(found[2], theta, atol=1e-6)


# The whole model


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
    """One worker whose sums are off in their last bits, otherwise each time."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def sum(self, values, *more, **options):
        return super().sum(values, *more, **options) * (1.0 + 1e-13 * self.rng.standard_normal(values.shape))


@pytest.mark.parametrize(
    ("objective", "task"),
    [
        (MultiSquaredError(), "outputs"),
        (Logistic(), "binary"),
        (Softmax(n_classes=3), "classes"),
        (Poisson(), "counts"),
    ],
)
def test_last_bits_of_sums_change_nothing(objective, task):
    """L-BFGS makes thousandths out of them where it sees them."""
    rows, buckets = shard(*data(task)), Buckets(40)
    exact = fitting_of(objective, rows, buckets, Solo()).fit(rows, 0.01)
    for seed in range(5):
        noisy = replace(fitting_of(objective, rows, buckets, Solo()), collective=Noisy(seed))
        start, linear = noisy.fit(rows, 0.01)
        np.testing.assert_array_equal(linear.weights, exact[1].weights)
        np.testing.assert_array_equal(start, exact[0])


@settings(deadline=None)
@given(st.floats(-(2.0**126), 2.0**126, width=32, allow_subnormal=False))
def test_coarse_numbers_are_near(x):
    rounded = float(coarse(x))
    assert abs(rounded - x) <= abs(x) * 2.0**-BITS
    assert float(coarse(rounded)) == rounded
    assert float(coarse(-x)) == -rounded


@pytest.mark.parametrize("seed", [0, 14, 72])
def test_last_bits_of_sums_do_not_choose_another_penalty(seed):
    """With these rows they did, on some processors, before L-BFGS was shown sums of a few bits only."""
    X, y = data("outputs", seed=seed)
    models = []
    for rows in (np.arange(len(y)), *(np.random.default_rng(100 * seed + t).permutation(len(y)) for t in range(3))):
        models.append(gbun.train({**LINEAR, "scale": "none"}, (X[rows], y[rows]), 0, task="regression"))
    for model in models[1:]:
        assert model.ensemble.linear.l2 == models[0].ensemble.linear.l2
        np.testing.assert_allclose(model.decision_function(X), models[0].decision_function(X), rtol=1e-12, atol=1e-12)


def test_two_rounds_and_two_more_are_four_with_the_same_linear_part(tmp_path):
    X, y = data("classes")
    two, four = (gbun.train({**LINEAR, "objective": "softmax"}, (X, y), n) for n in (2, 4))
    two.save_model(tmp_path / "two.gbun")
    for first in (two, tmp_path / "two.gbun"):
        more = gbun.train({**LINEAR, "objective": "softmax"}, (X, y), 2, init_model=first)
        np.testing.assert_array_equal(more.ensemble.linear.weights, two.ensemble.linear.weights)
        np.testing.assert_array_equal(more.ensemble.start, two.ensemble.start)
        np.testing.assert_array_equal(more.decision_function(X), four.decision_function(X))
    with pytest.raises(ValueError, match="init='constant' differs from init_model's 'linear'; leave it out"):
        gbun.train({"init": "constant", "objective": "softmax"}, (X, y), 2, init_model=two)


def test_a_base_margin_takes_the_place_of_the_intercept():
    X, y = data()
    X = csr_array((X.data, X.indices, X.indptr), shape=(len(y), 80))  # forty columns more that no row has
    D, margin = X.toarray(), np.linspace(-2, 3, len(y))
    model = gbun.train({**LINEAR, "scale": "none", "linear_l2": 0.5}, (X, y, None, margin), 0)
    assert model.ensemble.start == pytest.approx(y.mean())  # nothing was added to it
    unit = np.square(D).sum() / 40
    wanted = Ridge(alpha=0.5 * unit, fit_intercept=False, solver="cholesky").fit(D, y - margin).coef_
    np.testing.assert_allclose(model.ensemble.linear.weights[:, 0], wanted, atol=0.03 * np.abs(wanted).max())
    moved = model.decision_function(X, base_margin=margin) - model.decision_function(X)
    np.testing.assert_allclose(moved, margin - model.ensemble.start)


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
        asked = {"n_neurons": 8, "early_stopping_rounds": 1, "init": init}
        return gbun.train(asked, (X, y), 1, evals={"judge": judge}).ensemble.linear is not None

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
    given_ = {"n_neurons": 8, "linear_bits": 20, "memory_budget": "50MB", "scale": "none"}
    with pytest.raises(ValueError, match=r"memory_budget must be at least \d+ bytes .*init='constant' needs less"):
        gbun.train({**given_, "init": "linear"}, (X, np.arange(100.0)), 1)
    gbun.train({**given_, "init": "constant"}, (X, np.arange(100.0)), 1)
    assert gbun.training.plan({**given_, "memory_budget": "1GB"}, (X, np.arange(100.0))).before > 50e6


def test_files_whose_weights_do_not_fit_are_refused(tmp_path):
    model = gbun.train({**LINEAR, "objective": "softmax"}, data("classes", m=12), 1)
    header, tensors = parts_of(model.ensemble, model.description)
    for path, value, message in (
        ("linear.buckets", {"n": 1000, "hashed": True}, "hashed buckets must be a power of 2 in number, got 1000"),
        ("linear.buckets", {"n": 2**25, "hashed": True}, r"hashed buckets must be 2\^8 to 2\^24, got 33554432"),
        ("linear.buckets", {"n": 256, "hashed": True}, "must have 256 rows, one for each dense column and bucket"),
        ("linear.buckets", {"n": 13, "hashed": False}, r"as many as the schema's \(12\), got 13"),
        ("linear.buckets", {"n": 0, "hashed": False}, "linear.buckets.n must be an integer from 1"),
        ("linear.buckets", None, "linear.weights must have 0 rows"),
        ("linear.l2", -1.0, "linear.l2 must be a number of at least 0, got -1"),
        ("linear", None, r"not expected \['linear.weights'\]"),
    ):
        refuse(tmp_path / "m", forged(altered(header, path.split("."), value), tensors), message)
    weights = tensors["linear.weights"]
    for bad, message in (
        (weights[:-1], "linear.weights must have 12 rows, one for each dense column and bucket, got 11"),
        (np.where(weights == weights.max(), np.float32(np.nan), weights), "linear.weights has NaN or infinite"),
        (weights.astype(np.float64), r"linear.weights must be float32 of shape \(w=12, C=3\), got float64"),
        (np.ascontiguousarray(weights[:, :2]), r"linear.weights must be float32 of shape \(w=12, C=3\)"),
    ):
        refuse(tmp_path / "m", forged(header, {**tensors, "linear.weights": bad}), message)
