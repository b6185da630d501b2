"""The experiment of more workers: computation is measured apart from waiting, and failures stay in the tables."""

from __future__ import annotations

import os
from time import perf_counter

import pytest

pytest.importorskip("torch")
scaling = pytest.importorskip("benchmarks.paper.scaling")

from benchmarks.cells import Finding  # noqa: E402
from benchmarks.network import crew  # noqa: E402
from benchmarks.paper.figures import SCALING_SECONDS  # noqa: E402
from benchmarks.timing import Failed  # noqa: E402

from tests.benchmarks.hosts import make_plan, needs_hosts, team  # noqa: E402, F401

pytestmark = pytest.mark.xdist_group("hosts")  # one after the other: they share the cores


def finding(learner, workers, seconds=0.0, cpu=0.0, failed="", data="KDD12.sub"):
    settings = {"data": data, "learner": learner, "size": 64, "workers": workers, "rows": 1000, "features": 100}
    found = {"seconds": seconds, "rounds": 3, "sent": 1e6, "most": 1e8, "busiest cpu": cpu, "mean cpu": cpu / 2}
    found |= {"peak MB": 1.0, "setup s": 1.0}
    return Finding(f"{learner} {workers}", settings, 1.0, {}, {} if failed else found, failed)


@pytest.mark.slow
@needs_hosts
def test_a_few_rounds_of_gbun_take_what_their_computation_takes(team):  # noqa: F811
    """Its rounds are reported late and in groups; seconds from the gaps between them would be too few."""
    ours = team("GBUN", 256)
    began = perf_counter()
    found = scaling.measure_unlimited(ours, 0.1)
    assert found["rounds"] == 5
    assert 0.0 < found["mean cpu"] <= found["busiest cpu"]
    least = 2 * found["mean cpu"] / min(2, os.cpu_count() or 1)
    assert 0.7 * least < found["seconds"] < (perf_counter() - began) / found["rounds"]


@pytest.mark.slow
@needs_hosts
def test_a_peer_that_takes_too_long_has_failed(team, monkeypatch):  # noqa: F811
    monkeypatch.setattr(crew, "GRACE", 0.1)
    with pytest.raises(Failed, match=r"did not answer in 0 s; a worker had at most \d+ MB"):
        team("LightGBM", 64, within=0.01)


@pytest.mark.slow
@needs_hosts
def test_the_plan_has_large_sizes_and_as_many_rows_as_fit(monkeypatch):
    monkeypatch.setattr(scaling, "memory", lambda: 16 * 10**9)
    cells = {cell.name: cell for cell in scaling.cells(make_plan(scaling.EXPERIMENT))}
    assert cells["KDD12, XGBoost, 64, 16 workers"].settings["rows"] == 8_000_000
    assert [name for name in cells if "GBUN, 1024" in name] == [
        f"KDD12.sub, GBUN, 1024, {n} workers" for n in (1, 4, 16)
    ]
    assert [name for name in cells if "book_crossing, GBUN" in name] == [
        f"book_crossing, GBUN, 64, {n} workers" for n in (1, 16)
    ]
    gbun, lightgbm = (cells[f"KDD12, {learner}, 64, 16 workers"].settings for learner in ("GBUN", "LightGBM"))
    assert gbun["most seconds of a first round"] == lightgbm["most seconds of a first round"] >= 600
    assert lightgbm["parameters"]["tree_learner"] == "data"


def test_tables_compare_with_the_fewest_workers_that_succeeded():
    findings = [finding("GBUN", 1, failed="out of memory"), finding("GBUN", 4, 4.0, 1.1), finding("GBUN", 2, 4.0, 2.3)]
    one, two, four = scaling.tables(findings)
    assert (one["note"], one["round s"], "a core each s" in one) == ("out of memory", "out of memory", False)
    assert four["exchange s"] == pytest.approx(0.1)
    assert four["a core each s"] == pytest.approx(1.2)
    assert four["waiting s"] == pytest.approx(4.0 - 1.1)
    assert (two["speed-up"], four["speed-up"]) == (1.0, pytest.approx(2.0))
    assert four["ideal"] == 2.0
    assert four["paper s"] == SCALING_SECONDS["KDD12.sub", 64, "GBUN", 4] == 0.86


def test_pictures_are_drawn_of_what_there_is(tmp_path):
    assert scaling.draw([finding("GBUN", 1, failed="no hosts")], tmp_path) == []
    [picture] = scaling.draw([finding("GBUN", 1, 2.0, 1.0), finding("LightGBM", 1, failed="late")], tmp_path)
    assert picture.path.stat().st_size > 1000
