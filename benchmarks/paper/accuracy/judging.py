"""What an answer is worth on test rows, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score, precision_score, r2_score, roc_auc_score


@dataclass(frozen=True)
class Judgement:
    """`error` is the standard error of `score` for other test rows of the same kind.

    `papers` is what the paper would print: macro-averaged precision for several classes, otherwise the score.
    """

    score: float
    error: float
    papers: float


def judge(metric: str, y: Any, answer: Any) -> Judgement:
    """`answer` is a score of class 1 for AUC, classes' numbers for accuracy, values for R2."""
    if metric == "auc":
        score = float(roc_auc_score(y, answer))
        return Judgement(score, auc_error(score, int(y.sum()), int(len(y) - y.sum())), score)
    if metric == "r2":
        score, squares = float(r2_score(y, answer)), (y - answer) ** 2
        return Judgement(score, float(squares.std() / sqrt(len(y)) / np.var(y)), score)
    score = float(accuracy_score(y, answer))
    precision = float(precision_score(y, answer, average="macro", zero_division=0.0))
    return Judgement(score, sqrt(score * (1.0 - score) / len(y)), precision)


def auc_error(auc: float, positive: int, negative: int) -> float:
    """As Hanley and McNeil (1982) have it.

    >>> round(auc_error(0.9, 100, 100), 4)
    0.0226
    """
    both_positive, both_negative = auc / (2.0 - auc), 2.0 * auc**2 / (1.0 + auc)
    spread = (positive - 1) * (both_positive - auc**2) + (negative - 1) * (both_negative - auc**2)
    return sqrt((auc * (1.0 - auc) + spread) / (positive * negative))
