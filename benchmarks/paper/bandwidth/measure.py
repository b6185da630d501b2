"""A learner at every bandwidth: measured where that takes little enough, otherwise extrapolated from its bytes.

    extrapolated = seconds of a round without a limit + bytes of the busiest host, one way / bandwidth

Nothing overlaps in it, and a message that waits for another is not in it: for measured cells both are shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.network.learners import Team, at_work, told
from benchmarks.network.measure import Found, bandwidth_of
from benchmarks.speed.data import Source
from benchmarks.speed.timing import Failed

FREE = "no limit"
MEASURED, EXTRAPOLATED = "measured", "extrapolated"
Place = dict[str, Any]
"""What is known of one bandwidth: seconds, how they were found, bytes, and a note."""


@dataclass(frozen=True)
class Limits:
    """Seconds of rounds that are measured at a bandwidth, and the most that a single round of it may take."""

    seconds: float
    most: float


def measured(
    learner: str, source: Source, size: int, n_hosts: int, bandwidths: Sequence[str], limits: Limits
) -> dict[str, Any]:
    with at_work(learner, source, size, n_hosts) as team:
        return by_bandwidth(team, bandwidths, limits)


def by_bandwidth(team: Team, bandwidths: Sequence[str], limits: Limits) -> dict[str, Any]:
    free = team.measure(None, team.a_round, limits.seconds)
    trees = team.grown()
    places = {FREE: {**told(free), "how": MEASURED}}
    gone = ""
    for bandwidth in bandwidths:
        places[bandwidth], gone = _at(team, free, bandwidth, limits, gone)
    return {"round s": free.seconds, "bytes": round(free.most), "setup s": team.setup, **trees, "places": places}


def _at(team: Team, free: Found, bandwidth: str, limits: Limits, gone: str) -> tuple[Place, str]:
    """One bandwidth, and why the workers are gone, if they are: then the rest can be extrapolated only."""
    rate = bandwidth_of(bandwidth)
    assert rate is not None
    expected = free.expected(rate)
    place = {"seconds": expected, "extrapolated": expected, "how": EXTRAPOLATED, "sent": told(free)["sent"]}
    place |= {"most": free.most, "note": gone}
    if gone or expected > limits.most:
        return place, gone
    try:
        return {**place, **told(team.measure(rate, expected, limits.seconds)), "how": MEASURED}, ""
    except Failed as failure:
        return {**place, "note": str(failure)}, str(failure)


def larger(places: Mapping[str, Place], bytes_times: float, work_times: float, how: str) -> dict[str, Place]:
    """A learner's places where it sends and computes so many times what it did here."""
    free = places[FREE]
    sent, most = (free[key] * bytes_times for key in ("sent", "most"))
    seconds, busiest, mean = (free[key] * work_times for key in ("seconds", "busiest cpu", "mean cpu"))
    own = {"how": how, "sent": sent, "most": most, "busiest cpu": busiest, "mean cpu": mean}
    rates = {bandwidth: bandwidth_of(bandwidth) for bandwidth in places}
    return {
        bandwidth: {**own, "seconds": seconds + (most / rate if rate else 0.0)} for bandwidth, rate in rates.items()
    }
