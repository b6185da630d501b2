"""Losses of classes. q is the probability that the scores give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gbun.arrays import Array, asarray_like, logsumexp, namespace, row_dots, sigmoid, target_index
from gbun.collectives import Collective
from gbun.dtypes import FloatArray
from gbun.kernels import derivatives
from gbun.objectives.base import LEAF_SHARE, Objective, Scores, as_columns, weighted_mean

MIN_CURVATURE = 0.05  # see Softmax
LEAST_CLASS_CURVATURE = 1e-3  # of each class of a leaf: scores of rare classes do not fall beyond recall
LEAST_CURVATURE = 1e-6  # of a row that is classified with certainty
MIN_PROBABILITY = 1e-12  # a class that no row has would start at -infinity


@dataclass(frozen=True)
class Logistic(Objective):
    """Two classes, y in {0, 1}: loss = log(1 + e^s) - y s;  g = q - y, h = q (1 - q), q = 1 / (1 + e^-s).

    h is at least 1e-6, so that steps stay bounded where classes can be separated.

    >>> Logistic().derivatives(np.array([1.0]), np.array([[0.0]]), np.array([1.0]))
    (array([[-0.5]]), array([0.25]))
    """

    name: ClassVar[str] = "logistic"
    metric: ClassVar[str] = "log_loss"

    def loss(self, y: Array, scores: Scores) -> Array:
        return (namespace(scores).logaddexp(asarray_like(0.0, scores), scores) - as_columns(y) * scores).sum(axis=1)

    def derivatives(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        q = self.response(scores)
        return (q - as_columns(y)) * weight[:, None], _bounded_curvature(q)[:, 0] * weight

    def fill_leaf_derivatives(
        self, y: FloatArray, scores: FloatArray, weight: FloatArray, g: FloatArray, h: FloatArray
    ) -> None:
        derivatives.fill_logistic(as_columns(y), scores, weight, LEAST_CURVATURE, LEAF_SHARE, g, h)

    def start(self, y: FloatArray, weight: FloatArray, collective: Collective) -> FloatArray:
        mean = weighted_mean(as_columns(y), weight, collective).clip(MIN_PROBABILITY, 1.0 - MIN_PROBABILITY)
        return np.log(mean / (1.0 - mean))

    def response(self, scores: Scores) -> Array:
        return sigmoid(scores)


class _MaybeSharedHessian(Objective):
    """A loss of several outputs: one Hessian for all of them and a line search, or one Hessian for each."""

    shared: bool

    @property
    def line_search(self) -> bool:  # type: ignore[override]
        return self.shared

    def n_grams(self, n_scores: int) -> int:
        return 1 if self.shared else n_scores


@dataclass(frozen=True)
class MultiLogistic(_MaybeSharedHessian, Logistic):
    """Several labels of 0 or 1: the sum of their logistic losses.

    Parameters
    ----------
    shared : bool
        Use one Hessian, h_i = 1/4, the upper bound of q (1 - q), and so one Gram matrix for all labels. The line search
        makes up for steps that the bound makes too short. Otherwise each label has its own Hessian and Gram matrix.
    """

    shared: bool = True
    name: ClassVar[str] = "multi_logistic"

    def derivatives(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        q = self.response(scores)
        h = 0.25 * weight if self.shared else _bounded_curvature(q) * weight[:, None]
        return (q - as_columns(y)) * weight[:, None], h

    def leaf_derivatives(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        q = self.response(scores)
        return (q - as_columns(y)) * weight[:, None], _bounded_curvature(q) * weight[:, None]

    def derivatives_along(self, y: Array, scores: Scores, weight: Array, direction: Array) -> Array:
        q = self.response(scores)
        slope = ((q - as_columns(y)) * direction).sum(axis=1)
        return namespace(q).stack([weight @ slope, weight @ (q * (1.0 - q) * direction**2).sum(axis=1)])


@dataclass(frozen=True)
class Softmax(_MaybeSharedHessian):
    """Classes, y in {0, ..., C-1}: loss = log sum_c e^(s_c) - s_y;  g_c = q_c - 1[y = c], Hessian diag(q) - qq'.

    Parameters
    ----------
    n_classes : int
        C.
    shared : bool
        Use one Hessian, h = max(max_c q_c (1 - q_c), 0.05), and so one Gram matrix for all classes, with a line search
        by the true Hessian. The floor matters with many classes: q starts at 1 / C, where the curvature is close to 0
        and grows with the first step. It also holds rows that are already classified correctly.
        Otherwise h_c = q_c (1 - q_c) as in the paper, with a Gram matrix for each class.
    """

    n_classes: int = 2
    shared: bool = True
    name: ClassVar[str] = "softmax"
    metric: ClassVar[str] = "log_loss"

    def n_outputs(self, y: FloatArray) -> int:
        return self.n_classes

    def loss(self, y: Array, scores: Scores) -> Array:
        return logsumexp(scores) - scores[target_index(y)]

    def derivatives(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        q, xp = _probabilities(scores), namespace(scores)
        spread = _bounded_curvature(q)
        h = xp.max(spread, axis=1).clip(min=MIN_CURVATURE) * weight if self.shared else spread * weight[:, None]
        q[target_index(y)] -= 1.0
        return q * weight[:, None], h

    def leaf_derivatives(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        # Scores that are all raised by one number change no probability, so each has only (C - 1) / C of a freedom of
        # its own: h_c = C / (C - 1) q_c (1 - q_c)
        q = _probabilities(scores)
        h = _bounded_curvature(q) * (weight * (self.n_classes / (self.n_classes - 1.0)))[:, None]
        q[target_index(y)] -= 1.0
        return q * weight[:, None], h

    def fill_leaf_derivatives(
        self, y: FloatArray, scores: FloatArray, weight: FloatArray, g: FloatArray, h: FloatArray
    ) -> None:
        derivatives.fill_softmax(y, scores, weight, LEAST_CLASS_CURVATURE, LEAF_SHARE, g, h)

    def derivatives_along(self, y: Array, scores: Scores, weight: Array, direction: Array) -> Array:
        # g'd = (mean of d under q) - d_y;  d'(diag(q) - qq')d = variance of d under q
        q, xp = _probabilities(scores), namespace(scores)
        mean = row_dots(q, direction, scores.dtype)
        variance = row_dots(q, (direction - xp.astype(mean[:, None], q.dtype)) ** 2, scores.dtype)
        return xp.stack([weight @ (mean - direction[target_index(y)]), weight @ variance])

    def start(self, y: FloatArray, weight: FloatArray, collective: Collective) -> FloatArray:
        counts = collective.sum(np.bincount(y.astype(np.intp), weight, minlength=self.n_classes))
        return np.asarray(np.log(np.maximum(counts / counts.sum(), MIN_PROBABILITY)))

    def response(self, scores: Scores) -> Array:
        return _exp_and_normalise(scores - _row_max(scores))


def _bounded_curvature(q: Array) -> Array:
    """Return q (1 - q), or a little more: without a penalty, rows that are certain would make steps of any length."""
    return (q * (1.0 - q)).clip(min=LEAST_CURVATURE)


def _probabilities(scores: Scores) -> Array:
    """Compute the softmax in float32: n x C exponentials take most of a round with many classes.

    Scores are shifted in float64 first, so the error is 1e-7 of a probability.
    """
    xp = namespace(scores)
    return _exp_and_normalise(xp.astype(scores - _row_max(scores), xp.float32))


def _row_max(scores: Scores) -> Array:
    return namespace(scores).max(scores, axis=1, keepdims=True)


def _exp_and_normalise(q: Array) -> Array:
    """Replace each row of q, whose values are at most 0, by e^q / sum e^q."""
    namespace(q).exp(q, out=q)
    q /= q.sum(axis=1, keepdims=True)
    return q
