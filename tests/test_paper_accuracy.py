"""The paper's comparison: original files are read, learners tell a watch what they are worth, losses are told."""

from __future__ import annotations

import argparse
import bz2
import json
import lzma
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("optuna")
pytest.importorskip("matplotlib")

import scipy.sparse as sp
from benchmarks.accuracy.wide.base import Watch
from benchmarks.paper.accuracy import EXPERIMENT
from benchmarks.paper.accuracy.base import Task
from benchmarks.paper.accuracy.judging import judge
from benchmarks.paper.accuracy.learners import LEARNERS
from benchmarks.paper.accuracy.protocol import grid, papers_protocol, settings_of
from benchmarks.paper.accuracy.sets import choosing, generated, in_folder
from benchmarks.paper.accuracy.tables import DUELS, MAIN, SETTINGS, TABULAR, tables
from benchmarks.paper.accuracy.tuning import Tuning, tuned
from benchmarks.paper.accuracy.verdicts import Standing, compare, holds, verdict
from benchmarks.paper.cells import Finding
from benchmarks.paper.experiment import Plan
from benchmarks.speed.timing import Failed

from gbun import GBUNClassifier


def svm(*rows: str) -> bytes:
    return ("\n".join(rows) + "\n").encode()


class TestOriginalFiles:
    def test_given_splits_have_the_same_columns(self, tmp_path):
        (tmp_path / "a9a.bz2").write_bytes(bz2.compress(svm("-1 3:1 11:1", "+1 5:1 7:1", "-1 1:1")))
        (tmp_path / "a9a.t").write_bytes(svm("+1 14:1", "-1 3:1"))
        found = in_folder(tmp_path)["a9a"]
        (X, y), (X_test, y_test), metric = found.read()
        assert (found.source, metric) == ("LIBSVM files", "auc")
        assert X.shape == (3, 15)
        assert X_test.shape == (2, 15)
        assert y.tolist() == [0, 1, 0]
        assert y_test.tolist() == [1, 0]
        assert X[0].indices.tolist() == [3, 11]

    def test_dense_sets_have_a_column_for_each_id_from_1(self, tmp_path):
        home = tmp_path / "letter"
        home.mkdir()
        rows = [f"{i % 3 + 1} 1:{i / 20000} 16:-1" for i in range(10600)]
        (home / "letter.scale.xz").write_bytes(lzma.compress(svm(*rows)))
        (home / "letter.scale.t").write_bytes(svm("1 1:0.5 16:1", "3 2:1", "2 4:1"))
        (X, _), (X_test, y_test), metric = in_folder(tmp_path)["letter"].read()
        assert isinstance(X, np.ndarray)
        assert X.shape == (10500, 16)  # the paper's first rows
        assert (X[:, 15] == -1).all()
        assert X_test[0, 0] == 0.5
        assert y_test.tolist() == [0, 2, 1]
        assert metric == "accuracy"

    def test_a_set_in_one_file_is_divided(self, tmp_path):
        (tmp_path / "news20.binary").write_bytes(svm(*(f"{1 if i % 2 else -1} {i + 1}:1" for i in range(50))))
        (X, y), (X_test, _), _ = in_folder(tmp_path)["news20_binary"].read()
        assert X.shape == (40, 51)
        assert X_test.shape == (10, 51)
        assert y.sum() == 20
        assert (X.sum() + X_test.sum()) == 50

    def test_a_set_without_its_test_file_is_not_there(self, tmp_path):
        (tmp_path / "a9a").write_bytes(svm("1 1:1"))
        assert in_folder(tmp_path) == {}


def test_a_class_of_test_rows_only_is_nobodys_answer():
    rows = np.zeros((4, 1))
    known = replace(generated()["classes"], load=lambda: (rows, np.array([5, 7, 9, 7]), rows, np.array([5, 6, 9, 10])))
    _, (_, y_test), _ = known.read()
    assert y_test.tolist() == [0, 3, 2, 3]


