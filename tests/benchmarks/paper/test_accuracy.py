"""The paper's comparison: original files are read, learners report their scores to a watch, failures have a reason."""

from __future__ import annotations

import bz2
import lzma
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

pytest.importorskip("optuna")
pytest.importorskip("matplotlib")

import scipy.sparse as sp
from benchmarks.cells import Absent
from benchmarks.paper.accuracy import EXPERIMENT
from benchmarks.paper.accuracy import sets as libsvm
from benchmarks.paper.accuracy.judging import decode_rows, judge
from benchmarks.paper.accuracy.sets import DENSE, TEN, divide, find_sets
from benchmarks.paper.accuracy.spaces import LEARNERS, default_point, suggest
from benchmarks.paper.accuracy.tuning import Tuning, grid, grid_settings, tune
from benchmarks.paper.figures import GRID
from benchmarks.peers.base import Run, Task, Watch
from benchmarks.timing import Failed

from benchmarks.paper import rounds
from gbun import GBUNClassifier
from tests.benchmarks.hosts import make_plan


def svm(*rows: str) -> bytes:
    return ("\n".join(rows) + "\n").encode()


class TestOriginalFiles:
    def test_given_splits_have_the_same_columns(self, tmp_path):
        (tmp_path / "a9a.bz2").write_bytes(bz2.compress(svm("-1 3:1 11:1", "+1 5:1 7:1", "-1 1:1")))
        (tmp_path / "a9a.t").write_bytes(svm("+1 14:1", "-1 3:1"))
        found = find_sets(tmp_path)["a9a"]
        (X, y), (X_test, y_test), metric = found.read()
        assert (found.source, metric) == ("LIBSVM files", "auc")
        assert (X.shape, X_test.shape) == ((3, 15), (2, 15))
        assert (y.tolist(), y_test.tolist()) == ([0, 1, 0], [1, 0])
        assert X[0].indices.tolist() == [3, 11]

    def test_dense_sets_have_a_column_for_each_id_from_1(self, tmp_path):
        home = tmp_path / "letter"
        home.mkdir()
        rows = [f"{i % 3 + 1} 1:{i / 20000} 16:-1" for i in range(10600)]
        (home / "letter.scale.xz").write_bytes(lzma.compress(svm(*rows)))
        (home / "letter.scale.t").write_bytes(svm("1 1:0.5 16:1", "3 2:1", "2 4:1"))
        (X, _), (X_test, y_test), metric = find_sets(tmp_path)["letter"].read()
        assert isinstance(X, np.ndarray)
        assert X.shape == (10500, 16)  # the paper's first rows
        assert (X[:, 15] == -1).all()
        assert X_test[0, 0] == 0.5
        assert (y_test.tolist(), metric) == ([0, 2, 1], "accuracy")

    def test_a_set_in_one_file_is_divided(self, tmp_path):
        (tmp_path / "news20.binary").write_bytes(svm(*(f"{1 if i % 2 else -1} {i + 1}:1" for i in range(50))))
        (X, y), (X_test, _), _ = find_sets(tmp_path)["news20_binary"].read()
        assert (X.shape, X_test.shape) == ((40, 51), (10, 51))
        assert (y.sum(), X.sum() + X_test.sum()) == (20, 50)

    def test_a_set_without_its_test_file_is_missing(self, tmp_path):
        (tmp_path / "a9a").write_bytes(svm("1 1:1"))
        found = find_sets(tmp_path)
        assert found["a9a"].missing == "no files in a9a of --data, nor original ones of a9a"
        assert found["tabular_small"].missing == "no files in tabular_small of --data"
        assert [*found] == [*TEN, "tabular_small"]

    def test_a_sample_of_many_rows_is_named_as_one(self, tmp_path, monkeypatch):
        few = replace(libsvm.ORIGINALS["epsilon"], first_rows=30, first_test_rows=20)
        monkeypatch.setitem(libsvm.ORIGINALS, "epsilon", few)
        for ending, label in (("", 1), (".t", -1)):
            lines = [f"{label * (-1) ** i} 1:{i} 2:1" for i in range(100)]
            (tmp_path / f"epsilon_normalized{ending}.bz2").write_bytes(bz2.compress(svm(*lines)))
        found = find_sets(tmp_path)["epsilon"]
        (X, y), (X_test, y_test), _ = found.read()
        assert X[:, 0].tolist() == list(range(30))
        assert (len(y), X_test.shape, len(y_test)) == (30, (20, 2), 20)
        assert found.source == "LIBSVM files, a sample: the first 30 training and 20 test rows"
        assert found.size == sum(path.stat().st_size for path in tmp_path.iterdir())


def test_original_files_are_dense_where_arrays_are():
    assert {name for name, originals in libsvm.ORIGINALS.items() if originals.dense} == set(DENSE)


