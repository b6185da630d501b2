"""The experiment of classes: rows, formulas, and losses in its tables."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("lightgbm")
pytest.importorskip("xgboost")

from benchmarks.cells import Finding
from benchmarks.data import Source
from benchmarks.paper.classes import GROWTH, tables

from benchmarks.paper import classes


@pytest.mark.parametrize("kind", [classes.DENSE, classes.SPARSE])
def test_rows_have_all_classes_equally_often(kind):
    X, y = classes.make_rows(kind, 3000, 1000)
    assert X.shape == (3000, classes.COLUMNS[kind])
    assert set(np.bincount(y, minlength=1000)) == {3}
    again, _ = classes.make_rows(kind, 3000, 1000)
    assert abs(X - again).max() == 0


@pytest.mark.slow
def test_who_is_slow_or_fails_is_recorded():
    source = Source("rows", partial(classes.make_rows, classes.DENSE, 200, 5))
    nothing = Source("nothing", partial(int, "no rows"))
    started = {
        classes.OURS: classes.make_starters(source, 16, 1)[classes.OURS],
        classes.XGBOOST: classes.make_starters(nothing, 16, 1)[classes.XGBOOST],
    }
    ours, theirs = classes.take_turns(started, sweeps=2, most_seconds=0.0).values()
    assert (len(ours.seconds), ours.note) == (1, "its first round")
    assert ours.median > 0
    assert (theirs.median, theirs.note[:21]) == (None, "ValueError: invalid l")


def seconds(n_classes, **medians):
    settings = {"kind": "dense", "n_classes": n_classes, "K": 64}
    found = {f"{name} s": medians.get(name) for name in classes.LEARNERS}
    notes = {name: {"note": "" if medians.get(name) else "no answer in 600 s"} for name in classes.LEARNERS}
    return Finding(f"dense {n_classes}", settings, 1.0, {}, {**found, "learners": notes})


def test_growth_is_from_the_fewest_to_the_most():
    findings = [
        seconds(1000, gbun=2.0, LightGBM=90.0),
        seconds(10, gbun=0.5, LightGBM=0.9, XGBoost=1.5),
        Finding("bytes", {"classes": 10, "K": 64, "rounds": 6}, 1.0, {}, {}, "no network"),
    ]
    rows = tables(findings)
    growth = next(row for row in rows if row["table"] == GROWTH)
    assert (growth["fewest"], growth["most"]) == (10, 1000)
    assert (growth["gbun"], growth["LightGBM"], growth["XGBoost"]) == (4.0, pytest.approx(100.0), None)
    most = next(row for row in rows if row.get("classes") == 1000)
    assert most["LightGBM / gbun"] == 45.0
    assert "XGBoost: no answer in 600 s" in most["note"]
    assert "no network" in [row.get("note") for row in rows]


def test_formulas():
    found = classes.bytes_by_formula(10, 64)
    assert found["LightGBM"] == 10 * 100 * 255 * 16 * 64 / 2
    assert found["XGBoost"] == 10 * 100 * 256 * 16 * 32
    assert classes.bytes_by_formula(10, 256)["XGBoost"] == 4 * found["XGBoost"]
    assert found[classes.PER_CLASS] == 4 * (10 * (2080 + 64) + 128)
