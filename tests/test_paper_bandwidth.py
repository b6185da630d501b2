"""The experiment of slow networks: learners really talk through the hosts, and what was not measured is told apart."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("torch")
measure = pytest.importorskip("benchmarks.paper.bandwidth.measure")

from benchmarks.network.measure import Found  # noqa: E402
from benchmarks.network.namespaces import PREFIX, missing, namespaces  # noqa: E402
from benchmarks.paper.bandwidth import EXPERIMENT  # noqa: E402
from benchmarks.paper.bandwidth.tables import goals, lines, measured_to_extrapolated  # noqa: E402
from benchmarks.paper.cells import Finding  # noqa: E402
from benchmarks.speed.data import clicks  # noqa: E402

FEATURES = 20_000
LIMITS = measure.Limits(0.2, 60.0)
pytestmark = pytest.mark.xdist_group("hosts")  # one after the other: they share the cores
OWN = f"{PREFIX}-{os.getpid()}"  # others may have hosts too
needs_hosts = pytest.mark.skipif(missing() is not None, reason=f"no hosts: {missing()}")


def place(seconds, how=measure.MEASURED, most=1e6, **more):
    return {"seconds": seconds, "how": how, "sent": most, "most": most, "busiest cpu": 0.1, "mean cpu": 0.1, **more}


def finding(learner, size, places=None, failed="", hosts=16):
    settings = {"data": "KDD12.sub", "learner": learner, "size": size, "hosts": hosts}
    return Finding(f"{learner} {size}", settings, 1.0, {}, {"places": places} if places else {}, failed)


def at_all(free, slow, how=measure.MEASURED):
    return {measure.FREE: place(free), "1MB": place(slow, how), "100KB": place(10 * slow, how)}


@needs_hosts
@pytest.mark.parametrize("learner", ["GBUN", "LightGBM", "XGBoost"])
def test_a_learner_talks_through_the_hosts(learner):
    found = measure.by_bandwidth(learner, clicks(3000, FEATURES), 8, 2, ["10MB", "10KB"], LIMITS)
    free, fast, slow = (found["places"][name] for name in (measure.FREE, "10MB", "10KB"))
    assert fast["how"] == measure.MEASURED
    # What a round must send at least, on the one cable: K (K + 1) / 2 numbers, or a histogram for each leaf.
    least = {"GBUN": 4 * 8 * 9 / 2, "LightGBM": 7 * 100, "XGBoost": 8 * 16 * FEATURES}[learner]
    assert free["most"] > least
    assert fast["most"] == pytest.approx(free["most"], rel=0.3, abs=2000)
    if learner == "XGBoost":
        assert free["most"] < 4 * least
        assert slow["how"] == measure.EXTRAPOLATED
        assert slow["seconds"] == pytest.approx(free["seconds"] + free["most"] / 1e4)
    assert not namespaces(OWN), "hosts are left behind"


def test_a_cell_is_extrapolated_from_its_bytes():
    free = Found(2.0, 2.0, 3, [5e6, 1e6], [1e6, 4e6], [1.0, 1.0], {"peak MB": 1.0})
    limits = measure.Limits(1.0, 6.0)
    found, gone = measure._at(None, free, "1MB", limits, "")  # nobody is asked: there is no team
    assert (found["seconds"], found["how"], gone) == (7.0, measure.EXTRAPOLATED, "")
    found, gone = measure._at(None, free, "10MB", limits, "worker 1 ended")
    assert (found["seconds"], found["note"], gone) == (2.5, "worker 1 ended", "worker 1 ended")


def test_large_trees_that_failed_are_told_by_small_ones():
    few = at_all(1.0, 5.0)
    rows = EXPERIMENT.tables([finding("XGBoost", 16, few), finding("XGBoost", 64, failed="out of memory")])
    every = [row for row in rows if row["table"].startswith("bandwidth: every") and row["size"] == 64]
    assert every[0]["note"] == "out of memory"
    slow = next(row for row in every if row.get("bandwidth") == "1MB")
    assert (slow["seconds"], slow["busiest"], slow["how"]) == (20.0, 4_000_000, "extrapolated from 16 leaves")
    like = [row for row in rows if row["table"].startswith("bandwidth: seconds") and row["size"] == 64]
    assert [row.get("1MB") for row in like] == [None, "20 E", "559.7"]


def test_measured_cells_show_how_good_the_extrapolation_is():
    assert measured_to_extrapolated(place(3.0, extrapolated=2.0)) == 1.5
    assert measured_to_extrapolated(place(3.0, measure.EXTRAPOLATED, extrapolated=3.0)) is None


def test_goals_are_ratios_and_say_when_nothing_was_measured():
    findings = [finding("GBUN", 64, at_all(0.1, 0.5)), finding("LightGBM", 64, at_all(0.2, 4.0))]
    found = {(row["goal"].split("'")[0], row["limit"]): row for row in goals(lines(findings))}
    assert found["LightGBM", ">= 10"]["measured"] == 8.0
    assert found["LightGBM", ">= 10"]["met"] is False
    assert found["XGBoost", ">= 100"]["met"] is None
    assert not goals(lines([finding("GBUN", 64, at_all(0.1, 0.5), hosts=2)]))


def test_pictures_are_drawn_of_what_there_is(tmp_path):
    assert EXPERIMENT.draw([finding("GBUN", 64, failed="no hosts")], tmp_path) == []
    [picture] = EXPERIMENT.draw([finding("GBUN", 64, at_all(0.1, 0.5, measure.EXTRAPOLATED))], tmp_path)
    assert picture.path.stat().st_size > 1000
