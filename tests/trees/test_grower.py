import multiprocessing
import os
import subprocess
import sys
import threading
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest

from gbun.kernels.threads import ThreadPool, thread_pool
from gbun.trees import grower as grower_module
from gbun.trees.grower import Grower
from gbun.trees.leaf_sums import leaf_sums
from tests.trees import plain_trees

BUNDLES = (4, 6)


@pytest.fixture(autouse=True)
def always_in_threads(monkeypatch):
    monkeypatch.setattr(grower_module, "MIN_MOVES", 0)


def no_reduce(array):
    raise AssertionError("one process has nobody to sum with")


def case(n=700, c=11, p=0, seed=0, weights=False, categories=0):
    by_row, columns = plain_trees.make_rows(n, c, seed, bundles=[j for j in BUNDLES if j < c])
    g, h = plain_trees.make_derivatives(columns, seed)
    if weights:
        w = np.random.default_rng(seed).choice([0.0, 1.0, 2.5], n).astype(np.float32)
        g, h = g * w, h * w
    is_bundle = np.isin(np.arange(c), BUNDLES)
    projections = plain_trees.make_rows(n, p, seed + 1, projections=True) if p else (None, None)
    if categories:
        _, more = plain_trees.make_rows(n, categories, seed + 2)
        g = g + np.cos(more[0] * 2.0).astype(np.float32) * (g != 0)
        columns, is_bundle = np.concatenate([columns, more]), np.append(is_bundle, np.zeros(categories, dtype=bool))
        by_row = plain_trees.by_row(columns)
    return by_row, columns, is_bundle, g, h, projections


def grow(
    some, n_threads=1, n_leaves=12, min_rows=5, penalty=1.0, rows=slice(None), reduce=no_reduce, n_processes=1,
    categories=0, **more,
):  # fmt: skip
    _, columns, is_bundle, g, h, projections = some
    own = np.ascontiguousarray(columns[:, rows])
    extra = (None, None)
    if projections[1] is not None:
        extra = projections[1][:, rows]
        extra = plain_trees.by_row(extra), np.ascontiguousarray(extra)
    with thread_pool(n_threads) as threads:
        width = 0 if extra[1] is None else len(extra[1])
        grower = Grower(plain_trees.by_row(own), own, is_bundle, threads, n_leaves, min_rows, width, categories)
        return grower.grow(g[rows], h[rows], penalty, reduce, n_processes, *extra, **more)


def assert_same(a, b):
    assert a.n_leaves == b.n_leaves
    np.testing.assert_array_equal(a.nodes, b.nodes)
    np.testing.assert_array_equal(a.sum_g, b.sum_g)
    np.testing.assert_array_equal(a.sum_h, b.sum_h)


def assert_as_plain(some, found, n_leaves=12, min_rows=5, penalty=1.0, categories=0):
    _, columns, is_bundle, g, h, (_, projections) = some
    nodes, leaf_of_row, sums = plain_trees.grow(
        columns, is_bundle, g, h, penalty, n_leaves, min_rows, projections, categories
    )
    assert [tuple(node) for node in found.nodes.tolist()] == [(*node[:5], float(node[5]), node[6]) for node in nodes]
    np.testing.assert_array_equal(found.leaf_of_row, leaf_of_row)
    np.testing.assert_array_equal([found.sum_g, found.sum_h], sums)
    np.testing.assert_array_equal(found.n_rows, np.bincount(leaf_of_row, minlength=found.n_leaves))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"c": 1},
        {"c": 2, "n": 100},
        {"c": 8},
        {"c": 70, "n": 300},
        {"p": 5},
        {"c": 3, "p": 9},
        {"weights": True},
        {"n": 3000, "c": 5},
    ],
    ids=str,
)
@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_trees_are_those_of_the_plain_rule(settings, n_threads):
    some = case(**settings)
    found = grow(some, n_threads)
    assert found.n_leaves > 2
    assert_as_plain(some, found)


@pytest.mark.parametrize("settings", [{}, {"c": 2, "p": 3}, {"weights": True}, {"n": 4000, "c": 1}], ids=str)
@pytest.mark.parametrize("n_threads", [1, 3])
def test_trees_with_categories_are_those_of_the_plain_rule(settings, n_threads):
    some = case(**settings, categories=3)
    found = grow(some, n_threads, 25, categories=3)
    assert np.count_nonzero(found.nodes["mask"]) > 1
    assert_as_plain(some, found, 25, categories=3)


# More than 256 leaves are numbered by other integers, for which kernels are compiled again.
@pytest.mark.parametrize(
    ("n_leaves", "min_rows", "penalty"), [*product([1, 2, 3, 31], [0, 1, 40], [0.0, 1.0, 30.0]), (300, 0, 0.0)]
)
def test_leaves_rows_and_penalty(n_leaves, min_rows, penalty):
    some = case(n=400, c=4)
    found = grow(some, 2, n_leaves, min_rows, penalty)
    assert found.n_leaves <= n_leaves
    assert_as_plain(some, found, n_leaves, min_rows, penalty)


