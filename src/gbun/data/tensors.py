"""Convert arrays of other libraries: torch tensors, dense or sparse, and arrays that support DLPack.

Arrays on the host become NumPy views. Tensors on another device stay there; the host also gets a copy of sparse ones,
for the work before the first round.
"""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np
import scipy.sparse

from gbun.arrays import is_tensor, load_torch, namespace, to_host
from gbun.data.features import DeviceEntries

OUTPUTS = ("numpy", "input")
DLPACK_CPU = 1  # the number of the host among DLPack's devices
DLPACK_ERRORS = (BufferError, RuntimeError, TypeError, ValueError)


def is_foreign(value: Any) -> bool:
    """Return whether value is an array of a library other than NumPy; frames and scipy matrices are not.

    >>> is_foreign(np.ones(2)), is_foreign([1.0])
    (False, False)
    """
    has_dlpack = hasattr(value, "__dlpack__") and not hasattr(value, "__arrow_c_array__")  # Arrow: maybe strings
    return is_tensor(value) or (has_dlpack and not isinstance(value, np.ndarray))


def foreign_to_numpy(value: Any, name: str) -> Any:
    """Convert a dense foreign array to NumPy, without a copy on the host; return any other value as it is.

    `name` is the argument in error messages.
    """
    if is_tensor(value) and str(value.layout) != "torch.strided":
        if value.is_nested:
            check_tensor_rows(value, name)
        raise ValueError(
            f"{name} must be a dense tensor, got one with layout {value.layout}; tensor.to_dense() makes one"
        )
    return to_matrix(value, name=name)


def to_matrix(X: Any, keep_tensors: bool = False, name: str = "X") -> Any:
    """Convert a foreign array to NumPy's array or scipy's CSR matrix, or with `keep_tensors` leave dense tensors."""
    if not is_foreign(X):
        return X
    X = to_tensor_or_numpy(X, name)
    if not is_tensor(X):
        return X
    if str(X.layout) != "torch.strided":
        return _csr_from_tensor(X, name)
    X = _check_tensor(X, name)
    return X if keep_tensors else to_host(X)


def reshape_advice(X: Any) -> str:
    return "; reshape(-1, 1) makes one column, reshape(1, -1) one row" if X.ndim == 1 else ""


def check_tensor_rows(X: Any, name: str) -> None:
    """Raise a ValueError unless a tensor is a matrix."""
    if X.is_nested:
        raise ValueError(f"{name} must be a tensor with rows of one length, got a nested tensor; pad its rows")
    if X.ndim != 2:
        raise ValueError(f"{name} must be rows and columns, got a tensor of shape {tuple(X.shape)}{reshape_advice(X)}")


def find_device_entries(X: Any, ids: Any, rows: Any) -> DeviceEntries | None:
    """Return the entries of the CSR tensor X on its device, or None if they are not those that `ids` belong to.

    `rows` is the CSR matrix that the host made of X. If entries were sorted or summed, `ids` are not its indices any
    more, and those of the tensor are of no use.
    """
    if not is_tensor(X) or str(X.layout) != "torch.sparse_csr" or ids is not getattr(rows, "indices", None):
        return None
    tensor_ids, values = X.detach().col_indices(), X.detach().values()
    if len(tensor_ids) and tensor_ids.stride(0) != 1:
        return None
    is_usable = str(values.dtype) == "torch.float32" and values.is_contiguous()
    return DeviceEntries(tensor_ids, values if is_usable else None)


def to_tensor_or_numpy(value: Any, name: str) -> Any:
    """Convert through DLPack: to NumPy on the host, to torch on other devices and for dtypes that NumPy lacks."""
    if is_tensor(value):
        if value.is_nested:
            check_tensor_rows(value, name)
        return value.detach().resolve_conj().resolve_neg()
    reason = "is not on the host"
    if value.__dlpack_device__()[0] == DLPACK_CPU:
        try:
            return np.from_dlpack(value)
        except DLPACK_ERRORS as error:
            reason = f"NumPy cannot read ({error})"
    torch = load_torch(f"{name}, an array of {type(value).__module__} that {reason},")
    try:
        return torch.from_dlpack(value)
    except DLPACK_ERRORS as error:
        raise ValueError(f"{name} cannot be read through DLPack, from a {type(value).__name__}: {error}") from None


def _check_tensor(tensor: Any, name: str) -> Any:
    """Refuse tensors without numbers, and widen float8."""
    if tensor.device.type == "meta" or tensor.is_quantized:
        what = "on the meta device, which holds none" if tensor.device.type == "meta" else f"of dtype {tensor.dtype}"
        raise ValueError(f"{name} must be a tensor of numbers, got one {what}")
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() == 1 else tensor


def _csr_from_tensor(tensor: Any, name: str) -> Any:
    """Convert a sparse tensor to scipy: a view of a CSR tensor on the host, a copy of any other."""
    layout = str(tensor.layout).removeprefix("torch.sparse_")
    if layout not in ("csr", "csc", "coo") or tensor.ndim != 2 or tensor.dense_dim() != 0:
        raise ValueError(
            f"{name} must be rows and columns of single numbers, a tensor that is dense, CSR, CSC or COO; got shape "
            f"{tuple(tensor.shape)}, layout {tensor.layout}"
        )
    tensor = tensor.coalesce() if layout == "coo" else tensor
    values, shape = _check_tensor(tensor.values(), name), tuple(tensor.shape)
    if layout == "coo":  # converted by scipy, as torch warns about its CSR layout
        return scipy.sparse.coo_array((to_host(values), tuple(to_host(tensor.indices()))), shape=shape).tocsr()
    if layout == "csc":
        columns = to_host(values), to_host(tensor.row_indices()), to_host(tensor.ccol_indices())
        return scipy.sparse.csc_array(columns, shape=shape).tocsr()
    csr: Any = scipy.sparse.csr_array(shape, dtype=np.float32)
    # The constructor would copy indices into a narrower dtype.
    csr.indptr, csr.indices, csr.data = (to_host(a) for a in (tensor.crow_indices(), tensor.col_indices(), values))
    return csr


def convert_output(result: Any, X: Any, output: str) -> Any:
    """Return a prediction as a NumPy array, or with output "input" as an array of X's library on X's device."""
    if output not in OUTPUTS:
        raise ValueError(f"output must be 'numpy' or 'input', got {output!r}")
    if output == "numpy" or not is_foreign(X):
        return result
    if result.dtype.kind not in "fiub":
        raise ValueError(f"output='input' needs numbers, but the classes are {result.dtype}; use output='numpy'")
    if is_tensor(X):
        torch = load_torch("a tensor")
        if X.device.type == "mps" and result.dtype == np.float64:
            result = result.astype(np.float32)  # mps has no float64
        return torch.from_numpy(np.ascontiguousarray(result)).to(X.device)
    try:
        return namespace(X).asarray(result, device=array_api_compat.device(X))
    except TypeError:
        raise ValueError(f"output='input' cannot make a {type(X).__name__}; use output='numpy'") from None