def test_no_learner_predicts_a_class_of_test_rows_only():
    rows = np.zeros((4, 1))
    known = replace(
        find_sets(None)["classes"], load=lambda: (rows, np.array([5, 7, 9, 7]), rows, np.array([5, 6, 9, 10]))
    )
    _, (_, y_test), _ = known.read()
    assert y_test.tolist() == [0, 3, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("set_name", ["clicks", "classes", "friedman"])
@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)
def test_a_watch_gets_the_score_of_the_model(learner, set_name):
    pytest.importorskip(learner.module)
    found = find_sets(None)[set_name]
    train, _, metric = found.read()
    fit, valid = divide(train, metric)
    n_classes = 0 if found.regression else int(train[1].max()) + 1
    task = Task(metric, n_classes, 1, len(train[1]), sp.issparse(train[0]))
    watch = Watch(patience=100)
    given = {"learner": "network"} if learner.name == "gbun" else {}
    answer, settings = learner.train(task, given, fit, Run(watch, valid, 5, 0))
    assert watch.scores[-1] == pytest.approx(judge(metric, valid[1], answer(valid[0]))["score"], abs=1e-4)
    assert learner.rounds(len(watch.scores) - 1) <= 5
    # The clock ends a training after its first round, and settings that came back are taken again.
    short = Watch(patience=100, most_seconds=0.0)
    learner.train(task, settings, fit, Run(short, None, 50, 1))
    assert learner.rounds(len(short.scores) - 1) == 1


def test_trials_share_xgboosts_matrix_and_refits_do_not():
    pytest.importorskip("xgboost")
    train, _, metric = find_sets(None)["clicks"].read()
    fit, valid = divide(train, metric)
    task, learner = Task(metric, 2, 1, len(train[1]), True), type(LEARNERS["xgboost"])()

    def answers(settings, judging):
        return learner.train(task, settings, fit, Run(Watch(), judging, 3, 0))[0](valid[0])

    alone = answers({"max_depth": 3}, None)
    assert not learner._matrices
    answers({"max_depth": 8, "reg_lambda": 0.1}, valid)
    kept = [matrix for _, matrix in learner._matrices]
    assert np.array_equal(answers({"max_depth": 3}, valid), alone)  # whatever was trained on the matrix before
    assert [matrix for _, matrix in learner._matrices] == kept
    assert len(kept) == 2
    learner.train(task, {}, valid, Run(Watch(), fit, 2, 0))  # the same rows, the other way round: nothing is added
    assert [matrix for _, matrix in learner._matrices] == kept
    answers({}, None)
    assert not learner._matrices


@pytest.mark.parametrize("sparse", [True, False])
def test_spaces_hold_the_point_next_to_the_defaults(sparse):
    import optuna

    task = Task("auc", 2, 1, 5000, sparse)
    for learner in LEARNERS:
        study, point = optuna.create_study(), default_point(learner, task)
        study.enqueue_trial(point)
        trial = study.ask()
        suggest(trial, learner, task)
        assert trial.params == point
        assert all(
            trial.distributions[k]._contains(trial.distributions[k].to_internal_repr(v))
            for k, v in trial.params.items()
        )


def test_gbuns_point_is_its_defaults():
    X, y, _, _ = find_sets(None)["classes"].load()
    point = default_point("gbun", Task("accuracy", 4, 1, len(y)))
    explicit = {**point, "n_neurons": 16 * point.pop("groups"), "n_estimators": 3}
    explicit.pop("groups", None)
    as_it_comes = GBUNClassifier(n_estimators=3, learner="network").fit(X, y).predict_proba(X)
    assert np.array_equal(GBUNClassifier(**explicit).fit(X, y).predict_proba(X), as_it_comes)


@pytest.mark.slow
def test_a_learner_without_a_trial_in_time_has_failed(monkeypatch):
    monkeypatch.setattr("benchmarks.paper.accuracy.tuning.LEAST_GRACE", 0.0)
    with pytest.raises(Failed, match=r"none of 1 trial\(s\) ended in 1e-06 s"):
        tune(Tuning("classes", "gbun", None, 1e-6, 1, 1, False))


@pytest.mark.slow
def test_rows_that_are_not_there_are_absent(tmp_path):
    (tmp_path / "a9a").mkdir()
    (tmp_path / "a9a/some.npz").write_bytes(b"other rows")
    with pytest.raises(Absent, match="FileNotFoundError"):
        tune(Tuning("a9a", "linear", tmp_path, 1.0, 1, 1, False))


class Scripted:
    """A worker that follows a script of scores; None is a failure, after which a new worker is started."""

    facts: ClassVar = {"metric": "accuracy", "task": Task("accuracy", 3, 1, 100)}

    def __init__(self, script):
        self.script = script

    def ask(self, name, within=None, **arguments):
        if (score := self.script.pop(0)) is None:
            raise Failed("out of memory")
        more = {"papers": score, "contributions": np.full(4, score), "strata": np.zeros(4, np.int8), "cut": False}
        return 0.1, {"score": score, "rounds": 5, "settings": {}, **(more if name == "refit" else {})}

    def close(self):
        pass


