"""The cost model of a round finds the constants of its measurements; the table of transports compares equal seeds."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

pytest.importorskip("torch")
cost = pytest.importorskip("benchmarks.network.cost")

from benchmarks.network.transport import Found, compare  # noqa: E402

TRUE = cost.Constants(5e-4, 0.9, 8e-9, 2e-3, 4e-9, 5e-9, 6e-11, 5e-11)
BANDWIDTHS = ("no limit", "10MB", "1MB", "100KB")


def make_part(n):
    part = {"about": {"plan": {"rows": n}, "cores": 2}, "rows": []}
    for S, K, bandwidth in itertools.product((4, 16), (64, 256, 1024), BANDWIDTHS):
        at = cost.Setting(S, n, K, cost.parse_bandwidth(bandwidth), S / 2)
        seconds = {"exchange s": cost.exchange(at, TRUE), "round s": cost.round_seconds(at, TRUE)}
        part["rows"].append({"hosts": S, "K": K, "bandwidth": bandwidth, "note": "", **seconds})
    return part


def test_constants_are_found_in_what_they_made():
    cells = [*cost.cells_of(make_part(2000)), *cost.cells_of(make_part(60_000))]
    found = cost.fit(cells)
    for at, row in cells:
        assert cost.round_seconds(at, found) == pytest.approx(row["round s"], rel=0.03)
    assert found.latency == pytest.approx(TRUE.latency, rel=0.05)
    assert found.efficiency == pytest.approx(TRUE.efficiency, rel=0.05)


def test_a_tree_is_what_very_many_workers_need():
    rows = cost.extend(TRUE, 1e9, 256, 1e8, 2e-4)
    assert [row["workers"] for row in rows] == [16, 1000, 100_000]
    assert rows[2]["chain E"] > 10 > 1 > rows[2]["tree E"]
    at = cost.Setting(1000, 1e6, 256, 1e8)
    assert cost.round_seconds(at, TRUE) >= cost.exchange(at, TRUE)
    covered = replace(at, n=1e8)
    assert cost.round_seconds(covered, TRUE) == pytest.approx(sum(cost.computation(covered, TRUE)))


def test_differences_of_transports_are_those_of_the_same_seed():
    exact = [Found({"auc": value}, 4000.0) for value in (0.8, 0.9)]
    narrow = [Found({"auc": one.scores["auc"] + off}, 2000.0) for one, off in zip(exact, (0.01, 0.03), strict=True)]
    first, second = compare("rows", 4, {"float64": exact, "int16": narrow})
    assert (first["auc"], first["sent a round"]) == (pytest.approx(0.85), 4000)
    assert "auc difference" not in first
    assert second["auc difference"] == pytest.approx(0.02)
    assert second["auc spread"] == pytest.approx(0.02 / 2**0.5)  # not that of the seeds themselves
