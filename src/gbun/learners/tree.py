"""Trees of screened projections: splits of columns, and of random projections of two columns, chosen by sums.

A tree is a hard network of several layers: each inner node compares a column, or a random combination of two, with a
threshold. Unlike the weights of a softmax network its gates are chosen: of all that are drawn, the one with the largest
gain is kept. Gains come from histograms of quantised derivatives, so all that decides is a sum of integers: any number
of threads and workers grows the same tree, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any

import numpy as np

from gbun.arrays import to_host
from gbun.checks import check_array, check_names, integer, number, one_of, record
from gbun.collectives import Collective
from gbun.data.features import N_BUCKETS, Features
from gbun.dtypes import FloatArray, IntArray
from gbun.kernels.derivatives import sum_along
from gbun.kernels.interface import NormalEquations
from gbun.kernels.sampling import mix_bits, row_keys
from gbun.learners.base import Arrays, FittedRound, Learner, LearnerRows, Partition, Step, StepRun, register_learner
from gbun.trees.binned_rows import BinnedRows, allocate_binned_rows, bin_rows
from gbun.trees.binning import SAMPLED_ROWS, fit_bins
from gbun.trees.bundling import HistogramColumns, find_bundles
from gbun.trees.candidates import Candidates, ColumnGuide
from gbun.trees.categories import (
    CATEGORY_ARRAYS,
    COLUMNS_AT_A_TIME,
    MAX_CATEGORIES,
    MOST_PAGES,
    NO_BUCKETS,
    NO_CATEGORIES,
    Categories,
    pack_categories,
    rank_categories,
    unpack_categories,
)
from gbun.trees.forest import Forest, add_trees, find_leaves, pack_forest
from gbun.trees.grower import Grower
from gbun.trees.leaf_sums import leaf_sums
from gbun.trees.projections import Projections, bin_projections, column_statistics, draw_projections, fill_columns
from gbun.trees.screening import screen_columns
from gbun.trees.tree import Tree, to_tree

SEED = integer(0, 2**63 - 1)
FIELDS = {
    "seed": SEED,
    "n_columns": integer(1, 2**31 - 1),
    "n_leaves": integer(2, 4096),
    "min_rows": integer(1, 2**53),
    "n_projections": integer(0, 256),
    "n_candidates": integer(2, 2**53),
    "reg_lambda": number("of at least 0", lambda x: x >= 0.0),
    "reg_form": one_of("relative", "absolute"),
}
COUNT = integer(0, 2**31 - 1)
PARAMETERS = record(FIELDS)
PARAMETERS_WITH_CATEGORIES = record({**FIELDS, "n_columns": COUNT, "n_categories": integer(1, MAX_CATEGORIES)})
NODES = {  # the arrays of a tree's inner nodes: dtype, and numbers of each node
    "column": ("int32", ()),
    "other": ("int32", ()),
    "weight": ("float32", (2,)),
    "offset": ("float32", ()),
    "threshold": ("float32", ()),
    "missing_right": ("bool", ()),
    "left": ("int32", ()),
    "right": ("int32", ()),
    "gain": ("float32", ()),
}
N_CANDIDATES = 64  # where a model file does not say it
ROWS_AT_A_TIME = 2**14
HISTOGRAM_BYTES = 8 * 64  # of a column of a leaf
COLUMN_BYTES = 40 * 64  # cut points of a column, rows and mean of each bin, and what its splits are called in a tree


@dataclass(frozen=True)
class TreePartition(Partition):
    """A tree; `fill` has what stands for a missing value of each column in a projection, (m,).

    `categories` says how the columns of categories are binned.
    """

    tree: Tree
    fill: FloatArray
    categories: Categories = NO_CATEGORIES
    n_trees = 1

    @property
    def n_outputs(self) -> int:
        return self.tree.n_leaves

    def leaves(self, features: Features) -> IntArray:
        X, buckets = self._columns_of(features), self._buckets_of(features)
        return find_leaves(self.tree, X, self.fill, self.categories, buckets)[:, None]

    @classmethod
    def pack_steps(cls, steps: Sequence[Step]) -> list[tuple[TreePartition, Forest, FloatArray]]:
        """Trees that were grown on the same rows share what stands for missing values, and the bins of categories."""
        pairs = [(step.partition, step.head) for step in steps if isinstance(step.partition, TreePartition)]
        packed = []
        for _, alike in groupby(pairs, key=lambda pair: (id(pair[0].fill), id(pair[0].categories))):
            partitions, heads = zip(*alike, strict=True)
            forest = pack_forest([partition.tree for partition in partitions])
            packed.append((partitions[0], forest, np.concatenate(heads)))
        return packed

    @classmethod
    def add_steps(cls, steps: StepRun, features: Features, scores: FloatArray) -> bool:
        for first, forest, heads in steps.packed:
            X, buckets = first._columns_of(features), first._buckets_of(features)
            add_trees(forest, X, first.fill, heads, scores, first.categories, buckets)
        return True

    def _buckets_of(self, features: Features) -> IntArray:
        wanted, buckets = len(self.categories.ranks), features.categories
        if not wanted:
            return NO_BUCKETS
        if buckets is None or buckets.shape[1] != wanted:
            found = 0 if buckets is None else buckets.shape[1]
            raise ValueError(f"trees of this model split {wanted} columns of categories, X has {found}")
        return np.ascontiguousarray(buckets)

    def _columns_of(self, features: Features) -> FloatArray:
        if not len(self.fill):
            return np.zeros((features.n_rows, 0), dtype=np.float32)
        if features.raw is None or features.raw.shape[1] != len(self.fill):
            shape = "no dense columns" if features.raw is None else f"{features.raw.shape[1]} dense columns"
            raise ValueError(f"trees of this model split {len(self.fill)} dense columns, X has {shape}")
        X = np.asarray(features.raw)  # kernels are compiled for two dtypes and one layout
        return np.ascontiguousarray(X, dtype=X.dtype if X.dtype in (np.float32, np.float64) else np.float32)


@register_learner
@dataclass(frozen=True)
class TreeLearner(Learner[TreePartition]):
    """Grows a tree a round.

    Parameters
    ----------
    seed : int
        Of projections, and of the directions in which the gradients of several scores are summed.
    n_columns : int
        Dense columns of X.
    n_leaves, min_rows : int
        The most leaves of a tree, and the least rows of a leaf.
    n_projections : int
        Random projections of two columns that are drawn for each tree.
    reg_lambda, reg_form : float, str
        The penalty of leaf values, as in `Parameters`; "relative" multiplies it with sum h / n_leaves.
    n_candidates : int
        The most histogram columns that a tree looks at, beside those of categories.
    n_categories : int
        Columns of categories of X.
    """

    seed: int
    n_columns: int
    n_leaves: int = 31
    min_rows: int = 5
    n_projections: int = 24
    reg_lambda: float = 1e-2
    reg_form: str = "relative"
    n_candidates: int = N_CANDIDATES
    n_categories: int = 0
    kind = "tree"
    diagonal = True
    splits_columns = True
    uses_blas = False

    @property
    def n_outputs(self) -> int:
        return self.n_leaves

    @property
    def row_bytes(self) -> int:
        return 4

    def kept_bytes(self, n_rows: int, n_scores: int) -> int:
        m, p, c = self.n_columns, self.n_projections, min(self.n_columns, self.n_candidates)
        pages = self.n_categories * MOST_PAGES  # at most: data decides
        # bins by row and by column, or those of a sample; columns of projections, items and spare ones, leaves; g and h
        bins = (2 * m if c == m else m + 2 * c) + 2 * p + (2 if c == m else 3) * pages
        of_row = bins + 16 + (4 * m if p else 0) + 20 + 8 * n_scores + (8 if n_scores > 1 else 0)
        counted = (3 * 8 * min(self.n_categories, COLUMNS_AT_A_TIME) + 2 * self.n_categories) * N_BUCKETS
        histograms = 3 * HISTOGRAM_BYTES * self.n_leaves * (c + p + pages)
        return of_row * n_rows + histograms + COLUMN_BYTES * m + counted

    def begin(self, rows: LearnerRows, collective: Collective) -> TreeFitter:
        return TreeFitter(self, rows, collective)

    def parameters(self) -> dict[str, Any]:
        parameters = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.n_candidates == N_CANDIDATES:  # as files were before there was another number
            del parameters["n_candidates"]
        if not self.n_categories:  # as before there were any
            del parameters["n_categories"]
        return parameters

    @classmethod
    def from_parameters(cls, parameters: Any, n_columns: int | None) -> TreeLearner:
        stated = {"n_candidates": N_CANDIDATES, **parameters} if isinstance(parameters, dict) else parameters
        categorical = isinstance(stated, dict) and "n_categories" in stated
        check = PARAMETERS_WITH_CATEGORIES if categorical else PARAMETERS
        found = check("header.learner.parameters", stated)
        if n_columns is not None and categorical:
            raise ValueError(
                "header.learner.parameters.n_categories must not be there, as the schema has no categories"
            )
        if n_columns is not None and found["n_columns"] != n_columns:
            raise ValueError(
                f"header.learner.parameters.n_columns must be the schema's ({n_columns}), got {found['n_columns']}"
            )
        return cls(**found)

    def pack(self, partitions: Sequence[TreePartition]) -> Arrays:
        trees = [partition.tree for partition in partitions]
        arrays: dict[str, Any] = {
            name: np.concatenate([np.zeros((0, *shape), dtype), *(getattr(tree, name) for tree in trees)])
            for name, (dtype, shape) in NODES.items()
        }
        arrays["n_leaves"] = np.array([tree.n_leaves for tree in trees], dtype=np.int64)
        arrays["fill"] = _pack_fills([partition.fill for partition in partitions], self.n_columns)
        if self.n_categories:
            masks = [np.zeros(tree.n_leaves - 1, np.uint64) if tree.mask is None else tree.mask for tree in trees]
            arrays["mask"] = np.concatenate([np.zeros(0, np.uint64), *masks])
            arrays |= pack_categories([partition.categories for partition in partitions])
        return arrays

    def unpack(self, arrays: Arrays, rounds: Sequence[int]) -> list[TreePartition]:
        of_categories = ["mask", *CATEGORY_ARRAYS] if self.n_categories else []
        check_names(arrays, [*NODES, "n_leaves", "fill", *of_categories])
        n_leaves = check_array("n_leaves", arrays["n_leaves"], "int64", (len(rounds),))
        if len(n_leaves) and not 1 <= n_leaves.min() <= n_leaves.max() <= self.n_leaves:
            raise ValueError(f"n_leaves must be from 1 to {self.n_leaves}, got {n_leaves.min()} to {n_leaves.max()}")
        n_nodes = int((n_leaves - 1).sum())
        nodes = {name: _check_nodes(name, arrays[name], n_nodes) for name in NODES}
        fills = _unpack_fills(arrays["fill"], self.n_columns, len(rounds))
        of_tree, masks = [NO_CATEGORIES] * len(rounds), None
        if self.n_categories:
            of_tree = unpack_categories(arrays, self.n_categories, len(rounds))
            masks = check_array("mask", arrays["mask"], "uint64", (n_nodes,))
        ends = np.cumsum([0, *(n_leaves - 1)]).tolist()
        partitions = []
        for i, n in enumerate(n_leaves.tolist()):
            own = slice(ends[i], ends[i + 1])
            mask = masks[own].copy() if masks is not None and masks[own].any() else None
            own_nodes = {name: np.ascontiguousarray(array[own]) for name, array in nodes.items()}
            tree = Tree(**own_nodes, n_leaves=n, mask=mask)
            tree.check(self.n_columns, len(of_tree[i].pages))
            partitions.append(TreePartition(tree, fills[i], of_tree[i]))
        return partitions


def _pack_fills(fills: Sequence[FloatArray], n_columns: int) -> FloatArray:
    """Return what stands for missing values, (m,), or (T, m) where trees were grown on different rows."""
    first = fills[0] if fills else np.zeros(n_columns, dtype=np.float32)
    return first if all(np.array_equal(fill, first) for fill in fills) else np.stack(fills)


def _unpack_fills(array: Any, n_columns: int, n_trees: int) -> list[FloatArray]:
    """Return what `_pack_fills` wrote for each tree; neighbours that are the same share it."""
    if array.ndim < 2:
        return [check_array("fill", array, "float32", (n_columns,))] * n_trees
    fills = list(check_array("fill", array, "float32", (n_trees, n_columns)))
    for t in range(1, n_trees):
        if np.array_equal(fills[t], fills[t - 1]):
            fills[t] = fills[t - 1]
    return fills


def _check_nodes(name: str, array: Any, n_nodes: int) -> Any:
    """Return an array of nodes once it can be one; a threshold is infinite where only missing values go right."""
    dtype, shape = NODES[name]
    finite = np.where(np.isinf(array), 0, array) if name == "threshold" and array.dtype.kind == "f" else array
    check_array(name, finite, dtype, (n_nodes, *shape))
    return array


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
        learner, relative = self.learner, self.learner.reg_form == "relative"
        grown = self.grower.grow(
            one_g, one_h, learner.reg_lambda, reduce, self.collective.size, *projected, relative=relative
        )
        tree = to_tree(grown, *splits, projections)
        self.candidates.add(tree)
        partition = TreePartition(tree, self.statistics.fill, self.categories)
        if C == 1:
            G, H = grown.sum_g[:, None], grown.sum_h[:, None]
        else:
            G, H = (leaf_sums(values, grown.leaf_of_row, grown.n_leaves, threads, reduce) for values in (g, h))
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
        n_leaves = learner.n_leaves if learner.reg_form == "relative" else None
        gains, bins = screen_columns(
            binned.by_column[: len(columns)], columns.is_bundle, one_g, one_h, learner.reg_lambda, learner.min_rows,
            threads, reduce, n_leaves,
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
