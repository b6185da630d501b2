"""The linear start: a regularised linear model for the same objective, fitted before the first round.

    minimise over theta, b:   sum_i w_i loss(y_i, b + phi(x_i) theta) + lambda / 2 |theta|^2
    lambda = l2 x mean over weights of sum_i h_i phi_i^2

phi is what `LinearRows` makes of scaled features: dense columns, and sparse features in buckets. The intercept b is not
penalised. It replaces the constant start, so there is none if base margins replace that start.

The method is L-BFGS. Each step needs sums over rows: the gradient, of the size of theta, and two numbers for each step
length that is tried. The root gets these sums, chooses the direction and decides when to stop, and broadcasts both, so
that all workers end with the same bits.

Wide data have more buckets than weights that matter: only weights of features that some row has are fitted. The others
are 0, and neither computed nor sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from gbun.arrays import Array
from gbun.collectives import Collective
from gbun.data.buckets import Buckets
from gbun.data.features import Features, Shard
from gbun.dtypes import HEAD, MEMBERSHIP, SUM, FloatArray
from gbun.kernels.linear import LinearRows
from gbun.kernels.threads import ThreadPool
from gbun.lbfgs import LbfgsDescent, round_coarsely
from gbun.metrics.base import Metric
from gbun.objectives import Objective
from gbun.objectives.custom import split_rows
from gbun.solve import minimise_over_workers

FAR, SLOW = 2.0, 0.1  # at this multiple of the loss to beat, a smaller gain from penalty to penalty ends the path
L2_PATH = tuple(4.0**k for k in range(2, -8, -1))  # penalties to try, the strongest first
TOLERANCE = 2e-2  # relative to the size of the gradient before the first step
MAX_STEPS = 100
SLOPE_TOLERANCE = 0.3  # the part of the slope that a line search may leave: any step that changes the gradient helps
SCORES_PER_PIECE = 2**16


@dataclass(frozen=True)
class LinearStart:
    """Fitted weights theta, float32 of shape (n_weights, C): a row for each dense column and each bucket."""

    buckets: Buckets | None
    weights: FloatArray
    l2: float

    def scores(self, features: Features, threads: ThreadPool) -> FloatArray:
        """Return phi(x) theta of scaled features, (n, C); the intercept is in the constant start."""
        return LinearRows(features, self.buckets, threads).scores(self.weights)

    @property
    def n_dense(self) -> int:
        """The number of dense columns, whose weights come first."""
        return len(self.weights) - (0 if self.buckets is None else self.buckets.n)

    @property
    def n_weights(self) -> int:
        """The number of weights that are not zero."""
        return int(np.count_nonzero(self.weights.any(axis=1)))


@dataclass(frozen=True)
class LinearStartFitter:
    """Fits linear starts of one training: the buckets, the loss, the constant start and the metric to compare by."""

    buckets: Buckets | None
    objective: Objective
    start: FloatArray
    metric: Metric
    collective: Collective
    threads: ThreadPool

    def fit(self, rows: Shard, l2: float) -> tuple[FloatArray, LinearStart]:
        """Return the constant with the intercept, and the weights, for rows with scaled features.

        The penalty falls to l2 along the path, as when it is chosen: that is faster than a fit with l2 alone.
        """
        fit = LinearFit(rows, self)
        for stage in [stronger for stronger in L2_PATH if stronger > l2] + [l2]:
            fit.fit(stage)
        return fit.result(l2)

    def choose(
        self, parts: Iterable[tuple[Shard, Shard]], to_beat: float | None = None
    ) -> tuple[FloatArray, LinearStart, bool]:
        """Fit the best penalty of the path; return start and weights, and whether they are better than the constant.

        `parts` are rows to fit and held-out rows to judge by; several pairs if rows are few, and then the mean decides,
        and better means by more than its standard error. The path ends when the metric gets worse, or where a loss
        `to_beat` is out of reach. What is returned is fitted to the rows of the first pair.
        """
        fits, held_out, judges = [], [], []
        for rows, judge in parts:
            fits.append(LinearFit(rows, self))
            held_out.append(LinearRows(judge.features, self.buckets, self.threads))
            judges.append(without_features(judge))
        del rows, judge
        constant = np.array([self.evaluate_start(judge, self.start, None) for judge in judges])
        best: FloatArray | None = None
        result: tuple[FloatArray, LinearStart] | None = None
        for l2 in L2_PATH:
            values = []
            for fit, judging_rows, judge in zip(fits, held_out, judges, strict=True):
                fit.fit(l2)
                start, linear = fit.result(l2)
                values.append(self.evaluate_start(judge, start, judging_rows.scores(linear.weights)))
            gains = np.array(values) - constant
            if best is not None and not gains.mean() > best.mean():
                break
            before, best, result = best, gains, fits[0].result(l2)
            loss = -float(np.mean(values))
            slow = before is not None and best.mean() - before.mean() < SLOW * loss
            if to_beat is not None and slow and loss > FAR * abs(to_beat):
                return *result, False
        assert best is not None
        assert result is not None
        error = best.std(ddof=1) / np.sqrt(len(best)) if len(best) > 1 else 0.0
        return *result, bool(best.mean() > error)

    def evaluate_start(self, judge: Shard, start: FloatArray, scores: FloatArray | None) -> float:
        """Return the metric of a start, or of the constant without `scores`, signed so that larger is better."""
        base = start if judge.base_margin is None else judge.base_margin
        total = np.broadcast_to(base, (judge.n_rows, len(start))) + (0.0 if scores is None else scores)
        value = self.metric.evaluate(judge.y, self.objective.response(total), judge.weight, self.collective)
        return value if self.metric.higher_is_better else -value


def without_features(rows: Shard) -> Shard:
    """Return targets, weights and margins only: features are copied for the fit."""
    return replace(rows, features=Features(rows.n_rows))


class LinearFit:
    """One fit of theta; `fit(l2)` continues from the theta of the penalty before."""

    def __init__(self, rows: Shard, fitting: LinearStartFitter) -> None:
        self.rows = LinearRows(rows.features, fitting.buckets, fitting.threads)
        self.used = fitting.collective.sum(self.rows.find_used()) > 0.0  # by a row of any worker
        self.rows.keep(self.used)
        self.shard, self.fitting = without_features(rows), fitting
        self.objective, self.collective = fitting.objective, fitting.collective
        C = len(fitting.start)
        self.pieces = split_rows(rows.n_rows, C, SCORES_PER_PIECE)
        self.theta = np.zeros((self.rows.n_weights + 1, C), dtype=SUM)  # the last row is the intercept
        self.scores = np.empty((rows.n_rows, C), dtype=SUM)
        self.scores[:] = fitting.start if rows.base_margin is None else rows.base_margin
        margins = self.collective.sum(np.array([0.0 if rows.base_margin is None else 1.0]), root=0)
        curvature = self._sum_curvature()
        self.descent = None
        if self.collective.rank == 0:
            self.descent = LbfgsDescent(curvature, not margins[0], fitting.threads)

    def _sum_curvature(self) -> FloatArray:
        """Return sum_i h_i phi_i^2 of each weight, then sum_i h_i, at the start; complete on the root only."""
        shard, h = self.shard, np.empty(self.shard.n_rows)

        def work(rows: slice) -> float:
            piece = self.objective.derivatives(shard.y[rows], self.scores[rows], shard.weight[rows])[1]
            h[rows] = piece if piece.ndim == 1 else piece.max(axis=1)
            return float(h[rows].sum())

        total = sum(self.rows.threads.map(work, self.pieces), 0.0)
        return self.collective.sum(np.append(self.rows.curvature(h), total), root=0)

    def fit(self, l2: float, tolerance: float = TOLERANCE) -> None:
        """Minimise the loss with this penalty."""
        if self.descent is not None:
            self.descent.begin(l2, tolerance)
        for _ in range(MAX_STEPS):
            sums, direction = self._sum_gradient(), np.zeros(self.theta.shape, dtype=MEMBERSHIP)
            if self.descent is not None:
                direction = self.descent.direction(sums, self.theta)
            direction = self.collective.broadcast(direction)
            if not direction.any():
                return
            self._take_step(direction)

    def _sum_gradient(self) -> FloatArray:
        """Return the gradient of the loss without its penalty; complete on the root only."""
        shard, g = self.shard, np.empty(self.scores.shape, dtype=SUM)

        def work(rows: slice) -> FloatArray:
            g[rows] = self.objective.derivatives(shard.y[rows], self.scores[rows], shard.weight[rows])[0]
            return np.asarray(g[rows].sum(axis=0))

        total = sum(self.rows.threads.map(work, self.pieces), np.zeros(g.shape[1]))
        return self.collective.sum(np.concatenate([self.rows.gradient(g), total[None]]), root=0)

    def _take_step(self, direction: FloatArray) -> None:
        """Search the length of the step along `direction` and take it."""
        shard, descent, d = self.shard, self.descent, self.rows.scores(direction[:-1])
        d += direction[-1]
        penalty = None if descent is None else descent.penalty_along(direction, self.theta)

        def along(alpha: float) -> FloatArray:
            def work(rows: slice) -> Array:
                scores = self.scores[rows] + alpha * d[rows]
                return self.objective.derivatives_along(shard.y[rows], scores, shard.weight[rows], d[rows])

            sums: FloatArray = sum(self.rows.threads.map(work, self.pieces), np.zeros(2))
            if penalty is not None:
                sums += penalty
                sums[0] += alpha * penalty[1]
            return sums

        slope_at_zero = 0.0 if descent is None else descent.slope
        alpha = float(round_coarsely(minimise_over_workers(self.collective, along, SLOPE_TOLERANCE, slope_at_zero)))
        self.theta += np.multiply(direction, alpha, dtype=SUM)
        self.scores += alpha * d
        if descent is not None:
            descent.take(alpha)

    def result(self, l2: float) -> tuple[FloatArray, LinearStart]:
        """Return the constant with the intercept, and the weights."""
        weights = np.zeros((len(self.used), self.theta.shape[1]), dtype=HEAD)
        weights[self.used] = self.theta[:-1]
        return self.fitting.start + self.theta[-1], LinearStart(self.fitting.buckets, weights, l2)
