"""L-BFGS for long vectors: directions of descent from gradients that are sums over all workers' rows.

The inverse Hessian is a diagonal, corrected by the last steps and the changes of the gradient along them. Steps and
gradients are kept in units of the first of each, so that float32 does not see the unit of y.

Sums over the same rows in another order, or on other workers, differ in their last bits, and L-BFGS would amplify that
to a thousandth within some tens of steps. So gradients and step lengths are rounded to a few bits (`round_coarsely`).
Then every step is the same, unless a sum lies within its last bits of a rounding boundary: about one number in 10^10.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from gbun.dtypes import MEMBERSHIP, SUM, FloatArray
from gbun.kernels.linear import HISTORY, VectorSums
from gbun.kernels.threads import ThreadPool

COARSE_BITS = 12  # significant bits that L-BFGS gets: few beside the 53 of a sum, many beside its tolerance


class LbfgsDescent:
    """Directions of L-BFGS, on the root only.

    If every worker chose for itself, processors that differ in a last bit could make one stop while others wait for it.
    """

    def __init__(self, curvature: FloatArray, free_intercept: bool, threads: ThreadPool) -> None:
        self.curvature, self.free_intercept = curvature, free_intercept
        self.sums = VectorSums(threads)
        n_used = np.count_nonzero(curvature[:-1])
        self.unit = float(curvature[:-1].sum() / n_used) if n_used else 1.0
        self.first_size: float | None = None

    def begin(self, l2: float, tolerance: float) -> None:
        """Start again with another penalty."""
        self.penalty, self.tolerance = l2 * self.unit, tolerance  # of all but the last weight, the intercept
        scale = np.append(self.curvature[:-1] + self.penalty, self.curvature[-1])
        self.inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0.0)[:, None]
        if not self.free_intercept:
            self.inverse[-1] = 0.0
        self.gradient_unit = self.step_unit = 0.0  # not known yet
        # In float32: a line search follows anyway, and a step reads and writes little else.
        self.pairs: deque[tuple[FloatArray, FloatArray, float]] = deque(maxlen=HISTORY)
        self.scale = 1.0
        self.gradient: FloatArray | None = None
        self.last_direction, self.last_length = np.zeros(0, dtype=MEMBERSHIP), 0.0

    def direction(self, gradient: FloatArray, theta: FloatArray) -> FloatArray:
        """Return the next direction, of the shape of theta; zeros if the fit has converged.

        `gradient` is that of the loss; the penalty's is added to it in place.
        """
        gradient[:-1] += self.penalty * theta[:-1]
        before, self.gradient = self.gradient, gradient
        stop = np.zeros(theta.shape, dtype=MEMBERSHIP)
        if before is None:
            self._choose_units(gradient)
        elif not self._add_pair(before):
            return stop
        coarse = round_coarsely(gradient / self.gradient_unit)
        size = np.sqrt(self.sums.dot(coarse, self.inverse * coarse) * self.gradient_unit * self.step_unit)
        self.first_size = size if self.first_size is None else self.first_size
        if not size > self.tolerance * self.first_size:
            return stop
        direction = self._find_direction(coarse)
        if not np.isfinite(direction).all():  # the pairs of steps and changes are of no use any more
            self.pairs.clear()
            self.scale = 1.0
            direction = self._find_direction(coarse)
        if not np.isfinite(direction).all():
            raise ValueError(
                "the linear start has no finite step: y, or the weights, are too large or too small for float32; scale "
                "y to values between 1e-30 and 1e30, or use init='constant'"
            )
        self.slope = float(np.vdot(gradient, direction.astype(SUM)))
        self.last_direction = direction
        return direction

    def take(self, length: float) -> None:
        """Say how long the step along the last direction was."""
        self.last_length = length

    def penalty_along(self, direction: FloatArray, theta: FloatArray) -> tuple[float, float]:
        """Return what the penalty adds to the slope at 0, and to the curvature."""
        penalised = direction[:-1].astype(SUM)
        return self.penalty * float(np.vdot(penalised, theta[:-1])), self.penalty * float(np.vdot(penalised, penalised))

    def _choose_units(self, gradient: FloatArray) -> None:
        self.gradient_unit = float(np.linalg.norm(gradient)) or 1.0
        self.step_unit = float(np.linalg.norm(self.inverse * gradient)) or 1.0
        self.inverse = (self.inverse * (self.gradient_unit / self.step_unit)).astype(MEMBERSHIP)

    def _add_pair(self, before: FloatArray) -> bool:
        """Remember a step; return False if the gradient did not grow along it, so that nothing is left to gain."""
        assert self.gradient is not None
        np.subtract(self.gradient, before, out=before)
        before /= self.gradient_unit
        change = round_coarsely(before)
        step = np.multiply(self.last_direction, self.last_length / self.step_unit, dtype=MEMBERSHIP)
        product = self.sums.dot(step, change)
        if not product > 0.0:
            return False
        self.scale = product / self.sums.dot(change, self.inverse * change)
        self.pairs.append((step, change, 1.0 / product))
        return True

    def _find_direction(self, coarse: FloatArray) -> FloatArray:
        """Multiply the gradient by the negative inverse Hessian, by the two-loop recursion."""
        q, weights, sums = coarse.copy(), deque[float](), self.sums
        with np.errstate(over="ignore", invalid="ignore"):  # the caller looks
            for step, change, rho in reversed(self.pairs):
                weights.appendleft(rho * sums.dot(step, q))
                sums.add(q, -weights[0], change)
            q *= self.inverse
            q *= np.float32(self.scale)
            for (step, change, rho), weight in zip(self.pairs, weights, strict=True):
                sums.add(q, weight - rho * sums.dot(change, q), step)
            return np.asarray(np.multiply(q, -self.step_unit, dtype=SUM), dtype=MEMBERSHIP)


def round_coarsely(numbers: FloatArray | float) -> FloatArray:
    """Round to `COARSE_BITS` significant bits, as float32.

    >>> round_coarsely(np.array([1.0001, 1000.06, -2.0])).tolist()
    [1.0, 1000.0, -2.0]
    """
    dropped = 24 - COARSE_BITS
    words = np.array(numbers, dtype=np.float32).view(np.uint32)
    words += np.uint32(1 << (dropped - 1))
    words &= np.uint32(2**32 - (1 << dropped))
    return words.view(MEMBERSHIP)