def test_judgements():
    y = np.array([0, 0, 1, 1, 2, 2])
    found = judge("accuracy", y, np.array([0, 1, 1, 1, 2, 2]))
    assert found.score == pytest.approx(5 / 6)
    assert found.papers == pytest.approx((1 + 2 / 3 + 1) / 3)
    assert found.error == pytest.approx(np.sqrt(5 / 36 / 6))
    values = np.random.default_rng(0).normal(size=1000)
    assert judge("r2", values, values).error == 0.0
    # Of means over many draws of test rows, the deviation is what `error` says.
    rng, scores, errors = np.random.default_rng(1), [], []
    for _ in range(300):
        labels = rng.integers(0, 2, 200)
        found = judge("auc", labels, labels + rng.normal(size=200))
        scores.append(found.score)
        errors.append(found.error)
    assert np.std(scores) == pytest.approx(np.mean(errors), rel=0.2)


@pytest.mark.parametrize("set_name", ["clicks", "classes", "friedman"])
@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)
def test_a_watch_is_told_what_the_model_is_worth(learner, set_name):
    pytest.importorskip(learner.module)
    found = generated()[set_name]
    train, _, metric = found.read()
    fit, valid = choosing(train, metric)
    n_classes = 0 if found.regression else int(train[1].max()) + 1
    task = Task(metric, n_classes, len(train[1]), sp.issparse(train[0]), False, 1)
    watch = Watch(patience=100)
    answer, settings = learner.train(task, {}, fit, 5, 0, watch, valid)
    assert watch.scores[-1] == pytest.approx(judge(metric, valid[1], answer(valid[0])).score, abs=1e-4)
    assert learner.rounds(len(watch.scores) - 1) <= 5
    # The clock ends a training after its first round, and settings that came back are taken again.
    short = Watch(patience=100, most_seconds=0.0)
    learner.train(task, settings, fit, 50, 1, short, None)
    assert learner.rounds(len(short.scores) - 1) == 1


@pytest.mark.parametrize("sparse", [True, False])
def test_spaces_hold_the_point_next_to_the_defaults(sparse):
    import optuna

    task = Task("auc", 2, 5000, sparse, False, 1)
    for learner in LEARNERS.values():
        study = optuna.create_study()
        study.enqueue_trial(learner.nearest(task))
        trial = study.ask()
        learner.space(trial, task)
        assert trial.params == learner.nearest(task)
        assert all(
            trial.distributions[k]._contains(trial.distributions[k].to_internal_repr(v))
            for k, v in trial.params.items()
        )


def test_gbuns_point_is_its_defaults():
    X, y, _, _ = generated()["classes"].load()
    task = Task("accuracy", 4, len(y), False, False, 1)
    point = LEARNERS["gbun"].nearest(task)
    explicit = {**point, "n_neurons": 16 * point.pop("groups"), "n_estimators": 3}
    explicit.pop("groups", None)
    as_it_comes = GBUNClassifier(n_estimators=3).fit(X, y).predict_proba(X)
    assert np.array_equal(GBUNClassifier(**explicit).fit(X, y).predict_proba(X), as_it_comes)


class TestTuning:
    def test_a_cell_has_scores_of_every_seed_and_a_curve(self):
        found = tuned(Tuning("classes", "gbun", None, 1.5, 2, 1, True))
        assert found["trials"] >= 2
        assert len(found["refits"]) == 2
        assert found["refits"][0]["papers"] != found["refits"][1]["papers"]
        assert found["mean"] == pytest.approx(np.mean([one["score"] for one in found["refits"]]))
        assert found["mean"] > 0.5
        assert found["refits"][0]["rounds"] == found["rounds"]
        curve = found["curve"]
        assert curve["rounds"][0] == 0
        assert curve["seconds"] == sorted(curve["seconds"])
        assert curve["best"] == pytest.approx(max(curve["scores"]), abs=0.05)
        json.dumps(found)

    def test_no_time_is_a_failure_that_says_so(self, monkeypatch):
        monkeypatch.setattr("benchmarks.paper.accuracy.tuning.LEAST_GRACE", 0.0)
        with pytest.raises(Failed, match="no trial ended in 1e-06 s"):
            tuned(Tuning("classes", "linear", None, 1e-6, 1, 1, False))

    def test_who_is_not_installed_is_told_how_to_be(self, monkeypatch):
        monkeypatch.setattr(type(LEARNERS["catboost"]), "module", "no_such_module")
        with pytest.raises(Failed, match="not installed: pip install catboost"):
            tuned(Tuning("classes", "catboost", None, 1.0, 1, 1, False))

    def test_the_papers_protocol(self):
        found = papers_protocol("classes", None, 0.5, 1)
        assert found["metric"] == "macro_precision"
        assert found["points"] >= 1
        assert 0.4 < found["best"] < 1.0
        assert settings_of("letter", 64, 0.3, 0.1)["density"] == 1.0
        assert len(set(grid())) == 6 * 10 * 11


