"""The cost model of a round: constants that made some measurements are found again in them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

cost = pytest.importorskip("benchmarks.network.cost")

TRUE = cost.Constants(5e-4, 0.9, 8e-9, 2e-3, 4e-9, 5e-9, 6e-11, 5e-11)
BANDWIDTHS = ("no limit", "10MB", "1MB", "100KB")


def measured(n):
    part = {"about": {"plan": {"rows": n}, "cores": 2}, "rows": []}
    for S, K, told in itertools.product((4, 16), (64, 256, 1024), BANDWIDTHS):
        at = cost.Setting(S, n, K, cost.bandwidth_of(told), S / 2)
        seconds = {"exchange s": cost.exchange(at, TRUE), "round s": cost.round_seconds(at, TRUE)}
        part["rows"].append({"hosts": S, "K": K, "bandwidth": told, "note": "", **seconds})
    return part


def test_constants_are_found_in_what_they_made():
    cells = [*cost.cells_of(measured(2000)), *cost.cells_of(measured(60_000))]
    found = cost.fit(cells)
    for at, row in cells:
        assert cost.round_seconds(at, found) == pytest.approx(row["round s"], rel=0.03)
    assert found.latency == pytest.approx(TRUE.latency, rel=0.05)
    assert found.efficiency == pytest.approx(TRUE.efficiency, rel=0.05)


def test_a_tree_is_what_very_many_workers_need():
    rows = cost.carried(TRUE, 1e9, 256, 1e8, 2e-4)
    assert [row["workers"] for row in rows] == [16, 1000, 100_000]
    assert rows[2]["chain E"] > 10 > 1 > rows[2]["tree E"]
    at = cost.Setting(1000, 1e6, 256, 1e8)
    assert cost.round_seconds(at, TRUE) >= cost.exchange(at, TRUE)
    covered = replace(at, n=1e8)
    assert cost.round_seconds(covered, TRUE) == pytest.approx(sum(cost.computed(covered, TRUE)))
