"""The measurement of one-column functions runs, and says which goals are met."""

from __future__ import annotations

import pytest

pytest.importorskip("lightgbm")

from benchmarks.accuracy import functions


def test_functions_are_measured_with_each_learner():
    learners = functions.make_learners(n_estimators=20)
    del learners["LightGBM"]  # whose rounds are its own
    rows = functions.measure(learners, n_rows=60)
    assert [row["learner"] for row in rows] == list(functions.LEARNERS)
    by_name = {row["learner"]: row for row in rows}
    assert by_name["linear start"]["x"] > 0.999
    assert by_name["linear start"]["X @ w"] > 0.999
    assert 0.5 < by_name["trees"]["step"] <= 1.0


def test_goals_compare_the_defaults_with_their_limits():
    row = dict.fromkeys(functions.problems(50), 0.997)
    assert [(goal["data"], goal["met"]) for goal in functions.goals(row)] == [
        ("x", True), ("x^2", True), ("sin 2x", True), ("step", True), ("X @ w", False),
    ]  # fmt: skip