class TestVerdicts:
    us = Standing("gbun", 0.900, 0.001, 3, 0.002)

    def test_ahead_within_noise_and_behind(self):
        near, far, below = (replace(self.us, title="X", mean=mean) for mean in (0.903, 0.91, 0.85))
        assert (compare(self.us, near), compare(self.us, far), compare(self.us, below)) == (0, -1, 1)
        assert verdict(self.us, [below, near], None) == "within noise of X (-0.0030)"
        assert verdict(self.us, [near, far], None) == "loses to X by 0.0100"
        assert verdict(self.us, [below], None) == "best"
        assert verdict(self.us, [below], far) == "best; loses to the linear model by 0.0100"
        assert verdict(None, [far], None) == "no figure of gbun"
        assert holds(self.us, [near, below])
        assert not holds(self.us, [near, far])


def finding(data: str, learner: str, mean: float, tabular: bool = False, failed: str = "") -> Finding:
    refits = [{"score": mean, "error": 0.002, "papers": mean, "rounds": 7, "cut": False, "seconds": 1.0}] * 3
    found = {"metric": "auc", "mean": mean, "deviation": 0.0, "papers": mean, "refits": refits, "failures": []}
    found |= {"trials": 4, "validation": mean, "rounds": 7, "tuning": 5.0, "refitting": 3.0, "settings": {"x": 0.5}}
    settings = {"data": data, "tabular": tabular, "learner": learner}
    return Finding(f"{data} / {learner}", settings, 1.0, {}, {} if failed else found, failed)


class TestTables:
    def rows(self, findings, title):
        return [row for row in tables(findings) if row["table"] == title]

    def test_losses_and_failures_are_told(self):
        findings = [
            finding("letter", "gbun", 0.90),
            finding("letter", "lightgbm", 0.95),
            finding("letter", "catboost", 0.0, failed="out of memory"),
        ]
        (row,) = self.rows(findings, MAIN)
        assert row["verdict"] == "loses to LightGBM by 0.0500"
        assert row["CatBoost"] == "none: out of memory"
        assert row["paper's GBUN"] == 0.9618
        assert [r["note"] for r in self.rows(findings, SETTINGS)] == ["", "", "out of memory"]

    def test_the_goal_counts_the_ten_sets_alone(self):
        names = ("letter", "aloi", "a9a", "imdb", "epsilon", "rcv1_binary", "news20_multi")
        findings = [finding(name, who, 0.9) for name in names for who in ("gbun", "xgboost")]
        findings += [finding("adult", who, 0.9, tabular=True) for who in ("gbun", "xgboost")]
        (row,) = self.rows(findings, "goals")
        assert (row["measured"], row["met"]) == (7, True)
        findings[1] = finding("letter", "xgboost", 0.95)
        (row,) = self.rows(findings, "goals")
        assert (row["measured"], row["met"]) == (6, False)

    def test_tabular_sets_are_counted(self):
        findings = []
        for name, ours in (("one", 0.95), ("two", 0.9), ("three", 0.85)):
            findings += [finding(name, "gbun", ours, tabular=True), finding(name, "xgboost", 0.9, tabular=True)]
        duels = self.rows(findings, DUELS)
        assert [row["against"] for row in duels] == ["XGBoost", "the best of the other boosters"]
        assert all((row["wins"], row["ties"], row["losses"]) == (1, 1, 1) for row in duels)
        assert len(self.rows(findings, TABULAR)) == 3


def test_cells_of_a_plan():
    def planned(*words):
        parser = argparse.ArgumentParser()
        EXPERIMENT.options(parser)
        return EXPERIMENT.cells(Plan(None, True, 1, parser.parse_args(words)))

    names = [cell.name for cell in planned()]
    assert len(set(names)) == len(names) == 1 + (5 + 1) + 2
    assert [cell.name for cell in planned("--sets", "clicks", "--learners", "linear")] == ["clicks / linear"]
    with pytest.raises(SystemExit, match="--sets must be some of clicks,classes,friedman, got letter"):
        planned("--sets", "letter,clicks")
    with pytest.raises(SystemExit, match="--budget must be positive, got 0"):
        planned("--budget", "0")
