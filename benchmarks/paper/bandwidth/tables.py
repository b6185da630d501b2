"""What was found as tables: one like the paper's, one with every cell, one of the peers' trees, and the goals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.network.measure import bandwidth_of
from benchmarks.paper.bandwidth import paper
from benchmarks.paper.bandwidth.measure import EXTRAPOLATED, FREE, MEASURED, Place, larger
from benchmarks.paper.cells import Finding
from benchmarks.speed.report import Row, cell, goal
from benchmarks.speed.timing import ratio

GOALS = {("1MB", "LightGBM"): 10, ("1MB", "XGBoost"): 100, ("100KB", "LightGBM"): 50, ("100KB", "XGBoost"): 1000}
GOAL_SIZE = 64
TREES = ("leaves", "histograms", "bins", "features used")


@dataclass(frozen=True)
class Line:
    """A learner of one size on one data set: its place at every bandwidth, or why there is none."""

    data: str
    size: int
    learner: str
    hosts: int
    places: Mapping[str, Place]
    failed: str = ""
    trees: Row = field(default_factory=dict)
    """What a peer's have become."""


def lines(findings: Sequence[Finding]) -> list[Line]:
    """Those that were found, and, where XGBoost needs too much memory, what its smaller trees say of the larger."""
    own = [_line(finding) for finding in findings]
    large = [line for line in own if line.learner == "XGBoost" and "out of memory" in line.failed]
    derived = [more for line in large for more in _derived(line, own)]
    return sorted([*own, *derived], key=lambda line: (line.data, line.size, line.learner, -line.hosts))


def _line(finding: Finding) -> Line:
    settings, found = finding.settings, finding.found
    place = settings["data"], settings["size"], settings["learner"], settings["hosts"]
    trees = {key: found[key] for key in TREES if key in found}
    return Line(*place, found.get("places", {}), finding.failed, trees)


def _derived(failed: Line, own: Sequence[Line]) -> Iterator[Line]:
    """From the largest trees that these hosts did grow, and from trees of both sizes that a worker grew alone: bytes
    grow with the histograms that are summed, computation with the seconds of a core."""
    of = [line for line in own if (line.data, line.learner) == (failed.data, failed.learner) and line.places]
    alone = {line.size: line for line in of if line.hosts == 1}
    few = max((line.size for line in of if line.hosts == failed.hosts and line.size in alone), default=None)
    if few is None or failed.size not in alone or failed.hosts == 1:
        return
    base = next(line for line in of if (line.size, line.hosts) == (few, failed.hosts))
    bytes_times = alone[failed.size].trees["histograms"] / alone[few].trees["histograms"]
    work_times = alone[failed.size].places[FREE]["busiest cpu"] / alone[few].places[FREE]["busiest cpu"]
    places = larger(base.places, bytes_times, work_times, f"{EXTRAPOLATED} from {few} leaves")
    yield Line(failed.data, failed.size, failed.learner, failed.hosts, places)


def tables(findings: Sequence[Finding]) -> list[Row]:
    own = lines(findings)
    every = (row for line in own for row in _every(line))
    return [*_like_the_paper(own), *every, *map(_trees, filter(lambda line: line.trees, own)), *goals(own)]


def _like_the_paper(own: Sequence[Line]) -> Iterator[Row]:
    table = 'bandwidth: seconds of a round; "e" is extrapolated from bytes, "E" also from trees of fewer leaves'
    for line in own:
        if line.hosts == 1:
            continue  # grown alone, for what it says of others
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
    table = f"bandwidth: every cell, {_hosts(line)}; bytes are of a host and round, at its interface"
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
            "deviation s": place.get("deviation"),
            "extrapolated s": place.get("extrapolated"),
            "measured / extrapolated": measured_to_extrapolated(place),
            "network s": place["seconds"] - free["seconds"] if rate else None,
            "busiest cpu s": free["busiest cpu"],
            "a core each s": free["busiest cpu"] + free["most"] / rate if rate else free["busiest cpu"],
            "sent": round(place["sent"]),
            "busiest": round(place["most"]),
            "paper s": paper.seconds(line.data, line.hosts, line.size, line.learner, bandwidth),
            "note": place.get("note", ""),
        }


def _hosts(line: Line) -> str:
    return "a worker alone" if line.hosts == 1 else f"{line.hosts} hosts"


def _trees(line: Line) -> Row:
    table = "bandwidth: a peer's trees as they grew, means; a histogram of XGBoost is 16 bytes for each bin"
    about: Row = {"table": table, "data": line.data, "size": line.size, "learner": line.learner, "hosts": line.hosts}
    return {**about, **line.trees}


def measured_to_extrapolated(place: Place) -> float | None:
    """How good the extrapolation is, where both are known."""
    return ratio(place["seconds"], place.get("extrapolated")) if place["how"] == MEASURED else None


def goals(own: Sequence[Line]) -> list[Row]:
    """How many times quicker a round of GBUN is, at the paper's hosts and K = 64."""
    rows = []
    for data in dict.fromkeys(line.data for line in own if line.hosts == paper.HOSTS):
        here = data, GOAL_SIZE, paper.HOSTS
        places: dict[str, Mapping[str, Any]] = {
            line.learner: line.places for line in own if (line.data, line.size, line.hosts) == here and line.places
        }
        for (bandwidth, peer), least in GOALS.items():
            ours, theirs = (places.get(learner, {}).get(bandwidth, {}) for learner in ("GBUN", peer))
            found = ratio(theirs.get("seconds"), ours.get("seconds"))
            marked = {peer: theirs, "GBUN": ours}
            how = "".join(f", {who} {at['how']}" for who, at in marked.items() if at.get("how", MEASURED) != MEASURED)
            known = [paper.SECONDS[GOAL_SIZE, learner, bandwidth] for learner in (peer, "GBUN")]
            what = f"{data}: {peer}'s seconds / GBUN's at {bandwidth}/s, K = {GOAL_SIZE}{how}"
            what += f"; the paper: {known[0] / known[1]:.0f}"
            rows.append(goal(data, what, found, least=least))
    return rows
