"""Losses of classes. q is the probability the scores give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gbun.arrays import Array, like, logsumexp, namespace, places, row_dots, sigmoid
from gbun.collectives import Collective
from gbun.dtypes import FloatArray
from gbun.objectives.base import Objective, Scores, column, weighted_mean

LEAST_CURVATURE = 0.05  # see Softmax
RARE = 1e-12  # a class no row has would start at -infinity


@dataclass(frozen=True)
class Logistic(Objective):
    """y in {0, 1}: loss = log(1 + e^s) - y s;  g = q - y, h = q (1 - q), q = 1 / (1 + e^-s).

    >>> Logistic().derivatives(np.array([1.0]), np.array([[0.0]]), np.array([1.0]))
    (array([[-0.5]]), array([0.25]))
    """

    name: ClassVar[str] = "logistic"
    metric: ClassVar[str] = "log_loss"

    def loss(self, y: Array, scores: Scores) -> Array:
        return (namespace(scores).logaddexp(like(0.0, scores), scores) - column(y) * scores).sum(axis=1)

    def derivatives(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        q = self.response(scores)
        return (q - column(y)) * weight[:, None], (q * (1.0 - q))[:, 0] * weight

    def start(self, y: FloatArray, weight: FloatArray, collective: Collective) -> FloatArray:
        mean = weighted_mean(column(y), weight, collective).clip(RARE, 1.0 - RARE)
        return np.log(mean / (1.0 - mean))

    def response(self, scores: Scores) -> Array:
        return sigmoid(scores)


@dataclass(frozen=True)
class MultiLogistic(Logistic):
    """Several labels of 0 or 1, one logistic loss each, summed.

    `shared`: one Hessian h_i = 1/4, the bound of q (1 - q), for all labels: one Gram, and a line search that gives
    back the length the bound took. Otherwise one Hessian and one Gram for each label.
    """

    shared: bool = True
    name: ClassVar[str] = "multi_logistic"

    @property
    def line_search(self) -> bool:  # type: ignore[override]
        return self.shared

    def parameters(self) -> dict[str, Any]:
        return {"shared": self.shared}

    def n_grams(self, n_scores: int) -> int:
        return 1 if self.shared else n_scores

    def derivatives(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        q = self.response(scores)
        h = 0.25 * weight if self.shared else q * (1.0 - q) * weight[:, None]
        return (q - column(y)) * weight[:, None], h

    def along(self, y: Array, scores: Scores, weight: Array, direction: Array) -> Array:
        q = self.response(scores)
        slope = ((q - column(y)) * direction).sum(axis=1)
        return namespace(q).stack([weight @ slope, weight @ (q * (1.0 - q) * direction**2).sum(axis=1)])


@dataclass(frozen=True)
class Softmax(Objective):
    """y in {0, ..., C-1}: loss = log sum_c e^(s_c) - s_y;  g_c = q_c - 1[y = c], Hessian diag(q) - qq'.

    `shared`: one Hessian for all classes, h = max(max_c q_c (1 - q_c), 0.05), so one Gram, and a line search along
    the step with the true Hessian. The floor matters with many classes: q starts at 1 / C, where the curvature is
    next to nothing, and rises as soon as a step is taken; it also keeps rows that are already right in their place.
    Otherwise the paper's h_c = q_c (1 - q_c), a Gram for each class.
    """

    n_classes: int = 2
    shared: bool = True
    name: ClassVar[str] = "softmax"
    metric: ClassVar[str] = "log_loss"

    @property
    def line_search(self) -> bool:  # type: ignore[override]
        return self.shared

    def parameters(self) -> dict[str, Any]:
        return {"n_classes": self.n_classes, "shared": self.shared}

    def n_grams(self, n_scores: int) -> int:
        return 1 if self.shared else n_scores

    def n_outputs(self, y: FloatArray) -> int:
        return self.n_classes

    def loss(self, y: Array, scores: Scores) -> Array:
        return logsumexp(scores) - scores[places(y)]

    def derivatives(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        q, xp = _probabilities(scores), namespace(scores)
        spread = q * (1.0 - q)
        h = xp.max(spread, axis=1).clip(min=LEAST_CURVATURE) * weight if self.shared else spread * weight[:, None]
        q[places(y)] -= 1.0
        return q * weight[:, None], h

    def along(self, y: Array, scores: Scores, weight: Array, direction: Array) -> Array:
        # g'd = mean of d under q - d_y;  d'(diag(q) - qq')d = the variance of d under q
        q, xp = _probabilities(scores), namespace(scores)
        mean = row_dots(q, direction, scores.dtype)
        variance = row_dots(q, (direction - xp.astype(mean[:, None], q.dtype)) ** 2, scores.dtype)
        return xp.stack([weight @ (mean - direction[places(y)]), weight @ variance])

    def start(self, y: FloatArray, weight: FloatArray, collective: Collective) -> FloatArray:
        counts = collective.sum(np.bincount(y.astype(np.intp), weight, minlength=self.n_classes))
        return np.asarray(np.log(np.maximum(counts / counts.sum(), RARE)))

    def response(self, scores: Scores) -> Array:
        return _softmax(scores - _largest(scores))


def _probabilities(scores: Scores) -> Array:
    """Softmax in float32, several times faster: n x C exponentials are most of a round with many classes.

    Scores are shifted in float64 first, so what is lost is 1e-7 of a probability.
    """
    xp = namespace(scores)
    return _softmax(xp.astype(scores - _largest(scores), xp.float32))


def _largest(scores: Scores) -> Array:
    return namespace(scores).max(scores, axis=1, keepdims=True)


def _softmax(q: Array) -> Array:
    """e^q of each row over their sum, in the place of q, none of which is above 0."""
    namespace(q).exp(q, out=q)
    q /= q.sum(axis=1, keepdims=True)
    return q
