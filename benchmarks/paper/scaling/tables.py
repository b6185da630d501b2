"""What was found as tables: seconds of a round by the number of workers, computation apart from waiting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.paper.cells import Finding
from benchmarks.paper.scaling.paper import KDD12_ALL_ROWS, SECONDS
from benchmarks.speed.report import Row
from benchmarks.speed.timing import ratio

KDD12 = "KDD12"
RATE = 1e9  # bytes a second, the paper's network
Key = tuple[str, int, str]


def tables(findings: Sequence[Finding]) -> list[Row]:
    fewest = _fewest(findings)
    order = ("data", "size", "learner", "workers")
    return [_row(one, fewest) for one in sorted(findings, key=lambda one: tuple(one.settings[key] for key in order))]


def _row(one: Finding, fewest: Mapping[Key, Finding]) -> Row:
    at, found = one.settings, one.found
    row: Row = {"table": _title(at), "data": at["data"], "size": at["size"]}
    row |= {"learner": at["learner"], "workers": at["workers"]}
    if found:
        own = a_core_each(found)
        first = fewest[_key(one)]
        row |= {
            "round s": found["seconds"],
            "deviation s": found.get("deviation"),
            "rounds": found["rounds"],
            "busiest cpu s": found["busiest cpu"],
            "mean cpu s": found["mean cpu"],
            "waiting s": found["seconds"] - found["busiest cpu"],
            "sent": round(found["sent"]),
            "exchange s": exchange(found),
            "a core each s": own,
            "speed-up": ratio(a_core_each(first.found), own),
            "ideal": at["workers"] / first.settings["workers"],
            "setup s": found["setup s"],
            "peak MB": found["peak MB"],
            "leaves": found.get("leaves"),
            "features used": found.get("features used"),
        }
    else:
        row |= {"round s": "out of memory" if "out of memory" in one.failed else "none: see the note"}
    return {**row, "paper s": SECONDS.get((at["data"], at["size"], at["learner"], at["workers"])), "note": one.failed}


def exchange(found: Mapping[str, Any]) -> float:
    """Seconds that the busiest worker's bytes take, one way."""
    return float(found["most"] / RATE)


def a_core_each(found: Mapping[str, Any]) -> float:
    """Seconds of a round where every worker has a core: computation, then exchange."""
    return float(found["busiest cpu"] + exchange(found))


def _fewest(findings: Sequence[Finding]) -> dict[Key, Finding]:
    """The smallest number of workers that succeeded, of each learner: what the others are compared with."""
    known = sorted((one for one in findings if one.found), key=lambda one: -one.settings["workers"])
    return {_key(one): one for one in known}


def _key(one: Finding) -> Key:
    return one.settings["data"], one.settings["size"], one.settings["learner"]


def _title(at: Mapping[str, Any]) -> str:
    rows = at["rows"] if isinstance(at["rows"], str) else f"{at['rows']:,}"
    if at["data"] == KDD12:
        return f"scaling: {KDD12}'s {at['features']:,} features, {rows} rows (the paper's has {KDD12_ALL_ROWS:,})"
    return f"scaling: {at['data']}, {rows} rows"
