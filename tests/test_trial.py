"""As many rounds as help: rows held out, the trial that finds the number of rounds, and the training on all rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse

import gbun
from gbun.callbacks import Callback, Checkpoint, EarlyStopping, History, LearningRateSchedule, TimeBudget
from gbun.data.ingest import ingest
from gbun.defaults import DEFAULT_ROUNDS, FIRST_PATIENCE, FOLDS, MAX_ROUNDS, MIN_GAIN, PATIENCE
from gbun.splits import hash_folds
from tests.test_splits import data, held
from tests.trainings import assert_same_model

QUICK = {"n_neurons": 16, "learning_rate": 0.5, "temperature": 2.0}


def counts(n=300, seed=0):
    rng = np.random.default_rng(seed)
    D = rng.poisson(0.5, size=(n, 20)).astype(np.float32)
    both = (D[:, 2] > 0) == (D[:, 3] > 0)
    return scipy.sparse.csr_array(D), D[:, 0] - D[:, 1] + 3.0 * both + 0.3 * rng.normal(size=n)


def rmse(model, X, y):
    return float(np.sqrt(np.square(model.predict(X) - y).mean()))


class Watcher(Callback):
    """Notes which trainings it sees, and how often."""

    def __init__(self, during_trial=False, stop_at=None):
        self.during_trial, self.stop_at = during_trial, stop_at
        self.trials, self.begun, self.rounds, self.failed = [], [], [], 0

    def before_training(self, training, n_rounds):
        self.trials.append(training.trial)

    def before_round(self, training, round_):
        self.begun.append(round_)

    def after_round(self, training, report):
        self.rounds.append(report.round)
        return report.round == self.stop_at

    def on_failure(self, training):
        self.failed += 1


# The trial


def parts_by_fold(X, y):
    """What is trained on and what judges, fold by fold."""
    fold = hash_folds(ingest(X)[0], y, 0, FOLDS)
    return [tuple((X[rows], y[rows]) for rows in (fold != k, fold == k)) for k in range(FOLDS)]


def test_the_rounds_that_were_found_are_trained_on_all_rows():
    X, y = data()
    model = gbun.train(QUICK, (X, y))
    found = model.description.best_round + 1
    assert 0 < model.n_rounds == round(found / 0.8) < MAX_ROUNDS  # four of five folds were trained on
    assert_same_model(model, gbun.train(QUICK, (X, y), model.n_rounds))
    assert model.description.best_score > rmse(model, X, y)  # that of rows not trained on


def test_all_rows_get_as_many_more_rounds_as_they_are_more():
    X, y = data(5000, noise=8.0)
    asked = {**QUICK, "learning_rate": 0.2}
    model = gbun.train(asked, (X, y))
    found = model.description.best_round + 1
    assert found >= 10
    assert model.n_rounds == round(found / 0.9)
    assert gbun.train({**asked, "early_stopping_rounds": 5, "n_estimators": found}, (X, y)).n_rounds <= found


@pytest.mark.slow
def test_classes_are_judged_by_accuracy_too():
    X, y = data(200, noise=1.0)
    y = (y > 0).astype(int)
    history = History()
    model = gbun.train({**QUICK, "objective": "logistic"}, (X, y), callbacks=[history])
    values, best = history.values["validation"], {"log_loss": history.start["validation"]["log_loss"], "accuracy": -1.0}
    best["accuracy"] = history.start["validation"]["accuracy"]
    better = {"log_loss": -1, "accuracy": -1}
    for round_, both in enumerate(zip(values["log_loss"], values["accuracy"], strict=True)):
        for name, value, sign in zip(best, both, (-1, 1), strict=True):
            if sign * value > sign * best[name] + MIN_GAIN * abs(best[name]):
                best[name], better[name] = value, round_
    assert better["log_loss"] < better["accuracy"] == model.description.best_round
    assert len(values["log_loss"]) == better["accuracy"] + PATIENCE + 1
    assert model.description.best_score == values["log_loss"][better["accuracy"]]
    named = gbun.train({**QUICK, "objective": "logistic", "eval_metric": "log_loss"}, (X, y))
    assert named.description.best_round == better["log_loss"]  # who names a metric is judged by that alone


@pytest.mark.slow
@pytest.mark.parametrize("init", ["auto", "linear", "constant"])
def test_the_start_that_was_found_is_fitted_to_all_rows(init):
    X, y = counts()
    model = gbun.train({"n_neurons": 16, "init": init}, (X, y))
    linear = model.ensemble.linear
    assert (linear is None) == (init == "constant")
    settled = {"init": "constant"} if linear is None else {"init": "linear", "linear_l2": linear.l2}
    assert model.n_rounds > 0
    assert_same_model(model, gbun.train({"n_neurons": 16, **settled}, (X, y), model.n_rounds))
    if linear is not None:  # the middle one of what the folds find best
        asked = {"n_neurons": 16, "early_stopping_rounds": 1, "init": init}
        found = [gbun.train(asked, rest, 0, evals={"own": own}) for rest, own in parts_by_fold(X, y)]
        assert linear.l2 == np.median([m.ensemble.linear.l2 for m in found])


@pytest.mark.slow
def test_each_of_five_folds_judges_once_and_their_mean_decides():
    X, y = data()
    history = History()
    model = gbun.train(QUICK, (X, y), callbacks=[history])
    series, curves = history.values["validation"]["rmse"], []
    for rest, own in parts_by_fold(X, y):
        stages = gbun.train(QUICK, rest, len(series)).staged_predict(own[0])
        curves.append([np.sqrt(np.square(stage - own[1]).mean()) for stage in stages])
    wanted = np.mean(curves, axis=0)
    np.testing.assert_allclose([history.start["validation"]["rmse"], *series], wanted, rtol=1e-9)
    best, best_round = wanted[0], -1
    for round_, value in enumerate(wanted[1:]):
        if value < best - MIN_GAIN * best:
            best, best_round = value, round_
    assert (model.description.best_round, len(series)) == (best_round, best_round + PATIENCE + 1)
    assert model.description.best_score == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize(
    ("learner", "n", "runs"),
    [("network", n, runs) for n, runs in [(49, 0), (50, FOLDS), (4999, FOLDS), (5000, 1)]]
    + [("tree", n, runs) for n, runs in [(49, 0), (999, FOLDS), (1000, 1)]],
)
def test_few_rows_judge_in_folds_many_by_a_tenth_and_very_few_not_at_all(learner, n, runs):
    watcher = Watcher(during_trial=True, stop_at=0)
    settings = {"n_neurons": 2} if learner == "network" else {"n_leaves": 2, "init": "constant"}
    gbun.train({"learner": learner, **settings}, data(n), callbacks=[watcher])
    assert watcher.trials == ([True] if runs else []) + [False]
    assert watcher.begun == [0] * (runs + 1)  # that of the training on all rows is the last


def test_very_few_rows_and_equal_rows_are_trained_a_hundred_rounds():
    for rows in (data(49), (np.ones((60, 2)), np.full(60, 3.0))):
        model = gbun.train({"n_neurons": 2}, rows)
        assert (model.n_rounds, model.description.best_round) == (DEFAULT_ROUNDS, None) == (100, None)


def test_a_number_of_rounds_is_taken_as_it_is():
    history, watcher = History(), Watcher(during_trial=True)
    model = gbun.train(QUICK, data(), 5, callbacks=[history, watcher])
    assert (model.n_rounds, model.description.best_round, watcher.trials) == (5, None, [False])
    assert history.values == {}


@pytest.mark.slow
def test_the_order_of_rows_and_weights_that_count_rows_change_nothing():
    X, y = data()
    times = np.random.default_rng(1).integers(0, 4, size=200)
    repeated = np.repeat(np.arange(200), times)
    order = np.random.default_rng(2).permutation(len(repeated))
    weighted = gbun.train(QUICK, (X, y, times))
    twice = gbun.train(QUICK, (X[repeated][order], y[repeated][order]))
    assert weighted.n_rounds == twice.n_rounds > 0
    wanted = weighted.predict(X)
    np.testing.assert_allclose(twice.predict(X), wanted, atol=1e-4 * np.abs(wanted).max())


# Early stopping as it is asked for


def test_without_refit_rows_held_out_are_never_seen():
    X, y = data()
    model = gbun.GBUNRegressor(**QUICK, refit=False).fit(X, y)
    judge = held(X, y)
    assert list(model.evals_result_) == ["validation"]
    assert 0 < model.n_estimators_ == model.best_iteration_ + 1 < MAX_ROUNDS
    assert_same_model(model.model_, gbun.train(QUICK, (X[~judge], y[~judge]), model.n_estimators_))
    series = model.evals_result_["validation"]["rmse"]
    assert len(series) == model.n_estimators_ + PATIENCE
    assert model.best_score_ == series[model.best_iteration_] == pytest.approx(rmse(model, X[judge], y[judge]))


def test_a_patience_holds_a_tenth_out_then_all_rows_are_trained_on():
    X, y = data()
    asked = {**QUICK, "early_stopping_rounds": 3, "n_estimators": 40}
    model = gbun.train(asked, (X, y), callbacks=[history := History()])
    kept = gbun.train({**asked, "refit": False}, (X, y))
    assert model.description.best_round == kept.description.best_round == kept.n_rounds - 1 < 36
    assert model.description.best_score == kept.description.best_score
    assert len(history.values["validation"]["rmse"]) == kept.n_rounds + 3
    assert_same_model(model, gbun.train(QUICK, (X, y), round(kept.n_rounds / 0.9)))
    assert gbun.train({**asked, "n_estimators": 2}, (X, y)).n_rounds <= 2


def test_a_race_is_no_longer_than_the_training_and_ends_where_patience_does():
    X, y = data()
    model = gbun.train({"early_stopping_rounds": 1000}, (X, y), 4, callbacks=[history := History()])
    assert len(history.values["validation"]["rmse"]) == 4 > model.description.best_round
    constant = ("constant", lambda y, response, weight: 1.0, True)
    asked = {"early_stopping_rounds": 3, "eval_metric": constant}
    model = gbun.train(asked, (X, y), callbacks=[history := History()])
    assert (len(history.values["validation"]["constant"]), model.n_rounds) == (3, 0)


@pytest.mark.slow
def test_an_evaluation_set_decides_only_where_a_patience_is_named():
    (X, y), other = data(), data(seed=1)
    history, decided = History(), History()
    watched = gbun.train(QUICK, (X, y), evals={"test": other}, callbacks=[history])
    assert_same_model(watched, gbun.train(QUICK, (X, y)))
    assert len(history.values["test"]["rmse"]) == watched.n_rounds
    assert len(history.values["validation"]["rmse"]) == watched.description.best_round + 1 + PATIENCE
    model = gbun.train({**QUICK, "early_stopping_rounds": 4}, (X, y), evals={"test": other}, callbacks=[decided])
    assert list(decided.values) == ["test"]
    assert model.n_rounds == int(np.argmin([decided.start["test"]["rmse"], *decided.values["test"]["rmse"]]))
    assert len(decided.values["test"]["rmse"]) == model.n_rounds + 4


def test_a_patience_needs_rows_to_judge_by():
    asked = {**QUICK, "early_stopping_rounds": 3}
    with pytest.raises(ValueError, match=r"validation_fraction=0\.1 of 60 rows leaves a side empty .equal rows stay"):
        gbun.train(asked, (np.ones((60, 2)), np.full(60, 3.0)))
    with pytest.raises(ValueError, match=r"validation_fraction=0\.1 of 9 rows leaves a side empty"):
        gbun.train(asked, data(9))
    gbun.train({**asked, "validation_fraction": 0.4}, data(9))


def test_a_model_is_continued_as_far_as_that_helps():
    X, y = data()
    first = gbun.train(QUICK, (X, y), 3)
    watched = {"evals": {"test": (X[:200], y[:200])}, "init_model": first}
    more = gbun.train({**QUICK, "early_stopping_rounds": 5}, (X, y), 20, **watched)
    assert 3 <= more.n_rounds == more.description.best_round + 1 <= 23
    with pytest.raises(ValueError, match="early_stopping_rounds with init_model needs an evaluation set"):
        gbun.train({**QUICK, "early_stopping_rounds": 5}, (X, y), init_model=first)
    assert gbun.train(QUICK, (X, y), init_model=first).n_rounds == 3 + DEFAULT_ROUNDS


def scripted(values):
    """A metric that takes these values, one after the other: of the start, then of each round."""
    told = iter(values)
    return ("told", lambda y, response, weight: next(told), True)


@pytest.mark.parametrize(
    ("values", "gain", "best", "score", "seen"),
    [
        ([1.0, 2.0, 3.0, 2.5, 2.9], 0.0, 1, 3.0, 4),
        ([1.0, 0.9, 0.9], 0.0, -1, 1.0, 2),
        ([1.0, 1.0, 1.0], 0.0, -1, 1.0, 2),
        ([1.0, 1.05, 1.09], 0.1, -1, 1.0, 2),
        ([1.0, 1.05, 1.11, 1.2, 1.22], 0.1, 1, 1.11, 4),
        ([-1.0, -0.95, -0.89, -0.85, -0.82], 0.1, 1, -0.89, 4),
        ([float("nan"), 1.0, 0.5, 0.5], 0.1, 0, 1.0, 3),
    ],
)
def test_the_start_counts_and_a_gain_may_be_too_small(values, gain, best, score, seen):
    history, rows, asked = History(), data(60), {**QUICK, "eval_metric": scripted(values)}
    model = gbun.train(asked, rows, 9, evals={"e": rows}, callbacks=[history, EarlyStopping(2, min_gain=gain)])
    assert (model.n_rounds, model.description.best_round, model.description.best_score) == (best + 1, best, score)
    assert len(history.values["e"]["told"]) == seen


def test_gains_that_nobody_would_notice_are_waited_for_only_where_a_patience_is_named():
    calls = itertools.count()
    asked = {**QUICK, "eval_metric": ("slow", lambda y, response, weight: 1.0 + 1e-7 * next(calls), True)}
    assert gbun.train(asked, data()).n_rounds == 0
    assert gbun.train({**asked, "early_stopping_rounds": 1}, data(), 30).n_rounds == 30


def test_where_nothing_can_be_learnt_no_round_is_kept():
    X, _ = data()
    y = np.random.default_rng(5).normal(size=200)
    model = gbun.GBUNRegressor(**QUICK).fit(X, y)
    assert (model.n_estimators_, model.best_iteration_) == (0, -1)
    assert np.ptp(model.predict(X)) == 0.0
    assert model.predict(X)[0] == pytest.approx(y.mean())
    waited = len(model.evals_result_["validation"]["rmse"])
    assert waited - 1 < FIRST_PATIENCE + waited / 5 <= waited + 1
    assert model.best_score_ == pytest.approx(y.std(), rel=0.05)


# Callbacks


def test_callbacks_see_the_trial_only_if_they_ask_for_it():
    plain, asking, history = Watcher(), Watcher(during_trial=True), History()
    model = gbun.train(QUICK, data(), callbacks=[plain, asking, history])
    assert (plain.trials, asking.trials) == ([False], [True, False])
    assert plain.rounds == list(range(model.n_rounds))
    assert asking.rounds == [*range(model.description.best_round + 1 + PATIENCE), *range(model.n_rounds)]
    assert list(history.values) == ["validation"]
    assert len(history.seconds) == model.n_rounds


@pytest.mark.slow
def test_a_schedule_holds_in_the_trial_and_after_it():
    X, y = data()
    wanted = gbun.train(QUICK, (X, y))
    slower = {**QUICK, "learning_rate": 0.1}
    assert_same_model(gbun.train(slower, (X, y), callbacks=[LearningRateSchedule(lambda t: 0.5)]), wanted)
    falling = [LearningRateSchedule(lambda t: 0.5 * 0.8**t)]
    found = gbun.train(QUICK, (X, y), callbacks=falling)
    assert_same_model(found, gbun.train(QUICK, (X, y), found.n_rounds, callbacks=falling))
    assert found.description.best_score != wanted.description.best_score


def test_a_time_budget_is_that_of_the_trial_and_the_training_together(monkeypatch):
    """By a clock that rounds advance: 5/64 s a round of the trial's folds, 1/4 s a round of the training."""
    now, rounds = [0.0], {True: 0, False: 0}
    monkeypatch.setattr("gbun.callbacks.stopping.perf_counter", lambda: now[0])

    class Clock(Callback):
        during_trial = True

        def before_round(self, training, round_):
            now[0] += 1 / 64 if training.trial else 1 / 4

        def after_round(self, training, report):
            rounds[training.trial] += 1
            return False

    gbun.train(QUICK, data(noise=0.1), callbacks=[Clock(), TimeBudget(1.0)])  # rounds would help for long
    assert rounds == {True: 7, False: 2}  # 35/64 s, the first end of a round in the second half; then 67/64 s


