"""Where rows are computed: on the host by compiled kernels, or wherever torch can put arrays.

`device_of("cpu")` is the host. Everything else is a `TorchDevice`: "cuda", "cuda:1", "mps", "xpu", and "torch:cpu",
which takes the path of a GPU on the processor.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from gbun.arrays import Array, device_has_float64, load_torch, without_autocast
from gbun.dtypes import MEMBERSHIP, SUM
from gbun.memory import free_memory
from gbun.ranges import DeviceName

Made = TypeVar("Made")
OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed")


class Precision:
    """The precision of float32 products, which torch keeps for the whole process.

    The first who computes sets it and the last one gives it back; who wants another one waits until then.
    """

    def __init__(self) -> None:
        self.turn, self.holders, self.tf32 = threading.Condition(), 0, False
        self.own = threading.local()

    @contextmanager
    def of(self, torch: Any, tf32: bool) -> Iterator[None]:
        if getattr(self.own, "holds", False):  # an objective that predicts: it would wait for itself
            with _precision(torch, tf32):
                yield
            return
        with self.turn:
            self.turn.wait_for(lambda: self.holders == 0 or self.tf32 == tf32)
            if self.holders == 0:
                self.tf32, self.setting = tf32, _precision(torch, tf32)
                self.setting.__enter__()
            self.holders += 1
        self.own.holds = True
        try:
            yield
        finally:
            self.own.holds = False
            with self.turn:
                self.holders -= 1
                if self.holders == 0:
                    self.setting.__exit__(None, None, None)
                    self.turn.notify_all()


PRECISION = Precision()


class Device:
    """Where arrays are. This one is the host, with NumPy: the compiled kernels need nothing else, and the portable ones
    run on it as a reference."""

    name = "cpu"
    has_float64 = True
    stream_api: Any = None

    def empty(self, *shape: int, dtype: Any = MEMBERSHIP) -> Array:
        return np.empty(shape, dtype=dtype)

    def put(self, values: Any, dtype: Any = None) -> Array:
        """The values as an array of this device; no copy where they are one already."""
        return np.asarray(values, dtype=dtype)

    def has(self, values: Any) -> bool:
        """Whether these are rows of the user's that it has in memory of its own; the host's kernels want copies."""
        return False

    def fill(self, target: Array, values: Any) -> None:
        """Copy values into an array of this device."""
        target[...] = values

    def free_bytes(self) -> int:
        return free_memory()

    @property
    def score_dtype(self) -> Any:
        return SUM if self.has_float64 else MEMBERSHIP

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, MemoryError)

    def unless_out_of_memory(self, make: Callable[[], Made]) -> Made | None:
        """What `make` gives; None, with nothing of it left, where memory ran out."""
        try:
            return make()
        except Exception as error:
            if not self.is_out_of_memory(error):
                raise
        gc.collect()  # after the error is gone: its frames held what had been made
        self.give_back()
        return None

    @contextmanager
    def computing(self) -> Iterator[None]:
        """What holds while kernels run."""
        yield

    def give_back(self) -> None:
        """Memory that is not used any more is free for all."""

    def finish(self) -> None:
        """Wait until all is computed that has been asked for."""

    def __str__(self) -> str:
        return "the processor, compiled kernels"


class TorchDevice(Device):
    """Arrays of torch on one device."""

    def __init__(self, name: str, tf32: bool = False, n_threads: int | None = None) -> None:
        self.name, self.tf32, self.n_threads = name, tf32, n_threads
        self.torch = load_torch(f"device={name!r}")
        self.device = self.torch.device(name.removeprefix("torch:"))
        if not self._is_present():
            raise ValueError(
                f"device={name!r} is absent; here are (by torch {self.torch.__version__}): {self._present()}"
            )
        module = getattr(self.torch, self.device.type)
        self.stream_api = module if self.device.type in ("cuda", "xpu") else None
        if self.device.type != "cpu":  # as tensors there have it, with an index: whatever becomes the current one later
            self.device = self.torch.empty(0, device=self.device).device
        self.has_float64 = device_has_float64(self.device)

    def _is_present(self) -> bool:
        kind, torch = self.device.type, self.torch
        if kind in ("cuda", "xpu"):
            return bool(getattr(torch, kind).is_available()) and (self.device.index or 0) < _count(torch, kind)
        return bool(torch.backends.mps.is_available()) if kind == "mps" else True

    def _present(self) -> str:
        found = [f"{kind}:{i}" for kind in ("cuda", "xpu") for i in range(_count(self.torch, kind))]
        found += ["mps"] * bool(self.torch.backends.mps.is_available())
        return ", ".join(["cpu", "torch:cpu", *found])

    @cached_property
    def _dtypes(self) -> dict[Any, Any]:
        t = self.torch
        names = ("float32", "float64", "int32", "int64", "bool")
        return {np.dtype(name): getattr(t, name) for name in names}

    def empty(self, *shape: int, dtype: Any = MEMBERSHIP) -> Array:
        return self.torch.empty(shape, dtype=self._dtypes[np.dtype(dtype)], device=self.device)

    def pinned(self, *shape: int, dtype: Any = MEMBERSHIP) -> Array:
        """Host memory from which a device copies while the host goes on."""
        pin = self.stream_api is not None
        return self.torch.empty(shape, dtype=self._dtypes[np.dtype(dtype)], device="cpu", pin_memory=pin)

    def put(self, values: Any, dtype: Any = None) -> Array:
        values = self.tensor(values, dtype)
        return values.to(device=self.device, dtype=None if dtype is None else self._dtypes[np.dtype(dtype)])

    def tensor(self, values: Any, dtype: Any = None) -> Array:
        """NumPy's array as a tensor on the host, without a copy where it may be written to; a tensor as it is."""
        if isinstance(values, self.torch.Tensor):
            return values
        values = np.ascontiguousarray(values, dtype=dtype)
        return self.torch.from_numpy(values if values.flags.writeable else values.copy())

    def has(self, values: Any) -> bool:
        return isinstance(values, self.torch.Tensor) and values.device == self.device

    def fill(self, target: Array, values: Any) -> None:
        target.copy_(self.tensor(values))

    def free_bytes(self) -> int:
        """What torch has taken and does not use is free for it, too."""
        if self.device.type == "mps":
            return int(self.torch.mps.recommended_max_memory() - self.torch.mps.current_allocated_memory())
        if self.stream_api is None:
            return free_memory()
        api, device = self.stream_api, self.device
        return int(api.mem_get_info(device)[0] + api.memory_reserved(device) - api.memory_allocated(device))

    def is_out_of_memory(self, error: BaseException) -> bool:
        # Only CUDA and XPU have a class of their own for it.
        told = str(error).lower()
        kinds = (MemoryError, self.torch.OutOfMemoryError)
        return isinstance(error, kinds) or any(words in told for words in OUT_OF_MEMORY)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Products in float32 as IEEE has them, unless TF32 is asked for; as many threads as wanted; no graph, and no
        autocast."""
        plain = without_autocast(self.torch, self.device.type)
        threads = HOST_THREADS.limited(self.torch, self.n_threads if self.device.type == "cpu" else None)
        try:
            with PRECISION.of(self.torch, self.tf32), self.torch.no_grad(), plain, threads:
                yield
        except TypeError as error:
            if self.has_float64 or "float64" not in str(error):
                raise
            raise TypeError(
                f"device={self.name!r} has no float64: scores, targets and weights are float32 there, and an objective "
                f"must not make anything wider ({error})"
            ) from error

    def finish(self) -> None:
        if self.stream_api is not None:
            self.stream_api.synchronize(self.device)
        elif self.device.type == "mps":
            self.torch.mps.synchronize()

    def give_back(self) -> None:
        module = getattr(self.torch, self.device.type)
        if hasattr(module, "empty_cache"):
            module.empty_cache()

    def __str__(self) -> str:
        """What it is, for whoever reads a measurement."""
        what = "the processor"
        if self.stream_api is not None:
            what = str(self.stream_api.get_device_name(self.device))
        elif self.device.type == "mps":
            what = "Apple's GPU"
        return f"{what}, torch {self.torch.__version__}"


def device_of(name: Any, tf32: bool = False, n_threads: int | None = None) -> Device:
    """The device of this name. `tf32` lets CUDA round the factors of products to ten bits; `n_threads` are the host's.

    >>> device_of("cpu").name
    'cpu'
    """
    if not DeviceName().admits(name):
        raise ValueError(f"device must be {DeviceName()}, got {name!r}{DeviceName().hint(name)}")
    return Device() if name == "cpu" else TorchDevice(name, tf32, n_threads)


@contextmanager
def _precision(torch: Any, tf32: bool) -> Iterator[None]:
    """How exact products of float32 are, for a while: as IEEE has them, or on CUDA in TF32."""
    settings = [torch.backends.cuda.matmul, torch.backends.mkldnn.matmul] if _has_settings(torch) else []
    before = [own.fp32_precision for own in settings] if settings else torch.get_float32_matmul_precision()
    for own in settings:
        own.fp32_precision = "tf32" if tf32 and own is settings[0] else "ieee"
    if not settings:
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        yield
    finally:
        for own, value in zip(settings, before, strict=False):
            own.fp32_precision = "none"  # as it is set for all of torch,
            if own.fp32_precision != value:  # or for products alone
                own.fp32_precision = value
        if not settings:
            torch.set_float32_matmul_precision(before)


def _has_settings(torch: Any) -> bool:
    """Whether torch, from 2.9 on, has a setting for each kind of device."""
    return hasattr(torch.backends.cuda.matmul, "fp32_precision") and hasattr(torch.backends.mkldnn, "matmul")


class HostThreads:
    """How many threads torch's own operations take on the host. The number is noted by the first who changes it, and
    the last one gives it back: what a new thread begins with is the process's."""

    def __init__(self) -> None:
        self.lock, self.holders, self.before = threading.Lock(), 0, 1

    @contextmanager
    def limited(self, torch: Any, count: int | None) -> Iterator[None]:
        if count is None:
            yield
            return
        with self.lock:
            if self.holders == 0:
                self.before = torch.get_num_threads()
            self.holders += 1
            torch.set_num_threads(count)
        try:
            yield
        finally:
            with self.lock:
                self.holders -= 1
                torch.set_num_threads(self.before)


HOST_THREADS = HostThreads()


def _count(torch: Any, kind: str) -> int:
    module = getattr(torch, kind, None)
    return int(module.device_count()) if module is not None and module.is_available() else 0
