"""Explanations against brute force, numerical integration and their sums."""

from __future__ import annotations

from itertools import combinations
from math import factorial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import gbun
from gbun.explain.tree_values import game_values
from tests.learners.random_cuts import RandomCuts

rng = np.random.default_rng(0)
N = 300
X = rng.normal(size=(N, 5))
X[:, 3] = rng.integers(0, 4, N)
SIGNAL = X[:, 0] * X[:, 1] + np.abs(X[:, 2]) + (X[:, 3] == 2)
HOLES = np.where(rng.random(X.shape) < 0.1, np.nan, X)
SPARSE = scipy.sparse.csr_array(np.where(rng.random((N, 30)) < 0.2, 1.0 + rng.random((N, 30)), 0.0))
S_SIGNAL = SPARSE[:, :5].sum(axis=1) - SPARSE[:, 5:10].sum(axis=1)
FRAME = pd.DataFrame({"a": X[:, 0], "town": rng.choice(["Rome", "Oslo", "Bonn"], N), "b": X[:, 1]})
FRAME.loc[::9, "town"] = None
F_SIGNAL = FRAME["a"] * FRAME["b"] + (FRAME["town"] == "Rome")
DICTS = [{"a": float(a), "town": str(t)} for a, t in zip(FRAME["a"], FRAME["town"], strict=True)]
TOKENS = [[f"w{j}" for j in SPARSE[[i]].indices] for i in range(N)]
FORMS = {
    "dense": (X, SIGNAL),
    "holes": (HOLES, SIGNAL),
    "sparse": (SPARSE, S_SIGNAL),
    "frame": (FRAME, F_SIGNAL),
    "dicts": (DICTS, F_SIGNAL),
    "tokens": (TOKENS, S_SIGNAL),
}
TREES = {"learner": "tree", "n_leaves": 8, "min_leaf_rows": 1}
NETWORKS = {"learner": "network", "n_neurons": 16}


def train(rows, y, rounds=12, **params):
    task = params.pop("task", "regression")
    return gbun.train({"n_jobs": 1, **params}, (rows, y), rounds, task=task)


def total(explained):
    parts = explained.values if isinstance(explained.values, list) else [explained.values]
    if scipy.sparse.issparse(parts[0]):
        sums = np.column_stack([np.asarray(v.sum(axis=1)).ravel() for v in parts])
        return sums[:, 0] if explained.base.ndim == 1 else sums
    return explained.values.sum(axis=1)


