"""Sums to parameters: the normalisation from moments, the head from the normal equations, the length of a step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.linalg

from gbun.collectives import Collective
from gbun.dtypes import HEAD, MEMBERSHIP, FloatArray

CONSTANT = 2.0**-22  # a deviation below float32's resolution at the mean: no information, only rounding

ROUNDING = float(np.finfo(np.float64).eps)

LONGEST_STEP = 1e3  # in Newton steps: beyond, a flat stretch has been taken for a parabola
LONGEST_LEAP = 1e2  # from one step to the next
STEEP = 30.0  # in slopes at 0: where a function grows so fast, Newton's steps come back too slowly


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


class Tried(NamedTuple):
    """A step, and the slope and curvature there; of an end of the bracket that was not tried, infinities."""

    alpha: float
    slope: float
    curvature: float = math.nan


def minimise_convex(
    along: Callable[[float], tuple[float, float]],
    most: int = 8,
    enough: float = 0.1,
    slope_at_zero: float | None = None,
) -> float:
    """The step at which the slope of a convex function has fallen to `enough` of what it is at 0.

    `along` gives slope and curvature. Whoever knows the slope at 0 already, and expects 1 to be about right, says so.

    Newton's steps are taken as long as slopes bear the curvature out. It may be no more than a bound, or wrong by
    any factor: then steps grow until the slope turns, and from there on slopes alone say where to go. The answer is 0
    only if the function ascends however short the step is, as it may at a kink.
    """
    now, to = Tried(0.0, 0.0 if slope_at_zero is None else slope_at_zero), 1.0
    if slope_at_zero is None:
        now = Tried(0.0, *along(0.0))
        to = min(-now.slope / now.curvature, LONGEST_STEP) if now.curvature > 0.0 else 0.0
    if not now.slope < 0.0 < to:
        return 1.0
    first, low, high, by_newton = now.slope, now, Tried(math.inf, math.inf), True
    for tried in range(1, 3 * most + 1):
        before, now = now, Tried(to, *map(float, along(to)))
        if abs(now.slope) <= -enough * first:
            return now.alpha
        if now.slope < 0.0:
            hardly, low = now.slope < 0.5 * low.slope, now
        else:
            hardly, high = not now.slope <= 0.5 * high.slope, now
        if tried >= most and low.alpha > 0.0:
            break
        sound, steep = _is_sound(before, now), now.slope > -STEEP * first
        newton = now.alpha - now.slope / now.curvature if now.curvature > 0.0 else math.inf
        newton = min(newton, LONGEST_LEAP * now.alpha)
        trusted = sound and not steep and low.alpha < newton < high.alpha
        if trusted:
            to = newton
        elif high.alpha == math.inf:
            to = _beyond(before, now)
        elif (sound and steep) or (hardly and not by_newton):
            to = _middle(low, high)
        else:
            to = _crossing(low, high)
        by_newton = trusted
        if not low.alpha < to < high.alpha:  # there are no numbers left in between
            break
    descends = low.alpha * low.slope + (high.alpha - low.alpha) * high.slope < 0.0  # at most, from 0 to high
    return high.alpha if descends and high.slope < -low.slope else low.alpha


def minimise_together(
    collective: Collective,
    along: Callable[[float], FloatArray],
    enough: float = 0.1,
    slope_at_zero: float | None = None,
) -> float:
    """`minimise_convex` of a function that is a sum over all workers' rows; `along` gives what this worker's add.

    The root searches, and tells the others what to try: were each to search by itself, a last bit in which processors
    differ could make one of them stop while others wait for it. A try takes two numbers up and two down. Whether the
    slope at 0 is known must be the same on all workers; what it is only matters at the root.
    """
    first = 0.0 if slope_at_zero is None else 1.0  # where every search begins: nobody has to be told
    at_first = collective.sum(along(first), root=0)

    def told(alpha: float, found: bool) -> tuple[float, bool]:
        alpha, over = collective.broadcast(np.array([alpha, float(found)])).tolist()
        return alpha, bool(over)

    def of_all(alpha: float) -> tuple[float, float]:  # no step is asked for twice
        slope, curvature = at_first if alpha == first else collective.sum(along(told(alpha, False)[0]), root=0)
        return float(slope), float(curvature)

    if collective.rank == 0:
        return told(minimise_convex(of_all, enough=enough, slope_at_zero=slope_at_zero), True)[0]
    alpha, found = told(first, False)
    while not found:
        collective.sum(along(alpha), root=0)
        alpha, found = told(alpha, False)
    return alpha


def _is_sound(a: Tried, b: Tried) -> bool:
    """Whether the curvatures of two steps are those of the slopes between them, within a factor of two.

    Their logarithmic mean is compared, which is the mean curvature where curvature grows exponentially.
    """
    if a.alpha == 0.0 and math.isnan(a.curvature):  # nobody said what it is
        return True
    ratio = b.curvature / a.curvature if a.curvature > 0.0 else 0.0
    if not ratio > 0.0:
        return False
    said = a.curvature * ((ratio - 1.0) / math.log(ratio) if abs(ratio - 1.0) > 1e-6 else 1.0)
    return 0.5 * said <= _bend(a, b) <= 2.0 * said


def _bend(a: Tried, b: Tried) -> float:
    """The mean curvature from one step to another."""
    return (b.slope - a.slope) / (b.alpha - a.alpha)


def _beyond(before: Tried, now: Tried) -> float:
    """A longer step: where the slope would turn if it went on as it did."""
    bend = _bend(before, now)
    to = now.alpha - now.slope / bend if bend > 0.0 else math.inf
    return min(max(to, 2.0 * now.alpha), LONGEST_LEAP * now.alpha)


def _crossing(low: Tried, high: Tried) -> float:
    """Where a straight line between the slopes of the bracket's ends is 0 (regula falsi)."""
    to = max(low.alpha - low.slope / _bend(low, high), high.alpha / LONGEST_LEAP)
    return to if low.alpha < to < high.alpha else _middle(low, high)


def _middle(low: Tried, high: Tried) -> float:
    """A step inside the bracket, by orders of magnitude: too long ones may be far too long."""
    return math.sqrt(low.alpha) * math.sqrt(high.alpha) if low.alpha > 0.0 else 0.1 * high.alpha
