"""The native API: `train` and `cv`, callbacks, continuing, and that every objective learns."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import gbun
from gbun import Dataset, Parameters
from gbun.callbacks import (
    Callback,
    Checkpoint,
    EarlyStopping,
    History,
    LearningRateSchedule,
    Log,
    ProgressBar,
    TimeBudget,
)
from gbun.defaults import choose_n_neurons
from gbun.metrics import METRICS
from gbun.objectives import OBJECTIVES
from gbun.splits import assign_folds
from tests.trainings import assert_same_model

SMALL = {"n_neurons": 8, "density": 0.5}
OVERFIT = {"n_neurons": 64, "learning_rate": 0.8, "density": 0.5}


def data(n=160, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, X[:, 0] * X[:, 1] + X[:, 2] + noise * rng.normal(size=n)


TRAIN, TEST = data(), data(seed=1)
NOISY, NOISY_TEST = data(noise=2.0), data(seed=1, noise=2.0)


def curve(rounds, metrics=None, evals=(("test", TEST),)):
    """The history of a training."""
    history, named = History(), dict(evals) if isinstance(evals, tuple) else evals
    gbun.train({**SMALL, "eval_metric": metrics}, TRAIN, rounds, evals=named, callbacks=[history])
    return history.values


# Parameters and data


def test_parameters_come_as_a_dict_as_an_object_or_not_at_all():
    wanted = gbun.train({**SMALL, "n_estimators": 3}, TRAIN)
    assert_same_model(gbun.train(Parameters(**SMALL, n_estimators=3), TRAIN), wanted)
    assert_same_model(gbun.train({**SMALL, "n_estimators": 99}, TRAIN, 3), wanted)
    assert (wanted.n_rounds, wanted.classes) == (3, None)
    assert repr(wanted).startswith("<gbun.Model: regression, objective squared_error, 3 rounds of 8 neurons")
    assert gbun.train(None, TRAIN, 2).ensemble.learner.family.n_outputs == choose_n_neurons(160) == 16
    given = dict(SMALL)
    gbun.train(given, TRAIN, 1)
    assert given == SMALL


def test_an_unknown_name_is_met_with_a_suggestion():
    with pytest.raises(ValueError, match="unknown parameter 'n_neuron'; did you mean 'n_neurons'"):
        gbun.train({"n_neuron": 1}, TRAIN)
    with pytest.raises(ValueError, match="unknown parameter 'xyz'; known are objective, n_estimators"):
        gbun.cv({"xyz": 1}, TRAIN)


def test_data_comes_as_a_tuple_or_a_dataset():
    X, y = TRAIN
    weight, margin = np.linspace(0, 2, len(y)), np.sin(y)
    for given in [(X, y), (X, y, weight), (X, y, weight, margin), (X, y, None, margin)]:
        assert_same_model(gbun.train(SMALL, given, 3), gbun.train(SMALL, Dataset(*given), 3))
    weighted = gbun.train(SMALL, (X, y, weight), 3)
    assert not np.array_equal(weighted.predict(X), gbun.train(SMALL, TRAIN, 3).predict(X))


@pytest.mark.parametrize(
    ("y", "task", "found"),
    [
        ([0, 1] * 80, None, "regression"),
        ([0, 1] * 80, "classification", "classification"),
        ([False, True] * 80, None, "classification"),
        (["a", "b"] * 80, None, "classification"),
        ([[0, 1], [1, 1]] * 80, "classification", "multilabel"),
    ],
)
def test_the_task_is_given_or_told_by_the_targets(y, task, found):
    assert gbun.train(SMALL, (TRAIN[0], y), 2, task=task).description.task == found


# Evaluation sets and metrics


def test_evaluation_sets_by_name_and_in_pairs():
    named = curve(4, evals={"train": TRAIN, "test": TEST})
    paired = curve(4, evals=[(TRAIN, "train"), (Dataset(*TEST), "test")])
    assert named == paired
    assert list(named) == ["train", "test"]
    assert len(named["test"]["rmse"]) == 4
    model = gbun.train(SMALL, TRAIN, 4)
    for name, (X, y) in (("train", TRAIN), ("test", TEST)):
        wanted = [np.sqrt(np.square(stage - y).mean()) for stage in list(model.staged_predict(X))[1:]]
        np.testing.assert_allclose(named[name]["rmse"], wanted, rtol=1e-12)


def test_weights_and_margins_of_evaluation_sets():
    X, y = TEST
    weight = np.arange(len(y)) % 2
    half = curve(3, evals={"test": (X[1::2], y[1::2])})
    np.testing.assert_allclose(curve(3, evals={"test": (X, y, weight)})["test"]["rmse"], half["test"]["rmse"])
    moved = curve(3, evals={"test": (X, y, None, y)})["test"]["rmse"]
    assert moved[0] < half["test"]["rmse"][0]


def worst(y, response, weight):
    return np.abs(y - response).max()


def test_several_metrics_and_functions():
    values = curve(3, ["mae", worst, ("gain", lambda y, r, w: 7.0, True), "rmse"])["test"]
    assert list(values) == ["mae", "worst", "gain", "rmse"]
    assert values["gain"] == [7.0] * 3
    assert values["mae"][-1] < values["rmse"][-1] < values["worst"][-1]
    assert list(curve(1, worst)["test"]) == ["worst"]
    assert list(curve(1, ("gain", lambda y, r, w: 7.0, True))["test"]) == ["gain"]


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_can_be_watched(name):
    X, y = TRAIN
    classes = name in ("log_loss", "brier", "error", "accuracy", "macro_precision", "macro_f1", "auc")
    classes |= name == "average_precision"
    targets = {False: [np.abs(y) + 0.1], True: [y > 0, np.digitize(y, [-0.5, 0.5])]}[classes]
    for target in targets:
        history, task = History(), "classification" if classes else None
        params = {**SMALL, "n_neurons": 32, "eval_metric": name, "objective": "auto" if classes else "gamma"}
        gbun.train(params, (X, target), 30, evals={"self": (X, target)}, callbacks=[history], task=task)
        (series,) = history.values["self"].values()
        assert np.isfinite(series).all()
        better = gbun.metrics.get_metric(name).higher_is_better
        assert (series[-1] > series[0]) == better


# Early stopping


@pytest.mark.parametrize("way", ["parameter", "callback"])
def test_early_stopping_restores_the_best_round(way):
    history = History()
    params = {**OVERFIT, "early_stopping_rounds": 4 if way == "parameter" else None}
    callbacks = [history] if way == "parameter" else [EarlyStopping(4), history]
    model = gbun.train(params, NOISY, 80, evals={"test": NOISY_TEST}, callbacks=callbacks)
    series = history.values["test"]["rmse"]
    best = int(np.argmin(series))
    assert len(series) == len(history.seconds) == best + 5 < 80
    assert history.seconds == sorted(history.seconds)
    assert (model.n_rounds, model.description.best_round) == (best + 1, best)
    assert model.description.best_score == series[best]
    assert_same_model(model, gbun.train(OVERFIT, NOISY, best + 1))


def test_early_stopping_watches_what_it_is_told_to():
    evals, params = {"train": NOISY, "test": NOISY_TEST}, {**OVERFIT, "eval_metric": ["mae", "rmse"]}
    last = gbun.train(params, NOISY, 30, evals=evals, callbacks=[EarlyStopping(3)])
    told = gbun.train(params, NOISY, 30, evals=evals, callbacks=[EarlyStopping(3, name="test", metric="rmse")])
    assert_same_model(last, told)
    first = gbun.train(params, NOISY, 30, evals=evals, callbacks=[EarlyStopping(3, name="train", metric="mae")])
    assert first.n_rounds == 30 > last.n_rounds  # the training set only gets better
    coarse = gbun.train(params, NOISY, 30, evals=evals, callbacks=[EarlyStopping(3, name="train", min_delta=1e3)])
    assert (coarse.n_rounds, coarse.description.best_round) == (0, -1)
    with pytest.raises(ValueError, match=r"min_gain must be in \[0, 1\), got 1"):
        EarlyStopping(3, min_gain=1)


# Callbacks


class Reader(Callback):
    """Loads the checkpoint after each round."""

    last = True

    def __init__(self, path):
        self.path, self.rounds = path, []

    def after_round(self, training, report):
        self.rounds.append(gbun.load_model(self.path).n_rounds if self.path.exists() else 0)
        return False


def test_a_checkpoint_is_a_model_at_each_step(tmp_path):
    path = tmp_path / "c.gbun"
    reader = Reader(path)
    model = gbun.train(SMALL, TRAIN, 8, callbacks=[Checkpoint(path, every=3), reader])
    assert reader.rounds == [0, 0, 3, 3, 3, 6, 6, 6]
    assert_same_model(gbun.load_model(path), model)  # written at the end as well
    assert [file.name for file in tmp_path.iterdir()] == ["c.gbun"]


class Trip(Callback):
    """An objective that raises in a round of the user's choice."""

    def __init__(self, at, error):
        self.at, self.error, self.round = at, error, -1

    def before_round(self, training, round_):
        self.round = round_

    def objective(self, y, scores, weight):
        if self.round == self.at:
            raise self.error("tripped")
        return weight * (scores - y), weight


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize("stopping", [None, 2])
def test_an_interrupt_leaves_a_checkpoint_to_go_on_from(error, stopping, tmp_path):
    path, trip, never = tmp_path / "c.gbun", Trip(5, error), Trip(-2, error)
    params = {**SMALL, "early_stopping_rounds": stopping}
    with pytest.raises(error, match="tripped"):
        gbun.train({**params, "objective": trip.objective}, TRAIN, 20, evals={"test": TEST},
                   callbacks=[ProgressBar(), Checkpoint(path, every=100), trip])  # fmt: skip
    five = gbun.train({**SMALL, "objective": never.objective}, TRAIN, 5)
    assert_same_model(gbun.load_model(path), five)
    np.testing.assert_array_equal(gbun.load_model(path).predict(TEST[0]), five.predict(TEST[0]))
    continued = gbun.train({**SMALL, "objective": never.objective}, TRAIN, 4, init_model=path)
    assert_same_model(continued, gbun.train({**SMALL, "objective": never.objective}, TRAIN, 9))


