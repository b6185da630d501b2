"""The measurement of many rows runs with few."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("lightgbm")
pytest.importorskip("xgboost")

from benchmarks.data import Options
from benchmarks.speed import large


def test_rows_depend_on_the_seed_and_not_on_how_many_there_are():
    X, y = large.make_rows(large.BLOCK // 100, 0)
    again, _ = large.make_rows(large.BLOCK // 200, 0)
    np.testing.assert_array_equal(again, X[: len(again)])
    assert X.dtype == np.float32
    assert 0.45 < y.mean() < 0.55
    assert not np.array_equal(large.make_rows(10, 1)[0], X[:10])


@pytest.mark.parametrize("name", list(large.LEARNERS))
def test_each_learner_is_timed_and_judged(monkeypatch, name):
    monkeypatch.setattr(large, "FEW", 500)
    monkeypatch.setattr(large, "TREES", 3)
    monkeypatch.setattr(large, "TEST_ROWS", 500)
    with large.build(name, 2000, 1) as (work, facts):
        megabytes, processor = work["fit"]()
        assert 0 < work["judge"]() < np.log(2)
    assert facts["megabytes"] == pytest.approx(2000 * (28 * 4 + 8) / 2**20)
    assert processor > 0
    assert megabytes is None or megabytes >= 0


@pytest.mark.slow
def test_ratios_are_to_the_first_learner_and_failures_are_told(monkeypatch):
    first = next(iter(large.LEARNERS))
    monkeypatch.setattr(large, "LEARNERS", {first: large.LEARNERS[first], "nobody": None})  # the child has no "nobody"
    rows = large.run(Options(None, 1, quick=False, large_rows=3000))
    assert [row["learner"] for row in rows] == [first, "nobody"]
    assert rows[0]["seconds / gbun's"] == 1.0
    assert rows[0]["log loss"] < np.log(2)
    assert rows[1]["note"] == "KeyError: 'nobody'"
    assert rows[1]["seconds / gbun's"] is None
