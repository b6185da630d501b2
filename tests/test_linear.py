"""The linear start: where its weights are kept, its sums, its fit, and that a model with it keeps every law."""

from __future__ import annotations

import threading

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge

import gbun
from gbun.collectives import Solo
from gbun.data.buckets import BUCKET_SEED, Buckets, buckets_for, distinct
from gbun.data.features import Entries, Features, Shard
from gbun.data.ingest import ingest
from gbun.kernels.linear import LinearRows
from gbun.kernels.threads import Threads, threads
from gbun.linear import PATH, Fitting, LinearFit
from gbun.metrics import get_metric
from gbun.model_io import read_model
from gbun.objectives import Huber, Logistic, MultiLogistic, MultiSquaredError, Poisson, Softmax, SquaredError
from test_model_io_hostile import altered, forged, parts_of, refuse

LINEAR = {"init": "linear", "n_neurons": 8}


class Team:
    """Workers as threads: sums are complete when all have come, and every message's shape is noted."""

    def __init__(self, size):
        self.size, self.barrier = size, threading.Barrier(size, timeout=30)
        self.slots, self.shapes = [None] * size, set()

    def run(self, work, parts):
        """work(part, collective) of every worker."""
        results, errors = [None] * self.size, []

        def one(rank):
            try:
                results[rank] = work(parts[rank], Worker(self, rank))
            except BaseException as error:  # the others must not wait for ever
                errors.append(error)
                self.barrier.abort()

        team = [threading.Thread(target=one, args=(rank,)) for rank in range(self.size)]
        for worker in team:
            worker.start()
        for worker in team:
            worker.join()
        if errors:
            raise errors[0]
        return results


class Worker:
    def __init__(self, team, rank):
        self.team, self.rank, self.size = team, rank, team.size

    def _all(self, values):
        self.team.shapes.add(np.shape(values))
        self.team.slots[self.rank] = np.array(values)
        self.team.barrier.wait()
        found = list(self.team.slots)
        self.team.barrier.wait()
        return found

    def sum(self, values):
        return sum(self._all(values))

    def broadcast(self, values, root=0):
        return self._all(values)[root]

    def gather(self, values, root=0):
        found = self._all(values)
        return found if self.rank == root else None


