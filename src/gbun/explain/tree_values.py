"""Exact Shapley values of trees against one baseline row.

A coalition S of features takes the values of the row, all others those of the baseline. A leaf is reached by coalitions
that hold certain features (U of them) and lack others (V): the side of a node is decided by the row's value, by the
baseline's, or by either where both go the same way. The game "S holds U and lacks V" is worth, to each member,

    1 in U:   (|U| - 1)! |V|! / (|U| + |V|)!          1 in V:   -|U|! (|V| - 1)! / (|U| + |V|)!

and Shapley values are linear, so those of a tree are sums over its leaves. A node of a projection looks at two
features: their four combinations are at most three branches. The walk visits the leaves that rows between the two could
reach, which are few beside 2^m coalitions, and the sum over features is the difference of the two predictions.
"""

from __future__ import annotations

from functools import lru_cache
from math import lgamma
from typing import Any

import numpy as np

from gbun.dtypes import FloatArray, IntArray
from gbun.trees.categories import Categories
from gbun.trees.compiled import inlined, kernel
from gbun.trees.forest import COLUMN, ONE, THREE, TWO, Forest, copy_values

FREE, ROW, BASELINE = np.int8(0), np.int8(1), np.int8(2)  # who decides a feature
OF_ROW, OF_BASELINE = 0, 1  # places of their values


def add_tree_values(
    forest: Forest,
    heads: FloatArray,
    X: FloatArray,
    baseline: FloatArray,
    fill: FloatArray,
    categories: Categories,
    buckets: IntArray,
    baseline_buckets: IntArray,
    out: FloatArray,
) -> None:
    """out[i, f, c] += the Shapley value of feature f for score c of row i.

    X is (n, m), `baseline` (1, m); features are the m columns, then the columns of categories, whose buckets are given.
    """
    m, pages = X.shape[1], categories.pages
    feature = np.array([j if j < m else m + pages[j - m, 0] for j in forest.columns], dtype=np.int64)
    most = 2 * int(forest.depths.max(initial=0)) + 1
    values = [
        copy_values(forest, rows, fill, categories, of) for rows, of in ((X, buckets), (baseline, baseline_buckets))
    ]
    masks = forest.masks if len(forest.masks) else np.zeros(len(forest.nodes), dtype=np.uint64)
    pairs = forest.pairs if len(forest.pairs) else np.full((len(forest.nodes), 4), -1, dtype=np.int32)
    _add_values(
        forest.nodes, pairs, masks, forest.roots, forest.first_leaf, feature, heads, *values[0], *values[1],
        *game_values(most), out,
    )  # fmt: skip


@lru_cache(maxsize=4)
def game_values(most: int) -> tuple[FloatArray, FloatArray]:
    """Return what a member of U, and one of V, gets for |U| = u and |V| = v: two tables of up to `most` features.

    >>> of_row, of_baseline = game_values(2)
    >>> of_row[:2, 1].tolist(), of_baseline[:2, 1].tolist()
    ([0.0, 0.5], [-1.0, -0.5])
    """
    of_row, of_baseline = np.zeros((2, most + 1, most + 1))
    for u in range(most + 1):
        for v in range(most + 1 - u):
            if u:
                of_row[u, v] = round_to_float(lgamma(u) + lgamma(v + 1) - lgamma(u + v + 1))
            if v:
                of_baseline[u, v] = -round_to_float(lgamma(u + 1) + lgamma(v) - lgamma(u + v + 1))
    return of_row, of_baseline


def round_to_float(logarithm: float) -> float:
    """Return exp of it; a reciprocal of a whole number exactly."""
    value = float(np.exp(logarithm))
    whole = round(1.0 / value) if value > 1e-9 else 0
    return 1.0 / whole if whole and abs(whole * value - 1.0) < 1e-9 else value


@inlined()
def _goes_right(
    nodes: Any, numbers: Any, pairs: Any, pair_numbers: Any, mask: Any, first: Any, second: Any, filled: Any,
    other_filled: Any, k: Any,
) -> Any:  # fmt: skip
    """Whether node k goes right with the values of one row for its first feature and of one for its second."""
    column = nodes[k]
    a = column & COLUMN
    if mask != 0:
        return (~(mask >> np.uint64(first[a])) & ONE) != 0
    if pairs[k] >= 0:
        u = pair_numbers[k + ONE] * filled[a] + pair_numbers[k + TWO] * other_filled[pairs[k]]
        return not (u + pair_numbers[k + THREE] < numbers[k + ONE])
    x = first[a]
    return (x > numbers[k + ONE]) | ((x != x) & (column > COLUMN))


