"""The experiment of more workers: computation is told apart from waiting, and failures stay in the tables."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("torch")
scaling = pytest.importorskip("benchmarks.paper.scaling")

from benchmarks.network.namespaces import PREFIX, missing, namespaces  # noqa: E402
from benchmarks.paper.cells import Finding  # noqa: E402
from benchmarks.paper.scaling.paper import SECONDS  # noqa: E402
from benchmarks.speed.data import clicks  # noqa: E402
from benchmarks.speed.timing import Failed  # noqa: E402

pytestmark = pytest.mark.xdist_group("hosts")  # one after the other: they share the cores
OWN = f"{PREFIX}-{os.getpid()}"  # others may have hosts too
needs_hosts = pytest.mark.skipif(missing() is not None, reason=f"no hosts: {missing()}")


def finding(learner, workers, seconds=0.0, cpu=0.0, failed="", data="KDD12.sub"):
    settings = {"data": data, "learner": learner, "size": 64, "workers": workers, "rows": 1000, "features": 100}
    found = {"seconds": seconds, "rounds": 3, "sent": 1e6, "most": 1e8, "busiest cpu": cpu, "mean cpu": cpu / 2}
    found |= {"peak MB": 1.0, "setup s": 1.0}
    return Finding(f"{learner} {workers}", settings, 1.0, {}, {} if failed else found, failed)


@needs_hosts
@pytest.mark.parametrize("n_workers", [1, 2])
def test_computation_is_measured_apart_from_waiting(n_workers):
    found = scaling.measured("XGBoost", clicks(20_000, 20_000), 8, n_workers, 0.5, 60.0)
    assert 0.0 < found["mean cpu"] <= found["busiest cpu"] < 3.0 * found["seconds"]
    assert (found["most"] > 8 * 16 * 20_000) == (n_workers == 2)
    assert not namespaces(OWN), "hosts are left behind"


@needs_hosts
def test_a_few_rounds_of_gbun_take_what_their_computation_takes():
    """Its rounds are told late and in bunches; seconds from the gaps between them would be too few."""
    found = scaling.measured("GBUN", clicks(400_000, 20_000), 64, 4, 0.1, 60.0)
    assert found["rounds"] < 10
    assert found["seconds"] > 0.7 * 4 * found["mean cpu"] / (os.cpu_count() or 1)


@needs_hosts
def test_a_peer_that_takes_too_long_has_failed():
    with pytest.raises(Failed, match="did not answer in 0 s"):
        scaling.measured("LightGBM", clicks(3000, 20_000), 8, 2, 0.5, 0.01)
    assert not namespaces(OWN), "hosts are left behind"


def test_tables_compare_with_the_fewest_workers_that_succeeded():
    findings = [finding("GBUN", 1, failed="out of memory"), finding("GBUN", 4, 4.0, 1.1), finding("GBUN", 2, 4.0, 2.3)]
    one, two, four = scaling.tables(findings)
    assert (one["note"], "round s" in one) == ("out of memory", False)
    assert four["exchange s"] == pytest.approx(0.1)
    assert four["a core each s"] == pytest.approx(1.2)
    assert four["waiting s"] == pytest.approx(4.0 - 0.55)
    assert (two["speed-up"], four["speed-up"]) == (1.0, pytest.approx(2.0))
    assert four["ideal"] == 2.0
    assert four["paper s"] == SECONDS["KDD12.sub", 64, "GBUN", 4] == 0.86


def test_pictures_are_drawn_of_what_there_is(tmp_path):
    assert scaling.draw([finding("GBUN", 1, failed="no hosts")], tmp_path) == []
    [picture] = scaling.draw([finding("GBUN", 1, 2.0, 1.0), finding("LightGBM", 1, failed="late")], tmp_path)
    assert picture.path.stat().st_size > 1000