def divided(rows, n_parts):
    """Rows (anything that can `take` some) of each worker; with three and more the first has none, the second one."""
    n = rows.n_rows
    ends = [0, 0, 1, *np.linspace(1, n, n_parts - 1).astype(int)[1:]] if n_parts > 2 else [0, *[n // 3][: n_parts - 1], n]
    return [rows.take(np.arange(a, b)) for a, b in zip(ends[:-1], ends[1:], strict=True)]


def data(task="regression", n=300, m=40, seed=0):
    """Counts, most of them 0, and a target in which a few of them add up."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.4, size=(n, m)).astype(np.float32)
    signal = X[:, :6] @ np.array([1.0, -1.5, 0.8, -0.6, 0.5, 0.7]) + 0.3 * rng.normal(size=n)
    several = np.column_stack([signal, X[:, 7] - 0.5 * signal])
    targets = {
        "regression": signal,
        "binary": signal > 0.2,
        "classes": np.digitize(signal, [-0.5, 0.6]),
        "outputs": several,
        "labels": (several > 0.3).astype(int),
        "counts": rng.poisson(np.exp(0.4 * signal)).astype(float),
        "positive": np.exp(0.4 * signal) * rng.gamma(2.0, size=n),
    }
    return X, targets[task]


def fitted(objective, rows, buckets, collective=None, pool=None):
    collective = collective or Solo()
    objective = objective.prepared(rows.y, rows.weight, collective)
    start = objective.start(rows.y, rows.weight, collective)
    metric = get_metric(objective.default_metric())
    return LinearFit(rows, Fitting(buckets, objective, start, metric, collective, pool or Threads(1)))


# Buckets


def test_columns_are_their_own_buckets():
    places, signs = Buckets(7).place(np.array([6, 0, 3], dtype=np.int64))
    assert places.tolist() == [6, 0, 3]
    assert signs is None


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


@pytest.mark.parametrize(
    ("seen", "columns", "scores", "bits", "wanted"),
    [
        (5, 1000, 1, None, Buckets(1000)),
        (5, 2**16, 1, None, Buckets(2**16)),
        (5, 2**16 + 1, 1, None, Buckets(256, hashed=True)),
        (20_000, 70_000, 1, None, Buckets(70_000)),  # no more than four columns for each feature seen
        (20_000, 100_000, 1, None, Buckets(2**15, hashed=True)),
        (20_000, 70_000, 100, None, Buckets(2**15, hashed=True)),  # seven million numbers would be too many
        (20_000, None, 1, None, Buckets(2**15, hashed=True)),
        (20_000, None, 1000, None, Buckets(2**12, hashed=True)),  # 2^22 numbers, no more
        (0, None, 1, None, Buckets(256, hashed=True)),
        (5, 1000, 1, 8, Buckets(256, hashed=True)),
        (5, 256, 1, 8, Buckets(256)),
        (5, None, 5, 20, Buckets(2**20, hashed=True)),
    ],
)
def test_columns_stay_as_they_are_while_they_are_few(seen, columns, scores, bits, wanted):
    assert buckets_for(np.arange(seen), columns, scores, Solo(), bits) == wanted


@settings(max_examples=15, deadline=None)
@given(st.integers(2000, 60_000), st.integers(1, 5), st.integers(0, 2**40))
def test_distinct_features_are_counted_within_five_percent(n, times, shift):
    ids = np.tile((np.arange(n) << 20) + shift, times)
    assert abs(distinct(ids, Solo()) / n - 1) < 0.05


def test_workers_count_distinct_features_as_one_would():
    ids = np.random.default_rng(0).integers(2**40, size=3000)
    wanted = distinct(ids, Solo())
    found = Team(3).run(distinct, [ids[:0], ids[:2000], ids[1000:]])
    assert found[0] == found[1] == found[2] == pytest.approx(wanted, rel=0.05)


# Sums


def rows_of(form, n, seed=0):
    """Features of a form, some rows of them without entries, and the same as a matrix phi by `buckets`."""
    rng = np.random.default_rng(seed)
    D = rng.normal(size=(n, 3)).astype(np.float32) if form in ("dense", "both") else None
    E = None
    if form != "dense":
        lengths = rng.integers(0, 6, size=n)
        lengths[::4] = 0
        ids = rng.integers(0, 9, size=lengths.sum()) * (2**55 if form == "hashed" else 1)
        E = Entries(np.append(0, np.cumsum(lengths)), ids, rng.normal(size=len(ids)).astype(np.float32))
    buckets = {"dense": None, "hashed": Buckets(4, hashed=True)}.get(form, Buckets(9))  # nine features in four buckets
    phi, squares = (np.zeros((n, 0 if buckets is None else buckets.n)) for _ in range(2))
    if E is not None:
        places, signs = buckets.place(E.ids)
        values = E.values.astype(float) * (1.0 if signs is None else signs)
        np.add.at(phi, (E.row_of_entry, places), values)
        np.add.at(squares, (E.row_of_entry, places), values**2)
    left = np.zeros((n, 0)) if D is None else D.astype(float)
    return Features(n, D, E), buckets, np.hstack([left, phi]), np.hstack([left**2, squares])


FORMS = ("dense", "sparse", "both", "hashed")


@pytest.mark.parametrize("C", [1, 3])
@pytest.mark.parametrize("n", [0, 1, 50])
@pytest.mark.parametrize("form", FORMS)
def test_sums_are_products_with_a_matrix(form, n, C):
    features, buckets, phi, squares = rows_of(form, n)
    rng = np.random.default_rng(1)
    weights, g, h = rng.normal(size=(phi.shape[1], C)), rng.normal(size=(n, C)), rng.random(n)
    rows = LinearRows(features, buckets, Threads(1))
    assert rows.n_weights == phi.shape[1]
    np.testing.assert_allclose(rows.scores(weights), phi @ weights, atol=1e-6)  # dense columns in float32
    np.testing.assert_allclose(rows.gradient(g), phi.T @ g, atol=1e-12)
    np.testing.assert_allclose(rows.curvature(h), h @ squares, atol=1e-12)


@pytest.mark.parametrize("C", [1, 3])
@pytest.mark.parametrize("form", FORMS)
def test_every_number_of_threads_gives_the_same_bits_and_a_row_alone_too(form, C):
    features, buckets, phi, _ = rows_of(form, 9000)  # three pieces of rows
    rng = np.random.default_rng(1)
    weights, g, h = rng.normal(size=(phi.shape[1], C)), rng.normal(size=(9000, C)), rng.random(9000)
    found = []
    for n_jobs in (1, 2, 4):
        with threads(n_jobs) as pool:
            rows = LinearRows(features, buckets, pool)
            found.append((rows.scores(weights), rows.gradient(g), rows.curvature(h)))
    for other in found[1:]:
        for a, b in zip(other, found[0], strict=True):
            np.testing.assert_array_equal(a, b)
    for i in (0, 1, 5, 4095, 4096, 8999):
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


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("l2", [4.0, 0.1])
@pytest.mark.parametrize(
    ("objective", "task"),
    [(SquaredError(), "regression"), (Logistic(), "binary"), (Poisson(), "counts"), (Softmax(3), "classes")],
    ids=lambda x: getattr(x, "name", ""),
)
def test_the_penalised_loss_is_as_low_as_that_of_scikit_learn(objective, task, l2, form):
    D, y = data(task)
    D = D - D.mean(axis=0) if form is np.asarray else D  # dense columns are centred
    rows = Shard(ingest(form(D))[0], y.astype(float), np.ones(len(y)))
    fit = fitted(objective, rows, None if form is np.asarray else Buckets(D.shape[1]))
    constant, penalty = fit.scores.copy(), l2 * fit.unit

    def penalised(weights, intercept):
        W = np.asarray(weights, dtype=float)
        return objective.loss(rows.y, D.astype(float) @ W + intercept).sum() + penalty / 2 * np.square(W).sum()

    wanted, intercept = peer(objective, D.astype(float), y, penalty)
    least = penalised(wanted, intercept)
    fit.fit(l2, tolerance=1e-6)
    start, linear = fit.result(l2)
    assert penalised(linear.weights, start) == pytest.approx(least, rel=1e-6)
    np.testing.assert_allclose(linear.weights, wanted, atol=1e-4 * np.abs(wanted).max())
    whole = gbun.train(
        {**LINEAR, "objective": objective.name, "scale": "none", "linear_l2": l2}, (form(D), y), 0
    ).ensemble  # stops at a hundredth of the gradient
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
    D, y = data(task)
    X, losses = scipy.sparse.csr_array(D), []
    for given_ in ({"init": "constant"}, {"linear_l2": 4.0}, {"linear_l2": 0.25}, {"linear_l2": 0.0}):
        parameters = {**LINEAR, "objective": objective, "hessian": hessian, **given_}
        model = gbun.train(parameters, (X, y), 0)
        loss = SquaredError() if objective is own_loss else model.ensemble.objective
        scores = model.decision_function(X).reshape(len(y), -1)
        losses.append(loss.loss(y.astype(float), scores).sum())
    assert losses[0] > losses[1] > losses[2] >= losses[3]


def test_a_target_without_variation_gives_weights_of_zero():
    X, _ = data()
    linear = gbun.train(LINEAR, (scipy.sparse.csr_array(X), np.full(300, 2.5)), 0).ensemble.linear
    assert linear.n_weights == 0


# Workers


@pytest.mark.parametrize("buckets", [Buckets(40), Buckets(256, hashed=True)], ids=["columns", "hashed"])
@pytest.mark.parametrize(
    ("objective", "task"),
    [(SquaredError(), "regression"), (Huber(), "regression"), (Poisson(), "counts"), (Logistic(), "binary"),
     (Softmax(3), "classes"), (MultiSquaredError(), "outputs"), (MultiLogistic(), "labels")],
    ids=lambda x: getattr(x, "name", ""),
)  # fmt: skip
def test_any_division_among_workers_gives_the_same_weights(objective, task, buckets):
    D, y = data(task)
    weight = np.random.default_rng(2).integers(0, 3, size=len(y)).astype(float)
    rows = Shard(ingest(scipy.sparse.csr_array(D))[0], y.astype(float), weight)

    def work(part, collective):
        fit = fitted(objective, part, buckets, collective)
        for l2 in (4.0, 1.0, 0.25):
            fit.fit(l2)
        return fit.theta

    wanted = work(rows, Solo())
    C = wanted.shape[1]
    for n_parts in (1, 2, 3, 7):
        team = Team(n_parts)
        found = team.run(work, divided(rows, n_parts))
        for theta in found:
            np.testing.assert_array_equal(theta, found[0])
        np.testing.assert_allclose(found[0], wanted, atol=1e-6 * np.abs(wanted).max())
        small = {shape for shape in team.shapes if np.prod(shape) <= C + 1 or shape == (2,)}
        assert team.shapes - small == {(buckets.n + 1, C), (buckets.n + 1,)}  # theta, and its curvature


def test_workers_choose_the_penalty_together():
    D, y = data("binary")
    rows = Shard(ingest(scipy.sparse.csr_array(D))[0], y.astype(float), np.ones(len(y)))
    fit_rows, judge = rows.take(np.arange(200)), rows.take(np.arange(200, 300))

    def work(part, collective):
        fitting = fitted(Logistic(), part[0], Buckets(40), collective).fitting
        value, start, linear = fitting.choose(*part)
        return value, linear.l2, np.append(linear.weights[:, 0], start)

    value, l2, theta = work((fit_rows, judge), Solo())
    assert l2 in PATH[1:-1]
    for found in Team(3).run(work, list(zip(divided(fit_rows, 3), divided(judge, 3), strict=True))):
        assert (found[0], found[1]) == (pytest.approx(value, rel=1e-9), l2)
        np.testing.assert_allclose(found[2], theta, atol=1e-6)


# Laws of the whole


def scores(model, X, **given_):
    return model.decision_function(X, **given_)


@pytest.mark.parametrize("scale", ["auto", "none"])
@pytest.mark.parametrize("task", ["regression", "binary", "classes", "outputs", "labels"])
def test_order_does_not_matter_and_weights_count_rows(task, scale):
    D, y = data(task)
    X = scipy.sparse.csr_array(D)
    rng = np.random.default_rng(1)
    order, times = rng.permutation(len(y)), rng.integers(0, 4, size=len(y))
    repeated = rng.permutation(np.repeat(np.arange(len(y)), times))
    parameters, kind = {**LINEAR, "scale": scale}, "regression" if task in ("regression", "outputs") else "classification"

    def trained(*rows):
        return scores(gbun.train(parameters, rows, 3, task=kind), X)

    wanted, weighted = trained(X, y), trained(X, y, times)
    np.testing.assert_allclose(trained(X[order], y[order]), wanted, atol=2e-6 * np.abs(wanted).max())
    np.testing.assert_allclose(trained(X[repeated], y[repeated]), weighted, atol=2e-6 * np.abs(weighted).max())
    assert np.abs(weighted - wanted).max() > 1e-3 * np.abs(wanted).max()


def test_two_rounds_and_two_more_are_four_with_the_same_linear_part(tmp_path):
    D, y = data("classes")
    X = scipy.sparse.csr_array(D)
    two, four = (gbun.train({**LINEAR, "objective": "softmax"}, (X, y), n) for n in (2, 4))
    two.save_model(tmp_path / "two.gbun")
    for first in (two, tmp_path / "two.gbun"):
        more = gbun.train({**LINEAR, "objective": "softmax"}, (X, y), 2, init_model=first)
        np.testing.assert_array_equal(more.ensemble.linear.weights, two.ensemble.linear.weights)
        np.testing.assert_array_equal(more.ensemble.start, two.ensemble.start)
        np.testing.assert_array_equal(scores(more, X), scores(four, X))
    with pytest.raises(ValueError, match="init='constant' differs from init_model's 'linear'; leave it out"):
        gbun.train({"init": "constant", "objective": "softmax"}, (X, y), 2, init_model=two)


def test_a_base_margin_takes_the_place_of_the_intercept():
    D, y = data()
    X, margin = scipy.sparse.csr_array(D), np.linspace(-2, 3, len(y))
    model = gbun.train({**LINEAR, "scale": "none", "linear_l2": 0.5}, (X, y, None, margin), 0)
    assert model.ensemble.start == pytest.approx(y.mean())  # nothing was added to it
    unit = np.square(D).sum(axis=0).mean()
    wanted = Ridge(alpha=0.5 * unit, fit_intercept=False, solver="cholesky").fit(D, y - margin).coef_
    np.testing.assert_allclose(model.ensemble.linear.weights[:, 0], wanted, atol=0.03 * np.abs(wanted).max())
    np.testing.assert_allclose(scores(model, X, base_margin=margin), margin + scores(model, X) - model.ensemble.start)


def containers(D):
    words = [[f"w{j}" for j in np.repeat(np.arange(len(row)), row.astype(int))] for row in D]
    frame = pd.DataFrame(D[:, :3]).rename(columns=str).assign(city=np.where(D[:, 3] > 0, "Rome", "Oslo"))
    return {
        "csr": scipy.sparse.csr_array(D),
        "dense": D,
        "tokens": words,
        "dicts": [{f"w{j}": float(v) for j, v in enumerate(row) if v} for row in D],
        "frame": frame,
    }


@pytest.mark.parametrize("rounds", [0, 2])
@pytest.mark.parametrize("kind", containers(np.ones((1, 4))))
def test_a_start_alone_is_a_whole_learner_of_every_kind_of_rows_and_survives_a_file(kind, rounds, tmp_path):
    D, y = data("binary")
    X = containers(D)[kind]
    model = gbun.GBUNClassifier(**LINEAR, n_estimators=rounds).fit(X, y)
    accuracy = (model.predict(X) == y).mean()
    assert accuracy > max(y.mean(), 1 - y.mean()) + 0.05
    probabilities = model.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert len(list(model.staged_predict_proba(X))) == rounds + 1
    model.save_model(tmp_path / "m.gbun")
    again = gbun.load_model(tmp_path / "m.gbun")
    np.testing.assert_array_equal(again.predict_proba(X), probabilities)
    np.testing.assert_array_equal(again.ensemble.linear.weights, model.model_.ensemble.linear.weights)
    assert again.ensemble.linear.buckets == model.model_.ensemble.linear.buckets
    assert again.ensemble.linear.l2 == model.model_.ensemble.linear.l2
    assert "a linear start and" in repr(again)


@pytest.mark.parametrize(("bits", "wanted"), [(None, Buckets(400)), (8, Buckets(256, hashed=True)), (9, Buckets(400))])
def test_bits_say_how_many_weights_there_are(bits, wanted):
    D, y = data(m=400)
    model = gbun.train({**LINEAR, "linear_bits": bits}, (scipy.sparse.csr_array(D), y), 0)
    assert model.ensemble.linear.buckets == wanted
    assert len(model.ensemble.linear.weights) == wanted.n
    named = gbun.train({**LINEAR, "linear_bits": bits}, (containers(D)["dicts"], y), 0)
    assert named.ensemble.linear.buckets == Buckets(2 ** (bits or 9), hashed=True)


# Where it is chosen, and where it is not


def test_auto_takes_the_linear_start_where_rows_held_out_prefer_it():
    D, y = data()
    X, noise = scipy.sparse.csr_array(D), np.random.default_rng(3).normal(size=len(y))
    assert gbun.train({"n_neurons": 8}, (X, y), 1).ensemble.linear is not None
    assert gbun.train({"n_neurons": 8}, (X, noise), 1).ensemble.linear is None
    assert gbun.train(LINEAR, (X, noise), 1).ensemble.linear is not None
    assert gbun.train({"n_neurons": 8}, (D, y), 1).ensemble.linear is None
    assert gbun.train(LINEAR, (D, y), 1).ensemble.linear is not None
    assert gbun.train({"n_neurons": 8, "init": "constant"}, (X, y), 1).ensemble.linear is None


def test_a_budget_too_small_for_the_weights_says_what_needs_less():
    X = scipy.sparse.random_array((100, 2**20), density=1e-5, format="csr", rng=np.random.default_rng(0))
    given_ = {"n_neurons": 8, "linear_bits": 20, "memory_budget": "50MB", "scale": "none"}
    with pytest.raises(ValueError, match=r"memory_budget must be at least \d+ bytes .*init='constant' needs less"):
        gbun.train({**given_, "init": "linear"}, (X, np.arange(100.0)), 1)
    gbun.train({**given_, "init": "constant"}, (X, np.arange(100.0)), 1)
    assert gbun.training.plan({**given_, "memory_budget": "1GB"}, (X, np.arange(100.0))).before > 50e6


# Files from others


def model_file():
    D, y = data("classes", m=12)
    counts = scipy.sparse.csr_array(D)
    model = gbun.train({**LINEAR, "objective": "softmax", "scale": "idf"}, (counts, y), 1)
    return parts_of(model.ensemble, model.description)


def hashed(n):
    return {"n": n, "hashed": True}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("linear.buckets", hashed(1000), "hashed buckets must be a power of 2 in number, got 1000"),
        ("linear.buckets", hashed(128), r"hashed buckets must be 2\^8 to 2\^24, got 128"),
        ("linear.buckets", hashed(2**25), r"hashed buckets must be 2\^8 to 2\^24, got 33554432"),
        ("linear.buckets", hashed(256), "linear.weights must have 256 rows, one for each dense column and bucket, got 12"),
        ("linear.buckets", {"n": 13, "hashed": False}, r"as many as the schema's \(12\), got 13"),
        ("linear.buckets", {"n": 0, "hashed": False}, "linear.buckets.n must be an integer from 1"),
        ("linear.buckets", None, "linear.weights must have 0 rows"),
        ("linear.l2", -1.0, "linear.l2 must be a number of at least 0, got -1"),
        ("linear", None, r"not expected \['linear.weights'\]"),
        ("scaling.buckets", hashed(256), "scaling.factor must have one number for each of 256 buckets, got 12"),
        ("scaling.buckets", {"n": 13, "hashed": False}, r"as many as the schema's \(12\), got 13"),
        ("scaling.steps", ["idf", "log"], "scaling.steps must be"),
        ("scaling.steps", ["none"], "scaling.steps must be"),
        ("description.schema.kind", "tokens", r"n_columns must be null or the schema's \(None\), got 12"),
    ],
)
def test_headers_that_do_not_fit_the_weights_are_refused(path, value, message, tmp_path):
    header, tensors = model_file()
    refuse(tmp_path / "m", forged(altered(header, path.split("."), value), tensors), message)


def test_weights_that_do_not_fit_the_header_are_refused(tmp_path):
    header, tensors = model_file()
    (tmp_path / "good").write_bytes(forged(header, tensors))
    assert read_model(tmp_path / "good")[0].linear.weights.shape == (12, 3)
    weights = tensors["linear.weights"]
    for bad, message in (
        (weights[:-1], "linear.weights must have 12 rows, one for each dense column and bucket, got 11"),
        (np.where(weights == weights.max(), np.nan, weights).astype(np.float32), "linear.weights has NaN or infinite"),
        (weights.astype(np.float64), r"linear.weights must be float32 of shape \(w, C=3\), got float64"),
        (np.ascontiguousarray(weights[:, :2]), r"linear.weights must be float32 of shape \(w=12, C=3\)"),
    ):
        refuse(tmp_path / "m", forged(header, {**tensors, "linear.weights": bad}), message)
