"""Devices: the host with its compiled kernels, and the devices of torch.

`make_device("cpu")` is the host. All others are a `TorchDevice`: "cuda", "cuda:1", "mps", "xpu", and "torch:cpu", which
computes on the processor in the same way as on a GPU.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from gbun.arrays import Array, disable_autocast, has_float64, load_torch
from gbun.dtypes import MEMBERSHIP, SUM
from gbun.memory import free_memory
from gbun.ranges import DeviceName

T = TypeVar("T")
OUT_OF_MEMORY_WORDS = ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed")


class ProductPrecision:
    """The precision of float32 products, a setting of torch for the whole process.

    The first thread that computes sets it and the last one restores it. A thread that needs another precision waits
    until then.
    """

    def __init__(self) -> None:
        self.condition, self.holders, self.tf32 = threading.Condition(), 0, False
        self.thread_state = threading.local()

    @contextmanager
    def hold(self, torch: Any, tf32: bool) -> Iterator[None]:
        if getattr(self.thread_state, "holds", False):  # an objective that predicts would wait for itself
            with _set_precision(torch, tf32):
                yield
            return
        with self.condition:
            self.condition.wait_for(lambda: self.holders == 0 or self.tf32 == tf32)
            if self.holders == 0:
                self.tf32, self.setting = tf32, _set_precision(torch, tf32)
                self.setting.__enter__()
            self.holders += 1
        self.thread_state.holds = True
        try:
            yield
        finally:
            self.thread_state.holds = False
            with self.condition:
                self.holders -= 1
                if self.holders == 0:
                    self.setting.__exit__(None, None, None)
                    self.condition.notify_all()


PRODUCT_PRECISION = ProductPrecision()


class Device:
    """The host, with arrays of NumPy; base class of other devices.

    Compiled kernels compute here; the portable kernels run on it as a reference.
    """

    name = "cpu"
    has_float64 = True
    stream_api: Any = None
    compiled = True  # the compiled kernels compute there; elsewhere the portable ones do

    def empty(self, *shape: int, dtype: Any = MEMBERSHIP) -> Array:
        return np.empty(shape, dtype=dtype)

    def put(self, values: Any, dtype: Any = None) -> Array:
        """Return the values as an array of this device, without a copy if they are one."""
        return np.asarray(values, dtype=dtype)

    def is_resident(self, values: Any) -> bool:
        """Return whether the user's rows are in the memory of this device; False on the host, whose kernels copy."""
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

    def try_to_allocate(self, make: Callable[[], T]) -> T | None:
        """Return the result of `make`, or None if memory ran out; then everything it allocated is freed."""
        try:
            return make()
        except Exception as error:
            if not self.is_out_of_memory(error):
                raise
        gc.collect()  # only now, as the frames of the error held the allocated arrays
        self.release_memory()
        return None

    @contextmanager
    def compute_context(self) -> Iterator[None]:
        """Apply the settings that kernels run with."""
        yield

    def release_memory(self) -> None:
        """Return cached memory to the system."""

    def synchronize(self) -> None:
        """Wait until all operations are finished."""

    def __str__(self) -> str:
        return "the processor, compiled kernels"