class TestFailuresOfALearner:
    def tuned(self, monkeypatch, script, starts=(), curve=False):
        """`starts` say whether the first processes can be started; all others can."""
        can_start = iter(starts)

        def start(tuning):
            if not next(can_start, True):
                raise Failed("no memory")
            return Scripted(script)

        monkeypatch.setattr(Tuning, "start", start)
        return tune(Tuning("classes", "linear", None, 1000.0, 3, 1, curve))

    def test_three_in_a_row_end_the_study(self, monkeypatch):
        found = self.tuned(monkeypatch, [0.5, None, 0.6, None, None, None, 0.7, 0.7, 0.7])
        assert (found["trials"], found["validation"], found["mean"]) == (2, 0.6, pytest.approx(0.7))
        assert [one["why"] for one in found["failures"]] == ["out of memory"] * 4
        with pytest.raises(Failed, match=r"none of 3 trial\(s\) ended in 1000 s: out of memory"):
            self.tuned(monkeypatch, [None] * 3)

    def test_trials_count_where_no_new_process_can_be_started(self, monkeypatch):
        found = self.tuned(monkeypatch, [0.5, None, 0.7, 0.7, 0.7], starts=[True, False])
        assert (found["trials"], found["validation"]) == (1, 0.5)
        assert [one["why"] for one in found["failures"]] == ["out of memory", "no new process: no memory"]
        with pytest.raises(Failed, match="no memory"):
            self.tuned(monkeypatch, [None], starts=[True, False])

    def test_seeds_that_ended_count(self, monkeypatch):
        found = self.tuned(monkeypatch, [0.5, None, None, None, 0.7, 0.8, None], curve=True)
        assert (len(found["refits"]), found["mean"]) == (2, pytest.approx(0.75))
        assert found["note"] == "training on all rows, 2 of 3 seeds ended: out of memory"
        assert decode_rows(found["answers"])[0].tolist() == [0.75] * 4
        assert "curve" not in found
        with pytest.raises(Failed, match="0 of 3 seeds ended: out of memory"):
            self.tuned(monkeypatch, [0.5, None, None, None, None])


def plan_cells(*words):
    return EXPERIMENT.cells(make_plan(EXPERIMENT, *words, quick=True, threads=4))


def test_cells_of_a_plan(monkeypatch, capsys):
    names = [cell.name for cell in plan_cells()]
    assert len(set(names)) == len(names) == 1 + (5 + 1) + 2
    (cell,) = plan_cells("--sets", "clicks", "--learners", "linear", "--jobs", "2")
    assert cell.name == "clicks / linear"
    assert (cell.settings["budget"], cell.settings["patience"]) == (0.5, 30)
    assert (cell.settings["jobs"], cell.settings["threads"]) == (2, 2)
    assert cell.settings["spaces"]["sparse"]["scale"] == ["raw", "log", "tfidf"]
    assert (cell.packages, cell.seeds["trainings"]) == (("scikit-learn", "optuna"), [0, 1])
    fixed = {cell.name: cell.settings.get("fixed") for cell in plan_cells("--learners", "gbun,xgboost,lightgbm")}
    assert fixed["clicks / lightgbm"] == {"force_row_wise": True}
    assert fixed["classes / xgboost"] == {"tree_method": "hist"}
    assert (fixed["classes / lightgbm"], fixed["clicks / gbun"]) == (None, None)
    monkeypatch.setattr(type(LEARNERS["catboost"]), "module", "no_such_module")
    (cell,) = plan_cells("--learners", "catboost", "--sets", "classes")
    assert cell.absent == "not installed: no_such_module"
    for names, unknown in (("letter,clicks", "letter"), ("", "")):
        with pytest.raises(SystemExit, match=f"--sets must be some of clicks,classes,friedman, got {unknown}$"):
            plan_cells("--sets", names)
    with pytest.raises(SystemExit):
        plan_cells("--learners", "gbun,forest")
    assert "--learners: unknown ['forest']; known are gbun, xgboost" in capsys.readouterr().err


@pytest.mark.parametrize("experiment", [EXPERIMENT, rounds.EXPERIMENT], ids=lambda one: one.name)
def test_sets_that_the_folder_lacks_are_planned_unless_it_lacks_all(tmp_path, experiment):
    with pytest.raises(Failed, match="--data FOLDER with the data sets is needed, or --quick"):
        experiment.cells(make_plan(experiment))
    for folder in ("a9a", "tabular_small"):
        (tmp_path / folder).mkdir()  # without files
    with pytest.raises(Absent, match=r"--data must have some of letter, .*, got '.*', which has none of them"):
        experiment.cells(make_plan(experiment, data=tmp_path))
    (tmp_path / "a9a/X_train.npz").write_bytes(b"rows")
    cells = experiment.cells(make_plan(experiment, data=tmp_path))
    names = [*TEN, "tabular_small"] if experiment is EXPERIMENT else list(rounds.SETS)
    assert list(dict.fromkeys(cell.settings["data"] for cell in cells)) == names
    assert cells[0].absent == "no files in letter of --data, nor original ones of letter"


def test_the_papers_grid():
    assert grid_settings("letter", 64, 0.3, 0.1)["density"] == 1.0
    assert len(set(grid())) == GRID == 6 * 10 * 11
