"""What an objective is: a loss, its derivatives in the scores, its best constant and its link."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from gbun.arrays import Array, dot, namespace
from gbun.collectives import Collective
from gbun.dtypes import FloatArray

Scores = Array


class Objective(ABC):
    """Minimise sum_i weight_i loss(y_i, s_i) over scores s, an n x C array (C = 1 with a single output).

    A subclass gives `loss`, `derivatives` and `start`. Rows are independent, so
    everything here works on any chunk of rows, and what is needed of all rows is a sum.

    What is asked for in every round (`loss`, `derivatives`, `along`, `response`) takes arrays of NumPy or tensors and
    answers in kind, on their device and in the dtype of the scores; what is found out before the first round
    (`prepared`, `start`) is NumPy's.
    """

    name: ClassVar[str]
    metric: ClassVar[str]
    """The metric users expect to see for it."""
    line_search: ClassVar[bool] = False
    """Whether the Newton system is only a bound of the true curvature, so that each step's length is searched."""

    score_bytes: ClassVar[int] = 80
    """About what derivatives need for each score of the rows they are made of."""

    def parameters(self) -> dict[str, Any]:
        """What besides the name makes this objective; stored in the model file."""
        return {}

    def default_metric(self) -> Any:
        """The metric's name, or the metric itself."""
        return self.metric

    def n_outputs(self, y: FloatArray) -> int:
        return 1 if y.ndim == 1 else y.shape[1]

    def n_grams(self, n_scores: int) -> int:
        """Hessians a row may have: one for all its scores, or one for each."""
        return 1

    def check_target(self, y: FloatArray) -> None:  # noqa: B027 - most losses take any number
        """Raise a ValueError when y holds values this loss has no meaning for."""

    def prepared(self, y: FloatArray, weight: FloatArray, collective: Collective) -> Objective:
        """This objective with what it needs to know of all targets; most need nothing."""
        return self

    @abstractmethod
    def loss(self, y: Array, scores: Scores) -> Array:
        """Loss of each row, summed over its outputs, unweighted."""

    @abstractmethod
    def derivatives(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        """Weighted gradient (n x C) and Hessian: n values shared by all outputs, or n x C."""

    def along(self, y: Array, scores: Scores, weight: Array, direction: Array) -> Array:
        """[g'd, d'Hd] at `scores`, which a line search asks for. Override it where `derivatives` only bounds H."""
        g, h = self.derivatives(y, scores, weight)
        return namespace(g).stack([dot(g, direction), (column(h) * direction**2).sum()])

    @abstractmethod
    def start(self, y: FloatArray, weight: FloatArray, collective: Collective) -> FloatArray:
        """The constant scores (C of them) that minimise the loss, from sums over rows alone."""

    def response(self, scores: Scores) -> Array:
        """The prediction on the scale of y: n x C, a probability or a value."""
        return scores


def column(y: Array) -> Array:
    """y as n x C."""
    return y[:, None] if y.ndim == 1 else y


def weighted_mean(values: FloatArray, weight: FloatArray, collective: Collective) -> FloatArray:
    """The mean of each column over all workers' rows."""
    sums = collective.sum(np.append(weight @ values, weight.sum()))
    return np.asarray(sums[:-1] / sums[-1])


def mean_and_spread(y: FloatArray, weight: FloatArray, collective: Collective) -> tuple[float, float]:
    """The mean of one target and its mean absolute deviation; a deviation at the level of rounding is 0."""
    mean = float(weighted_mean(column(y), weight, collective)[0])
    spread = float(weighted_mean(np.abs(column(y) - mean), weight, collective)[0])
    return mean, spread if spread > 1e-12 * abs(mean) else 0.0


def bisect(
    slope: Callable[[float], float], y: FloatArray, weight: FloatArray, collective: Collective, steps: int = 200
) -> FloatArray:
    """The best constant of a convex loss with one output: where its slope, a sum over rows, changes its sign.

    Only sums of one number are exchanged, so this is also how a quantile is found without sorting rows together.
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
