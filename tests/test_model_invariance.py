"""Invariance of a model: under threads, containers, the order of rows, continued training and ways to predict."""

from __future__ import annotations

import tracemalloc
from unittest.mock import Mock

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import gbun
from gbun import GBUNClassifier, GBUNRegressor
from gbun.config import make_parameters
from gbun.kernels import chunks
from gbun.kernels.threads import ThreadPool, thread_pool
from gbun.networks import hash_name
from tests.trainings import add_round, assert_same_model, prepare_training

SMALL = {"n_neurons": 8, "n_estimators": 6, "density": 0.5, "temperature": 1.5}
TASKS = ("regression", "binary", "classes", "outputs", "labels")


def data(task="regression", n=700, m=6, seed=0):
    """Numbers of which a third are zero, and a target that depends on them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m)).astype(np.float32)
    X[rng.random((n, m)) < 0.35] = 0.0
    signal = X[:, 0] * X[:, 1] - X[:, 2] + 0.2 * rng.normal(size=n)
    several = np.column_stack([signal, X[:, 3] + 0.1 * signal])
    y = {"regression": signal, "binary": signal > 0, "outputs": several, "labels": (several > 0).astype(int)}
    return X, y[task] if task in y else np.digitize(signal, [-0.7, 0.0, 0.7])


def estimator(task, **parameters):
    cls = GBUNRegressor if task in ("regression", "outputs") else GBUNClassifier
    return cls(**{**SMALL, **parameters})


def scores(model, X, **given):
    return getattr(model, "model_", model).decision_function(X, **given)


every_task = pytest.mark.parametrize("task", TASKS)
every_form = pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])


# Bits


@pytest.mark.slow
@pytest.mark.usefixtures("handed_over")
@every_form
@pytest.mark.parametrize(("task", "hessian"), [*((task, "shared") for task in TASKS), ("classes", "per_class")])
def test_every_run_and_every_number_of_threads_gives_the_same_bits(task, hessian, form):
    X, y = data(task, n=9000)  # several chunks of rows
    X = form(X)
    models = [estimator(task, n_jobs=n_jobs, hessian=hessian).fit(X, y) for n_jobs in (1, 1, 2, 4)]
    wanted = scores(models[0], X)
    for model in models[1:]:
        assert_same_model(model, models[0])
        np.testing.assert_array_equal(scores(model, X, n_jobs=model.n_jobs), wanted)


@pytest.mark.parametrize("density", [1.0, 0.1])
@every_form
def test_networks_made_in_tables_or_on_the_fly_are_the_same(form, density):
    X, y = data()
    models = [estimator("regression", network=n, density=density).fit(form(X), y) for n in ("auto", "dense", "hashed")]
    assert_same_model(models[1], models[0])
    assert_same_model(models[2], models[0])


@every_form
@every_task
def test_a_row_alone_is_predicted_as_among_others(task, form):
    X, y = data(task, n=5000)
    X = form(X)
    model = estimator(task).fit(X, y)
    whole = scores(model, X)
    for i in (0, 1, 2, 17, 4095, 4096, 4999):
        np.testing.assert_array_equal(scores(model, X[[i]])[0], whole[i])
    some = np.random.default_rng(0).permutation(5000)[:333]
    np.testing.assert_array_equal(scores(model, X[some]), whole[some])


def with_categories(X):
    return pd.DataFrame(X).rename(columns=str).assign(city=np.resize(["Rome", "Oslo", None], len(X)))


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array, with_categories])
@every_task
def test_blocks_of_rows_are_predicted_as_all_of_them(task, form, monkeypatch):
    X, y = data(task, n=90)
    X, margin = form(X), np.linspace(-1, 1, 90)[:, None]
    model = estimator(task).fit(X, y)
    margin = np.tile(margin, (1, model.model_.ensemble.n_scores))

    def predict():
        return scores(model, X), scores(model, X, base_margin=margin), scores(model, X, n_rounds=2), model.predict(X)

    at_once = predict()
    for block in (7, 89, 90):
        monkeypatch.setattr(chunks, "MAX_CHUNK_ROWS", block)
        monkeypatch.setattr(gbun.model, "BLOCK", 3 * block)
        for found, wanted in zip(predict(), at_once, strict=True):
            np.testing.assert_array_equal(found, wanted)


# Containers; tests/data/test_ingest.py has those that differ in dtype, layout or class only


def containers(X):
    csr, backwards = scipy.sparse.csr_array(X), scipy.sparse.csr_array(X[:, ::-1])
    backwards.indices = X.shape[1] - 1 - backwards.indices
    twice = np.repeat(csr.data / 2, 2), np.repeat(csr.indices, 2), 2 * csr.indptr
    full = scipy.sparse.csr_array(np.ones_like(X))
    full.data = X.ravel().copy()
    return {
        "lil": scipy.sparse.lil_array(X),
        "unsorted indices": scipy.sparse.csr_array((backwards.data, backwards.indices, backwards.indptr), X.shape),
        "repeated entries": scipy.sparse.csr_array(twice, shape=X.shape),
        "stored zeros": full,
    }


@pytest.mark.parametrize("scale", ["none", "standard"])
@pytest.mark.parametrize("kind", containers(np.eye(2, dtype=np.float32)))
def test_every_sparse_container_gives_the_same_model(kind, scale):
    X, y = data()
    model = estimator("regression", scale=scale).fit(scipy.sparse.csr_array(X), y)
    other = containers(X)[kind]
    assert_same_model(estimator("regression", scale=scale).fit(other, y), model)
    np.testing.assert_array_equal(scores(model, other), scores(model, scipy.sparse.csr_array(X)))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_a_frame_of_categories_is_the_dicts_of_its_rows(frame):
    _, y = data(n=200)
    rng = np.random.default_rng(0)
    columns = {c: rng.choice(["red", "grün", "blue"], size=200).tolist() for c in ("car", "house")}
    columns["car"][5] = None
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    assert_same_model(estimator("regression").fit(frame(columns), y), estimator("regression").fit(rows, y))


WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "lazy", "dog"]


def matrix_of(rows):
    """Dicts of numbers as a sparse matrix, the column of a name being its hash."""
    n_columns = max(hash_name(w) for w in WORDS) + 1
    coo = [(i, hash_name(name), value) for i, row in enumerate(rows) for name, value in row.items()]
    i, j, v = (np.array(part) for part in zip(*coo, strict=True))
    return scipy.sparse.csr_array((v.astype(float), (i, j)), shape=(len(rows), n_columns))


@pytest.mark.parametrize("scale", ["none", "standard"])
def test_dicts_are_the_matrix_of_their_hashed_names(scale):
    rng = np.random.default_rng(0)
    rows = [{w: rng.normal() for w in rng.choice(WORDS, size=3, replace=False)} for _ in range(200)]
    y = np.array([row.get("fox", 0.0) for row in rows])
    named = estimator("regression", scale=scale, density=1.0).fit(rows, y)
    assert_same_model(named, estimator("regression", scale=scale, density=1.0).fit(matrix_of(rows), y))


# Dense and sparse


@pytest.mark.parametrize("missing", [False, True], ids=["", "missing"])
@pytest.mark.parametrize("scale", ["none", "standard"])
@every_task
def test_dense_and_sparse_forms_of_the_same_rows_give_the_same_model(task, scale, missing):
    X, y = data(task)
    if missing:
        X[np.random.default_rng(1).random(X.shape) < 0.1] = np.nan
    csr = scipy.sparse.csr_array(X)
    dense, sparse = (estimator(task, scale=scale, init="constant").fit(A, y) for A in (X, csr))
    np.testing.assert_allclose(scores(dense, X), scores(sparse, csr), atol=1e-5)


# Rows


def assert_same_predictions(a, b, X, tolerance=2e-6):
    wanted = scores(b, X)
    np.testing.assert_allclose(scores(a, X), wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


@every_form
@every_task
def test_the_order_of_rows_changes_rounding_only(task, form):
    X, y = data(task)
    order = np.random.default_rng(1).permutation(len(y))
    a, b = estimator(task).fit(form(X), y), estimator(task).fit(form(X[order]), y[order])
    assert_same_predictions(a, b, form(X))


WEIGHTED = [(task, "auto", scale) for task in TASKS for scale in ("auto", "standard")]


@pytest.mark.parametrize(
    ("task", "objective", "scale"), [*WEIGHTED, ("regression", "huber", "auto"), ("regression", "quantile", "auto")]
)
@every_form
def test_weight_two_is_the_row_twice_and_weight_zero_no_row(task, objective, form, scale):
    X, y = data(task)
    times = np.random.default_rng(1).integers(0, 4, size=len(y))
    repeated = np.repeat(np.arange(len(y)), times)
    weighted = estimator(task, scale=scale, objective=objective).fit(form(X), y, sample_weight=times)
    again = estimator(task, scale=scale, objective=objective).fit(form(X[repeated]), y[repeated])
    assert_same_predictions(weighted, again, form(X))


def test_a_row_of_weight_zero_may_hold_anything():
    X, y = data()
    weight = np.ones(len(y))
    weight[:50] = 0.0
    strange_X, strange_y = X.copy(), y.copy()
    strange_X[:50], strange_y[:50] = 1e6, -1e9
    removed = estimator("regression").fit(X[50:], y[50:])
    assert_same_predictions(estimator("regression").fit(strange_X, strange_y, sample_weight=weight), removed, X)


# Rounds


@every_form
@every_task
def test_ten_rounds_and_ten_more_are_twenty(task, form, tmp_path):
    X, y = data(task)
    X = form(X)
    twenty = estimator(task, n_estimators=20).fit(X, y)
    ten = estimator(task, n_estimators=10).fit(X, y)
    ten.save_model(tmp_path / "ten.gbun")
    for start in (ten.model_, tmp_path / "ten.gbun", str(tmp_path / "ten.gbun")):
        assert_same_model(estimator(task, n_estimators=10).fit(X, y, init_model=start), twenty)


@pytest.mark.parametrize("n_stages", [1, 3])
def test_staged_predictions_end_their_threads_whether_all_are_asked_for_or_not(monkeypatch, n_stages):
    pools, X = [], np.ones((10, 2))
    monkeypatch.setattr(
        "gbun.model.ThreadPool", lambda n_jobs: pools.append(Mock(wraps=ThreadPool(n_jobs))) or pools[-1]
    )
    model = gbun.train({"n_neurons": 4}, (X, np.arange(10.0)), 2)
    stages = model._staged_scores(X, None, 2, "cpu")
    for _ in range(n_stages):
        next(stages)
    stages.close()
    pools[0].close.assert_called_once_with()


@every_task
def test_the_first_rounds_of_a_model_are_the_model_of_so_many_rounds(task):
    X, y = data(task)
    six = estimator(task).fit(X, y)
    staged = list(six.model_.staged_decision_function(X))
    assert len(staged) == 7  # the start is the first stage
    predictions = list(six.staged_predict(X))
    for r in range(7):
        short = estimator(task, n_estimators=r).fit(X, y)
        for found in (scores(six, X, n_rounds=r), staged[r]):
            np.testing.assert_array_equal(found, scores(short, X))
        np.testing.assert_array_equal(predictions[r], short.predict(X))
        np.testing.assert_array_equal(six.predict(X, n_rounds=r), short.predict(X))
    np.testing.assert_array_equal(
        scores(six, X, n_rounds=0), np.tile(six.model_.ensemble.start.constant, (len(y), 1)).reshape(staged[0].shape)
    )


def own_classes(y, scores, weight):
    target = np.eye(4)[y.astype(int)]
    return (scores - target) * weight[:, None], weight


def test_staged_probabilities_of_a_custom_objective_are_kept():
    X, y = data("classes")
    model = estimator("classes", objective=own_classes).fit(X, y)
    stages = list(model.staged_predict_proba(X))
    np.testing.assert_array_equal(stages[1], model.predict_proba(X, n_rounds=1))


# Base margins


@every_task
def test_the_start_value_as_base_margin_changes_nothing(task):
    X, y = data(task)
    plain = estimator(task).fit(X, y)
    margin = np.tile(plain.model_.ensemble.start.constant, (len(y), 1))
    given_margin = estimator(task).fit(X, y, base_margin=margin)
    assert_same_model(plain, given_margin)
    np.testing.assert_array_equal(scores(given_margin, X, base_margin=margin), scores(plain, X))


@every_task
def test_the_scores_of_a_model_as_base_margin_continue_it(task):
    """Rounds that start from the scores of a model are those that init_model adds, if they have the same networks."""
    X, y = data(task)
    first, both = estimator(task, n_estimators=4).fit(X, y), estimator(task, n_estimators=7).fit(X, y)
    margin = scores(first, X)
    with thread_pool(1) as pool:
        target = "regression" if task in ("regression", "outputs") else "classification"
        training = prepare_training(make_parameters(first), (X, y, None, margin), pool, task=target)
        for t in range(4, 7):
            add_round(training, t)
    np.testing.assert_array_equal(training.ensemble().heads, both.model_.ensemble.heads[4:])
    np.testing.assert_array_equal(training.rows.current_scores().reshape(margin.shape), scores(both, X))


@settings(max_examples=20, deadline=None)
@given(st.floats(-1e3, 1e3))
def test_a_margin_is_added_to_what_is_predicted(shift):
    X, y = data(n=50)
    model = estimator("regression", n_estimators=2).fit(X, y, base_margin=np.zeros(50))
    from_zero = scores(model, X, base_margin=np.zeros(50))
    np.testing.assert_allclose(scores(model, X, base_margin=np.full(50, shift)), shift + from_zero, atol=1e-9)


# Memory


def peak_of_fitting(largest, **parameters):
    """The same 10,001 features, spread over ids from 0 to `largest`."""
    rng = np.random.default_rng(0)
    ids = np.sort(rng.integers(10_001, size=(2000, 20)), axis=1) * (largest // 10_000)
    indptr = np.arange(0, ids.size + 1, 20, dtype=np.int64)
    X = scipy.sparse.csr_array((np.ones(ids.size, np.float32), ids.ravel(), indptr), shape=(2000, largest + 1))
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    y = rng.normal(size=2000)
    model = estimator("regression", n_estimators=3, network="hashed", n_jobs=1, **parameters)
    model.fit(X, y)  # compile first
    tracemalloc.start()
    try:
        model.fit(X, y).predict(X)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("scale", ["none", "standard"])
def test_memory_does_not_grow_with_the_largest_id(scale):
    small, large = (peak_of_fitting(largest, scale=scale, init="constant") for largest in (10**4, 2**62))
    assert large <= 1.1 * small


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["none", "idf", "max_abs"])
def test_memory_of_buckets_grows_with_features_seen_not_with_the_largest_id(scale):
    given = {"scale": scale, "init": "linear"}
    exact, small, large = (peak_of_fitting(largest, **given) for largest in (10**4, 10**8, 2**62))
    assert large <= 1.1 * small
    assert large <= 2.0 * exact  # 2^14 buckets instead of 10,001 columns
