"""Metrics that are functions of the user: of all rows at once, or of each row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gbun.dtypes import FloatArray
from gbun.metrics.base import RankingMetric, RowMean


class FunctionMetric(RankingMetric):
    """f(y, response, weight) -> float, called once with all rows of positive weight.

    Nothing is known about the function, so it cannot be computed from the shares of several workers. A RowMetric can,
    and any subclass of MeanMetric.

    Parameters
    ----------
    name : str
        The name under which the metric is reported.
    function : callable
        With one output, y and response are vectors of length n (for two classes y is 0 or 1 and response the
        probability of class 1). Otherwise response is (n, C), and y holds class codes 0 .. C-1 or is (n, C).
    higher_is_better : bool, default=False

    Examples
    --------
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
        self.name, self.function, self.higher_is_better = name, function, bool(higher_is_better)

    def compute_from_rows(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> float:
        flat = response[:, 0] if response.shape[1] == 1 and y.ndim == 1 else response
        value = self.function(y, flat, weight)
        try:
            return float(value)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"metric: the function {self.name!r} returned {value!r}, expected one number; "
                "return float(...) from f(y, response, weight)."
            ) from error


class RowMetric(RowMean):
    """The weighted mean of f(y, response) over rows.

    Parameters
    ----------
    name : str
        The name under which the metric is reported.
    function : callable
        f(y, response) returns one number for each row, (n,); response is (n, C), with one column for each output.
    higher_is_better : bool, default=False

    Examples
    --------
    >>> from gbun.collectives import Solo
    >>> distance = RowMetric("distance", lambda y, response: abs(y - response[:, 0]))
    >>> distance.evaluate(np.array([1.0, 2.0]), np.array([[1.5], [4.0]]), np.ones(2), Solo())
    1.25
    """

    def __init__(self, name: str, function: Callable[..., Any], higher_is_better: bool = False) -> None:
        self.name, self.function, self.higher_is_better = name, function, higher_is_better

    def n_sums(self, y: FloatArray, n_outputs: int) -> int:
        return 2  # without a call: a function of the user need not accept an empty y

    def row_values(self, y: FloatArray, response: FloatArray) -> FloatArray:
        values = np.asarray(self.function(y, response))
        if values.shape != (len(response),):
            raise ValueError(
                f"metric: the function {self.name!r} returned shape {values.shape}, expected {(len(response),)}; "
                "return one number for each row from f(y, response)."
            )
        return values