@pytest.mark.parametrize("n_workers", [1, 2, 3, 7])
@pytest.mark.parametrize("cuts", ["even", "skewed", "empty"])
@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("categories", [0, 2])
def test_any_division_among_workers_gives_the_same_tree(n_workers, cuts, n_threads, categories):
    some = case(n=1200, c=11, p=4, weights=True, categories=categories)
    alone = grow(some, 1, 20, categories=categories)
    ends = np.linspace(0, 1200, n_workers + 1).astype(int)
    if cuts == "skewed":
        ends[1:-1] = np.arange(1, n_workers)
    elif cuts == "empty":
        ends[1:-1] = 0
    shares = [slice(int(a), int(b)) for a, b in pairwise(ends)]

    def job(worker, reduce):
        # With one worker, too, the steps are driven from Python.
        share = {"rows": shares[worker], "reduce": reduce, "n_processes": max(2, n_workers)}
        return grow(some, n_threads, 20, categories=categories, **share)

    trees = plain_trees.among_workers(n_workers, job)
    for tree in trees:
        assert_same(tree, alone)
    np.testing.assert_array_equal(np.concatenate([tree.leaf_of_row for tree in trees]), alone.leaf_of_row)
    np.testing.assert_array_equal(sum(tree.n_rows for tree in trees), alone.n_rows)


@pytest.mark.parametrize("n_workers", [1, 2, 3])
def test_a_relative_penalty_is_a_share_of_the_sum_of_all_workers(n_workers):
    some = case(n=900, p=4, weights=True)
    with thread_pool(1) as threads:
        every = np.zeros(900, dtype=np.uint8)
        total = leaf_sums(some[4][:, None], every, 1, threads, lambda array: array)[0, 0]
    ends = np.linspace(0, 900, n_workers + 1).astype(int)

    def job(worker, reduce):
        rows = slice(ends[worker], ends[worker + 1])
        return grow(some, penalty=0.3, rows=rows, reduce=reduce, n_processes=n_workers, relative=True)

    wanted = grow(some, penalty=0.3 * (total / 12))
    assert_same(grow(some, 3, penalty=0.3, relative=True), wanted)
    for tree in plain_trees.among_workers(n_workers, job):
        assert_same(tree, wanted)


def test_more_leaves_than_were_grown_before_and_other_projections():
    by_row, columns, is_bundle, g, h, projections = case(n=900, p=8)
    few = plain_trees.by_row(projections[1][:3]), np.ascontiguousarray(projections[1][:3])
    with thread_pool(2) as threads:
        grower = Grower(by_row, columns, is_bundle, threads, 12, 5, 8)
        for own in (projections, few, (None, None), projections):  # what is kept from tree to tree fits each
            found = grower.grow(g, h, 1.0, no_reduce, 1, *own)
            assert_as_plain((by_row, columns, is_bundle, g, h, own), found)


def test_rows_of_weight_zero_change_nothing():
    some = case(n=900, weights=True)
    kept = np.flatnonzero(some[4] > 0)
    assert 0 < len(kept) < 900
    assert_same(grow(some), grow(some, rows=kept))


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 1e30])
def test_sizes_of_gradients_do_not_matter(scale):
    by_row, columns, is_bundle, g, h, _ = case()
    some = by_row, columns, is_bundle, g * np.float32(scale), h, (None, None)
    found = grow(some, penalty=0.0)
    assert_as_plain(some, found, penalty=0.0)


def test_nothing_to_split():
    by_row, columns, is_bundle, g, h, none = case()
    for gradients, hessians in ((g * 0, h), (g * 0 + 2, h * 0 + 1), (g * 0, h * 0), (g, h * 0)):
        found = grow((by_row, columns, is_bundle, gradients, hessians, none), 2)
        assert found.n_leaves == 1
        assert len(found.nodes) == 0
        assert not found.leaf_of_row.any()
    flat = np.ones_like(columns)
    assert grow((plain_trees.by_row(flat), flat, is_bundle, g, h, none)).n_leaves == 1


@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_rows(n):
    some = case(n=n)
    assert grow(some, 3, min_rows=1).n_leaves <= max(1, n)


def test_no_columns():
    g, h = plain_trees.make_derivatives(np.ones((1, 50), dtype=np.uint8))
    nothing = np.empty((0, 50), dtype=np.uint8)
    found = grow((None, nothing, np.empty(0, dtype=bool), g, h, (None, None)), 2)
    assert found.n_leaves == 1
    assert found.sum_h[0] == pytest.approx(h.sum(), rel=1e-3)


