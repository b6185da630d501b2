"""Rows in batches: no data overflows its room, plans hold what they say, memory decides nothing about the model."""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import gbun
from gbun import preparation
from gbun.arrays import to_host
from gbun.config import Parameters
from gbun.data.features import Entries, Features
from gbun.devices import Device, TorchDevice
from gbun.kernels import Workload, make_plan, placement
from gbun.kernels.batches import BatchCapacity, Batches, choose_capacity, cut_batches
from gbun.kernels.device import DeviceTrainingKernels
from gbun.kernels.placement import Placement, placements
from gbun.kernels.plan import DEVICE_CANDIDATES
from gbun.kernels.threads import thread_pool
from gbun.learners import Step
from gbun.networks import Family
from gbun.problem import Dataset
from tests.kernels.kernel_cases import equations, least_bytes, newest_buffer, partition
from tests.kernels.kernel_cases import training as compiled
from tests.trainings import add_round, prepare_training

torch = pytest.importorskip("torch")
ON_TORCH = {"n_neurons": 16, "device": "torch:cpu", "n_estimators": 2}


def features_of(kind, n=1000, seed=0):
    """Dense columns, sparse rows of very different lengths, or both."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 300 if kind == "wide" else 7)).astype(np.float32)
    lengths = rng.poisson(3, size=n) * (rng.random(n) < 0.7)
    lengths[n // 2] = 60
    ids = np.concatenate([np.sort(rng.choice(200, size=k, replace=False)) for k in lengths])
    entries = Entries(np.concatenate([[0], np.cumsum(lengths)]), ids, rng.normal(size=len(ids)).astype(np.float32))
    return Features(n, None if kind == "sparse" else X, entries if kind in ("sparse", "both") else None)


def data_of(kind, n=1000):
    """The same as users give it, with a target and weights."""
    features = features_of(kind, n)
    y = np.random.default_rng(1).normal(size=n)
    weight = np.random.default_rng(2).choice([0.0, 1.0, 2.0], size=n)
    if kind in ("dense", "wide"):
        return features.dense, y + features.dense[:, 0] * features.dense[:, 1], weight
    e = features.sparse
    X = scipy.sparse.csr_array((e.values, e.ids, e.indptr), shape=(n, 200))
    return X, y + X.sum(axis=1), weight


def as_tensor(X):
    """X where a device has it, dense or CSR."""
    if not scipy.sparse.issparse(X):
        return torch.from_numpy(X)
    return torch.sparse_csr_tensor(*(torch.from_numpy(a) for a in (X.indptr, X.indices, X.data)), size=X.shape)


KINDS = ["dense", "sparse", "both"]
kinds = pytest.mark.parametrize("kind", KINDS)

# Cuts


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.one_of(st.just(0), st.integers(0, 5), st.integers(0, 3000)), max_size=60),
    st.integers(1, 80),
    st.integers(1, 70),
    st.booleans(),
)
def test_no_rows_overflow_their_room(lengths, n_batches, most_rows, dense):
    lengths = [0] * len(lengths) if dense else lengths
    n, indptr = len(lengths), np.cumsum([0, *lengths])
    entries = None if dense else Entries(indptr, np.zeros(indptr[-1]), np.zeros(indptr[-1]))
    features = Features(n, np.zeros((n, 2), dtype=np.float32), entries)
    capacity = choose_capacity(features, n_batches, most_rows)
    assert capacity.entries == max([-(-sum(lengths) // n_batches), *lengths])
    assert capacity.rows == max(1, min(most_rows, -(-n // n_batches))) if dense else capacity.rows <= most_rows
    cuts = cut_batches(features, capacity)
    assert [i for at in cuts for i in range(at.start, at.stop)] == list(range(n))
    for at in cuts:
        assert 0 < at.stop - at.start <= capacity.rows
        assert indptr[at.stop] - indptr[at.start] <= capacity.entries
    for a, b in itertools.pairwise(cuts):  # none could have taken the next row too
        whole = b.start + 1 - a.start <= capacity.rows and indptr[b.start + 1] - indptr[a.start] <= capacity.entries
        assert not whole


def test_entries_beyond_2_31_do_not_wrap_around():
    indptr = np.array([0, 10**9, 2 * 10**9, 2 * 10**9 + 5, 2**31 - 1], dtype=np.int32)
    none = np.zeros(0)
    found = cut_batches(Features(4, sparse=Entries(indptr, none, none)), BatchCapacity(4, 10**9))
    assert found == [slice(0, 1), slice(1, 2), slice(2, 4)]


@kinds
@pytest.mark.parametrize("device", [Device(), TorchDevice("torch:cpu")], ids=["numpy", "torch"])
def test_batches_hold_the_rows_wherever_they_come_from(kind, device):
    features, weight = features_of(kind, 200), np.random.default_rng(3).random(200)
    for size, resident in itertools.product([(1, 500), (7, 30), (200, 1)], [True, False]):
        batches = Batches(features, device, choose_capacity(features, *size), resident, weight)
        for batch in itertools.chain(batches, batches):  # again in each pass
            part = features.block(batch.rows.start, batch.rows.stop)
            assert len(batch) == part.n_rows
            assert batch.total_weight == weight[batch.rows].sum()
            if part.dense is not None:
                np.testing.assert_array_equal(to_host(batch.dense), part.dense)
            if part.sparse is not None:
                np.testing.assert_array_equal(to_host(batch.indptr), part.sparse.indptr)
                np.testing.assert_array_equal(to_host(batch.values), part.sparse.values)
                ids = to_host(batch.low).astype(np.int64) + (to_host(batch.high).astype(np.int64) << 32)
                np.testing.assert_array_equal(ids, part.sparse.ids)


# NumPy is the reference


class Numpy(Device):
    """The host as a device of the portable kernels."""

    compiled = False


def round_of(kernels, family, put, n, C, per_class, pick=None):
    """Two passes, a step in between, and the rounds applied: all that kernels give."""
    rng = np.random.default_rng(0)
    y, weight, head = rng.normal(size=(n, C)), rng.random(n), rng.normal(size=(family.n_outputs, C)).astype(np.float32)
    y, weight, scores = put(y), put(weight), put(np.zeros((n, C)))

    def derivatives(at):
        h = weight[at]
        return (scores[at] - y[at]) * h[:, None], h[:, None] * (1.0 + (y[at] > 0)) if per_class else h

    first, second = family.draw(0), family.draw(1)
    split = np.linspace(-0.3, 0.3, family.n_outputs, dtype=np.float32), np.full(family.n_outputs, 1.5, dtype=np.float32)
    partitions = [partition(net, *split) for net in (first, second)]
    found = [kernels.first_pass(first, None, scores), *equations(kernels, partitions[0], derivatives, pick)]
    found.append(kernels.first_pass(second, head, scores))
    found += equations(kernels, partitions[1], derivatives, pick)
    kernels.add_step(head, scores)
    kernels.add_rounds([Step(own, head) for own in partitions], scores)
    found += [kernels.sum_rows(lambda at: (scores[at] ** 2).sum(axis=0)), to_host(scores)]
    return found


def every_third(at, h):
    rows = np.flatnonzero(np.arange(at.start, at.stop) % 3 == 0)
    return rows, 2.0 * h[rows]


@kinds
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(("C", "per_class", "pick"), [(1, False, None), (3, True, None), (2, False, every_third)])
def test_numpy_torch_and_the_compiled_kernels_compute_the_same(kind, exact, C, per_class, pick):
    n, features = 1000, features_of(kind)
    family = Family(3, 32, density=0.3, sparse_density=0.3, n_columns=7, group_size=8)
    weight = np.random.default_rng(4).choice([0.0, 0.5, 2.0], size=n)
    with thread_pool(1) as pool:
        kernels = compiled(features, family, pool, C, weight=weight, exact=exact)
        wanted = round_of(kernels, family, np.asarray, n, C, per_class, pick)
    for device in (Numpy(), TorchDevice("torch:cpu")):
        for hold, resident in ((True, False), (False, True)):
            share = 1.0 if pick is None else 0.5
            plan = make_plan(Workload(features, 32, C, gram_share=share), device, 1, 10**9)
            where = Placement(resident, choose_capacity(features, 6, 256), 0)
            plan = replace(plan, hold=hold, exact=exact, placement=where)
            kernels = DeviceTrainingKernels(features, family, plan, device, weight)
            assert len(kernels.batches) > 3
            found = round_of(kernels, family, device.put, n, C, per_class, pick)
            for a, b in zip(found, wanted, strict=True):
                assert type(a) is np.ndarray
                assert a.dtype == np.float64
                np.testing.assert_allclose(a, b, atol=(3e-6 if exact else 1e-5) * np.abs(b).max(initial=1e-9))


@pytest.mark.parametrize("device", [Numpy(), TorchDevice("torch:cpu")], ids=["numpy", "torch"])
@pytest.mark.parametrize(("exact", "lost"), [(True, 1e-13), (False, 1e-6)])
def test_few_rows_are_summed_in_float64_and_many_nearly_so(exact, lost, device):
    features, y, weight = features_of("dense", 600), np.random.default_rng(0).normal(size=600), np.linspace(0.1, 2, 600)
    plan, family = make_plan(Workload(features, 16, 1), device, 1), Family(3, 16)
    plan = replace(plan, exact=exact, placement=Placement(True, BatchCapacity(7, 0), 0))
    kernels = DeviceTrainingKernels(features, family, plan, device, weight)
    kernels.first_pass(family.draw(0), None, device.put(np.zeros((600, 1))))
    split = np.zeros(16, dtype=np.float32), np.ones(16, dtype=np.float32)
    normalised = partition(family.draw(0), *split)
    A, B, _ = equations(kernels, normalised, lambda at: (device.put(y[at, None]), device.put(weight[at])))
    p = to_host(newest_buffer(kernels)).astype(np.float64)
    for found, wanted in ((A, (weight[:, None] * p).T @ p), (B, p.T @ y[:, None])):
        np.testing.assert_allclose(found, wanted, atol=lost * np.abs(wanted).max())


# Memory decides nothing about the model


@contextmanager
def placed(monkeypatch, resident, hold, rows):
    """Rows of a training are where they are said to be."""

    def planned(work, *args, **more):
        plan = make_plan(work, *args, **more)
        capacity = choose_capacity(work.features, -(-work.n_rows // rows), rows)
        return replace(plan, hold=hold, placement=Placement(resident, capacity, 0))

    with monkeypatch.context() as m:
        m.setattr(preparation, "make_plan", planned)
        yield


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("objective", ["squared_error", "softmax"])
def test_resident_or_sent_held_or_made_again_the_model_has_the_same_bits(kind, objective, monkeypatch):
    X, y, weight = data_of(kind, 500)
    y = np.digitize(y, [-1.0, 1.0]) if objective == "softmax" else y
    models = {}
    for case in itertools.product((500, 64), (True, False), (True, False)):
        rows, resident, hold = case
        with placed(monkeypatch, resident, hold, rows):
            models[case] = gbun.train({**ON_TORCH, "objective": objective}, (X, y, weight), 3)
    whole = models[500, True, True].decision_function(X)
    for (rows, *_), model in models.items():
        np.testing.assert_array_equal(model.ensemble.heads, models[rows, True, True].ensemble.heads)
        np.testing.assert_allclose(model.decision_function(X), whole, atol=2e-6)


@pytest.mark.slow
def test_every_budget_gives_the_same_model_and_rows_to_predict_too(monkeypatch):
    X, y, weight = data_of("sparse", 300)
    least = least_of(X, y)
    found = [gbun.train({**ON_TORCH, "memory_budget": b}, (X, y, weight), 3) for b in (least, 2 * least, 10**9)]
    for model in found:
        np.testing.assert_allclose(model.predict(X), found[-1].predict(X), atol=2e-6)
    for free in (0, 10**5, 10**7):  # however little is free, prediction goes on
        monkeypatch.setattr(TorchDevice, "free_bytes", lambda self, free=free: free)
        np.testing.assert_allclose(found[0].predict(X, device="torch:cpu"), found[0].predict(X), atol=2e-6)


# Plans


def sets(evals):
    return {name: Dataset(*data) for name, data in evals.items()}


def least_of(X, y, evals=(), **params):
    return least_bytes(lambda: gbun.plan({**ON_TORCH, **params, "memory_budget": 1}, (X, y), evals=evals))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(st.just(0), st.integers(0, 9), st.integers(0, 4000)), min_size=1, max_size=40),
    st.sampled_from([0, 3, 200]),
    st.sampled_from([2, 16, 100]),
    st.integers(0, 2**32),
    st.sampled_from([1, 300]),
)
def test_the_first_plan_that_fits_is_chosen_and_the_least_budget_works(lengths, n_columns, K, budget, times):
    n, indptr, device = times * len(lengths), np.cumsum([0, *times * lengths]), TorchDevice("torch:cpu")
    none = np.broadcast_to(np.float32(0.0), indptr[-1:])
    columns = np.broadcast_to(np.float32(0.0), (n, n_columns)) if n_columns else None
    features = Features(n, columns, Entries(indptr, none, none))

    def plan(budget):
        return make_plan(Workload(features, K, 2), device, 1, budget)

    least = least_bytes(lambda: plan(1))
    assert plan(least).n_bytes == least
    with pytest.raises(
        ValueError, match=f"at least {least} bytes of 'torch:cpu' .*got {least - 1} bytes; a smaller n_neurons"
    ):
        plan(least - 1)
    order = []
    for stay, hold, n in DEVICE_CANDIDATES:
        order += [(stay, hold, p.capacity) for p in placements(features, K, 2, stay, device, n)]
    largest = plan(2**60)
    assert (largest.placement.resident, largest.hold) == (True, True)
    budget = least + budget % (largest.n_bytes - least + 1)
    chosen, ample = plan(budget), plan(budget + 1000)
    at, at_ample = (order.index((p.placement.resident, p.hold, p.placement.capacity)) for p in (chosen, ample))
    assert at_ample <= at  # more memory never gives up more
    assert chosen.n_bytes <= chosen.budget == budget
    assert chosen.left == budget - chosen.n_bytes


def test_a_plan_is_what_training_then_does_and_can_be_read():
    X, y, weight = data_of("dense", 300)
    evals, least = {"valid": (X[:100], y[:100])}, least_of(X, y, evals={"valid": (X[:100], y[:100])})
    for budget, where, passes in (
        (least, "features are sent there in each pass, in batches of up to 1 rows", "made again in each pass"),
        (10**8, "features stay there, in batches of up to 300 rows", "kept in a buffer"),
    ):
        plan = gbun.plan({**ON_TORCH, "memory_budget": budget}, (X, y, weight), evals=evals)
        with thread_pool(1) as pool:
            parameters = Parameters(**ON_TORCH, memory_budget=budget)
            run = prepare_training(parameters, (X, y, weight), pool, evals=sets(evals))
        assert run.rows.plan == replace(plan, n_threads=1)
        for words in ("300 rows on torch:cpu, K = 16", where, f"outputs are {passes}", "evaluation sets"):
            assert words in str(plan)
        assert str(plan).endswith(f"{plan.n_bytes / 1e6:.1f} MB")


def test_no_budget_means_half_of_what_is_free(monkeypatch):
    features, device = features_of("dense"), TorchDevice("torch:cpu")
    monkeypatch.setattr(device, "free_bytes", lambda: 10**8)
    assert make_plan(Workload(features, 16, 1), device, 1).budget == 5 * 10**7
    monkeypatch.setattr(device, "free_bytes", lambda: 1000)
    with pytest.raises(ValueError, match="got 500 bytes, half of what is free"):
        make_plan(Workload(features, 16, 1), device, 1)


# What is really allocated


@contextmanager
def allocations():
    """The bytes of every allocation of torch on the processor, and minus them where they are given back."""
    sizes, autograd = [], torch.autograd
    config = torch._C._profiler._ExperimentalConfig()
    autograd._enable_profiler_legacy(
        autograd.ProfilerConfig(autograd.ProfilerState.CPU, False, True, False, False, False, config)
    )
    try:
        yield sizes
    finally:
        records = [r for of_thread in autograd._disable_profiler_legacy() for r in of_thread]
        sizes += [r.cpu_memory_usage() for r in records if r.kind() == "memory_alloc"]


MARK = 7919  # bytes that nothing else has


def copies_as_a_gpu_would(monkeypatch):
    put = TorchDevice.put

    def copied(self, values, dtype=None):
        return put(self, values, dtype) if torch.is_tensor(values) else put(self, values, dtype).clone()

    monkeypatch.setattr(TorchDevice, "put", copied)


def pointers(thing):
    """Where all buffers are that are made once."""
    if torch.is_tensor(thing):
        return {thing.data_ptr()}
    if type(thing).__module__.startswith("gbun.kernels."):
        thing = {k: v for k, v in vars(thing).items() if k not in ("forward_weights", "softmax", "_table", "filled")}
    inside = thing.values() if isinstance(thing, dict) else thing if isinstance(thing, (list, tuple)) else ()
    return set().union(*map(pointers, inside))


@pytest.mark.parametrize("hold", [True, False])
@pytest.mark.parametrize(
    ("kind", "n"),
    [*itertools.product(["dense", "sparse"], [1000, 4200]), ("dense there", 1000), ("sparse there", 4200)],
)
def test_from_the_second_round_on_every_round_allocates_the_same_and_nothing_large(kind, n, hold, monkeypatch):
    K, rows, (X, y, weight) = 64, 256, data_of(kind.split()[0], n)
    X, Z = (as_tensor(X), X[:rows]) if "there" in kind else (X, X[:rows])
    copies_as_a_gpu_would(monkeypatch)
    with placed(monkeypatch, "there" in kind, hold, rows), thread_pool(1) as pool:
        parameters = Parameters(n_neurons=K, device="torch:cpu", init="constant", density=1.0)
        run = prepare_training(parameters, (X, y, weight), pool, evals={"again": Dataset(Z, y[:rows])})
        assert len(run.rows.kernels.batches) > 3
        add_round(run, 0)
        before = pointers(run.rows.kernels)
        with allocations() as sizes:
            for t in range(1, 6):
                add_round(run, t)
                torch.empty(MARK, dtype=torch.uint8)
    assert pointers(run.rows.kernels) == before
    rounds = [list(group) for marks, group in itertools.groupby(sizes, lambda s: abs(s) == MARK) if not marks]
    totals = {(sum(size for size in own if size > 0), sum(own)) for own in rounds[1:5]}
    assert len(rounds) == 5
    assert {kept for _, kept in totals} == {0}
    assert len(totals) == 1
    assert 4 * K < max(sizes) < 4 * K * run.rows.plan.placement.capacity.rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "n", "params"),
    [
        ("dense", 200, {"n_neurons": 64}),
        ("sparse", 50, {"n_neurons": 64, "objective": "softmax", "hessian": "per_class"}),
        ("wide", 100, {"n_neurons": 256, "density": 0.005}),
        ("wide", 400, {"n_neurons": 16}),
        ("dense", 4200, {"n_neurons": 64, "objective": "softmax"}),
        ("dense", 4200, {"n_neurons": 128, "gram_rows": 0.6}),
        ("sparse", 4200, {"n_neurons": 2, "group_size": 2, "density": 0.3}),
    ],
    ids=str,
)
def test_a_plan_holds_what_is_really_allocated(kind, n, params, monkeypatch):
    X, y, weight = data_of(kind, n)
    y = np.digitize(y, [-1.0, 0.0, 1.0]) if "objective" in params else y
    evals, params = {"valid": (X[:500], y[:500])} if kind == "dense" else {}, {"init": "constant", **params}
    copies_as_a_gpu_would(monkeypatch)
    monkeypatch.setattr(placement, "BATCH_OUTPUTS", 2**15)  # more rows than a batch has, as where much is planned
    least, most = least_of(X, y, evals, **params), gbun.plan({**ON_TORCH, **params}, (X, y), evals=evals).n_bytes

    def measured(budget):
        with thread_pool(1) as pool, allocations() as sizes:
            parameters = Parameters(**params, device="torch:cpu", memory_budget=budget)
            run = prepare_training(parameters, (X, y, weight), pool, evals=sets(evals))
            for t in range(2):
                add_round(run, t)
        return max(itertools.accumulate(sizes)), run.rows.plan.n_bytes

    for budget in ([least] if n <= 200 else []) + [(3 * least + most) // 4, (least + most) // 2, most]:
        peak, said = measured(budget)
        assert 0.3 * said < peak <= said