def test_a_time_budget_counts_the_race_of_learners(monkeypatch):
    now, rounds = [0.0], []
    monkeypatch.setattr("gbun.callbacks.stopping.perf_counter", lambda: now[0])

    class Clock(Callback):
        during_trial = during_race = True

        def before_round(self, training, round_):
            now[0] += 1 / 64
            rounds.append((training.trial, training.learner.kind))

    model = gbun.train({"n_jobs": 1}, steps(), callbacks=[Clock(), TimeBudget(1.0)])
    assert rounds.count((True, "mixed")) == 10
    assert now[0] < 1.0 + 3 / 64
    assert model.n_rounds == rounds.count((False, "tree")) > 0


def test_a_checkpoint_holds_the_final_model_in_the_end(tmp_path):
    model = gbun.train(QUICK, data(), callbacks=[Checkpoint(tmp_path / "c.gbun", every=7)])
    assert_same_model(gbun.load_model(tmp_path / "c.gbun"), model)


def test_an_interrupted_trial_leaves_its_complete_rounds(tmp_path):
    X, y = data()

    class Interrupt(Watcher):
        def before_round(self, training, round_):
            super().before_round(training, round_)
            if self.begun.count(4) == 3:  # in the midst of the folds
                raise KeyboardInterrupt

    interrupt, plain = Interrupt(during_trial=True), Watcher()
    with pytest.raises(KeyboardInterrupt):
        gbun.train(QUICK, (X, y), callbacks=[interrupt, plain, Checkpoint(tmp_path / "c.gbun", every=100)])
    assert (interrupt.failed, plain.failed, plain.trials) == (1, 0, [])
    # All folds end a round together.
    assert_same_model(gbun.load_model(tmp_path / "c.gbun"), gbun.train(QUICK, parts_by_fold(X, y)[0][0], 4))


