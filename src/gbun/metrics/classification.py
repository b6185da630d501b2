"""Metrics of class probabilities and of predicted classes, made of sums over rows.

The shapes tell the task: a two-dimensional y means several labels. Otherwise a response of one column means two
classes, and one of C columns C classes.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from gbun.dtypes import FloatArray, IntArray
from gbun.metrics.base import EPS, MeanMetric, RowMean, match_columns


class LogLoss(RowMean):
    """-log of the probability of the true class, clipped to [eps, 1 - eps] with the eps of float64.

    Two classes: -log(p) or -log(1 - p); C classes: -log p_y; several labels: the mean over labels.
    """

    name = "log_loss"

    def row_values(self, y: FloatArray, response: FloatArray) -> FloatArray:
        probability = np.clip(probability_of_truth(y, response), EPS, 1 - EPS)
        return np.asarray(-np.log(probability).mean(axis=1))


class Brier(RowMean):
    """Squared distance between probabilities and the true class.

    Two classes: (p - y)^2; C classes: sum_c (p_c - [y = c])^2; several labels: the mean over labels.
    """

    name = "brier"

    def row_values(self, y: FloatArray, response: FloatArray) -> FloatArray:
        codes = class_codes(y, response)
        if codes.ndim == 2 or response.shape[1] == 1:
            return np.asarray(((response - codes.reshape(response.shape)) ** 2).mean(axis=1))
        difference = response.copy()
        difference[np.arange(len(codes)), codes] -= 1
        return np.asarray((difference**2).sum(axis=1))


class ErrorRate(RowMean):
    """Share of rows whose class is predicted wrongly; with several labels, share of (row, label) pairs."""

    name = "error"

    def row_values(self, y: FloatArray, response: FloatArray) -> FloatArray:
        wrong = class_codes(y, response) != predicted_codes(y, response)
        return np.asarray(wrong.mean(axis=1) if wrong.ndim == 2 else wrong)


class Accuracy(ErrorRate):
    """1 - error: the share of rows, or with several labels of (row, label) pairs, that are predicted correctly.

    With several labels a row with 9 of 10 correct labels counts 0.9, not 0.
    """

    name = "accuracy"
    higher_is_better = True

    def value(self, sums: FloatArray) -> float:
        return 1 - super().value(sums)


class MacroMetric(MeanMetric):
    """The unweighted mean over classes of a score that depends on three sums of weights per class.

    For class c: hits (c is predicted and true), predicted (c is predicted), present (c is true). Two classes count as
    C = 2; with several labels each label is a class. A class that is neither predicted nor present is left out.
    """

    higher_is_better = True

    @abstractmethod
    def per_class(self, hits: FloatArray, predicted: FloatArray, present: FloatArray) -> FloatArray:
        """Return the score of each class; predicted + present > 0."""

    def sums(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> FloatArray:
        truth, guess = class_codes(y, response), predicted_codes(y, response)
        if truth.ndim == 2:
            return np.concatenate([weight @ (truth & guess), weight @ guess, weight @ truth])
        classes, hit = max(2, response.shape[1]), truth == guess
        counts = (truth[hit], weight[hit]), (guess, weight), (truth, weight)
        return np.concatenate([np.bincount(codes, weights, classes) for codes, weights in counts])

    def value(self, sums: FloatArray) -> float:
        hits, predicted, present = sums.reshape(3, -1)
        seen = predicted + present > 0
        if not seen.any():
            return float("nan")
        return float(self.per_class(hits[seen], predicted[seen], present[seen]).mean())


class MacroPrecision(MacroMetric):
    """mean_c hits_c / predicted_c; a class that is present and never predicted counts 0."""

    name = "macro_precision"

    def per_class(self, hits: FloatArray, predicted: FloatArray, present: FloatArray) -> FloatArray:
        return hits / np.where(predicted > 0, predicted, 1)


class MacroF1(MacroMetric):
    """mean_c 2 hits_c / (predicted_c + present_c), the harmonic mean of precision and recall per class."""

    name = "macro_f1"

    def per_class(self, hits: FloatArray, predicted: FloatArray, present: FloatArray) -> FloatArray:
        return np.asarray(2 * hits / (predicted + present))


def class_codes(y: FloatArray, response: FloatArray) -> IntArray:
    """Return y as integers: codes (n,), or zeros and ones (n, C) with several labels."""
    if y.ndim == 2:
        y = match_columns(y, response)
    classes = 2 if y.ndim == 2 else max(2, response.shape[1])
    known = (y >= 0) & (y < classes) & (y == np.floor(y))
    if not known.all():
        raise ValueError(
            f"y: {y[~known][0]} is not a class code; response of shape {response.shape} goes with "
            f"the codes 0..{classes - 1}. Encode the classes as in training, or use a regression metric."
        )
    return y.astype(np.intp)


def predicted_codes(y: FloatArray, response: FloatArray) -> IntArray:
    """Return the most probable class, the lower code of a tie; class 1 of two needs a probability above 1/2."""
    if y.ndim == 2 or response.shape[1] == 1:
        return ((response if y.ndim == 2 else response[:, 0]) > 0.5).astype(np.intp)
    codes: IntArray = np.argmax(response, axis=1)
    return codes


def probability_of_truth(y: FloatArray, response: FloatArray) -> FloatArray:
    """Return the probability of the true class (n, 1), or of the truth of each label (n, C)."""
    codes = class_codes(y, response)
    if codes.ndim == 1 and response.shape[1] > 1:
        return np.take_along_axis(response, codes[:, None], axis=1)
    return np.where(codes.reshape(response.shape) == 1, response, 1 - response)
