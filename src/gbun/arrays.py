"""Functions on NumPy arrays and torch tensors.

Code written against the array API standard (`namespace(array)`) works on both; this module adds what it lacks.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import array_api_compat
import numpy as np
import scipy.special
from numpy.typing import NDArray

Array: TypeAlias = Any
"""A NumPy array or a torch tensor."""


def namespace(array: Array) -> Any:
    """Return the library of an array, with the functions of the array API.

    >>> float(namespace(np.ones(2)).sum(np.ones(2)))
    2.0
    """
    return array_api_compat.array_namespace(array)


def is_tensor(value: Any) -> bool:
    """Return whether value is a torch tensor, without importing torch.

    >>> is_tensor(np.ones(2))
    False
    """
    return array_api_compat.is_torch_array(value)


def to_host(array: Array) -> NDArray[Any]:
    """Return the same numbers in NumPy, without a copy if they are on the host in a dtype that NumPy has."""
    if not is_tensor(array):
        return np.asarray(array)
    array = array.detach().cpu().resolve_conj().resolve_neg()
    narrow = array.is_floating_point() and array.element_size() <= 2 and str(array.dtype) != "torch.float16"
    return np.asarray((array.float() if narrow else array).numpy())


def to_real_numbers(values: Any, name: str) -> NDArray[Any]:
    """Convert the values of an argument to float64; `name` is the argument in error messages.

    >>> to_real_numbers([1, 2], "sample_weight")
    array([1., 2.])
    """
    try:
        array = np.asarray(values)
        if array.dtype.kind == "c":
            raise TypeError("a complex number has no order")
        return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must hold real numbers, got {values!r:.80}") from None


def sigmoid(x: Array) -> Array:
    """Compute 1 / (1 + e^-x).

    >>> sigmoid(np.array([0.0, 1000.0]))
    array([0.5, 1. ])
    """
    return x.sigmoid() if is_tensor(x) else np.asarray(scipy.special.expit(x))


def logsumexp(x: Array) -> Array:
    """Compute log sum_c e^(x_c) of each row.

    >>> logsumexp(np.array([[1000.0, 1000.0]])) - 1000.0
    array([0.69314718])
    """
    return x.logsumexp(1) if is_tensor(x) else np.asarray(scipy.special.logsumexp(x, axis=1))


def asarray_like(values: Any, array: Array) -> Array:
    """Convert numbers or a NumPy array to the library, device and dtype of `array`."""
    converted = namespace(array).asarray(values, dtype=array.dtype)  # on the host, as a device may lack their dtype
    return converted.to(array.device) if is_tensor(array) else converted


def target_index(y: Array) -> tuple[Array, Array]:
    """Return the rows and columns of the elements values[i, y_i].

    >>> np.eye(3)[target_index(np.array([0.0, 2.0]))]
    array([1., 0.])
    """
    xp = namespace(y)
    return xp.arange(len(y), device=array_api_compat.device(y)), xp.astype(y, xp.int64)


def dot(a: Array, b: Array) -> Array:
    """Sum the products of all elements.

    >>> float(dot(np.ones((2, 2)), np.ones((2, 2))))
    4.0
    """
    return (a * b).sum() if is_tensor(a) else np.vdot(a, b)


def row_dots(a: Array, b: Array, dtype: Any) -> Array:
    """Compute sum_c a_ic b_ic of each row, summed in `dtype`.

    >>> row_dots(np.ones((1, 3), dtype=np.float32), np.ones((1, 3), dtype=np.float32), np.float64)
    array([3.])
    """
    return (a * b).sum(dim=1, dtype=dtype) if is_tensor(a) else np.einsum("ij,ij->i", a, b, dtype=dtype)


def load_torch(what: str) -> Any:
    """Import torch, or raise an ImportError that tells what needs it and how to install it."""
    try:
        import torch
    except ImportError:
        raise ImportError(f"{what} needs torch, which is not installed: pip install 'gbun[torch]'") from None
    return torch


def disable_autocast(torch: Any, kind: str) -> AbstractContextManager[Any]:
    """Switch off autocast on a kind of device, "cpu" or "cuda", if the user has switched it on."""
    on = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if on else nullcontext()


def has_float64(device: Any) -> bool:
    """Return whether a device, as `array_api_compat.device` gives it, computes in float64.

    Apple's GPUs have no float64, nor have some of Intel's.

    >>> has_float64(array_api_compat.device(np.ones(2)))
    True
    """
    kind = getattr(device, "type", "cpu")
    if kind == "xpu":
        return bool(getattr(load_torch("device='xpu'").xpu.get_device_properties(device), "has_fp64", True))
    return bool(kind != "mps")


def widen(array: Array) -> Array:
    """Copy to float64, or to float32 on devices without float64."""
    if not is_tensor(array):
        return array.astype(np.float64)
    xp = namespace(array)
    return array.to(xp.float64 if has_float64(array.device) else xp.float32, copy=True)
