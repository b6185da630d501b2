"""The table of transports: means over seeds, and differences of trainings with the same seed."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from benchmarks.network.transport import Found, compared


def test_differences_are_those_of_the_same_seed():
    exact = [Found({"auc": value}, 4000.0) for value in (0.8, 0.9)]
    narrow = [Found({"auc": one.scores["auc"] + off}, 2000.0) for one, off in zip(exact, (0.01, 0.03), strict=True)]
    first, second = compared("rows", 4, {"float64": exact, "int16": narrow})
    assert (first["auc"], first["sent a round"]) == (pytest.approx(0.85), 4000)
    assert "auc difference" not in first
    assert second["auc difference"] == pytest.approx(0.02)
    assert second["auc spread"] == pytest.approx(0.02 / 2**0.5)  # not that of the seeds themselves
