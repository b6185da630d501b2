"""The linear start: a regularised linear model for the same objective, fitted before the first round.

    minimise over theta, b:   sum_i w_i loss(y_i, b + phi(x_i) theta) + lambda / 2 |theta|^2
    lambda = l2 x mean over weights of sum_i h_i phi_i^2

phi is what `LinearRows` makes of scaled features: dense columns, and sparse ones in buckets. The intercept b is not
penalised; it takes the place of the constant start, so it is left out where base margins do.

The method is L-BFGS: what it needs of rows in a step are the gradient, a sum of the size of theta, and two numbers
for each length of a step that is tried. These sums come together at the root, which says where to go and when it is
enough; the others follow, so that all end with the same bits.

Sums over the same rows in another order, or on other workers, differ in their last bits, and L-BFGS would make a
thousandth out of that within some tens of steps. So it sees sums, and goes steps, of a few bits only (`coarse`). Then
every step begins where it would have begun, unless a last bit crosses one of the few places at which rounding turns:
about once in 10^10 numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gbun.arrays import Array
from gbun.collectives import Collective
from gbun.data.buckets import Buckets
from gbun.data.features import Features, Shard
from gbun.dtypes import HEAD, MEMBERSHIP, SUM, FloatArray
from gbun.kernels.linear import HISTORY, LinearRows
from gbun.kernels.threads import Threads
from gbun.metrics.base import Metric
from gbun.objectives import Objective
from gbun.solve import minimise_together

PATH = tuple(4.0**k for k in range(2, -8, -1))  # penalties that are tried, the strongest first
TOLERANCE = 2e-2  # of the gradient's size before the first step
MOST_STEPS = 100
BITS = 12  # of a number that L-BFGS sees: few beside the 53 of a sum, many beside its tolerance
ENOUGH = 0.3  # of the slope may be left after a step: L-BFGS learns from any step that bends the gradient


@dataclass(frozen=True)
class LinearStart:
    """theta as it is applied: one row of C numbers for each dense column and each bucket."""

    buckets: Buckets | None
    weights: FloatArray
    l2: float

    def scores(self, features: Features, threads: Threads) -> FloatArray:
        """phi(x) theta of scaled features; the intercept is in the ensemble's start."""
        return LinearRows(features, self.buckets, threads).scores(self.weights)

    @property
    def n_weights(self) -> int:
        """Weights that are not zero."""
        return int(np.count_nonzero(self.weights.any(axis=1)))


@dataclass(frozen=True)
class Fitting:
    """What all fits of a training have in common: where weights are kept, the loss, and how starts are judged."""

    buckets: Buckets | None
    objective: Objective
    start: FloatArray
    metric: Metric
    collective: Collective
    threads: Threads

    def fit(self, rows: Shard, l2: float) -> tuple[FloatArray, LinearStart]:
        """The start, with the intercept in it, and the weights. Features of `rows` are scaled.

        Penalties fall to l2 step by step, as when one is chosen: that is faster than going there at once.
        """
        own = LinearFit(rows, self)
        for stage in [stronger for stronger in PATH if stronger > l2] + [l2]:
            own.fit(stage)
        return own.result(l2)

    def choose(self, parts: Sequence[tuple[Shard, Shard]]) -> tuple[FloatArray, LinearStart, bool]:
        """The best of a path of penalties by the metric on judging rows, and whether it is better than the constant.

        `parts` are rows to fit and rows to judge by, several times where they are few: then the mean decides, and
        better means by more than its standard error. The path ends where values begin to fall. What is returned is
        fitted to the rows of the first part.
        """
        fits = [LinearFit(rows, self) for rows, _ in parts]
        judged = [LinearRows(judge.features, self.buckets, self.threads) for _, judge in parts]
        constant = np.array([self.value(judge, self.start, None) for _, judge in parts])
        best, found = None, None
        for l2 in PATH:
            values = []
            for fit, judging, (_, judge) in zip(fits, judged, parts, strict=True):
                fit.fit(l2)
                start, linear = fit.result(l2)
                values.append(self.value(judge, start, judging.scores(linear.weights)))
            gains = np.array(values) - constant
            if best is not None and not gains.mean() > best.mean():
                break
            best, found = gains, fits[0].result(l2)
        assert best is not None
        assert found is not None
        error = best.std(ddof=1) / np.sqrt(len(best)) if len(best) > 1 else 0.0
        return *found, bool(best.mean() > error)

    def value(self, judge: Shard, start: FloatArray, scores: FloatArray | None) -> float:
        """How good a start is on these rows, larger is better; without `scores` the constant."""
        base = start if judge.base_margin is None else judge.base_margin
        total = np.broadcast_to(base, (judge.n_rows, len(start))) + (0.0 if scores is None else scores)
        value = self.metric.evaluate(judge.y, self.objective.response(total), judge.weight, self.collective)
        return value if self.metric.higher_is_better else -value


