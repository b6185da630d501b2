from dataclasses import replace

import numpy as np
import pytest

from gbun.data.features import N_BUCKETS
from gbun.kernels.threads import thread_pool
from gbun.trees.categories import Categories
from gbun.trees.forest import add_trees, find_leaves, pack_forest
from gbun.trees.grower import Grower
from gbun.trees.projections import Projections
from gbun.trees.tree import Tree, to_tree
from tests.trees import plain_trees


def make_tree(n_leaves, n_columns, seed, share_projected=0.3, n_categories=0):
    rng = np.random.default_rng(seed)
    N = n_leaves - 1
    left, right = np.zeros(N, dtype=np.int32), np.zeros(N, dtype=np.int32)
    hangs = [(left, 0), (right, 0)] if N else []
    left[:1], right[:1] = ~0, ~1
    for node in range(1, N):
        array, at = hangs.pop(rng.integers(len(hangs)))
        leaf, array[at] = array[at], node
        left[node], right[node] = leaf, ~(node + 1)
        hangs += [(left, node), (right, node)]
    projected = rng.random(N) < share_projected
    weight = np.where(projected[:, None], rng.uniform(-1, 1, (N, 2)), 0).astype(np.float32)
    column = rng.integers(0, n_columns, N).astype(np.int32)
    other = np.where(projected, rng.integers(0, n_columns, N), -1).astype(np.int32)
    threshold = rng.normal(size=N).astype(np.float32).round(1)
    offset = np.where(projected, rng.normal(size=N), 0).astype(np.float32)
    missing = ~projected & (rng.random(N) < 0.5)
    mask = None
    if n_categories:
        subset = ~projected & (rng.random(N) < 0.5)
        column[subset] = rng.integers(n_columns, n_columns + n_categories, np.count_nonzero(subset))
        mask = np.where(subset, rng.integers(1, 2**64 - 1, N, dtype=np.uint64), 0).astype(np.uint64)
    gain = np.ones(N, np.float32)
    return Tree(column, other, weight, offset, threshold, missing, left, right, gain, n_leaves, mask)


def plain_leaves(tree, X, fill, categories=None):
    X, fill, leaves = X.astype(np.float32), np.asarray(fill, dtype=np.float32), []
    for i, x in enumerate(X):
        k = 0 if tree.n_leaves > 1 else ~0
        while k >= 0:
            a, b = tree.column[k], tree.other[k]
            if tree.mask is not None and tree.mask[k]:
                column, first = categories[0].pages[a - X.shape[1]]
                rank = int(categories[0].ranks[column, categories[1][i, column]])
                bin_ = 0 if rank == 2**16 - 1 else 1 + rank - first if first <= rank < first + 62 else 63
                goes_right = not int(tree.mask[k]) >> int(bin_) & 1
            elif b < 0:
                goes_right = tree.missing_right[k] if np.isnan(x[a]) else x[a] > tree.threshold[k]
            else:
                x_a, x_b = (fill[j] if np.isnan(x[j]) else x[j] for j in (a, b))
                with np.errstate(invalid="ignore"):
                    u = (tree.weight[k, 0] * x_a + tree.weight[k, 1] * x_b) + tree.offset[k]
                goes_right = not u < tree.threshold[k]
            k = tree.right[k] if goes_right else tree.left[k]
        leaves.append(~k)
    return np.array(leaves)


def make_X(n, m, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m)).round(1)
    X[rng.random((n, m)) < 0.1] = np.nan
    X[rng.random((n, m)) < 0.02] = np.inf
    X[rng.random((n, m)) < 0.02] = -np.inf
    return X


@pytest.mark.parametrize("n_leaves", [1, 2, 3, 9, 31, 300])
@pytest.mark.parametrize("share_projected", [0.0, 0.4, 1.0])
def test_leaves_are_those_of_the_plain_rule(n_leaves, share_projected):
    X, fill = make_X(700, 5), np.linspace(-1, 1, 5, dtype=np.float32)
    tree = make_tree(n_leaves, 5, n_leaves, share_projected)
    tree.check(5)
    found = find_leaves(tree, X, fill)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, plain_leaves(tree, X, fill))


