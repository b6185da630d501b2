"""Trees, and trees and networks in turn, as learners."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest

import gbun
from gbun.callbacks import Callback, Checkpoint
from gbun.collectives.threads import in_threads
from gbun.config import Parameters
from gbun.learners import MixedLearner, TreeLearner
from gbun.learners.tree import COLUMN_BYTES
from gbun.learners.tree_fitter import choose_direction
from tests.trainings import assert_same_model, train_rounds

KINDS = ["tree", "mixed"]
rng = np.random.default_rng(0)
X = rng.normal(size=(900, 6)).astype(np.float32)
X[:, 4] = rng.integers(0, 3, 900)
X[rng.random(X.shape) < 0.05] = np.nan
SIGNAL = np.nan_to_num(X[:, 0]) * np.nan_to_num(X[:, 1]) + np.nan_to_num(X[:, 2]) + (X[:, 4] == 1)
TARGETS = {
    "squared_error": SIGNAL,
    "huber": SIGNAL,
    "quantile": SIGNAL,
    "poisson": rng.poisson(np.exp(0.3 * SIGNAL)),
    "gamma": np.exp(0.5 * SIGNAL),
    "tweedie": np.maximum(SIGNAL, 0.0),
    "multi_squared_error": np.column_stack([SIGNAL, -SIGNAL]),
    "logistic": SIGNAL > 0.2,
    "softmax": np.digitize(SIGNAL, [-0.5, 0.5, 1.0]),
    "multi_logistic": np.column_stack([SIGNAL > 0, SIGNAL > 0.5]).astype(int),
}


def train(kind, objective="logistic", rounds=8, rows=slice(None), weight=None, options=(), **params):
    params = {"learner": kind, "objective": objective, "n_jobs": 1, "n_neurons": 16} | params
    params = {name: value for name, value in params.items() if kind == "mixed" or name != "n_neurons"}
    data = X[rows], TARGETS[objective][rows], None if weight is None else weight[rows]
    return gbun.train(params, data, rounds, **dict(options))


def baseline(objective):
    """The loss of the start."""
    return train("tree", objective, rounds=0)


@pytest.mark.parametrize("objective", TARGETS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_objective_is_learnt(kind, objective):
    y, model, start = TARGETS[objective], train(kind, objective, 40), baseline(objective)
    loss = [
        m.ensemble.objective.loss(y.astype(float), m.decision_function(X).reshape(len(X), -1)).mean()
        for m in (model, start)
    ]
    assert loss[0] < 0.9 * loss[1]


@pytest.mark.parametrize("n_candidates", [64, 3])
@pytest.mark.parametrize("objective", ["logistic", "squared_error", "softmax"])
@pytest.mark.parametrize("kind", KINDS)
def test_threads_and_workers_change_no_tree(kind, objective, n_candidates):
    weight = rng.integers(0, 4, len(X)) / 2.0
    wanted = train(kind, objective, weight=weight, n_candidates=n_candidates)
    assert_same_model(train(kind, objective, weight=weight, n_jobs=3, n_candidates=n_candidates), wanted)
    for size in (2, 3, 7):
        owner = rng.integers(0, size, len(X)) * (rng.random(len(X)) < 0.7)  # the first has most, the last few
        owner[owner == size - 2] = 0  # one has no rows

        def work(collective, owner=owner):
            rows = np.flatnonzero(owner == collective.rank)
            options = {"collective": collective}
            return train(kind, objective, rows=rows, weight=weight, options=options, n_candidates=n_candidates)

        for model in in_threads(size, work):
            for found, step in zip(model.ensemble.steps[:3], wanted.ensemble.steps, strict=False):
                for name, array in vars(step.partition.tree).items():
                    np.testing.assert_array_equal(getattr(found.partition.tree, name), array)


@pytest.mark.parametrize("n_candidates", [64, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_models_are_saved_continued_and_resumed(kind, n_candidates, tmp_path):
    some = {"n_candidates": n_candidates}
    path, whole = tmp_path / "m.gbun", train(kind, "softmax", 9, **some)
    train(kind, "softmax", 5, **some).save_model(path)
    loaded = gbun.load_model(path)
    np.testing.assert_array_equal(loaded.decision_function(X), whole.decision_function(X, n_rounds=5))
    assert_same_model(train(kind, "softmax", 4, options={"init_model": path}, **some), whole)

    class Stop(Callback):
        def after_round(self, training, report):
            if report.round == 6:
                raise KeyboardInterrupt
            return False

    checkpoint = tmp_path / "c.gbun"
    with pytest.raises(KeyboardInterrupt):
        train(kind, "softmax", 9, options={"callbacks": [Checkpoint(checkpoint, 2), Stop()]}, **some)
    assert_same_model(train(kind, "softmax", 9, options={"resume": checkpoint}, **some), whole)


def test_a_training_cut_short_twice_goes_on_with_the_same_candidates(tmp_path):
    checkpoint, some = tmp_path / "c.gbun", {"n_candidates": 3}
    whole, first = train("tree", rounds=11, **some), train("tree", rounds=4, **some)

    class Stop(Callback):
        def after_round(self, training, report):
            if report.round == 7:
                raise KeyboardInterrupt
            return False

    options = {"init_model": first, "callbacks": [Checkpoint(checkpoint, 1), Stop()]}
    with pytest.raises(KeyboardInterrupt):
        train("tree", rounds=7, options=options, **some)
    again = train("tree", rounds=7, options={"init_model": first, "resume": checkpoint}, **some)
    assert_same_model(again, whole)


def test_histograms_and_memory_of_many_columns():
    many = np.concatenate([rng.normal(size=(300, 400)), rng.integers(0, 3, (300, 100))], axis=1).astype(np.float32)
    y = many[:, 230] + many[:, 430]
    parameters = Parameters(learner="tree", objective="squared_error", n_jobs=1, n_candidates=40, n_projections=8)
    training = train_rounds((many, y), 12, parameters)
    fitter, learner = training.fitter, training.learner
    assert fitter.grower.base.columns.shape == (40, 300)
    assert fitter.grower._histograms.size == learner.n_leaves * (40 + 8) * 64
    columns = np.concatenate([step.partition.tree.column for step in training.steps])
    assert {230, 430} <= set(columns.tolist())  # which chance alone would hardly bring
    arrays = [
        fitter.candidates._all.by_row, fitter.candidates._all.by_column, *vars(fitter.candidates.rows).values(),
        fitter.projected.by_row, fitter.projected.by_column, fitter.filled, *fitter.grower._items,
        fitter.grower._histograms, fitter.g, fitter.h, fitter.one_g, fitter.one_h,
    ]  # fmt: skip
    of_threads, of_columns = 2 * fitter.grower._histograms.nbytes, 500 * COLUMN_BYTES
    kept = learner.kept_bytes(300, 1) - of_threads - of_columns
    assert 0.9 * kept < sum(array.nbytes for array in arrays) <= kept
    assert sum(array.nbytes for array in fitter.candidates._splits) <= of_columns


@pytest.mark.parametrize("kind", KINDS)
def test_prediction_is_that_of_training_and_of_each_row(kind):
    seen = []

    class Scores(Callback):
        def after_round(self, training, report):
            seen.append(training.rows.current_scores()[:, 0].copy())
            return False

    model = train(kind, rounds=6, options={"callbacks": [Scores()]})
    found = model.decision_function(X)
    np.testing.assert_array_equal(found, seen[-1])
    np.testing.assert_array_equal([model.decision_function(X[i : i + 1])[0] for i in range(40)], found[:40])
    np.testing.assert_array_equal(list(model.staged_decision_function(X))[-1], found)


def test_models_continued_on_other_rows_fill_in_what_each_tree_was_grown_with(tmp_path):
    seen, rows, others = [], np.arange(450), np.arange(450, 900)

    class Scores(Callback):
        def after_round(self, training, report):
            seen.append(training.rows.current_scores()[:, 0].copy())
            return False

    holes = X + 3.0 * (np.arange(900) >= 450)[:, None]
    holes[rng.random(X.shape) < 0.3] = np.nan
    params = {"learner": "tree", "n_jobs": 1}
    first = gbun.train(params, (holes[rows], SIGNAL[rows]), 6, task="regression")
    options = {"init_model": first, "callbacks": [Scores()]}
    model = gbun.train(params, (holes[others], SIGNAL[others]), 6, task="regression", **options)
    np.testing.assert_array_equal(model.predict(holes[others]), seen[-1])
    np.testing.assert_array_equal(model.predict(holes, n_rounds=6), first.predict(holes))
    model.save_model(tmp_path / "m.gbun")
    np.testing.assert_array_equal(gbun.load_model(tmp_path / "m.gbun").predict(holes), model.predict(holes))


@pytest.mark.parametrize("kind", KINDS)
def test_what_prediction_keeps_is_not_pickled(kind):
    model = train(kind, rounds=9)
    size, score = len(pickle.dumps(model)), model.decision_function(X)
    assert all(run.packed is not None for run in model.ensemble.runs if run[0].partition.n_trees)
    assert model.ensemble.runs[0] is model.ensemble.runs[0]
    assert len(pickle.dumps(model)) == size
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decision_function(X), score)
    assert again.to_bytes() == model.to_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_rounds_one_by_one_give_the_scores_of_all(kind):
    model = train(kind, "softmax", rounds=9)
    *_, last = model.staged_decision_function(X, n_jobs=1)
    np.testing.assert_array_equal(last, model.decision_function(X))
    np.testing.assert_array_equal(model.decision_function(X, n_rounds=5), list(model.staged_decision_function(X))[5])


def test_missing_values_are_learnt(tmp_path):
    x = rng.normal(size=(600, 2))
    x[rng.random(600) < 0.3, 0] = np.nan
    y = np.isnan(x[:, 0])
    model = gbun.train({"learner": "tree", "objective": "logistic"}, (x, y), 20)
    assert (model.predict(x) == y).all()
    assert any(np.isinf(step.partition.tree.threshold).any() for step in model.ensemble.steps)  # missing against others
    model.save_model(tmp_path / "m.gbun")
    np.testing.assert_array_equal(gbun.load_model(tmp_path / "m.gbun").predict(x), y)


def test_one_column_functions_are_learnt():
    x = rng.normal(size=(500, 1))
    for y in (x[:, 0], x[:, 0] ** 2, np.sin(2 * x[:, 0])):
        model = gbun.train({"learner": "tree", "min_leaf_rows": 1}, (x, y), 200, task="regression")
        assert 1 - np.mean((model.predict(x) - y) ** 2) / y.var() > 0.99


@pytest.mark.parametrize("objective", ["poisson", "gamma", "tweedie"])
def test_steps_are_bounded_where_tails_are_heavy(objective):
    """Newton's steps of a log link would make predictions of any size."""
    heavy = np.random.default_rng(3).normal(size=(4000, 6))
    mean = np.exp(2.0 * heavy[:, 0] + 0.5 * heavy[:, 1])
    y = mean * np.random.default_rng(4).gamma(0.5, 2.0, 4000) + 1e-3
    y = y.round() if objective == "poisson" else y
    params = {"learner": "tree", "objective": objective, "n_jobs": 1}
    model, start = (gbun.train(params, (heavy[:2000], y[:2000]), n) for n in (100, 0))
    for rows in (slice(2000), slice(2000, None)):
        losses = [m.ensemble.objective.loss(y[rows], m.decision_function(heavy[rows])[:, None]) for m in (model, start)]
        assert losses[0].mean() < losses[1].mean()
    assert model.predict(heavy).max() < 2.0 * y.max()


