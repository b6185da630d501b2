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

import numpy as np

from gbun.dtypes import FloatArray, IntArray
from gbun.trees.categories import NO_BUCKETS, NO_CATEGORIES, Categories, to_bin
from gbun.trees.compiled import inlined, kernel
from gbun.trees.tree import DTYPES, Tree

BLOCK_ROWS = 128
FEW_ROWS = 8  # go through the trees one by one: a step of so few rows would wait for the one before
FEW_TREES = 16  # that such a row goes through at a time, for the same reason
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
    joined: list[Any] = [_join(trees, name) for name in DTYPES if name != "gain"]
    joined.append(np.array([tree.n_leaves for tree in trees], dtype=np.int64))
    columns, nodes, pairs, roots, first_leaf, depths, mixed = _pack(*joined)
    masked = any(tree.mask is not None for tree in trees)
    masks = np.zeros(len(nodes) if masked else 0, dtype=np.uint64)
    for t, tree in enumerate(trees if masked else ()):
        if tree.mask is not None:
            masks[roots[t] : roots[t] + len(tree.mask)], mixed[t] = tree.mask, True
    if masked and not len(pairs):  # the other nodes of these trees are looked at as if they could be projections
        pairs = np.zeros((len(nodes), FIELDS), dtype=np.int32)
        pairs[:, 0] = -1
    return Forest(columns, nodes, pairs, roots, first_leaf, depths, mixed, masks)


def _join(trees: Sequence[Tree], name: str) -> Any:
    """An array of all trees; numbers that a node keeps as bits are integers."""
    if len(trees) == 1:
        joined = np.ascontiguousarray(getattr(trees[0], name))
    else:
        none: Any = np.zeros((0, 2) if name == "weight" else 0, DTYPES[name])
        joined = np.concatenate([none, *(getattr(tree, name) for tree in trees)])
    return joined.view(np.int32) if joined.dtype == np.float32 else joined


@kernel()
def _pack(
    column: Any, other: Any, weight: Any, offset: Any, threshold: Any, missing_right: Any, left: Any, right: Any,
    n_leaves: Any,
) -> Any:  # fmt: skip
    columns, place = _find_columns(column, other)
    T = len(n_leaves)
    roots, first_leaf = np.zeros(T + 1, dtype=np.int64), np.zeros(T + 1, dtype=np.int64)
    depths, mixed = np.zeros(T, dtype=np.int64), np.zeros(T, dtype=np.bool_)
    for t in range(T):
        roots[t + 1], first_leaf[t + 1] = roots[t] + 2 * n_leaves[t] - 1, first_leaf[t] + n_leaves[t]
        first = first_leaf[t] - t
        for k in range(first, first + n_leaves[t] - 1):
            mixed[t] |= other[k] >= 0
    nodes = np.zeros((roots[T], FIELDS), dtype=np.int32)
    pairs = np.zeros((roots[T] if np.any(mixed) else 0, FIELDS), dtype=np.int32)
    pairs[:, 0] = -1
    level = np.empty(roots[T], dtype=np.int64)
    for t in range(T):
        first, N, root = first_leaf[t] - t, n_leaves[t] - 1, roots[t]
        level[root] = 0
        for k in range(N):
            i, at = first + k, root + k
            nodes[at, 0] = place[column[i]] + (MISSING_RIGHT if missing_right[i] else 0)
            nodes[at, 1] = threshold[i]
            for side in range(2):
                child = right[i] if side else left[i]
                to = root + (np.int64(child) if child >= 0 else N + ~np.int64(child))
                nodes[at, 2 + side], level[to] = to, level[at] + 1
            depths[t] = max(depths[t], level[at] + 1)
            if other[i] >= 0:
                pairs[at, 0], pairs[at, 3] = place[other[i]], offset[i]
                pairs[at, 1], pairs[at, 2] = weight[i, 0], weight[i, 1]
        for at in range(root + N, roots[t + 1]):
            nodes[at, 2] = nodes[at, 3] = at
    return columns, nodes, pairs, roots, first_leaf, depths, mixed


@kernel()
def _find_columns(column: Any, other: Any) -> Any:
    """Return the columns that nodes look at, ascending, and the place of each among them."""
    top = -1
    for i in range(len(column)):
        top = max(top, column[i], other[i])
    place = np.zeros(top + 1, dtype=np.int64)
    for i in range(len(column)):
        place[column[i]] = 1
        if other[i] >= 0:
            place[other[i]] = 1
    columns = np.empty(place.sum(), dtype=np.int64)
    count = 0
    for j in range(top + 1):
        if place[j]:
            columns[count], place[j] = j, count
            count += 1
    return columns, place


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
    if heads.shape != (forest.first_leaf[-1], scores.shape[1]) or len(scores) != len(X):
        raise ValueError(f"heads {heads.shape} and scores {scores.shape} do not fit {len(X)} rows")
    _add_trees(
        X, forest.columns, np.ascontiguousarray(fill, dtype=np.float32), forest.nodes, forest.pairs, forest.roots,
        forest.first_leaf, forest.depths, forest.mixed, heads, scores, forest.masks, buckets, ranks, pages,
    )  # fmt: skip


