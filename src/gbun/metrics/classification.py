"""Metrics of class probabilities and of the classes they predict, all made of sums over rows.

The shapes tell the task: y of two dimensions is several labels, response of one column two classes, of
more columns as many classes.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from gbun.dtypes import SUM, FloatArray, IntArray
from gbun.metrics.base import MeanMetric, targets

EPS = float(np.finfo(SUM).eps)


class LogLoss(MeanMetric):
    """-log of the probability given to what happened, clipped to [eps, 1 - eps] with the eps of float64.

    Two classes: -log(p) or -log(1 - p); C classes: -log p_y; several labels: the mean over labels.

    >>> LogLoss().sums(np.array([1.0, 0.0]), np.array([[0.25], [0.5]]), np.ones(2)) / np.log(2)
    array([3.        , 2.88539008])
    """

    name = "log_loss"

    def sums(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> FloatArray:
        happened = np.clip(probability_of_truth(y, response), EPS, 1 - EPS)
        return np.array([weight @ -np.log(happened).mean(axis=1), weight.sum()])


class Brier(MeanMetric):
    """Squared distance between probabilities and what happened.

    Two classes: (p - y)^2; C classes: sum_c (p_c - [y = c])^2; several labels: the mean over labels.

    >>> Brier().sums(np.array([1.0, 0.0]), np.array([[0.5], [0.0]]), np.ones(2))
    array([0.25, 2.  ])
    """

    name = "brier"

    def sums(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> FloatArray:
        codes = class_codes(y, response)
        if codes.ndim == 2 or response.shape[1] == 1:
            squares = ((response - codes.reshape(response.shape)) ** 2).mean(axis=1)
        else:
            distance = response.copy()
            distance[np.arange(len(codes)), codes] -= 1
            squares = (distance**2).sum(axis=1)
        return np.array([weight @ squares, weight.sum()])


class Error(MeanMetric):
    """Share of rows whose class is predicted wrongly; with several labels, of (row, label) pairs.

    >>> Error().sums(np.array([1.0, 0.0]), np.array([[0.7], [0.6]]), np.ones(2))
    array([1., 2.])
    """

    name = "error"

    def sums(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> FloatArray:
        wrong = class_codes(y, response) != predicted_codes(y, response)
        share = wrong.mean(axis=1) if wrong.ndim == 2 else wrong
        return np.array([weight @ share, weight.sum()])


class Accuracy(Error):
    """1 - error: the share of rows, or with several labels of (row, label) pairs, that are right.

    With several labels this is element by element; a row with 9 of 10 labels right counts 0.9, not 0.

    >>> Accuracy().value(Error().sums(np.array([1.0, 0.0]), np.array([[0.7], [0.6]]), np.ones(2)))
    0.5
    """

    name = "accuracy"
    higher_is_better = True

    def value(self, sums: FloatArray) -> float:
        return 1 - super().value(sums)


class MacroMetric(MeanMetric):
    """The plain average over classes of a score made of three weights per class.

    For class c: hits (predicted c and is c), predicted (predicted c), present (is c). Two classes count as
    C = 2; with several labels a class is the presence of one label. A class neither predicted nor present
    tells nothing and is left out.
    """

    higher_is_better = True

    @abstractmethod
    def per_class(self, hits: FloatArray, predicted: FloatArray, present: FloatArray) -> FloatArray:
        """The score of each class, where predicted + present > 0."""

    def sums(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> FloatArray:
        truth, guess = class_codes(y, response), predicted_codes(y, response)
        if truth.ndim == 2:
            return np.concatenate([weight @ (truth & guess), weight @ guess, weight @ truth])
        classes, hit = max(2, response.shape[1]), truth == guess
        return np.concatenate(
            [
                np.bincount(truth[hit], weight[hit], classes),
                np.bincount(guess, weight, classes),
                np.bincount(truth, weight, classes),
            ]
        )

    def value(self, sums: FloatArray) -> float:
        hits, predicted, present = sums.reshape(3, -1)
        seen = predicted + present > 0
        if not seen.any():
            return float("nan")
        return float(self.per_class(hits[seen], predicted[seen], present[seen]).mean())


class MacroPrecision(MacroMetric):
    """mean_c hits_c / predicted_c; a class that is present and never predicted counts 0.

    >>> macro, y = MacroPrecision(), np.array([0.0, 1.0, 1.0])
    >>> macro.value(macro.sums(y, np.array([[0.1], [0.2], [0.9]]), np.ones(3)))
    0.75
    """

    name = "macro_precision"

    def per_class(self, hits: FloatArray, predicted: FloatArray, present: FloatArray) -> FloatArray:
        return hits / np.where(predicted > 0, predicted, 1)


class MacroF1(MacroMetric):
    """mean_c 2 hits_c / (predicted_c + present_c), the harmonic mean of precision and recall per class.

    >>> macro, y = MacroF1(), np.array([0.0, 1.0, 1.0])
    >>> macro.value(macro.sums(y, np.array([[0.1], [0.2], [0.9]]), np.ones(3)))
    0.6666666666666666
    """

    name = "macro_f1"

    def per_class(self, hits: FloatArray, predicted: FloatArray, present: FloatArray) -> FloatArray:
        return np.asarray(2 * hits / (predicted + present))


def class_codes(y: FloatArray, response: FloatArray) -> IntArray:
    """y as whole numbers: codes (n,), or zeros and ones (n, C) with several labels.

    >>> class_codes(np.array([2.0, 0.0]), np.zeros((2, 3)))
    array([2, 0])
    """
    if y.ndim == 2:
        y = targets(y, response)
    classes = 2 if y.ndim == 2 else max(2, response.shape[1])
    known = (y >= 0) & (y < classes) & (y == np.floor(y))
    if not known.all():
        raise ValueError(
            f"y: {y[~known][0]} is not a class code; response of shape {response.shape} goes with "
            f"the codes 0..{classes - 1}. Encode the classes as in training, or use a regression metric."
        )
    return y.astype(np.intp)


def predicted_codes(y: FloatArray, response: FloatArray) -> IntArray:
    """The most probable class, the lower code when two are equally so: 1 needs a probability above 1/2.

    >>> predicted_codes(np.zeros(2), np.array([[0.5], [0.6]]))
    array([0, 1])
    >>> predicted_codes(np.zeros(1), np.array([[0.2, 0.4, 0.4]]))
    array([1])
    """
    if y.ndim == 2:
        return (response > 0.5).astype(np.intp)
    if response.shape[1] == 1:
        return (response[:, 0] > 0.5).astype(np.intp)
    codes: IntArray = np.argmax(response, axis=1)
    return codes


def probability_of_truth(y: FloatArray, response: FloatArray) -> FloatArray:
    """The probability given to what happened: (n, C) with several labels, otherwise (n, 1).

    >>> probability_of_truth(np.array([1.0, 0.0]), np.array([[0.25], [0.25]])).ravel()
    array([0.25, 0.75])
    """
    codes = class_codes(y, response)
    if codes.ndim == 1 and response.shape[1] > 1:
        return np.take_along_axis(response, codes[:, None], axis=1)
    return np.where(codes.reshape(response.shape) == 1, response, 1 - response)
