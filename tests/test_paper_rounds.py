"""Seconds of a round are measured for each learner in turn; cells run side by side give what they give in turn."""

from __future__ import annotations

import argparse
import io
import threading

import pytest

pytest.importorskip("matplotlib")

from benchmarks.paper.cells import Cell, Finding, Store, run, side_by_side
from benchmarks.paper.experiment import Plan
from benchmarks.paper.rounds import EXPERIMENT
from benchmarks.paper.rounds.plan import compare
from benchmarks.paper.rounds.tables import FULL, TABLE
from benchmarks.speed.timing import Failed
from rich.console import Console


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


class TestSideBySide:
    def cells(self, together):
        def work(i):
            if together is not None:
                together.wait(10)  # ends only where another cell runs at the same time
            if i == 2:
                raise Failed("too slow")
            return {"value": i}

        return [Cell(f"cell {i}", {"i": i}, lambda i=i: work(i), 1.0) for i in range(4)]

    def test_findings_are_those_of_cells_in_turn_and_are_kept(self, tmp_path):
        console, store = Console(file=io.StringIO()), Store(tmp_path / "kept.json")
        found = run(self.cells(threading.Barrier(2)), store, dict, console, jobs=2)
        assert [(one.name, one.found, one.failed) for one in found] == [
            ("cell 0", {"value": 0}, ""),
            ("cell 1", {"value": 1}, ""),
            ("cell 2", {}, "too slow"),
            ("cell 3", {"value": 3}, ""),
        ]
        again = run(self.cells(threading.Barrier(3)), Store(store.path), dict, console, jobs=2)
        assert again == found

    def test_an_error_is_raised(self):
        with pytest.raises(ZeroDivisionError):
            list(side_by_side(lambda x: 1 // x, [1, 0], 2))
