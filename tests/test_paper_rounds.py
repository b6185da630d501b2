"""Seconds of a round are measured for each learner in turn; cells run side by side give what they give in turn."""

from __future__ import annotations

import argparse

import pytest

pytest.importorskip("matplotlib")

from benchmarks.paper.cells import Finding
from benchmarks.paper.experiment import Plan
from benchmarks.paper.rounds import EXPERIMENT
from benchmarks.paper.rounds.plan import compare
from benchmarks.paper.rounds.tables import FULL, TABLE


@pytest.mark.parametrize("name", ["clicks", "classes"])
def test_rounds_of_all_learners(name, tmp_path):
    pytest.importorskip("lightgbm")
    pytest.importorskip("xgboost")
    found = compare(name, None, 16, 30.0, 4, 1)
    assert set(found["learners"]) == {"gbun", "xgboost", "lightgbm"}
    for one in found["learners"].values():
        assert one["note"] == ""
        assert one["rounds"] == 4
        assert one["median"] > 0
        assert one["deviation"] > 0
    finding = Finding(name, {"data": name, "size": 16}, 1.0, {}, found)
    (row,) = (row for row in EXPERIMENT.tables([finding]) if row["table"] == TABLE)
    assert "gbun" in row["in words"]
    (picture,) = EXPERIMENT.draw([finding], tmp_path)
    assert picture.path.stat().st_size > 0


def test_losses_failures_and_the_papers_figures_are_told():
    one = {"setup": 0.1, "first": 0.5, "rounds": 9, "deviation": 0.1, "median": 1.0, "note": ""}
    found = {"gbun": {**one, "mean": 3.0}, "lightgbm": {**one, "mean": 1.5}, "xgboost": {"note": "out of memory"}}
    rows = EXPERIMENT.tables([Finding("aloi", {"data": "aloi", "size": 64}, 1.0, {}, {"learners": found})])
    (row,) = (row for row in rows if row["table"] == TABLE)
    assert row["in words"] == "gbun takes 2.0 times as long as LightGBM"
    assert row["XGBoost"] == "none: out of memory"
    assert row["paper's GBUN"] == "2.73 ± 0.3"
    assert [row["note"] for row in rows if row["table"] == FULL] == ["", "", "out of memory"]


def test_options_are_checked():
    def planned(*words):
        parser = argparse.ArgumentParser()
        EXPERIMENT.options(parser)
        return EXPERIMENT.cells(Plan(None, False, 1, parser.parse_args(words)))

    assert [cell.name for cell in planned()] == ["clicks", "classes"]
    with pytest.raises(SystemExit, match=r"--round-size must be a power of two.* got 48"):
        planned("--round-size", "48")
    with pytest.raises(SystemExit, match=r"--round-sets must be some of .*, got letter"):
        planned("--round-sets", "letter")
