"""Seconds of a round are measured for each learner in turn."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("matplotlib")

from benchmarks.cells import Absent, Finding, Store
from benchmarks.paper.experiment import main
from benchmarks.paper.rounds import EXPERIMENT, FULL, SETS, TABLE, training_rows
from benchmarks.timing import Failed

from benchmarks.paper import rounds
from tests.benchmarks.hosts import make_plan


@pytest.mark.slow
def test_the_quick_form(tmp_path, monkeypatch, capsys):
    pytest.importorskip("lightgbm")
    pytest.importorskip("xgboost")
    told = ["--round-sets", "classes", "--round-seconds", "0.1", "--round-size", "16", "--threads", "1"]
    monkeypatch.setattr(sys, "argv", ["rounds", "--quick", *told, "--output", str(tmp_path)])
    main(EXPERIMENT)
    (finding,) = Store(tmp_path / "rounds.json").all()
    assert finding.found["learners"].keys() == {"gbun", "xgboost", "lightgbm"}
    for one in finding.found["learners"].values():
        assert one["note"] == ""
        assert 3 <= one["rounds"] <= 10
        assert 0 < one["median"] < 10
        assert one["deviation"] > 0
        assert one["first round"] > 0
    (row,) = (row for row in EXPERIMENT.tables([finding]) if row["table"] == TABLE)
    assert row["in words"].startswith("gbun ")
    assert (tmp_path / "rounds.png").stat().st_size > 0


def test_rows_of_two_and_of_many_classes():
    assert set(training_rows("clicks", None)[1]) == {0, 1}
    assert set(training_rows("classes", None)[1]) == {0, 1, 2, 3}


def test_losses_failures_and_the_papers_figures_are_told():
    one = {"setup": 0.1, "first round": 0.5, "rounds": 9, "deviation": 0.1, "median": 1.0, "note": ""}
    ours = {**one, "mean": 3.0, "median": 2.0}
    found = {"gbun": ours, "lightgbm": {**one, "mean": 1.9}, "xgboost": {"note": "out of memory"}}
    rows = EXPERIMENT.tables([Finding("aloi", {"data": "aloi", "size": 64}, 1.0, {}, {"learners": found})])
    (row,) = (row for row in rows if row["table"] == TABLE)
    assert row["in words"] == "gbun takes 2.00 times as long as LightGBM; without XGBoost"  # by medians
    assert row["XGBoost"] == "none: out of memory"
    assert row["paper's GBUN"] == "2.73 ± 0.3"
    assert [row["note"] for row in rows if row["table"] == FULL] == ["", "", "out of memory"]


def plan_cells(*words, data=None, quick=True):
    return EXPERIMENT.cells(make_plan(EXPERIMENT, *words, data=data, quick=quick))


def test_options_are_checked(capsys):
    assert [cell.name for cell in plan_cells()] == ["clicks", "classes"]
    with pytest.raises(SystemExit, match=r"--round-size must be a power of two.* got 48"):
        plan_cells("--round-size", "48")
    with pytest.raises(SystemExit, match=r"--round-sets must be some of .*, got letter"):
        plan_cells("--round-sets", "letter")
    with pytest.raises(SystemExit):
        plan_cells("--round-seconds", "0")
    assert "--round-seconds: must be at least 0.1, got '0'" in capsys.readouterr().err
    with pytest.raises(Failed, match="--data FOLDER with the data sets is needed, or --quick"):
        plan_cells(quick=False)


def test_sets_that_are_not_there_are_planned(tmp_path):
    with pytest.raises(Absent, match="--data must have some of letter, "):
        plan_cells(data=tmp_path, quick=False)
    (tmp_path / "a9a").mkdir()
    (tmp_path / "a9a/X_train.npz").write_bytes(b"rows")
    cells = plan_cells(data=tmp_path, quick=False)
    assert cells[0].modules == ("xgboost", "lightgbm")
    assert [cell.name for cell in cells] == list(SETS)
    assert cells[0].absent == "no files in letter of --data, nor original ones of letter"


@pytest.mark.slow
def test_rows_that_cannot_be_read_are_told_and_not_kept(tmp_path):
    pytest.importorskip("xgboost")
    pytest.importorskip("lightgbm")
    (tmp_path / "a9a").mkdir()
    (tmp_path / "a9a/some.npz").write_bytes(b"other rows")
    with pytest.raises(Absent, match="FileNotFoundError: "):
        rounds.compare("a9a", tmp_path, 16, 0.1, 5, 1)


@pytest.mark.slow
def test_who_needs_more_memory_is_measured_alone(monkeypatch):
    pytest.importorskip("xgboost")
    pytest.importorskip("lightgbm")
    monkeypatch.setattr(rounds, "MEMORY", 10**8)  # less than a process needs to begin
    found = rounds.compare("classes", None, 16, 0.1, 5, 1)["learners"]
    assert all(one["note"].startswith("measured alone, after the others; beside them: ") for one in found.values())
    assert all(one["rounds"] >= 3 and one["median"] > 0 for one in found.values())
