"""Kernels: the fast form against the plain formula, and laws of bits: a row's result depends on it only."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from gbun.data.features import Entries, Features
from gbun.kernels import Kernels, dispatch, hashed, products
from gbun.kernels.threads import thread_count, threads
from gbun.networks import Family, simhash

ID_TYPES = (np.int32, np.int64, np.uint64)
OUTPUTS = (2, 3, 5, 8, 13, 259)
FORMS = ("dense", "hashed", "auto")


def network(n_outputs, n_columns=None, density=1.0, **more):
    family = Family(3, n_outputs, density=density, sparse_density=density, n_columns=n_columns, **more)
    return family.draw(2)


def entries(rows, dtype=np.int64):
    """Compressed rows from lists of (id, value)."""
    flat = [pair for row in rows for pair in row]
    return Entries(
        np.cumsum([0, *(len(row) for row in rows)]),
        np.array([i for i, _ in flat], dtype=dtype),
        np.array([v for _, v in flat], dtype=np.float32),
    )


def random_rows(lengths, n_ids, seed=0):
    rng = np.random.default_rng(seed)
    return [list(zip(rng.integers(n_ids, size=n), rng.normal(size=n), strict=True)) for n in lengths]


HUGE = [2**31, 2**32 - 1, 2**32, 2**32 + 1, 7 << 32, 2**62 + 3, 2**63 - 1]
CASES = {  # rows of (id, value); duplicates arise in most of them
    "no rows": [],
    "one row": random_rows([7], 50),
    "one row without entries": [[]],
    "one column": random_rows([1] * 9, 1),
    "long rows": random_rows([3000, 1, 2999], 5000),
    "empty rows": random_rows([0, 3, 0, 0, 5, 0], 20),
    "duplicates": [[(4, 1.5), (4, -0.25), (2, 1.0), (4, 3.0)], [(0, 1.0), (0, -1.0)]],
    "unsorted": [[(9, 1.0), (3, 2.0), (7, -1.0)]],
    "huge ids": [[(i, 1.0 + j)] for j, i in enumerate(HUGE)] + [[(i, 0.5) for i in HUGE]],
    "id 2^63": [[(2**63, 1.0), (2**63 - 1, 2.0)], [(2**63, -3.0)]],
}


def typed_cases():
    for name, rows in CASES.items():
        largest = max((i for row in rows for i, _ in row), default=0)
        for dtype in ID_TYPES:
            if largest <= np.iinfo(dtype).max:
                yield pytest.param(rows, dtype, id=f"{name}-{dtype.__name__}")


def plain_forward(sparse, table_of):
    """Z = X N in float64 and, for the tolerance, |X| |N|; one entry after the other."""
    table = table_of(sparse.ids).astype(np.float64)
    terms = table * sparse.values[:, None]
    n = len(sparse.indptr) - 1
    z, size = np.zeros((n, table.shape[1])), np.zeros((n, table.shape[1]))
    np.add.at(z, sparse.row_of_entry, terms)
    np.add.at(size, sparse.row_of_entry, np.abs(terms))
    return z, size


def assert_close(found, z, size, n_terms):
    """Each of n additions in float32 loses at most half a unit of the sum of sizes."""
    assert found.dtype == np.float32
    assert (np.abs(found - z) <= 2.0**-24 * (n_terms + 1) * size + 1e-30).all()


def forward(features, net, n_jobs=1, form="auto"):
    with threads(n_jobs) as pool:
        return Kernels(features, net.family.n_outputs, 1, pool, form).forward(net).copy()


# Weights


@pytest.mark.parametrize("density", [1.0, 0.3, 0.001])
@pytest.mark.parametrize("n_outputs", OUTPUTS)
@pytest.mark.parametrize("dtype", ID_TYPES)
def test_filled_tables_are_the_plain_weights(dtype, n_outputs, density):
    ids = np.array([0, 1, 2**31 - 1] + [i for i in (*HUGE, 2**63) if i <= np.iinfo(dtype).max], dtype=dtype)
    states, half = simhash.initial_state(network(n_outputs).seeds), simhash.half_width(density)
    out = np.full((len(ids), n_outputs), np.nan, dtype=np.float32)
    hashed.fill_weights(states, ids, np.int32(half), np.float32(1.0 / half), out)
    np.testing.assert_array_equal(out, simhash.weights(3, 2, ids, n_outputs, density))


# Sparse forward


@pytest.mark.parametrize("n_outputs", [3, 8, 259])
@pytest.mark.parametrize(("rows", "dtype"), list(typed_cases()))
def test_forward_on_the_fly(rows, dtype, n_outputs):
    sparse, net = entries(rows, dtype), network(n_outputs, density=0.4)
    z = np.zeros((len(rows), n_outputs), dtype=np.float32)
    half = simhash.half_width(0.4)
    states = simhash.initial_state(net.seeds)
    hashed.forward_on_the_fly(
        sparse.indptr, sparse.ids, sparse.values, states, np.int32(half), np.float32(1.0 / half), z
    )
    assert_close(z, *plain_forward(sparse, net.sparse_weights), n_terms=6000)
    np.testing.assert_array_equal(forward(Features(len(rows), sparse=sparse), net), z)


@pytest.mark.parametrize("n_outputs", OUTPUTS)
@pytest.mark.parametrize("dtype", ID_TYPES)
@pytest.mark.parametrize("name", ["no rows", "one row", "one column", "long rows", "empty rows", "duplicates"])
def test_forward_from_a_table_has_the_bits_of_forward_on_the_fly(name, dtype, n_outputs):
    sparse, net = entries(CASES[name], dtype), network(n_outputs, n_columns=5000, density=0.4)
    features = Features(len(CASES[name]), sparse=sparse)
    table = net.sparse_weights(np.arange(5000))
    z = np.zeros((features.n_rows, n_outputs), dtype=np.float32)
    hashed.forward_from_table(sparse.indptr, sparse.ids, sparse.values, table, z)
    assert_close(z, *plain_forward(sparse, lambda ids: table[ids]), n_terms=6000)
    for form in FORMS:
        np.testing.assert_array_equal(forward(features, net, form=form), z)


@pytest.mark.parametrize("dtype", ID_TYPES)
@pytest.mark.parametrize("m", [1, 3, 12])
def test_revived_outputs_are_heard_in_every_form(m, dtype):
    rows = random_rows([0, 1, 5, 30, 2], m)
    sparse, net = entries(rows, dtype), network(13, n_columns=m, density=0.01)
    revived = net.revived(0.01)
    assert revived
    outputs, features, weights = (np.array(v) for v in zip(*revived, strict=True))
    ids, weights = features.astype(np.uint64), weights.astype(np.float32)
    z = np.zeros((5, 13), dtype=np.float32)
    hashed.forward_revived(sparse.indptr, sparse.ids, sparse.values, outputs, ids, weights, z)
    only = np.zeros((m, 13), dtype=np.float32)
    only[features, outputs] = weights
    assert_close(z, *plain_forward(sparse, lambda ids: only[ids]), n_terms=30)
    by_form = [forward(Features(5, sparse=sparse), net, form=form) for form in FORMS]
    assert_close(by_form[0], *plain_forward(sparse, net.sparse_weights), n_terms=60)
    assert (by_form[0][1:] != 0).any(axis=0).all()
    for z in by_form[1:]:
        np.testing.assert_array_equal(z, by_form[0])


# Products


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 11), st.integers(0, 11), st.sampled_from([1, *OUTPUTS]), st.integers(0, 99))
def test_multiply_add(n, m, n_outputs, seed):
    rng = np.random.default_rng(seed)
    X, W, Z = (rng.normal(size=s).astype(np.float32) for s in ((n, m), (m, n_outputs), (n, n_outputs)))
    found = Z.copy()
    products.multiply_add(X, W, found)
    X64, W64, Z64 = (a.astype(np.float64) for a in (X, W, Z))
    assert_close(found, Z64 + X64 @ W64, np.abs(Z64) + np.abs(X64) @ np.abs(W64), m + 1)
    # each element is one chain from left to right: columns in two helpings are the same bits
    cut = m // 2
    twice = Z.copy()
    products.multiply_add(X[:, :cut], W[:cut], twice)
    products.multiply_add(X[:, cut:], W[cut:], twice)
    np.testing.assert_array_equal(twice, found)


@pytest.mark.parametrize("n_outputs", [1, 2, 3, 8, 13, 64, 259])
def test_dot_rows(n_outputs):
    rng = np.random.default_rng(n_outputs)
    P, w = rng.normal(size=(23, n_outputs)).astype(np.float32), rng.normal(size=n_outputs).astype(np.float32)
    out = np.full((23, 2), np.nan, dtype=np.float32)
    products.dot_rows(P, w, out[:, 0])
    P64, w64 = P.astype(np.float64), w.astype(np.float64)
    assert_close(out[:, 0], P64 @ w64, np.abs(P64) @ np.abs(w64), n_outputs)
    for i in range(23):
        alone = np.zeros(1, dtype=np.float32)
        products.dot_rows(P[i : i + 1], w, alone)
        assert alone[0] == out[i, 0]


# Laws of bits


def mixed(n=9000, m=11, seed=0):
    """Dense columns with zeros, and the same as sparse rows; several chunks of them."""
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n, m)) * (rng.random((n, m)) < 0.5)).astype(np.float32)
    csr = scipy.sparse.csr_array(X)
    return Features(n, dense=X), Features(n, sparse=Entries(csr.indptr, csr.indices, csr.data))


@pytest.mark.parametrize("density", [1.0, 0.1])
@pytest.mark.parametrize("n_outputs", OUTPUTS)
def test_dense_and_sparse_rows_have_the_same_bits_in_every_form_and_number_of_threads(n_outputs, density):
    dense, sparse = mixed(n=9000 if n_outputs < 100 else 1500)
    net = network(n_outputs, n_columns=11, density=density)
    wanted = forward(dense, net)
    plain = dense.dense.astype(np.float64) @ net.column_weights(np.arange(11)).astype(np.float64)
    np.testing.assert_allclose(wanted, plain, atol=3e-6)
    for features in (dense, sparse):
        for form in FORMS:
            for n_jobs in (1, 2, 3):
                np.testing.assert_array_equal(forward(features, net, n_jobs, form), wanted)


def test_tables_of_a_few_columns_at_a_time_have_the_same_bits(monkeypatch):
    dense, sparse = mixed(n=50)
    net = network(5, n_columns=11, density=0.1)
    wanted = forward(dense, net, form="dense")
    monkeypatch.setattr(dispatch, "TABLE_LIMIT", 4 * 5)
    np.testing.assert_array_equal(forward(dense, net), wanted)
    np.testing.assert_array_equal(forward(sparse, net), wanted)


def test_dense_and_sparse_side_by_side_add_up():
    dense, sparse = mixed(n=50)
    net = network(5, n_columns=11)
    both = forward(Features(50, dense.dense, sparse.sparse), net)
    np.testing.assert_allclose(both, 2 * forward(dense, net), atol=1e-5)


def through_a_round(features, net, head, n_jobs=1):
    """Outputs, memberships and P W of each row, under a normalisation that is given."""
    K = net.family.n_outputs
    with threads(n_jobs) as pool:
        kernels = Kernels(features, K, head.shape[1], pool)
        z = kernels.forward(net).copy()
        centre, factor = np.linspace(-0.3, 0.3, K, dtype=np.float32), np.linspace(0.5, 2, K, dtype=np.float32)
        p = kernels.memberships(centre, factor, net.family.softmax_width).copy()
        step = np.zeros((features.n_rows, head.shape[1]), dtype=np.float32)
        kernels.apply(head, lambda at, d: step.__setitem__(at, d))
    return z, p, step


@pytest.mark.parametrize("side", [0, 1], ids=["dense", "sparse"])
@pytest.mark.parametrize("n_scores", [1, 2, 7])
@pytest.mark.parametrize(("n_outputs", "group"), [(5, None), (8, None), (12, 3), (36, 12), (64, None), (130, None)])
def test_a_row_has_the_same_bits_wherever_it_stands(n_outputs, group, n_scores, side):
    features = mixed(n=4500)[side]
    net = network(n_outputs, n_columns=11, density=0.5, group_size=group)
    head = np.random.default_rng(1).normal(size=(n_outputs, n_scores)).astype(np.float32)
    whole = through_a_round(features, net, head)
    rng = np.random.default_rng(2)
    places = [
        np.array([0]),
        np.array([4499]),
        np.array([7, 3]),
        rng.permutation(4500)[:101],
        rng.permutation(4500),
    ]
    places += [np.array([i]) for i in rng.integers(4500, size=20)]
    for rows in places:
        for found, wanted in zip(through_a_round(features.take(rows), net, head), whole, strict=True):
            np.testing.assert_array_equal(found, wanted[rows])
    for n_jobs in (2, 3):
        for found, wanted in zip(through_a_round(features, net, head, n_jobs), whole, strict=True):
            np.testing.assert_array_equal(found, wanted)


# The round's sums


def small_chunks(n_rows, width):
    return [slice(i, min(i + 16, n_rows)) for i in range(0, n_rows, 16)]


@pytest.fixture(params=[1, 2, 3])
def kernels(request, monkeypatch):
    """A buffer of random outputs in chunks of 16 rows, 50 rows x 12 outputs."""
    monkeypatch.setattr(dispatch, "row_chunks", small_chunks)
    with threads(request.param) as pool:
        made = Kernels(Features(50), 12, 1, pool)
        made.buffer[:] = np.random.default_rng(5).normal(size=(50, 12)) * np.logspace(-3, 3, 12) + 1.0
        yield made


def test_moments(kernels):
    weight = np.random.default_rng(0).random(50)
    z = kernels.buffer.astype(np.float64)
    np.testing.assert_allclose(kernels.moments(weight), [weight @ z, weight @ z**2], rtol=1e-12)


@pytest.mark.parametrize("width", [2, 3, 4, 12])
def test_memberships(kernels, width):
    z = kernels.buffer.astype(np.float64)
    centre, factor = z.mean(axis=0).astype(np.float32), (1.7 / z.std(axis=0)).astype(np.float32)
    factor[3] = 0.0
    e = np.exp((z - centre) * factor).reshape(50, -1, width)
    wanted = (e / e.sum(axis=2, keepdims=True)).reshape(50, 12)
    found = kernels.memberships(centre, factor, width)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    np.testing.assert_allclose(found.sum(axis=1), 12 / width, rtol=1e-6)


def test_memberships_of_extreme_outputs_are_finite(kernels):
    kernels.buffer[:, 0], kernels.buffer[:, 1] = 1e30, -1e30
    p = kernels.memberships(np.zeros(12, dtype=np.float32), np.ones(12, dtype=np.float32), 12)
    np.testing.assert_array_equal(p, np.eye(12)[[0] * 50])


@pytest.mark.parametrize("per_class", [False, True])
def test_normal_equations(kernels, per_class):
    rng = np.random.default_rng(1)
    g, h = rng.normal(size=(50, 3)), rng.random((50, 3) if per_class else 50)
    P = kernels.buffer.astype(np.float64)
    A, B = kernels.normal_equations(lambda at: (g[at], h[at]))
    columns = h.T if per_class else h[None]
    wanted = np.stack([P.T @ np.diag(column) @ P for column in columns])
    np.testing.assert_allclose(A, wanted if per_class else wanted[0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(B, P.T @ g, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(A, np.swapaxes(A, -1, -2))


def test_sums_have_the_same_bits_for_every_number_of_threads(monkeypatch):
    monkeypatch.setattr(dispatch, "row_chunks", small_chunks)
    rng = np.random.default_rng(1)
    g, h, weight, z = rng.normal(size=(900, 2)), rng.random(900), rng.random(900), rng.normal(size=(900, 7))
    results = []
    for n_jobs in (1, 2, 3):
        with threads(n_jobs) as pool:
            kernels = Kernels(Features(900), 7, 2, pool)
            kernels.buffer[:] = z
            A, B = kernels.normal_equations(lambda at: (g[at], h[at]))
            results.append([kernels.moments(weight), A, B, kernels.sum_rows(lambda at: g[at].sum(axis=0))])
    for other in results[1:]:
        for found, wanted in zip(other, results[0], strict=True):
            np.testing.assert_array_equal(found, wanted)


# A worker whose share has no rows still takes part in every sum


@pytest.fixture
def no_rows():
    with threads(1) as pool:
        yield Kernels(Features(0, dense=np.zeros((0, 4), dtype=np.float32)), 6, 2, pool)


@pytest.mark.parametrize("given", ["1", "2", "64", "", "0", "2,2", "all"])
def test_the_number_of_threads(monkeypatch, given):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cores = thread_count(-1)
    assert (thread_count(None), thread_count(3), thread_count(-2)) == (cores, 3, max(1, cores - 1))
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    limit = int(given) if given in ("1", "2", "64") else cores
    assert thread_count(None) == min(cores, limit)
    assert (thread_count(-1), thread_count(3)) == (cores, 3)


def test_no_rows_go_forward_and_have_zero_moments(no_rows):
    assert no_rows.forward(network(6, n_columns=4)).shape == (0, 6)
    np.testing.assert_array_equal(no_rows.moments(np.zeros(0)), np.zeros((2, 6)))
    assert no_rows.memberships(np.zeros(6, np.float32), np.ones(6, np.float32), 3).shape == (0, 6)
    no_rows.apply(np.zeros((6, 2), dtype=np.float32), lambda at, d: pytest.fail("there is nothing to receive"))


@pytest.mark.parametrize("h_shape", [(0,), (0, 2)])
def test_no_rows_have_zero_normal_equations(no_rows, h_shape):
    A, B = no_rows.normal_equations(lambda at: (np.zeros((0, 2)), np.zeros(h_shape)))
    np.testing.assert_array_equal(A, np.zeros((6, 6) if len(h_shape) == 1 else (2, 6, 6)))
    np.testing.assert_array_equal(B, np.zeros((6, 2)))
