"""What was found as tables: one like the paper's, one with every cell, and the goals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.network.measure import bandwidth_of
from benchmarks.paper.bandwidth import paper
from benchmarks.paper.bandwidth.measure import EXTRAPOLATED, FREE, MEASURED, Place, grown
from benchmarks.paper.cells import Finding
from benchmarks.speed.report import Row, cell, goal
from benchmarks.speed.timing import ratio

FEW_LEAVES = 16  # of XGBoost's trees, whose histograms fit in memory on every host
GOALS = {("1MB", "LightGBM"): 10, ("1MB", "XGBoost"): 100, ("100KB", "LightGBM"): 50, ("100KB", "XGBoost"): 1000}
GOAL_SIZE = 64


@dataclass(frozen=True)
class Line:
    """A learner of one size on one data set: its place at every bandwidth, or why there is none."""

    data: str
    size: int
    learner: str
    hosts: int
    places: Mapping[str, Place]
    failed: str = ""


def lines(findings: Sequence[Finding]) -> list[Line]:
    """Those that were found, and, where XGBoost failed, what its smaller trees say of the larger."""
    own = [_line(finding) for finding in findings]
    few = {line.data: line for line in own if line.learner == "XGBoost" and line.size == FEW_LEAVES and line.places}
    derived = [
        Line(line.data, line.size, line.learner, line.hosts, grown(few[line.data].places, FEW_LEAVES, line.size))
        for line in own
        if line.failed and line.learner == "XGBoost" and line.data in few
    ]
    return sorted([*own, *derived], key=lambda line: (line.data, line.size, line.learner))


def _line(finding: Finding) -> Line:
    settings = finding.settings
    place = settings["data"], settings["size"], settings["learner"], settings["hosts"]
    return Line(*place, finding.found.get("places", {}), finding.failed)


def tables(findings: Sequence[Finding]) -> list[Row]:
    own = lines(findings)
    return [*_like_the_paper(own), *(row for line in own for row in _every(line)), *goals(own)]


def _like_the_paper(own: Sequence[Line]) -> Iterator[Row]:
    table = 'bandwidth: seconds of a round; "e" is extrapolated from bytes, "E" also from trees of fewer leaves'
    for line in own:
        row: Row = {"table": table, "data": line.data, "size": line.size, "learner": line.learner}
        row |= {bandwidth: f"{cell(place['seconds'])}{_mark(place)}" for bandwidth, place in line.places.items()}
        yield {**row, "note": line.failed}
        told = {b: paper.seconds(line.data, line.hosts, line.size, line.learner, b) for b in paper.BANDWIDTHS}
        if any(told.values()) and not line.failed:
            row = {"table": table, "data": line.data, "size": line.size, "learner": f"the paper's {line.learner}"}
            yield {**row, **{bandwidth: cell(seconds) for bandwidth, seconds in told.items()}}


def _mark(place: Place) -> str:
    return {MEASURED: "", EXTRAPOLATED: " e"}.get(place["how"], " E")


def _every(line: Line) -> Iterator[Row]:
    table = f"bandwidth: every cell, {line.hosts} hosts; bytes are of a host and round, at its interface"
    about: Row = {"table": table, "data": line.data, "size": line.size, "learner": line.learner}
    if line.failed:
        yield {**about, "note": line.failed}
    for bandwidth, place in line.places.items():
        rate = bandwidth_of(bandwidth)
        free = line.places[FREE]
        yield {
            **about,
            "bandwidth": bandwidth,
            "seconds": place["seconds"],
            "how": place["how"],
            "rounds": place.get("rounds"),
            "extrapolated s": place.get("extrapolated"),
            "measured / extrapolated": measured_to_extrapolated(place),
            "network s": place["seconds"] - free["seconds"] if rate else None,
            "a core each s": free["busiest cpu"] + free["most"] / rate if rate else free["busiest cpu"],
            "sent": round(place["sent"]),
            "busiest": round(place["most"]),
            "paper s": paper.seconds(line.data, line.hosts, line.size, line.learner, bandwidth),
            "note": place.get("note", ""),
        }


def measured_to_extrapolated(place: Place) -> float | None:
    """How good the extrapolation is, where both are known."""
    return ratio(place["seconds"], place.get("extrapolated")) if place["how"] == MEASURED else None


def goals(own: Sequence[Line]) -> list[Row]:
    """How many times quicker a round of GBUN is, at the paper's hosts and K = 64."""
    rows = []
    for data in dict.fromkeys(line.data for line in own if line.hosts == paper.HOSTS):
        places: dict[str, Mapping[str, Any]] = {
            line.learner: line.places for line in own if (line.data, line.size) == (data, GOAL_SIZE) and line.places
        }
        for (bandwidth, peer), least in GOALS.items():
            ours, theirs = (places.get(learner, {}).get(bandwidth, {}) for learner in ("GBUN", peer))
            found = ratio(theirs.get("seconds"), ours.get("seconds"))
            how = "" if theirs.get("how", MEASURED) == MEASURED else f", {theirs['how']}"
            known = [paper.SECONDS[GOAL_SIZE, learner, bandwidth] for learner in (peer, "GBUN")]
            what = f"{peer}'s seconds / GBUN's at {bandwidth}/s, K = {GOAL_SIZE}{how}"
            what += f"; the paper: {known[0] / known[1]:.0f}"
            rows.append(goal(data, what, found, least=least))
    return rows
