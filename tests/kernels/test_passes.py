"""The passes of a round: laws of bits, sums over rows, memory, the sample of the Gram, threads."""

from __future__ import annotations

import itertools
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

import gbun
from gbun.callbacks import Callback
from gbun.data.features import Entries, Features
from gbun.kernels import chunks, forward, host, portable
from gbun.kernels.threads import thread_count, thread_pool
from gbun.learners import Step
from tests.kernels.kernel_cases import FORMS, OUTPUTS, equations, network, newest_buffer, outputs, partition, training

# Laws of bits


def mixed(n=9000, m=11, seed=0):
    """Dense columns with zeros, and the same as sparse rows; several chunks of them."""
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n, m)) * (rng.random((n, m)) < 0.5)).astype(np.float32)
    csr = scipy.sparse.csr_array(X)
    return Features(n, dense=X), Features(n, sparse=Entries(csr.indptr, csr.indices, csr.data))


@pytest.mark.usefixtures("handed_over")
@pytest.mark.parametrize("density", [1.0, 0.1])
@pytest.mark.parametrize("n_outputs", OUTPUTS)
def test_dense_and_sparse_rows_have_the_same_bits_in_every_form_and_number_of_threads(n_outputs, density):
    dense, sparse = mixed(n=9000 if n_outputs < 100 else 1500)
    net = network(n_outputs, n_columns=11, density=density)
    wanted = outputs(dense, net)
    plain = dense.dense.astype(np.float64) @ net.column_weights(np.arange(11)).astype(np.float64)
    np.testing.assert_allclose(wanted, plain, atol=3e-6)
    for features, n_jobs, form in itertools.product((dense, sparse), (1, 2, 3), FORMS):
        np.testing.assert_array_equal(outputs(features, net, n_jobs, form), wanted)


