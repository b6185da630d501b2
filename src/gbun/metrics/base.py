"""What a metric is, and the two ways in which one can be computed by workers that never exchange rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from gbun.collectives import Collective
from gbun.dtypes import SUM, FloatArray


class Metric(ABC):
    """A number that says how well the response of a model fits y.

    Three arrays describe the rows, and their shapes tell the task:

    ============================  ==================  =============================================
    task                          y                   response (after the link)
    ============================  ==================  =============================================
    regression                    (n,)                (n, 1) predictions
    several outputs               (n, C)              (n, C) predictions
    two classes                   (n,) codes 0, 1     (n, 1) probability of class 1
    C > 2 classes                 (n,) codes 0..C-1   (n, C) probabilities
    several labels                (n, C) zeros, ones  (n, C) probability of each label
    ============================  ==================  =============================================

    Weights are (n,) and not negative. Two laws hold for every metric: a row of weight 0 changes nothing,
    and a row of weight 2 is the row twice. Without any weight the value is nan.
    """

    name: str
    higher_is_better: bool = False

    # What may follow a colon in the name ("pinball:0.9"), for error messages; None when nothing may.
    parameter: ClassVar[str | None] = None

    @abstractmethod
    def evaluate(self, y: FloatArray, response: FloatArray, weight: FloatArray, collective: Collective) -> float:
        """The metric over the rows of all workers, the same number on each of them."""

    def __repr__(self) -> str:
        return f"<metric {self.name}>"


class MeanMetric(Metric):
    """A metric that is a function of sums over rows, and so is exact however rows are divided.

    Workers add up numerators and denominators and divide once: an average of the workers' averages would
    depend on which worker holds which row.
    """

    @abstractmethod
    def sums(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> FloatArray:
        """Sums over the rows at hand; their number depends on C only."""

    def value(self, sums: FloatArray) -> float:
        """The metric from the sums over all rows: numerator / denominator."""
        return ratio(sums[0], sums[1])

    def evaluate(self, y: FloatArray, response: FloatArray, weight: FloatArray, collective: Collective) -> float:
        y, response, weight = weighted_rows(y, response, weight)
        sums = self.sums(y, response, weight)
        # A comparison or an argmax takes nan for an ordinary answer; a model that diverged must be seen.
        if np.isnan(response).any():
            sums = np.full_like(sums, np.nan)
        return self.value(collective.sum(sums))


class RankingMetric(Metric):
    """A metric that compares rows with each other and so needs all of them in one place."""

    @abstractmethod
    def of_rows(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> float:
        """The metric over the rows given: at least one, each of positive weight."""

    def evaluate(self, y: FloatArray, response: FloatArray, weight: FloatArray, collective: Collective) -> float:
        if collective.size > 1:
            raise ValueError(
                f"metric: {self.name!r} needs all rows in one place, but they are divided among "
                f"{collective.size} workers and a distributed form is not available. Use a metric made of "
                "sums (log_loss, brier, error, rmse, mae, ...), or evaluate the trained model in one process."
            )
        y, response, weight = weighted_rows(y, response, weight)
        return self.of_rows(y, response, weight) if len(weight) else float("nan")


def ratio(numerator: float, denominator: float) -> float:
    """numerator / denominator, nan where there is nothing to divide by.

    >>> ratio(1.0, 4.0), ratio(0.0, 0.0)
    (0.25, nan)
    """
    return float(numerator / denominator) if denominator != 0 else float("nan")


def weighted_rows(y: FloatArray, response: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The rows that weigh anything, after a check of shapes.

    Rows of weight 0 are taken out rather than multiplied by 0, which would keep their nan or infinity.

    >>> y, response, weight = weighted_rows([1.0, np.nan], [[0.5], [0.5]], [2.0, 0.0])
    >>> y, weight
    (array([1.]), array([2.]))
    """
    y, response, weight = (np.asarray(a, dtype=SUM) for a in (y, response, weight))
    if response.ndim != 2:
        raise ValueError(
            f"response: came with shape {response.shape}, expected (n, C); "
            "give one column per output, response[:, None] when there is one."
        )
    if y.ndim not in (1, 2) or len(y) != len(response):
        raise ValueError(
            f"y: came with shape {y.shape}, expected ({len(response)},) or {response.shape} "
            "to go with response; give both for the same rows."
        )
    if weight.shape != (len(response),):
        raise ValueError(
            f"weight: came with shape {weight.shape}, expected ({len(response)},); "
            "give one weight per row, np.ones(n) when all rows count alike."
        )
    kept = weight != 0
    return (y, response, weight) if kept.all() else (y[kept], response[kept], weight[kept])


def targets(y: FloatArray, response: FloatArray) -> FloatArray:
    """y as a matrix with the columns of response.

    >>> targets(np.array([1.0, 2.0]), np.zeros((2, 1))).shape
    (2, 1)
    """
    columns = y[:, None] if y.ndim == 1 else y
    if columns.shape != response.shape:
        raise ValueError(
            f"y: came with {columns.shape[1]} column(s), expected {response.shape[1]} as in response; "
            "this metric compares them column by column. For C classes use log_loss, error or auc."
        )
    return columns
