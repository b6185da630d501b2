"""The portable kernels: the same in NumPy and in torch, and what the networks and the compiled kernels say."""

from __future__ import annotations

import importlib.util
import tracemalloc

import numpy as np
import pytest

from gbun.arrays import is_tensor, to_host
from gbun.data.features import Features
from gbun.kernels import portable
from gbun.kernels.portable import Buffers, HashedWeights
from gbun.solve import make_normaliser
from tests.kernels.kernel_cases import CASES, HUGE, entries, network, outputs, random_rows

HAS_TORCH = importlib.util.find_spec("torch") is not None
DENSITIES = (1.0, 0.3, 0.01)  # with 40 columns, the last leaves two of three outputs without any input


def to_numpy(a):
    return np.array(a)


def to_torch(a):
    import torch

    return torch.from_numpy(np.array(a))


needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
libraries = pytest.mark.parametrize(
    "put", [pytest.param(to_numpy, id="numpy"), pytest.param(to_torch, id="torch", marks=needs_torch)]
)


def sparse_outputs(put, sparse, net, at_a_time=7, start=None, indptr=None):
    """Z of sparse rows, words as they lie in the ids."""
    n, K = len(sparse.indptr) - 1, net.family.n_outputs
    z = put(np.full((n, K), np.nan, dtype=np.float32) if start is None else start)
    words = put(sparse.ids.astype(np.uint64).view("<u4").view(np.int32).reshape(-1, 2))
    weights = HashedWeights.from_network(net, net.family.sparse_density, z)
    rows = put(sparse.indptr if indptr is None else indptr), words[:, 0], words[:, 1], put(sparse.values)
    portable.forward_sparse(*rows, weights, Buffers.allocate(n, K, at_a_time, z), z, start is None)
    return to_host(z)


def dense_outputs(put, X, net, at_a_time=1000):
    K = net.family.n_outputs
    z = put(np.full((len(X), K), np.nan, dtype=np.float32))
    weights = HashedWeights.from_network(net, net.family.density, z)
    portable.forward_dense(put(X), weights, Buffers.allocate(len(X), K, at_a_time, z), z)
    return to_host(z)


# Weights


@libraries
@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("n_outputs", [1, 3, 64, 259])
def test_weights_are_the_networks(put, n_outputs, density):
    net = network(n_outputs, 40, density)
    ids = np.array([*range(40), 3, *HUGE, 2**63, 2**64 - 2], dtype=np.uint64)
    found, hashes = (put(np.full((len(ids), n_outputs), 7, dtype=dtype)) for dtype in (np.float32, np.int32))
    weights = HashedWeights.from_network(net, density, found)
    assert (weights.revivers is not None) == (density == 0.01)
    portable.fill_weights(weights, *map(put, portable.id_words(ids)), hashes, found)
    wanted = net.sparse_weights(ids)
    assert (to_host(found).view(np.int32) == wanted.view(np.int32)).all()  # not even a zero has another sign


@libraries
@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("at_a_time", [1, 7, 40])
def test_dense_columns_have_the_networks_weights(put, at_a_time, density):
    net = network(33, 40, density)
    X = np.eye(40, dtype=np.float32)
    np.testing.assert_array_equal(dense_outputs(put, X, net, at_a_time), net.column_weights(np.arange(40)))


# Sparse rows


def one_after_the_other(sparse, net, start=0.0):
    """Each product rounded, then added, in the order of entries."""
    z = np.full((len(sparse.indptr) - 1, net.family.n_outputs), start, dtype=np.float32)
    table = net.sparse_weights(sparse.ids)
    for i in range(len(z)):
        for e in range(sparse.indptr[i], sparse.indptr[i + 1]):
            z[i] += sparse.values[e] * table[e]
    return z


@libraries
@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("rows", CASES.values(), ids=CASES)
def test_entries_are_added_one_after_the_other(put, rows, density):
    sparse, net = entries(rows, np.uint64), network(65, 40, density)
    wanted = one_after_the_other(sparse, net)
    for at_a_time in (7, 10_000) if len(sparse.ids) > 100 else (1, 2, 10_000):
        np.testing.assert_array_equal(sparse_outputs(put, sparse, net, at_a_time), wanted)


