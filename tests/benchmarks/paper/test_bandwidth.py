"""The experiment of slow networks: learners exchange sums through the hosts, and extrapolated figures are marked."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
scaling = pytest.importorskip("benchmarks.paper.scaling")

from benchmarks.cells import Finding  # noqa: E402
from benchmarks.network.cost import messages  # noqa: E402
from benchmarks.network.learners import KINDS  # noqa: E402
from benchmarks.network.measure import Found  # noqa: E402
from benchmarks.paper.bandwidth import (  # noqa: E402
    EXPERIMENT,
    EXTRAPOLATED,
    FREE,
    MEASURED,
    goals,
    make_lines,
    measure_bandwidths,
)
from benchmarks.timing import Absent, Failed  # noqa: E402

from tests.benchmarks.hosts import make_plan, needs_hosts, team  # noqa: E402, F401

pytestmark = pytest.mark.xdist_group("hosts")  # one after the other: they share the cores


def place(seconds, how=MEASURED, most=1e6, cpu=0.1, **more):
    return {"seconds": seconds, "how": how, "sent": most, "most": most, "busiest cpu": cpu, "mean cpu": cpu, **more}


def finding(learner, size, places=None, failed="", hosts=16, **trees):
    settings = {"data": "KDD12.sub", "learner": learner, "size": size, "hosts": hosts}
    return Finding(f"{learner} {size}", settings, 1.0, {}, {"places": places, **trees} if places else {}, failed)


def at_all(free, slow, how=MEASURED):
    return {FREE: place(free), "1MB": place(slow, how), "100KB": place(10 * slow, how)}


def bytes_of_a_round(learner, size, found):
    """On the cable between two hosts, one way."""
    if learner == "GBUN":
        return messages(size)[0]
    if learner == "LightGBM":  # sums half of a histogram on each host: a leaf's, of each feature 16 bytes
        return found["leaves"] * found["features used"] * 16 / 2
    return found["histograms"] * found["bins"] * 16 * (1 + 1 / 2)  # halves are summed, and then the whole goes round


@pytest.mark.slow
@needs_hosts
@pytest.mark.parametrize(("learner", "size"), [("GBUN", 256), ("LightGBM", 64), ("XGBoost", 64)])
def test_a_learner_exchanges_sums_through_the_hosts(learner, size, team):  # noqa: F811
    found = measure_bandwidths(team(learner, size), ["10MB", "1MB"], 0.2, 5.0)
    free, fast, slow = (found["places"][name] for name in (FREE, "10MB", "1MB"))
    assert free["most"] == pytest.approx(bytes_of_a_round(learner, size, found), rel=0.2)
    assert fast["how"] == MEASURED
    assert fast["most"] == pytest.approx(free["most"], rel=0.2)
    if learner == "XGBoost":
        assert slow["how"] == EXTRAPOLATED
        assert slow["seconds"] == pytest.approx(free["seconds"] + free["most"] / 1e6)
    else:
        assert slow["how"] == MEASURED
        assert slow["seconds"] > 0.7 * slow["most"] / 1e6
    assert ("leaves" in found) == (learner != "GBUN")
    assert free["rounds"] >= (5 if learner == "GBUN" else 1)


@pytest.mark.slow
@needs_hosts
def test_settings_have_the_parameters_of_learners(tmp_path):
    cells = {cell.name: cell for cell in EXPERIMENT.cells(make_plan(EXPERIMENT, data=tmp_path))}
    xgboost = cells["KDD12.sub, XGBoost, 64, 16 hosts"]
    assert xgboost.settings["parameters"]["max_depth"] == 6
    assert xgboost.packages == ("xgboost", "xgboost-cpu")
    for data in ("KDD12.sub", "book_crossing"):
        asked = {f"{data}, {learner}, {size}, 16 hosts" for learner in KINDS for size in (64, 1024)}
        alone = {f"{data}, XGBoost, {size}, alone" for size in (64, 1024)}
        assert {name for name in cells if name.startswith(data)} == asked | alone
    assert {learner: cells[f"KDD12.sub, {learner}, 64, 16 hosts"].modules for learner in KINDS} == {
        "GBUN": ["torch"], "LightGBM": ["lightgbm"], "XGBoost": ["xgboost"]
    }  # fmt: skip
    assert cells["book_crossing, GBUN, 64, 16 hosts"].absent == "book_crossing is not in the data folder"
    (tmp_path / "book_crossing").mkdir()
    (tmp_path / "book_crossing/some.npz").write_bytes(b"other rows")
    cells = {cell.name: cell for cell in EXPERIMENT.cells(make_plan(EXPERIMENT, data=tmp_path))}
    with pytest.raises(Absent, match="book_crossing is not in the data folder: No such file"):
        cells["book_crossing, GBUN, 64, 16 hosts"].run()


def test_without_hosts_nothing_is_planned(monkeypatch):
    monkeypatch.setattr(scaling, "missing", lambda: "not root")
    for experiment in (EXPERIMENT, scaling.EXPERIMENT):
        with pytest.raises(Failed, match="not root"):
            experiment.cells(make_plan(experiment))


class FewRounds:
    """A team whose workers end at the second bandwidth."""

    round_seconds, setup = 2.0, 1.0

    def __init__(self):
        self.free = Found(2.0, 3, [5e6, 1e6], [1e6, 4e6], [1.0, 1.0], {"peak MB": 1.0})

    def measure(self, rate, expected, seconds):
        if rate == 1e7:
            raise Failed("worker 1 ended")
        return self.free

    def describe_trees(self):
        return {}


def test_a_cell_is_extrapolated_from_its_bytes():
    places = measure_bandwidths(FewRounds(), ["1MB", "10MB", "100MB"], 1.0, 6.0)["places"]
    found = {name: (place["seconds"], place["how"], place.get("note", "")) for name, place in places.items()}
    assert found == {
        FREE: (2.0, MEASURED, ""),
        "1MB": (7.0, EXTRAPOLATED, ""),  # a round would take too long
        "10MB": (2.5, EXTRAPOLATED, "worker 1 ended"),
        "100MB": (2.05, EXTRAPOLATED, "worker 1 ended"),
    }


def test_large_trees_that_failed_are_extrapolated_from_small_ones():
    """A worker alone has summed 10 times the histograms and computed 4 times as long."""
    alone = {size: {FREE: place(seconds=cpu, most=0.0, cpu=cpu)} for size, cpu in {64: 2.0, 1024: 8.0}.items()}
    rows = EXPERIMENT.tables([
        finding("XGBoost", 64, at_all(1.0, 5.0)),
        finding("XGBoost", 1024, failed="out of memory"),
        finding("XGBoost", 64, alone[64], hosts=1, histograms=32),
        finding("XGBoost", 1024, alone[1024], hosts=1, histograms=320),
    ])  # fmt: skip
    every = [row for row in rows if "every cell, 16 hosts" in row["table"] and row["size"] == 1024]
    assert every[0]["note"] == "out of memory"
    slow = next(row for row in every if row.get("bandwidth") == "1MB")
    assert (slow["seconds"], slow["busiest"], slow["how"]) == (14.0, 10_000_000, "extrapolated from 64 leaves")
    like = [row for row in rows if row["table"].startswith("bandwidth: seconds") and row["size"] == 1024]
    assert [row.get("1MB") for row in like] == [None, "14 E", "1,820"]
    assert [row["histograms"] for row in rows if "trees as they grew" in row["table"]] == [32, 320]
    without = EXPERIMENT.tables([finding("XGBoost", 64, at_all(1.0, 5.0)), finding("XGBoost", 1024, failed="late")])
    assert not [row for row in without if row.get("how", "").startswith("extrapolated from")]


def test_measured_cells_show_how_good_the_extrapolation_is():
    places = {FREE: place(1.0), "1MB": place(3.0, extrapolated=2.0), "10MB": place(3.0, EXTRAPOLATED, extrapolated=3.0)}
    rows = [row for row in EXPERIMENT.tables([finding("GBUN", 64, places)]) if "every cell" in row["table"]]
    assert [row["measured / extrapolated"] for row in rows] == [None, 1.5, None]


def test_goals_are_ratios_or_not_measured():
    findings = [finding("GBUN", 64, at_all(0.1, 0.5)), finding("LightGBM", 64, at_all(0.2, 4.0))]
    found = {(row["goal"].split("'")[0], row["limit"]): row for row in goals(make_lines(findings))}
    assert found["KDD12.sub: LightGBM", ">= 10"]["measured"] == 8.0
    assert found["KDD12.sub: LightGBM", ">= 10"]["met"] is False
    assert found["KDD12.sub: XGBoost", ">= 100"]["met"] is None
    assert not goals(make_lines([finding("GBUN", 64, at_all(0.1, 0.5), hosts=2)]))
    findings[0] = finding("GBUN", 64, at_all(0.1, 0.5, EXTRAPOLATED))
    [row, *_] = goals(make_lines(findings))
    assert "GBUN extrapolated" in row["goal"]
    assert "LightGBM extrapolated" not in row["goal"]


def test_pictures_are_drawn_of_what_there_is(tmp_path):
    assert EXPERIMENT.draw([finding("GBUN", 64, failed="no hosts")], tmp_path) == []
    [picture] = EXPERIMENT.draw([finding("GBUN", 64, at_all(0.1, 0.5, EXTRAPOLATED))], tmp_path)
    assert picture.path.stat().st_size > 1000
