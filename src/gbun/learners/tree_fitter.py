"""Trees at work: what is kept from round to round of a training, and the tree of each round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gbun.arrays import to_host
from gbun.collectives import Collective
from gbun.data.features import Features
from gbun.dtypes import FloatArray, IntArray
from gbun.kernels.derivatives import sum_along
from gbun.kernels.interface import NormalEquations
from gbun.kernels.sampling import mix_bits, row_keys
from gbun.learners.base import FittedRound, LearnerRows
from gbun.learners.tree_partition import TreePartition
from gbun.trees.binned_rows import BinnedRows, allocate_binned_rows, bin_rows
from gbun.trees.binning import SAMPLED_ROWS, fit_bins
from gbun.trees.bundling import HistogramColumns, find_bundles
from gbun.trees.candidates import Candidates, ColumnGuide
from gbun.trees.categories import (
    NO_BUCKETS,
    NO_CATEGORIES,
    rank_categories,
)
from gbun.trees.grower import Grower
from gbun.trees.leaf_sums import leaf_sums
from gbun.trees.projections import Projections, bin_projections, column_statistics, draw_projections, fill_columns
from gbun.trees.screening import screen_columns
from gbun.trees.tree import to_tree

if TYPE_CHECKING:
    from gbun.learners.tree import TreeLearner

ROWS_AT_A_TIME = 2**14


class TreeFitter:
    """Trees at work: bins of the columns, which are made once, and the trees of one round after the other."""

    def __init__(self, learner: TreeLearner, rows: LearnerRows, collective: Collective) -> None:
        self.learner, self.rows, self.collective = learner, rows, collective
        features, threads, reduce = rows.features, rows.threads, collective.sum
        X = np.zeros((features.n_rows, 0), np.float32) if features.raw is None else np.asarray(features.raw)
        weight = np.asarray(to_host(rows.weight))
        keys = None
        if rows.totals.n_rows > SAMPLED_ROWS and X.shape[1]:
            keys = row_keys(Features(len(X), X), np.asarray(to_host(rows.y)))
        bins = fit_bins(X, reduce, threads, weight, keys)
        columns = find_bundles(X, bins, reduce, threads, weight, keys)
        self.categories, buckets = NO_CATEGORIES, NO_BUCKETS
        if learner.n_categories:
            assert features.categories is not None
            buckets = features.categories
            self.categories = rank_categories(buckets, reduce, threads, weight)
        has_rows, n_pages = len(columns) <= learner.n_candidates, len(self.categories.pages)
        binned = bin_rows(X, columns, threads, self.categories, buckets, has_rows)
        self.candidates = Candidates(binned, columns, learner.n_candidates, learner.seed, n_pages)
        self.statistics = column_statistics(bins)
        p = learner.n_projections if len(self.statistics.usable) else 0
        self.filled = fill_columns(X, self.statistics, threads) if p else np.zeros((0, len(X)), np.float32)
        self.projected = allocate_binned_rows(len(X), p)
        C = rows.current_scores().shape[1]
        self.one_g, self.one_h = (np.empty(len(X) if C > 1 else 0, dtype=np.float32) for _ in range(2))
        self.g, self.h = (np.empty((len(X), C), dtype=np.float32) for _ in range(2))
        guide = self.candidates.guide
        if guide is not None:
            self._screen(guide, binned, columns)
        by_row, by_column = self.candidates.rows.by_row, self.candidates.rows.by_column
        self.grower = Grower(
            by_row, by_column, self.candidates.is_bundle, threads, learner.n_leaves, learner.min_rows, p, n_pages
        )

    def restart(self) -> None:
        if self.candidates.guide is not None:
            self.candidates.guide.restart()

    def take_rounds(self, partitions: Sequence[TreePartition]) -> None:
        """Learn which columns to look at from trees that the model has already."""
        for partition in partitions:
            self.candidates.add(partition.tree)

    def fit_round(self, t: int) -> FittedRound[TreePartition]:
        """Grow the tree of round t on the derivatives at the current scores."""
        threads, reduce = self.rows.threads, self.collective.sum
        g, h, C = self.g, self.h, self.g.shape[1]
        one_g, one_h = self._fill_derivatives(t)
        splits = self.candidates.draw(threads)
        projections, projected = self._draw(t)
        learner, unit, relative = self.learner, self.rows.totals.weight_unit, self.learner.reg_form == "relative"
        penalty = learner.reg_lambda if relative else learner.reg_lambda / unit
        grown = self.grower.grow(one_g, one_h, penalty, reduce, self.collective.size, *projected, relative=relative)
        tree = to_tree(grown, *splits, projections)
        self.candidates.add(tree)
        partition = TreePartition(tree, self.statistics.fill, self.categories)
        if C == 1:
            G, H = grown.sum_g[:, None], grown.sum_h[:, None]
        else:
            G, H = (leaf_sums(values, grown.leaf_of_row, grown.n_leaves, threads, reduce) for values in (g, h))
        G, H = G * unit, H * unit
        A = H[:, 0] if C == 1 else np.ascontiguousarray(H.T)
        total = H.sum(axis=0)
        equations = NormalEquations(A, G, np.stack([total, total]) if C > 1 else np.repeat(total, 2), diagonal=True)
        return FittedRound(partition, grown.leaf_of_row, equations)

    def _fill_derivatives(self, t: int) -> tuple[FloatArray, FloatArray]:
        """Compute g and h at the current scores; return one number a row of each to split on.

        They are the gradient along a direction d of all scores, and its curvature d'Hd.
        """
        g, h, C = self.g, self.h, self.g.shape[1]
        self.rows.current_scores()
        d = choose_direction(self.learner.seed, t, C)
        one_g, one_h = (g[:, 0], h[:, 0]) if C == 1 else (self.one_g, self.one_h)

        def fill(at: slice) -> None:
            self.rows.fill_leaf_derivatives(at, g[at], h[at])
            if C > 1:
                sum_along(g[at], h[at], d, one_g[at], one_h[at])

        blocks = [slice(i, min(i + ROWS_AT_A_TIME, len(g))) for i in range(0, len(g), ROWS_AT_A_TIME)]
        self.rows.threads.run(fill, blocks)
        return one_g, one_h

    def _screen(self, guide: ColumnGuide, binned: BinnedRows, columns: HistogramColumns) -> None:
        """Find the gains of single splits at the scores of the start."""
        one_g, one_h = self._fill_derivatives(0)
        learner, threads, reduce = self.learner, self.rows.threads, self.collective.sum
        relative, unit = learner.reg_form == "relative", self.rows.totals.weight_unit
        gains, bins = screen_columns(
            binned.by_column[: len(columns)], columns.is_bundle, one_g, one_h,
            learner.reg_lambda if relative else learner.reg_lambda / unit, learner.min_rows,
            threads, reduce, learner.n_leaves if relative else None,
        )  # fmt: skip
        gaining = np.flatnonzero(gains)
        guide.start_from(columns.raw_splits()[0][gaining, bins[gaining]], gains[gaining])

    def _draw(self, t: int) -> tuple[Projections | None, tuple[IntArray, ...]]:
        """Draw the projections of tree t and bin the rows by them."""
        if not len(self.projected.by_column):
            return None, ()
        guide = self.candidates.guide
        preferred = None if guide is None else guide.best_raw_columns()
        projections = draw_projections(self.learner.seed, t, len(self.projected.by_column), self.statistics, preferred)
        by_row, by_column = self.projected.by_row, self.projected.by_column
        bin_projections(self.filled, projections, self.rows.threads, by_row, by_column)
        return projections, (by_row, by_column)


def choose_direction(seed: int, t: int, n_scores: int) -> FloatArray:
    """Draw the direction along which the gradients of several scores are summed: balanced signs, others each round.

    Gradients of classes add up to zero, so signs that are all the same would find no split.

    >>> float(choose_direction(0, 0, 4).sum())
    0.0
    """
    if n_scores == 1:
        return np.ones(1, dtype=np.float32)
    key = mix_bits(np.array([seed], dtype=np.uint64)) + np.uint64(t)
    order = np.argsort(mix_bits(mix_bits(key) + np.arange(n_scores, dtype=np.uint64)), kind="stable")
    return np.asarray(1.0 - 2.0 * (order % 2) - n_scores % 2 / n_scores, dtype=np.float32)  # their mean is 0
