"""Who is ahead of whom, and by more than noise.

The noise of a difference of two means is NOISE standard errors, whose square is the sum of
    deviation^2 / seeds    of either learner, which other seeds would change, and
    error^2                of a score, which other test rows would change.
The latter counts once, not twice: both are judged by the same rows and err on many of the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

NOISE = 2.0


@dataclass(frozen=True)
class Standing:
    """A learner's mean score on a set."""

    title: str
    mean: float
    deviation: float
    seeds: int
    error: float

    @classmethod
    def of(cls, title: str, found: Any) -> Standing:
        refits = found["refits"]
        return cls(title, found["mean"], found["deviation"], len(refits), max(one["error"] for one in refits))


def noise(one: Standing, other: Standing) -> float:
    """
    >>> round(noise(Standing("a", 0.9, 0.003, 3, 0.002), Standing("b", 0.9, 0.0, 3, 0.001)), 5)
    0.00529
    """
    seeds = one.deviation**2 / one.seeds + other.deviation**2 / other.seeds
    return NOISE * sqrt(seeds + max(one.error, other.error) ** 2)


def compare(one: Standing, other: Standing) -> int:
    """1 where `one` is ahead by more than noise, -1 where it is behind by more, otherwise 0."""
    difference = one.mean - other.mean
    return 0 if abs(difference) <= noise(one, other) else 1 if difference > 0 else -1


def verdict(ours: Standing | None, boosters: list[Standing], linear: Standing | None) -> str:
    """In words: against the best of the other boosters, and against the linear model where that is ahead of us."""
    if ours is None:
        return "no figure of gbun"
    words = "no other booster has a figure"
    if boosters:
        best = max(boosters, key=lambda one: one.mean)
        difference = ours.mean - best.mean
        if compare(ours, best) < 0:
            words = f"loses to {best.title} by {-difference:.4f}"
        elif compare(ours, best) > 0:
            words = "best"
        else:
            words = f"within noise of {best.title} ({difference:+.4f})"
    if linear is not None and compare(ours, linear) < 0:
        words += f"; loses to the linear model by {linear.mean - ours.mean:.4f}"
    return words


def holds(ours: Standing | None, boosters: list[Standing]) -> bool:
    """Whether we are the best booster, or within noise of it."""
    return ours is not None and all(compare(ours, one) >= 0 for one in boosters)
