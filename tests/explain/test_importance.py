"""Importances, weights of the linear start, and the tools of scikit-learn that use them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.feature_selection import SelectFromModel
from sklearn.inspection import partial_dependence, permutation_importance

import gbun
from gbun import GBUNClassifier, GBUNRegressor

rng = np.random.default_rng(1)
X = rng.normal(size=(600, 6))
Y = 2.0 * X[:, 0] * X[:, 1] + X[:, 2]
FRAME = pd.DataFrame({"noise": X[:, 3], "town": rng.choice(["Rome", "Oslo", "Bonn"], 600), "size": X[:, 0]})
F_Y = FRAME["size"] + 2.0 * (FRAME["town"] == "Rome")


@pytest.mark.parametrize("learner", ["network", "tree", "mixed"])
def test_columns_that_matter_are_found(learner):
    model = GBUNRegressor(learner=learner, n_estimators=60, n_jobs=1).fit(X, Y)
    shares = model.feature_importances_
    assert shares.sum() == pytest.approx(1.0)
    assert set(np.argsort(-shares)[:3]) == {0, 1, 2}
    for found in (model.importance(X), model.importance(X, Y, n_repeats=2)):
        assert {name for name, _ in found.ranked(3)} == {"0", "1", "2"}
    assert SelectFromModel(model, prefit=True, threshold=-np.inf, max_features=3).get_support()[:3].all()
    assert SelectFromModel(GBUNRegressor(learner=learner, n_estimators=20)).fit(X, Y).get_support().any()


def test_importance_without_rows_knows_the_linear_start():
    noise = np.random.default_rng(5).normal(size=600)
    for model, y in (
        (GBUNRegressor(n_jobs=1), 10.0 * X[:, 0] - 5.0 * X[:, 3] + noise),  # perhaps without a round
        (GBUNRegressor(init="linear", learner="tree", n_estimators=20, n_jobs=1), 10.0 * X[:, 0] + np.abs(X[:, 3])),
    ):
        shares = model.fit(X, y).feature_importances_
        assert np.argsort(-shares)[:2].tolist() == [0, 3]
        assert shares[0] > 0.5
    nothing = GBUNRegressor(n_estimators=0, learner="tree", init="constant").fit(X, noise)
    assert not nothing.feature_importances_.any()


def test_networks_of_sparse_columns_have_importances():
    rows = scipy.sparse.random_array((400, 30), density=0.2, format="csr", rng=np.random.default_rng(0))
    y = rows[:, [3]].toarray().ravel() * 5.0
    for init in ("constant", "linear"):
        model = GBUNRegressor(n_estimators=20, n_neurons=16, init=init, n_jobs=1).fit(rows, y)
        assert np.argmax(model.feature_importances_) == 3


def test_names_that_look_like_ids_are_names():
    tokens = [["id 17"] * (i % 2) + ["zz"] * (1 - i % 2) + [f"w{i % 5}"] for i in range(200)]
    model = GBUNClassifier(n_estimators=5, n_jobs=1).fit(tokens, np.arange(200) % 2)
    explained, found = model.explain(tokens), model.importance(tokens)
    wanted = {explained.name(j): value for j, value in enumerate(explained.mean_abs())}
    assert dict(found.ranked()) == pytest.approx(wanted)


def test_estimators_pass_every_argument_on():
    model = GBUNRegressor(n_estimators=4, learner="tree").fit(X, Y)
    for method in ("auto", "shapley"):
        assert model.explain(X[:2], method=method, n_jobs=1).method == method
    assert model.importance(kind="gain", n_jobs=1).kind == "gain"


def test_tools_of_scikit_learn_work():
    model = GBUNClassifier(n_estimators=30, n_jobs=1).fit(X, Y > 0)
    found = permutation_importance(model, X, Y > 0, n_repeats=2, random_state=0)
    assert set(np.argsort(-found.importances_mean)[:2]) == {0, 1}
    assert partial_dependence(model, X, [0], grid_resolution=5)["average"].shape == (1, 5)


def test_gains_count_splits_of_columns_projections_and_categories():
    model = GBUNRegressor(learner="tree", n_estimators=30, n_projections=0, n_jobs=1).fit(FRAME, F_Y)
    gains = model.importance(kind="gain")
    assert gains.names == ("noise", "town", "size")
    assert gains.ranked(1)[0][0] == "town"
    total = sum(float(step.partition.tree.gain.sum()) for step in model.model_.ensemble.steps)
    assert gains.values.sum() == pytest.approx(total, rel=1e-6)
    projected = GBUNRegressor(learner="tree", n_estimators=30, n_jobs=1).fit(X, Y)
    total = sum(float(step.partition.tree.gain.sum()) for step in projected.model_.ensemble.steps)
    assert projected.importance().values.sum() == pytest.approx(total, rel=1e-6)
    assert repr(gains).startswith("<Importance by gain: town ")


def test_groups_are_shuffled_together():
    one_hot = np.column_stack([X[:, 0] > 0, X[:, 0] <= 0, X[:, 1]]).astype(float)
    model = GBUNRegressor(n_estimators=30, n_jobs=1).fit(one_hot, 3.0 * (X[:, 0] > 0) + X[:, 1])
    found = model.importance(one_hot, 3.0 * (X[:, 0] > 0) + X[:, 1], groups={"sign": [0, 1], "other": [2]}, n_repeats=3)
    assert found.names == ("sign", "other")
    assert found.values[0] > found.values[1] > 0.0
    assert found.errors.shape == (2,)
    for rows in (FRAME, scipy.sparse.csr_array(np.abs(X))):
        model = GBUNRegressor(n_estimators=10, n_jobs=1).fit(rows, F_Y)
        names = list(getattr(rows, "columns", range(6)))
        found = model.importance(rows, F_Y, groups={"a": names[:1], "b": names[1:]}, n_repeats=1)
        assert found.values[1] > found.values[0]


def test_weights_of_the_linear_start():
    model = GBUNRegressor(init="linear", n_estimators=5, n_jobs=1).fit(X, Y)
    weights = model.model_.linear_weights()
    assert weights.names == tuple("012345")
    assert np.argmax(np.abs(weights.values)) == 2
    np.testing.assert_array_equal(model.model_.coef_, weights.values)
    tokens = [["good"] * (i % 2) + ["bad"] * (1 - i % 2) + [f"w{i % 7}"] for i in range(200)]
    model = GBUNClassifier(init="linear", linear_bits=8, n_estimators=0).fit(tokens, np.arange(200) % 2)
    names = ["good", "bad", *(f"t{i}" for i in range(600))]
    weights = model.linear_weights(names)
    assert weights.values[0] > 0.0 > weights.values[1]
    shared = weights.shared_with
    assert shared  # 602 names in 256 places
    name, others = next(iter(shared.items()))
    assert name not in others
    assert all(name in shared[other] for other in others)
    many = [[f"t{i}", f"t{i + 300}"] for i in range(300)]
    found = model.importance(many)
    assert set(found.shared_with) == {n for n in shared if n.startswith("t")} - {
        n for n, o in shared.items() if not any(other.startswith("t") for other in o)
    }
    assert set(found.top(5).shared_with) <= set(found.top(5).names)


def test_wide_data_are_told_to_pass_rows():
    wide = scipy.sparse.csr_array((np.ones(200), (np.arange(200) % 100, np.arange(200) * 1000)), shape=(100, 200_001))
    model = GBUNRegressor(n_estimators=2, n_neurons=16).fit(wide, np.arange(100) % 2)
    with pytest.raises(AttributeError, match=r"there are 200,001 columns; use importance\(X, top=...\)"):
        _ = model.feature_importances_
    assert len(model.importance(wide, top=5).values) == 5
    model = GBUNRegressor(n_estimators=2, n_neurons=16).fit([{"a": 1.0}, {"b": 2.0}] * 30, np.arange(60))
    with pytest.raises(AttributeError, match="features have names only"):
        _ = model.feature_importances_


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"kind": "split"}, r"kind must be one of \('gain', "),
        ({"kind": "permutation", "X": X}, "kind='permutation' needs y, got None"),
        ({"kind": "contribution"}, "kind='contribution' needs X, got None"),
        ({"X": X, "y": Y, "groups": {"a": [9]}}, r"groups\['a'\] must name columns of X, got 9"),
        ({"X": X, "y": Y, "n_repeats": 0}, "n_repeats must be at least 1, got 0"),
        ({"top": 0}, "top must be a whole number"),
        (
            {"X": X, "groups": {"a": [0]}},
            "groups and metric are arguments of kind='permutation', got kind='contribution'",
        ),
        ({"kind": "gain", "background": X}, r"\['background'\] are no arguments of kind='gain'"),
    ],
)
def test_bad_arguments_are_refused(arguments, words):
    model = gbun.train({"learner": "tree", "n_jobs": 1}, (X, Y), 3, task="regression")
    with pytest.raises(ValueError, match=words):
        model.importance(**arguments)


def test_what_a_model_has_not_is_named():
    model = gbun.train({"learner": "network", "n_neurons": 16}, (X, Y), 3, task="regression")
    with pytest.raises(ValueError, match="kind='gain' needs trees, and this model has learner 'network'"):
        model.importance(kind="gain")
    with pytest.raises(ValueError, match="begins with a constant"):
        _ = model.coef_
