"""Held-out rows and folds: they depend on the content of a row, not on its position."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from gbun.collectives import Solo
from gbun.data.features import Features
from gbun.data.ingest import ingest
from gbun.splits import choose_held_out, hash_folds
from tests.data.test_scaling import Team, parts_of_rows


def data(n=200, noise=2.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)).astype(np.float32)
    return X, X[:, 0] * X[:, 1] + X[:, 2] + noise * rng.normal(size=n)


def held(X, y, weight=None, fraction=0.1, seed=0, by_class=False, collective=None):
    weight = np.ones(len(y)) if weight is None else weight
    features = X if isinstance(X, Features) else ingest(X)[0]
    return choose_held_out(features, np.asarray(y, dtype=float), weight, fraction, seed, by_class, collective or Solo())


@settings(max_examples=40, deadline=None)
@given(st.integers(100, 300), st.floats(0.05, 0.95), st.integers(0, 2**62), st.booleans())
def test_as_many_rows_are_held_out_of_each_class_as_the_fraction_says(n, fraction, seed, by_class):
    X = np.random.default_rng(n).normal(size=(n, 2))
    y = (np.arange(n) % 5).clip(max=2)  # a fifth, a fifth, the rest
    found = held(X, y, None, fraction, seed, by_class)
    for rows in [y == c for c in range(3)] if by_class else [y >= 0]:
        assert found[rows].sum() == int(fraction * rows.sum() * (1 + 1e-9))


@pytest.mark.parametrize("by_class", [True, False])
def test_the_content_of_a_row_decides_and_not_its_position(by_class):
    X, y = data()
    X[X < -0.5] = 0.0
    y = (y > 0).astype(int)
    wanted = held(X, y, by_class=by_class)
    order = np.random.default_rng(1).permutation(len(y))
    np.testing.assert_array_equal(held(X[order], y[order], by_class=by_class), wanted[order])
    np.testing.assert_array_equal(held(scipy.sparse.csr_array(X), y, by_class=by_class), wanted)
    assert (held(X, y, seed=1, by_class=by_class) != wanted).any()


def test_equal_rows_stay_together_and_weights_count_rows():
    X, y = data(60)
    times = np.random.default_rng(1).integers(0, 6, size=60)
    repeated = np.repeat(np.arange(60), times)
    weighted = held(X, y, times.astype(float), fraction=0.3)
    np.testing.assert_array_equal(held(X[repeated], y[repeated], fraction=0.3), weighted[repeated])
    share = (times * weighted).sum() / times.sum()
    assert 0.3 - 5 / times.sum() <= share <= 0.3
    fold = hash_folds(ingest(X[repeated])[0], y[repeated], 0, 5)
    np.testing.assert_array_equal(fold, hash_folds(ingest(X)[0], y, 0, 5)[repeated])
    sizes = np.bincount(hash_folds(ingest(data(5000)[0])[0], np.zeros(5000), 0, 5), minlength=5)
    assert (abs(sizes - 1000) < 5 * np.sqrt(800)).all()


def test_rows_that_cannot_be_divided():
    X, y = data(30)
    assert held(np.ones((30, 2)), np.zeros(30)) is None
    assert held(X[:1], y[:1], fraction=0.9) is None
    assert held(X[:9], y[:9]) is None  # a tenth of nine rows is none
    assert held(X, y, np.eye(30)[4]) is None  # all the weight on one row
    few_of_each = np.arange(30) % 6  # no class could spare a tenth
    assert held(X, few_of_each, by_class=True).sum() == 3


@pytest.mark.parametrize("by_class", [True, False])
def test_any_division_among_workers_holds_out_the_same_rows(by_class):
    X, y = data(100)
    y, weight = (y > 1).astype(float), np.random.default_rng(1).integers(0, 3, size=100).astype(float)
    features, wanted = ingest(X)[0], held(X, y, weight, by_class=by_class)
    for n_parts in (1, 2, 3, 7):
        team = Team(n_parts)
        found = team.run(
            lambda rows, c: held(features.take(rows), y[rows], weight[rows], by_class=by_class, collective=c),
            parts_of_rows(100, n_parts),
        )
        np.testing.assert_array_equal(np.concatenate(found), wanted)
        assert team.shapes <= {(1,), (2,)}  # a number for each class, or two
