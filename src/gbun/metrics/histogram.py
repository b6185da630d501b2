"""Metrics of order from histograms of the scores, for rows that are divided among workers.

Each binary task (one class against the rest) has its own bins, and each bin holds five sums over rows. The order of
rows in different bins is known. Within a bin it is estimated, with a known bound of the error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gbun.dtypes import SUM, FloatArray
from gbun.metrics.base import TINY, SumMetric, divide_or_nan
from gbun.metrics.classification import class_codes

if TYPE_CHECKING:
    from gbun.metrics.ranking import OneVsRestMetric

# Numbers in a message: of one task, and of all tasks as long as each has MIN_BINS bins.
MAX_NUMBERS_PER_TASK, MAX_NUMBERS = 4096, 8192
MIN_BINS = 16
MAX_SCORE = 2.0**64  # larger scores share one bin
# Shares of the knots that are placed where order is in doubt, where rows are, and around them, where rows may move.
DOUBT_SHARE, ROWS_SHARE, MARGIN_SHARE = 0.6, 0.05, 0.35


class Bins(NamedTuple):
    """Sums over the rows of each bin of a task, lowest scores first; a row's place in its bin goes from 0 to 1."""

    positive: FloatArray  # weight
    negative: FloatArray
    positive_places: FloatArray  # weight x place
    negative_places: FloatArray
    signs: FloatArray  # weight x sign, a hash of the score to +1 or -1: equal scores do not cancel


class Bounds(NamedTuple):
    """What each bin adds to a metric: at least, probably, at most."""

    least: FloatArray
    likely: FloatArray
    most: FloatArray


class MeanRowWeight(NamedTuple):
    """The mean weight of a row, drawn by weight, sum w^2 / sum w: over positive rows, and over all rows."""

    positive: float
    all: float


