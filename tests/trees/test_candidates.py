"""The columns that a tree looks at: the plain rule's, and their bins and first gains."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gbun.collectives.threads import in_threads
from gbun.kernels.sampling import mix_bits
from gbun.kernels.threads import ThreadPool
from gbun.trees import screening
from gbun.trees.binned_rows import BinnedRows, allocate_binned_rows
from gbun.trees.bundling import HistogramColumns
from gbun.trees.candidates import DECAY, Candidates, ColumnGuide, gather_columns
from gbun.trees.screening import screen_columns
from gbun.trees.tree import Tree
from tests.trees import plain_trees
from tests.trees.test_binning import ONE, solo
from tests.trees.test_grower import case


def columns_of(groups, n_raw):
    """Histogram columns of groups of raw columns; of the bins, only how many raw columns there are is asked."""
    members = np.full((len(groups), 63), -1)
    for h, group in enumerate(groups):
        members[h, : len(group)] = group

    class Bins:
        n_edges = np.ones(n_raw, dtype=np.int64)
        edges = np.zeros((n_raw, 62), dtype=np.float32)

    return HistogramColumns(members, np.array([len(group) for group in groups]), Bins())


def make_tree(rng, raw, n_nodes):
    """A chain of nodes at random columns, some of them projections."""
    column, other = (rng.choice(raw, n_nodes).astype(np.int32) for _ in range(2))
    other[rng.random(n_nodes) < 0.6] = -1
    gain = rng.choice([0.0, 0.5, 3e-7, 1e5], n_nodes).astype(np.float32)
    zeros = np.zeros(n_nodes, dtype=np.float32)
    left, right = ~np.arange(n_nodes, dtype=np.int32), np.arange(1, n_nodes + 1, dtype=np.int32)
    return Tree(
        column, other, np.zeros((n_nodes, 2), np.float32), zeros, zeros, zeros > 0, left, right, gain, n_nodes + 1
    )


def choose_plainly(seed, groups, n_candidates, first_gains, trees):
    """The candidates of the tree that follows `trees`, and the best raw columns: one rule after the other."""
    c = len(groups)
    gains = [g / (math.fsum(first_gains) or 1.0) for g in first_gains]
    for tree in trees:
        gains = [DECAY * g for g in gains]
        total = math.fsum(tree.gain.astype(float)) or 1.0
        nodes = list(zip(tree.column.tolist(), tree.other.tolist(), tree.gain.astype(float).tolist(), strict=True))
        for a, b, gain in nodes:
            gains[a] += gain / total * (0.5 if b >= 0 else 1.0)
        for _, b, gain in nodes:
            if b >= 0:
                gains[b] += gain / total * 0.5
    with np.errstate(over="ignore"):
        key = mix_bits(mix_bits(np.uint64(seed)) + np.uint64(c))

        def order(number):
            of_order = mix_bits(key + np.uint64(number))
            return sorted(range(c), key=lambda j: int(mix_bits(of_order + np.uint64(j))))

        half = math.ceil(n_candidates / 2)
        number, first = divmod(len(trees) * half, c)
        now = order(number)
        chosen = set((now + order(number + 1))[first : first + half])
    of_group = [sum(gains[raw] for raw in sorted(group)) for group in groups]
    rest = sorted((j for j in now if j not in chosen), key=lambda j: -of_group[j])
    best = sorted((raw for raw in range(len(gains)) if gains[raw] > 0), key=lambda raw: -gains[raw])
    return sorted(chosen | set(rest[: n_candidates - len(chosen)])), best[: n_candidates // 2]


@pytest.mark.parametrize("n_candidates", [2, 5, 16, 29])
def test_candidates_are_those_of_the_plain_rule(n_candidates):
    rng = np.random.default_rng(n_candidates)
    groups = [[j] for j in range(25)] + [list(range(25 + 5 * k, 30 + 5 * k)) for k in range(5)]
    guide = ColumnGuide(7, columns_of(groups, 50), n_candidates)
    first, trees = rng.random(50) * (rng.random(50) < 0.5), []
    guide.start_from(np.flatnonzero(first), first[first > 0])
    for _ in range(40):
        wanted, best = choose_plainly(7, groups, n_candidates, first, trees)
        assert guide.choose().tolist() == guide.choose().tolist() == wanted
        assert guide.best_raw_columns().tolist() == best
        trees.append(make_tree(rng, np.arange(50), int(rng.integers(0, 8))))
        guide.add(trees[-1])


def test_all_columns_come_in_turn_and_the_best_stay():
    c, n_candidates = 1000, 64
    guide = ColumnGuide(0, columns_of([[j] for j in range(c)], c), n_candidates)
    good = np.arange(7, 1000, 50)
    tree = make_tree(np.random.default_rng(0), good, 200)
    seen = []
    for _ in range(math.ceil(2 * c / 32)):
        guide.add(tree)
        chosen = guide.choose()
        assert len(chosen) == n_candidates
        assert np.isin(np.unique(tree.column[tree.gain > 0]), chosen).all()
        seen.append(chosen)
    assert len(np.unique(seen)) == c


def test_trees_known_before_make_the_same_choice():
    rng, columns = np.random.default_rng(0), columns_of([[j] for j in range(40)], 40)
    one, other = (ColumnGuide(3, columns, 10) for _ in range(2))
    trees = [make_tree(rng, np.arange(40), 6) for _ in range(9)]
    for tree in trees:
        one.choose()
        one.add(tree)
    for tree in trees:
        other.add(tree)
    np.testing.assert_array_equal(one.choose(), other.choose())


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("k", [1, 8, 13])
@pytest.mark.parametrize("n", [0, 1, 63, 64, 2049, 5000])
def test_bins_of_chosen_columns(n, k, threads):
    rng = np.random.default_rng(n)
    columns, chosen = rng.integers(0, 64, (20, n)).astype(np.uint8), np.sort(rng.permutation(20)[:k])
    rows = allocate_binned_rows(n, k)
    rows.by_row[:] = rows.by_column[:] = 99  # left by another tree
    gather_columns(columns, chosen, ThreadPool(threads), rows)
    np.testing.assert_array_equal(rows.by_column, columns[chosen])
    np.testing.assert_array_equal(rows.by_row, plain_trees.by_row(columns[chosen]))


def test_few_columns_are_all_candidates():
    columns = np.zeros((5, 10), dtype=np.uint8)
    binned, of_all = BinnedRows(plain_trees.by_row(columns), columns), columns_of([[j] for j in range(5)], 5)
    found = Candidates(binned, of_all, 5, 0)
    assert found.guide is None
    assert found.rows is binned
    for drawn, wanted in zip(found.draw(ONE), of_all.raw_splits(), strict=True):
        np.testing.assert_array_equal(drawn, wanted)


def screen_plainly(columns, is_bundle, g, h, penalty, min_rows):
    q_g, q_h, e_g, e_h = plain_trees.quantise(g, h)
    gains, bins = np.zeros(len(columns)), np.zeros(len(columns))
    for j, column in enumerate(columns):
        found = plain_trees.best_split(
            column[None], is_bundle[j : j + 1], 1, q_g, q_h, np.arange(len(g)), penalty * 2.0**e_h, min_rows
        )
        if found is not None:
            gains[j], bins[j] = found[0] * 2.0 ** (e_h - 2 * e_g), found[2]
    return gains, bins


@pytest.mark.parametrize(
    "settings", [{}, {"c": 1}, {"weights": True}, {"c": 40, "n": 300}, {"n": 3, "c": 4}, {"n": 3000}], ids=str
)
def test_first_gains_are_those_of_single_splits(settings, monkeypatch):
    monkeypatch.setattr(screening, "COLUMNS_AT_A_TIME", 7)
    monkeypatch.setattr(screening, "COLUMNS_PER_ITEM", 2)
    _, columns, is_bundle, g, h, _ = case(**settings)
    wanted = screen_plainly(columns, is_bundle, g, h, 0.5, 5)
    for threads in (1, 3):
        found = screen_columns(columns, is_bundle, g, h, 0.5, 5, ThreadPool(threads), solo)
        np.testing.assert_array_equal(found, wanted)
    if len(g) > 3:
        assert (wanted[0] > 0).any()

    def work(collective):
        rows = np.flatnonzero(np.arange(len(g)) % 5 % 3 == collective.rank)
        own = np.ascontiguousarray(columns[:, rows]), is_bundle, g[rows], h[rows]
        return screen_columns(*own, 0.5, 5, ThreadPool(2), collective.sum)

    for found in in_threads(4, work):  # the last one has no rows
        np.testing.assert_array_equal(found, wanted)