def test_an_interrupt_in_the_first_round_leaves_no_checkpoint(tmp_path):
    trip = Trip(0, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        gbun.train({**SMALL, "objective": trip.objective}, TRAIN, 9, callbacks=[Checkpoint(tmp_path / "c.gbun"), trip])
    assert not list(tmp_path.iterdir())


class Raising(Callback):
    """Raises after round 3; with `again`, once more when it is told that training has failed."""

    def __init__(self, again=False):
        self.again = again

    def after_round(self, training, report):
        if report.round == 3:
            raise LookupError("in a callback")
        return False

    def on_failure(self, training):
        if self.again:
            raise OSError("disk full")


def test_an_error_of_a_metric_at_its_first_call_leaves_no_checkpoint(tmp_path):
    def metric(y, response, weight):
        raise LookupError("in a metric")

    with pytest.raises(LookupError, match="in a metric"):
        gbun.train(
            {**SMALL, "eval_metric": metric}, TRAIN, 9, evals={"t": TEST}, callbacks=[Checkpoint(tmp_path / "c")]
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("where", ["callback", "metric"])
def test_an_error_of_a_callback_or_a_metric_ends_training_and_leaves_a_checkpoint(where, tmp_path):
    calls = []

    def metric(y, response, weight):
        calls.append(1)
        if where == "metric" and len(calls) == 5:  # of the start and four rounds
            raise LookupError("in a metric")
        return float("nan")  # a number, as far as nobody watches it

    callbacks = [Raising()] * (where == "callback") + [Checkpoint(tmp_path / "c.gbun", every=100)]
    with pytest.raises(LookupError, match=f"^'?in a {where}"):
        gbun.train({**SMALL, "eval_metric": metric}, TRAIN, 9, evals={"test": TEST}, callbacks=callbacks)
    assert gbun.load_model(tmp_path / "c.gbun").n_rounds == 4


def test_every_callback_learns_of_a_failure_though_one_of_them_fails_again(tmp_path):
    path = tmp_path / "c.gbun"
    with pytest.raises(OSError, match="disk full") as raised:
        gbun.train(SMALL, TRAIN, 9, callbacks=[Raising(again=True), Checkpoint(path, every=100)])
    assert isinstance(raised.value.__context__, LookupError)
    assert gbun.load_model(path).n_rounds == 4


@pytest.mark.parametrize("first", ["checkpoint", "stopping"])
def test_a_checkpoint_holds_the_best_round_in_the_end(first, tmp_path):
    callbacks = [Checkpoint(tmp_path / "c.gbun", every=1), EarlyStopping(3)][:: 1 if first == "checkpoint" else -1]
    model = gbun.train(OVERFIT, NOISY, 60, evals={"test": NOISY_TEST}, callbacks=callbacks)
    kept = gbun.load_model(tmp_path / "c.gbun")
    assert_same_model(kept, model)
    assert kept.description.best_round == model.description.best_round == model.n_rounds - 1


def test_a_schedule_sets_the_learning_rate_of_each_round():
    constant = gbun.train(SMALL, TRAIN, 4, callbacks=[LearningRateSchedule(lambda t: 0.2)])
    assert_same_model(constant, gbun.train({**SMALL, "learning_rate": 0.2}, TRAIN, 4))
    rates = [0.2, 0.2, 0.05, 0.2]
    slower = gbun.train(SMALL, TRAIN, 4, callbacks=[LearningRateSchedule(rates.__getitem__)])
    np.testing.assert_array_equal(slower.ensemble.heads[:2], constant.ensemble.heads[:2])
    np.testing.assert_allclose(slower.ensemble.heads[2], constant.ensemble.heads[2] / 4, rtol=1e-5)
    more = gbun.train(SMALL, TRAIN, 2, init_model=gbun.train({**SMALL, "learning_rate": 0.2}, TRAIN, 2),
                      callbacks=[LearningRateSchedule(rates.__getitem__)])  # fmt: skip
    assert_same_model(more, slower)  # the rounds of a continued training go on counting


@pytest.mark.parametrize(("seconds", "n_rounds"), [(1e-9, 1), (20.0, 2), (25.0, 3), (3600.0, 5)])
def test_a_time_budget_ends_training(seconds, n_rounds, monkeypatch):
    """By a clock that advances 10 s a round."""
    now = [0.0]
    monkeypatch.setattr("gbun.callbacks.stopping.perf_counter", lambda: now[0])

    class Clock(Callback):
        def before_round(self, training, round_):
            now[0] += 10.0

    assert gbun.train(SMALL, TRAIN, 5, callbacks=[TimeBudget(seconds), Clock()]).n_rounds == n_rounds


def test_a_progress_bar_ends_with_its_training(capfd):
    gbun.train(SMALL, TRAIN, 4, evals={"test": TEST}, callbacks=[ProgressBar("my model")])
    shown = capfd.readouterr()
    assert shown.out == ""
    assert all(word in shown.err for word in ("my model", "4/4", "test rmse"))


# Cross-validation


def test_cross_validation_trains_on_all_folds_but_one():
    X, y = TRAIN
    found = gbun.cv({**SMALL, "eval_metric": ["mae", "rmse"]}, TRAIN, 4, nfold=3, seed=5)
    assert list(found) == ["valid mae-mean", "valid mae-std", "valid rmse-mean", "valid rmse-std"]
    fold, values = assign_folds(y, 3, 5, by_class=False), []
    for k in range(3):
        history, valid = History(), (X[fold == k], y[fold == k])
        gbun.train(SMALL, (X[fold != k], y[fold != k]), 4, evals={"valid": valid}, callbacks=[history])
        values.append(history.values["valid"]["rmse"])
    np.testing.assert_allclose(found["valid rmse-mean"], np.mean(values, axis=0), rtol=1e-12)
    np.testing.assert_allclose(found["valid rmse-std"], np.std(values, axis=0), rtol=1e-9)
    assert found != gbun.cv(SMALL, TRAIN, 4, nfold=3, seed=6)
    assert len(gbun.cv({**SMALL, "n_estimators": 2}, Dataset(*TRAIN))["valid rmse-mean"]) == 2


def test_cross_validation_stops_by_the_mean_of_the_folds():
    full = gbun.cv(OVERFIT, NOISY, 30, nfold=3)
    best = int(np.argmin(full["valid rmse-mean"]))
    stopped = gbun.cv({**OVERFIT, "early_stopping_rounds": 4}, NOISY, 30, nfold=3)
    assert best < 26
    assert stopped == {name: series[: best + 1] for name, series in full.items()}


@pytest.mark.parametrize("stratified", [True, False])
def test_folds_have_a_like_share_of_each_class(stratified):
    counts = []
    params = {**SMALL, "eval_metric": lambda y, response, weight: counts.append(int(y.sum())) or 0.0}
    gbun.cv(params, (TRAIN[0], np.arange(160) < 20), 1, nfold=4, stratified=stratified)
    assert (counts == [5] * 4) == stratified
    assert sum(counts) == 20


def test_a_metric_without_a_value_does_not_end_a_cross_validation_without_early_stopping():
    found = gbun.cv({**SMALL, "eval_metric": "auc"}, (TRAIN[0], np.arange(160) < 1), 2, nfold=4)
    assert np.isnan(found["valid auc-mean"]).all()


# Continuing


def test_a_checkpoint_of_another_training_is_refused_where_its_rounds_do_not_fit(tmp_path):
    """Other rows and other rates are not refused: rounds are added for them, as with `init_model`."""
    path, (X, y) = tmp_path / "c.gbun", TRAIN
    first = gbun.train(SMALL, TRAIN, 3, callbacks=[Checkpoint(path)])
    for params, rows, message in (
        (SMALL, (X[:, :3], y), rf"other columns: an array of {X.shape[1]} columns, got an array of 3 columns"),
        (SMALL, (pd.DataFrame(X).add_prefix("c"), y), "other columns: columns without names, got named columns"),
        (SMALL, (X, np.where(y > 0, "a", "b")), "resume was trained with objective 'squared_error' and 1 score"),
        ({**SMALL, "n_neurons": 16}, TRAIN, "n_neurons=16 differs from resume's 8; leave it out"),
    ):
        with pytest.raises(ValueError, match=message):
            gbun.train(params, rows, 5, resume=path)
    mixed = gbun.train({**SMALL, "learning_rate": 0.02}, TEST, 5, resume=path)
    np.testing.assert_array_equal(mixed.ensemble.heads[:3], first.ensemble.heads)
    assert mixed.n_rounds == 5


def test_a_model_is_continued_with_other_rates_and_other_rows(tmp_path):
    first = gbun.train({**SMALL, "learning_rate": 0.3}, TRAIN, 3)
    first.save_model(tmp_path / "m.gbun")
    for start in (first, tmp_path / "m.gbun", str(tmp_path / "m.gbun")):
        more = gbun.train({"learning_rate": 0.05}, TEST, 2, init_model=start)
        np.testing.assert_array_equal(more.ensemble.heads[:3], first.ensemble.heads)
        np.testing.assert_array_equal(more.ensemble.start.constant, first.ensemble.start.constant)
        assert (more.n_rounds, first.n_rounds) == (5, 3)
    history = History()
    params = {**OVERFIT, "early_stopping_rounds": 3}
    ten = gbun.train(OVERFIT, NOISY, 2)
    model = gbun.train(params, NOISY, 50, evals={"test": NOISY_TEST}, init_model=ten, callbacks=[history])
    series = [history.start["test"]["rmse"], *history.values["test"]["rmse"]]
    assert model.n_rounds == model.description.best_round + 1 == 2 + int(np.argmin(series))


CONTRADICTIONS = {"n_neurons": 16, "temperature": 0.7, "group_size": 4, "density": 0.3, "scale": "none"}


@pytest.mark.parametrize("name", [*CONTRADICTIONS, "random_state"])
def test_parameters_that_contradict_the_model_are_refused(name):
    first = gbun.train(SMALL, TRAIN, 2)
    with pytest.raises(ValueError, match=rf"{name}=.* differs from init_model's .*; leave it out"):
        gbun.train({name: CONTRADICTIONS.get(name, 5)}, TRAIN, 2, init_model=first)


def test_what_the_model_has_may_be_asked_for_again():
    """What counts is what a parameter comes to, not how it was given: None is the model's own value."""
    first = gbun.train(SMALL, TRAIN, 2)
    family = first.ensemble.learner.family
    names = ("temperature", "temperature_doublings", "density", "group_size")
    own = {name: getattr(family, name) for name in names}
    wanted = gbun.train(SMALL, TRAIN, 4)
    for given in ({}, own, {**own, "n_neurons": 8, "scale": first.ensemble.scaling.name, "random_state": 0}):
        assert_same_model(gbun.train({**SMALL, **given}, TRAIN, 2, init_model=first), wanted)
    assert (family.temperature, family.temperature_doublings, family.seed) == (1.0, 3, 0)  # of few columns
    seeded = {**SMALL, "random_state": 3}
    second = gbun.train({}, TRAIN, 2, init_model=gbun.train(seeded, TRAIN, 2))
    assert second.description.parameters["n_neurons"] == 8
    assert_same_model(gbun.train(seeded, TRAIN, 2, init_model=second), gbun.train(seeded, TRAIN, 6))


def test_an_objective_with_other_parameters_is_refused():
    high = {**SMALL, "objective": "quantile", "quantile": 0.9}
    first = gbun.train(high, TRAIN, 2)
    with pytest.raises(ValueError, match=r"quantile=0\.1 differs from init_model's 0\.9"):
        gbun.train({**high, "quantile": 0.1}, TRAIN, 2, init_model=first)
    assert_same_model(gbun.train(high, TRAIN, 2, init_model=first), gbun.train(high, TRAIN, 4))


# Defaults, and what is printed


def test_a_log_of_every_second_round_is_on_the_error_stream(capsys):
    gbun.train(SMALL, TRAIN, 5, evals={"test": TEST}, callbacks=[Log(2)])
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = [line for line in shown.err.splitlines() if line.startswith("round")]
    assert [line.split()[:2] for line in lines] == [["round", "2"], ["round", "4"]]
    assert shown.err.count("rmse") == 3  # and of the start
    with pytest.raises(ValueError, match="every must be at least 1, got 0"):
        Log(0)


@pytest.mark.parametrize(("rows", "outputs"), [(1, 16), (150, 16), (1000, 64), (4096, 256), (10**9, 256)])
def test_few_rows_have_few_outputs(rows, outputs):
    assert choose_n_neurons(rows) == outputs
    for group in (1, 2, 3, 5, 32, 300):
        assert choose_n_neurons(rows, group) % group == 0
        assert abs(choose_n_neurons(rows, group) - outputs) <= max(group, 16)


def test_the_rows_decide_how_many_outputs_a_network_has():
    X, y = data(n=1000)
    assert gbun.train({}, (X, y), 1).ensemble.learner.family.n_outputs == 64
    assert gbun.train({"group_size": 5}, (X, y), 1).ensemble.learner.family.n_outputs % 5 == 0
    assert gbun.train({"n_neurons": 10}, (X, y), 1).ensemble.learner.family.n_outputs == 10


# Objectives


def targets(objective, signal):
    if objective in ("multi_squared_error", "multi_logistic"):
        several = np.column_stack([signal, -np.abs(signal)])
        return several if objective == "multi_squared_error" else (several > -0.5).astype(int)
    if objective in ("poisson", "tweedie", "gamma"):
        y = np.random.default_rng(0).poisson(np.exp(0.5 * signal))
        return y + 0.5 if objective == "gamma" else y
    return {"logistic": signal > 0, "softmax": np.digitize(signal, [-0.5, 0.5])}.get(objective, signal)


@pytest.mark.parametrize("hessian", ["shared", "per_class"])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_reduces_its_own_loss(name, hessian):
    X, signal = TRAIN
    y = targets(name, signal)
    model = gbun.train({**SMALL, "n_neurons": 32, "objective": name, "hessian": hessian}, (X, y), 15)
    losses = [model.ensemble.objective.loss(y.astype(float), s.reshape(len(y), -1)).mean()
              for s in model.staged_decision_function(X)]  # fmt: skip
    assert model.ensemble.objective.name == name
    assert np.all(np.diff(losses) < 0)
    assert losses[-1] < losses[0] - 0.03 * abs(losses[0])


@pytest.mark.parametrize("q", [0.1, 0.5, 0.8])
def test_a_quantile_lies_above_its_share_of_rows(q):
    X, y = data(n=800, noise=1.0)
    model = gbun.train({"objective": "quantile", "quantile": q, "n_neurons": 16, "learning_rate": 0.3}, (X, y), 30)
    assert abs((y <= model.predict(X)).mean() - q) < 0.05
    unseen, y = data(n=800, noise=1.0, seed=1)
    assert abs((y <= model.predict(unseen)).mean() - q) < 0.08


@pytest.mark.parametrize(("classes", "hessian"), [(3, "shared"), (3, "per_class"), (200, "shared")])
def test_few_and_many_classes_learn(classes, hessian):
    rng = np.random.default_rng(0)
    centres, y = rng.normal(size=(classes, 8)), np.arange(1000) % classes
    X = centres[y] + 0.1 * rng.normal(size=(1000, 8))
    params = {"objective": "softmax", "hessian": hessian, "n_neurons": 64, "density": 0.5, "learning_rate": 0.3}
    model = gbun.train(params, (X[:600], y[:600]), 12)
    assert (model.predict(X[600:]) == y[600:]).mean() > 0.9
