"""Metrics of order: AUC and average precision.

A single worker sorts its rows, and is exact. Several workers sum histograms of the scores, with a known
bound of the error.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from gbun.collectives import Collective
from gbun.dtypes import FloatArray
from gbun.metrics.base import RankingMetric, SumMetric, divide_or_nan, select_weighted_rows
from gbun.metrics.histogram import (
    Bins,
    Bounds,
    HistogramMetric,
    MeanRowWeight,
    choose_layout,
    divide_or_zero,
    iter_binary_tasks,
    make_first_knots,
    mean_of_defined,
)


class OneVsRestMetric(RankingMetric):
    """A metric of two classes; for C classes or labels its unweighted mean over them, each against the rest.

    A class for which the metric is undefined (no row has it, or all rows have it) is left out. If none is left, the
    value is nan.
    """

    higher_is_better = True

    @abstractmethod
    def compute_from_steps(self, positive: FloatArray, negative: FloatArray) -> float:
        """Return the metric, given the weights of positive and negative rows at each distinct score, lowest first."""

    @abstractmethod
    def compute_from_bins(self, bins: Bins, row_weight: MeanRowWeight) -> Bounds:
        """Return what each bin of a histogram adds to the metric; nan if it is undefined."""

    def compute_from_rows(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> float:
        # Sorting would rank a nan above all scores, but a model that diverged must be noticed.
        if np.isnan(response).any():
            return float("nan")
        tasks = iter_binary_tasks(y, response)
        return mean_of_defined(
            [self.compute_from_steps(*group_by_score(score, truth, weight)) for truth, score in tasks]
        )

    def make_histograms(self, y: FloatArray, weight: FloatArray, n_outputs: int, collective: Collective) -> SumMetric:
        y, response, weight = select_weighted_rows(y, np.zeros((len(y), n_outputs)), weight)
        powers = np.stack([weight**2, weight])
        local = [powers.sum(axis=1), *(powers @ truth for truth, _ in iter_binary_tasks(y, response))]
        row_weights = divide_or_zero(*collective.sum(np.concatenate(local)).reshape(-1, 2).T)
        n_knots, per_knot = choose_layout(n_outputs)
        # Computed at the root: the last bit of a logarithm may differ among machines, but edges must not.
        knots = collective.broadcast(np.tile(make_first_knots(n_knots), n_outputs))
        of_tasks = [MeanRowWeight(float(positive), float(row_weights[0])) for positive in row_weights[1:]]
        return HistogramMetric(self, knots, per_knot, of_tasks)


class AUC(OneVsRestMetric):
    """P(a positive row scores above a negative one) + P(they tie) / 2, rows drawn by weight.

    sum_s positive_s (negatives below s + negative_s / 2) / (sum positive * sum negative) over scores s
    """

    name = "auc"

    def compute_from_steps(self, positive: FloatArray, negative: FloatArray) -> float:
        below = np.cumsum(negative) - negative
        return divide_or_nan(float(positive @ (below + negative / 2)), positive.sum() * negative.sum())

    def compute_from_bins(self, bins: Bins, row_weight: MeanRowWeight) -> Bounds:
        positive, negative = bins.positive, bins.negative
        below = np.cumsum(negative) - negative
        share = positive / nan_if_zero(positive.sum() * negative.sum())
        return Bounds(share * below, share * (below + negative * chance_above(bins)), share * (below + negative))


class AveragePrecision(OneVsRestMetric):
    """sum_s (share of positives at score s) * (precision among rows scoring s or more), without interpolation.

    It is nan without positive rows, and 1 without negative rows.
    """

    name = "average_precision"

    def compute_from_steps(self, positive: FloatArray, negative: FloatArray) -> float:
        hits = np.cumsum(positive[::-1])
        precision = hits / (hits + np.cumsum(negative[::-1]))
        return divide_or_nan(float(positive[::-1] @ precision), hits[-1])

    def compute_from_bins(self, bins: Bins, row_weight: MeanRowWeight) -> Bounds:
        positive, negative, signs = bins.positive[::-1], bins.negative[::-1], bins.signs[::-1]
        hits, misses = np.cumsum(positive) - positive, np.cumsum(negative) - negative  # above the bin
        # Best order: positives first, tied. Worst order: negatives first, then one positive after the other.
        most = positive * divide_or_zero(hits + positive, hits + positive + misses)
        all_misses = misses + negative
        least = positive - all_misses * np.log1p(divide_or_zero(positive, hits + all_misses))
        # The probability that two rows have the same score. Without ties, 9 bins of 10000 pass this test by chance.
        weight = positive + negative
        tied = np.where(signs**2 > 11 * row_weight.all * weight, divide_or_zero(signs, weight) ** 2, 0)
        row = np.minimum(row_weight.positive, positive)
        # Precision at a positive row whose place in the bin goes from 0, the first, to 1, the last: ...
        first = hits + row + (positive - row) * tied  # ... positives at place 0 ...
        more = hits + positive - first  # ... and those added until place 1; likewise all rows
        rows = first + misses + negative * tied
        more_rows = more + 2 * negative * (1 - tied) * (1 - chance_above(bins)[::-1])
        likely = np.clip(positive * mean_ratio(first, more, rows, more_rows), least, most)
        share = 1 / nan_if_zero(positive.sum())
        return Bounds(*(share * values[::-1] for values in (least, likely, most)))


def group_by_score(score: FloatArray, truth: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the weights of positive and of negative rows at each distinct score, lowest first; ties are one step."""
    order = np.argsort(score, kind="stable")
    ranked = score[order]
    # Compared, not subtracted: inf - inf would separate equal scores.
    starts = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))
    positive, total = (weight * truth)[order], weight[order]
    return np.add.reduceat(positive, starts), np.add.reduceat(total - positive, starts)


def chance_above(bins: Bins) -> FloatArray:
    """Return the probability that a positive row of a bin scores above a negative one, if scores are spread evenly.

    1/2 + mean place of positives - mean place of negatives

    >>> chance_above(Bins(*np.array([[2.0], [1.0], [1.2], [0.2], [0.0]])))
    array([0.9])
    """
    lead = divide_or_zero(bins.positive_places, bins.positive) - divide_or_zero(bins.negative_places, bins.negative)
    return np.where((bins.positive > 0) & (bins.negative > 0), np.clip(0.5 + lead, 0, 1), 0.5)


def mean_ratio(a: FloatArray, da: FloatArray, b: FloatArray, db: FloatArray) -> FloatArray:
    """Return the mean of (a + da u) / (b + db u) over u from 0 to 1; 0 where b is 0.

    >>> mean_ratio(np.array([1.0, 1.0]), np.array([1.0, 0.0]), np.array([1.0, 1.0]), np.array([1.0, 1.0])).round(4)
    array([1.    , 0.6931])
    """
    growth = divide_or_zero(db, b)
    # da / db + (a - da b / db) log(1 + db / b) / db cancels if b hardly grows; there the value at u = 1/2 will do
    slope = divide_or_zero(da, db)
    integral = slope + divide_or_zero((a - b * slope) * np.log1p(growth), db)
    return np.where(growth > 1e-5, integral, divide_or_zero(a + da / 2, b + db / 2))


def nan_if_zero(x: float) -> float:
    return x if x != 0 else float("nan")
