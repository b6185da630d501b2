"""Seconds of a round are measured for each learner in turn."""

from __future__ import annotations

import pytest

pytest.importorskip("matplotlib")

from benchmarks.cells import Absent, Finding
from benchmarks.paper.rounds import EXPERIMENT, FULL, TABLE, training_rows

from benchmarks.paper import rounds
from tests.benchmarks.hosts import make_plan


def test_rows_of_two_and_of_many_classes():
    assert set(training_rows("clicks", None)[1]) == {0, 1}
    assert set(training_rows("classes", None)[1]) == {0, 1, 2, 3}


def test_losses_failures_and_the_papers_figures_are_in_the_table():
    one = {"setup": 0.1, "first round": 0.5, "rounds": 9, "deviation": 0.1, "median": 1.0, "note": ""}
    ours = {**one, "mean": 3.0, "median": 2.0}
    found = {"gbun": ours, "lightgbm": {**one, "mean": 1.9}, "xgboost": {"note": "out of memory"}}
    rows = EXPERIMENT.tables([Finding("aloi", {"data": "aloi", "size": 64}, 1.0, {}, {"learners": found})])
    (row,) = (row for row in rows if row["table"] == TABLE)
    assert row["in words"] == "gbun takes 2.00 times as long as LightGBM; without XGBoost"  # by medians
    assert row["XGBoost"] == "none: out of memory"
    assert row["paper's GBUN"] == "2.73 ± 0.3"
    assert [row["note"] for row in rows if row["table"] == FULL] == ["", "", "out of memory"]


def test_cells_of_a_plan():
    cells = EXPERIMENT.cells(make_plan(EXPERIMENT, quick=True))
    assert [cell.name for cell in cells] == ["clicks", "classes"]
    assert cells[0].modules == ("xgboost", "lightgbm")


@pytest.mark.slow
def test_rows_that_cannot_be_read_are_absent(tmp_path):
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
