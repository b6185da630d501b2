"""Trees on columns of categories: frames, and arrays with declared columns."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest

import gbun
from gbun.callbacks import Callback
from gbun.collectives.threads import in_threads
from gbun.learners import MixedLearner, TreeLearner
from tests.trainings import assert_same_model

N = 1500
rng = np.random.default_rng(0)
CITY, SIZE, x = rng.integers(0, 30, N), rng.integers(0, 3, N), rng.normal(size=N)
EFFECT = rng.normal(size=30)
Y = EFFECT[CITY] + (SIZE == 1) * x + 0.1 * rng.normal(size=N)
FRAME = pd.DataFrame({"city": [f"c{k}" for k in CITY], "x": x, "size": SIZE})
FRAME.loc[rng.random(N) < 0.05, "city"] = None
ARRAY = np.column_stack([CITY, x, SIZE]).astype(float)
TREE = {"learner": "tree", "init": "constant", "n_jobs": 1}


def train(X=FRAME, y=Y, rounds=20, task="regression", rows=slice(None), options=(), **params):
    X = X.iloc[rows] if hasattr(X, "iloc") else X[rows]
    return gbun.train(TREE | params, (X, y[rows]), rounds, task=task, **dict(options))


def r2(model, X=FRAME, y=Y):
    return 1 - np.mean((model.predict(X) - y) ** 2) / y.var()


def masks(model):
    trees = [step.partition.tree for step in model.ensemble.steps]
    return np.concatenate([tree.mask[tree.mask != 0] for tree in trees if tree.mask is not None])


def test_a_frame_of_categories_is_learnt():
    model = train(rounds=60, categorical_features=["size"])
    assert r2(model) > 0.94
    seen = np.array([int(mask).bit_count() for mask in masks(model)])
    assert ((seen > 5) & (seen < 50)).any()  # subsets
    assert r2(train(FRAME[["city"]], rounds=60), FRAME[["city"]]) > 0.6  # of categories alone
    assert r2(train(pl.DataFrame(FRAME), rounds=60, categorical_features=["size"])) == pytest.approx(r2(model))


@pytest.mark.parametrize("params", [{}, {"learner": "mixed", "n_neurons": 16}])
@pytest.mark.parametrize("objective", ["logistic", "softmax", "multi_squared_error"])
def test_threads_workers_and_order_change_no_tree(params, objective):
    y = {"logistic": Y > 0, "softmax": np.digitize(Y, [-1, 0, 1]), "multi_squared_error": np.column_stack([Y, -Y])}
    target = y[objective]
    settings = params | {"objective": objective, "categorical_features": ["size"], "rounds": 6, "task": None}
    wanted = train(y=target, **settings)
    assert_same_model(train(y=target, n_jobs=3, **settings), wanted)
    order = np.random.default_rng(1).permutation(N)
    shuffled = train(y=target, rows=order, **settings)
    found = [shuffled]
    for size in (2, 3, 7):
        owner = rng.integers(0, size, N) * (rng.random(N) < 0.7)
        owner[owner == size - 2] = 0  # one has no rows

        def work(collective, owner=owner):
            rows = np.flatnonzero(owner == collective.rank)
            return train(y=target, rows=rows, options={"collective": collective}, **settings)

        found += in_threads(size, work)
    for model in found:
        assert model.description.schema == wanted.description.schema
        for step, other in zip(model.ensemble.steps[:3], wanted.ensemble.steps, strict=False):
            np.testing.assert_array_equal(step.partition.categories.ranks, other.partition.categories.ranks)
            for name, array in vars(step.partition.tree).items():
                np.testing.assert_array_equal(getattr(other.partition.tree, name), array)


@pytest.mark.parametrize("X", [ARRAY, ARRAY[:, [0, 2]]], ids=["some columns", "all columns"])
def test_workers_with_declared_columns_of_arrays(X):
    declared = list(range(0, X.shape[1], 2)) if X.shape[1] == 3 else [0, 1]
    wanted = train(X, categorical_features=declared)
    owner = rng.integers(1, 3, N)  # the first has no rows

    def work(collective):
        rows = np.flatnonzero(owner == collective.rank)
        return train(X, rows=rows, categorical_features=declared, options={"collective": collective})

    for model in in_threads(3, work):
        assert model.description.schema == wanted.description.schema
        np.testing.assert_allclose(model.predict(X), wanted.predict(X), atol=1e-9)


def test_categories_beside_a_sample_of_many_columns(tmp_path):
    """A tree looks at some of the other columns, and at all pages of categories."""
    many = pd.DataFrame(np.random.default_rng(5).normal(size=(N, 20)), columns=[f"z{j}" for j in range(20)])
    many = pd.concat([FRAME, many], axis=1)
    settings = {"categorical_features": ["size"], "n_candidates": 4, "rounds": 40}
    wanted = train(many, **settings)
    assert r2(wanted, many) > 0.9
    assert {int(c) for step in wanted.ensemble.steps for c in step.partition.tree.column} & {21, 22} == {21, 22}
    assert_same_model(train(many, n_jobs=3, **settings), wanted)
    owner = rng.integers(0, 3, N)

    def work(collective):
        rows = np.flatnonzero(owner == collective.rank)
        return train(many, rows=rows, options={"collective": collective}, **settings)

    for model in in_threads(3, work):  # the start is a sum of floats
        for step, other in zip(model.ensemble.steps[:3], wanted.ensemble.steps, strict=False):
            for name, array in vars(step.partition.tree).items():
                np.testing.assert_array_equal(getattr(other.partition.tree, name), array)
    train(many, **settings | {"rounds": 15}).save_model(tmp_path / "m.gbun")
    assert_same_model(train(many, **settings | {"rounds": 25}, options={"init_model": tmp_path / "m.gbun"}), wanted)


def test_tensors_with_declared_columns():
    torch = pytest.importorskip("torch")
    wanted = train(ARRAY, categorical_features=[0, 2])
    tensor = torch.tensor(ARRAY)
    model = train(tensor, categorical_features=[0, 2])
    np.testing.assert_array_equal(model.predict(tensor), wanted.predict(ARRAY))
    networks = {"learner": "network", "n_neurons": 16, "device": "torch:cpu", "categorical_features": [0, 2]}
    np.testing.assert_allclose(
        train(tensor, **networks).predict(tensor), train(ARRAY, **networks).predict(ARRAY), atol=1e-6
    )


def test_declared_columns_of_arrays_and_of_frames_are_the_same():
    array = train(ARRAY, categorical_features=[0, 2])
    for X, declared in (
        (pd.DataFrame(ARRAY), ["2", "0"]),
        (pd.DataFrame(ARRAY), np.array([True, False, True])),
        (pd.DataFrame(ARRAY).astype({0: int, 2: "int8"}), (0, 2)),
        (pd.DataFrame(ARRAY).astype({0: "Int64", 2: "float32"}), (0, 2)),
        (pd.DataFrame(ARRAY).astype({0: int, 2: int}).astype({0: "category", 2: str}), "from_dtype"),
        (pl.DataFrame(ARRAY, schema=["0", "1", "2"]), ["0", "2"]),
    ):
        frame = train(X, categorical_features=declared)
        assert frame.description.schema.kind == "frame"
        np.testing.assert_array_equal(frame.predict(X), array.predict(ARRAY))
    same = train(ARRAY, categorical_features=[True, False, True])
    np.testing.assert_array_equal(same.predict(ARRAY.astype(np.float32)), array.predict(ARRAY.astype(np.float32)))
    np.testing.assert_array_equal(array.predict(pd.DataFrame(ARRAY)), array.predict(ARRAY))
    everything = train(ARRAY[:, [0, 2]].astype(int), categorical_features=[0, 1], rounds=60)
    assert r2(everything, ARRAY[:, [0, 2]]) > 0.6


@pytest.mark.parametrize("n_values", [2, 3])
def test_few_categories_are_split_as_their_indicators_are(n_values):
    """One of two or three against the others is all there is: the same leaves as of one-hot columns."""
    k = rng.integers(0, n_values, N)
    hot = (k[:, None] == np.arange(n_values)).astype(float)
    both = np.column_stack([k, x])
    settings = {"n_projections": 0, "rounds": 15}
    declared = train(both, y=Y + k, categorical_features=[0], **settings)
    plain = train(np.column_stack([hot, x]), y=Y + k, **settings)
    np.testing.assert_allclose(declared.predict(both), plain.predict(np.column_stack([hot, x])), atol=1e-5)


def test_categories_that_training_has_not_seen_count_as_missing():
    model = train(categorical_features=["size"])
    rows = FRAME.iloc[:50]
    missing, unseen = rows.assign(city=None, size=np.nan), rows.assign(city="somewhere", size=77)
    np.testing.assert_array_equal(model.predict(unseen), model.predict(missing))
    assert not np.array_equal(model.predict(missing), model.predict(rows))
    array = train(ARRAY, categorical_features=[0, 2])
    some = ARRAY[:50].copy()
    some[:, [0, 2]] = np.nan
    other = ARRAY[:50].copy()
    other[:, [0, 2]] = -5.5, 3e9
    np.testing.assert_array_equal(array.predict(other), array.predict(some))


@pytest.mark.parametrize("values", [["a"], ["a", "b"], [f"k{i}" for i in range(40)]], ids=len)
def test_missing_categories_are_learnt(values):
    city = rng.choice(values, N).astype(object)
    city[rng.random(N) < 0.3] = None
    y = np.array([value is None for value in city])
    frame = pd.DataFrame({"city": city, "x": x})
    model = train(frame, y=y, task="classification", rounds=25)
    assert (model.predict(frame) == y).all()
    assert (model.predict(frame[["city", "x"]].assign(city="unseen"))).all()


def test_missing_numbers_of_a_constant_column_are_learnt():
    X = np.column_stack([np.where(rng.random(N) < 0.3, np.nan, 4.0), x])
    y = np.isnan(X[:, 0])
    for declared in ("from_dtype", [0]):
        model = train(X, y=y, task="classification", rounds=25, categorical_features=declared)
        assert (model.predict(X) == y).all()


def test_thousands_of_categories():
    city = (4000 * rng.random(6000) ** 3).astype(int)
    y = np.where(city < 40, EFFECT[city % 30], 0.0) + 0.1 * rng.normal(size=6000)
    X = pd.DataFrame({"city": city})
    model = train(X, y=y, rounds=60, categorical_features=["city"])
    assert len(model.ensemble.steps[0].partition.categories.pages) == 8
    assert r2(model, X, y) > 0.8
    assert np.isfinite(model.predict(X.assign(city=X["city"] + 10**6))).all()


def test_as_accurate_as_lightgbm():
    lightgbm = pytest.importorskip("lightgbm")
    draw = np.random.default_rng(3)
    n = 6000
    codes = np.column_stack([draw.integers(0, size, n) for size in (5, 20, 50)])
    effects = [draw.normal(size=size) for size in (5, 20, 50)]
    z = draw.normal(size=n)
    signal = effects[0][codes[:, 0]] + effects[1][codes[:, 1]] * z + effects[2][codes[:, 2]] * (codes[:, 0] == 2)
    y = signal + 0.5 * draw.normal(size=n)
    X = pd.DataFrame(codes, columns=["a", "b", "c"]).astype("category").assign(z=z)
    fit, test = slice(0, 4000), slice(4000, n)
    peer = lightgbm.LGBMRegressor(n_estimators=150, num_leaves=15, verbose=-1, n_jobs=1).fit(X[fit], y[fit])
    model = gbun.train(TREE, (X[fit], y[fit]), 150, task="regression")
    error, of_peer = (np.mean((m.predict(X[test]) - y[test]) ** 2) for m in (model, peer))
    assert error < 1.15 * of_peer
    assert error < 0.4 * y[test].var()


def test_models_are_saved_and_continued(tmp_path):
    whole = train(rounds=9, categorical_features=["size"])
    path = tmp_path / "m.gbun"
    train(rounds=5, categorical_features=["size"]).save_model(path)
    loaded = gbun.load_model(path)
    np.testing.assert_array_equal(loaded.predict(FRAME), whole.predict(FRAME, n_rounds=5))
    for more in ({}, {"categorical_features": ["size"]}):
        assert_same_model(train(rounds=4, options={"init_model": path}, **more), whole)
    with pytest.raises(ValueError, match=r"categorical_features=.* differs from init_model's"):
        train(rounds=4, options={"init_model": path}, categorical_features=["x"])
    array = train(ARRAY, categorical_features=[0])
    array.save_model(path)
    np.testing.assert_array_equal(gbun.load_model(path).predict(ARRAY), array.predict(ARRAY))


def test_models_are_continued_on_other_rows(tmp_path):
    """There other categories are frequent: each tree keeps the bins it was grown with."""
    rows, others = np.flatnonzero(CITY < 20), np.flatnonzero(CITY >= 10)
    seen = []

    class Scores(Callback):
        def after_round(self, training, report):
            seen.append(training.rows.current_scores()[:, 0].copy())
            return False

    first = train(ARRAY, rows=rows, categorical_features=[0, 2], rounds=5)
    options = {"init_model": first, "callbacks": [Scores()]}
    model = train(ARRAY, rows=others, rounds=5, options=options)
    np.testing.assert_array_equal(model.predict(ARRAY[others]), seen[-1])
    np.testing.assert_array_equal(model.decision_function(ARRAY, n_rounds=5), first.decision_function(ARRAY))
    model.save_model(tmp_path / "m.gbun")
    np.testing.assert_array_equal(gbun.load_model(tmp_path / "m.gbun").predict(ARRAY), model.predict(ARRAY))


def test_files_without_categories_stay_as_they_were():
    model = train(ARRAY)
    learner = model.ensemble.learner
    assert "n_categories" not in learner.parameters()
    assert not {"mask", "bucket"} & set(learner.pack([step.partition for step in model.ensemble.steps]))


def test_a_forged_file_is_refused():
    model = train(categorical_features=["size"], rounds=8)
    learner, rounds = model.ensemble.learner, range(8)
    arrays = dict(learner.pack([step.partition for step in model.ensemble.steps]))
    assert len(learner.unpack(arrays, rounds)) == 8
    forged = {
        "mask": [arrays["mask"] * 0, arrays["mask"] | np.uint64(1), arrays["mask"][1:], ~(arrays["mask"] * 0)],
        "column": [arrays["column"] + 1],
        "n_buckets": [arrays["n_buckets"] * 0],
    }
    for name, changes in forged.items():
        for array in changes:
            with pytest.raises(ValueError, match=r"."):
                learner.unpack(arrays | {name: array}, rounds)
    for name in ("mask", "bucket"):
        with pytest.raises(ValueError, match="missing"):
            learner.unpack({key: array for key, array in arrays.items() if key != name}, rounds)
    for n_categories in (0, 2049, 2**31, True):
        parameters = learner.parameters() | {"n_categories": n_categories}
        with pytest.raises(ValueError, match="n_categories"):
            TreeLearner.from_parameters(parameters, None)
    with pytest.raises(ValueError, match="n_categories"):
        TreeLearner.from_parameters(learner.parameters(), 1)
    assert TreeLearner.from_parameters(json.loads(json.dumps(learner.parameters())), None) == learner


def test_the_learner_is_chosen_as_on_plain_columns():
    for X in (FRAME, FRAME[["city"]], ARRAY):
        declared = [0] if X is ARRAY else None
        model = gbun.train({"n_jobs": 1, "categorical_features": declared, "early_stopping_rounds": 5}, (X, Y), 10)
        assert isinstance(model.ensemble.learner, (TreeLearner, MixedLearner))
    rows = FRAME.assign(city=FRAME["city"].fillna("")).to_dict("records")
    assert gbun.train({"n_jobs": 1}, (rows, Y), 3).ensemble.learner.kind == "network"


@pytest.mark.parametrize(
    ("X", "declared", "message"),
    [
        (FRAME, ["town"], r"must be among the columns of X, \['city', 'x', 'size'\], got 'town'"),
        (ARRAY, ["town"], "has the name 'town', but columns of X have none"),
        (ARRAY, [3], "must be from 0 to 2, the last column of X, got 3"),
        (FRAME, [-1], "must be from 0 to 2, the last column of X, got -1"),
        (ARRAY, [True, False], "must have a flag for each of the 3 columns of X, got 2"),
        (ARRAY, [0, "x"], "categorical_features must be 'from_dtype', a list"),
        (ARRAY, "size", "categorical_features must be 'from_dtype', a list"),
        (ARRAY, [0.5], "categorical_features must be 'from_dtype', a list"),
        (ARRAY, 1, "categorical_features must be 'from_dtype', a list"),
        ([{"a": 1.0}] * N, ["a"], "X is a list of dicts or of token lists; leave it out"),
        (FRAME.assign(x=np.inf), ["x"], r"X\['x'\] has an infinite value in row 0"),
    ],
)
def test_bad_declarations_are_refused(X, declared, message):
    with pytest.raises(ValueError, match=message):
        gbun.train({"categorical_features": declared}, (X, Y), 2)


def test_prediction_wants_the_kinds_of_training():
    model = train(categorical_features=["size"])
    with pytest.raises(ValueError, match=r"X\['x'\] held numbers in training and holds categories now"):
        model.predict(FRAME.assign(x="a"))
    with pytest.raises(ValueError, match=r"X\['city'\] held categories in training and holds numbers now"):
        model.predict(FRAME.assign(city=1.0))
    array = train(ARRAY, categorical_features=[0, 2])
    with pytest.raises(ValueError, match="X has 2 features, the model was trained on 3"):
        array.predict(ARRAY[:, :2])
    with pytest.raises(ValueError, match="X must be a dense array of 3 columns as in training, got a data frame"):
        array.predict(FRAME)


def test_estimators(tmp_path):
    model = gbun.GBUNRegressor(categorical_features=["size"], n_estimators=5, learner="tree", n_jobs=1)
    model.fit(FRAME, Y)
    model.save_model(tmp_path / "m.gbun")
    again = gbun.GBUNRegressor.load_model(tmp_path / "m.gbun")
    assert again.categorical_features == ["size"]
    np.testing.assert_array_equal(again.predict(FRAME), model.predict(FRAME))
    flags = np.array([True, False, True])
    model = gbun.GBUNRegressor(categorical_features=flags, n_estimators=5, learner="tree", n_jobs=1).fit(ARRAY, Y)
    model.save_model(tmp_path / "m.gbun")
    assert gbun.GBUNRegressor.load_model(tmp_path / "m.gbun").categorical_features == [True, False, True]
    assert model.model_.description.schema.categorical == ("0", "2")


def test_the_plan_counts_bins_of_categories():
    few, many = TreeLearner(0, 5), TreeLearner(0, 5, n_categories=20)
    assert many.kept_bytes(1000, 1) - few.kept_bytes(1000, 1) >= 2 * 20 * 1000 + 8 * 64 * 20 * 31
    plan = gbun.plan({"learner": "tree"}, (FRAME, Y), task="regression")
    assert plan.n_bytes > 0
