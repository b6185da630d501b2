"""Losses of real-valued targets. In every formula s is the score, r = s - y the residual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gbun.arrays import Array, namespace
from gbun.collectives import Collective
from gbun.dtypes import FloatArray
from gbun.objectives.base import Objective, Scores, bisect, column, mean_and_spread, weighted_mean

MAX_LOG = 50.0  # scores under a log link are held within +-50: exp(50) is beyond any rate that can be learnt


@dataclass(frozen=True)
class SquaredError(Objective):
    """loss = r^2 / 2;  g = r, h = 1. With several outputs all share h = 1: one Gram serves them all.

    >>> SquaredError().derivatives(np.array([1.0]), np.array([[3.0]]), np.array([1.0]))
    (array([[2.]]), array([1.]))
    """

    name: ClassVar[str] = "squared_error"
    metric: ClassVar[str] = "rmse"

    def loss(self, y: Array, scores: Scores) -> Array:
        return 0.5 * ((scores - column(y)) ** 2).sum(axis=1)

    def derivatives(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        return (scores - column(y)) * weight[:, None], weight

    def start(self, y: FloatArray, weight: FloatArray, collective: Collective) -> FloatArray:
        return weighted_mean(column(y), weight, collective)


@dataclass(frozen=True)
class MultiSquaredError(SquaredError):
    """The sum of squared errors over several outputs."""

    name: ClassVar[str] = "multi_squared_error"


@dataclass(frozen=True)
class Huber(Objective):
    """loss = r^2 / 2 where |r| <= delta, delta (|r| - delta / 2) beyond;  g = clip(r, -delta, delta).

    The second derivative is 0 beyond delta, which would leave outliers out of the system and let steps run away;
    h = min(1, delta / |r|) is the curvature of the tightest parabola above the loss that touches it at r.
    """

    delta: float | None = None
    name: ClassVar[str] = "huber"
    metric: ClassVar[str] = "mae"

    def parameters(self) -> dict[str, Any]:
        return {"delta": self.delta}

    def prepared(self, y: FloatArray, weight: FloatArray, collective: Collective) -> Huber:
        if self.delta is not None:
            return self
        _, spread = mean_and_spread(y, weight, collective)
        return Huber(1.345 * spread or 1.0)

    def _delta(self) -> float:
        return 1.0 if self.delta is None else self.delta

    def loss(self, y: Array, scores: Scores) -> Array:
        r, delta = abs(scores - column(y)), self._delta()
        return namespace(r).where(r <= delta, 0.5 * r * r, delta * (r - 0.5 * delta)).sum(axis=1)

    def derivatives(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        r, delta = scores - column(y), self._delta()
        h = delta / abs(r).clip(min=delta)
        return r.clip(-delta, delta) * weight[:, None], h[:, 0] * weight

    def start(self, y: FloatArray, weight: FloatArray, collective: Collective) -> FloatArray:
        def slope(constant: float) -> float:
            gradient, _ = self.derivatives(y, np.full((len(y), 1), constant), weight)
            return float(collective.sum(gradient.sum(axis=0))[0])

        return bisect(slope, y, weight, collective)


@dataclass(frozen=True)
class Quantile(Objective):
    """loss = q (y - s) where y > s, (1 - q) (s - y) otherwise;  g = 1[y <= s] - q.

    The second derivative is 0. h = 1 / (2 (|r| + epsilon)) is the curvature of the parabola that touches the loss
    at r and lies above it (up to epsilon): each step descends, at the scale of y whatever its unit is. epsilon is
    a hundredth of the mean absolute deviation of y.
    """

    quantile: float = 0.5
    epsilon: float | None = None
    name: ClassVar[str] = "quantile"
    metric: ClassVar[str] = "pinball"

    def parameters(self) -> dict[str, Any]:
        return {"quantile": self.quantile, "epsilon": self.epsilon}

    def default_metric(self) -> str:
        return f"{self.metric}:{self.quantile}"

    def prepared(self, y: FloatArray, weight: FloatArray, collective: Collective) -> Quantile:
        if self.epsilon is not None:
            return self
        _, spread = mean_and_spread(y, weight, collective)
        return Quantile(self.quantile, 0.01 * spread or 1.0)

    def loss(self, y: Array, scores: Scores) -> Array:
        r = scores - column(y)
        return namespace(r).maximum((1.0 - self.quantile) * r, -self.quantile * r).sum(axis=1)

    def derivatives(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        r = scores - column(y)
        epsilon = 1.0 if self.epsilon is None else self.epsilon
        h = 0.5 / (abs(r) + epsilon)
        above = namespace(r).astype(r >= 0.0, r.dtype)
        return (above - self.quantile) * weight[:, None], h[:, 0] * weight

    def start(self, y: FloatArray, weight: FloatArray, collective: Collective) -> FloatArray:
        # W(y <= s) - q W: sums of weights alone, so that the order of rows cannot decide on a flat stretch
        total = float(collective.sum(np.array([weight.sum()]))[0])

        def slope(constant: float) -> float:
            return float(collective.sum(np.array([weight[y <= constant].sum()]))[0]) - self.quantile * total

        return bisect(slope, y, weight, collective)


class _LogLink(Objective):
    """Positive predictions: response = exp(s), and the best constant is the log of the mean."""

    def start(self, y: FloatArray, weight: FloatArray, collective: Collective) -> FloatArray:
        mean = weighted_mean(column(y), weight, collective)
        return np.log(np.maximum(mean, np.exp(-MAX_LOG)))

    def response(self, scores: Scores) -> Array:
        return namespace(scores).exp(scores.clip(-MAX_LOG, MAX_LOG))

    def _check(self, y: FloatArray, zero_allowed: bool) -> None:
        least = float(np.min(y, initial=np.inf))
        if least < 0.0 or (least == 0.0 and not zero_allowed):
            wanted = "no negative targets" if zero_allowed else "positive targets only"
            raise ValueError(
                f"objective={self.name!r} takes {wanted}, y has {least:g}; use objective='squared_error' for such y"
            )


@dataclass(frozen=True)
class Poisson(_LogLink):
    """loss = exp(s) - y s;  g = exp(s) - y, h = exp(s)."""

    name: ClassVar[str] = "poisson"
    metric: ClassVar[str] = "poisson_deviance"

    def check_target(self, y: FloatArray) -> None:
        self._check(y, zero_allowed=True)

    def loss(self, y: Array, scores: Scores) -> Array:
        return (self.response(scores) - column(y) * scores).sum(axis=1)

    def derivatives(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        mean = self.response(scores)
        return (mean - column(y)) * weight[:, None], mean[:, 0] * weight


@dataclass(frozen=True)
class Gamma(_LogLink):
    """loss = y exp(-s) + s;  g = 1 - y exp(-s), h = 1.

    The second derivative y exp(-s) is next to nothing where y is small; h = 1 is its expectation (Fisher's scoring),
    with which heavy tails do not run away.
    """

    name: ClassVar[str] = "gamma"
    metric: ClassVar[str] = "gamma_deviance"

    def check_target(self, y: FloatArray) -> None:
        self._check(y, zero_allowed=False)

    def loss(self, y: Array, scores: Scores) -> Array:
        return (column(y) / self.response(scores) + scores).sum(axis=1)

    def derivatives(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        ratio = column(y) / self.response(scores)
        return (1.0 - ratio) * weight[:, None], weight


@dataclass(frozen=True)
class Tweedie(_LogLink):
    """loss = -y e^((1-p) s) / (1-p) + e^((2-p) s) / (2-p), variance power 1 < p < 2.

    g = -y e^((1-p) s) + e^((2-p) s),  h = (p-1) y e^((1-p) s) + (2-p) e^((2-p) s) > 0.
    """

    power: float = 1.5
    name: ClassVar[str] = "tweedie"
    metric: ClassVar[str] = "tweedie_deviance"

    def parameters(self) -> dict[str, Any]:
        return {"power": self.power}

    def default_metric(self) -> str:
        return f"{self.metric}:{self.power}"

    def check_target(self, y: FloatArray) -> None:
        self._check(y, zero_allowed=True)

    def _terms(self, y: Array, scores: Scores) -> tuple[Scores, Scores]:
        s, exp = scores.clip(-MAX_LOG, MAX_LOG), namespace(scores).exp
        return column(y) * exp((1.0 - self.power) * s), exp((2.0 - self.power) * s)

    def loss(self, y: Array, scores: Scores) -> Array:
        a, b = self._terms(y, scores)
        return (b / (2.0 - self.power) - a / (1.0 - self.power)).sum(axis=1)

    def derivatives(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        a, b = self._terms(y, scores)
        h = (self.power - 1.0) * a + (2.0 - self.power) * b
        return (b - a) * weight[:, None], h[:, 0] * weight
