"""Who is ahead of whom, and by more than noise. The test is paired: both learners are judged by the same rows.

With d_i = v_i - w_i, the difference of what row i contributes to the two scores (`judging.py`, means over seeds), the
noise of the difference of two means is NOISE standard errors:

    noise^2 = NOISE^2 (sum over strata g of var(d in g) / n_g  +  s_v^2 / k_v  +  s_w^2 / k_w)

The first term is what other test rows would change: rows on which both err alike have d = 0 and add nothing. For AUC
the strata are positive and negative rows, and the term is the variance of DeLong, DeLong and Clarke-Pearson (1988) of a
difference of two AUCs; otherwise all rows are one stratum. The others are what other seeds would change: s is the
deviation over the k seeds of a learner, and unknown, taken as 0, where it has one seed only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any

import numpy as np

from benchmarks.paper.accuracy.answers import Answers

NOISE = 2.0


@dataclass(frozen=True)
class Standing:
    """A learner's mean score on a set."""

    title: str
    mean: float
    deviation: float
    seeds: int
    answers: Answers

    @classmethod
    def of(cls, title: str, found: Any) -> Standing:
        answers = Answers.from_json(found["answers"])
        return cls(title, found["mean"], found["deviation"], len(found["refits"]), answers)


def rows_variance(one: Answers, other: Answers) -> float:
    """Of the difference of two scores, over draws of test rows."""
    if not np.array_equal(one.strata, other.strata):
        raise ValueError(f"both must be judged by the same rows, got {len(one.strata)} and {len(other.strata)}")
    difference = one.contributions.astype(float) - other.contributions
    groups = [difference[one.strata == group] for group in np.unique(one.strata)]
    return sum(float(group.var(ddof=1)) / len(group) if len(group) > 1 else inf for group in groups)


def noise(one: Standing, other: Standing) -> float:
    seeds = one.deviation**2 / one.seeds + other.deviation**2 / other.seeds
    return NOISE * sqrt(rows_variance(one.answers, other.answers) + seeds)


def compare(one: Standing, other: Standing) -> int:
    """1 where `one` is ahead by more than noise, -1 where it is behind by more, otherwise 0."""
    difference = one.mean - other.mean
    return 0 if abs(difference) <= noise(one, other) else 1 if difference > 0 else -1


def against_all(ours: Standing, others: Sequence[Standing]) -> int:
    """1 where we are ahead of each, -1 where one is ahead of us, otherwise 0: within noise of the best."""
    return min(compare(ours, one) for one in others)


def verdict(ours: Standing | None, boosters: Sequence[Standing], linear: Standing | None) -> str:
    """In words: against the other boosters, and against the linear model where we are not ahead of that."""
    if ours is None:
        return "no figure of gbun"
    words = "no other booster has a figure"
    if boosters:
        result = against_all(ours, boosters)
        nearest = max((one for one in boosters if compare(ours, one) == result), key=lambda one: one.mean)
        difference = ours.mean - nearest.mean
        words = {
            -1: f"loses to {nearest.title} by {-difference:.4f}",
            0: f"within noise of {nearest.title} ({difference:+.4f}, noise {noise(ours, nearest):.4f})",
            1: "best booster",
        }[result]
    if linear is not None and (result := compare(ours, linear)) <= 0:
        lost = f"loses to the linear model by {linear.mean - ours.mean:.4f}"
        words += f"; {lost if result < 0 else 'within noise of the linear model'}"
    return words
