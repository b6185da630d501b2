"""A device with less memory than it said: smaller plans and batches are tried, then an error says what is needed."""

from __future__ import annotations

import itertools
import re
import weakref
from contextlib import contextmanager

import numpy as np
import pytest

import gbun
from gbun import preparation, scored_rows
from gbun.data import ingest
from gbun.devices import TorchDevice
from gbun.kernels import device as device_kernels
from gbun.kernels import placement, portable
from gbun.kernels.costs import round_bytes
from gbun.kernels.device import DeviceKernels, DeviceTrainingKernels
from gbun.networks import Family
from tests.kernels.test_batches import ON_TORCH, allocations, as_tensor, copies_as_a_gpu_would, data_of, least_of

torch = pytest.importorskip("torch")


@contextmanager
def limited(monkeypatch, limit, error=None):
    """The device refuses what would make more than `limit` bytes at a time."""
    live, empty, put = [0], TorchDevice.empty, TorchDevice.put

    def counted(tensor):
        size = tensor.numel() * tensor.element_size()
        if live[0] + size > limit:
            raise error or torch.OutOfMemoryError("out of memory")
        live[0] += size
        weakref.finalize(tensor, lambda: live.__setitem__(0, live[0] - size))
        return tensor

    with monkeypatch.context() as m:
        m.setattr(TorchDevice, "empty", lambda self, *shape, **more: counted(empty(self, *shape, **more)))
        m.setattr(TorchDevice, "put", lambda self, *args: counted(put(self, *args)))
        yield


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_where_memory_is_short_a_smaller_plan_is_tried(kind, monkeypatch):
    data, plans, made = data_of(kind), [], preparation.make_plan
    wanted, most, least = gbun.train(ON_TORCH, data, 3), gbun.plan(ON_TORCH, data).n_bytes, least_of(*data[:2])
    monkeypatch.setattr(preparation, "make_plan", lambda *a, **more: plans.append(made(*a, **more)) or plans[-1])
    with limited(monkeypatch, most // 3):
        found = gbun.train(ON_TORCH, data, 3)
    np.testing.assert_allclose(found.predict(data[0]), wanted.predict(data[0]), atol=2e-6)
    assert len(plans) > 1
    assert all(b.n_bytes < a.n_bytes for a, b in itertools.pairwise(plans))
    needed = f"device='torch:cpu' ran out of memory with a plan for {least} bytes, and none needs less"
    with limited(monkeypatch, 1000), pytest.raises(MemoryError, match=needed):
        gbun.train(ON_TORCH, data, 3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_predictions_are_made_in_smaller_batches_where_memory_is_short(kind, monkeypatch):
    X, y = data_of(kind, 2000)[:2]
    model = gbun.train({**ON_TORCH, "n_neurons": 64}, (X, y), 3)
    wanted, sizes, made = model.predict(X, device="torch:cpu"), [], DeviceKernels.__init__

    def watching(self, features, family, n_scores, device, placement, *more):
        sizes.append(placement.capacity.rows)
        made(self, features, family, n_scores, device, placement, *more)

    monkeypatch.setattr(DeviceKernels, "__init__", watching)
    with limited(monkeypatch, 8 * 64 * 1000 + 16 * 2000):  # scores, and outputs of a thousand rows twice
        np.testing.assert_allclose(model.predict(X, device="torch:cpu"), wanted, atol=2e-6)
    assert len(sizes) > 1
    assert sizes[-1] < sizes[0]
    words = "device='torch:cpu' ran out of memory with the smallest batches there are: [0-9]+ bytes must be free"
    with limited(monkeypatch, 1000), pytest.raises(MemoryError, match=words):
        model.predict(X, device="torch:cpu")
    with limited(monkeypatch, 1000, RuntimeError("broken")), pytest.raises(RuntimeError, match="broken"):
        model.predict(X, device="torch:cpu")


def test_heads_of_many_rounds_go_there_by_and_by(monkeypatch):
    X, y = data_of("dense", 300)[:2]
    model = gbun.train(ON_TORCH, (X, y), 7)
    wanted, puts, put = model.predict(X, device="torch:cpu"), [], TorchDevice.put
    monkeypatch.setattr(device_kernels, "HEAD_BYTES", 2 * round_bytes(model.ensemble.learner.family, 1))
    np.testing.assert_array_equal(model.predict(X, device="torch:cpu"), wanted)
    monkeypatch.setattr(TorchDevice, "put", lambda self, *a: puts.append(0) or put(self, *a))
    to_memberships = portable.to_memberships
    monkeypatch.setattr(portable, "to_memberships", lambda *a: puts.append(1) or to_memberships(*a))
    model.predict(X, device="torch:cpu")
    assert puts.index(1) < len(puts) - 1 - puts[::-1].index(0)  # some go there after others have been used


def test_rows_that_do_not_fit_are_forgotten_before_others_are_made(monkeypatch):
    alive, seen, made = weakref.WeakSet(), [], preparation.TrainingRows.__init__
    monkeypatch.setattr(preparation.TrainingRows, "__init__", lambda self, *a: alive.add(self) or made(self, *a))
    monkeypatch.setattr(TorchDevice, "release_memory", lambda self: seen.append(len(alive)))

    def greedy(y, scores, weight):
        if len(y) > 300 and not torch.is_grad_enabled():  # on the device
            raise torch.OutOfMemoryError("too many rows")
        return weight * (scores - y), weight

    gbun.train({**ON_TORCH, "objective": greedy}, data_of("dense"), 1)
    assert set(seen) == {0}


def test_other_errors_are_not_taken_for_want_of_memory(monkeypatch):
    for error in (RuntimeError("broken"), ValueError("wrong"), KeyboardInterrupt("enough")):
        with limited(monkeypatch, 1000, error), pytest.raises(type(error), match=str(error)):
            gbun.train(ON_TORCH, data_of("dense"), 1)
    with pytest.raises(RuntimeError, match="can't allocate memory") as raised:
        TorchDevice("torch:cpu").empty(2**50)
    assert TorchDevice("torch:cpu").is_out_of_memory(raised.value)


def test_infinite_values_of_tensors_are_looked_for_in_blocks(monkeypatch):
    X, isinf, looked = torch.zeros(100, 7), torch.Tensor.isinf, []
    X[73, 2] = float("inf")
    monkeypatch.setattr(ingest, "CHECK_BLOCK", 70)
    monkeypatch.setattr(torch.Tensor, "isinf", lambda self: looked.append(len(self)) or isinf(self))
    with pytest.raises(ValueError, match="infinite value in row 73, column 2"):
        gbun.train(ON_TORCH, (X, np.arange(100.0)), 1)
    assert looked == [10] * 8


# Predictions


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "there"), [("dense", True), ("sparse", False)])
def test_the_bytes_that_are_told_are_enough(kind, there, monkeypatch):
    X, y = data_of(kind, 2000)[:2]
    y = np.stack([y] * 300, axis=1)  # scores are the most of it
    model = gbun.train({**ON_TORCH, "init": "constant"}, (X, y), 2)
    given = as_tensor(X) if there else X
    wanted, needed = model.predict(X), []
    monkeypatch.setattr(TorchDevice, "free_bytes", lambda self: 10**8)
    for predict in (model.predict, lambda *a, **more: list(model.staged_predict(*a, **more))[-1]):
        with limited(monkeypatch, 1000), pytest.raises(MemoryError, match=r"[0-9]+ bytes must be free") as raised:
            predict(given, device="torch:cpu")
        needed.append(int(re.search("([0-9]+) bytes must", str(raised.value)).group(1)))
        with limited(monkeypatch, needed[-1]):
            np.testing.assert_allclose(predict(given, device="torch:cpu"), wanted, atol=1e-5)
    assert needed[0] < 8 * y.size + 2**22
    assert needed[1] > 8 * y.size