class TorchDevice(Device):
    """A device of torch, with its tensors."""

    compiled = False

    def __init__(self, name: str, tf32: bool = False, n_threads: int | None = None) -> None:
        self.name, self.tf32, self.n_threads = name, tf32, n_threads
        self.torch = load_torch(f"device={name!r}")
        self.device = self.torch.device(name.removeprefix("torch:"))
        gpus = [f"{kind}:{i}" for kind in ("cuda", "xpu") for i in range(_count_devices(self.torch, kind))]
        present = ["cpu", "torch:cpu", *gpus, *["mps"] * bool(self.torch.backends.mps.is_available())]
        if (f"{name}:0" if name in ("cuda", "xpu") else name) not in present:
            raise ValueError(
                f"device={name!r} is absent; here are (by torch {self.torch.__version__}): {', '.join(present)}"
            )
        module = getattr(self.torch, self.device.type)
        self.stream_api = module if self.device.type in ("cuda", "xpu") else None
        if self.device.type != "cpu":  # with its index, in case another one becomes the current device
            self.device = self.torch.empty(0, device=self.device).device
        self.has_float64 = has_float64(self.device)

    @cached_property
    def _dtypes(self) -> dict[Any, Any]:
        return {np.dtype(name): getattr(self.torch, name) for name in ("float32", "float64", "int32", "int64", "bool")}

    def empty(self, *shape: int, dtype: Any = MEMBERSHIP) -> Array:
        return self.torch.empty(shape, dtype=self._dtypes[np.dtype(dtype)], device=self.device)

    def empty_pinned(self, *shape: int, dtype: Any = MEMBERSHIP) -> Array:
        """Allocate host memory that the device copies from while the host continues."""
        pin = self.stream_api is not None
        return self.torch.empty(shape, dtype=self._dtypes[np.dtype(dtype)], device="cpu", pin_memory=pin)

    def put(self, values: Any, dtype: Any = None) -> Array:
        values = self.to_host_tensor(values, dtype)
        return values.to(device=self.device, dtype=None if dtype is None else self._dtypes[np.dtype(dtype)])

    def to_host_tensor(self, values: Any, dtype: Any = None) -> Array:
        """Return a NumPy array as a tensor on the host, copied only if it is read-only; return a tensor as it is."""
        if isinstance(values, self.torch.Tensor):
            return values
        values = np.ascontiguousarray(values, dtype=dtype)
        return self.torch.from_numpy(values if values.flags.writeable else values.copy())

    def is_resident(self, values: Any) -> bool:
        return isinstance(values, self.torch.Tensor) and values.device == self.device

    def fill(self, target: Array, values: Any) -> None:
        target.copy_(self.to_host_tensor(values))

    def free_bytes(self) -> int:
        """Return the free bytes, including those that torch holds in its cache."""
        if self.device.type == "mps":
            return int(self.torch.mps.recommended_max_memory() - self.torch.mps.current_allocated_memory())
        if self.stream_api is None:
            return free_memory()
        api, device = self.stream_api, self.device
        return int(api.mem_get_info(device)[0] + api.memory_reserved(device) - api.memory_allocated(device))

    def is_out_of_memory(self, error: BaseException) -> bool:
        # Only CUDA and XPU raise torch.OutOfMemoryError.
        message = str(error).lower()
        kinds = (MemoryError, self.torch.OutOfMemoryError)
        return isinstance(error, kinds) or any(words in message for words in OUT_OF_MEMORY_WORDS)

    @contextmanager
    def compute_context(self) -> Iterator[None]:
        """Compute float32 products in IEEE precision or TF32, with n_threads, without autograd and autocast."""
        full_width = disable_autocast(self.torch, self.device.type)
        threads = HOST_THREADS.limit(self.torch, self.n_threads if self.device.type == "cpu" else None)
        try:
            with PRODUCT_PRECISION.hold(self.torch, self.tf32), self.torch.no_grad(), full_width, threads:
                yield
        except TypeError as error:
            if self.has_float64 or "float64" not in str(error):
                raise
            raise TypeError(
                f"device={self.name!r} has no float64: scores, targets and weights are float32 there, and an objective "
                f"must not make anything wider ({error})"
            ) from error

    def synchronize(self) -> None:
        if self.stream_api is not None:
            self.stream_api.synchronize(self.device)
        elif self.device.type == "mps":
            self.torch.mps.synchronize()

    def release_memory(self) -> None:
        module = getattr(self.torch, self.device.type)
        if hasattr(module, "empty_cache"):
            module.empty_cache()

    def __str__(self) -> str:
        name = "Apple's GPU" if self.device.type == "mps" else "the processor"
        if self.stream_api is not None:
            name = str(self.stream_api.get_device_name(self.device))
        return f"{name}, torch {self.torch.__version__}"


def make_device(name: Any, tf32: bool = False, n_threads: int | None = None) -> Device:
    """Return the device of this name.

    `tf32` lets CUDA round the factors of products to ten bits; `n_threads` is the number of threads on the host.

    >>> make_device("cpu").name
    'cpu'
    """
    if not DeviceName().admits(name):
        raise ValueError(f"device must be {DeviceName()}, got {name!r}{DeviceName().hint(name)}")
    return Device() if name == "cpu" else TorchDevice(name, tf32, n_threads)


@contextmanager
def _set_precision(torch: Any, tf32: bool) -> Iterator[None]:
    """Set the precision of float32 products to IEEE, or on CUDA to TF32, and restore it."""
    # From version 2.9 on torch has a setting for each kind of device.
    is_new = hasattr(torch.backends.cuda.matmul, "fp32_precision") and hasattr(torch.backends.mkldnn, "matmul")
    settings = [torch.backends.cuda.matmul, torch.backends.mkldnn.matmul] if is_new else []
    before = [backend.fp32_precision for backend in settings] if settings else torch.get_float32_matmul_precision()
    for backend in settings:
        backend.fp32_precision = "tf32" if tf32 and backend is settings[0] else "ieee"
    if not settings:
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        yield
    finally:
        for backend, value in zip(settings, before, strict=False):
            backend.fp32_precision = "none"  # the setting for all of torch applies again,
            if backend.fp32_precision != value:  # unless products had their own
                backend.fp32_precision = value
        if not settings:
            torch.set_float32_matmul_precision(before)


class HostThreads:
    """The number of threads of torch's operations on the host.

    The first thread that changes it records the number, and every thread restores it: new threads start with the number
    of the process.
    """

    def __init__(self) -> None:
        self.lock, self.holders, self.before = threading.Lock(), 0, 1

    @contextmanager
    def limit(self, torch: Any, count: int | None) -> Iterator[None]:
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


def _count_devices(torch: Any, kind: str) -> int:
    module = getattr(torch, kind, None)
    return int(module.device_count()) if module is not None and module.is_available() else 0