@kernel()
def _add_values(
    packed_nodes: Any, packed_pairs: Any, masks: Any, roots: Any, first_leaf: Any, feature: Any, heads: Any,
    X: Any, filled_X: Any, base: Any, filled_base: Any, of_row: Any, of_baseline: Any, out: Any,
) -> None:  # fmt: skip
    nodes, pairs = packed_nodes.ravel(), packed_pairs.ravel()
    numbers, pair_numbers = nodes.view(np.float32), pairs.view(np.float32)
    most = len(of_row)
    side = np.zeros((2, 2), dtype=np.bool_)  # to which a node goes, by who decides its first and its second feature
    state = np.zeros(out.shape[1], dtype=np.int8)  # who decides each feature
    decided = np.empty(most + 2, dtype=np.int64)  # the features that are not free, in the order of decisions
    todo = np.empty((3 * most + 4, 6), dtype=np.int64)  # node, decisions before, and up to two more: feature, who
    values, fills = np.empty((2, X.shape[1]), dtype=np.float32), np.empty((2, X.shape[1]), dtype=np.float32)
    values[OF_BASELINE], fills[OF_BASELINE] = base[0], filled_base[0]
    for i in range(len(X)):
        values[OF_ROW], fills[OF_ROW] = X[i], filled_X[i]
        for t in range(len(roots) - 1):
            to = first_leaf[t] - (roots[t] + first_leaf[t + 1] - first_leaf[t] - 1)
            n_todo, n_decided = 1, 0
            todo[0] = roots[t], 0, -1, 0, -1, 0
            while n_todo > 0:
                n_todo -= 1
                node = todo[n_todo, 0]
                while n_decided > todo[n_todo, 1]:
                    n_decided -= 1
                    state[decided[n_decided]] = FREE
                for q in (2, 4):
                    if todo[n_todo, q] >= 0:
                        decided[n_decided], state[todo[n_todo, q]] = todo[n_todo, q], todo[n_todo, q + 1]
                        n_decided += 1
                while True:
                    k = np.uint64(node) << TWO
                    if nodes[k + TWO] == node:  # a leaf
                        break
                    a, b, same = feature[nodes[k] & COLUMN], np.int64(-1), False
                    if masks[node] == 0 and pairs[k] >= 0:
                        b = feature[pairs[k]]
                        same = a == b
                    a_free, b_free = state[a] == FREE, b >= 0 and not same and state[b] == FREE
                    for p in range(2):
                        for q in range(2):
                            at = p if a_free else state[a] - 1
                            other = at if b < 0 or same else (q if b_free else state[b] - 1)
                            side[p, q] = _goes_right(
                                nodes, numbers, pairs, pair_numbers, masks[node], values[at], values[other],
                                fills[at], fills[other], k,
                            )  # fmt: skip
                    left, right = np.int64(nodes[k + TWO]), np.int64(nodes[k + THREE])
                    needs_a = side[0, 0] != side[1, 0] or side[0, 1] != side[1, 1]
                    needs_b = side[0, 0] != side[0, 1] or side[1, 0] != side[1, 1]
                    if not needs_a and not needs_b:
                        node = right if side[0, 0] else left
                        continue
                    # where one value of a feature settles the side, the other feature stays free: begin with that one
                    if not needs_a or (needs_b and side[0, 0] != side[0, 1] and side[1, 0] != side[1, 1]):
                        a, b, needs_b = b, a, needs_a
                        side[0, 1], side[1, 0] = side[1, 0], side[0, 1]
                    for p in range(2):
                        settled = not needs_b or side[p, 0] == side[p, 1]
                        for q in range(1 if settled else 2):
                            child = right if side[p, q] else left
                            todo[n_todo] = child, n_decided, a, p + 1, -1 if settled else b, q + 1
                            n_todo += 1
                    node = -1
                    break
                if node < 0:
                    continue
                u = v = 0
                for q in range(n_decided):
                    if state[decided[q]] == ROW:
                        u += 1
                    else:
                        v += 1
                leaf = to + node
                for q in range(n_decided):
                    f = decided[q]
                    share = of_row[u, v] if state[f] == ROW else of_baseline[u, v]
                    for c in range(out.shape[2]):
                        out[i, f, c] += share * heads[leaf, c]
            while n_decided > 0:
                n_decided -= 1
                state[decided[n_decided]] = FREE