@libraries
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_rows_may_be_any_part_of_the_data(put, index):
    sparse, net = entries(random_rows([2, 0, 9, 4, 0], 30)), network(16, 40, 0.3)
    wanted = sparse_outputs(put, sparse, net)
    found = sparse_outputs(put, sparse, net, indptr=(sparse.indptr + 12345).astype(index))
    np.testing.assert_array_equal(found, wanted)
    alone = Features(5, sparse=sparse).block(2, 3).sparse
    np.testing.assert_array_equal(sparse_outputs(put, alone, net), wanted[2:3])


@libraries
def test_sparse_outputs_are_added_to_dense_ones(put):
    sparse, net = entries(random_rows([2, 0, 9], 30)), network(16, 40, 1.0)
    start = np.random.default_rng(0).normal(size=(3, 16)).astype(np.float32)
    np.testing.assert_array_equal(
        sparse_outputs(put, sparse, net, start=start), one_after_the_other(sparse, net, start)
    )


# Compiled kernels round a product and its addition once: each of n terms may differ by half a unit


@libraries
@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("at_a_time", [5, 40])
@pytest.mark.parametrize(("n", "m"), [(0, 3), (1, 1), (9, 40), (9, 0)])
def test_dense_outputs_are_the_compiled_kernels(put, n, m, at_a_time, density):
    X, net = np.random.default_rng(0).normal(size=(n, m)).astype(np.float32), network(24, m or None, density)
    found = dense_outputs(put, X, net, at_a_time)
    size = np.abs(X) @ np.abs(net.column_weights(np.arange(m)))
    assert (np.abs(found - outputs(Features(n, dense=X), net)) <= 2.0**-23 * (m + 1) * size + 1e-30).all()


# Moments


def moments_by_batch(put, z, weight, rows_each):
    """As a device makes them: weights are float32 there, their sum is the host's."""
    sums = np.zeros((2, z.shape[1]))
    for first in range(0, len(z), rows_each):
        at = slice(first, first + rows_each)
        batch = put(z[at])
        buffers = Buffers.allocate(rows_each, z.shape[1], 0, batch)
        own = put(weight[at].astype(np.float32))
        total = float(weight[at].sum())
        sums += portable.combine_moments(portable.sum_centred(batch, own, total, buffers), total)
        np.testing.assert_array_equal(to_host(batch), z[at])
    return sums


@libraries
@pytest.mark.parametrize("weights", ["ones", "a tenth", "any", "some zero"])
@pytest.mark.parametrize("away", [0.0, 1.0, 1000.0, -1e4])
@pytest.mark.parametrize(("n", "rows_each"), [(50, 50), (700, 256), (20_000, 20_000), (20_000, 3000)])
def test_moments_are_good_to_a_millionth_of_the_deviation(put, n, rows_each, away, weights):
    rng = np.random.default_rng(n)
    scale = np.logspace(-3, 3, 13)
    z = ((rng.normal(size=(n, 13)) + away) * scale).astype(np.float32)
    weight = {
        "ones": np.ones(n),
        "a tenth": np.full(n, 0.1),  # not a float32
        "any": rng.random(n),
        "some zero": rng.integers(0, 3, size=n).astype(float),
    }[weights]
    N, counting = weight.sum(), np.count_nonzero(weight)
    found = moments_by_batch(put, z, weight, rows_each)
    mean = weight @ z.astype(np.float64) / N
    deviation = np.sqrt(weight @ (z - mean) ** 2 / max(N - 1, N * (counting - 1) / counting))
    assert (np.abs(found[0] / N - mean) < 1e-6 * deviation).all()
    np.testing.assert_allclose(make_normaliser(N, counting, found).factor, 1.0 / deviation, rtol=1e-6)


@libraries
def test_moments_of_rows_without_weight_are_zero_and_a_constant_output_is_told(put):
    z = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    assert not moments_by_batch(put, z, np.zeros(300), 300).any()
    buffers = Buffers.allocate(0, 4, 0, put(z))
    assert not portable.combine_moments(portable.sum_centred(put(z)[:0], put(z)[:0, 0], 0.0, buffers), 0.0).any()
    z, weight = np.full((1000, 2), 0.1, dtype=np.float32), np.random.default_rng(0).random(1000)
    assert (make_normaliser(weight.sum(), 1000, moments_by_batch(put, z, weight, 300)).factor == 0.0).all()


# Memberships and the normal equations


