"""Metrics of order: they depend on which rows score above which.

One worker sorts its rows, and is exact. Several compare histograms, and know how far they can be off.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from gbun.dtypes import FloatArray
from gbun.metrics.base import ratio
from gbun.metrics.histogram import BinnedMetric, Bins, Grain, Limits, mean_of_defined, over, questions


class OneAgainstRest(BinnedMetric):
    """A metric of two classes; for C classes or labels its plain average over them, each against the rest.

    A class for which the metric is undefined (no row has it, or all have it) is left out; when none is
    left the value is nan.
    """

    higher_is_better = True

    @abstractmethod
    def of_steps(self, positive: FloatArray, negative: FloatArray) -> float:
        """The metric from the weights of positive and negative rows at each distinct score, lowest first."""

    def of_rows(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> float:
        # Sorting would rank a nan above all scores; a model that diverged must be seen.
        if np.isnan(response).any():
            return float("nan")
        return mean_of_defined([self.of_steps(*steps(score, truth, weight)) for truth, score in questions(y, response)])


class AUC(OneAgainstRest):
    """P(a positive row scores above a negative one) + P(they tie) / 2, rows drawn by weight.

    sum_s positive_s (negatives below s + negative_s / 2) / (sum positive * sum negative) over scores s

    >>> from gbun.collectives import Solo
    >>> response = np.array([[0.1], [0.4], [0.4], [0.9]])
    >>> AUC().evaluate(np.array([0.0, 0.0, 1.0, 1.0]), response, np.ones(4), Solo())
    0.875
    """

    name = "auc"

    def of_steps(self, positive: FloatArray, negative: FloatArray) -> float:
        below = np.cumsum(negative) - negative
        return ratio(float(positive @ (below + negative / 2)), positive.sum() * negative.sum())

    def of_bins(self, bins: Bins, grain: Grain) -> Limits:
        positive, negative = bins.positive, bins.negative
        below = np.cumsum(negative) - negative
        won = positive / zero_is_nan(positive.sum() * negative.sum())
        return Limits(won * below, won * (below + negative * chance_above(bins)), won * (below + negative))


class AveragePrecision(OneAgainstRest):
    """sum_s (share of positives at score s) * (precision among rows scoring s or more), no interpolation.

    Without positive rows it is nan; with nothing else it is 1.

    >>> from gbun.collectives import Solo
    >>> response = np.array([[0.1], [0.4], [0.35], [0.8]])
    >>> AveragePrecision().evaluate(np.array([0.0, 0.0, 1.0, 1.0]), response, np.ones(4), Solo())
    0.8333333333333333
    """

    name = "average_precision"

    def of_steps(self, positive: FloatArray, negative: FloatArray) -> float:
        found = np.cumsum(positive[::-1])
        precision = found / (found + np.cumsum(negative[::-1]))
        return ratio(float(positive[::-1] @ precision), found[-1])

    def of_bins(self, bins: Bins, grain: Grain) -> Limits:
        positive, negative, signs = bins.positive[::-1], bins.negative[::-1], bins.signs[::-1]
        found, missed = np.cumsum(positive) - positive, np.cumsum(negative) - negative  # above the bin
        # Best are positives first and tied, worst negatives first and then one positive after the other.
        most = positive * over(found + positive, found + positive + missed)
        wrong = missed + negative
        least = positive - wrong * np.log1p(over(positive, found + wrong))
        # How likely a row has the score of another; with no such rows, 9 bins of 10000 pass the test all the same.
        weight = positive + negative
        tied = np.where(signs**2 > 11 * grain.all * weight, over(signs, weight) ** 2, 0)
        own = np.minimum(grain.positive, positive)
        # With a positive at its place in the bin, 0 the first and 1 the last, count ...
        first = found + own + (positive - own) * tied  # ... the positives at 0 ...
        more = found + positive - first  # ... and those until 1; likewise the rows
        rows = first + missed + negative * tied
        more_rows = more + 2 * negative * (1 - tied) * (1 - chance_above(bins)[::-1])
        likely = np.clip(positive * mean_ratio(first, more, rows, more_rows), least, most)
        share = 1 / zero_is_nan(positive.sum())
        return Limits(*(share * each[::-1] for each in (least, likely, most)))


def steps(score: FloatArray, truth: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The weights of positive and of negative rows at each distinct score, lowest first; ties are one step.

    >>> steps(np.array([0.2, 0.1, 0.2]), np.array([1.0, 1.0, 0.0]), np.array([1.0, 2.0, 4.0]))
    (array([2., 1.]), array([0., 4.]))
    """
    order = np.argsort(score, kind="stable")
    ranked = score[order]
    # Compared, not subtracted: inf - inf would part equal scores.
    starts = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))
    positive, total = (weight * truth)[order], weight[order]
    return np.add.reduceat(positive, starts), np.add.reduceat(total - positive, starts)


def chance_above(bins: Bins) -> FloatArray:
    """How likely a positive row of a bin scores above a negative one, were scores spread evenly in it.

    1/2 + mean place of positives - mean place of negatives

    >>> chance_above(Bins(*np.array([[2.0], [1.0], [1.2], [0.2], [0.0]])))
    array([0.9])
    """
    lead = over(bins.positive_places, bins.positive) - over(bins.negative_places, bins.negative)
    return np.where((bins.positive > 0) & (bins.negative > 0), np.clip(0.5 + lead, 0, 1), 0.5)


def mean_ratio(a: FloatArray, da: FloatArray, b: FloatArray, db: FloatArray) -> FloatArray:
    """The mean of (a + da u) / (b + db u) over u from 0 to 1; 0 where b is.

    >>> mean_ratio(np.array([1.0, 1.0]), np.array([1.0, 0.0]), np.array([1.0, 1.0]), np.array([1.0, 1.0])).round(4)
    array([1.    , 0.6931])
    """
    growth = over(db, b)
    # da / db + (a - da b / db) log(1 + db / b) / db, which cancels where b hardly grows; there the middle will do
    curved = np.log1p(growth)
    long = over(da, db) + over((a - b * over(da, db)) * curved, db)
    return np.where(growth > 1e-5, long, over(a + da / 2, b + db / 2))


def zero_is_nan(x: float) -> float:
    """
    >>> zero_is_nan(0.0), zero_is_nan(2.0)
    (nan, 2.0)
    """
    return x if x != 0 else float("nan")
