"""Losses of real-valued targets. In every formula s is the score and r = s - y the residual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gbun.arrays import Array, namespace
from gbun.collectives import Collective
from gbun.dtypes import FloatArray
from gbun.kernels import derivatives
from gbun.objectives.base import LEAF_SHARE, Objective, Scores, as_columns, bisect, unit_of, weighted_mean

TIE = 1e-7  # of epsilon: residuals of the quantile loss that count as 0
MAX_LOG = 50.0  # under a log link, scores are clipped to +-50: exp(50) is beyond any rate that can be learnt
MEANS = 1e-21, 1e21  # of targets under a log link: clipped scores must leave room for rows above and below the mean


@dataclass(frozen=True)
class SquaredError(Objective):
    """Squared error: loss = r^2 / 2;  g = r, h = 1, one Hessian and one Gram matrix for all outputs.

    >>> SquaredError().derivatives(np.array([1.0]), np.array([[3.0]]), np.array([1.0]))
    (array([[2.]]), array([1.]))
    """

    name: ClassVar[str] = "squared_error"
    metric: ClassVar[str] = "rmse"

    def loss(self, y: Array, scores: Scores) -> Array:
        return 0.5 * ((scores - as_columns(y)) ** 2).sum(axis=1)

    def derivatives(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        return (scores - as_columns(y)) * weight[:, None], weight

    def fill_leaf_derivatives(
        self, y: FloatArray, scores: FloatArray, weight: FloatArray, g: FloatArray, h: FloatArray
    ) -> None:
        derivatives.fill_squared_error(as_columns(y), scores, weight, g, h)

    def start(self, y: FloatArray, weight: FloatArray, collective: Collective) -> FloatArray:
        return weighted_mean(as_columns(y), weight, collective)


@dataclass(frozen=True)
class MultiSquaredError(SquaredError):
    """Sum of the squared errors of several outputs."""

    name: ClassVar[str] = "multi_squared_error"


@dataclass(frozen=True)
class Huber(Objective):
    """Huber's loss: r^2 / 2 where |r| <= delta, delta (|r| - delta / 2) beyond;  g = clip(r, -delta, delta).

    The second derivative is 0 beyond delta: outliers would not count in the system, and steps would be far too long.
    h = min(1, delta / |r|) is the curvature of the narrowest parabola above the loss that touches it at r.

    Parameters
    ----------
    delta : float, optional
        None: 1.345 times the mean absolute deviation of y.
    """

    delta: float | None = None
    name: ClassVar[str] = "huber"
    metric: ClassVar[str] = "mae"

    def prepare(self, y: FloatArray, weight: FloatArray, collective: Collective) -> Huber:
        if self.delta is not None:
            return self
        return Huber(1.345 * unit_of(y, weight, collective))

    def loss(self, y: Array, scores: Scores) -> Array:
        r, delta = abs(scores - as_columns(y)), 1.0 if self.delta is None else self.delta
        return namespace(r).where(r <= delta, 0.5 * r * r, delta * (r - 0.5 * delta)).sum(axis=1)

    def derivatives(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        r, delta = scores - as_columns(y), 1.0 if self.delta is None else self.delta
        h = delta / abs(r).clip(min=delta)
        return r.clip(-delta, delta) * weight[:, None], h[:, 0] * weight

    def start(self, y: FloatArray, weight: FloatArray, collective: Collective) -> FloatArray:
        def slope(constant: float) -> float:
            gradient, _ = self.derivatives(y, np.full((len(y), 1), constant), weight)
            return float(collective.sum(gradient.sum(axis=0))[0])

        return bisect(slope, y, weight, collective)


@dataclass(frozen=True)
class Quantile(Objective):
    """Pinball loss: q (y - s) where y > s, (1 - q) (s - y) otherwise;  g = 1[y <= s] - q.

    The second derivative is 0. h = 1 / (2 (|r| + epsilon)) is the curvature of the parabola that touches the loss at r
    and lies above it (up to epsilon), so every step descends, whatever the unit of y.

    Parameters
    ----------
    quantile : float
        q.
    epsilon : float, optional
        None: a hundredth of the mean absolute deviation of y.
    """

    quantile: float = 0.5
    epsilon: float | None = None
    name: ClassVar[str] = "quantile"
    metric: ClassVar[str] = "pinball"

    def default_metric(self) -> str:
        return f"{self.metric}:{self.quantile}"

    def prepare(self, y: FloatArray, weight: FloatArray, collective: Collective) -> Quantile:
        if self.epsilon is not None:
            return self
        return Quantile(self.quantile, 0.01 * unit_of(y, weight, collective))

    def loss(self, y: Array, scores: Scores) -> Array:
        r = scores - as_columns(y)
        return namespace(r).maximum((1.0 - self.quantile) * r, -self.quantile * r).sum(axis=1)

    def derivatives(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        r = scores - as_columns(y)
        h = 0.5 / (abs(r) + (1.0 if self.epsilon is None else self.epsilon))
        # The start is the target of a row, up to rounding: the last bit must not decide on which side that row is.
        above = namespace(r).astype(r >= -TIE * (1.0 if self.epsilon is None else self.epsilon), r.dtype)
        return (above - self.quantile) * weight[:, None], h[:, 0] * weight

    def start(self, y: FloatArray, weight: FloatArray, collective: Collective) -> FloatArray:
        # W(y <= s) - q W: sums of weights alone, so that the order of rows cannot decide on a flat stretch
        total = float(collective.sum(np.array([weight.sum()]))[0])

        def slope(constant: float) -> float:
            return float(collective.sum(np.array([weight[y <= constant].sum()]))[0]) - self.quantile * total

        return bisect(slope, y, weight, collective)


class _LogLink(Objective):
    """A loss of positive predictions: response = exp(s), and the best constant is the log of the mean.

    Newton's step would be far too long where predictions are far too low: h is small there, and e^s is not straight.
    """

    zero_allowed: ClassVar[bool] = True

    def check_target(self, y: FloatArray) -> None:
        least = float(np.min(y, initial=np.inf))
        if least < 0.0 or (least == 0.0 and not self.zero_allowed):
            wanted = "no negative targets" if self.zero_allowed else "positive targets only"
            raise ValueError(
                f"objective={self.name!r} takes {wanted}, y has {least:g}; use objective='squared_error' for such y"
            )

    def leaf_derivatives(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        g, h = self.derivatives(y, scores, weight)
        return g, namespace(g).maximum(h, LEAF_SHARE * abs(g[:, 0]))

    def start(self, y: FloatArray, weight: FloatArray, collective: Collective) -> FloatArray:
        mean = weighted_mean(as_columns(y), weight, collective)
        if mean[0] > 0.0 and not MEANS[0] <= mean[0] <= MEANS[1]:
            raise ValueError(
                f"y has a mean of {mean[0]:.0e}, objective={self.name!r} takes means from {MEANS[0]:g} to "
                f"{MEANS[1]:g}; change the unit of y"
            )
        return np.log(np.maximum(mean, np.exp(-MAX_LOG)))

    def response(self, scores: Scores) -> Array:
        return namespace(scores).exp(scores.clip(-MAX_LOG, MAX_LOG))


@dataclass(frozen=True)
class Poisson(_LogLink):
    """Poisson deviance, counts: loss = exp(s) - y s;  g = exp(s) - y, h = exp(s)."""

    name: ClassVar[str] = "poisson"
    metric: ClassVar[str] = "poisson_deviance"

    def loss(self, y: Array, scores: Scores) -> Array:
        return (self.response(scores) - as_columns(y) * scores).sum(axis=1)

    def derivatives(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        mean = self.response(scores)
        return (mean - as_columns(y)) * weight[:, None], mean[:, 0] * weight


@dataclass(frozen=True)
class Gamma(_LogLink):
    """Gamma deviance, positive numbers: loss = y exp(-s) + s;  g = 1 - y exp(-s), h = 1.

    The second derivative y exp(-s) is close to 0 where y is small. h = 1 is its expectation (Fisher scoring), which
    keeps steps short where tails are heavy.
    """

    name: ClassVar[str] = "gamma"
    metric: ClassVar[str] = "gamma_deviance"
    zero_allowed: ClassVar[bool] = False

    def loss(self, y: Array, scores: Scores) -> Array:
        return (as_columns(y) / self.response(scores) + scores).sum(axis=1)

    def derivatives(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        ratio = as_columns(y) / self.response(scores)
        return (1.0 - ratio) * weight[:, None], weight


@dataclass(frozen=True)
class Tweedie(_LogLink):
    """Tweedie deviance: loss = -y e^((1-p) s) / (1-p) + e^((2-p) s) / (2-p), variance power 1 < p < 2.

    g = -y e^((1-p) s) + e^((2-p) s),  h = (p-1) y e^((1-p) s) + (2-p) e^((2-p) s) > 0.

    Parameters
    ----------
    power : float
        p.
    """

    power: float = 1.5
    name: ClassVar[str] = "tweedie"
    metric: ClassVar[str] = "tweedie_deviance"

    def default_metric(self) -> str:
        return f"{self.metric}:{self.power}"

    def _terms(self, y: Array, scores: Scores) -> tuple[Scores, Scores]:
        s, exp = scores.clip(-MAX_LOG, MAX_LOG), namespace(scores).exp
        return as_columns(y) * exp((1.0 - self.power) * s), exp((2.0 - self.power) * s)

    def loss(self, y: Array, scores: Scores) -> Array:
        a, b = self._terms(y, scores)
        return (b / (2.0 - self.power) - a / (1.0 - self.power)).sum(axis=1)

    def derivatives(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        a, b = self._terms(y, scores)
        h = (self.power - 1.0) * a + (2.0 - self.power) * b
        return (b - a) * weight[:, None], h[:, 0] * weight
