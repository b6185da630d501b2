"""The scikit-learn contract of both estimators, and the quality of models with default parameters."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.estimator_checks import parametrize_with_checks

import gbun
from gbun import GBUNClassifier, GBUNRegressor
from gbun.config import parameter_fields

SMALL = {"n_estimators": 5, "n_neurons": 8, "density": 0.5}
ESTIMATORS = (GBUNClassifier, GBUNRegressor)
TASKS = ("regression", "outputs", "binary", "classes", "labels")
every_estimator = pytest.mark.parametrize("cls", ESTIMATORS)
every_task = pytest.mark.parametrize("task", TASKS)


def data(task="regression", n=120, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    signal = X[:, 0] * X[:, 1] + X[:, 2] + 0.1 * rng.normal(size=n)
    several = np.column_stack([signal, X[:, 3] - signal, X[:, 1]])
    y = {"regression": signal, "outputs": several, "binary": (signal > 0).astype(int)}
    y |= {"labels": (several > 0).astype(int), "classes": np.digitize(signal, [-0.7, 0.7])}
    return X, y[task]


def estimator(task, **parameters):
    cls = GBUNRegressor if task in ("regression", "outputs") else GBUNClassifier
    return cls(**{**SMALL, **parameters})


def scores(model, X, **given):
    return model.model_.decision_function(X, **given)


# The contract


@parametrize_with_checks([cls(n_estimators=10, n_neurons=16) for cls in ESTIMATORS])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@every_estimator
def test_parameters_are_those_of_the_library(cls):
    extra = {"class_weight"} if cls is GBUNClassifier else set()
    assert set(cls().get_params()) == {f.name for f in parameter_fields()} | extra
    assert all(cls().get_params()[f.name] == f.default for f in parameter_fields())


@every_estimator
def test_clone_set_params_and_repr(cls):
    model = cls(n_neurons=12, temperature=0.5)
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(n_neurons=24, scale="none") is model
    assert clone(model).n_neurons == 24
    assert repr(model) == f"{cls.__name__}(n_neurons=24, scale='none', temperature=0.5)"
    assert repr(cls()) == f"{cls.__name__}()"


@every_estimator
def test_parameters_are_checked_when_fitting_not_before(cls):
    model = cls(n_neurons=-1)
    model.set_params(learning_rate=7)
    with pytest.raises(ValueError, match=r"n_neurons must be an integer in .* got -1"):
        model.fit(*data("binary"))
    with pytest.raises(NotFittedError):
        model.predict(data()[0])


@every_task
def test_pipelines(task):
    X, y = data(task)
    plain = estimator(task, scale="none").fit(StandardScaler().fit_transform(X), y)
    scaled = make_pipeline(StandardScaler(), estimator(task, scale="none")).fit(X, y)
    np.testing.assert_array_equal(scaled.predict(X), plain.predict(StandardScaler().fit_transform(X)))
    logged = make_pipeline(FunctionTransformer(np.cbrt), estimator(task)).fit(X, y)
    np.testing.assert_array_equal(logged.predict(X), estimator(task).fit(np.cbrt(X), y).predict(np.cbrt(X)))


def test_grid_search_and_cross_validation():
    X, y = data("binary")
    grid = GridSearchCV(GBUNClassifier(**SMALL), {"n_neurons": [4, 8], "class_weight": [None, "balanced"]}, cv=3)
    found = grid.fit(X, y, sample_weight=np.ones(len(y)))
    assert set(found.best_params_) == {"n_neurons", "class_weight"}
    assert found.score(X, y) > 0.7
    assert cross_val_score(GBUNRegressor(**SMALL), *data(), cv=3).shape == (3,)
    assert cross_val_score(GBUNClassifier(**SMALL), X, y, cv=3, scoring="roc_auc").min() > 0.6


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["copy", "pickle"])
@every_task
def test_copies_predict_the_same(task, copied):
    X, y = data(task)
    model = estimator(task).fit(X, y)
    other = copied(model)
    np.testing.assert_array_equal(other.predict(X), model.predict(X))
    assert other.get_params() == model.get_params()
    np.testing.assert_array_equal(other.fit(X, y).predict(X), model.predict(X))


def test_names_and_number_of_features(tmp_path):
    X, y = data()
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = GBUNRegressor(**SMALL).fit(frame, y)
    assert model.feature_names_in_.tolist() == list("abcd")
    assert model.n_features_in_ == 4
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(X)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[list("bacd")])
    with pytest.raises(ValueError, match="another order"):
        GBUNRegressor(**SMALL).fit(frame, y, eval_set=(frame[list("bacd")], y))
    model.save_model(tmp_path / "m.gbun")
    assert GBUNRegressor.load_model(tmp_path / "m.gbun").feature_names_in_.tolist() == list("abcd")
    with pytest.raises(ValueError, match="another order"):
        gbun.load_model(tmp_path / "m.gbun").predict(frame[list("bacd")])
    model.fit([{"a": value} for value in y], y)
    assert not hasattr(model, "feature_names_in_")
    assert not hasattr(model, "n_features_in_")


# Labels, outputs and weights


@pytest.mark.parametrize("names", [["no", "yes"], [3, 17], [False, True], [-1.0, 2.0], ["b", "a", "c"], [5, 1, 9]])
@pytest.mark.parametrize("container", [np.array, list, pd.Series])
def test_labels_come_back_as_they_went_in(names, container):
    X, codes = data("classes" if len(names) == 3 else "binary")
    y = np.array(sorted(names))[codes]
    model = GBUNClassifier(**SMALL).fit(X, container(y))
    assert model.classes_.tolist() == sorted(names)
    assert model.predict(X).dtype == y.dtype
    np.testing.assert_array_equal(model.predict(X), model.classes_[model.predict_proba(X).argmax(axis=1)])
    coded = GBUNClassifier(**SMALL).fit(X, codes)
    np.testing.assert_array_equal(model.predict_proba(X), coded.predict_proba(X))


LINKS = {
    "binary": lambda s: np.column_stack([expit(-s), expit(s)]),
    "classes": lambda s: softmax(s, axis=1),
    "labels": expit,
}


@pytest.mark.parametrize("task", LINKS)
def test_probabilities_are_those_of_the_scores(task):
    X, y = data(task)
    model = estimator(task).fit(X, y)
    found = model.predict_proba(X)
    np.testing.assert_allclose(found, LINKS[task](model.decision_function(X)), rtol=1e-12, atol=1e-15)
    if task != "labels":
        np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
        np.testing.assert_array_equal(model.predict(X), model.classes_[found.argmax(axis=1)])


def test_several_labels():
    X, y = data("labels")
    model = GBUNClassifier(**{**SMALL, "n_neurons": 32, "n_estimators": 20}).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), model.predict_proba(X) > 0.5)
    assert [c.tolist() for c in model.classes_] == [[0, 1]] * 3
    assert (model.predict(X) == y).mean() > 0.85


def test_several_outputs():
    X, y = data("outputs")
    model = GBUNRegressor(**SMALL).fit(X, y)
    assert model.predict(X).shape == y.shape
    for c in range(3):  # one network serves all: each column is what it would be alone
        np.testing.assert_allclose(model.predict(X)[:, c], GBUNRegressor(**SMALL).fit(X, y[:, c]).predict(X), atol=1e-5)
    assert model.score(X, y) > 0.2


@pytest.mark.parametrize("given", [None, "weights"])
@pytest.mark.parametrize("class_weight", ["balanced", {0: 1.0, 1: 4.0, 2: 0.5}])
def test_class_weights_are_sample_weights(class_weight, given):
    X, y = data("classes")
    weight = None if given is None else np.linspace(0.5, 2.0, len(y))
    by_class = compute_sample_weight(class_weight, y) * (1.0 if weight is None else weight)
    a = GBUNClassifier(**SMALL, class_weight=class_weight).fit(X, y, sample_weight=weight)
    b = GBUNClassifier(**SMALL).fit(X, y, sample_weight=by_class)
    np.testing.assert_array_equal(scores(a, X), scores(b, X))
    assert not np.array_equal(scores(a, X), scores(GBUNClassifier(**SMALL).fit(X, y, sample_weight=weight), X))


# Prediction


@every_task
def test_stages_and_first_rounds(task):
    X, y = data(task)
    model = estimator(task).fit(X, y)
    methods = ["predict"] + ["predict_proba", "decision_function"] * (task not in ("regression", "outputs"))
    for method in methods:
        stages = list(getattr(model, f"staged_{method}")(X))
        assert len(stages) == 6
        for r, stage in enumerate(stages):
            np.testing.assert_array_equal(stage, getattr(model, method)(X, n_rounds=r))
        np.testing.assert_array_equal(stages[-1], getattr(model, method)(X))
    assert len(np.unique(np.atleast_2d(model.predict(X, n_rounds=0).T).T, axis=0)) == 1  # the start alone is constant


@every_task
def test_base_margin(task):
    X, y = data(task)
    first = estimator(task).fit(X, y)
    margin = scores(first, X)
    second = estimator(task, random_state=1).fit(X, y, base_margin=margin)
    zeros = np.zeros_like(margin)
    np.testing.assert_allclose(
        scores(second, X, base_margin=margin), margin + scores(second, X, base_margin=zeros), rtol=1e-12, atol=1e-12
    )
    np.testing.assert_array_equal(scores(second, X, base_margin=margin, n_rounds=0), margin)
    staged = list(second.staged_predict(X, base_margin=margin))
    np.testing.assert_array_equal(staged[-1], second.predict(X, base_margin=margin))
    if task == "regression":
        assert np.square(second.predict(X, base_margin=margin) - y).mean() < np.square(first.predict(X) - y).mean()


# Early stopping, files


@pytest.mark.parametrize("metric", [None, "auc", ["auc", "log_loss"], ["log_loss", "accuracy"]])
def test_early_stopping_restores_the_best_round(metric):
    X, y = data("binary", n=200)
    y = y ^ (np.random.default_rng(1).random(len(y)) < 0.3)
    model = GBUNClassifier(n_estimators=60, n_neurons=32, learning_rate=0.5, early_stopping_rounds=5)
    model.set_params(eval_metric=metric).fit(X[:120], y[:120], eval_set=[(X[:50], y[:50]), (X[120:], y[120:])])
    watched = [metric] if isinstance(metric, str) else metric or ["log_loss"]
    assert list(model.evals_result_) == ["eval_0", "eval_1"]
    assert list(model.evals_result_["eval_1"]) == watched
    series = model.evals_result_["eval_1"][watched[-1]]
    best = int(np.argmin(series) if watched[-1] == "log_loss" else np.argmax(series))
    assert len(series) == best + 6 < 60  # evals_result_ keeps all rounds that were tried
    assert (model.best_iteration_, model.n_estimators_, model.best_score_) == (best, best + 1, series[best])
    full = clone(model).set_params(early_stopping_rounds=None, n_estimators=best + 1).fit(X[:120], y[:120])
    np.testing.assert_array_equal(model.decision_function(X), full.decision_function(X))
    assert (full.best_iteration_, full.n_estimators_, full.evals_result_) == (None, best + 1, {})


@pytest.mark.parametrize("fraction", [0.1, 0.4, 0.8])
def test_early_stopping_without_an_evaluation_set_holds_rows_out(fraction):
    X, y = data("classes", n=200)
    seen = []
    model = GBUNClassifier(**SMALL, early_stopping_rounds=2, validation_fraction=fraction)
    model.set_params(eval_metric=("rows", lambda y, response, weight: seen.append(len(y)) or 1.0, True)).fit(X, y)
    assert len(set(seen)) == 1
    n_classes = len(np.unique(y))
    assert 200 * fraction - n_classes <= seen[0] <= 200 * fraction + 1e-6  # no class gives more than its share
    # Nothing improves on the start, so nothing but the start is kept.
    assert (len(model.evals_result_["validation"]["rows"]), model.n_estimators_, model.best_iteration_) == (2, 0, -1)


@every_task
def test_files(task, tmp_path):
    X, y = data(task)
    path = tmp_path / "model.gbun"
    model = estimator(task).fit(X, y)
    model.save_model(path)
    loaded = type(model).load_model(path)
    assert loaded.get_params() == model.get_params()
    assert (loaded.n_features_in_, loaded.n_estimators_) == (4, 5)
    for other in (loaded, gbun.load_model(str(path))):
        np.testing.assert_array_equal(other.predict(X), model.predict(X))
    if task not in ("regression", "outputs"):
        np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
        assert str(loaded.classes_) == str(model.classes_)
    wrong = GBUNClassifier if isinstance(model, GBUNRegressor) else GBUNRegressor
    with pytest.raises(ValueError, match=rf"{wrong.__name__} is for {wrong._task}"):
        wrong.load_model(path)


# Output


def test_a_progress_bar_on_the_error_stream(capfd):
    GBUNRegressor(**SMALL, verbose=1).fit(*data(), eval_set=data(seed=1))
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "5/5" in shown.err
    assert "rmse" in shown.err
    GBUNRegressor(**SMALL).fit(*data())
    assert capfd.readouterr() == ("", "")


def test_verbose_two_prints_every_round(capfd):
    GBUNRegressor(**SMALL, verbose=2).fit(*data(), eval_set=data(seed=1))
    shown = capfd.readouterr()
    assert shown.out == ""
    lines = [line for line in shown.err.splitlines() if line.startswith("round")]
    assert [line.split("  ")[0] for line in lines] == [f"round {r}" for r in range(1, 6)]
    assert "network outputs are kept in a buffer" in shown.err
    assert shown.err.count("rmse") == 6
    assert "start  eval_0 rmse" in shown.err


def test_every_kind_of_random_state():
    X, y = data()
    fit = {s: GBUNRegressor(**SMALL, random_state=s).fit(X, y).predict(X) for s in (None, 0, 7, np.int64(7), 2**63 - 1)}
    np.testing.assert_array_equal(fit[None], fit[0])
    assert len({p.tobytes() for p in fit.values()}) == 3
    for make in (np.random.RandomState, np.random.default_rng):
        a, b = (GBUNRegressor(**SMALL, random_state=make(3)).fit(X, y).predict(X) for _ in range(2))
        np.testing.assert_array_equal(a, b)
        moving = GBUNRegressor(**SMALL, random_state=make(3))
        assert not np.array_equal(moving.fit(X, y).predict(X), moving.fit(X, y).predict(X))


def test_fits_in_several_threads_do_not_disturb_each_other():
    jobs = [(task, *data(task, n=900, seed=s)) for s in range(2) for task in ("regression", "classes")]
    fit = lambda job: scores(estimator(job[0], n_neurons=64).fit(*job[1:]), job[1])  # noqa: E731
    alone = [fit(job) for job in jobs]
    with ThreadPoolExecutor(4) as pool:
        for found, wanted in zip(pool.map(fit, jobs), alone, strict=True):
            np.testing.assert_array_equal(found, wanted)


# Defaults


def spoiled(X):
    """Columns in units a million times apart, or a million away from zero, and missing values."""
    X = X.astype(np.float64)
    X[:, ::3] *= 1e6
    X[:, 1::3] += 1e6
    X[np.random.default_rng(0).random(X.shape) < 0.03] = np.nan
    return X


@pytest.mark.slow
@pytest.mark.parametrize(("load", "least"), [(load_breast_cancer, 0.94), (load_digits, 0.97), (load_diabetes, 0.2)])
def test_defaults_give_a_good_model_of_raw_data(load, least):
    X, y = load(return_X_y=True)
    train_X, test_X, train_y, test_y = train_test_split(spoiled(X), y, random_state=1)
    model = GBUNRegressor() if load is load_diabetes else GBUNClassifier()
    assert model.fit(train_X, train_y).score(test_X, test_y) > least


def test_scales():
    X, y = data()
    far = X * [1.0, 1e6, 1e-6, 1.0] + [0.0, 0.0, 0.0, 1e6]
    fit = lambda X, scale: GBUNRegressor(**SMALL, scale=scale, init="constant").fit(X, y).predict(X)  # noqa: E731
    np.testing.assert_allclose(fit(far, "auto"), fit(X, "auto"), atol=1e-3)
    np.testing.assert_array_equal(fit(far, "standard"), fit(far, "auto"))
    assert np.abs(fit(far, "none") - fit(X, "none")).max() > 0.1
    unit = (X - X.mean(axis=0)) / X.std(axis=0)
    np.testing.assert_allclose(fit(unit, "none"), fit(X, "auto"), atol=1e-4)


def test_evaluation_sets_come_as_a_list_or_as_a_tuple():
    X, y = data()
    fit = lambda sets: GBUNRegressor(**SMALL).fit(X, y, eval_set=sets).evals_result_  # noqa: E731
    pairs = (X[:50], y[:50]), (X[50:], y[50:], np.ones(len(y) - 50))
    assert list(fit(pairs)) == ["eval_0", "eval_1"]
    assert fit(pairs) == fit(list(pairs))
    assert fit(pairs[0]) == fit([pairs[0]])


# Messages


@every_estimator
def test_messages_begin_with_the_argument(cls):
    X, y = data("binary")
    wrong = {"a number": np.array(3.0), "three dimensions": np.zeros((120, 2, 2)), "nothing": np.zeros(0)}
    for values in wrong.values():
        for name, given in (("X", (values, y)), ("y", (X, values))):
            with pytest.raises((TypeError, ValueError), match=rf"^{name}: "):
                cls(**SMALL).fit(*given)
        with pytest.raises((TypeError, ValueError), match=r"^X: "):
            cls(**SMALL).fit(X, y).predict(values)
    with pytest.raises(ValueError, match=r"^X has 3 features, but"):
        cls(**SMALL).fit(X, y).predict(X[:, :3])


def test_an_estimator_loads_a_model_into_itself(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 3))
    fitted = GBUNClassifier(n_estimators=3, learning_rate=0.3).fit(X, X[:, 0] > 0)
    fitted.save_model(tmp_path / "m.gbun")
    empty = GBUNClassifier(n_jobs=1)
    assert empty.load_model(tmp_path / "m.gbun") is empty
    made = GBUNClassifier.load_model(tmp_path / "m.gbun")
    for each in (empty, made):
        np.testing.assert_array_equal(each.predict_proba(X), fitted.predict_proba(X))
        assert each.learning_rate == 0.3
    with pytest.raises(FileNotFoundError):
        empty.load_model(tmp_path / "none.gbun")
    np.testing.assert_array_equal(empty.predict(X), fitted.predict(X))


def test_class_weights_of_labels_that_look_like_numbers():
    X = np.random.default_rng(0).normal(size=(80, 3))
    y = (X[:, 0] > 0).astype(int)
    of_words = GBUNClassifier(n_estimators=3, class_weight={"0": 1.0, "1": 5.0}).fit(X, y.astype(str))
    of_numbers = GBUNClassifier(n_estimators=3, class_weight={0: 1.0, 1: 5.0}).fit(X, y)
    np.testing.assert_array_equal(of_words.predict_proba(X), of_numbers.predict_proba(X))
    with pytest.raises(ValueError, match=r"class_weight names \['2'\], which are not among the classes \['0', '1'\]"):
        GBUNClassifier(class_weight={"2": 1.0}).fit(X, y.astype(str))
