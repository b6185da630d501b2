"""Metrics that are Python functions: of all rows at once, or of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gbun.dtypes import FloatArray
from gbun.metrics.base import MeanMetric, RankingMetric


class FunctionMetric(RankingMetric):
    """f(y, response, weight) -> float, called once with all rows of positive weight.

    With one output y and response are vectors of the same length (of two classes y is 0 or 1 and response the
    probability of 1); with several, response is n x C, and y holds class codes 0 .. C-1 or n x C targets.

    Nothing is known about the function, so it is not combined from the parts of several workers. A RowMetric is, and
    any subclass of MeanMetric.

    >>> import numpy as np
    >>> from gbun.collectives import Solo
    >>> worst = FunctionMetric("worst", lambda y, response, weight: abs(y - response).max())
    >>> worst.evaluate(np.array([1.0, 2.0]), np.array([[1.5], [4.0]]), np.ones(2), Solo())
    2.0
    """

    def __init__(self, name: str, function: Callable[..., Any], higher_is_better: bool = False) -> None:
        if not isinstance(name, str) or not name:
            raise ValueError(f"name: came as {name!r}, expected a non-empty string to report the metric under.")
        if not callable(function):
            raise ValueError(f"function: came as {function!r}, expected f(y, response, weight) -> float.")
        self.name = name
        self.function = function
        self.higher_is_better = bool(higher_is_better)

    def of_rows(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> float:
        flat = response[:, 0] if response.shape[1] == 1 and y.ndim == 1 else response
        value = self.function(y, flat, weight)
        try:
            return float(value)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"metric: the function {self.name!r} returned {value!r}, expected one number; "
                "return float(...) from f(y, response, weight)."
            ) from error


class RowMetric(MeanMetric):
    """The weighted mean of f(y, response), which gives one number for each row; response has a column for each output.

    >>> from gbun.collectives import Solo
    >>> distance = RowMetric("distance", lambda y, response: abs(y - response[:, 0]))
    >>> distance.evaluate(np.array([1.0, 2.0]), np.array([[1.5], [4.0]]), np.ones(2), Solo())
    1.25
    """

    def __init__(self, name: str, function: Callable[..., Any], higher_is_better: bool = False) -> None:
        self.name, self.function, self.higher_is_better = name, function, higher_is_better

    def n_sums(self, y: FloatArray, n_outputs: int) -> int:
        return 2  # a function of the user need not know what to make of no rows

    def sums(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> FloatArray:
        values = np.asarray(self.function(y, response))
        if values.shape != weight.shape:
            raise ValueError(
                f"metric: the function {self.name!r} returned shape {values.shape}, expected {weight.shape}; return "
                "one number for each row from f(y, response)."
            )
        return np.array([weight @ values, weight.sum()])