def copy_values(
    forest: Forest, X: FloatArray, fill: FloatArray, categories: Categories, buckets: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return the columns that trees look at, float32, as they are and without missing values."""
    block = np.zeros((len(X), max(1, len(forest.columns))), dtype=np.float32)
    filled = np.zeros_like(block)
    fill = np.ascontiguousarray(fill, dtype=np.float32)
    n_plain = _copy_rows(X, 0, len(X), forest.columns, fill, block, filled)
    if len(forest.masks):
        ranks, pages = categories
        _copy_bins(buckets, ranks, pages, 0, len(X), forest.columns, n_plain, X.shape[1], block, filled)
    return block, filled


def find_leaves(
    tree: Tree, X: Any, fill: FloatArray, categories: Categories = NO_CATEGORIES, buckets: IntArray = NO_BUCKETS
) -> IntArray:
    """Return the leaf of each row, int32 (n,)."""
    scores, heads = np.zeros((len(X), 1)), np.arange(tree.n_leaves, dtype=np.float64)[:, None]
    add_trees(pack_forest([tree]), X, fill, heads, scores, categories, buckets)
    return scores[:, 0].astype(np.int32)


@kernel()
def _add_trees(
    X: Any, columns: Any, fill: Any, packed_nodes: Any, packed_pairs: Any, roots: Any, first_leaf: Any, depths: Any,
    mixed: Any, heads: Any, scores: Any, masks: Any, buckets: Any, ranks: Any, pages: Any,
) -> None:  # fmt: skip
    n, width, masked = len(X), max(1, len(columns)), len(masks) > 0
    nodes, pairs = packed_nodes.ravel(), packed_pairs.ravel()
    numbers, pair_numbers = nodes.view(np.float32), pairs.view(np.float32)
    block = np.zeros((min(n, BLOCK_ROWS), width), dtype=np.float32)
    filled = np.zeros_like(block)  # without missing values, for projections
    at = np.empty(max(len(block), FEW_TREES), dtype=np.int64)
    for first in range(0, n, BLOCK_ROWS):
        count = min(BLOCK_ROWS, n - first)
        n_plain = _copy_rows(X, first, count, columns, fill, block, filled)
        if masked:
            _copy_bins(buckets, ranks, pages, first, count, columns, n_plain, X.shape[1], block, filled)
        if count < FEW_ROWS:
            for i in range(count):
                _add_all_trees(
                    nodes, numbers, pairs, pair_numbers, masks, roots, first_leaf, depths, mixed, heads, block, filled,
                    i, at, scores[first + i],
                )  # fmt: skip
            continue
        for t in range(len(depths)):
            # leaves come after a tree's nodes: N = leaves - 1 of them
            to = first_leaf[t] - (roots[t] + first_leaf[t + 1] - first_leaf[t] - 1)
            at[:count] = roots[t]
            for _ in range(depths[t]):
                if mixed[t] and masked:
                    _step_masked(nodes, numbers, pairs, pair_numbers, masks, block, filled, count, at)
                elif mixed[t]:
                    _step_mixed(nodes, numbers, pairs, pair_numbers, block, filled, count, at)
                else:
                    _step(nodes, numbers, block, count, at)
            _add_heads(heads, to, at, count, scores[first : first + count])


@kernel()
def _add_all_trees(
    nodes: Any, numbers: Any, pairs: Any, pair_numbers: Any, masks: Any, roots: Any, first_leaf: Any, depths: Any,
    mixed: Any, heads: Any, block: Any, filled: Any, i: int, at: Any, scores: Any,
) -> None:  # fmt: skip
    """Add the trees to row i of a block: a step in some of them, then the next, since no tree waits for another."""
    masked, T = len(masks) > 0, len(depths)
    for first in range(0, T, FEW_TREES):
        count = min(FEW_TREES, T - first)
        at[:count] = roots[first : first + count]
        any_mixed = np.any(mixed[first : first + count])
        for _ in range(depths[first : first + count].max()):
            for j in range(np.uint64(count)):
                k = at[j]
                if any_mixed and masked and masks[np.uint64(k)] != 0:
                    at[j] = _next_of_mask(nodes, masks, block, i, k)
                elif any_mixed:
                    at[j] = _next_mixed(nodes, numbers, pairs, pair_numbers, block, filled, i, k)
                else:
                    at[j] = _next(nodes, numbers, block, i, k)
        for j in range(count):
            t = first + j
            to = at[j] - (roots[t] + first_leaf[t + 1] - first_leaf[t] - 1) + first_leaf[t]
            for c in range(len(scores)):
                scores[c] += heads[to, c]


@kernel()
def _copy_rows(X: Any, first: int, count: int, columns: Any, fill: Any, block: Any, filled: Any) -> int:
    """Copy the columns of X that trees look at; return how many there are. Those of categories come after them."""
    n_plain = len(columns)
    while n_plain > 0 and columns[n_plain - 1] >= X.shape[1]:
        n_plain -= 1
    for i in range(count):
        for j in range(n_plain):
            x = np.float32(X[first + i, columns[j]])
            block[i, j] = x
            filled[i, j] = fill[columns[j]] if x != x else x
    return n_plain


@kernel()
def _copy_bins(
    buckets: Any, ranks: Any, pages: Any, first: int, count: int, columns: Any, n_plain: int, n_columns: int,
    block: Any, filled: Any,
) -> None:  # fmt: skip
    """Write the bins of categories behind the other columns."""
    for j in range(n_plain, len(columns)):
        column, first_rank = pages[columns[j] - n_columns]
        of_bucket = ranks[column]
        for i in range(count):
            block[i, j] = filled[i, j] = np.float32(to_bin(of_bucket[buckets[first + i, column]], first_rank))


@inlined()
def _next(nodes: Any, numbers: Any, block: Any, i: Any, node: Any) -> Any:
    """The child of a node to which row i goes."""
    k = np.uint64(node) << TWO
    column = nodes[k]
    x = block[i, np.uint64(column & COLUMN)]
    right = (x > numbers[k + ONE]) | ((x != x) & (column > COLUMN))
    return nodes[k + TWO + np.uint64(right)]


@inlined()
def _next_mixed(
    nodes: Any, numbers: Any, pairs: Any, pair_numbers: Any, block: Any, filled: Any, i: Any, node: Any
) -> Any:
    """`_next` where some nodes are projections: both kinds of test are made, and one is used."""
    k = np.uint64(node) << TWO
    column, other, threshold = nodes[k], pairs[k], numbers[k + ONE]
    a = np.uint64(column & COLUMN)
    x = block[i, a]
    right = (x > threshold) | ((x != x) & (column > COLUMN))
    b = np.uint64(max(other, np.int32(0)))
    u = (pair_numbers[k + ONE] * filled[i, a] + pair_numbers[k + TWO] * filled[i, b]) + pair_numbers[k + THREE]
    beyond = not u < threshold
    return nodes[k + TWO + np.uint64(beyond if other >= 0 else right)]


@kernel()
def _step(nodes: Any, numbers: Any, block: Any, count: int, at: Any) -> None:
    """One step of each row of a block."""
    for i in range(np.uint64(count)):
        at[i] = _next(nodes, numbers, block, i, at[i])


@kernel()
def _step_mixed(
    nodes: Any, numbers: Any, pairs: Any, pair_numbers: Any, block: Any, filled: Any, count: int, at: Any
) -> None:
    for i in range(np.uint64(count)):
        at[i] = _next_mixed(nodes, numbers, pairs, pair_numbers, block, filled, i, at[i])


@inlined()
def _next_of_mask(nodes: Any, masks: Any, block: Any, i: Any, node: Any) -> Any:
    """`_next` of a node that splits categories."""
    k = np.uint64(node) << TWO
    bin_ = np.uint64(block[i, np.uint64(nodes[k] & COLUMN)])
    return nodes[k + TWO + (~(masks[np.uint64(node)] >> bin_) & ONE)]


@kernel()
def _step_masked(
    nodes: Any, numbers: Any, pairs: Any, pair_numbers: Any, masks: Any, block: Any, filled: Any, count: int, at: Any
) -> None:
    for i in range(np.uint64(count)):
        if masks[np.uint64(at[i])] != 0:
            at[i] = _next_of_mask(nodes, masks, block, i, at[i])
        else:
            at[i] = _next_mixed(nodes, numbers, pairs, pair_numbers, block, filled, i, at[i])


@kernel()
def _add_heads(heads: Any, to: int, at: Any, count: int, scores: Any) -> None:
    if scores.shape[1] == 1:
        for i in range(count):
            scores[i, 0] += heads[to + at[i], 0]
        return
    for i in range(count):
        for k in range(scores.shape[1]):
            scores[i, k] += heads[to + at[i], k]
