"""What an answer is worth on test rows, and what each row contributes to that.

Every score is a mean of contributions v, so that two learners can be compared row by row (`verdicts.py`):

    accuracy    v_i = 1 where row i has its class, otherwise 0
    R2          v_i = 1 - (y_i - answer_i)^2 / var(y)
    AUC         v_i = share of rows of the other class that are on the right side of row i, equal answers count half:
                the placements of DeLong, DeLong and Clarke-Pearson (1988). The mean over the positive rows is AUC, and
                so is the mean over the negative ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.metrics import precision_score

Contributions = NDArray[np.float64]


@dataclass(frozen=True)
class Judgement:
    """`papers` is what the paper would print: macro-averaged precision for several classes, otherwise the score."""

    score: float
    papers: float
    contributions: Contributions


def judge(metric: str, y: Any, answer: Any) -> Judgement:
    """`answer` is a score of class 1 for AUC, classes' numbers for accuracy, values for R2."""
    found = contributions(metric, y, answer)
    score = float(found[strata(metric, y) == 0].mean())
    if metric != "accuracy":
        return Judgement(score, score, found)
    precision = precision_score(y, answer, average="macro", zero_division=0.0)
    return Judgement(score, float(precision), found)


def strata(metric: str, y: Any) -> NDArray[np.int8]:
    """The group of each row, over each of which the mean of contributions is the score: one, or two for AUC."""
    return (np.asarray(y) if metric == "auc" else np.zeros(len(y))).astype(np.int8)


def contributions(metric: str, y: Any, answer: Any) -> Contributions:
    """
    >>> contributions("auc", np.array([0, 0, 1, 1]), np.array([0.1, 0.5, 0.5, 0.9])).tolist()
    [1.0, 0.75, 0.75, 1.0]
    """
    y, answer = np.asarray(y), np.asarray(answer)
    if metric == "accuracy":
        return (y == answer).astype(float)
    if metric == "r2":
        return 1.0 - (y - answer) ** 2 / np.var(y)
    if np.unique(y).tolist() != [0, 1]:
        raise ValueError(f"AUC needs rows of classes 0 and 1, got classes {np.unique(y).tolist()}")
    found, ranks = np.empty(len(y)), rankdata(answer)
    for own in (y == 0, y == 1):
        # Of all rows below (ranks), less those of its own class: so many of the other class are below.
        found[own] = (ranks[own] - rankdata(answer[own])) / (len(y) - own.sum())
    return np.where(y == 1, found, 1.0 - found)
