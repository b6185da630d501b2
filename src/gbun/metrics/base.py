"""What a metric is, and the forms in which workers that never exchange rows compute it together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from gbun.collectives import Collective
from gbun.dtypes import SUM, FloatArray

# How often an evaluation of its own looks closer; a training looks closer from round to round.
REPEATS = 2


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
    def among(self, y: FloatArray, weight: FloatArray, n_outputs: int, collective: Collective) -> SumMetric:
        """The metric in the form of sums, for one evaluation set whose rows are divided among workers.

        Every worker calls it, once and before the first round, with its own share of the rows. A share may be empty,
        but its y has as many dimensions as the others'; `n_outputs` is the number of columns of the response.
        """

    def evaluate(self, y: FloatArray, response: FloatArray, weight: FloatArray, collective: Collective) -> float:
        """The metric over the rows of all workers, the same number on each of them: the root's."""
        y, response, weight = weighted_rows(y, response, weight)
        form, leads = self.among(y, weight, response.shape[1], collective), collective.rank == 0
        for _ in range(REPEATS if form.hint_length else 0):
            total = collective.sum(form.sums(y, response, weight), root=0)
            form.adapt(collective.broadcast(form.hint(total) if leads else np.zeros(form.hint_length)))
        total = collective.sum(form.sums(y, response, weight), root=0)
        return float(collective.broadcast(np.array([form.value(total) if leads else np.nan]))[0])

    def __repr__(self) -> str:
        return f"<metric {self.name}>"


class SumMetric(ABC):
    """A metric of one evaluation set, from sums over rows that ride in one message with a round's other sums.

    Every worker gives the `sums` of its rows, a vector whose `length` is the same on all of them and in all rounds;
    they are added up, and whoever has the total knows the value.

    Some forms look closer where rows have been seen. Then `hint_length` is not 0: who has the total makes a `hint` of
    it, a vector of that length, and before the next round every worker, this one too, is given it by `adapt`.
    Without it all stays right, and is less exact.

    >>> import numpy as np
    >>> from gbun.collectives import Solo
    >>> from gbun.metrics import get_metric
    >>> mine, yours = np.array([1.0, 2.0]), np.array([5.0])
    >>> form = get_metric("mae").among(mine, np.ones(2), 1, Solo())
    >>> total = form.sums(mine, np.zeros((2, 1)), np.ones(2)) + form.sums(yours, np.zeros((1, 1)), np.ones(1))
    >>> form.length, form.value(total)
    (2, 2.6666666666666665)
    """

    length: int
    hint_length: int = 0

    def __init__(self, metric: Metric) -> None:
        self.name, self.higher_is_better = metric.name, metric.higher_is_better

    def sums(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> FloatArray:
        """What this worker's rows add to the total; nothing is exchanged."""
        y, response, weight = weighted_rows(y, response, weight)
        if not len(weight):
            return np.zeros(self.length)
        # A comparison or an argmax takes nan for an ordinary answer; a model that diverged must be seen.
        if np.isnan(response).any():
            return np.full(self.length, np.nan)
        return self.of_rows(y, response, weight)

    @abstractmethod
    def of_rows(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> FloatArray:
        """The sums over the rows given: at least one, each of positive weight, and no nan in the response."""

    @abstractmethod
    def value(self, total: FloatArray) -> float:
        """The metric from the sums over the rows of all workers."""

    def error_bound(self, total: FloatArray) -> float:
        """How far `value` can be from the metric of the rows at the very most."""
        return 0.0

    def hint(self, total: FloatArray) -> FloatArray:
        """What `adapt` should be told next; call it before that, as the total is read in the light of the last hint."""
        return np.zeros(self.hint_length)

    def adapt(self, hint: FloatArray) -> None:  # noqa: B027 - most forms take none
        """Take a hint, the same bits on every worker."""

    def __repr__(self) -> str:
        return f"<sums of {self.name}>"


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

    def n_sums(self, y: FloatArray, n_outputs: int) -> int:
        """How many numbers `sums` gives for such y."""
        nothing = np.zeros((0, n_outputs))
        return len(self.sums(np.asarray(y, dtype=SUM)[:0], nothing, nothing[:, 0]))

    def among(self, y: FloatArray, weight: FloatArray, n_outputs: int, collective: Collective) -> SumMetric:
        return Sums(self, self.n_sums(y, n_outputs))


class Sums(SumMetric):
    """The sums of a MeanMetric as they are, or with y and response moved by `centre` first."""

    def __init__(self, metric: MeanMetric, length: int, centre: FloatArray | None = None) -> None:
        super().__init__(metric)
        self.metric, self.length, self.centre = metric, length, centre

    def of_rows(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> FloatArray:
        if self.centre is not None:
            y, response = y - self.centre, response - self.centre
        return self.metric.sums(y, response, weight)

    def value(self, total: FloatArray) -> float:
        return self.metric.value(total)


class RankingMetric(Metric):
    """A metric that compares rows with each other and so needs all of them in one place."""

    @abstractmethod
    def of_rows(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> float:
        """The metric over the rows given: at least one, each of positive weight."""

    def among(self, y: FloatArray, weight: FloatArray, n_outputs: int, collective: Collective) -> SumMetric:
        if collective.size == 1:
            return Whole(self)
        raise ValueError(
            f"metric: {self.name!r} needs all rows in one place, but they are divided among {collective.size} workers. "
            "Use a metric made of sums (log_loss, brier, error, rmse, mae, ..., or RowMetric(name, f), the mean of "
            "your f(y, response) over rows), auc or average_precision, or evaluate the trained model in one process."
        )


class Whole(SumMetric):
    """The metric of all rows as the one number of a worker that has no others: exact."""

    length = 1

    def __init__(self, metric: RankingMetric) -> None:
        super().__init__(metric)
        self.metric = metric

    def sums(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> FloatArray:
        return self.of_rows(*weighted_rows(y, response, weight))

    def of_rows(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> FloatArray:
        return np.array([self.metric.of_rows(y, response, weight) if len(weight) else np.nan])

    def value(self, total: FloatArray) -> float:
        return float(total[0])


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
