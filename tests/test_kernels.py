"""Kernels: the fast form of each against the plain formula."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbun.data.features import Entries, Features
from gbun.kernels import blocks, dispatch, hashed, portable, products
from gbun.kernels import rows as row_kernels
from gbun.kernels.threads import Scratch
from gbun.networks import simhash
from kernel_cases import (
    CASES,
    FORMS,
    HUGE,
    ID_TYPES,
    OUTPUTS,
    assert_close,
    entries,
    network,
    outputs,
    padded,
    plain_forward,
    random_rows,
    scale,
    typed_cases,
)

# Weights


@pytest.mark.parametrize("density", [1.0, 0.3, 0.001])
@pytest.mark.parametrize("n_outputs", OUTPUTS)
@pytest.mark.parametrize("dtype", ID_TYPES)
def test_filled_tables_are_the_plain_weights(dtype, n_outputs, density):
    ids = np.array([0, 1, 2**31 - 1] + [i for i in (*HUGE, 2**63) if i <= np.iinfo(dtype).max], dtype=dtype)
    states = padded(network(n_outputs).seeds)
    out = np.full((len(ids), len(states)), np.nan, dtype=np.float32)
    hashed.fill_table(states, ids, *scale(density), out)
    np.testing.assert_array_equal(out[:, :n_outputs], simhash.weights(3, 2, ids, n_outputs, density))


# Sparse forward


def tile_by_tile(kernel, z):
    """Run a forward kernel for each tile of outputs."""
    for first in range(0, z.shape[1], hashed.TILE):
        kernel(first)
    return z


def on_the_fly(sparse, net, density, z, fresh=True):
    states = padded(net.seeds)

    def kernel(first):
        own = states[first : first + hashed.TILE]
        where = sparse.indptr, sparse.ids, sparse.values
        hashed.forward_on_the_fly(*where, own, *scale(density), z, first, fresh)

    return tile_by_tile(kernel, z)


def from_a_table(sparse, net, density, z, fresh=True):
    states = padded(net.seeds)
    local, features = blocks.dictionary(sparse.ids, Scratch())
    table = np.empty((len(features), hashed.TILE), dtype=np.float32)

    def kernel(first):
        hashed.fill_table(states[first : first + hashed.TILE], features, *scale(density), table)
        hashed.forward_from_table(sparse.indptr, local, sparse.values, table, z, first, fresh)

    return tile_by_tile(kernel, z)


@pytest.mark.parametrize("n_outputs", [3, 8, 64, 259])
@pytest.mark.parametrize(("rows", "dtype"), list(typed_cases()))
def test_both_forms_of_forward_are_the_plain_sum_and_have_the_same_bits(rows, dtype, n_outputs):
    sparse, net = entries(rows, dtype), network(n_outputs, density=0.4)
    z = on_the_fly(sparse, net, 0.4, np.full((len(rows), n_outputs), np.nan, dtype=np.float32))
    assert_close(z, *plain_forward(sparse, net.sparse_weights), n_terms=6000)
    by_table = from_a_table(sparse, net, 0.4, np.full((len(rows), n_outputs), np.nan, dtype=np.float32))
    np.testing.assert_array_equal(by_table, z)
    for form in FORMS:
        np.testing.assert_array_equal(outputs(Features(len(rows), sparse=sparse), net, form=form), z)


@pytest.mark.parametrize("kernel", [on_the_fly, from_a_table])
@pytest.mark.parametrize("n_outputs", [3, 64, 100])
def test_forward_adds_to_what_is_there_unless_it_begins(n_outputs, kernel):
    sparse, net = entries(CASES["empty rows"]), network(n_outputs)
    start = np.random.default_rng(0).normal(size=(6, n_outputs)).astype(np.float32)
    found = kernel(sparse, net, 1.0, start.copy(), fresh=False)
    plain, size = plain_forward(sparse, net.sparse_weights)
    assert_close(found, start + plain, np.abs(start) + size, n_terms=10)
    np.testing.assert_array_equal(found[0], start[0])


def test_rows_of_which_only_some_are_asked_for():
    sparse, net = entries(CASES["long rows"] + CASES["empty rows"]), network(8)
    whole = on_the_fly(sparse, net, 1.0, np.empty((9, 8), dtype=np.float32))
    begin = sparse.indptr[2]
    part = Entries(sparse.indptr[2:6], sparse.ids[begin:], sparse.values[begin:])
    for kernel in (on_the_fly, from_a_table):
        np.testing.assert_array_equal(kernel(part, net, 1.0, np.empty((3, 8), dtype=np.float32)), whole[2:5])


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
    hashed.forward_revived(sparse.indptr, sparse.ids, sparse.values, dead, ids, weights, z)
    only = np.zeros((m, 13), dtype=np.float32)
    only[features, dead] = weights
    assert_close(z, *plain_forward(sparse, lambda ids: only[ids]), n_terms=30)
    by_form = [outputs(Features(5, sparse=sparse), net, form=form) for form in FORMS]
    assert_close(by_form[0], *plain_forward(sparse, net.sparse_weights), n_terms=60)
    assert (by_form[0][1:] != 0).any(axis=0).all()
    for z in by_form[1:]:
        np.testing.assert_array_equal(z, by_form[0])


# Dictionaries and cuts


@pytest.mark.parametrize("dtype", ID_TYPES)
@pytest.mark.parametrize("name", ["one row", "long rows", "empty rows", "duplicates", "unsorted", "huge ids"])
def test_a_dictionary_names_every_feature_once(name, dtype):
    if name == "huge ids" and dtype == np.int32:
        pytest.skip("they do not fit")
    ids = entries(CASES[name], dtype).ids
    scratch = Scratch()
    for _ in range(2):  # the second time finds the first one's slots
        local, features = blocks.dictionary(ids, scratch)
        np.testing.assert_array_equal(features[local], ids.astype(np.uint64))
        assert len(np.unique(features)) == len(features)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=60), st.integers(1, 70), st.integers(0, 9))
def test_blocks_cover_the_rows_of_a_chunk_and_share_its_entries(lengths, most, before):
    indptr = np.cumsum([0, *[1] * before, *lengths])
    features = Features(len(indptr) - 1, sparse=Entries(indptr, np.zeros(indptr[-1], int), np.ones(indptr[-1])))
    chunk = slice(before, before + len(lengths))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "ENTRIES", most)
        found = blocks.cut(features, chunk)
    assert [b.rows.start for b in found] == [before, *(b.rows.stop for b in found[:-1])]
    assert found[-1].rows.stop == chunk.stop
    for block in found:
        assert block.entries == slice(indptr[block.rows.start], indptr[block.rows.stop])
        # a block is about as large as it may be, or has one row too many
        assert block.entries.stop - block.entries.start <= most + max(lengths)


@pytest.mark.parametrize("n", [0, 1, 255, 2048, 100_000])
@pytest.mark.parametrize(("K", "C"), [(2, 1), (64, 1), (1024, 1), (256, 1000), (16384, 3)])
def test_chunks_cover_the_rows(n, K, C):
    chunks = blocks.row_chunks(n, K, C)
    assert [i for c in chunks for i in range(c.start, c.stop)] == list(range(n))
    assert all(c.stop > c.start for c in chunks)


# Row by row


def test_powers_of_two_are_within_their_stated_error():
    x = np.concatenate([-np.logspace(-30, np.log10(126), 2**20), -np.linspace(0, 126, 2**20)]).astype(np.float32)
    found = x.copy()
    row_kernels.powers_of_two(found)
    assert np.abs(found / 2.0 ** x.astype(np.float64) - 1).max() < 1.2e-7
    low = np.array([-126.0, -127.0, -1e30, -np.inf] * 2, dtype=np.float32)
    row_kernels.powers_of_two(low)
    np.testing.assert_array_equal(low, np.float32(2.0**-126))


@pytest.mark.parametrize("width", [2, 3, 5, 8, 16, 24, 64, 100, 1000])
@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("n", [0, 1, 70])
def test_memberships_are_the_plain_softmax(n, groups, width):
    rng = np.random.default_rng(width)
    K = groups * width
    z, centre = rng.normal(size=(n, K)).astype(np.float32) * 3, rng.normal(size=K).astype(np.float32)
    factor = rng.random(K).astype(np.float32)
    found = z.copy()
    row_kernels.memberships(found, centre, factor * dispatch.PER_LOG_2, width)
    wanted = portable.memberships(z.astype(np.float64), centre, factor, width)
    np.testing.assert_allclose(found, wanted, rtol=5e-6)


def test_memberships_of_extreme_outputs_are_finite():
    z = np.random.default_rng(0).normal(size=(50, 12)).astype(np.float32)
    z[:, 0], z[:, 1] = 1e30, -1e30
    row_kernels.memberships(z, np.zeros(12, dtype=np.float32), np.ones(12, dtype=np.float32), 12)
    np.testing.assert_allclose(z, np.eye(12)[[0] * 50], atol=1e-37)


@pytest.mark.parametrize("n", [0, 1, 127, 300])
@pytest.mark.parametrize("K", [1, 7, 8, 64, 83])
def test_sums_over_rows(n, K):
    rng = np.random.default_rng(n + K)
    z, weight = (rng.normal(size=(n, K)) * np.logspace(-3, 3, K) + 1.0).astype(np.float32), rng.random(n)
    sums = np.zeros((2, K))
    cut = K // 16 * 8
    row_kernels.add_moments(z, 0, cut, weight, sums)
    row_kernels.add_moments(z, cut, K, weight, sums)
    np.testing.assert_allclose(sums, portable.moments(z, weight), rtol=1e-12)
    g, found = rng.normal(size=n).astype(np.float32), np.ones(K)
    row_kernels.add_gradient_sums(z, g, found)
    np.testing.assert_allclose(found, 1.0 + z.T.astype(np.float64) @ g, rtol=0, atol=2e-5 * (1 + np.abs(z).sum()))
    picked, root = rng.permutation(n)[: n // 2], rng.random(n // 2).astype(np.float32)
    q = np.full((n // 2, K), np.nan, dtype=np.float32)
    row_kernels.scaled_rows(z, picked, root, q)
    np.testing.assert_array_equal(q, z[picked] * root[:, None])


@pytest.mark.parametrize("n_outputs", [1, 2, 3, 8, 13, 64, 259])
def test_dots(n_outputs):
    rng = np.random.default_rng(n_outputs)
    P, w = rng.normal(size=(23, n_outputs)).astype(np.float32), rng.normal(size=n_outputs).astype(np.float32)
    scores = np.ones((23, 1))
    row_kernels.add_dots(P, w, scores)
    P64, w64 = P.astype(np.float64), w.astype(np.float64)
    assert_close((scores[:, 0] - 1.0).astype(np.float32), P64 @ w64, 1 + np.abs(P64) @ np.abs(w64), n_outputs)
    for i in range(23):
        alone = np.ones((1, 1))
        row_kernels.add_dots(P[i : i + 1], w, alone)
        assert alone[0, 0] == scores[i, 0]


# Products


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 130), st.sampled_from([0, 1, 5, 11, 400]), st.sampled_from([1, 16, 40, *OUTPUTS]), st.integers(0, 99)
)
def test_products(n, m, n_outputs, seed):
    rng = np.random.default_rng(seed)
    X, W, Z = (rng.normal(size=s).astype(np.float32) for s in ((n, m), (m, n_outputs), (n, n_outputs)))
    W[rng.random(W.shape) < 0.7] = 0.0
    found = Z.copy()
    products.multiply_add(X, products.panels_of(W), found)
    X64, W64, Z64 = (a.astype(np.float64) for a in (X, W, Z))
    assert_close(found, Z64 + X64 @ W64, np.abs(Z64) + np.abs(X64) @ np.abs(W64), m + 1)
    # each element is one chain from left to right: columns in two helpings are the same bits
    cut = m // 2
    twice = Z.copy()
    for part in (slice(0, cut), slice(cut, m)):
        products.multiply_add(np.ascontiguousarray(X[:, part]), products.panels_of(W[part]), twice)
    np.testing.assert_array_equal(twice, found)
    # terms that are zero add nothing
    sparse = Z.copy()
    products.multiply_add_sparse(X, *products.non_zeros_by_output(W), sparse)
    np.testing.assert_array_equal(sparse, found)
