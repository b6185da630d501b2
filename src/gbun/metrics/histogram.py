"""Metrics of order from histograms of the scores, so that workers need not bring their rows to one place.

Each yes-or-no question has bins of its own, and of every bin five sums over rows are kept. Which rows are in which bin
says nearly all about the order; within a bin it is estimated, and how wrong an estimate can be is known.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from gbun.collectives import Collective
from gbun.dtypes import SUM, FloatArray
from gbun.metrics.base import RankingMetric, SumMetric, Whole, ratio, weighted_rows
from gbun.metrics.classification import class_codes

# Numbers in a message: of one question, and of all of them as long as each has LEAST_BINS.
MOST_OF_ONE, MOST = 4096, 8192
LEAST_BINS = 16

# Scores beyond this are one bin.
FAR = 2.0**64
# Shares of the bins that go where order is in doubt, where rows are, and around them, where rows may go next.
IN_DOUBT, WITH_ROWS, AROUND = 0.6, 0.05, 0.35


class Bins(NamedTuple):
    """Sums over the rows of each bin of a question, lowest scores first; a row's place in its bin is from 0 to 1."""

    positive: FloatArray  # weight
    negative: FloatArray
    positive_places: FloatArray  # weight x place
    negative_places: FloatArray
    signs: FloatArray  # weight x sign, where sign is +1 or -1 by a hash of the score: equal scores do not cancel


class Limits(NamedTuple):
    """What each bin adds to a metric: at least, likely, at most."""

    least: FloatArray
    likely: FloatArray
    most: FloatArray

    @property
    def defined(self) -> bool:
        return not np.isnan(self.likely).any()


class Grain(NamedTuple):
    """The weight of the row that a unit of weight is likely in, sum w^2 / sum w: of positive rows, and of all rows."""

    positive: float
    all: float


class BinnedMetric(RankingMetric):
    """A metric of order that one worker tells from its rows, and several from histograms."""

    @abstractmethod
    def of_bins(self, bins: Bins, grain: Grain) -> Limits:
        """What each bin of a question's histogram adds to the metric; nan where it is undefined."""

    def among(self, y: FloatArray, weight: FloatArray, n_outputs: int, collective: Collective) -> SumMetric:
        return Whole(self) if collective.size == 1 else self.histograms(y, weight, n_outputs, collective)

    def histograms(self, y: FloatArray, weight: FloatArray, n_outputs: int, collective: Collective) -> Histograms:
        """The form for several workers, whose error has a bound."""
        y, response, weight = weighted_rows(y, np.zeros((len(y), n_outputs)), weight)
        of_rows = np.stack([weight**2, weight])
        of_whom = [of_rows.sum(axis=1), *(of_rows @ truth for truth, _ in questions(y, response))]
        grains = over(*collective.sum(np.concatenate(of_whom)).reshape(-1, 2).T)
        n_knots, per_knot = layout(n_outputs)
        # Computed once: machines need not agree on the last bit of a logarithm, but on edges they must.
        knots = collective.broadcast(np.tile(first_knots(n_knots), n_outputs))
        return Histograms(self, knots, per_knot, [Grain(float(own), float(grains[0])) for own in grains[1:]])


