"""The transposed weights of networks, against the recipe of the weights."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from gbun.data.features import Entries
from gbun.explain.gradients import add_dense, add_transposed, sort_by_feature
from gbun.kernels.hashed import TILE
from gbun.learners import NetworkPartition
from gbun.networks import Family
from gbun.solve import Normaliser

SCORES, ROWS = 3, 9


def make_partition(n_outputs, density, n_columns=None):
    normaliser = Normaliser(np.zeros(n_outputs, np.float32), np.ones(n_outputs, np.float32))
    family = Family(0, n_outputs, density, density, n_columns=n_columns)
    return NetworkPartition(family.draw(3), normaliser)


def make_slopes(n_outputs):
    slopes = np.zeros((ROWS, SCORES, -(-n_outputs // TILE) * TILE), dtype=np.float32)
    slopes[:, :, :n_outputs] = np.random.default_rng(1).normal(size=(ROWS, SCORES, n_outputs))
    return slopes


@pytest.mark.parametrize("n_outputs", [5, 64, 130])
@pytest.mark.parametrize(("density", "n_columns"), [(1.0, None), (0.01, 40)])
@pytest.mark.parametrize("scale", [1, 2**33])
def test_sparse_features(n_outputs, density, n_columns, scale):
    if n_columns is not None and scale > 1:
        pytest.skip("ids are below the number of columns")
    partition, slopes = make_partition(n_outputs, density, n_columns), make_slopes(n_outputs)
    X = scipy.sparse.random_array((ROWS, 40), density=0.3, rng=np.random.default_rng(0), format="csr")
    entries = Entries(X.indptr.astype(np.int64), X.indices.astype(np.int64) * scale, X.data.astype(np.float32))
    columns, order = sort_by_feature(entries)
    np.testing.assert_array_equal(columns.values, entries.values[order])
    sums, found = np.zeros((X.nnz, SCORES), dtype=np.float32), np.empty((X.nnz, SCORES))
    add_transposed(partition, columns, slopes, sums)
    found[order] = sums
    weights = partition.network.sparse_weights(entries.ids.astype(np.uint64)).astype(float)
    wanted = np.einsum("ek,eck->ec", weights, slopes[entries.row_of_entry, :, :n_outputs])
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.sqrt(n_outputs))
    assert n_columns is None or partition.network.revived(density)


def test_no_entries():
    columns, order = sort_by_feature(Entries(np.zeros(ROWS + 1, np.int64), np.zeros(0, np.int64), np.zeros(0)))
    add_transposed(make_partition(5, 1.0), columns, make_slopes(5), np.zeros((0, SCORES), dtype=np.float32))
    assert len(order) == 0


@pytest.mark.parametrize("limit", [2**23, 12])
def test_dense_columns(monkeypatch, limit):
    monkeypatch.setattr("gbun.explain.gradients.TABLE_LIMIT", limit)
    partition, slopes = make_partition(5, 0.1, 7), make_slopes(5)[:, :, :5]
    X, out = np.random.default_rng(2).normal(size=(ROWS, 7)).astype(np.float32), np.ones((ROWS, 7, SCORES))
    add_dense(partition, X, slopes, out)
    weights = partition.network.column_weights(np.arange(7, dtype=np.uint64))
    np.testing.assert_allclose(out, 1.0 + X[:, :, None] * np.einsum("jk,nck->njc", weights, slopes), atol=1e-5)
