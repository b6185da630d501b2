"""The interface of an objective: a loss, its derivatives by the scores, its best constant and its link."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from gbun.arrays import Array, dot, namespace
from gbun.collectives import Collective
from gbun.dtypes import FloatArray

Scores = Array
LEAF_SHARE = 0.2  # of |g|, the least h of a row in a leaf where g has no bound beside h: no leaf steps farther than 5


@dataclass(frozen=True)
class Objective(ABC):
    """A loss to minimise: sum_i weight_i loss(y_i, s_i) over the scores s.

    A subclass defines `loss`, `derivatives` and `start`. Rows are independent: every method works on any chunk of rows,
    and whatever depends on all rows is a sum.

    `loss`, `derivatives`, `derivatives_along` and `response` are called in every round. They take NumPy arrays or torch
    tensors and return the same kind, on the same device, in the dtype of the scores. `prepare` and `start` are called
    before the first round, with NumPy arrays. Arguments of all methods:

    y : array of shape (n,), or (n, C) with several targets
        Of classes, their numbers 0 .. C-1 as floats.
    scores : array of shape (n, C); C = 1 with a single output
    weight : array of shape (n,)
    """

    name: ClassVar[str]
    metric: ClassVar[str]
    """The name of the metric that users expect for this objective."""
    line_search: ClassVar[bool] = False
    """Whether the Hessian is only a bound, or an estimate, so that the length of each step is searched."""
    score_bytes: ClassVar[int] = 80
    """About how many bytes `derivatives` needs for each score."""

    def parameters(self) -> dict[str, Any]:
        """Return what besides the name defines this objective, as the model file stores it."""
        return asdict(self)

    def default_metric(self) -> Any:
        """Return the name of the metric, or the metric itself."""
        return self.metric

    def n_outputs(self, y: FloatArray) -> int:
        """Return C, the number of scores of a row."""
        return 1 if y.ndim == 1 else y.shape[1]

    def n_grams(self, n_scores: int) -> int:
        """Return the largest number of Hessians of a row: 1 if all scores share one, otherwise `n_scores`."""
        return 1

    def check_target(self, y: FloatArray) -> None:  # noqa: B027 - most losses take any number
        """Raise a ValueError if y has values for which the loss is not defined."""

    def prepare(self, y: FloatArray, weight: FloatArray, collective: Collective) -> Objective:
        """Return this objective with the parameters that depend on the targets of all workers."""
        return self

    @abstractmethod
    def loss(self, y: Array, scores: Scores) -> Array:
        """Return the loss of each row, (n,), summed over its outputs and without weights."""

    @abstractmethod
    def derivatives(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        """Return the weighted gradient, (n, C), and Hessian: (n,) if all outputs share it, or (n, C)."""

    def leaf_derivatives(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        """Return gradient and Hessian, (n, C) each, or a Hessian of (n,), for the values of a leaf.

        Rows of a leaf share one value for each score, which is solved for by itself: where `derivatives` has a bound
        for all scores, this has the curvature of each.
        """
        return self.derivatives(y, scores, weight)

    def fill_leaf_derivatives(
        self, y: FloatArray, scores: FloatArray, weight: FloatArray, g: FloatArray, h: FloatArray
    ) -> None:
        """Write `leaf_derivatives` into float32 arrays g and h, (n, C); compiled for the most common losses."""
        gradient, hessian = self.leaf_derivatives(y, scores, weight)
        g[...], h[...] = gradient, as_columns(hessian)

    def derivatives_along(self, y: Array, scores: Scores, weight: Array, direction: Array) -> Array:
        """Return [g'd, d'Hd], (2,), at `scores` for the line search; `direction` d is (n, C).

        Override it where the Hessian of `derivatives` is only a bound.
        """
        g, h = self.derivatives(y, scores, weight)
        return namespace(g).stack([dot(g, direction), (as_columns(h) * direction**2).sum()])

    @abstractmethod
    def start(self, y: FloatArray, weight: FloatArray, collective: Collective) -> FloatArray:
        """Return the constant scores that minimise the loss, float64 of shape (C,), from sums over rows alone."""

    def response(self, scores: Scores) -> Array:
        """Return the prediction on the scale of y, (n, C): probabilities or values."""
        return scores


def as_columns(y: Array) -> Array:
    """Return a vector as one column, and a matrix as it is."""
    return y[:, None] if y.ndim == 1 else y


def weighted_mean(values: FloatArray, weight: FloatArray, collective: Collective) -> FloatArray:
    """Return the mean of each column over the rows of all workers."""
    sums = collective.sum(np.append(weight @ values, weight.sum()))
    return np.asarray(sums[:-1] / sums[-1])


def mean_and_spread(y: FloatArray, weight: FloatArray, collective: Collective) -> tuple[float, float]:
    """Return the mean of one target and its mean absolute deviation; one at the level of rounding counts as 0."""
    mean = float(weighted_mean(as_columns(y), weight, collective)[0])
    spread = float(weighted_mean(np.abs(as_columns(y) - mean), weight, collective)[0])
    return mean, spread if spread > 1e-12 * abs(mean) else 0.0


def unit_of(y: FloatArray, weight: FloatArray, collective: Collective) -> float:
    """Return the mean absolute deviation of y, of a constant its absolute value, of zeros 1."""
    mean, spread = mean_and_spread(y, weight, collective)
    return spread or abs(mean) or 1.0


def bisect(
    slope: Callable[[float], float], y: FloatArray, weight: FloatArray, collective: Collective, steps: int = 200
) -> FloatArray:
    """Find the best constant of a convex loss with one output: where its slope, a sum over rows, changes its sign.

    Workers exchange sums of one number only, so this also finds a quantile without sorting the rows of all workers.
    """
    mean, spread = mean_and_spread(y, weight, collective)
    if spread == 0.0:
        return np.array([mean])
    low, high, reach = mean - spread, mean + spread, spread
    while slope(low) > 0.0 and np.isfinite(low):
        low, reach = low - reach, 2.0 * reach
    while slope(high) < 0.0 and np.isfinite(high):
        high, reach = high + reach, 2.0 * reach
    for _ in range(steps):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (middle, high) if slope(middle) < 0.0 else (low, middle)
    return np.array([0.5 * (low + high)])