def test_the_unit_of_weights_is_immaterial():
    wanted = train("tree", "squared_error", weight=np.ones(len(X))).decision_function(X)
    for unit in (1e-300, 1e-45, 1e38, 1e100):
        found = train("tree", "squared_error", weight=np.full(len(X), unit)).decision_function(X)
        np.testing.assert_allclose(found, wanted, atol=0.05)


def test_columns_that_float32_cannot_tell_apart_are_named():
    shifted = np.column_stack([SIGNAL, SIGNAL.astype(float) + 1e9])
    with pytest.warns(UserWarning, match=r"in column '1': trees see float32"):
        gbun.train({"learner": "tree"}, (shifted, SIGNAL), 2, task="regression")


@pytest.mark.parametrize(
    "given", [{"n_leaves": 7}, {"n_projections": 0}, {"min_leaf_rows": 9}, {"n_candidates": 3}, {"random_state": 5}]
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_continued_model_keeps_its_trees(kind, given):
    first = train(kind, rounds=3)
    with pytest.raises(ValueError, match=rf"{next(iter(given))}=.* differs from init_model's .*; leave it out"):
        gbun.train(given, (X, TARGETS["logistic"]), 2, init_model=first)


def test_very_many_classes_have_trees_alone():
    y = rng.permutation(np.arange(900) % 150)
    points = rng.normal(size=(150, 6))[y] + 0.1 * rng.normal(size=(900, 6))
    model = gbun.train({"n_jobs": 1}, (points, y), 30, task="classification")
    assert model.ensemble.learner.kind == "tree"
    assert (model.predict(points) == y).mean() > 0.8
    assert (
        gbun.train({"hessian": "per_class"}, (points, y), 1, task="classification").ensemble.learner.kind == "network"
    )


def test_rows_of_weight_zero_change_nothing():
    weight = (rng.random(len(X)) < 0.6).astype(float)
    kept = np.flatnonzero(weight)
    found, wanted = train("tree", weight=weight), train("tree", rows=kept)
    np.testing.assert_allclose(found.decision_function(X), wanted.decision_function(X), atol=1e-6)


@pytest.mark.parametrize(
    ("params", "rows", "message"),
    [
        ({"n_neurons": 16}, X, "n_neurons=16 is a parameter of networks"),
        ({"gram_rows": 0.5}, X, "gram_rows=0.5 is a parameter of normal equations"),
        ({"memory_budget": 1000}, X, "got 1000 bytes; a smaller n_leaves needs less"),
        ({"device": "torch:cpu"}, X, "learner='tree' is computed on device='cpu' only"),
        ({}, [{"a": 1.0}] * len(X), "learner='tree' splits dense columns, X has none"),
        ({"n_leaves": 1}, X, "n_leaves must be"),
        ({"learner": "trees"}, X, "learner must be one of"),
        ({"learner": "network", "n_leaves": 9}, X, "n_leaves=9 is a parameter of trees"),
    ],
)
def test_bad_input_is_refused(params, rows, message):
    with pytest.raises(ValueError, match=message):
        gbun.train({"learner": "tree", "objective": "logistic"} | params, (rows, SIGNAL > 0), 3)


def test_a_forged_tree_is_refused():
    learner = TreeLearner(seed=0, n_columns=6)
    partitions = [step.partition for step in train("tree", n_leaves=31, n_projections=24).ensemble.steps]
    arrays = dict(learner.pack(partitions))
    assert len(learner.unpack(arrays, range(8))) == 8
    forged = {
        "column": arrays["column"] + 6,
        "left": np.zeros_like(arrays["left"]),
        "right": arrays["right"] + 1000,
        "n_leaves": arrays["n_leaves"] + 1,
        "fill": arrays["fill"][:3],
        "threshold": arrays["threshold"].astype(float),
    }
    for name, array in forged.items():
        with pytest.raises(ValueError, match=r"."):
            learner.unpack(arrays | {name: array}, range(8))


def test_parameters_are_written_and_read():
    for kind in (TreeLearner, MixedLearner):
        learner = train("tree" if kind is TreeLearner else "mixed", rounds=0).ensemble.learner
        assert isinstance(learner, kind)
        assert kind.from_parameters(json.loads(json.dumps(learner.parameters())), 6) == learner
    other = TreeLearner(0, 6, n_candidates=65)
    assert TreeLearner.from_parameters(other.parameters(), 6) == other
    assert "n_candidates" not in TreeLearner(0, 6).parameters()  # as files had it
    with pytest.raises(ValueError, match="n_columns must be the schema's"):
        TreeLearner.from_parameters(TreeLearner(0, 5).parameters(), 6)
    with pytest.raises(ValueError, match="n_leaves must be an integer"):
        TreeLearner.from_parameters(replace(TreeLearner(0, 6), n_leaves=1).parameters(), 6)


def test_directions_are_balanced():
    for C in (2, 3, 7, 100):
        d = choose_direction(0, 5, C)
        assert abs(float(d.sum())) < 1e-4
        assert (np.abs(d) > 0).all()
    assert not np.array_equal(choose_direction(0, 1, 50), choose_direction(0, 2, 50))