@libraries
@pytest.mark.parametrize(("groups", "width"), [(1, 1), (1, 64), (3, 5), (4, 16)])
@pytest.mark.parametrize("n", [0, 1, 70])
def test_memberships_take_the_place_of_outputs(put, n, groups, width):
    rng = np.random.default_rng(width)
    K = groups * width
    z, centre, factor = (rng.normal(size=s).astype(np.float32) for s in ((n, K), K, K))
    z[: n // 3] *= 1e30
    held = put(z)
    found = portable.to_memberships(held, put(centre), put(factor), width)
    assert found is held
    scaled = ((z - centre) * factor).astype(np.float64).reshape(n, groups, width)
    wanted = np.exp(scaled - scaled.max(axis=2, keepdims=True))
    wanted /= wanted.sum(axis=2, keepdims=True)
    np.testing.assert_allclose(to_host(held), wanted.reshape(n, K), rtol=3e-6, atol=1e-37)


@libraries
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_hessians", [None, 1, 3])
def test_grams_are_the_formula(put, n_hessians, dtype):
    rng = np.random.default_rng(0)
    p = rng.random((50, 8)).astype(dtype)
    h = rng.random(50 if n_hessians is None else (50, n_hessians)).astype(dtype)
    room = put(np.full((60, 8), np.nan, dtype=dtype))
    wanted = np.einsum("nk,n...,nl->...kl", *(a.astype(np.float64) for a in (p, h, p)))
    for q in (None, room):
        found = to_host(portable.grams(put(p), put(h), q))
        assert found.dtype == dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-5 if dtype == np.float32 else 1e-13)


@libraries
def test_gradient_sums_are_the_product_and_some_rows_are_taken(put):
    p, rows = np.random.default_rng(0).random((50, 8)).astype(np.float32), np.array([0, 7, 7, 49])
    g = np.random.default_rng(1).normal(size=(50, 3))  # derivatives may be float64 where memberships are not
    found = to_host(portable.multiply_transposed(put(p), put(g), put(np.empty((60, 3), dtype=np.float32))))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, p.T @ g, rtol=0, atol=1e-5)
    room = put(np.full((10, 8), np.nan, dtype=np.float32))
    np.testing.assert_array_equal(to_host(portable.take_rows_into(put(p), put(rows), room)), p[rows])
    np.testing.assert_array_equal(to_host(room)[:4], p[rows])


# Memory


def largest_allocation(work, sample):
    """Bytes: of the largest tensor that torch makes, or of all that NumPy holds at once."""
    if not is_tensor(sample):
        tracemalloc.start()
        try:
            work()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    def storages(tree):
        return {t.untyped_storage().data_ptr(): t for t in tree_leaves(tree) if isinstance(t, torch.Tensor)}

    class Watch(TorchDispatchMode):
        largest = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            made = func(*args, **(kwargs or {}))
            given = storages((args, kwargs))
            new = [t.numel() * t.element_size() for at, t in storages(made).items() if at not in given]
            self.largest = max(self.largest, *new, 0, 0)
            return made

    with Watch() as watch:
        work()
    return watch.largest


@pytest.mark.slow
@libraries
@pytest.mark.parametrize("density", [1.0, 0.3, 0.01])
def test_nothing_of_the_size_of_the_outputs_is_allocated(put, density):
    n, K, m = 3000, 64, 40
    rng, net = np.random.default_rng(0), network(K, 40, density)
    sparse = entries(random_rows(rng.integers(0, 4, size=n), m))
    X, z = put(rng.normal(size=(n, m)).astype(np.float32)), put(np.zeros((n, K), dtype=np.float32))
    rows = put(sparse.indptr), *map(put, portable.id_words(sparse.ids)), put(sparse.values)
    buffers, weights = Buffers.allocate(n, K, 32, z), HashedWeights.from_network(net, density, z)
    weight, ones = (put(rng.random(s).astype(np.float32)) for s in (n, K))
    hessians, some = put(rng.random((n, 2))), put(np.arange(0, n, 2))

    def a_round():
        portable.forward_dense(X, weights, buffers, z)
        portable.forward_sparse(*rows, weights, buffers, z, False)
        portable.combine_moments(portable.sum_centred(z, weight, 1.0, buffers), 1.0)
        portable.to_memberships(z, ones, ones, 16)
        portable.grams(z, hessians, buffers.outputs)
        portable.take_rows_into(z, some, buffers.outputs)

    assert largest_allocation(lambda: z + 1.0, z) >= 4 * n * K  # it would be seen
    assert largest_allocation(lambda: z.__iadd__(1.0), z) < 10_000
    assert largest_allocation(a_round, z) < 4 * n * K / 4
