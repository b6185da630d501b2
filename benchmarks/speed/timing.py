"""Units of work that take turns, and what their seconds come to."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter, sleep
from typing import Any

Unit = Callable[[], float]
"""Does one unit of work and says how many seconds it took."""

PAUSE = 0.02  # before each unit: idle OpenMP threads of the one before spin for a while


class Failed(Exception):
    """Someone could not do its work; the message says why, in words for the table."""


class Absent(Failed):
    """Something is not here, such as a package or a data set: nothing was tried, nor would it help to try again."""


@dataclass
class Times:
    """The seconds of some units of work, and why there are no more."""

    seconds: list[float] = field(default_factory=list)
    note: str = ""

    @property
    def best(self) -> float | None:
        return min(self.seconds, default=None)

    @property
    def median(self) -> float | None:
        return statistics.median(self.seconds) if self.seconds else None

    def row(self) -> dict[str, Any]:
        return {"best": self.best, "median": self.median, "units": len(self.seconds), "note": self.note}


def timed(work: Callable[[], object]) -> Unit:
    def unit() -> float:
        began = perf_counter()
        work()
        return perf_counter() - began

    return unit


def interleave(
    units: Mapping[str, Unit], sweeps: int, most_seconds: float = float("inf"), least: int = 1
) -> dict[str, Times]:
    """`sweeps` units of each, taking turns. Who fails is left out from then on; so is who has used up its seconds, but
    not before `least` units."""
    found = {name: Times() for name in units}
    for _ in range(sweeps):
        for name, unit in units.items():
            times = found[name]
            if times.note or (sum(times.seconds) > most_seconds and len(times.seconds) >= least):
                continue
            sleep(PAUSE)
            try:
                times.seconds.append(unit())
            except Failed as failure:
                times.note = str(failure)
    return found


def ratio(above: float | None, below: float | None) -> float | None:
    """above / below, where both are known."""
    return above / below if above is not None and below else None
