"""The measurement of explanations runs, and its problems have the relevant features they say."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("lightgbm")

from benchmarks.data import Options
from benchmarks.explain import __main__ as command
from benchmarks.explain import problems, speed, truth

QUICK = Options(None, 1, quick=True)


def shrink(problem, **sizes):
    return replace(problem, n_features=3000 if problem.is_sparse else 20, **sizes)


@pytest.mark.parametrize("problem", [*problems.DENSE, *problems.SPARSE], ids=lambda p: f"{p.is_sparse}-{p.name}")
def test_problems_are_drawn_from_a_seed(problem):
    problem = shrink(problem)
    X, y, relevant = problem.draw(500, 1)
    again, y_again, _ = problem.draw(500, 1)
    assert len(set(relevant.tolist())) == problem.n_relevant
    assert (again != X).sum() == 0
    np.testing.assert_array_equal(y, y_again)
    assert len(np.unique(y)) == {"two classes": 2, "three classes": 3}.get(problem.name, 500)
    if problem.is_sparse:
        present = (X[:, relevant] != 0).mean(axis=0)
        assert np.all((present >= problems.LEAST_FREQUENT) & (present <= problems.MOST_FREQUENT))


def test_precision_counts_what_has_importance():
    assert truth.precision(np.array([3.0, 1.0, 2.0, 0.0]), np.array([0, 1])) == 0.5
    assert truth.precision(np.array([3.0, 0.0, 0.0, 0.0]), np.array([0, 1])) == 1.0
    assert truth.precision(np.zeros(4), np.array([0, 1])) == 0.0


def test_tables_are_compared(monkeypatch):
    monkeypatch.setitem(sys.modules, "shap", None)
    monkeypatch.setattr(speed, "EXPLAINED", 20)
    rows = speed.table_rows(QUICK)
    assert [row["what"] for row in rows] == [
        "gbun, 0 projections", "gbun, 24 projections", "LightGBM", "shap's PermutationExplainer"
    ]  # fmt: skip
    assert rows[-1]["note"] == "shap is not installed"
    assert rows[2]["of LightGBM's"] == 1.0


@pytest.mark.slow
def test_the_command_writes_tables_and_a_picture(monkeypatch, tmp_path):
    monkeypatch.setattr(speed, "TEXT_FEATURES", 3000)
    monkeypatch.setattr(speed, "MEMORY_FEATURES", (10**4, 10**5))
    monkeypatch.setattr(truth, "DENSE", (shrink(problems.DENSE[4], n_rows=1600, n_relevant=3),))
    monkeypatch.setattr(truth, "SPARSE", (shrink(problems.SPARSE[0], n_rows=1600, n_relevant=3),))
    monkeypatch.setattr(sys, "argv", ["explain", "--quick", "--threads", "1", "--output", str(tmp_path)])
    command.main()
    parts = json.loads((tmp_path / "explain.json").read_text())["parts"]
    assert (tmp_path / "explain.png").stat().st_size > 1000
    assert {row["table"].split(" ")[0] for row in parts["speed"]["rows"]} == {"explanation", "goals", "peak"}
    dense, sparse = (row for row in parts["truth"]["rows"] if row["table"] == truth.TABLE)
    assert min(dense["gbun contribution"], dense["LightGBM TreeSHAP"]) > 0.5
    assert None not in (sparse["gbun contribution"], sparse["LightGBM TreeSHAP"])
    assert "gbun gain" not in sparse or sparse["gbun gain"] is None