class Histograms(SumMetric):
    """A metric of order from histograms; with several questions, its plain average over them.

    Rows of different bins are ordered for certain. Rows of one bin may be in any order, so a value has a bound on its
    error, `error_bound`; where scores are spread evenly in a bin, as they nearly are in a narrow one, the error is
    hundreds of times smaller. Bins are narrow where they need to be: a hint puts the next round's edges where order
    was in doubt in the last one.

    A message has at most 4096 numbers with one question and 8192 with several; with more than 102 it has 80 of each,
    as fewer than 16 bins tell too little.
    """

    def __init__(self, metric: BinnedMetric, knots: FloatArray, per_knot: int, grains: list[Grain]) -> None:
        super().__init__(metric)
        self.metric, self.per_knot, self.grains = metric, per_knot, grains
        self.hint_length = knots.size
        self.adapt(knots)
        self.length = len(self.edges) * len(Bins._fields) * (self.edges.shape[1] + 1)

    def adapt(self, hint: FloatArray) -> None:
        # Sorted, as a hint that was written narrower on its way may have lost its order.
        self.knots = np.sort(np.reshape(hint, (len(self.grains), -1)), axis=1)
        self.edges = np.stack([edges_of(knots, self.per_knot) for knots in self.knots])

    def of_rows(self, y: FloatArray, response: FloatArray, weight: FloatArray) -> FloatArray:
        asked = zip(questions(y, response), self.edges, strict=True)
        return np.concatenate([part for (truth, score), edges in asked for part in binned(score, truth, weight, edges)])

    def value(self, total: FloatArray) -> float:
        return mean_of_defined([float(limits.likely.sum()) for limits in self._limits(total)])

    def error_bound(self, total: FloatArray) -> float:
        each = [(limits.likely.sum(), limits.least.sum(), limits.most.sum()) for limits in self._limits(total)]
        return mean_of_defined([max(most - likely, likely - least) for likely, least, most in each])

    def hint(self, total: FloatArray) -> FloatArray:
        seen = zip(self._bins(total), self._limits(total), self.edges, self.knots, strict=True)
        return np.concatenate(
            [
                moved_knots(bins, limits.most - limits.least, edges, len(knots)) if limits.defined else knots
                for bins, limits, edges, knots in seen
            ]
        )

    def _bins(self, total: FloatArray) -> list[Bins]:
        return [Bins(*sums) for sums in np.reshape(total, (len(self.grains), len(Bins._fields), -1))]

    def _limits(self, total: FloatArray) -> list[Limits]:
        bins = zip(self._bins(total), self.grains, strict=True)
        return [self.metric.of_bins(each, grain) for each, grain in bins]


