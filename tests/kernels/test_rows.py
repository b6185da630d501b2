"""Kernels of rows, and products: the fast form of each against the plain formula."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbun.kernels import host, portable, products, simd
from gbun.kernels import rows as row_kernels
from gbun.kernels.threads import allocate_aligned
from tests.kernels.kernel_cases import OUTPUTS, assert_close, moments


@numba.njit
def powers_of_two(x):
    for k in range(0, len(x), simd.LANES):
        simd.store(x, k, row_kernels._power_of_two(simd.load(x, k)))


def test_powers_of_two_are_within_their_stated_error():
    x = np.concatenate([-np.logspace(-30, np.log10(126), 2**20), -np.linspace(0, 126, 2**20)]).astype(np.float32)
    found = x.copy()
    powers_of_two(found)
    assert np.abs(found / 2.0 ** x.astype(np.float64) - 1).max() < 1.2e-7
    low = np.array([-126.0, -127.0, -1e30, -np.inf] * 2, dtype=np.float32)
    powers_of_two(low)
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
    row_kernels.to_memberships(found, centre, factor * host.LOG2_E, width)
    wanted = portable.to_memberships(z.astype(np.float64), centre, factor, width)
    np.testing.assert_allclose(found, wanted, rtol=5e-6)


def test_memberships_of_extreme_outputs_are_finite():
    z = np.random.default_rng(0).normal(size=(50, 12)).astype(np.float32)
    z[:, 0], z[:, 1] = 1e30, -1e30
    row_kernels.to_memberships(z, np.zeros(12, dtype=np.float32), np.ones(12, dtype=np.float32), 12)
    np.testing.assert_allclose(z, np.eye(12)[[0] * 50], atol=1e-37)


@pytest.mark.parametrize("n", [0, 1, 127, 300])
@pytest.mark.parametrize("K", [1, 7, 8, 64, 83])
def test_sums_over_rows(n, K):
    rng = np.random.default_rng(n + K)
    z, weight = (rng.normal(size=(n, K)) * np.logspace(-3, 3, K) + 1.0).astype(np.float32), rng.random(n)
    sums = np.zeros((2, K + 5))
    row_kernels.add_moments(z, weight, sums, 3, K)
    np.testing.assert_allclose(sums[:, 3 : 3 + K], moments(z, weight), rtol=1e-12)
    assert not sums[:, :3].any()
    assert not sums[:, K + 3 :].any()
    g, found = rng.normal(size=n).astype(np.float32), np.ones(K)
    row_kernels.add_gradient_sums(z, g, found)
    np.testing.assert_allclose(found, 1.0 + z.T.astype(np.float64) @ g, rtol=0, atol=2e-5 * (1 + np.abs(z).sum()))
    picked, root = np.sort(rng.permutation(n)[: n // 2]), rng.random(n // 2).astype(np.float32)
    q = np.full((n // 2, K), np.nan, dtype=np.float32)
    row_kernels.scale_rows(z, picked, root, q)
    np.testing.assert_array_equal(q, z[picked] * root[:, None])


@pytest.mark.parametrize("nontemporal", [False, True])
@pytest.mark.parametrize(("K", "first"), [(64, 0), (128, 64), (200, 192), (104, 64)])
def test_tiles_are_moved_out(K, first, nontemporal):
    tile = np.random.default_rng(0).random((7, 64)).astype(np.float32)
    z = allocate_aligned(7 * K, np.float32).reshape(7, K)
    assert z.ctypes.data % 64 == 0
    z[:] = -1.0
    row_kernels.copy_tile(tile, z, first, nontemporal)
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
    row_kernels.to_memberships(p, centre, factor, width)
    row_kernels.add_gradient_sums(p, g, sums)
    q = p[picked] * root[:, None]
    own, own_sums, own_q = z.copy(), np.zeros(K), np.full_like(q, np.nan)
    row_kernels.split(own, (centre, factor, width), g, own_sums, picked, root, own_q)
    for found, wanted in ((own, p), (own_sums, sums), (own_q, q)):
        np.testing.assert_array_equal(found, wanted)
    own, own_sums, gram = z.copy(), np.zeros(K), np.zeros((K, K))
    row_kernels.to_memberships_and_gram(own, (centre, factor, width), g, own_sums, picked, root, gram)
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
    products.multiply_add(X, products.make_panels(W), found)
    X64, W64, Z64 = (a.astype(np.float64) for a in (X, W, Z))
    assert_close(found, Z64 + X64 @ W64, np.abs(Z64) + np.abs(X64) @ np.abs(W64), m + 1)
    # each element is one chain from left to right: columns in two helpings are the same bits
    cut = m // 2
    twice = Z.copy()
    for part in (slice(0, cut), slice(cut, m)):
        products.multiply_add(np.ascontiguousarray(X[:, part]), products.make_panels(W[part]), twice)
    np.testing.assert_array_equal(twice, found)
    # terms that are zero add nothing
    sparse = Z.copy()
    products.multiply_add_sparse(X, *products.non_zeros_by_output(W), sparse)
    np.testing.assert_array_equal(sparse, found)
