"""The score of predictions on test rows, and paired tests of two learners.

Every score is a mean of contributions v of the rows:

    accuracy    v_i = 1 where row i has its class, otherwise 0
    R2          v_i = 1 - (y_i - prediction_i)^2 / var(y)
    AUC         v_i = share of rows of the other class that are on the right side of row i, equal predictions count
                half: the placements of DeLong, DeLong and Clarke-Pearson (1988). The mean over the positive rows is
                AUC, and so is the mean over the negative rows.

With d_i = v_i - w_i, the difference of the contributions of two learners (means over seeds), the noise of the
difference of their scores is NOISE standard errors:

    noise^2 = NOISE^2 (sum over strata g of var(d in g) / n_g  +  s_v^2 / k_v  +  s_w^2 / k_w)

The first term is what other test rows would change. For AUC the strata are positive and negative rows, and the term is
the variance of DeLong et al. of a difference of two AUCs; otherwise all rows are one stratum. The other terms are what
other seeds would change: s is the deviation over the k seeds of a learner, taken as 0 where it has one seed only.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from math import inf, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.metrics import precision_score

NOISE = 2.0
DECIMALS = 3  # of stored contributions; rounding changed variances by .16 % at most on the ten sets


def judge(metric: str, y: Any, predicted: Any) -> dict[str, Any]:
    """Score predictions: scores of class 1 for AUC, class numbers for accuracy, values for R2.

    "papers" is the paper's metric: macro-averaged precision for several classes, otherwise the score.
    """
    values = contributions(metric, y, predicted)
    score = papers = float(values[strata(metric, y) == 0].mean())
    if metric == "accuracy":
        papers = float(precision_score(y, predicted, average="macro", zero_division=0.0))
    return {"score": score, "papers": papers, "contributions": values}


def strata(metric: str, y: Any) -> NDArray[np.int8]:
    """The group of each row, shape (n,). Over each group the mean of contributions is the score."""
    return (np.asarray(y) if metric == "auc" else np.zeros(len(y))).astype(np.int8)


def contributions(metric: str, y: Any, predicted: Any) -> NDArray[np.float64]:
    """
    >>> contributions("auc", np.array([0, 0, 1, 1]), np.array([0.1, 0.5, 0.5, 0.9])).tolist()
    [1.0, 0.75, 0.75, 1.0]
    """
    y, predicted = np.asarray(y), np.asarray(predicted)
    if metric == "accuracy":
        return (y == predicted).astype(float)
    if metric == "r2":
        return 1.0 - (y - predicted) ** 2 / np.var(y)
    if np.unique(y).tolist() != [0, 1]:
        raise ValueError(f"AUC needs rows of classes 0 and 1, got classes {np.unique(y).tolist()}")
    below, ranks = np.empty(len(y)), rankdata(predicted)
    for group in (y == 0, y == 1):
        # Of all rows below (ranks), less those of the same class: so many of the other class are below.
        below[group] = (ranks[group] - rankdata(predicted[group])) / (len(y) - group.sum())
    return np.where(y == 1, below, 1.0 - below)


def encode_rows(seeds: Sequence[NDArray[np.float64]], groups: NDArray[np.int8]) -> dict[str, str]:
    """Mean contributions over seeds and the strata as a compressed NumPy file in base 64, without slashes: the report
    replaces folders of a machine in all it writes."""
    file, mean = BytesIO(), np.mean(seeds, axis=0).round(DECIMALS).astype(np.float32)
    np.savez_compressed(file, contributions=mean, strata=groups)
    return {"npz": urlsafe_b64encode(file.getvalue()).decode()}


def decode_rows(encoded: Mapping[str, str]) -> tuple[NDArray[np.float32], NDArray[np.int8]]:
    with np.load(BytesIO(urlsafe_b64decode(encoded["npz"])), allow_pickle=False) as arrays:
        return arrays["contributions"], arrays["strata"]


def rows_variance(first: Mapping[str, str], second: Mapping[str, str]) -> float:
    """Variance of the difference of two scores over draws of test rows."""
    (v, groups), (w, other_groups) = decode_rows(first), decode_rows(second)
    if not np.array_equal(groups, other_groups):
        raise ValueError(f"both must be judged by the same rows, got {len(groups)} and {len(other_groups)}")
    parts = [(v.astype(float) - w)[groups == group] for group in np.unique(groups)]
    return sum(float(part.var(ddof=1)) / len(part) if len(part) > 1 else inf for part in parts)


@dataclass(frozen=True)
class Standing:
    """A learner's mean score on a set; `variance` is `rows_variance` of its difference from gbun."""

    title: str
    mean: float
    deviation: float
    seeds: int
    variance: float = 0.0


def noise(gbun: Standing, peer: Standing) -> float:
    seeds = gbun.deviation**2 / gbun.seeds + peer.deviation**2 / peer.seeds
    return NOISE * sqrt(peer.variance + seeds)


def compare(gbun: Standing, peer: Standing) -> int:
    """1 where gbun is ahead by more than noise, -1 where it is behind by more, otherwise 0."""
    difference = gbun.mean - peer.mean
    return 0 if abs(difference) <= noise(gbun, peer) else 1 if difference > 0 else -1


def compare_all(gbun: Standing, peers: Sequence[Standing]) -> int:
    """1 where gbun is ahead of each, -1 where one is ahead of it, otherwise 0: within noise of the best."""
    return min(compare(gbun, peer) for peer in peers)


def verdict(gbun: Standing | None, boosters: Sequence[Standing], linear: Standing | None) -> str:
    """In words: against the other boosters, and against the linear model where gbun is not ahead of it."""
    if gbun is None:
        return "no figure of gbun"
    words = "no other booster has a figure"
    if boosters:
        result = compare_all(gbun, boosters)
        nearest = max((one for one in boosters if compare(gbun, one) == result), key=lambda one: one.mean)
        difference = gbun.mean - nearest.mean
        words = {
            -1: f"loses to {nearest.title} by {-difference:.4f}",
            0: f"within noise of {nearest.title} ({difference:+.4f}, noise {noise(gbun, nearest):.4f})",
            1: "best booster",
        }[result]
    if linear is not None and (result := compare(gbun, linear)) <= 0:
        lost = f"loses to the linear model by {linear.mean - gbun.mean:.4f}"
        words += f"; {lost if result < 0 else 'within noise of the linear model'}"
    return words
