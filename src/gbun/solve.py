"""Sums to parameters: the normalisation from moments, the head from the normal equations, the length of a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from gbun.dtypes import HEAD, MEMBERSHIP, FloatArray

CONSTANT = 2.0**-22  # a deviation below float32's resolution at the mean: no information, only rounding

ROUNDING = float(np.finfo(np.float64).eps)

LONGEST_STEP = 1e3  # in Newton steps: beyond, a flat stretch has been taken for a parabola


@dataclass(frozen=True)
class Normaliser:
    """z -> (z - centre) x factor; factor = 1 / deviation, 0 for a constant output."""

    centre: FloatArray
    factor: FloatArray


def normaliser(total_weight: float, n_rows: float, sums: FloatArray) -> Normaliser:
    """The sample mean and deviation of each output, from [sum w z ; sum w z^2], N = sum w, n rows with a weight.

    variance = (sum w z^2 - N mean^2) / (N - 1): weights count rows, so weight 2 is the row twice. Where weights are
    shares of a row (N below n), N (n - 1) / n takes the place of N - 1: their scale then changes nothing. A constant
    output is normalised to 0 for every row.

    >>> normaliser(3.0, 3, np.array([[6.0, 3.0], [14.0, 3.0]]))
    Normaliser(centre=array([2., 1.], dtype=float32), factor=array([1., 0.], dtype=float32))
    """
    mean = sums[0] / total_weight
    freedom = max(total_weight - 1.0, total_weight * (n_rows - 1.0) / n_rows)
    variance = (sums[1] - total_weight * mean**2) / (freedom or 1.0)
    deviation = np.sqrt(np.maximum(variance, 0.0))
    constant = deviation <= CONSTANT * np.abs(mean)
    factor = np.where(constant, 0.0, 1.0 / np.where(constant, 1.0, deviation))
    return Normaliser(mean.astype(MEMBERSHIP), factor.astype(MEMBERSHIP))


def solve_head(
    A: FloatArray, B: FloatArray, reg_lambda: float, reg_form: str = "relative", rounding: float | None = None
) -> FloatArray:
    """head = -(A + lambda I)^-1 B, with lambda = reg_lambda x mean diagonal of A unless reg_form is "absolute".

    A is K x K, or C x K x K with one system per column of B. `rounding` is how exact A is, relative to its largest
    eigenvalue; None: as exact as float64 sums.

    >>> solve_head(np.diag([1.0, 3.0]), np.array([[2.0], [8.0]]), reg_lambda=0.5).ravel()
    array([-1., -2.], dtype=float32)
    """
    if A.ndim == 3:
        heads = [solve_head(A[c], B[:, c : c + 1], reg_lambda, reg_form, rounding) for c in range(len(A))]
        return np.concatenate(heads, axis=1)
    rounding = ROUNDING * len(A) if rounding is None else rounding
    ridge = reg_lambda * (np.trace(A) / len(A) if reg_form == "relative" else 1.0)
    system = A + ridge * np.eye(len(A))
    try:
        factor, lower = scipy.linalg.cho_factor(system, lower=True)
    except scipy.linalg.LinAlgError:
        return _least_norm(system, B, rounding)
    pivots = np.diag(factor)
    if (pivots.min() / pivots.max()) ** 2 < rounding:  # factored, but out of rounding errors
        return _least_norm(system, B, rounding)
    return _head(-scipy.linalg.cho_solve((factor, lower), B))


def _least_norm(system: FloatArray, B: FloatArray, rounding: float) -> FloatArray:
    """The fallback when Cholesky finds the system not positive definite (dead or equal outputs without a penalty).

    The step is taken in the directions whose eigenvalue is above rounding, and left at zero in all others.
    """
    values, vectors = scipy.linalg.eigh(system)
    usable = values > rounding * max(values[-1], 0.0)
    V = vectors[:, usable]
    return _head(-(V @ ((V.T @ B) / values[usable, None])))


def _head(solution: FloatArray) -> FloatArray:
    # Stored row by row, as the product P W reads it; LAPACK answers column by column.
    return np.ascontiguousarray(solution, dtype=HEAD)


def minimise_convex(
    along: Callable[[float], tuple[float, float]],
    most: int = 8,
    enough: float = 0.1,
    slope_at_zero: float | None = None,
) -> float:
    """The step at which the slope of a convex function has fallen to `enough`, Newton's steps kept in a bracket.

    `along` gives slope and curvature. Whoever knows the slope at 0 already, and expects 1 to be about right, says so.
    """
    low, high, alpha = 0.0, np.inf, 0.0
    slope, curvature = along(0.0) if slope_at_zero is None else (slope_at_zero, 1.0)
    first = slope
    if not (first < 0.0 < curvature):
        return 1.0
    for tried in range(most):
        if slope < 0.0:
            low = alpha
        else:
            high = alpha
        step = min(alpha - slope / curvature, LONGEST_STEP) if curvature > 0.0 else np.inf
        if tried == 0 and slope_at_zero is not None:
            step = 1.0
        alpha = step if low < step < high else _within(low, high)
        slope, curvature = along(alpha)
        if abs(slope) <= -enough * first:
            return alpha
    return alpha if slope < 0.0 else low  # not found in time: the longest step known to descend


def _within(low: float, high: float) -> float:
    """A step inside the bracket, by orders of magnitude: too long ones may be far too long."""
    if high == np.inf:
        return 4.0 * low
    return float(np.sqrt(low * high)) if low > 0.0 else 0.1 * high