@pytest.mark.parametrize("n_leaves", [2, 9, 300])
@pytest.mark.parametrize("n_columns", [0, 5])
def test_leaves_of_rows_with_categories(n_leaves, n_columns):
    rng, X, fill = np.random.default_rng(n_leaves), make_X(400, n_columns), np.full(n_columns, 0.5, dtype=np.float32)
    orders = [1 + rng.permutation(N_BUCKETS - 1)[:size] for size in (5, 64, 600)]  # 1, 2 and 8 pages
    categories = Categories.from_ranks(np.stack([to_ranks(order) for order in orders]))
    buckets = np.stack([rng.choice([*order[:400], 0], 400) for order in orders], axis=1).astype(np.uint16)
    assert len(categories.pages) == 11
    given = categories, buckets
    trees = [make_tree(n_leaves, n_columns, seed, 0.3, 11) for seed in range(3) if n_columns]
    trees = trees or [only_categories(make_tree(n_leaves, 11, 0, 0.0))]
    for tree in trees:
        tree.check(n_columns, 11)
        expected = plain_leaves(tree, X, fill, given)
        np.testing.assert_array_equal(find_leaves(tree, X, fill, *given), expected)
    plain = make_tree(7, n_columns, 5) if n_columns else trees[0]
    scores, forest = np.zeros((400, 1)), pack_forest([*trees, plain])  # one of them without categories
    heads = np.concatenate([np.arange(tree.n_leaves, dtype=float) for tree in [*trees, plain]])[:, None]
    add_trees(forest, X, fill, heads, scores, *given)
    total = sum(plain_leaves(tree, X, fill, given) for tree in [*trees, plain])
    np.testing.assert_array_equal(scores[:, 0], total)
    with pytest.raises(ValueError, match="do not fit"):
        add_trees(forest, X, fill, heads, scores, categories, buckets[:, :2])
    with pytest.raises(ValueError, match="other columns"):
        add_trees(forest, X, fill, heads, scores)


def to_ranks(order):
    ranks = np.full(N_BUCKETS, 2**16 - 1, dtype=np.uint16)
    ranks[order] = np.arange(len(order))
    return ranks


def only_categories(tree):
    mask = np.random.default_rng(0).integers(1, 2**64 - 1, len(tree.column), dtype=np.uint64)
    return replace(tree, mask=mask, threshold=np.zeros_like(tree.threshold))


def test_forged_masks_are_refused():
    tree = make_tree(40, 4, 0, 0.3, 2)
    tree.check(4, 2)
    at = int(np.flatnonzero(tree.mask)[0])
    plain, pair = int(np.flatnonzero((tree.mask == 0) & (tree.other < 0))[0]), int(np.flatnonzero(tree.other >= 0)[0])
    for name, node, value in (
        ("column", at, 6), ("column", at, 3), ("column", plain, 4), ("other", at, 0), ("mask", at, 0),
        ("mask", plain, 5), ("mask", pair, 5), ("mask", at, 2**64 - 1), ("other", pair, 4),
    ):  # fmt: skip
        array = getattr(tree, name).copy()
        array[node] = value
        with pytest.raises(ValueError, match=r"column|reach"):
            replace(tree, **{name: array}).check(4, 2)
    for mask in (tree.mask.astype(np.int64), tree.mask[1:]):
        with pytest.raises(ValueError, match="mask"):
            replace(tree, mask=mask).check(4, 2)
    with pytest.raises(ValueError, match="columns"):
        tree.check(4, 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.bool_])
@pytest.mark.parametrize("order", ["C", "F", "strided"])
def test_any_array(dtype, order):
    X = np.random.default_rng(0).normal(size=(300, 8)).round(1).astype(dtype)
    X = np.asfortranarray(X) if order == "F" else X[::2, ::2] if order == "strided" else X
    tree, fill = make_tree(12, X.shape[1], 1), np.zeros(X.shape[1], dtype=np.float32)
    np.testing.assert_array_equal(find_leaves(tree, X, fill), plain_leaves(tree, X, fill))


@pytest.mark.parametrize("share_projected", [0.0, 0.4])
def test_few_rows_go_where_many_go(share_projected):
    X, fill = make_X(300, 5), np.zeros(5, dtype=np.float32)
    trees = [make_tree(n, 5, n, share_projected) for n in (1, 2, 9, 31)]
    forest, heads = pack_forest(trees), np.random.default_rng(0).normal(size=(43, 2)).astype(np.float32)
    together, alone = np.zeros((300, 2)), np.zeros((300, 2))
    add_trees(forest, X, fill, heads, together)
    for first in range(0, 300, 3):
        add_trees(forest, X[first : first + 3], fill, heads, alone[first : first + 3])
    np.testing.assert_array_equal(alone, together)


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_trees_add_up_row_by_row(n_outputs, dtype):
    X, fill, rng = make_X(300, 6), np.zeros(6, dtype=np.float32), np.random.default_rng(2)
    trees = [make_tree(n, 6, n, share) for n, share in ((1, 0), (5, 0), (31, 0.5), (2, 1), (17, 0))]
    heads = [rng.normal(size=(tree.n_leaves, n_outputs)).astype(dtype) for tree in trees]
    start = rng.normal(size=(300, n_outputs))
    expected = start.copy()
    for tree, head in zip(trees, heads, strict=True):
        expected += head[plain_leaves(tree, X, fill)]
    forest, all_heads = pack_forest(trees), np.concatenate(heads)
    scores = start.copy()
    add_trees(forest, X, fill, all_heads, scores)
    np.testing.assert_array_equal(scores, expected)
    for rows in (slice(0, 1), slice(3, 140), slice(299, 300), slice(5, 5)):  # whatever rows are beside them
        some = start[rows].copy()
        add_trees(forest, X[rows], fill, all_heads, some)
        np.testing.assert_array_equal(some, expected[rows])