class LinearFit:
    """theta on its way: `fit(l2)` goes on from where the last penalty left it."""

    def __init__(self, rows: Shard, fitting: Fitting) -> None:
        self.rows = LinearRows(rows.features, fitting.buckets, fitting.threads)
        self.shard, self.fitting = rows, fitting
        self.objective, self.collective = fitting.objective, fitting.collective
        C = len(fitting.start)
        self.pieces = pieces_of(rows.n_rows, C)
        self.theta = np.zeros((self.rows.n_weights + 1, C), dtype=SUM)  # the last row is added to the start
        self.scores = np.empty((rows.n_rows, C), dtype=SUM)
        self.scores[:] = fitting.start if rows.base_margin is None else rows.base_margin
        margins = self.collective.sum(np.array([0.0 if rows.base_margin is None else 1.0]), root=0)
        curvature = self._curvature()
        self.descent = Descent(curvature, not margins[0]) if self.collective.rank == 0 else None

    def _curvature(self) -> FloatArray:
        """sum_i h_i phi_i^2 of each weight, then sum_i h_i, at the start; to the root."""
        shard, h = self.shard, np.empty(self.shard.n_rows)

        def work(rows: slice) -> float:
            own = self.objective.derivatives(shard.y[rows], self.scores[rows], shard.weight[rows])[1]
            h[rows] = own if own.ndim == 1 else own.max(axis=1)
            return float(h[rows].sum())

        total = sum(self.rows.threads.map(work, self.pieces), 0.0)
        return self.collective.sum(np.append(self.rows.curvature(h), total), root=0)

    def fit(self, l2: float, tolerance: float = TOLERANCE) -> None:
        """theta that minimises the loss with this penalty."""
        if self.descent is not None:
            self.descent.begin(l2, tolerance)
        for _ in range(MOST_STEPS):
            sums, direction = self._gradient(), np.zeros(self.theta.shape, dtype=MEMBERSHIP)
            if self.descent is not None:
                direction = self.descent.direction(sums, self.theta)
            direction = self.collective.broadcast(direction).astype(SUM)
            if not direction.any():
                return
            self._move(direction)

    def _gradient(self) -> FloatArray:
        """Of the loss without its penalty, to the root."""
        shard, g = self.shard, np.empty(self.scores.shape, dtype=SUM)

        def work(rows: slice) -> FloatArray:
            g[rows] = self.objective.derivatives(shard.y[rows], self.scores[rows], shard.weight[rows])[0]
            return np.asarray(g[rows].sum(axis=0))

        total = sum(self.rows.threads.map(work, self.pieces), np.zeros(g.shape[1]))
        return self.collective.sum(np.concatenate([self.rows.gradient(g), total[None]]), root=0)

    def _move(self, direction: FloatArray) -> None:
        """Take a step along `direction` that lessens the slope enough."""
        shard, descent, d = self.shard, self.descent, self.rows.scores(direction[:-1])
        d += direction[-1]
        of_penalty = None if descent is None else descent.penalty_along(direction, self.theta)

        def along(alpha: float) -> FloatArray:
            def part(rows: slice) -> Array:
                at = self.scores[rows] + alpha * d[rows]
                return self.objective.along(shard.y[rows], at, shard.weight[rows], d[rows])

            own: FloatArray = sum(self.rows.threads.map(part, self.pieces), np.zeros(2))
            if of_penalty is not None:
                own += of_penalty
                own[0] += alpha * of_penalty[1]
            return own

        slope_at_zero = 0.0 if descent is None else descent.slope
        alpha = float(coarse(minimise_together(self.collective, along, ENOUGH, slope_at_zero)))
        self.theta += alpha * direction
        self.scores += alpha * d
        if descent is not None:
            descent.step = direction * alpha

    def result(self, l2: float) -> tuple[FloatArray, LinearStart]:
        """The start with the intercept in it, and the weights."""
        weights = self.theta[:-1].astype(HEAD)
        return self.fitting.start + self.theta[-1], LinearStart(self.fitting.buckets, weights, l2)


