"""Prediction: the leaves of rows in trees, and the sums of many trees' leaf values.

All trees are packed into one array of nodes, among them the leaves: a leaf's children are the leaf itself. So every row
makes as many steps as its tree is deep, without a branch, and the processor works on several rows at a time:

    k <- child(k, x > threshold)    for all rows of a block, then the same again

Blocks of rows are copied first, as float32 and only the columns that trees look at; then tree after tree runs over the
block. The sums of a row are in the order of trees, whatever rows are beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from gbun.dtypes import FloatArray, IntArray
from gbun.trees.categories import NO_BUCKETS, NO_CATEGORIES, Categories, to_bin
from gbun.trees.tree import Tree

BLOCK_ROWS = 128
FIELDS = 4  # of a node: column with MISSING_RIGHT, bits of the threshold, left child, right child
MISSING_RIGHT = 2**30  # a bit of the column
COLUMN = np.int32(MISSING_RIGHT - 1)
ONE, TWO, THREE = np.uint64(1), np.uint64(2), np.uint64(3)


@dataclass(frozen=True)
class Forest:
    """Trees packed for prediction.

    Attributes
    ----------
    columns : int64 (u,)
        The raw columns that any tree looks at; nodes name their places here.
    nodes : int32 (M, 4)
        Column and missing side, bits of the threshold, places of the children: nodes of a tree, then its leaves.
    pairs : int32 (M, 4)
        Of a projection the second column, bits of both weights and of the offset; -1 first for others. Empty where
        there are no projections.
    roots : int64 (T + 1,)
        Where a tree begins.
    first_leaf : int64 (T + 1,)
        Which number a tree's leaf 0 has among the leaves of all trees.
    depths : int64 (T,)
    mixed : bool (T,)
        Whether a tree has projections, or splits of categories.
    masks : uint64 (M,)
        The bins of categories that go left, 0 for other nodes. Empty where no tree splits categories.
    """

    columns: IntArray
    nodes: IntArray
    pairs: IntArray
    roots: IntArray
    first_leaf: IntArray
    depths: IntArray
    mixed: Any
    masks: IntArray


def pack_forest(trees: Sequence[Tree]) -> Forest:
    """Pack trees that have been checked."""
    named = [np.concatenate([tree.column, tree.other]) for tree in trees]
    used = np.unique(np.concatenate([np.zeros(0, dtype=np.int32), *named]))
    columns = used[used >= 0].astype(np.int64)
    masked = any(tree.mask is not None for tree in trees)
    mixed = np.array([tree.mask is not None or bool(np.any(tree.other >= 0)) for tree in trees], dtype=np.bool_)
    n_leaves = np.array([tree.n_leaves for tree in trees], dtype=np.int64)
    first_leaf = np.concatenate([[0], np.cumsum(n_leaves)]).astype(np.int64)
    roots = np.concatenate([[0], np.cumsum(2 * n_leaves - 1)]).astype(np.int64)
    nodes = np.zeros((roots[-1], FIELDS), dtype=np.int32)
    pairs = np.zeros((roots[-1] if mixed.any() else 0, FIELDS), dtype=np.int32)
    pairs[:, 0] = -1
    masks = np.zeros(roots[-1] if masked else 0, dtype=np.uint64)
    for tree, root in zip(trees, roots[:-1].tolist(), strict=True):
        _pack_tree(tree, root, columns, nodes, pairs)
        if tree.mask is not None:
            masks[root : root + len(tree.mask)] = tree.mask
    depths = np.array([tree.depth for tree in trees], dtype=np.int64)
    return Forest(columns, nodes, pairs, roots, first_leaf, depths, mixed, masks)


def _pack_tree(tree: Tree, root: int, columns: IntArray, nodes: IntArray, pairs: IntArray) -> None:
    N, end = tree.n_leaves - 1, root + 2 * tree.n_leaves - 1
    own = nodes[root : root + N]
    own[:, 0] = np.searchsorted(columns, tree.column) + np.where(tree.missing_right, MISSING_RIGHT, 0)
    own[:, 1] = np.ascontiguousarray(tree.threshold).view(np.int32)
    own[:, 2], own[:, 3] = (np.where(child >= 0, root + child, root + N + ~child) for child in (tree.left, tree.right))
    nodes[root + N : end, 2:] = np.arange(root + N, end)[:, None]
    if np.any(tree.other >= 0):
        pair = pairs[root : root + N]
        pair[:, 0] = np.where(tree.other >= 0, np.searchsorted(columns, tree.other), -1)
        pair[:, 1:3] = np.ascontiguousarray(tree.weight).view(np.int32)
        pair[:, 3] = np.ascontiguousarray(tree.offset).view(np.int32)


def add_trees(
    forest: Forest,
    X: Any,
    fill: FloatArray,
    heads: FloatArray,
    scores: FloatArray,
    categories: Categories = NO_CATEGORIES,
    buckets: IntArray = NO_BUCKETS,
) -> None:
    """scores[i] += sum over trees t of heads[first_leaf[t] + leaf of row i], in the order of trees.

    X is 2-D of any real numbers, `fill` float32 by raw column, heads (leaves of all trees, C), scores float64 (n, C).
    """
    ranks, pages = categories
    m = X.shape[1] + len(pages)
    if len(fill) != X.shape[1] or (len(forest.columns) and forest.columns[-1] >= m):
        raise ValueError(f"trees look at other columns than the {m} of the rows")
    if len(ranks) and buckets.shape != (len(X), len(ranks)):
        raise ValueError(f"buckets {buckets.shape} do not fit {len(X)} rows of {len(ranks)} columns of categories")
    fill = np.concatenate([fill, np.zeros(len(pages), dtype=np.float32)])
    if heads.shape != (forest.first_leaf[-1], scores.shape[1]) or len(scores) != len(X):
        raise ValueError(f"heads {heads.shape} and scores {scores.shape} do not fit {len(X)} rows")
    _add_trees(
        X, forest.columns, np.ascontiguousarray(fill[forest.columns], dtype=np.float32), forest.nodes.ravel(),
        forest.nodes.ravel().view(np.float32), forest.pairs.ravel(), forest.pairs.ravel().view(np.float32),
        forest.roots, forest.first_leaf, forest.depths, forest.mixed, heads, scores, forest.masks, buckets, ranks,
        pages,
    )  # fmt: skip


def find_leaves(
    tree: Tree, X: Any, fill: FloatArray, categories: Categories = NO_CATEGORIES, buckets: IntArray = NO_BUCKETS
) -> IntArray:
    """Return the leaf of each row, int32 (n,)."""
    scores = np.zeros((len(X), 1))
    add_trees(
        pack_forest([tree]), X, fill, np.arange(tree.n_leaves, dtype=np.float64)[:, None], scores, categories, buckets
    )
    return scores[:, 0].astype(np.int32)


@numba.njit(cache=True, nogil=True)
def _add_trees(
    X: Any, columns: Any, fill: Any, nodes: Any, numbers: Any, pairs: Any, pair_numbers: Any, roots: Any,
    first_leaf: Any, depths: Any, mixed: Any, heads: Any, scores: Any, masks: Any, buckets: Any, ranks: Any,
    pages: Any,
) -> None:  # fmt: skip
    n, width, masked = len(X), max(1, len(columns)), len(masks) > 0
    block = np.zeros((BLOCK_ROWS, width), dtype=np.float32)
    filled = np.zeros((BLOCK_ROWS, width), dtype=np.float32)  # without missing values, for projections
    at = np.empty(BLOCK_ROWS, dtype=np.int64)
    for first in range(0, n, BLOCK_ROWS):
        count = min(BLOCK_ROWS, n - first)
        _copy_rows(X, first, count, columns, fill, block, filled)
        if masked:
            _copy_bins(buckets, ranks, pages, first, count, columns, X.shape[1], block, filled)
        for t in range(len(depths)):
            at[:] = roots[t]
            for _ in range(depths[t]):
                if mixed[t] and masked:
                    _step_masked(nodes, numbers, pairs, pair_numbers, masks, block, filled, count, at)
                elif mixed[t]:
                    _step_mixed(nodes, numbers, pairs, pair_numbers, block, filled, count, at)
                else:
                    _step(nodes, numbers, block, count, at)
            # leaves come after a tree's nodes: N = leaves - 1 of them
            to = first_leaf[t] - (roots[t] + first_leaf[t + 1] - first_leaf[t] - 1)
            _add_heads(heads, to, at, count, scores[first : first + count])


@numba.njit(cache=True, nogil=True)
def _copy_rows(X: Any, first: int, count: int, columns: Any, fill: Any, block: Any, filled: Any) -> None:
    n_plain = np.searchsorted(columns, X.shape[1])
    for i in range(count):
        for j in range(n_plain):
            x = np.float32(X[first + i, columns[j]])
            block[i, j] = x
            filled[i, j] = fill[j] if x != x else x


@numba.njit(cache=True, nogil=True)
def _copy_bins(
    buckets: Any, ranks: Any, pages: Any, first: int, count: int, columns: Any, n_columns: int, block: Any, filled: Any
) -> None:
    """Write the bins of categories behind the other columns."""
    for j in range(np.searchsorted(columns, n_columns), len(columns)):
        column, first_rank = pages[columns[j] - n_columns]
        of_bucket = ranks[column]
        for i in range(count):
            block[i, j] = filled[i, j] = np.float32(to_bin(of_bucket[buckets[first + i, column]], first_rank))


@numba.njit(cache=True, nogil=True)
def _step(nodes: Any, numbers: Any, block: Any, count: int, at: Any) -> None:
    """One step of each row of a block."""
    for i in range(np.uint64(count)):
        k = np.uint64(at[i]) << TWO
        column = nodes[k]
        x = block[i, np.uint64(column & COLUMN)]
        right = (x > numbers[k + ONE]) | ((x != x) & (column > COLUMN))
        at[i] = nodes[k + TWO + np.uint64(right)]


@numba.njit(cache=True, nogil=True)
def _step_mixed(
    nodes: Any, numbers: Any, pairs: Any, pair_numbers: Any, block: Any, filled: Any, count: int, at: Any
) -> None:
    """One step where some nodes are projections: both kinds of test are made, and one is used."""
    for i in range(np.uint64(count)):
        k = np.uint64(at[i]) << TWO
        column, other, threshold = nodes[k], pairs[k], numbers[k + ONE]
        a = np.uint64(column & COLUMN)
        x = block[i, a]
        right = (x > threshold) | ((x != x) & (column > COLUMN))
        b = np.uint64(max(other, np.int32(0)))
        u = (pair_numbers[k + ONE] * filled[i, a] + pair_numbers[k + TWO] * filled[i, b]) + pair_numbers[k + THREE]
        beyond = not u < threshold
        at[i] = nodes[k + TWO + np.uint64(beyond if other >= 0 else right)]


@numba.njit(cache=True, nogil=True)
def _step_masked(
    nodes: Any, numbers: Any, pairs: Any, pair_numbers: Any, masks: Any, block: Any, filled: Any, count: int, at: Any
) -> None:
    """One step where some nodes split categories, and others may be projections."""
    for i in range(np.uint64(count)):
        node = np.uint64(at[i])
        k = node << TWO
        column, other, threshold, mask = nodes[k], pairs[k], numbers[k + ONE], masks[node]
        a = np.uint64(column & COLUMN)
        x = block[i, a]
        right = (x > threshold) | ((x != x) & (column > COLUMN))
        b = np.uint64(max(other, np.int32(0)))
        u = (pair_numbers[k + ONE] * filled[i, a] + pair_numbers[k + TWO] * filled[i, b]) + pair_numbers[k + THREE]
        right = not u < threshold if other >= 0 else right
        if mask != 0:
            right = mask >> np.uint64(x) & ONE == 0
        at[i] = nodes[k + TWO + np.uint64(right)]


@numba.njit(cache=True, nogil=True)
def _add_heads(heads: Any, to: int, at: Any, count: int, scores: Any) -> None:
    if scores.shape[1] == 1:
        for i in range(count):
            scores[i, 0] += heads[to + at[i], 0]
        return
    for i in range(count):
        for k in range(scores.shape[1]):
            scores[i, k] += heads[to + at[i], k]
