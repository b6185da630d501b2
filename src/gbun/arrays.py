"""Arrays of any library: NumPy's on the host, torch's wherever torch can put them.

Code that is written against the array API (`namespace(array)`) serves all of them. Here is what the standard lacks.
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
    """The library an array belongs to, with the names and meanings of the array API.

    >>> namespace(np.ones(2)).sum(np.ones(2))
    np.float64(2.0)
    """
    return array_api_compat.array_namespace(array)


def is_tensor(value: Any) -> bool:
    """Whether it is a torch tensor; torch is not imported to find out.

    >>> is_tensor(np.ones(2))
    False
    """
    return array_api_compat.is_torch_array(value)


def host(array: Array) -> NDArray[Any]:
    """The same numbers in NumPy: no copy where they are on the host already, in a dtype that NumPy has."""
    if not is_tensor(array):
        return np.asarray(array)
    array = array.detach().cpu().resolve_conj().resolve_neg()
    narrow = array.is_floating_point() and array.element_size() <= 2 and str(array.dtype) != "torch.float16"
    return np.asarray((array.float() if narrow else array).numpy())


def real_numbers(values: Any, name: str) -> NDArray[Any]:
    """An argument's values as float64; `name` is the argument's.

    >>> real_numbers([1, 2], "sample_weight")
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
    """1 / (1 + e^-x)

    >>> sigmoid(np.array([0.0, 1000.0]))
    array([0.5, 1. ])
    """
    return x.sigmoid() if is_tensor(x) else np.asarray(scipy.special.expit(x))


def logsumexp(x: Array) -> Array:
    """log sum_c e^(x_c) of each row.

    >>> logsumexp(np.array([[1000.0, 1000.0]])) - 1000.0
    array([0.69314718])
    """
    return x.logsumexp(1) if is_tensor(x) else np.asarray(scipy.special.logsumexp(x, axis=1))


def like(values: Any, array: Array) -> Array:
    """Numbers, or an array of NumPy, in the library of `array`, on its device and with its dtype."""
    made = namespace(array).asarray(values, dtype=array.dtype)  # on the host: a device may not know their dtype
    return made.to(array.device) if is_tensor(array) else made


def places(y: Array) -> tuple[Array, Array]:
    """Where values[i, y_i] are: rows and columns.

    >>> np.eye(3)[places(np.array([0.0, 2.0]))]
    array([1., 0.])
    """
    xp = namespace(y)
    return xp.arange(len(y), device=array_api_compat.device(y)), xp.astype(y, xp.int64)


def dot(a: Array, b: Array) -> Array:
    """The sum of all products.

    >>> dot(np.ones((2, 2)), np.ones((2, 2)))
    np.float64(4.0)
    """
    return (a * b).sum() if is_tensor(a) else np.vdot(a, b)


def row_dots(a: Array, b: Array, dtype: Any) -> Array:
    """sum_c a_ic b_ic of each row, added up in `dtype`.

    >>> row_dots(np.ones((1, 3), dtype=np.float32), np.ones((1, 3), dtype=np.float32), np.float64)
    array([3.])
    """
    return (a * b).sum(dim=1, dtype=dtype) if is_tensor(a) else np.einsum("ij,ij->i", a, b, dtype=dtype)


def load_torch(what: str) -> Any:
    """torch, or an ImportError that says what needs it and how to get it."""
    try:
        import torch
    except ImportError:
        raise ImportError(f"{what} needs torch, which is not installed: pip install 'gbun[torch]'") from None
    return torch


def without_autocast(torch: Any, kind: str) -> AbstractContextManager[Any]:
    """Numbers keep their width on a kind of device, "cpu" or "cuda", whatever the user's own torch is told to do."""
    on = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if on else nullcontext()


def device(array: Array) -> Any:
    """Where an array is, as its library says it."""
    return array_api_compat.device(array)


def has_float64(array: Array) -> bool:
    """Whether the device of an array computes in float64.

    >>> has_float64(np.ones(2))
    True
    """
    return not is_tensor(array) or device_has_float64(array.device)


def device_has_float64(torch_device: Any) -> bool:
    """Apple's GPUs have no float64, nor have some of Intel's."""
    if torch_device.type == "xpu":
        properties = load_torch("device='xpu'").xpu.get_device_properties(torch_device)
        return bool(getattr(properties, "has_fp64", True))
    return bool(torch_device.type != "mps")


def widened(array: Array) -> Array:
    """A copy in float64; in float32 on devices that have no more."""
    if not is_tensor(array):
        return array.astype(np.float64)
    xp = namespace(array)
    return array.to(xp.float64 if has_float64(array) else xp.float32, copy=True)