@pytest.mark.parametrize("density", [0.02, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("n_outputs", [5, 64, 100])
def test_many_dense_columns_leave_out_weights_that_are_zero_and_have_the_same_bits(n_outputs, density):
    dense, sparse = mixed(n=700, m=90)
    net = network(n_outputs, n_columns=90, density=density)
    wanted = outputs(sparse, net)
    np.testing.assert_array_equal(outputs(dense, net), wanted)
    for rows in ([3], [5, 7], list(range(20))):  # few rows take the other product
        np.testing.assert_array_equal(outputs(dense.take(np.array(rows)), net), wanted[rows])


def test_tables_of_a_few_columns_at_a_time_have_the_same_bits(monkeypatch):
    dense, sparse = mixed(n=50)
    net = network(5, n_columns=11, density=0.1)
    wanted = outputs(dense, net, form="dense")
    monkeypatch.setattr(forward, "TABLE_LIMIT", 3 * 16)
    np.testing.assert_array_equal(outputs(dense, net), wanted)
    np.testing.assert_array_equal(outputs(sparse, net), wanted)


def test_dense_and_sparse_side_by_side_add_up():
    dense, sparse = mixed(n=50)
    net = network(5, n_columns=11)
    both = outputs(Features(50, dense.dense, sparse.sparse), net)
    np.testing.assert_allclose(both, 2 * outputs(dense, net), atol=1e-5)


def through_a_round(features, net, head, n_jobs=1):
    """Outputs, memberships and P W of each row, under a normalisation that is given."""
    K, n = net.family.n_outputs, features.n_rows
    centre, factor = np.linspace(-0.3, 0.3, K, dtype=np.float32), np.linspace(0.5, 2, K, dtype=np.float32)
    with thread_pool(n_jobs) as pool:
        kernels = training(features, net.family, pool, head.shape[1])
        kernels.first_pass(net, None, np.zeros((n, head.shape[1])))
        z, normalised = newest_buffer(kernels).copy(), partition(net, centre, factor)
        kernels.normal_equations(normalised, lambda at: (np.zeros((n, 1))[at], np.zeros(n)[at]))
        p, step = newest_buffer(kernels).copy(), np.zeros((n, head.shape[1]), dtype=np.float32)
        kernels.add_step(head, step)
        predicted = np.zeros_like(step)
        kernels.add_rounds([Step(normalised, head)], predicted)
    np.testing.assert_array_equal(predicted, step)
    return z, p, step


@pytest.mark.usefixtures("handed_over")
@pytest.mark.parametrize("side", [0, 1], ids=["dense", "sparse"])
@pytest.mark.parametrize("n_scores", [1, 2, 7])
@pytest.mark.parametrize(("n_outputs", "group"), [(5, None), (8, None), (12, 3), (36, 12), (64, None), (130, None)])
def test_a_row_has_the_same_bits_wherever_it_stands(n_outputs, group, n_scores, side):
    features = mixed(n=4500)[side]
    net = network(n_outputs, n_columns=11, density=0.5, group_size=group)
    head = np.random.default_rng(1).normal(size=(n_outputs, n_scores)).astype(np.float32)
    whole = through_a_round(features, net, head)
    rng = np.random.default_rng(2)
    places = [[0], [4499], [7, 3], rng.permutation(4500)[:101], rng.permutation(4500)]
    places += [[i] for i in rng.integers(4500, size=20)]
    for rows in map(np.array, places):
        for found, wanted in zip(through_a_round(features.take(rows), net, head), whole, strict=True):
            np.testing.assert_array_equal(found, wanted[rows])
    for n_jobs in (2, 3):
        for found, wanted in zip(through_a_round(features, net, head, n_jobs), whole, strict=True):
            np.testing.assert_array_equal(found, wanted)


# The passes of a round


def passes(
    n_jobs=1, hold=True, exact=True, per_class=False, n=900, K=24, share=None, table=2**16, C=3, monkeypatch=None
):
    """Moments, A, B, sums of h and scores of two rounds over rows in many small chunks and blocks."""
    monkeypatch.setattr(chunks, "MIN_CHUNK_ROWS", 16)
    monkeypatch.setattr(chunks, "MIN_CHUNKS", 100)
    monkeypatch.setattr(chunks, "TABLE_FEATURES", table)
    monkeypatch.setattr(host, "RUNS", 7)
    rng = np.random.default_rng(1)
    g, h, weight = rng.normal(size=(n, C)), rng.random((n, C) if per_class else n), rng.random(n)
    features, family = mixed(n)[1], network(K, n_columns=11).family
    centre, factor = np.full(K, 0.1, dtype=np.float32), np.linspace(1, 2, K, dtype=np.float32)
    head, scores = rng.normal(size=(K, C)).astype(np.float32), np.zeros((n, C))
    chosen = rng.random(n) < (share or 1.0)
    pick = None if share is None else lambda at, h: (np.flatnonzero(chosen[at]), h[chosen[at]])
    results = []
    with thread_pool(n_jobs) as pool:
        kernels = training(features, family, pool, C, hold=hold, weight=weight, exact=exact)
        for t in range(2):
            net = family.draw(t)
            results.append(kernels.first_pass(net, head if t else None, scores))
            results += equations(kernels, partition(net, centre, factor), lambda at: (g[at], h[at]), pick)
        kernels.add_step(head, scores)
        results += [scores, kernels.sum_rows(lambda at: g[at].sum(axis=0))]
    return results, (features, family, centre, factor, head, g, h, weight, np.flatnonzero(chosen))


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("per_class", [True, False])
@pytest.mark.parametrize("share", [None, 0.3])
@pytest.mark.parametrize(("C", "K"), [(3, 24), (1, 24), (1, 32)])
def test_the_passes_are_the_formulas(monkeypatch, exact, per_class, share, C, K):
    results, given = passes(exact=exact, per_class=per_class, share=share, C=C, K=K, monkeypatch=monkeypatch)
    features, family, centre, factor, head, g, h, weight, picked = given
    n = features.n_rows
    X = scipy.sparse.csr_array((features.sparse.values, features.sparse.ids, features.sparse.indptr)).toarray()
    rtol, scores = 1e-6 if exact else 1e-5, np.zeros((n, C))
    for t in range(2):
        moments, A, B, curvature = results[4 * t : 4 * t + 4]
        Z = X.astype(np.float64) @ family.draw(t).sparse_weights(np.arange(11)).astype(np.float64)
        np.testing.assert_allclose(moments, [weight @ Z, weight @ Z**2], rtol=1e-5, atol=1e-4)
        P = portable.to_memberships(Z.copy(), centre, factor, family.n_outputs)
        columns = h[picked].T if per_class else h[picked][None]
        wanted = np.stack([P[picked].T @ np.diag(column) @ P[picked] for column in columns])
        np.testing.assert_allclose(A, wanted if per_class else wanted[0], rtol=rtol)
        np.testing.assert_allclose(B, P.T @ g, rtol=0, atol=rtol * np.abs(P.T @ np.abs(g)).max())
        np.testing.assert_allclose(curvature, (share is not None) * np.stack([h.sum(axis=0), h[picked].sum(axis=0)]))
        np.testing.assert_array_equal(A, np.swapaxes(A, -1, -2))
        scores += P @ head
    np.testing.assert_allclose(results[8], scores, atol=1e-4)
    np.testing.assert_allclose(results[9], g.sum(axis=0))


@pytest.mark.usefixtures("handed_over")
@pytest.mark.parametrize("exact", [True, False])
def test_passes_have_the_same_bits_for_every_number_of_threads_and_plan_and_order_of_features(monkeypatch, exact):
    for C, K in ((3, 24), (1, 32)):
        wanted, _ = passes(exact=exact, C=C, K=K, monkeypatch=monkeypatch)
        for n_jobs, hold, table in itertools.product((1, 2, 3), (True, False), (2**16, 3)):
            found, _ = passes(n_jobs, hold, exact, C=C, K=K, table=table, monkeypatch=monkeypatch)
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("hold", [True, False])
@pytest.mark.parametrize("K", [64, 192])
def test_working_memory_is_allocated_once(monkeypatch, K, hold):
    """After the first round, threads find the large arrays they need where they left them."""
    with thread_pool(1) as pool:
        kernels = training(mixed(9000)[1], network(K, n_columns=11).family, pool, hold=hold, exact=False)
        scores, net = np.zeros((9000, 1)), kernels.family.draw(0)
        for t in range(3):
            if t == 1:
                held = {name: id(a) for name, a in pool.scratch.__dict__.items()}
                buffer = id(newest_buffer(kernels))
                tracemalloc.start()
            kernels.first_pass(net, None, scores)
            normalised = partition(net, *np.ones((2, K), np.float32))
            kernels.normal_equations(normalised, lambda at: (scores[at], scores[at][:, 0]))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert {name: id(a) for name, a in pool.scratch.__dict__.items()} == held
    assert id(newest_buffer(kernels)) == buffer
    assert held
    partial_sums = 8 * (len(kernels.cut_chunks()) + 2) * 2 * K * K
    assert peak < partial_sums + 2**18  # far below a chunk's outputs, 4 x 1125 x K, times the number of chunks


@pytest.mark.usefixtures("handed_over")
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("hold", [True, False])
def test_pipelined_rounds_give_the_bits_of_sequential_rounds(hold, n_jobs, exact):
    features, K, T = mixed(900)[1], 24, 6
    split, head = np.ones((2, K), np.float32), np.linspace(-1, 1, K, dtype=np.float32)[:, None]
    found = []
    for pipelined in (False, True):
        with thread_pool(n_jobs) as pool:
            family = network(K, n_columns=11).family
            kernels = training(features, family, pool, hold=hold, pipelined=pipelined, exact=exact)
            scores, nets, sums = np.zeros((900, 1)), [kernels.family.draw(t) for t in range(T)], []

            def derivatives(at, scores=scores):
                return np.tanh(scores[at]) - 0.1, 1.0 + scores[at][:, 0] ** 2

            moments = [kernels.first_pass(net, None, scores) for net in nets[:2]] if pipelined else []
            for t in range(T):
                before = head * (0.5 + t) if t else None
                if not pipelined:
                    moments.append(kernels.first_pass(nets[t], before, scores))
                late = (before, scores) if pipelined else ()
                sums += equations(kernels, partition(nets[t], *split), derivatives, None, *late)
                if pipelined and t + 2 < T:
                    moments.append(kernels.first_pass(nets[t + 2], None, scores))
            kernels.add_step(head, scores)
            found.append([*moments, *sums, scores])
    assert len(found[0]) == 4 * T + 1
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


# A worker whose share has no rows still takes part in every sum


@pytest.mark.parametrize("h_shape", [(0,), (0, 2)])
def test_no_rows_give_zeros(h_shape):
    features = Features(0, dense=np.zeros((0, 4), dtype=np.float32))
    with thread_pool(1) as pool:
        kernels = training(features, network(6, n_columns=4).family, pool, 2)
        scores = np.zeros((0, 2))
        moments = kernels.first_pass(kernels.family.draw(0), None, scores)
        np.testing.assert_array_equal(moments, np.zeros((2, 6)))
        np.testing.assert_array_equal(kernels.sum_rows(lambda at: scores[at].sum(axis=0)), np.zeros(2))
        normalised = partition(kernels.family.draw(0), *np.ones((2, 6), np.float32))
        A, B, curvature = equations(kernels, normalised, lambda at: (np.zeros((0, 2)), np.zeros(h_shape)))
        kernels.add_step(np.zeros((6, 2), dtype=np.float32), scores)
    np.testing.assert_array_equal(A, np.zeros((6, 6) if len(h_shape) == 1 else (2, 6, 6)))
    np.testing.assert_array_equal(B, np.zeros((6, 2)))
    np.testing.assert_array_equal(curvature, np.zeros((2, *h_shape[1:])))


# Threads


@pytest.mark.parametrize("given", ["1", "2", "64", "", "0", "2,2", "all"])
def test_the_number_of_threads(monkeypatch, given):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cores = thread_count(-1)
    assert (thread_count(None), thread_count(3), thread_count(-2)) == (cores, 3, max(1, cores - 1))
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    limit = int(given) if given in ("1", "2", "64") else cores
    assert thread_count(None) == min(cores, limit)
    assert (thread_count(-1), thread_count(3)) == (cores, 3)


# An interrupt


class Interrupt(Callback):
    """Raises from within a pass over the rows of the third round."""

    def before_training(self, training, n_rounds):
        self.training = training

    def before_round(self, training, round_):
        if round_ == 2:
            derivatives = training.objective.derivatives

            def interrupted(*args):
                raise KeyboardInterrupt

            object.__setattr__(training.objective, "derivatives", interrupted)
            sample = replace(training.setup.sample, keys=np.zeros(len(training.rows.y), np.uint64))
            training.setup = replace(training.setup, sample=sample)
            self.restore = lambda: object.__setattr__(training.objective, "derivatives", derivatives)


def test_rows_that_were_left_in_the_middle_of_a_round_say_so():
    watcher, X = Interrupt(), np.random.default_rng(0).normal(size=(200, 4))
    with pytest.raises(KeyboardInterrupt):
        gbun.train({"n_neurons": 16}, (X, X[:, 0]), 5, callbacks=[watcher])
    watcher.restore()
    assert watcher.training.model().n_rounds == 2
    with pytest.raises(RuntimeError, match=r"in the middle of a round.*init_model"):
        watcher.training.rows.current_scores()