@pytest.mark.parametrize("group_size", [2, 16])
@pytest.mark.parametrize("kind", ["dense", "sparse", "dense there", "sparse there"])
def test_the_smallest_batches_hold_what_is_really_allocated(kind, group_size, monkeypatch):
    X, y = data_of(kind.split()[0], 1000)[:2]
    model = gbun.train({"n_neurons": 128, "group_size": group_size, "density": 0.5, "init": "constant"}, (X, y), 3)
    given, family = as_tensor(X) if "there" in kind else X, model.ensemble.learner.family
    copies_as_a_gpu_would(monkeypatch)
    monkeypatch.setattr(TorchDevice, "free_bytes", lambda self: 0)
    features, device = ingest.ingest(given, tensors=True)[0], TorchDevice("torch:cpu")
    said = placement.smallest_placement(features, 128, 1, device).n_bytes + 3 * round_bytes(family, 1)
    with allocations() as sizes:
        model.predict(given, device="torch:cpu")
    assert 0.3 * said < max(itertools.accumulate(sizes)) <= said


def test_blocks_of_rows_are_halved_where_their_scores_do_not_fit(monkeypatch):
    X, y = data_of("dense", 4000)[:2]
    model = gbun.train({**ON_TORCH, "init": "constant"}, (X, np.stack([y] * 50, axis=1)), 2)
    wanted, seen, block = model.predict(X), [], gbun.Model._block_scores
    monkeypatch.setattr(
        gbun.Model, "_block_scores", lambda self, e, f, *a: seen.append(f.n_rows) or block(self, e, f, *a)
    )
    monkeypatch.setattr(TorchDevice, "free_bytes", lambda self: 10**6)
    with limited(monkeypatch, 8 * 50 * 2500):
        np.testing.assert_allclose(model.predict(X, device="torch:cpu"), wanted, atol=1e-5)
    assert seen[0] == 4000
    assert seen[-1] <= 2000


