"""Tensors on the device are read in place: no copy of their size is made, and the model is the same."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse

import gbun
from gbun import preparation
from gbun.collectives import AsyncCollective, Solo
from gbun.collectives.threads import in_threads
from gbun.data import ingest
from gbun.data.scaled_columns import ScaledColumns
from gbun.data.scaling import fit_scaling
from gbun.devices import Device, TorchDevice
from gbun.kernels import batches, costs, placement
from gbun.kernels.batches import BatchCapacity, Batches
from gbun.kernels.portable import device_id_words, id_words
from gbun.learners import NetworkLearner
from gbun.networks import Family
from gbun.scored_rows import scale as scale_features
from tests.kernels.test_batches import ON_TORCH, allocations, as_tensor, copies_as_a_gpu_would, data_of

torch = pytest.importorskip("torch")
ON_DEVICE = TorchDevice("torch:cpu")


def make_batches(tensor, scale):
    features, schema = ingest.ingest(tensor, tensors=True)
    scaling = fit_scaling(scale, features, np.ones(features.n_rows), Solo(), schema)
    scaled = scale_features(features, scaling, ON_DEVICE, NetworkLearner(Family(0, 16)), None)
    return Batches(scaled, ON_DEVICE, BatchCapacity(64, 500), resident=True)


@pytest.fixture
def scaled_rows(monkeypatch):
    """The number of rows of every call that scales dense columns."""
    counts, write_to = [], ScaledColumns.write_to
    monkeypatch.setattr(ScaledColumns, "write_to", lambda self, out: counts.append(len(self)) or write_to(self, out))
    return counts


@pytest.fixture
def plans(monkeypatch):
    """The plans that trainings make."""
    made, make_plan = [], preparation.make_plan
    monkeypatch.setattr(preparation, "make_plan", lambda *a, **more: made.append(make_plan(*a, **more)) or made[-1])
    return made


def test_sparse_batches_are_views_of_the_tensor():
    plain = as_tensor(data_of("sparse", 300)[0])
    for index in (torch.int32, torch.int64):
        parts = plain.crow_indices().to(index), plain.col_indices().to(index), plain.values()
        tensor = torch.sparse_csr_tensor(*parts)
        ids, values = tensor.col_indices().untyped_storage(), tensor.values().untyped_storage()
        for scale, same in (("none", True), ("max_abs", False)):
            for batch in make_batches(tensor, scale):
                assert batch.low.untyped_storage().data_ptr() == ids.data_ptr()
                high = batch.high.untyped_storage()
                assert high.nbytes() == 4 if index == torch.int32 else high.data_ptr() == ids.data_ptr()
                assert (batch.values.untyped_storage().data_ptr() == values.data_ptr()) == same


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_words_of_ids_are_found_where_they_are(dtype):
    ids = torch.tensor([0, 5, 2**31 - 1] + ([2**31, 2**32 - 1, 2**33 + 7, 2**62] if dtype == torch.int64 else []))
    for found, wanted in zip(device_id_words(ids.to(dtype)), id_words(ids.numpy()), strict=True):
        np.testing.assert_array_equal(found.numpy(), wanted)
    assert [len(part) for part in device_id_words(ids[:0].to(dtype))] == [0, 0]


def test_dense_columns_are_scaled_batch_by_batch_and_a_single_batch_once(scaled_rows):
    X = data_of("wide", 200)[0]
    found = make_batches(torch.from_numpy(X), "standard")
    wanted = (X - X.mean(axis=0)) / X.std(axis=0)
    for _ in range(2):
        for batch in found:
            np.testing.assert_allclose(batch.dense.numpy(), wanted[batch.rows], atol=1e-5)
    assert scaled_rows == [64, 64, 64, 8] * 2
    assert len({batch.dense.data_ptr() for batch in found}) == 1
    scaled_rows.clear()
    found = make_batches(torch.from_numpy(X[:50]), "standard")
    assert [len(batch) for _ in range(3) for batch in found] == [50] * 3
    assert scaled_rows == [50]


@pytest.mark.slow
@pytest.mark.parametrize("hold", [True, False])
@pytest.mark.parametrize("kind", ["wide", "sparse"])
def test_nothing_of_a_tensors_size_is_made(kind, hold, monkeypatch):
    X, y, weight = data_of(kind, 8000)
    size = (X.nbytes if kind == "wide" else X.indices.nbytes + X.data.nbytes) // 4
    params = {**ON_TORCH, "n_neurons": 2, "group_size": 2, "init": "constant", "scale": "none", "learning_rate": 0.1}
    monkeypatch.setattr(placement, "BATCH_OUTPUTS", 2**10)
    monkeypatch.setattr(costs, "SCALING_BLOCK", 2**16)
    monkeypatch.setattr("gbun.data.scaled_columns.SCALING_BLOCK", 2**16)
    monkeypatch.setattr("gbun.data.scaling.ROWS_PER_BLOCK", 2**8)
    monkeypatch.setattr(ingest, "CHECK_BLOCK", 2**16)
    copies_as_a_gpu_would(monkeypatch)
    peaks = []
    for given in (X, as_tensor(X)):
        budget = gbun.plan(params, (given, y, weight)).n_bytes - (0 if hold else 1)
        with allocations() as sizes:
            gbun.train({**params, "memory_budget": budget}, (given, y, weight), 3)
        peaks.append(max(itertools.accumulate(sizes)))
    vectors = 70 * len(y)  # scores, targets, weights, outputs, indptr
    assert peaks[1] < size + vectors  # the tensor is on the device
    if hold:
        assert peaks[0] - peaks[1] > 3 * size  # the array is copied to it


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["squared_error", "softmax"])
@pytest.mark.parametrize("scale", ["auto", "none", "log+standard", "unit"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_the_model_is_that_of_the_array(kind, scale, objective, monkeypatch):
    monkeypatch.setattr(placement, "BATCH_OUTPUTS", 2**12)
    X, y, weight = data_of(kind, 900)
    y = np.digitize(y, [-1.0, 1.0]) if objective == "softmax" else y
    params = {**ON_TORCH, "scale": scale, "objective": objective}
    evals = [{"valid": (given, y[:200])} for given in (X[:200], as_tensor(X[:200]))]
    wanted = gbun.train(params, (X, y, weight), 5, evals=evals[0])
    found = gbun.train(params, (as_tensor(X), y, weight), 5, evals=evals[1])
    for given in (X, as_tensor(X)):
        for device in ("cpu", "torch:cpu"):
            scores = found.decision_function(given, device=device)
            np.testing.assert_allclose(scores, wanted.decision_function(X), atol=2e-6 * np.abs(scores).max())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.uint8, torch.bool])
def test_numbers_of_any_width_are_read_where_they_are(dtype):
    X = (3 * data_of("dense", 700)[0]).astype(np.float32)
    given = torch.from_numpy(X).abs().to(dtype)
    features = ingest.ingest(given, tensors=True)[0]
    assert features.dense.data_ptr() == given.data_ptr()
    y = given.double().numpy()[:, 0]
    for scale in ("auto", "max_abs", "idf"):
        wanted = gbun.train({**ON_TORCH, "scale": scale}, (given.double().numpy(), y), 3)
        found = gbun.train({**ON_TORCH, "scale": scale}, (given, y), 3)
        np.testing.assert_allclose(found.predict(given), wanted.predict(given.double().numpy()), atol=1e-5)


def test_rows_that_are_held_out_and_a_linear_start_of_tensors():
    for kind in ("dense", "sparse"):
        X, y, weight = data_of(kind, 1200)
        params = {**ON_TORCH, "init": "linear", "early_stopping_rounds": 3, "gram_rows": 0.5}
        wanted, found = (gbun.train(params, (given, y, weight), 20) for given in (X, as_tensor(X)))
        assert found.n_rounds == wanted.n_rounds
        np.testing.assert_allclose(found.predict(X), wanted.predict(X), atol=1e-5)


def test_entries_out_of_order_are_read_from_the_host():
    """They are sorted and summed on the host, so the device has other entries."""
    tensor = torch.sparse_csr_tensor([0, 2, 4], [3, 1, 2, 2], torch.tensor([1.0, 2.0, 3.0, 4.0]), size=(2, 5))
    entries = ingest.ingest(tensor, tensors=True)[0].sparse
    assert entries.on_device is None
    assert entries.ids.tolist() == [1, 3, 2]
    tensor = torch.sparse_csr_tensor([0, 2, 4], [1, 3, 1, 2], torch.tensor([1.0, 2.0, 3.0, 4.0]), size=(2, 5))
    entries = ingest.ingest(tensor, tensors=True)[0].sparse
    assert entries.on_device.ids.data_ptr() == tensor.col_indices().data_ptr()
    assert ingest.ingest(tensor)[0].sparse.on_device is None  # compiled kernels read the host's memory
    assert entries.take(np.array([1])).on_device is None


def test_the_reference_on_numpy_reads_the_host():
    X = data_of("sparse", 100)[0]
    features = ingest.ingest(as_tensor(X), tensors=True)[0]
    (batch,) = Batches(features, Device(), BatchCapacity(100, 10_000), True)
    assert isinstance(batch.low, np.ndarray)


# Plans


def test_a_plan_of_tensors_has_no_copy_of_them(plans):
    for kind in ("wide", "sparse"):
        X, y, weight = data_of(kind, 4000)
        on_device, evals = as_tensor(X), {"valid": (as_tensor(X[:300]), y[:300])}
        plan = gbun.plan(ON_TORCH, (on_device, y, weight), 1, evals=evals)
        beside = gbun.plan(ON_TORCH, (X, y, weight), 1, evals={"valid": (X[:300], y[:300])})
        assert plan.placement.resident
        if kind == "sparse":
            assert dict(plan.parts)["features"] < 0.5 * dict(beside.parts)["features"]
        plans.clear()
        gbun.train({**ON_TORCH, "memory_budget": plan.n_bytes}, (on_device, y, weight), 1, evals=evals)
        assert plans[0].n_bytes == plan.n_bytes


def test_many_rows_of_a_tensor_cost_a_batch(monkeypatch):
    monkeypatch.setattr(placement, "BATCH_OUTPUTS", 2**12)
    sizes = []
    for n in (2000, 20_000):
        X, y, weight = data_of("wide", n)
        sizes.append(dict(gbun.plan(ON_TORCH, (as_tensor(X), y, weight)).parts)["features"])
    assert sizes[1] < 1.1 * sizes[0] < X.nbytes


@pytest.mark.parametrize("kind", ["wide", "sparse"])
def test_a_plan_holds_what_is_allocated_for_tensors(kind, monkeypatch):
    X, *rest = data_of(kind, 4200)
    params, data = {**ON_TORCH, "init": "constant"}, (as_tensor(X), *rest)
    copies_as_a_gpu_would(monkeypatch)
    planned = gbun.plan(params, data, 2).n_bytes
    with allocations() as sizes:
        gbun.train({**params, "memory_budget": planned}, data, 2)
    assert 0.3 * planned < max(itertools.accumulate(sizes)) <= planned


@pytest.mark.slow
@pytest.mark.parametrize("init", ["constant", "linear"])
def test_an_error_names_the_bytes_if_a_tensor_cannot_be_scaled(init, plans, monkeypatch):
    X, y, weight = data_of("dense")
    write_to, tries = ScaledColumns.write_to, []

    def short(self, out):
        tries.append(len(self))
        raise torch.OutOfMemoryError("out of memory")

    params, data = {**ON_TORCH, "init": init}, (torch.from_numpy(X), y, weight)
    with monkeypatch.context() as m:
        m.setattr(ScaledColumns, "write_to", short)
        with pytest.raises(MemoryError, match=r"device='torch:cpu' ran out of memory with a plan for [0-9]+ bytes"):
            gbun.train(params, data, 1)
    assert tries
    if init == "constant":
        tries.clear()
        plans.clear()
        monkeypatch.setattr(ScaledColumns, "write_to", lambda *a: write_to(*a) if tries else short(*a))
        gbun.train(params, data, 1)
        assert plans[1].n_bytes < plans[0].n_bytes


def test_scipy_and_tensors_of_other_layouts_have_no_memory_of_a_device():
    X = data_of("sparse", 50)[0]
    for given in (X, scipy.sparse.coo_array(X), as_tensor(X).to_sparse_coo(), as_tensor(X).to_sparse_csc()):
        assert ingest.ingest(given, tensors=True)[0].sparse.on_device is None


# Unusual tensors


def test_strided_entries_are_not_read_in_place():
    """torch accepts them, but kernels need contiguous memory."""
    X, y, _ = data_of("sparse", 300)
    crow, col, values = (torch.from_numpy(a) for a in (X.indptr.astype(np.int64), X.indices.astype(np.int64), X.data))
    every_second = torch.stack([values, -values], dim=1).reshape(-1)[::2]
    tensor = torch.sparse_csr_tensor(crow, col, every_second, size=X.shape)
    assert tensor.values().stride() == (2,)
    on_device = ingest.ingest(tensor, tensors=True)[0].sparse.on_device
    assert on_device.values is None
    assert on_device.ids.data_ptr() == tensor.col_indices().data_ptr()
    params = {**ON_TORCH, "scale": "none", "init": "constant"}
    wanted = gbun.train(params, (X, y), 3).predict(X)
    np.testing.assert_allclose(gbun.train(params, (tensor, y), 3).predict(X), wanted, atol=1e-6)
    strided = torch.sparse_csr_tensor(crow, torch.stack([col, col], dim=1).reshape(-1)[::2], values, size=X.shape)
    assert ingest.ingest(strided, tensors=True)[0].sparse.on_device is None
    np.testing.assert_allclose(gbun.train(params, (strided, y), 3).predict(X), wanted, atol=1e-6)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("n", [1, 40])
def test_few_rows_and_no_entries(kind, n):
    X, y, _ = data_of(kind, 200)
    model = gbun.train({**ON_TORCH, "init": "constant"}, (as_tensor(X), y), 2)
    for rows in (X[:n], 0.0 * X[:n]):
        rows = rows if kind == "dense" else scipy.sparse.csr_array(rows)
        if kind == "sparse":
            rows.eliminate_zeros()
        found = model.predict(as_tensor(rows), device="torch:cpu")
        np.testing.assert_allclose(found, model.predict(rows), atol=1e-5)


def test_a_batch_that_was_not_finished_is_made_again(monkeypatch):
    X, write_to, calls = data_of("wide", 200)[0], ScaledColumns.write_to, []
    found = make_batches(torch.from_numpy(X), "standard")
    wanted = [batch.dense.clone() for batch in found]

    def fails_half_way(self, out):
        write_to(self, out)
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(ScaledColumns, "write_to", fails_half_way)
    with pytest.raises(KeyboardInterrupt):
        list(found)
    for batch, dense in zip(found, wanted, strict=True):
        assert torch.equal(batch.dense, dense)


@pytest.mark.parametrize("objective", ["squared_error", "softmax"])
def test_rows_are_scaled_once_a_round_if_outputs_are_kept(objective, scaled_rows, monkeypatch):
    X, y, _ = data_of("wide", 1000)
    y = np.digitize(y, [-1.0, 1.0]) if objective == "softmax" else y
    monkeypatch.setattr(placement, "BATCH_OUTPUTS", 2**12)
    totals = []
    for n_rounds in (2, 5):
        scaled_rows.clear()
        gbun.train({**ON_TORCH, "objective": objective, "init": "constant"}, (torch.from_numpy(X), y), n_rounds)
        totals.append(sum(scaled_rows))
    assert totals[1] - totals[0] == 3 * len(X)


def test_rows_are_sent_if_the_scaled_values_of_a_tensor_do_not_fit():
    X, y, _ = data_of("sparse", 300)
    params = {**ON_TORCH, "init": "constant", "scale": "max_abs"}
    least = []
    for given in (X, as_tensor(X)):
        with pytest.raises(ValueError, match="memory_budget must be at least") as raised:
            gbun.plan({**params, "memory_budget": 1000}, (given, y))
        least.append(raised.value)
    assert str(least[0]) == str(least[1])
    budget = least[0].n_bytes
    plan = gbun.plan({**params, "memory_budget": budget}, (as_tensor(X), y))
    assert not plan.placement.resident
    wanted = gbun.train(params, (X, y), 2).predict(X)
    found = gbun.train({**params, "memory_budget": budget}, (as_tensor(X), y), 2).predict(X)
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_workers_read_their_tensors_in_place(monkeypatch):
    X, y, _ = data_of("sparse", 600)
    found, device_entries = [], batches.device_entries
    monkeypatch.setattr(batches, "device_entries", lambda *a: found.append(device_entries(*a)) or found[-1])

    def work(collective):
        local = np.arange(600) % 2 == collective.rank
        async_collective = AsyncCollective(collective)
        try:
            data = as_tensor(scipy.sparse.csr_array(X[local])), y[local]
            return gbun.train({**ON_TORCH, "init": "constant", "n_jobs": 1}, data, 3, collective=async_collective)
        finally:
            async_collective.close()

    models = in_threads(2, work, timeout=60.0)
    assert found
    assert all(on_device is not None for on_device in found)
    wanted = gbun.train({**ON_TORCH, "init": "constant"}, (X, y), 3).predict(X)
    np.testing.assert_allclose(models[0].predict(X), wanted, atol=1e-5)