@pytest.mark.parametrize("n_processes", [1, 2])
def test_numbers_that_are_not_finite_are_refused_by_all(n_processes):
    by_row, columns, is_bundle, g, h, none = case()
    for bad_g, bad_h in ((np.nan, 1.0), (np.inf, 1.0), (1.0, -np.inf), (1.0, np.nan), (1.0, -1.0)):
        worse_g, worse_h = g.copy(), h.copy()
        worse_g[5], worse_h[5] = bad_g, bad_h
        some = by_row, columns, is_bundle, worse_g, worse_h, none
        with pytest.raises(ValueError, match="finite numbers"):
            grow(some, 2, n_processes=n_processes, reduce=lambda array: array)


def test_sums_are_close_to_those_of_the_numbers():
    some = case(n=3000)
    found = grow(some)
    for k in range(found.n_leaves):
        rows = found.leaf_of_row == k
        assert found.sum_g[k] == pytest.approx(some[3][rows].sum(dtype=np.float64), abs=0.05)
        assert found.sum_h[k] == pytest.approx(some[4][rows].sum(dtype=np.float64), abs=0.05)


def test_arrays_that_do_not_fit_are_refused():
    by_row, columns, is_bundle, g, h, _ = case()
    with thread_pool(1) as threads:
        for rows, cols in ((by_row[:, :8], columns), (by_row[1:], columns), (by_row, columns.astype(np.int64))):
            with pytest.raises(ValueError, match="binned rows"):
                Grower(rows, cols, is_bundle, threads, 5, 1)
        with pytest.raises(ValueError, match="is_bundle"):
            Grower(by_row, columns, is_bundle[1:], threads, 5, 1)
        with pytest.raises(ValueError, match="n_leaves"):
            Grower(by_row, columns, is_bundle, threads, 0, 1)
        grower = Grower(by_row, columns, is_bundle, threads, 5, 1)
        with pytest.raises(ValueError, match="rows"):
            grower.grow(g[1:], h[1:], 1.0, no_reduce, 1)
        with pytest.raises(ValueError, match="projections"):
            grower.grow(g, h, 1.0, no_reduce, 1, by_row, columns)


def test_several_growers_at_once_that_share_a_pool():
    some = case(n=2000)
    alone, found = grow(some), [None] * 4
    with thread_pool(3) as threads:

        def work(k):
            grower = Grower(*some[:3], threads, 12, 5)
            for _ in range(20):
                found[k] = grower.grow(*some[3:5], 1.0, no_reduce, 1)

        workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    for tree in found:
        assert_same(tree, alone)


def test_threads_that_never_come_are_not_waited_for():
    some, alone = case(), grow(case())
    threads, block = ThreadPool(2), threading.Event()
    threads._pool.submit(block.wait)
    try:
        assert_same(Grower(*some[:3], threads, 12, 5).grow(*some[3:5], 1.0, no_reduce, 1), alone)
    finally:
        block.set()
        threads.close()


def _grow_and_send(connection):
    found = grow(case(n=2000), 2)
    connection.send((found.nodes, found.sum_g))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_grows_again():
    alone = grow(case(n=2000), 2)
    context = multiprocessing.get_context("fork")
    mine, other = context.Pipe()
    child = context.Process(target=_grow_and_send, args=(other,))
    child.start()
    assert mine.poll(60)
    nodes, sum_g = mine.recv()
    child.join(60)
    assert child.exitcode == 0
    np.testing.assert_array_equal(nodes, alone.nodes)
    np.testing.assert_array_equal(sum_g, alone.sum_g)


CHECKED = """
import numpy as np
from tests.trees.test_grower import assert_as_plain, case, grow
for p in (0, 5):
    some = case(n=300, c=11, p=p)
    assert_as_plain(some, grow(some))
    assert_as_plain(some, grow(some, reduce=lambda array: array, n_processes=2))
    some = case(n=300, c=5, p=p, categories=2)
    assert_as_plain(some, grow(some, categories=2), categories=2)
from gbun.trees.forest import add_trees, find_leaves
from tests.trees.test_forest import make_tree, plain_leaves
tree = make_tree(9, 4, 0)
X = np.random.default_rng(0).normal(size=(300, 4))
assert (find_leaves(tree, X, np.zeros(4, dtype=np.float32)) == plain_leaves(tree, X, np.zeros(4))).all()
"""


@pytest.mark.slow
def test_no_kernel_leaves_its_arrays(tmp_path):
    path = os.pathsep.join(path for path in sys.path if path)
    root = str(Path(__file__).parents[2])
    env = {
        **os.environ,
        "NUMBA_BOUNDSCHECK": "1",
        "NUMBA_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": root + os.pathsep + path,
    }
    subprocess.run([sys.executable, "-c", CHECKED], env=env, check=True, timeout=600, cwd=root)
