"""Metrics of predicted numbers. With several outputs each is the unweighted mean over the outputs."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from gbun.collectives import Collective
from gbun.dtypes import SUM, FloatArray
from gbun.metrics.base import (
    EPS,
    TINY,
    MeanMetric,
    MeanMetricSums,
    RowMean,
    SumMetric,
    match_columns,
    select_weighted_rows,
)


class ElementwiseLoss(RowMean):
    """sum_i w_i mean_c loss(y_ic, response_ic) / sum_i w_i."""

    @abstractmethod
    def loss(self, y: FloatArray, response: FloatArray) -> FloatArray:
        """Return the loss of every element; y and response are both (n, C)."""

    def row_values(self, y: FloatArray, response: FloatArray) -> FloatArray:
        return np.asarray(self.loss(match_columns(y, response), response).mean(axis=1))


class MSE(ElementwiseLoss):
    """Mean squared error, (y - r)^2."""

    name = "mse"

    def loss(self, y: FloatArray, response: FloatArray) -> FloatArray:
        return (y - response) ** 2


class RMSE(MeanMetric):
    """Root mean squared error, mean_c sqrt(sum_i w_i (y_ic - r_ic)^2 / sum_i w_i)."""

    name = "rmse"

    def sums(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> FloatArray:
        squares = (match_columns(y, response) - response) ** 2
        return np.append(weight @ squares, weight.sum())

    def value(self, sums: FloatArray) -> float:
        return float(np.sqrt(sums[:-1] / sums[-1]).mean()) if sums[-1] != 0 else float("nan")


class MAE(ElementwiseLoss):
    """Mean absolute error, |y - r|."""

    name = "mae"

    def loss(self, y: FloatArray, response: FloatArray) -> FloatArray:
        return np.asarray(np.abs(y - response))


class MAPE(ElementwiseLoss):
    """Mean absolute percentage error as a fraction, |y - r| / max(|y|, eps) with the eps of float64."""

    name = "mape"

    def loss(self, y: FloatArray, response: FloatArray) -> FloatArray:
        return np.asarray(np.abs(y - response) / np.maximum(np.abs(y), EPS))


class R2(MeanMetric):
    """Share of variance explained, mean_c (1 - sum_i w_i (y_ic - r_ic)^2 / sum_i w_i (y_ic - ybar_c)^2).

    A constant output has no variance to explain: it scores 1 if it is predicted exactly, otherwise 0. So does a single
    row, as a row of weight 2 counts as the row twice.
    """

    name = "r2"
    higher_is_better = True

    def sums(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> FloatArray:
        y = match_columns(y, response)
        return np.concatenate([weight @ (y - response) ** 2, weight @ y, weight @ y**2, [weight.sum()]], dtype=SUM)

    def value(self, sums: FloatArray) -> float:
        total = sums[-1]
        if total == 0:
            return float("nan")
        residual, first, second = sums[:-1].reshape(3, -1)
        # sum w (y - ybar)^2 = sum w y^2 - (sum w y)^2 / sum w
        variance = second - first**2 / total
        constant = variance <= 1e-12 * second
        explained = 1 - residual / np.where(constant, 1, variance)
        return float(np.where(constant, residual == 0, explained).mean())

    def make_sum_metric(self, y: FloatArray, weight: FloatArray, n_outputs: int, collective: Collective) -> SumMetric:
        y, response, weight = select_weighted_rows(y, np.zeros((len(y), n_outputs)), weight)
        moments = collective.sum(np.append(weight @ match_columns(y, response), weight.sum()))
        # A shift of y and response changes no residual. Near 0 the difference in `value` is exact; far from 0 (years,
        # timestamps) it would cancel.
        centre = moments[:-1] / moments[-1] if moments[-1] != 0 else moments[:-1]
        return MeanMetricSums(self, self.n_sums(y, n_outputs), centre)


class Pinball(ElementwiseLoss):
    """Loss of a predicted quantile q: q (y - r) if y is above r, (1 - q) (r - y) if it is below."""

    name, parameter = "pinball", "quantile"

    def __init__(self, quantile: float = 0.5) -> None:
        if not 0 < quantile < 1:
            raise ValueError(f"quantile: came as {quantile!r}, expected a number between 0 and 1, say 0.9.")
        self.quantile = float(quantile)
        self.name = make_name(self.name, self.quantile, 0.5)

    def loss(self, y: FloatArray, response: FloatArray) -> FloatArray:
        above = y - response
        return np.maximum(self.quantile * above, (self.quantile - 1) * above)


class HuberLoss(ElementwiseLoss):
    """With d = |y - r|, d^2 / 2 up to delta, and delta (d - delta / 2) beyond."""

    name, parameter = "huber", "delta"

    def __init__(self, delta: float = 1.0) -> None:
        if not 0 < delta < np.inf:
            raise ValueError(f"delta: came as {delta!r}, expected a positive number, say 1.0.")
        self.delta = float(delta)
        self.name = make_name(self.name, self.delta, 1.0)

    def loss(self, y: FloatArray, response: FloatArray) -> FloatArray:
        distance = np.abs(y - response)
        near = np.minimum(distance, self.delta)
        # near (d - near / 2) is d^2 / 2 up to delta, and delta (d - delta / 2) beyond.
        return np.asarray(near * (distance - near / 2))


class PoissonDeviance(ElementwiseLoss):
    """2 (y log(y / r) - y + r), with 0 log 0 = 0; y >= 0."""

    name = "poisson_deviance"

    def loss(self, y: FloatArray, response: FloatArray) -> FloatArray:
        mean = positive_mean(self.name, y, response, zero_allowed=True)
        return 2 * (y * np.log(np.where(y > 0, y, mean) / mean) - y + mean)


class GammaDeviance(ElementwiseLoss):
    """2 (log(r / y) + y / r - 1); y > 0."""

    name = "gamma_deviance"

    def loss(self, y: FloatArray, response: FloatArray) -> FloatArray:
        mean = positive_mean(self.name, y, response, zero_allowed=False)
        with np.errstate(over="ignore"):
            return 2 * (np.log(mean) - np.log(y) + y / mean - 1)


class TweedieDeviance(ElementwiseLoss):
    """2 (y^(2-p) / ((1-p) (2-p)) - y r^(1-p) / (1-p) + r^(2-p) / (2-p)) for a power p from 1 to 3.

    The limits p = 1 and p = 2 are the Poisson and gamma deviances. y = 0 is allowed for p < 2 only.
    """

    name, parameter = "tweedie_deviance", "power"

    def __init__(self, power: float = 1.5) -> None:
        if not 1 <= power <= 3:
            raise ValueError(
                f"power: came as {power!r}, expected a number from 1 (Poisson) over 2 (gamma) to 3; "
                "say 1.5, or use mse for the normal distribution (power 0)."
            )
        self.power = p = float(power)
        self.name = make_name(self.name, p, 1.5)
        self._limit = {1.0: PoissonDeviance(), 2.0: GammaDeviance()}.get(p)

    def loss(self, y: FloatArray, response: FloatArray) -> FloatArray:
        if self._limit is not None:
            return self._limit.loss(y, response)
        mean, p = positive_mean(self.name, y, response, zero_allowed=self.power < 2), self.power
        with np.errstate(over="ignore"):
            return 2 * (y ** (2 - p) / ((1 - p) * (2 - p)) - y * mean ** (1 - p) / (1 - p) + mean ** (2 - p) / (2 - p))


DEVIANCES = (PoissonDeviance, GammaDeviance, TweedieDeviance)


def positive_mean(name: str, y: FloatArray, response: FloatArray, *, zero_allowed: bool) -> FloatArray:
    """Check y and the response of a deviance; return the response, with the least positive float in place of 0."""
    if not np.all(y >= 0 if zero_allowed else y > 0):
        raise ValueError(
            f"y: {name} needs values {'>= 0' if zero_allowed else '> 0'}, the least that came is {y.min()}; "
            "use mse or mae for such y."
        )
    if np.any(response < 0):
        raise ValueError(
            f"response: {name} needs values > 0, the least that came is {np.nanmin(response)}; "
            "train with an objective whose response is positive, or use mse or mae."
        )
    return np.maximum(response, TINY)


def make_name(family: str, parameter: float, default: float) -> str:
    """Return the name by which `get_metric` finds the metric.

    >>> make_name("pinball", 0.9, default=0.5), make_name("pinball", 0.5, default=0.5)
    ('pinball:0.9', 'pinball')
    """
    return family if parameter == default else f"{family}:{parameter!r}"
