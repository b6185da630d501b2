"""Trees of screened projections: splits of columns, and of random projections of two columns, chosen by sums.

A tree is a hard network of several layers: each inner node compares a column, or a random combination of two, with a
threshold. Unlike the weights of a softmax network its gates are chosen: of all that are drawn, the one with the largest
gain is kept. Gains come from histograms of quantised derivatives, so all that decides is a sum of integers: any number
of threads and workers grows the same tree, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from gbun.checks import check_array, check_names, integer, number, one_of, record
from gbun.collectives import Collective
from gbun.data.features import N_BUCKETS
from gbun.dtypes import FloatArray
from gbun.learners.base import Arrays, Learner, LearnerRows, register_learner
from gbun.learners.tree_fitter import TreeFitter
from gbun.learners.tree_partition import TreePartition
from gbun.trees.categories import (
    CATEGORY_ARRAYS,
    COLUMNS_AT_A_TIME,
    MAX_CATEGORIES,
    MOST_PAGES,
    NO_CATEGORIES,
    pack_categories,
    unpack_categories,
)
from gbun.trees.tree import Tree

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
HISTOGRAM_BYTES = 8 * 64  # of a column of a leaf
COLUMN_BYTES = 40 * 64  # cut points of a column, rows and mean of each bin, and what its splits are called in a tree


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
