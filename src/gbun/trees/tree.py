"""A tree in terms of raw columns, as a model stores it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gbun.dtypes import FloatArray, IntArray
from gbun.trees.compiled import kernel
from gbun.trees.grower import GrownTree
from gbun.trees.projections import Projections

DTYPES = {
    "column": np.int32, "other": np.int32, "weight": np.float32, "offset": np.float32, "threshold": np.float32,
    "missing_right": np.bool_, "left": np.int32, "right": np.int32, "gain": np.float32,
}  # fmt: skip

ALL_BINS = np.uint64(2**64 - 1)
NO_COLUMNS, NO_NUMBERS = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32)
NO_PROJECTIONS = Projections(NO_COLUMNS, NO_COLUMNS, NO_NUMBERS.reshape(0, 2), NO_NUMBERS)


@dataclass(frozen=True)
class Tree:
    """Nodes 0 .. n_leaves - 2 in the order of their creation, root first; a tree of one leaf has none.

    Attributes
    ----------
    column, other : int32 (N,)
        A raw column a, and of a projection a second one b; -1 where there is none.
    weight, offset : float32 (N, 2), (N,)
        Of a projection u = (w_a x_a + w_b x_b) + offset, in this order, each operation rounded to float32. A missing
        value counts as the column's `fill`.
    threshold : float32 (N,)
        A plain column goes left where x <= threshold, a projection where u < threshold.
    missing_right : bool (N,)
        Whether a missing value of a plain column goes right.
    mask : uint64 (N,), optional
        Where it is not 0, the node splits a page of a column of categories; pages are numbered behind the raw columns.
        A row goes left if the bit of its bin is 1. Missing values are in bin 0.
    left, right : int32 (N,)
        Children: a node where >= 0, else ~leaf.
    gain : float32 (N,)
    """

    column: IntArray
    other: IntArray
    weight: FloatArray
    offset: FloatArray
    threshold: FloatArray
    missing_right: Any
    left: IntArray
    right: IntArray
    gain: FloatArray
    n_leaves: int
    mask: IntArray | None = None

    def check(self, n_columns: int, n_pages: int = 0) -> None:
        """Raise ValueError unless prediction is safe with rows of so many columns, and each leaf is reached in one way.

        `n_pages` of columns of categories follow `n_columns` others.
        """
        N = self.n_leaves - 1
        if N < 0:
            raise ValueError(f"a tree has {self.n_leaves} leaves")
        for name, dtype in DTYPES.items():
            array = getattr(self, name)
            if array.dtype != dtype or array.shape != ((N, 2) if name == "weight" else (N,)):
                raise ValueError(f"a tree's {name} is {array.dtype} {array.shape}, {N} nodes expected")
        subset = self._check_mask(N)
        end = np.where(subset, n_columns + n_pages, n_columns)
        named = (self.column >= np.where(subset, n_columns, 0)) & (self.column < end)
        if not np.all(named & (self.other >= -1) & (self.other < np.where(subset, 0, n_columns))):
            raise ValueError(
                f"a tree's nodes name columns that are not among the {n_columns} of the rows, or not among their "
                f"{n_pages} pages of categories"
            )
        projected = self.other >= 0
        finite = np.isfinite(self.weight).all(axis=1) & np.isfinite(self.offset) & np.isfinite(self.threshold)
        if np.any(projected & ~finite) or np.any(np.isnan(self.threshold)) or not np.all(np.isfinite(self.gain)):
            raise ValueError("a tree has a threshold, weight, offset or gain that is not a number")
        self._check_children(N)

    def _check_mask(self, N: int) -> Any:
        """Return which nodes split categories."""
        if self.mask is None:
            return np.zeros(N, dtype=np.bool_)
        if self.mask.dtype != np.uint64 or self.mask.shape != (N,):
            raise ValueError(f"a tree's mask is {self.mask.dtype} {self.mask.shape}, {N} nodes expected")
        if np.any(self.mask == ALL_BINS):
            raise ValueError("a tree has a node whose right child no row can reach")
        return self.mask != 0

    def _check_children(self, N: int) -> None:
        children = np.concatenate([self.left, self.right]).astype(np.int64)
        later = np.tile(np.arange(N, dtype=np.int64), 2) < children
        nodes, leaves = children[children >= 0], ~children[children < 0]
        each_node = np.array_equal(np.sort(nodes), np.arange(1, N))
        each_leaf = np.array_equal(np.sort(leaves), np.arange(N + 1)) if N else True
        if not (np.all(later | (children < 0)) and (each_node or not N) and each_leaf):
            raise ValueError("a tree's nodes and leaves are not each the child of one earlier node")


def to_tree(
    grown: GrownTree, raw_column: IntArray, raw_threshold: FloatArray, projections: Projections | None = None
) -> Tree:
    """Translate histogram columns and bins into raw columns and thresholds.

    `raw_column` and `raw_threshold`, (c, 64), are those of `HistogramColumns.raw_splits`; pages of categories follow.
    """
    drawn = NO_PROJECTIONS if projections is None else projections
    N = grown.n_leaves - 1
    shapes = {"weight": (N, 2)}
    arrays: dict[str, Any] = {name: np.empty(shapes.get(name, N), dtype) for name, dtype in DTYPES.items()}
    _translate(
        grown.nodes, raw_column, raw_threshold, drawn.column, drawn.other, drawn.weight, drawn.offset, *arrays.values()
    )
    mask = grown.nodes["mask"]
    return Tree(**arrays, n_leaves=grown.n_leaves, mask=mask.copy() if mask.any() else None)


@kernel()
def _translate(
    nodes: Any, raw_column: Any, raw_threshold: Any, first: Any, second: Any, weights: Any, offsets: Any, column: Any,
    other: Any, weight: Any, offset: Any, threshold: Any, missing_right: Any, left: Any, right: Any, gain: Any,
) -> None:  # fmt: skip
    for k in range(len(nodes)):
        node = nodes[k]
        j, b = node.column, node.bin
        if j < len(raw_column):
            column[k], other[k], threshold[k] = raw_column[j, b], -1, raw_threshold[j, b]
            weight[k, 0] = weight[k, 1] = offset[k] = np.float32(0.0)
            missing_right[k] = node.missing_right != 0
        else:
            p = j - len(raw_column)
            column[k], other[k], threshold[k] = first[p], second[p], b
            weight[k, 0], weight[k, 1], offset[k] = weights[p, 0], weights[p, 1], offsets[p]
            missing_right[k] = False
        left[k], right[k], gain[k] = node.left, node.right, node.gain
