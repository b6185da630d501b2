"""A device with less memory than it said: smaller plans and batches are tried, then an error says what is needed."""

from __future__ import annotations

import itertools
import weakref
from contextlib import contextmanager

import numpy as np
import pytest

import gbun
from gbun import assembly, ensemble
from gbun.devices import TorchDevice
from gbun.kernels import batched
from test_batches import ON_TORCH, data_of, least_of

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


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_where_memory_is_short_a_smaller_plan_is_tried(kind, monkeypatch):
    data, plans, made = data_of(kind), [], assembly.make_device_plan
    wanted, most, least = gbun.train(ON_TORCH, data, 3), gbun.plan(ON_TORCH, data).n_bytes, least_of(*data[:2])
    monkeypatch.setattr(assembly, "make_device_plan", lambda *a, **more: plans.append(made(*a, **more)) or plans[-1])
    with limited(monkeypatch, most // 3):
        found = gbun.train(ON_TORCH, data, 3)
    np.testing.assert_allclose(found.predict(data[0]), wanted.predict(data[0]), atol=2e-6)
    assert len(plans) > 1
    assert all(b.n_bytes < a.n_bytes for a, b in itertools.pairwise(plans))
    needed = f"device='torch:cpu' ran out of memory with a plan for {least} bytes, and none needs less"
    with limited(monkeypatch, 1000), pytest.raises(MemoryError, match=needed):
        gbun.train(ON_TORCH, data, 3)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_predictions_are_made_in_smaller_batches_where_memory_is_short(kind, monkeypatch):
    X, y = data_of(kind, 2000)[:2]
    model = gbun.train({**ON_TORCH, "n_neurons": 64}, (X, y), 3)
    wanted, sizes, made = model.predict(X, device="torch:cpu"), [], ensemble.BatchedKernels.__init__

    def watching(self, features, family, n_scores, device, placement, *more):
        sizes.append(placement.room.rows)
        made(self, features, family, n_scores, device, placement, *more)

    monkeypatch.setattr(ensemble.BatchedKernels, "__init__", watching)
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
    monkeypatch.setattr(batched, "HEADS", 2 * model.ensemble.heads[0].size)
    np.testing.assert_array_equal(model.predict(X, device="torch:cpu"), wanted)
    monkeypatch.setattr(TorchDevice, "put", lambda self, *a: puts.append(0) or put(self, *a))
    monkeypatch.setattr(batched.BatchedKernels, "_add", lambda *a: puts.append(1))
    model.predict(X, device="torch:cpu")
    assert puts.index(1) < len(puts) - 1 - puts[::-1].index(0)  # some go there after others have been used


def test_rows_that_do_not_fit_are_forgotten_before_others_are_made(monkeypatch):
    alive, seen, made = weakref.WeakSet(), [], assembly.TrainingRows.__init__
    monkeypatch.setattr(assembly.TrainingRows, "__init__", lambda self, *a: alive.add(self) or made(self, *a))
    monkeypatch.setattr(TorchDevice, "give_back", lambda self: seen.append(len(alive)))

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
