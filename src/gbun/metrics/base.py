"""The base classes of metrics, and how workers that never exchange rows compute a metric from sums."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from gbun.collectives import Collective
from gbun.dtypes import SUM, FloatArray

EPS, TINY = float(np.finfo(SUM).eps), float(np.finfo(SUM).tiny)
SORTING_BYTES = 100  # of a row while rows are sorted by a score, and weights are summed in this order
HINT_PASSES = 2  # of `evaluate`, before the value is computed; a training refines from round to round


class Metric(ABC):
    """A number that says how well the response of a model fits y.

    The shapes of y and response tell the task:

    ============================  ==================  =============================================
    task                          y                   response (after the link)
    ============================  ==================  =============================================
    regression                    (n,)                (n, 1) predictions
    several outputs               (n, C)              (n, C) predictions
    two classes                   (n,) codes 0, 1     (n, 1) probability of class 1
    C > 2 classes                 (n,) codes 0..C-1   (n, C) probabilities
    several labels                (n, C) zeros, ones  (n, C) probability of each label
    ============================  ==================  =============================================

    Weights are (n,) and not negative; all arrays are float64. Two laws hold for every metric: a row of weight 0
    changes nothing, and a row of weight 2 counts as the row twice. Without any weight the value is nan.
    """

    name: str
    higher_is_better: bool = False

    # The parameter that may follow a colon in the name ("pinball:0.9"), for error messages; None if there is none.
    parameter: ClassVar[str | None] = None

    def row_bytes(self, n_outputs: int) -> int:
        """Return how many bytes of memory count for a row while the metric is computed; 0 where they are few."""
        return 0

    @abstractmethod
    def make_sum_metric(self, y: FloatArray, weight: FloatArray, n_outputs: int, collective: Collective) -> SumMetric:
        """Return the metric as sums over rows, for one evaluation set whose rows are divided among workers.

        Every worker calls it once before the first round, with its share of the rows. A share may be empty, but its y
        has as many dimensions as that of all others. `n_outputs` is the number of columns of the response.
        """

    def evaluate(self, y: FloatArray, response: FloatArray, weight: FloatArray, collective: Collective) -> float:
        """Compute the metric over the rows of all workers.

        Parameters
        ----------
        y : ndarray of shape (n,) or (n, C)
        response : ndarray of shape (n, C)
        weight : ndarray of shape (n,)
        collective : Collective
            `gbun.collectives.Solo()` for a single process.

        Returns
        -------
        float
            The same number on all workers: that of the root.
        """
        y, response, weight = select_weighted_rows(y, response, weight)
        sum_metric, is_root = self.make_sum_metric(y, weight, response.shape[1], collective), collective.rank == 0
        for _ in range(HINT_PASSES if sum_metric.hint_length else 0):
            total = collective.sum(sum_metric.sums(y, response, weight), root=0)
            hint = sum_metric.make_hint(total) if is_root else np.zeros(sum_metric.hint_length)
            sum_metric.apply_hint(collective.broadcast(hint))
        total = collective.sum(sum_metric.sums(y, response, weight), root=0)
        return float(collective.broadcast(np.array([sum_metric.value(total) if is_root else np.nan]))[0])

    def __repr__(self) -> str:
        return f"<metric {self.name}>"


class SumMetric(ABC):
    """A metric of one evaluation set, from sums over rows that are part of a round's message.

    Every worker computes the `sums` of its rows, a vector whose `length` is the same on all workers and in all rounds.
    The root gets the total, and computes the value from it.

    Histograms are refined where it matters, if `hint_length` is not 0: the root makes a hint from the total, a vector
    of that length, and all workers apply it before the next round. Without hints the value is right but less exact.

    >>> import numpy as np
    >>> from gbun.collectives import Solo
    >>> from gbun.metrics import get_metric
    >>> first, second = np.array([1.0, 2.0]), np.array([5.0])
    >>> mae = get_metric("mae").make_sum_metric(first, np.ones(2), 1, Solo())
    >>> total = mae.sums(first, np.zeros((2, 1)), np.ones(2)) + mae.sums(second, np.zeros((1, 1)), np.ones(1))
    >>> mae.length, mae.value(total)
    (2, 2.6666666666666665)
    """

    length: int
    hint_length: int = 0

    def __init__(self, metric: Metric) -> None:
        self.name, self.higher_is_better = metric.name, metric.higher_is_better

    def sums(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> FloatArray:
        """Return the sums over this worker's rows; sends no message."""
        y, response, weight = select_weighted_rows(y, response, weight)
        if not len(weight):
            return np.zeros(self.length)
        # Comparisons and argmax hide a nan, but a model that diverged must be noticed.
        if np.isnan(response).any():
            return np.full(self.length, np.nan)
        return self.compute_from_rows(y, response, weight)

    @abstractmethod
    def compute_from_rows(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> FloatArray:
        """Return the sums over rows: at least one, all of positive weight, without nan in the response."""

    @abstractmethod
    def value(self, total: FloatArray) -> float:
        """Return the metric, given the sums over the rows of all workers."""

    def error_bound(self, total: FloatArray) -> float:
        """Return an upper bound of the error of `value`."""
        return 0.0

    def make_hint(self, total: FloatArray) -> FloatArray:
        """Return the next hint; call it before `apply_hint`, as the total belongs to the last hint."""
        return np.zeros(self.hint_length)

    def apply_hint(self, hint: FloatArray) -> None:  # noqa: B027 - only histograms take hints
        """Apply a hint, which has the same bits on all workers."""

    def __repr__(self) -> str:
        return f"<sums of {self.name}>"


class MeanMetric(Metric):
    """A metric that is a function of sums over rows, and so is exact however rows are divided.

    Workers sum numerators and denominators, and the root divides once: an average of the workers' averages would depend
    on the division of the rows.
    """

    @abstractmethod
    def sums(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> FloatArray:
        """Return sums over the rows given; their number depends on C only."""

    def value(self, sums: FloatArray) -> float:
        """Return the metric, given the sums over all rows: numerator / denominator."""
        return divide_or_nan(sums[0], sums[1])

    def n_sums(self, y: FloatArray, n_outputs: int) -> int:
        """Return the length of `sums` for such y."""
        no_rows = np.zeros((0, n_outputs))
        return len(self.sums(np.asarray(y, dtype=SUM)[:0], no_rows, no_rows[:, 0]))

    def make_sum_metric(self, y: FloatArray, weight: FloatArray, n_outputs: int, collective: Collective) -> SumMetric:
        return MeanMetricSums(self, self.n_sums(y, n_outputs))


class RowMean(MeanMetric):
    """sum_i w_i value_i / sum_i w_i over rows i."""

    @abstractmethod
    def row_values(self, y: FloatArray, response: FloatArray) -> FloatArray:
        """Return the value of each row, (n,)."""

    def sums(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> FloatArray:
        return np.array([weight @ self.row_values(y, response), weight.sum()])


class MeanMetricSums(SumMetric):
    """The sums of a MeanMetric, after `centre` is subtracted from y and response."""

    def __init__(self, metric: MeanMetric, length: int, centre: FloatArray | None = None) -> None:
        super().__init__(metric)
        self.metric, self.length, self.centre = metric, length, centre

    def compute_from_rows(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> FloatArray:
        if self.centre is not None:
            y, response = y - self.centre, response - self.centre
        return self.metric.sums(y, response, weight)

    def value(self, total: FloatArray) -> float:
        return self.metric.value(total)


class RankingMetric(Metric):
    """A metric that compares rows with each other, and so needs all of them in one place."""

    def row_bytes(self, n_outputs: int) -> int:
        return SORTING_BYTES + 24 * n_outputs  # the response, what it is made from, and a copy of some rows

    @abstractmethod
    def compute_from_rows(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> float:
        """Return the metric over rows: at least one, all of positive weight."""

    def make_sum_metric(self, y: FloatArray, weight: FloatArray, n_outputs: int, collective: Collective) -> SumMetric:
        if collective.size == 1:  # only then all rows are in one place, and the value is exact
            return SingleWorkerMetric(self)
        return self.make_histograms(y, weight, n_outputs, collective)

    def make_histograms(self, y: FloatArray, weight: FloatArray, n_outputs: int, collective: Collective) -> SumMetric:
        """Return the metric as sums over the rows of several workers, where there is a way."""
        raise ValueError(
            f"metric: {self.name!r} needs all rows in one place, but they are divided among {collective.size} workers. "
            "Use a metric made of sums (log_loss, brier, error, rmse, mae, ..., or RowMetric(name, f), the mean of "
            "your f(y, response) over rows), auc or average_precision, or evaluate the trained model in one process."
        )


class SingleWorkerMetric(SumMetric):
    """The metric of a single worker's rows as a sum of one number: exact."""

    length = 1

    def __init__(self, metric: RankingMetric) -> None:
        super().__init__(metric)
        self.metric = metric

    def sums(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> FloatArray:
        return self.compute_from_rows(*select_weighted_rows(y, response, weight))

    def compute_from_rows(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> FloatArray:
        return np.array([self.metric.compute_from_rows(y, response, weight) if len(weight) else np.nan])

    def value(self, total: FloatArray) -> float:
        return float(total[0])


def divide_or_nan(numerator: float, denominator: float) -> float:
    """Return numerator / denominator; nan if the denominator is 0."""
    return float(numerator / denominator) if denominator != 0 else float("nan")


def select_weighted_rows(
    y: FloatArray, response: FloatArray, weight: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Check shapes and return the rows of positive weight.

    Rows of weight 0 are removed: multiplied by 0, their nan or infinity would remain.
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


def match_columns(y: FloatArray, response: FloatArray) -> FloatArray:
    """Return y as a matrix with the columns of response."""
    columns = y[:, None] if y.ndim == 1 else y
    if columns.shape != response.shape:
        raise ValueError(
            f"y: came with {columns.shape[1]} column(s), expected {response.shape[1]} as in response; "
            "this metric compares them column by column. For C classes use log_loss, error or auc."
        )
    return columns