def test_a_round_is_counted_with_all_that_is_there_of_it():
    assert round_bytes(Family(0, 16), 1) == 5 * 512
    assert round_bytes(Family(0, 256), 2) == 6 * 1024
    assert round_bytes(Family(0, 16, density=0.5), 1) == 12 * 512


# The rehearsal


def test_a_rehearsal_does_what_rounds_do(monkeypatch):
    X, y, weight = data_of("dense", 4200)
    calls, kernels = [], DeviceTrainingKernels

    def watch(owner, name, told):
        method = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda self, *a: calls.append((name, a[told] is not None)) or method(self, *a))

    watch(kernels, "first_pass", 1)  # with the head of the round before
    watch(kernels, "normal_equations", 2)  # with a sample
    watch(DeviceKernels, "add_rounds", 0)
    params = {**ON_TORCH, "n_neurons": 128, "gram_rows": 0.6}
    gbun.train(params, (X, y, weight), 0, evals={"valid": (X[:100], y[:100])})
    passes = [("first_pass", False), ("normal_equations", True), ("first_pass", True), ("normal_equations", True)]
    assert calls == [*passes, ("add_rounds", True)]


def test_rehearsals_leave_scores_as_they_were_and_rounds_of_an_initial_model_that_do_not_fit_are_told(monkeypatch):
    data = data_of("dense")
    model = gbun.train(ON_TORCH, data, 3)
    monkeypatch.setattr(scored_rows.TrainingRows, "rehearse", lambda *a: None)
    monkeypatch.setattr(scored_rows.ScoredRows, "rehearse", lambda *a: None)
    np.testing.assert_array_equal(gbun.train(ON_TORCH, data, 3).ensemble.heads, model.ensemble.heads)

    def short(*a):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(scored_rows.TrainingRows, "add_rounds", short)
    with pytest.raises(MemoryError, match=r"ran out of memory with a plan for [0-9]+ bytes"):
        gbun.train(ON_TORCH, data, 1, init_model=model)