def test_no_trees():
    scores = np.ones((3, 2))
    add_trees(pack_forest([]), np.zeros((3, 4)), np.zeros(4, dtype=np.float32), np.zeros((0, 2)), scores)
    np.testing.assert_array_equal(scores, 1.0)


def test_arrays_that_do_not_fit_are_refused():
    forest, fill = pack_forest([make_tree(9, 6, 0)]), np.zeros(6, dtype=np.float32)
    with pytest.raises(ValueError, match="columns"):
        add_trees(forest, np.zeros((3, 2)), fill[:2], np.zeros((9, 1)), np.zeros((3, 1)))
    for heads, scores in (((8, 1), (3, 1)), ((9, 2), (3, 1)), ((9, 1), (4, 1))):
        with pytest.raises(ValueError, match="heads"):
            add_trees(forest, np.zeros((3, 6)), fill, np.zeros(heads), np.zeros(scores))


def replaced(tree, **changes):
    arrays = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in vars(tree).items()}
    for name, (at, value) in changes.items():
        arrays[name][at] = value
    return Tree(**arrays)


@pytest.mark.parametrize(
    "change",
    [
        {"left": (0, 0)},  # a node that is its own child
        {"left": (3, 1)},  # an earlier node
        {"right": (2, 100)},
        {"right": (2, ~100)},
        {"left": (7, ~0), "right": (7, ~0)},
        {"column": (1, -1)},
        {"column": (1, 6)},
        {"other": (1, 6)},
        {"other": (1, -2)},
        {"threshold": (4, np.nan)},
        {"gain": (4, np.inf)},
    ],
    ids=str,
)
def test_a_tree_that_is_none_is_refused(change):
    tree = make_tree(9, 6, 0, 0.0)
    tree.check(6)
    with pytest.raises(ValueError, match="tree"):
        replaced(tree, **change).check(6)


def test_projections_must_be_finite_and_shapes_right():
    tree = make_tree(9, 6, 0, 1.0)
    for name in ("weight", "offset", "threshold"):
        with pytest.raises(ValueError, match="not a number"):
            replaced(tree, **{name: (2, np.inf)}).check(6)
    with pytest.raises(ValueError, match="left"):
        Tree(**{**vars(tree), "left": tree.left[1:]}).check(6)
    with pytest.raises(ValueError, match="column"):
        Tree(**{**vars(tree), "column": tree.column.astype(np.int64)}).check(6)
    empty = {name: value[:0] for name, value in vars(tree).items() if isinstance(value, np.ndarray)}
    with pytest.raises(ValueError, match="leaves"):
        Tree(**empty, n_leaves=0).check(6)


def test_rows_find_the_leaves_they_were_grown_in():
    """Raw values whose bins are known: a column with missing values, two one-hot columns as a bundle, a projection."""
    rng, n = np.random.default_rng(0), 2000
    X = rng.integers(0, 40, (n, 4)).astype(np.float32)
    X[rng.random(n) < 0.3, 0] = np.nan
    hot = rng.integers(0, 3, n)
    X[:, 2], X[:, 3] = hot == 1, hot == 2
    columns = np.stack([np.where(np.isnan(X[:, 0]), 0, X[:, 0] + 1), X[:, 1] + 1, hot]).astype(np.uint8)
    raw_threshold = np.tile(np.arange(64, dtype=np.float32) - 0.5, (3, 1))  # bin b holds b - 1
    raw_threshold[0, 40:] = np.inf
    raw_threshold[2] = 0.5
    raw_column = np.repeat(np.array([[0], [1], [2]], dtype=np.int32), 64, axis=1)
    raw_column[2, 2] = 3
    weight, offset = np.array([[0.3, 0.2]], dtype=np.float32), np.array([2.0], dtype=np.float32)
    fill = np.array([17.0, 5.0, 0.0, 0.0], dtype=np.float32)
    x = np.where(np.isnan(X[:, 0]), fill[0], X[:, 0])
    u = (weight[0, 0] * x + weight[0, 1] * X[:, 1]) + offset[0]
    projected = (1 + np.clip(np.floor(u), 0, 31)).astype(np.uint8)[None]
    g = (u > 11) * 2.0 + (hot == 2) + np.isnan(X[:, 0]) + (X[:, 1] > 20) + rng.normal(size=n) * 0.1
    g = (g - g.mean()).astype(np.float32)
    with thread_pool(2) as threads:
        grower = Grower(plain_trees.by_row(columns), columns, np.array([False, False, True]), threads, 31, 5, 1)
        forms = plain_trees.by_row(projected), projected
        grown = grower.grow(g, np.ones(n, dtype=np.float32), 1.0, lambda a: a, 1, *forms)
    named = set(grown.nodes["column"].tolist())
    assert named == {0, 1, 2, 3}
    pair = Projections(np.array([0], dtype=np.int32), np.array([1], dtype=np.int32), weight, offset)
    tree = to_tree(grown, raw_column, raw_threshold, pair)
    tree.check(4)
    np.testing.assert_array_equal(find_leaves(tree, X, fill), grown.leaf_of_row)