def questions(y: FloatArray, response: FloatArray) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Each yes-or-no question the response answers: who is positive (0 or 1), and the score of every row.

    >>> [truth for truth, score in questions(np.array([0.0, 2.0]), np.zeros((2, 3)))]
    [array([1., 0.]), array([0., 0.]), array([0., 1.])]
    """
    codes = class_codes(y, response)
    for c, score in enumerate(response.T):
        if codes.ndim == 2:
            yield (codes[:, c] == 1).astype(score.dtype), score
        else:
            # The one column of two classes is about class 1.
            yield (codes == (c if response.shape[1] > 1 else 1)).astype(score.dtype), score


def mean_of_defined(values: list[float]) -> float:
    """The plain average of those that are not nan; nan when none is left.

    >>> mean_of_defined([1.0, float("nan"), 2.0])
    1.5
    """
    defined = [value for value in values if not np.isnan(value)]
    return ratio(sum(defined), len(defined))


def over(a: FloatArray, b: FloatArray) -> FloatArray:
    """a / b, and 0 where b is 0.

    >>> over(np.array([1.0, 0.0]), np.array([2.0, 0.0]))
    array([0.5, 0. ])
    """
    return np.divide(a, b, out=np.zeros_like(a), where=b != 0)


def binned(score: FloatArray, truth: FloatArray, weight: FloatArray, edges: FloatArray) -> Bins:
    """The sums of rows in each bin: below the first edge, between two, from the last on.

    >>> bins = binned(np.array([0.1, 0.4, 0.6]), np.array([0.0, 1.0, 0.0]), np.ones(3), np.array([0.0, 0.5, 1.0]))
    >>> bins.negative, bins.positive_places
    (array([0., 1., 1., 0.]), array([0. , 0.8, 0. , 0. ]))
    """
    width = np.diff(edges)
    at = np.searchsorted(edges, score, side="right")
    # The outermost bins have no width, and all of their rows the same place.
    first, scale = np.append(0.0, edges), np.concatenate([[0.0], over(np.ones_like(width), width), [0.0]])
    place = (np.clip(score, -FAR, FAR) - first[at]) * scale[at]
    positive, n_bins = weight * truth, len(edges) + 1
    negative = weight - positive
    of_rows = positive, negative, positive * place, negative * place, weight * signs(score)
    return Bins(*(np.bincount(at, values, n_bins) for values in of_rows))


def signs(score: FloatArray) -> FloatArray:
    """+1 or -1 for each score, as if by lot, and the same for equal scores on all machines.

    >>> signs(np.array([0.1, 0.2, 0.1, 0.0, -0.0, 0.3]))
    array([ 1., -1.,  1.,  1.,  1., -1.])
    """
    bits = (np.asarray(score, dtype=SUM) + 0.0).view(np.uint64)  # -0.0 + 0.0 is 0.0
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        bits = (bits ^ (bits >> np.uint64(29))) * np.uint64(factor)
    return np.where(bits >> np.uint64(63), -1.0, 1.0)


def layout(n_questions: int) -> tuple[int, int]:
    """How many knots a question has, and in how many bins they part what is between two of them.

    >>> layout(1), layout(10), layout(1000)
    ((205, 4), (41, 4), (15, 1))
    """
    numbers = min(MOST_OF_ONE, MOST // n_questions)
    n_bins = max(numbers // len(Bins._fields), LEAST_BINS)
    per_knot = min(n_bins // LEAST_BINS, 4)
    return (n_bins - 2) // per_knot + 1, per_knot


def edges_of(knots: FloatArray, per_knot: int) -> FloatArray:
    """The knots, and edges at equal distances between them.

    >>> edges_of(np.array([0.0, 1.0, 5.0]), 4)
    array([0.  , 0.25, 0.5 , 0.75, 1.  , 2.  , 3.  , 4.  , 5.  ])
    """
    steps = np.diff(knots)[:, None] * (np.arange(per_knot) / per_knot)
    return np.append(knots[:-1, None] + steps, knots[-1])


def first_knots(count: int) -> FloatArray:
    """Knots before any score has been seen: probabilities from 1/256 to 255/256 are likely, and all is possible.

    >>> first_knots(5).round(4)
    array([1.000e-04, 1.630e-02, 5.000e-01, 9.837e-01, 9.999e-01])
    """
    scale = np.linspace(octaves(-FAR), octaves(FAR), 1001)
    likely = (np.abs(scale[1:] + scale[:-1] - 2 * octaves(0.5)) < 16).astype(SUM)
    return knots_at(scale, likely, likely, count)


def moved_knots(bins: Bins, doubt: FloatArray, edges: FloatArray, count: int) -> FloatArray:
    """Knots for the next round, from the bins of this one and how much order is in doubt in each.

    Parted in m, a bin leaves 1/m of its doubt; so the least is left in all when m grows with the root of it.
    """
    rows = bins.positive / bins.positive.sum() + bins.negative / max(bins.negative.sum(), np.finfo(SUM).tiny)
    scale = octaves(np.concatenate([[-FAR], edges, [FAR]]))
    return knots_at(scale, np.sqrt(np.maximum(doubt, 0)), rows, count)


def knots_at(scale: FloatArray, need: FloatArray, rows: FloatArray, count: int) -> FloatArray:
    """Knots that part bins, from scale[i] to scale[i + 1], as they need it and as rows are in and around them."""
    middle = np.cumsum(rows) / rows.sum()
    low, high = scale[np.searchsorted(middle, 0.005)], scale[1:][np.searchsorted(middle, 0.995)]
    beyond = np.maximum(scale - high, 0) - np.maximum(low - scale, 0)
    # The further from the rows, the wider: nobody knows how far the next round moves them.
    around = np.diff(np.sign(beyond) * np.log1p(np.abs(beyond) / max((high - low) / 50, 1e-12)))
    density = np.zeros_like(rows)
    for each, share in ((need, IN_DOUBT), (rows, WITH_ROWS), (around, AROUND)):
        density += share * each / max(each.sum(), np.finfo(SUM).tiny)
    below = np.append(0.0, np.cumsum(density))
    return from_octaves(np.interp((np.arange(count) + 0.5) / count * below[-1], below, scale))


def octaves(x: FloatArray | float) -> FloatArray:
    """Where a score is on a scale on which steps are of like size: log2 of the distance from 0 or 1, the nearer one.

    >>> octaves(np.array([-1.0, 0.0, 0.25, 0.5, 0.75, 1.0, 2.0]))
    array([-64.,   0.,  62.,  63.,  64., 126., 190.])
    """
    x = np.asarray(x, dtype=SUM)
    near = np.where(x > 0.5, 1 - x, x)
    steps = np.sign(near) * (np.log2(np.maximum(np.abs(near), 2.0**-64)) + 64)
    return np.asarray(np.where(x > 0.5, 126 - steps, steps))


def from_octaves(scale: FloatArray) -> FloatArray:
    """The scores at places of the scale.

    >>> from_octaves(octaves(np.array([-3.0, 0.0, 0.2, 0.5, 1.0, 7.0])))
    array([-3. ,  0. ,  0.2,  0.5,  1. ,  7. ])
    """
    steps = np.where(scale > 63, 126 - scale, scale)
    near = np.sign(steps) * np.exp2(np.abs(steps) - 64)
    return np.asarray(np.where(scale > 63, 1 - near, near))