def assert_adds_up(explained, scores, tolerance=1e-4):
    np.testing.assert_allclose(explained.scores, scores, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(explained.base + total(explained) + explained.residual, scores, rtol=1e-6, atol=1e-6)
    size = np.abs(scores - explained.base).mean() + 1e-3
    assert np.abs(explained.residual).max() < 10 * tolerance * size
    np.testing.assert_allclose(explained.start + explained.rounds, total(explained), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("learner", ["network", "tree", "mixed"])
@pytest.mark.parametrize("form", FORMS)
def test_contributions_add_up_for_every_form_of_rows(form, learner):
    if learner != "network" and form in ("sparse", "dicts", "tokens"):
        pytest.skip("trees split dense columns")
    rows, y = FORMS[form]
    for init in ("constant", "linear"):
        model = train(rows, y, learner=learner, init=init)
        some = rows[:20]
        explained = model.explain(some)
        assert_adds_up(explained, model.decision_function(some))
        assert explained.n_columns == len(explained.names or range(explained.n_columns))
        assert explained.errors is None
        others = model.explain(some, background=rows[50:53])
        assert_adds_up(others, model.decision_function(some))
        np.testing.assert_allclose(others.base, model.decision_function(rows[50:53]).mean(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("learner", ["network", "tree", "mixed"])
@pytest.mark.parametrize(
    ("objective", "y"),
    [
        ("poisson", rng.poisson(np.exp(0.3 * SIGNAL))),
        ("quantile", SIGNAL),
        ("logistic", SIGNAL > 0.5),
        ("softmax", np.digitize(SIGNAL, [0.0, 1.0])),
        ("multi_squared_error", np.column_stack([SIGNAL, -SIGNAL])),
    ],
)
def test_contributions_add_up_for_every_objective(objective, y, learner):
    model = train(X, y, objective=objective, learner=learner, task=None)
    explained = model.explain(X[:15])
    assert_adds_up(explained, model.decision_function(X[:15]))
    if explained.base.ndim == 2:
        one = model.explain(X[:15], output=1)
        np.testing.assert_array_equal(one.values, explained.values[:, :, 1])
        assert_adds_up(one, model.decision_function(X[:15])[:, 1])


def brute_force(model, row, base):
    """Shapley values by all coalitions."""
    m = len(row)

    def score(coalition):
        return model.decision_function(np.where(np.isin(np.arange(m), coalition), row, base)[None, :])[0]

    values = np.zeros(m)
    for j in range(m):
        rest = [k for k in range(m) if k != j]
        for size in range(m):
            weight = factorial(size) * factorial(m - size - 1) / factorial(m)
            for some in combinations(rest, size):
                values[j] += weight * (score([*some, j]) - score(list(some)))
    return values


@settings(max_examples=12, deadline=None)
@given(m=st.integers(1, 4), leaves=st.integers(2, 16), projections=st.sampled_from([0, 24]), seed=st.integers(0, 99))
def test_values_of_trees_are_those_of_all_coalitions(m, leaves, projections, seed):
    rows = np.random.default_rng(seed).normal(size=(150, m))
    rows[np.random.default_rng(seed + 1).random(rows.shape) < 0.1] = np.nan
    y = np.nan_to_num(rows).prod(axis=1) + np.nan_to_num(rows[:, 0])
    params = {**TREES, "n_leaves": leaves, "n_projections": projections, "init": "constant"}
    model = train(rows, y, 6, **params)
    base = rows[100]
    explained = model.explain(rows[:3], background=rows[100:101])
    for i in range(3):
        np.testing.assert_allclose(explained.values[i], brute_force(model, rows[i], base), atol=1e-9)


def test_what_a_member_gets_adds_up():
    of_row, of_baseline = game_values(40)
    for u, v in [(1, 0), (3, 4), (20, 20), (0, 5)]:
        assert u * of_row[u, v] + v * of_baseline[u, v] == pytest.approx(1.0 if v == 0 else -1.0 if u == 0 else 0.0)


@settings(max_examples=6, deadline=None)
@given(m=st.integers(1, 3), seed=st.integers(0, 99), doublings=st.sampled_from([0, 3]))
def test_gradients_are_those_of_numerical_integration(m, seed, doublings):
    rows = np.random.default_rng(seed).normal(size=(150, m))
    model = train(rows, rows.prod(axis=1), 5, **NETWORKS, temperature=2.0, temperature_doublings=doublings)
    explained = model.explain(rows[:2], method="gradients", background=rows[100:101])
    n_nodes, step = 100_000, 1e-3
    for i in range(2):
        at = (np.arange(n_nodes) + 0.5) / n_nodes
        path = rows[100] + at[:, None] * (rows[i] - rows[100])
        for j in range(m):
            up, down = path.copy(), path.copy()
            up[:, j] += step
            down[:, j] -= step
            slope = (model.decision_function(up) - model.decision_function(down)) / (2 * step)
            wanted = (rows[i, j] - rows[100, j]) * slope.mean()
            assert explained.values[i, j] == pytest.approx(wanted, abs=3e-3 * np.abs(explained.values).max() + 1e-4)


def test_sampled_values_near_those_of_all_coalitions_and_add_up():
    rows, y = X[:, :3], SIGNAL
    model = train(rows, y, 8, **NETWORKS)
    base = rows[200]
    explained = model.explain(rows[:3], method="shapley", background=rows[200:201], n_permutations=200)
    assert_adds_up(explained, model.decision_function(rows[:3]), tolerance=1e-6)
    for i in range(3):
        wanted = brute_force(model, rows[i], base)
        assert (np.abs(explained.values[i] - wanted) <= 5 * explained.errors[i] + 1e-6).all()
    again = model.explain(rows[:3], method="shapley", background=rows[200:201], n_permutations=200)
    np.testing.assert_array_equal(again.values, explained.values)


@pytest.mark.parametrize("form", ["sparse", "frame", "dicts"])
def test_sampled_values_add_up_for_every_form(form):
    rows, y = FORMS[form]
    model = train(rows, y, 4, **NETWORKS, init="linear")
    for background in (None, rows[9:11]):
        explained = model.explain(rows[:4], method="shapley", n_permutations=4, background=background)
        assert_adds_up(explained, model.decision_function(rows[:4]), tolerance=1e-6)
        assert explained.errors is not None


def test_a_learner_of_the_user_is_sampled():
    model = gbun.train({"n_jobs": 1}, (X, SIGNAL), 5, task="regression", learner=RandomCuts(seed=0, n_columns=5))
    explained = model.explain(X[:4], n_permutations=4)
    assert_adds_up(explained, model.decision_function(X[:4]), tolerance=1e-6)
    assert explained.errors is not None


def test_the_linear_start_alone():
    model = train(X, SIGNAL, **NETWORKS, init="linear", linear_l2=1.0)
    explained = model.explain(X[:10], method="linear")
    start = train(X, SIGNAL, 0, **NETWORKS, init="linear", linear_l2=1.0)
    np.testing.assert_allclose(explained.scores, start.decision_function(X[:10]), atol=1e-6)
    np.testing.assert_allclose(explained.base + explained.values.sum(axis=1), explained.scores, atol=1e-5)
    scaled = (X[:10] - X.mean(axis=0)) / X.std(axis=0)
    np.testing.assert_allclose(explained.values, scaled * model.coef_, atol=1e-5)
    np.testing.assert_allclose(explained.rounds, 0.0, atol=1e-12)


def test_what_a_model_does_not_use_gets_exactly_nothing():
    model = train(X[:, :3], X[:, 0], **TREES, n_projections=0, init="constant")
    used = {int(c) for step in model.ensemble.steps for c in step.partition.tree.column}
    explained = model.explain(X[:50, :3])
    for j in set(range(3)) - used:
        assert not explained.values[:, j].any()
    model = train(SPARSE, S_SIGNAL, **NETWORKS)
    explained = model.explain(SPARSE[:10])
    assert (explained.values != 0).nnz <= SPARSE[:10].nnz


def test_many_columns_become_the_top_and_others():
    model = train(SPARSE, S_SIGNAL, **NETWORKS)
    explained = model.explain(SPARSE[:10], top=4)
    assert explained.values.shape == (10, 5)
    assert explained.names[-1] == "other features"
    assert_adds_up(explained, model.decision_function(SPARSE[:10]))
    dense = train(X, SIGNAL, **TREES).explain(X[:10], top=2)
    assert dense.data.shape == dense.values.shape == (10, 3)
    assert train(X, SIGNAL, **TREES).explain(X[:10], top=9).n_columns == 5


def test_names_are_those_of_the_rows():
    assert set(train(DICTS, F_SIGNAL, **NETWORKS).explain(DICTS[:40]).names) == {
        "a", "town=Rome", "town=Oslo", "town=Bonn", "town=None"
    }  # fmt: skip
    assert train(FRAME, F_SIGNAL, **TREES).explain(FRAME[:5]).names == ("a", "town", "b")
    explained = train(TOKENS, S_SIGNAL, **NETWORKS).explain(TOKENS[:1])
    assert sorted(explained.names) == sorted(set(TOKENS[0]))
    rome = train(FRAME, F_SIGNAL, 60, **TREES).explain(FRAME)
    assert rome.values[:, 1][FRAME["town"] == "Rome"].mean() > 0.5 + rome.values[:, 1][FRAME["town"] == "Oslo"].mean()


def test_shap_takes_explanations():
    shap = pytest.importorskip("shap")
    model = train(X, SIGNAL, **TREES)
    found = model.explain(X[:8]).to_shap()
    assert isinstance(found, shap.Explanation)
    assert found.values.shape == found.data.shape == (8, 5)
    sparse = train(SPARSE, S_SIGNAL, **NETWORKS).explain(SPARSE[:3]).to_shap()
    assert sparse.values.shape == (3, 30)
    masked = shap.Explainer(model.predict, shap.maskers.Independent(X[:20]))(X[:3], silent=True)
    np.testing.assert_allclose(masked.base_values + masked.values.sum(axis=1), model.predict(X[:3]), atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"method": "gains"}, r"method must be one of \('auto', "),
        ({"method": "gradients"}, "method='gradients' needs networks alone, and this model has learner 'tree'"),
        ({"method": "linear"}, "method='linear' explains a linear start, and this model begins with a constant"),
        ({"output": 1}, "output must be 0: there is one score, got 1"),
        ({"top": 0}, "top must be a whole number of at least 1, got 0"),
        ({"n_permutations": 3}, "n_permutations must be an even number"),
        ({"n_permutations": "x"}, "n_permutations must be an even number of at least 2, got 'x'"),
        ({"background": X[:, :2]}, "background has 2 features, the model was trained on 5"),
        ({"background": X[:0]}, "background must have 1 to 1000 rows, got 0"),
    ],
)
def test_bad_arguments_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        train(X, SIGNAL, **TREES, init="constant").explain(X[:3], **arguments)


def test_bad_rows_are_refused_and_no_rounds_are_explained():
    model = train(X, SIGNAL, 0, **TREES)
    assert not model.explain(X[:3]).values.any()
    with pytest.raises(ValueError, match="X has 2 features, the model was trained on 5"):
        model.explain(X[:, :2])
    classes = train(X, np.digitize(SIGNAL, [0.0, 1.0]), **TREES, objective="softmax", task=None)
    with pytest.raises(ValueError, match="output must be from 0 to 2, got 3"):
        classes.explain(X[:3], output=3)