def test_both_trainings_are_shown(capfd):
    for verbose, words in ((1, ["finding the number of rounds", "boosting"]), (2, ["start  validation", "round 10"])):
        gbun.train({**QUICK, "verbose": verbose}, data(noise=10.0))
        shown = capfd.readouterr()
        assert shown.out == ""
        assert all(word in shown.err for word in [*words, "validation rmse"])


# Cross-validation


def test_cross_validation_finds_the_number_of_rounds_too():
    X, y = data()
    found = gbun.cv(QUICK, (X, y), nfold=3)
    assert found == gbun.cv({**QUICK, "early_stopping_rounds": PATIENCE}, (X, y), MAX_ROUNDS, nfold=3)
    series = found["valid rmse-mean"]
    assert int(np.argmin(series)) == len(series) - 1 < MAX_ROUNDS - PATIENCE


def test_rows_without_a_weight_do_not_count():
    X, y = data()
    few, more = X[:40], X[40:100]
    weight = np.append(np.ones(40), np.zeros(60))
    with_zeros = gbun.train({"objective": "logistic"}, (np.vstack([few, more]), y[:100] > 0, weight))
    alone = gbun.train({"objective": "logistic"}, (few, y[:40] > 0))
    assert with_zeros.n_rounds == alone.n_rounds == DEFAULT_ROUNDS
    np.testing.assert_allclose(with_zeros.decision_function(X), alone.decision_function(X), atol=1e-5)


