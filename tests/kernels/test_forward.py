"""Weights, the forward pass and chunks: the fast form of each against the plain formula."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbun.data.features import Entries, Features
from gbun.kernels import chunks, hashed
from gbun.kernels.forward import make_weights, weight_scale
from gbun.networks import simhash
from tests.kernels.kernel_cases import (
    CASES,
    FORMS,
    HUGE,
    ID_TYPES,
    OUTPUTS,
    assert_close,
    entries,
    network,
    outputs,
    plain_forward,
    random_rows,
    typed_cases,
)

# Weights


@pytest.mark.parametrize("density", [1.0, 0.3, 0.001])
@pytest.mark.parametrize("n_outputs", OUTPUTS)
@pytest.mark.parametrize("dtype", ID_TYPES)
def test_filled_tables_are_the_plain_weights(dtype, n_outputs, density):
    ids = np.array([0, 1, 2**31 - 1] + [i for i in (*HUGE, 2**63) if i <= np.iinfo(dtype).max], dtype=dtype)
    states = make_weights(network(n_outputs), Features(0), keep=False).states
    out = np.full((len(ids), len(states)), np.nan, dtype=np.float32)
    hashed.fill_table(states, ids, *weight_scale(density), out)
    np.testing.assert_array_equal(out[:, :n_outputs], simhash.weights(3, 2, ids, n_outputs, density))


# Sparse forward


def forward_by(kernel, sparse, net, density, start=None):
    """Z by one of the three forms, tile by tile; added to `start` where it is given."""
    n, K, states = len(sparse.indptr) - 1, net.family.n_outputs, make_weights(net, Features(0), keep=False).states
    z = np.full((n, K), np.nan, dtype=np.float32)
    for first in range(0, K, hashed.TILE):
        width = min(hashed.TILE, K - first)
        tile = np.full((n, hashed.TILE), np.nan, dtype=np.float32)
        if start is not None:
            tile[:, :width] = start[:, first : first + width]
        kernel(sparse, states[first : first + hashed.TILE], weight_scale(density), start is None, tile)
        z[:, first : first + width] = tile[:, :width]
    return z


def on_the_fly(sparse, states, scale, fresh, tile):
    hashed.forward_on_the_fly(sparse.indptr, sparse.ids, sparse.values, states, *scale, fresh, tile)


def from_a_table(sparse, states, scale, fresh, tile):
    local, features = chunks.index_features(sparse.ids)
    table = np.empty((len(features), hashed.TILE), dtype=np.float32)
    hashed.fill_table(states, features, *scale, table)
    hashed.forward_from_table(sparse.indptr, local, sparse.values, table, fresh, tile)


def in_columns(sparse, states, scale, fresh, tile):
    local, features = chunks.index_features(sparse.ids)
    order = np.argsort(features)
    columns = chunks.sort_by_column(sparse.indptr, np.argsort(order)[local], sparse.values, len(features))
    if fresh:
        tile[:] = 0.0
    hashed.forward_by_column(*columns, features[order], states, *scale, tile)


KERNELS = (on_the_fly, from_a_table, in_columns)


@pytest.mark.parametrize("n_outputs", [3, 8, 64, 259])
@pytest.mark.parametrize(("rows", "dtype"), list(typed_cases()))
def test_all_forms_of_forward_are_the_plain_sum_and_have_the_same_bits(rows, dtype, n_outputs):
    net, ascending = network(n_outputs, density=0.4), [sorted(row) for row in rows]
    for sparse in (entries(rows, dtype), entries(ascending, dtype)):
        z = forward_by(on_the_fly, sparse, net, 0.4)
        assert_close(z, *plain_forward(sparse, net.sparse_weights), n_terms=6000)
        np.testing.assert_array_equal(forward_by(from_a_table, sparse, net, 0.4), z)
        for form in FORMS:
            np.testing.assert_array_equal(outputs(Features(len(rows), sparse=sparse), net, form=form), z)
    assert chunks.rows_are_sorted(sparse.indptr, sparse.ids)
    np.testing.assert_array_equal(forward_by(in_columns, sparse, net, 0.4), z)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("n_outputs", [3, 64, 100])
def test_forward_adds_to_what_is_there_unless_it_begins(n_outputs, kernel):
    sparse, net = entries(CASES["empty rows"]), network(n_outputs)
    start = np.random.default_rng(0).normal(size=(6, n_outputs)).astype(np.float32)
    found = forward_by(kernel, sparse, net, 1.0, start)
    plain, size = plain_forward(sparse, net.sparse_weights)
    assert_close(found, start + plain, np.abs(start) + size, n_terms=10)
    np.testing.assert_array_equal(found[0], start[0])


def test_rows_of_which_only_some_are_asked_for():
    sparse, net = entries([sorted(row) for row in CASES["long rows"] + CASES["empty rows"]]), network(8)
    whole = forward_by(on_the_fly, sparse, net, 1.0)
    entries_ = slice(sparse.indptr[2], sparse.indptr[5])
    part = Entries(sparse.indptr[2:6], sparse.ids[entries_], sparse.values[entries_])
    for kernel in KERNELS:
        np.testing.assert_array_equal(forward_by(kernel, part, net, 1.0), whole[2:5])


@pytest.mark.parametrize("dtype", ID_TYPES)
@pytest.mark.parametrize("m", [1, 3, 12])
def test_revived_outputs_are_heard_in_every_form(m, dtype):
    rows = random_rows([0, 1, 5, 30, 2], m)
    sparse, net = entries(rows, dtype), network(13, n_columns=m, density=0.01)
    revived = net.revived(0.01)
    assert revived
    dead, features, weights = (np.array(v) for v in zip(*revived, strict=True))
    ids, weights = features.astype(np.uint64), weights.astype(np.float32)
    z = np.zeros((5, 13), dtype=np.float32)
    hashed.add_revived(sparse.indptr, sparse.ids, sparse.values, dead, ids, weights, z)
    only = np.zeros((m, 13), dtype=np.float32)
    only[features, dead] = weights
    assert_close(z, *plain_forward(sparse, lambda ids: only[ids]), n_terms=30)
    by_form = [outputs(Features(5, sparse=sparse), net, form=form) for form in FORMS]
    assert_close(by_form[0], *plain_forward(sparse, net.sparse_weights), n_terms=60)
    assert (by_form[0][1:] != 0).any(axis=0).all()
    for z in by_form[1:]:
        np.testing.assert_array_equal(z, by_form[0])


# Chunks and the order of their features


@pytest.mark.parametrize(("rows", "dtype"), list(typed_cases()))
def test_a_dictionary_names_every_feature_once(rows, dtype):
    ids = entries(rows, dtype).ids
    local, features = chunks.index_features(ids)
    np.testing.assert_array_equal(features[local], ids.astype(np.uint64))
    assert len(np.unique(features)) == len(features)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 70))
def test_chunks_cover_the_rows_and_divide_rows_and_entries(lengths, rows):
    indptr = np.cumsum([0, *lengths])
    features = Features(len(lengths), sparse=Entries(indptr, np.zeros(indptr[-1], int), np.ones(indptr[-1])))
    found = chunks.cut_chunks(features, rows)
    assert [i for c in found for i in range(c.start, c.stop)] == list(range(len(lengths)))
    mean = indptr[-1] / max(1, len(lengths))
    for c in found:
        assert 0 < c.stop - c.start <= 2 * rows + 1
        assert indptr[c.stop] - indptr[c.start] <= 2 * mean * rows + max(lengths) + mean


@pytest.mark.parametrize(("K", "C"), [(2, 1), (64, 1), (1024, 1), (256, 1000), (16384, 3)])
def test_chunks_of_all_sizes(K, C):
    for n in (0, 1, 255, 2048, 100_000):
        rows = chunks.rows_in_chunk(n, K, C)
        assert 1 <= rows <= chunks.MAX_CHUNK_ROWS
        assert sum(c.stop - c.start for c in chunks.cut_chunks(Features(n), rows)) == n


def order_of(rows, always=False):
    sparse = entries(rows)
    chunk = chunks.Chunk(slice(0, len(rows)), slice(0, len(sparse.ids)))
    return chunks.choose_order(sparse, chunk, always=always)


def test_the_order_is_chosen_from_counts(monkeypatch):
    few = [[(f, 1.0) for f in range(10)]] * 5
    assert isinstance(order_of(few), chunks.FeatureTable)
    assert order_of([[(5 * i + j, 1.0) for j in range(5)] for i in range(9)]) is None
    assert isinstance(order_of([[(i, 1.0)] for i in range(9)], always=True), chunks.FeatureTable)
    monkeypatch.setattr(chunks, "TABLE_FEATURES", 8)
    assert isinstance(order_of(few), chunks.FeatureColumns)
    backwards = [row[::-1] for row in few]
    assert order_of(backwards) is None
    assert isinstance(order_of(backwards, always=True), chunks.FeatureTable)
