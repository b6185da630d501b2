"""The comparison on tables: verdicts, and one small set."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.accuracy import tables
from benchmarks.accuracy.sets import DenseSet


def test_verdicts_are_those_of_paired_losses():
    assert tables.verdict([1.0, 2.0, 3.0], [1.1, 2.1, 3.1]) == "won"
    assert tables.verdict([1.1, 2.1, 3.1], [1.0, 2.0, 3.0]) == "lost"
    assert tables.verdict([1.0, 2.0, 3.0], [1.5, 1.9, 2.8]) == "tied"


@pytest.mark.parametrize("regression", [False, True])
def test_a_set_is_measured_and_reported(monkeypatch, regression):
    rng = np.random.default_rng(0)

    def load(seed):
        X = rng.normal(size=(300, 3))
        y = X[:, 0] + 0.1 * rng.normal(size=300)
        y = y if regression else np.array(["a", "b"])[(y > 0).astype(int)]
        return X[:200], y[:200], X[200:], y[200:]

    def fit_gbun(*arguments):
        return tables.fit_gbun(*arguments, n_estimators=5)

    fast = dict.fromkeys(tables.PEERS, tables.fit_linear) | {"gbun": fit_gbun}
    monkeypatch.setattr(tables, "LEARNERS", fast)
    results = {"made": tables.measure(DenseSet("made", load, regression), 2)}
    assert all(len(found["loss"]) == 2 and min(found["loss"]) > 0 for found in results["made"].values())
    rows = tables.make_rows(results)
    assert rows[0]["data"] == "made"
    assert {row["learner"] for row in rows[1:]} == {*fast, "best of three"}
