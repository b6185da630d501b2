"""Metrics of order: they depend on which rows score above which, so they need all rows in one place."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import numpy as np

from gbun.dtypes import FloatArray
from gbun.metrics.base import RankingMetric, ratio
from gbun.metrics.classification import class_codes


class OneAgainstRest(RankingMetric):
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
        values = [self.of_steps(*steps(score, truth, weight)) for truth, score in questions(y, response)]
        defined = [value for value in values if not np.isnan(value)]
        return ratio(sum(defined), len(defined))


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


def questions(y: FloatArray, response: FloatArray) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Each yes-or-no question the response answers: who is positive (0 or 1), and the score of every row.

    >>> [truth for truth, score in questions(np.array([0.0, 2.0]), np.zeros((2, 3)))]
    [array([1., 0.]), array([0., 0.]), array([0., 1.])]
    """
    codes = class_codes(y, response)
    for c, score in enumerate(response.T):
        if codes.ndim == 2:
            yield (codes[:, c] == 1).astype(score.dtype), score
        else:
            # The one column of two classes is about class 1.
            yield (codes == (c if response.shape[1] > 1 else 1)).astype(score.dtype), score


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