class Descent:
    """Where to go next, from sums over all workers' rows: what the root thinks. It thinks alone, because a last bit in
    which processors differ could make one of them stop while others wait for it."""

    def __init__(self, curvature: FloatArray, free_intercept: bool) -> None:
        self.curvature, self.free_intercept = curvature, free_intercept
        seen = np.count_nonzero(curvature[:-1])
        self.unit = float(curvature[:-1].sum() / seen) if seen else 1.0
        self.first_size: float | None = None

    def begin(self, l2: float, tolerance: float) -> None:
        """Another penalty."""
        penalised = np.append(np.ones(len(self.curvature) - 1), 0.0)
        self.penalty, self.tolerance = (l2 * self.unit * penalised)[:, None], tolerance
        scale = self.curvature[:, None] + self.penalty
        inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0.0)
        if not self.free_intercept:
            inverse[-1] = 0.0
        self.memory = Memory(inverse)
        self.gradient: FloatArray | None = None
        self.step = np.zeros(0)  # that was taken last

    def direction(self, sums: FloatArray, theta: FloatArray) -> FloatArray:
        """The next one; zeros say that it is enough."""
        before, self.gradient = self.gradient, sums + self.penalty * theta
        nowhere = np.zeros(theta.shape, dtype=MEMBERSHIP)
        if before is not None and not self.memory.learn(self.step, self.gradient - before):
            return nowhere
        size = float(np.sqrt(np.vdot(self.gradient, self.memory.inverse * self.gradient)))
        self.first_size = size if self.first_size is None else self.first_size
        if not size > self.tolerance * self.first_size:
            return nowhere
        found = -self.memory.times(self.gradient)
        self.slope = float(np.vdot(self.gradient, found.astype(SUM)))
        return found

    def penalty_along(self, direction: FloatArray, theta: FloatArray) -> tuple[float, float]:
        """What the penalty adds to the slope at 0, and to the curvature."""
        turn = self.penalty * direction
        return float(np.vdot(turn, theta)), float(np.vdot(turn, direction))


class Memory:
    """The inverse Hessian as L-BFGS knows it: a diagonal, bent by the last steps and the gradients they met."""

    def __init__(self, inverse: FloatArray) -> None:
        self.inverse = inverse
        # float32: directions are searched along anyway, and this is most of what a step reads and writes.
        self.pairs: deque[tuple[FloatArray, FloatArray, float]] = deque(maxlen=HISTORY)
        self.scale = 1.0

    def learn(self, step: FloatArray, change: FloatArray) -> bool:
        """False where the gradient did not change along the step: there is nothing more to go down."""
        change = coarse(change)
        product = float(np.vdot(step, change))
        if not product > 0.0:
            return False
        self.scale = product / float(np.vdot(change, self.inverse * change))
        self.pairs.append((step.astype(MEMBERSHIP), change, 1.0 / product))
        return True

    def times(self, gradient: FloatArray) -> FloatArray:
        q, weights = coarse(gradient), []
        for step, change, rho in reversed(self.pairs):
            weights.append(np.float32(rho * np.vdot(step, q)))
            q -= weights[-1] * change
        q *= self.inverse * self.scale
        for (step, change, rho), weight in zip(self.pairs, reversed(weights), strict=True):
            q += (weight - np.float32(rho * np.vdot(change, q))) * step
        return q


def coarse(numbers: FloatArray | float) -> FloatArray:
    """Rounded to `BITS` significant bits, as float32.

    >>> coarse(np.array([1.0001, 1000.06, -2.0])).tolist()
    [1.0, 1000.0, -2.0]
    """
    dropped = 24 - BITS
    words = np.asarray(numbers, dtype=np.float32).view(np.uint32)
    rounded = (words + np.uint32(1 << (dropped - 1))) & np.uint32(2**32 - (1 << dropped))
    return np.asarray(rounded).view(MEMBERSHIP)


def pieces_of(n_rows: int, n_scores: int) -> list[slice]:
    """Rows in pieces of about 2^16 scores."""
    size = max(256, 2**16 // n_scores)
    return [slice(i, min(i + size, n_rows)) for i in range(0, n_rows, size)]
