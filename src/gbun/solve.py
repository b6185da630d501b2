"""Solutions from sums over rows: the normalisation from moments, the head from normal equations, the step length."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.linalg

from gbun.collectives import Collective
from gbun.dtypes import HEAD, MEMBERSHIP, FloatArray

CONSTANT_TOLERANCE = 2.0**-22  # a deviation below the resolution of float32 at the mean is rounding, not information
ROUNDING = float(np.finfo(np.float64).eps)
MAX_STEP = 1e3  # a longer first step means that the curvature belongs to a flat stretch
MAX_STEP_RATIO = 1e2  # from one step to the next
STEEP_RATIO = 30.0  # in slopes at 0: where the slope is so steep, Newton's steps return too slowly


@dataclass(frozen=True)
class Normaliser:
    """Normalisation of outputs, z -> (z - centre) x factor; factor = 1 / deviation, or 0 for a constant output."""

    centre: FloatArray
    factor: FloatArray


def make_normaliser(total_weight: float, n_rows: float, sums: FloatArray) -> Normaliser:
    """Compute the sample mean and deviation of each output from `sums` = [sum w z ; sum w z^2], (2, K), and N = sum w.

    variance = (sum w z^2 - N mean^2) / (N - 1): weights count rows, so weight 2 is the row twice. If weights are
    fractions of a row (N below n, the rows with a weight), N (n - 1) / n replaces N - 1, so that their scale does not
    matter. A constant output is normalised to 0 for every row.

    >>> make_normaliser(3.0, 3, np.array([[6.0, 3.0], [14.0, 3.0]]))
    Normaliser(centre=array([2., 1.], dtype=float32), factor=array([1., 0.], dtype=float32))
    """
    mean = sums[0] / total_weight
    freedom = max(total_weight - 1.0, total_weight * (n_rows - 1.0) / n_rows)
    variance = (sums[1] - total_weight * mean**2) / (freedom or 1.0)
    deviation = np.sqrt(np.maximum(variance, 0.0))
    constant = deviation <= CONSTANT_TOLERANCE * np.abs(mean)
    factor = np.where(constant, 0.0, 1.0 / np.where(constant, 1.0, deviation))
    return Normaliser(mean.astype(MEMBERSHIP), factor.astype(MEMBERSHIP))


def solve_head(
    A: FloatArray,
    B: FloatArray,
    reg_lambda: float,
    reg_form: str = "relative",
    rounding: float | None = None,
    diagonal: bool = False,
) -> FloatArray:
    """Solve head = -(A + lambda I)^-1 B, with lambda = reg_lambda x mean diagonal of A unless reg_form is "absolute".

    A is (K, K), or (C, K, K) with one system for each column of B, (K, C); where `diagonal` is set, it is the diagonal
    only, (K,) or (C, K). `rounding` says how exact A is, relative to its largest eigenvalue; None: as float64 sums are.
    The head is float32 of shape (K, C).

    >>> solve_head(np.diag([1.0, 3.0]), np.array([[2.0], [8.0]]), reg_lambda=0.5).ravel()
    array([-1., -2.], dtype=float32)
    >>> solve_head(np.array([1.0, 3.0]), np.array([[2.0], [8.0]]), reg_lambda=0.5, diagonal=True).ravel()
    array([-1., -2.], dtype=float32)
    """
    if diagonal:
        A, B = np.asarray_chkfinite(A), np.asarray_chkfinite(B)  # as Cholesky does
        A = A.reshape(-1, len(B)).T  # K x 1, or K x C
        system = A + reg_lambda * (A.mean(axis=0) if reg_form == "relative" else 1.0)
        usable = system > (ROUNDING if rounding is None else rounding) * system.max(axis=0, initial=0.0)
        return _to_head(-np.divide(B, system, out=np.zeros_like(B), where=usable & np.ones_like(B, dtype=bool)))
    if A.ndim == 3:
        heads = [solve_head(A[c], B[:, c : c + 1], reg_lambda, reg_form, rounding) for c in range(len(A))]
        return np.concatenate(heads, axis=1)
    rounding = ROUNDING * len(A) if rounding is None else rounding
    ridge = reg_lambda * (np.trace(A) / len(A) if reg_form == "relative" else 1.0)
    system = A + ridge * np.eye(len(A))
    try:
        factor, lower = scipy.linalg.cho_factor(system, lower=True)
    except scipy.linalg.LinAlgError:
        return _solve_least_norm(system, B, rounding)
    pivots = np.diag(factor)
    if (pivots.min() / pivots.max()) ** 2 < rounding:  # positive definite by rounding errors only
        return _solve_least_norm(system, B, rounding)
    return _to_head(-scipy.linalg.cho_solve((factor, lower), B))


def _solve_least_norm(system: FloatArray, B: FloatArray, rounding: float) -> FloatArray:
    """Solve a system that is not positive definite, as with constant or equal outputs and no penalty.

    The step is taken along the eigenvectors whose eigenvalue is above rounding, and is 0 along all others.
    """
    values, vectors = scipy.linalg.eigh(system)
    usable = values > rounding * max(values[-1], 0.0)
    V = vectors[:, usable]
    return _to_head(-(V @ ((V.T @ B) / values[usable, None])))


def _to_head(solution: FloatArray) -> FloatArray:
    # Row by row, as the product P W reads it; the result of LAPACK is column by column.
    return np.ascontiguousarray(solution, dtype=HEAD)


class LinePoint(NamedTuple):
    """A step length, and the slope and the curvature there; infinite for an end of the bracket that was not tried."""

    alpha: float
    slope: float
    curvature: float = math.nan


def minimise_convex(
    along: Callable[[float], tuple[float, float]],
    most: int = 8,
    tolerance: float = 0.1,
    slope_at_zero: float | None = None,
) -> float:
    """Find the step at which the slope of a convex function has fallen to `tolerance` times the slope at 0.

    `along` returns slope and curvature at a step. With `slope_at_zero`, 0 is not evaluated and the search begins at 1.

    Newton's steps are taken as long as the slopes confirm the curvature, which may be a bound only, or wrong by any
    factor. Otherwise steps grow until the slope changes its sign, and then the slopes alone are used. The result is 1
    if the function does not descend at 0, and 0 if even the shortest step ascends, as at a kink.
    """
    point, step = LinePoint(0.0, 0.0 if slope_at_zero is None else slope_at_zero), 1.0
    if slope_at_zero is None:
        point = LinePoint(0.0, *along(0.0))
        step = min(-point.slope / point.curvature, MAX_STEP) if point.curvature > 0.0 else 0.0
    if not point.slope < 0.0 < step:
        return 1.0
    first, low, high, by_newton = point.slope, point, LinePoint(math.inf, math.inf), True
    for n_tried in range(1, 3 * most + 1):
        before, point = point, LinePoint(step, *map(float, along(step)))
        if abs(point.slope) <= -tolerance * first:
            return point.alpha
        if point.slope < 0.0:
            hardly, low = point.slope < 0.5 * low.slope, point
        else:
            hardly, high = not point.slope <= 0.5 * high.slope, point
        if n_tried >= most and low.alpha > 0.0:
            break
        consistent, steep = _is_curvature_consistent(before, point), point.slope > -STEEP_RATIO * first
        newton = point.alpha - point.slope / point.curvature if point.curvature > 0.0 else math.inf
        newton = min(newton, MAX_STEP_RATIO * point.alpha)
        trusted = consistent and not steep and low.alpha < newton < high.alpha
        if trusted:
            step = newton
        elif high.alpha == math.inf:
            step = _extrapolate(before, point)
        elif (consistent and steep) or (hardly and not by_newton):
            step = _geometric_middle(low, high)
        else:
            step = _interpolate(low, high)
        by_newton = trusted
        if not low.alpha < step < high.alpha:  # no float64 is left in between
            break
    descends = low.alpha * low.slope + (high.alpha - low.alpha) * high.slope < 0.0  # an upper bound, from 0 to high
    return high.alpha if descends and high.slope < -low.slope else low.alpha


def minimise_over_workers(
    collective: Collective,
    along: Callable[[float], FloatArray],
    tolerance: float = 0.1,
    slope_at_zero: float | None = None,
) -> float:
    """Run `minimise_convex` for a sum over all workers' rows, of which `along` returns the part of this worker.

    The root searches and broadcasts each step to try: if every worker searched for itself, processors that differ in a
    last bit could make one stop while others wait for it. A try sums two numbers and broadcasts two. Either all workers
    give `slope_at_zero` or none; its value matters on the root only.
    """
    first = 0.0 if slope_at_zero is None else 1.0  # every search begins here, so it need not be broadcast
    at_first = collective.sum(along(first), root=0)

    def broadcast_step(alpha: float, found: bool) -> tuple[float, bool]:
        alpha, found = collective.broadcast(np.array([alpha, float(found)])).tolist()
        return alpha, bool(found)

    def sum_over_workers(alpha: float) -> tuple[float, float]:  # no step is evaluated twice
        if alpha == first:
            slope, curvature = at_first
        else:
            slope, curvature = collective.sum(along(broadcast_step(alpha, False)[0]), root=0)
        return float(slope), float(curvature)

    if collective.rank == 0:
        alpha = minimise_convex(sum_over_workers, tolerance=tolerance, slope_at_zero=slope_at_zero)
        return broadcast_step(alpha, True)[0]
    alpha, found = broadcast_step(first, False)
    while not found:
        collective.sum(along(alpha), root=0)
        alpha, found = broadcast_step(alpha, False)
    return alpha


def _is_curvature_consistent(a: LinePoint, b: LinePoint) -> bool:
    """Return whether the curvatures of two steps agree with their slopes within a factor of two.

    The logarithmic mean of the curvatures is compared, which is exact if the curvature grows exponentially.
    """
    if a.alpha == 0.0 and math.isnan(a.curvature):  # the curvature at 0 is not known
        return True
    ratio = b.curvature / a.curvature if a.curvature > 0.0 else 0.0
    if not ratio > 0.0:
        return False
    mean = a.curvature * ((ratio - 1.0) / math.log(ratio) if abs(ratio - 1.0) > 1e-6 else 1.0)
    return 0.5 * mean <= _secant_curvature(a, b) <= 2.0 * mean


def _secant_curvature(a: LinePoint, b: LinePoint) -> float:
    """Return the mean curvature between two steps."""
    return (b.slope - a.slope) / (b.alpha - a.alpha)


def _extrapolate(before: LinePoint, point: LinePoint) -> float:
    """Return a longer step, at which the slope would be 0 if it changed at the same rate."""
    curvature = _secant_curvature(before, point)
    step = point.alpha - point.slope / curvature if curvature > 0.0 else math.inf
    return min(max(step, 2.0 * point.alpha), MAX_STEP_RATIO * point.alpha)


def _interpolate(low: LinePoint, high: LinePoint) -> float:
    """Return the step at which a straight line between the slopes at the ends of the bracket is 0 (regula falsi)."""
    step = max(low.alpha - low.slope / _secant_curvature(low, high), high.alpha / MAX_STEP_RATIO)
    return step if low.alpha < step < high.alpha else _geometric_middle(low, high)


def _geometric_middle(low: LinePoint, high: LinePoint) -> float:
    """Return the middle of the bracket by orders of magnitude: its upper end may be far too long."""
    return math.sqrt(low.alpha) * math.sqrt(high.alpha) if low.alpha > 0.0 else 0.1 * high.alpha
