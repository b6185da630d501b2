"""Kernels: the fast form of each against the plain formula."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbun.data.features import Entries, Features
from gbun.kernels import chunks, dispatch, hashed, portable, products
from gbun.kernels import rows as row_kernels
from gbun.kernels.threads import aligned
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


def forward_by(kernel, sparse, net, density, start=None):
    """Z by one of the three forms, tile by tile; added to `start` where it is given."""
    n, K, states = len(sparse.indptr) - 1, net.family.n_outputs, padded(net.seeds)
    z = np.full((n, K), np.nan, dtype=np.float32)
    for first in range(0, K, hashed.TILE):
        width = min(hashed.TILE, K - first)
        tile = np.full((n, hashed.TILE), np.nan, dtype=np.float32)
        if start is not None:
            tile[:, :width] = start[:, first : first + width]
        kernel(sparse, states[first : first + hashed.TILE], scale(density), start is None, tile)
        z[:, first : first + width] = tile[:, :width]
    return z


def on_the_fly(sparse, states, scale, fresh, tile):
    hashed.forward_on_the_fly(sparse.indptr, sparse.ids, sparse.values, states, *scale, fresh, tile)


def from_a_table(sparse, states, scale, fresh, tile):
    local, features = chunks.dictionary(sparse.ids)
    table = np.empty((len(features), hashed.TILE), dtype=np.float32)
    hashed.fill_table(states, features, *scale, table)
    hashed.forward_from_table(sparse.indptr, local, sparse.values, table, fresh, tile)


def in_columns(sparse, states, scale, fresh, tile):
    local, features = chunks.dictionary(sparse.ids)
    order = np.argsort(features)
    columns = chunks.by_column(sparse.indptr, local, sparse.values, np.argsort(order).astype(np.int32))
    if fresh:
        tile[:] = 0.0
    hashed.forward_by_column(*columns, features[order], states, *scale, tile)


KERNELS = (on_the_fly, from_a_table, in_columns)


@pytest.mark.parametrize("n_outputs", [3, 8, 64, 259])
@pytest.mark.parametrize(("rows", "dtype"), list(typed_cases()))
def test_all_forms_of_forward_are_the_plain_sum_and_have_the_same_bits(rows, dtype, n_outputs):
    sparse, net = entries(rows, dtype), network(n_outputs, density=0.4)
    z = forward_by(on_the_fly, sparse, net, 0.4)
    assert_close(z, *plain_forward(sparse, net.sparse_weights), n_terms=6000)
    np.testing.assert_array_equal(forward_by(from_a_table, sparse, net, 0.4), z)
    if chunks.rows_are_sorted(sparse.indptr, sparse.ids):
        np.testing.assert_array_equal(forward_by(in_columns, sparse, net, 0.4), z)
    for form in FORMS:
        np.testing.assert_array_equal(outputs(Features(len(rows), sparse=sparse), net, form=form), z)


@pytest.mark.parametrize("dtype", ID_TYPES)
@pytest.mark.parametrize("n_outputs", [3, 64, 259])
@pytest.mark.parametrize("lengths", [[7], [0], [1] * 9, [3000, 1, 2999], [0, 3, 0, 0, 5, 0]])
def test_columns_of_ascending_rows_with_duplicates(lengths, n_outputs, dtype):
    sparse, net = entries([sorted(row) for row in random_rows(lengths, 900)], dtype), network(n_outputs, density=0.4)
    z = forward_by(in_columns, sparse, net, 0.4)
    assert_close(z, *plain_forward(sparse, net.sparse_weights), n_terms=6000)
    np.testing.assert_array_equal(z, forward_by(on_the_fly, sparse, net, 0.4))


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
    hashed.forward_revived(sparse.indptr, sparse.ids, sparse.values, dead, ids, weights, z)
    only = np.zeros((m, 13), dtype=np.float32)
    only[features, dead] = weights
    assert_close(z, *plain_forward(sparse, lambda ids: only[ids]), n_terms=30)
    by_form = [outputs(Features(5, sparse=sparse), net, form=form) for form in FORMS]
    assert_close(by_form[0], *plain_forward(sparse, net.sparse_weights), n_terms=60)
    assert (by_form[0][1:] != 0).any(axis=0).all()
    for z in by_form[1:]:
        np.testing.assert_array_equal(z, by_form[0])


# Chunks and the order of their features


@pytest.mark.parametrize("dtype", ID_TYPES)
@pytest.mark.parametrize("name", ["one row", "long rows", "empty rows", "duplicates", "unsorted", "huge ids"])
def test_a_dictionary_names_every_feature_once(name, dtype):
    if name == "huge ids" and dtype == np.int32:
        pytest.skip("they do not fit")
    ids = entries(CASES[name], dtype).ids
    local, features = chunks.dictionary(ids)
    np.testing.assert_array_equal(features[local], ids.astype(np.uint64))
    assert len(np.unique(features)) == len(features)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 70))
def test_chunks_cover_the_rows_and_divide_rows_and_entries(lengths, rows):
    indptr = np.cumsum([0, *lengths])
    features = Features(len(lengths), sparse=Entries(indptr, np.zeros(indptr[-1], int), np.ones(indptr[-1])))
    found = chunks.cut(features, rows)
    assert [i for c in found for i in range(c.start, c.stop)] == list(range(len(lengths)))
    mean = indptr[-1] / max(1, len(lengths))
    for c in found:
        assert 0 < c.stop - c.start <= 2 * rows + 1
        assert indptr[c.stop] - indptr[c.start] <= 2 * mean * rows + max(lengths) + mean


@pytest.mark.parametrize(("K", "C"), [(2, 1), (64, 1), (1024, 1), (256, 1000), (16384, 3)])
def test_chunks_of_all_sizes(K, C):
    for n in (0, 1, 255, 2048, 100_000):
        rows = chunks.rows_in_chunk(n, K, C)
        assert 1 <= rows <= chunks.MOST_ROWS
        assert sum(c.stop - c.start for c in chunks.cut(Features(n), rows)) == n


def order_of(rows, always=False):
    sparse = entries(rows)
    chunk = chunks.Chunk(slice(0, len(rows)), slice(0, len(sparse.ids)))
    return chunks.best_order(sparse, chunk, always=always)


def test_the_order_is_chosen_from_counts(monkeypatch):
    few = [[(f, 1.0) for f in range(10)]] * 5
    assert isinstance(order_of(few), chunks.Table)
    assert order_of([[(5 * i + j, 1.0) for j in range(5)] for i in range(9)]) is None
    assert isinstance(order_of([[(i, 1.0)] for i in range(9)], always=True), chunks.Table)
    monkeypatch.setattr(chunks, "TABLE_FEATURES", 8)
    assert isinstance(order_of(few), chunks.Columns)
    backwards = [row[::-1] for row in few]
    assert order_of(backwards) is None
    assert isinstance(order_of(backwards, always=True), chunks.Table)


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
    sums = np.zeros((2, K + 5))
    row_kernels.add_moments(z, weight, sums, 3, K)
    np.testing.assert_allclose(sums[:, 3 : 3 + K], portable.moments(z, weight), rtol=1e-12)
    assert not sums[:, :3].any()
    assert not sums[:, K + 3 :].any()
    g, found = rng.normal(size=n).astype(np.float32), np.ones(K)
    row_kernels.add_gradient_sums(z, g, found)
    np.testing.assert_allclose(found, 1.0 + z.T.astype(np.float64) @ g, rtol=0, atol=2e-5 * (1 + np.abs(z).sum()))
    picked, root = np.sort(rng.permutation(n)[: n // 2]), rng.random(n // 2).astype(np.float32)
    q = np.full((n // 2, K), np.nan, dtype=np.float32)
    row_kernels.scaled_rows(z, picked, root, q)
    np.testing.assert_array_equal(q, z[picked] * root[:, None])


@pytest.mark.parametrize("past_caches", [False, True])
@pytest.mark.parametrize(("K", "first"), [(64, 0), (128, 64), (200, 192), (104, 64)])
def test_tiles_are_moved_out(K, first, past_caches):
    z, tile = aligned(7 * K, np.float32).reshape(7, K), np.random.default_rng(0).random((7, 64)).astype(np.float32)
    assert z.ctypes.data % 64 == 0
    z[:] = -1.0
    row_kernels.move_out(tile, z, first, past_caches)
    width = min(64, K - first)
    np.testing.assert_array_equal(z[:, first : first + width], tile[:, :width])
    assert (np.delete(z, np.s_[first : first + width], axis=1) == -1.0).all()


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("K", "width"), [(16, 16), (32, 8), (64, 64), (128, 128), (128, 4)])
@pytest.mark.parametrize("n", [0, 1, 130, 5000])
def test_split_in_one_go_is_its_parts(n, K, width, share):
    rng = np.random.default_rng(n + K)
    z, centre = rng.normal(size=(n, K)).astype(np.float32), rng.normal(size=K).astype(np.float32)
    factor, g = rng.random(K).astype(np.float32), rng.normal(size=n).astype(np.float32)
    picked = np.flatnonzero(rng.random(n) < share)
    root = rng.random(len(picked)).astype(np.float32)
    p, sums = z.copy(), np.zeros(K)
    row_kernels.memberships(p, centre, factor, width)
    row_kernels.add_gradient_sums(p, g, sums)
    q = p[picked] * root[:, None]
    own, own_sums, own_q = z.copy(), np.zeros(K), np.full_like(q, np.nan)
    row_kernels.split(own, centre, factor, width, g, own_sums, picked, root, own_q)
    for found, wanted in ((own, p), (own_sums, sums), (own_q, q)):
        np.testing.assert_array_equal(found, wanted)
    own, own_sums, gram = z.copy(), np.zeros(K), np.zeros((K, K))
    row_kernels.split_and_gram(own, centre, factor, width, g, own_sums, picked, root, gram)
    np.testing.assert_array_equal(own, p)
    np.testing.assert_array_equal(own_sums, sums)
    wanted = np.tril(q.T.astype(np.float64) @ q)
    np.testing.assert_allclose(gram, wanted, rtol=1e-5, atol=1e-9)


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