class HistogramMetric(SumMetric):
    """A metric of order from histograms; with several tasks, its unweighted mean over them.

    `error_bound` holds for any order of the rows of a bin. If scores are spread evenly in a bin, as they nearly are in
    a narrow one, the error is hundreds of times smaller. Bins are narrow where it matters: a hint places the edges of
    the next round where order was in doubt in the last one.

    A message has at most 4096 numbers with one task and 8192 with several. With more than 102 tasks it has 80 numbers
    of each, as fewer than 16 bins tell too little.
    """

    def __init__(
        self, metric: OneVsRestMetric, knots: FloatArray, per_knot: int, row_weights: list[MeanRowWeight]
    ) -> None:
        super().__init__(metric)
        self.metric, self.per_knot, self.row_weights = metric, per_knot, row_weights
        self.hint_length = knots.size
        self.apply_hint(knots)
        self.length = len(self.edges) * len(Bins._fields) * (self.edges.shape[1] + 1)

    def apply_hint(self, hint: FloatArray) -> None:
        # Sorted, as a hint that was sent in a narrower format may have lost its order.
        self.knots = np.sort(np.reshape(hint, (len(self.row_weights), -1)), axis=1)
        self.edges = np.stack([make_edges(knots, self.per_knot) for knots in self.knots])

    def compute_from_rows(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> FloatArray:
        tasks = zip(iter_binary_tasks(y, response), self.edges, strict=True)
        return np.concatenate(
            [sums for (truth, score), edges in tasks for sums in bin_rows(score, truth, weight, edges)]
        )

    def value(self, total: FloatArray) -> float:
        return mean_of_defined([float(bounds.likely.sum()) for _, bounds in self._bins_and_bounds(total)])

    def error_bound(self, total: FloatArray) -> float:
        sums = [[values.sum() for values in bounds] for _, bounds in self._bins_and_bounds(total)]
        return mean_of_defined([max(most - likely, likely - least) for least, likely, most in sums])

    def make_hint(self, total: FloatArray) -> FloatArray:
        tasks = zip(self._bins_and_bounds(total), self.edges, self.knots, strict=True)
        return np.concatenate(
            [
                knots
                if np.isnan(bounds.likely).any()
                else move_knots(bins, bounds.most - bounds.least, edges, len(knots))
                for (bins, bounds), edges, knots in tasks
            ]
        )

    def _bins_and_bounds(self, total: FloatArray) -> list[tuple[Bins, Bounds]]:
        of_tasks = [Bins(*sums) for sums in np.reshape(total, (len(self.row_weights), len(Bins._fields), -1))]
        weights = zip(of_tasks, self.row_weights, strict=True)
        return [(bins, self.metric.compute_from_bins(bins, row_weight)) for bins, row_weight in weights]


def iter_binary_tasks(y: FloatArray, response: FloatArray) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield the truth (0 or 1) and the score of every row for each binary task: one class or label against the rest."""
    codes = class_codes(y, response)
    for c, score in enumerate(response.T):
        # The only column of two classes is the probability of class 1.
        truth = codes[:, c] == 1 if codes.ndim == 2 else codes == (c if response.shape[1] > 1 else 1)
        yield truth.astype(score.dtype), score


def mean_of_defined(values: list[float]) -> float:
    """Return the mean of the values that are not nan; nan if there are none."""
    defined = [value for value in values if not np.isnan(value)]
    return divide_or_nan(sum(defined), len(defined))


def divide_or_zero(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return a / b, and 0 where b is 0."""
    return np.divide(a, b, out=np.zeros_like(a), where=b != 0)


def bin_rows(score: FloatArray, truth: FloatArray, weight: FloatArray, edges: FloatArray) -> Bins:
    """Return the sums over rows in each bin: below the first edge, between two edges, and from the last edge on.

    >>> bins = bin_rows(np.array([0.1, 0.4, 0.6]), np.array([0.0, 1.0, 0.0]), np.ones(3), np.array([0.0, 0.5, 1.0]))
    >>> bins.negative, bins.positive_places
    (array([0., 1., 1., 0.]), array([0. , 0.8, 0. , 0. ]))
    """
    width = np.diff(edges)
    at = np.searchsorted(edges, score, side="right")
    # The outermost bins have no width; all of their rows have the same place.
    first, scale = np.append(0.0, edges), np.concatenate([[0.0], divide_or_zero(np.ones_like(width), width), [0.0]])
    place = (np.clip(score, -MAX_SCORE, MAX_SCORE) - first[at]) * scale[at]
    positive, n_bins = weight * truth, len(edges) + 1
    negative = weight - positive
    of_rows = positive, negative, positive * place, negative * place, weight * hash_signs(score)
    return Bins(*(np.bincount(at, values, n_bins) for values in of_rows))


def hash_signs(score: FloatArray) -> FloatArray:
    """Hash each score to +1 or -1; equal scores have equal signs on all machines.

    >>> hash_signs(np.array([0.1, 0.2, 0.1, 0.0, -0.0, 0.3]))
    array([ 1., -1.,  1.,  1.,  1., -1.])
    """
    bits = (np.asarray(score, dtype=SUM) + 0.0).view(np.uint64)  # -0.0 + 0.0 is 0.0
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        bits = (bits ^ (bits >> np.uint64(29))) * np.uint64(factor)
    return np.where(bits >> np.uint64(63), -1.0, 1.0)


def choose_layout(n_tasks: int) -> tuple[int, int]:
    """Choose the number of knots of a task, and the number of bins between two knots.

    >>> choose_layout(1), choose_layout(10), choose_layout(1000)
    ((205, 4), (41, 4), (15, 1))
    """
    numbers = min(MAX_NUMBERS_PER_TASK, MAX_NUMBERS // n_tasks)
    n_bins = max(numbers // len(Bins._fields), MIN_BINS)
    per_knot = min(n_bins // MIN_BINS, 4)
    return (n_bins - 2) // per_knot + 1, per_knot


def make_edges(knots: FloatArray, per_knot: int) -> FloatArray:
    """Return the knots, with edges at equal distances between them.

    >>> make_edges(np.array([0.0, 1.0, 5.0]), 4)
    array([0.  , 0.25, 0.5 , 0.75, 1.  , 2.  , 3.  , 4.  , 5.  ])
    """
    steps = np.diff(knots)[:, None] * (np.arange(per_knot) / per_knot)
    return np.append(knots[:-1, None] + steps, knots[-1])


def make_first_knots(count: int) -> FloatArray:
    """Place knots before any score is known: most of them at probabilities from 1/256 to 255/256.

    >>> make_first_knots(5).round(4)
    array([1.000e-04, 1.630e-02, 5.000e-01, 9.837e-01, 9.999e-01])
    """
    scale = np.linspace(to_octaves(-MAX_SCORE), to_octaves(MAX_SCORE), 1001)
    likely = (np.abs(scale[1:] + scale[:-1] - 2 * to_octaves(0.5)) < 16).astype(SUM)
    return place_knots(scale, likely, likely, count)


def move_knots(bins: Bins, doubt: FloatArray, edges: FloatArray, count: int) -> FloatArray:
    """Place the knots of the next round, given the bins of this one and the doubt about the order in each.

    A bin divided into m keeps 1/m of its doubt, so the total is least if m grows with the square root of the doubt.
    """
    rows = bins.positive / bins.positive.sum() + bins.negative / max(bins.negative.sum(), TINY)
    scale = to_octaves(np.concatenate([[-MAX_SCORE], edges, [MAX_SCORE]]))
    return place_knots(scale, np.sqrt(np.maximum(doubt, 0)), rows, count)


def place_knots(scale: FloatArray, need: FloatArray, rows: FloatArray, count: int) -> FloatArray:
    """Place knots in bins, from scale[i] to scale[i + 1], by their need and by the rows in and around them."""
    quantile = np.cumsum(rows) / rows.sum()
    low, high = scale[np.searchsorted(quantile, 0.005)], scale[1:][np.searchsorted(quantile, 0.995)]
    beyond = np.maximum(scale - high, 0) - np.maximum(low - scale, 0)
    # Bins are wider far from the rows: it is unknown how far the next round moves them.
    around = np.diff(np.sign(beyond) * np.log1p(np.abs(beyond) / max((high - low) / 50, 1e-12)))
    density = np.zeros_like(rows)
    for part, share in ((need, DOUBT_SHARE), (rows, ROWS_SHARE), (around, MARGIN_SHARE)):
        density += share * part / max(part.sum(), TINY)
    below = np.append(0.0, np.cumsum(density))
    return from_octaves(np.interp((np.arange(count) + 0.5) / count * below[-1], below, scale))


def to_octaves(x: FloatArray | float) -> FloatArray:
    """Map scores to a logarithmic scale: log2 of the distance to 0 or 1, whichever is nearer.

    >>> to_octaves(np.array([-1.0, 0.0, 0.25, 0.5, 0.75, 1.0, 2.0]))
    array([-64.,   0.,  62.,  63.,  64., 126., 190.])
    """
    x = np.asarray(x, dtype=SUM)
    near = np.where(x > 0.5, 1 - x, x)
    steps = np.sign(near) * (np.log2(np.maximum(np.abs(near), 2.0**-64)) + 64)
    return np.asarray(np.where(x > 0.5, 126 - steps, steps))


def from_octaves(scale: FloatArray) -> FloatArray:
    """Map the logarithmic scale back to scores: the inverse of `to_octaves`.

    >>> from_octaves(to_octaves(np.array([-3.0, 0.0, 0.2, 0.5, 1.0, 7.0])))
    array([-3. ,  0. ,  0.2,  0.5,  1. ,  7. ])
    """
    steps = np.where(scale > 63, 126 - scale, scale)
    near = np.sign(steps) * np.exp2(np.abs(steps) - 64)
    return np.asarray(np.where(scale > 63, 1 - near, near))