def test_a_stopper_of_the_user_decides_alone():
    X, y = data()
    evals = {"test": (X[:100], y[:100])}
    model = gbun.train(QUICK, (X, y), evals=evals, callbacks=[EarlyStopping(2)])
    wanted = gbun.train({**QUICK, "early_stopping_rounds": 2}, (X, y), evals=evals)
    assert model.n_rounds == wanted.n_rounds == model.description.best_round + 1


def test_a_metric_that_is_not_a_number_on_judging_rows_gives_way():
    X, y = data()
    rare = (np.arange(len(y)) < 3).astype(int)
    for refit in (True, False):
        model = gbun.GBUNClassifier(**QUICK, eval_metric="auc", refit=refit).fit(X, rare)
        assert "log_loss" in model.evals_result_["validation"]


# Dense columns: which learner, and which start


def images(n=1200):
    """Classes that are far apart in directions that mix all columns: networks see them, single columns do not."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, n)
    return rng.normal(size=(4, 20))[y] + rng.normal(scale=0.6, size=(n, 20)), y.astype(str)


def steps(n=1200):
    """Every column by itself decides, at a threshold."""
    X = np.random.default_rng(0).uniform(size=(n, 6))
    return X, 4.0 * (X[:, 0] > 0.3) + 2.0 * (X[:, 1] > 0.6) + (X[:, 2] > 0.5) * (X[:, 3] > 0.5)


@pytest.mark.parametrize(("rows", "kind"), [(images, "mixed"), (steps, "tree")])
def test_networks_stay_beside_trees_where_they_are_clearly_ahead(rows, kind):
    history = History()
    model = gbun.train({"n_jobs": 1}, rows(), callbacks=[history])
    assert model.ensemble.learner.kind == kind
    series = next(iter(history.values["validation"].values()))  # callbacks see the first rounds too, once
    assert len(series) == len(history.values["validation"][next(iter(history.values["validation"]))])
    assert model.description.best_score == series[model.description.best_round]
    alone = gbun.train({"n_jobs": 1, "learner": kind}, rows())  # which compares nothing
    assert_same_model(model, alone)


def test_dense_columns_begin_with_a_linear_model_where_it_is_better_than_all_rounds():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 10))
    y = X @ rng.normal(size=10) + 0.01 * rng.normal(size=1500)
    model = gbun.train({"n_jobs": 1}, (X, y))
    assert model.ensemble.linear is not None
    assert 1.0 - np.var(model.predict(X) - y) / np.var(y) > 0.999
    assert gbun.train({"n_jobs": 1}, steps()).ensemble.linear is None
    assert gbun.train({"n_jobs": 1, "init": "constant"}, (X, y), 5).ensemble.linear is None


class Stop(Callback):
    """Fails after a round of the first or second training."""

    def __init__(self, round_, training):
        self.round, self.training, self.count = round_, training, 0

    def before_training(self, training, n_rounds):
        self.count += 1

    def after_round(self, training, report):
        if (report.round, self.count) == (self.round, self.training):
            raise RuntimeError("cut short")
        return False


@pytest.mark.parametrize(("target", "cut"), [("steps", 1), ("linear", 1), ("linear", 2)])
def test_a_search_on_given_rows_that_was_cut_short_goes_on(target, cut, tmp_path):
    """Cut while learners have raced, or while a linear start has begun a second training."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 6))
    y = X @ rng.normal(size=6) + 0.3 * (X[:, 0] > 1) if target == "linear" else X[:, 0] * X[:, 1] + (X[:, 2] > 0)
    rows = {"data": (X[:600], y[:600]), "num_boost_round": 40, "evals": {"v": (X[600:], y[600:])}, "task": "regression"}
    params, path = {"early_stopping_rounds": 8, "n_jobs": 1}, tmp_path / "c.gbun"
    whole = gbun.train(params, **rows)
    assert (whole.ensemble.linear is not None) == (target == "linear")
    with pytest.raises(RuntimeError, match="cut short"):
        gbun.train(params, **rows, callbacks=[Checkpoint(path, every=3), Stop(12, cut)])
    again = gbun.train(params, **rows, callbacks=[Checkpoint(path, every=3)], resume=path)
    assert_same_model(again, whole)
    assert again.description.best_score == whole.description.best_score
