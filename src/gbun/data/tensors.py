"""Arrays of other libraries, in and out: torch's tensors, dense and CSR, and whatever speaks DLPack.

On the host NumPy looks at the memory they have. Tensors on another device stay there; of sparse ones the host gets a
copy, too, for what is made of them before the first round.
"""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np
import scipy.sparse

from gbun.arrays import host, is_tensor, load_torch, namespace
from gbun.data.features import There

OUTPUTS = ("numpy", "input")
CPU = 1  # as DLPack numbers devices


def is_foreign(value: Any) -> bool:
    """Whether it is an array of another library than NumPy's, frames and sparse matrices of scipy apart.

    >>> is_foreign(np.ones(2)), is_foreign([1.0])
    (False, False)
    """
    other = hasattr(value, "__dlpack__") and not hasattr(value, "__arrow_c_array__")  # columns of tables may be words
    return is_tensor(value) or (other and not isinstance(value, np.ndarray))


def on_host(value: Any, name: str) -> Any:
    """In NumPy if it is a foreign array, without a copy where it is on the host; anything else as it is.

    `name` is the argument it came as.
    """
    if not is_foreign(value):
        return value
    value = as_tensor_or_numpy(value, name)
    if not is_tensor(value):
        return value
    if str(value.layout) != "torch.strided":
        raise ValueError(
            f"{name} must be a dense tensor, got one with layout {value.layout}; tensor.to_dense() makes one"
        )
    return host(_readable(value, name))


def matrix(X: Any, keep: bool = False, name: str = "X") -> Any:
    """Rows of features: NumPy's array, scipy's CSR matrix, or, where `keep` is said, the dense tensor."""
    if not is_foreign(X):
        return X
    X = as_tensor_or_numpy(X, name)
    if not is_tensor(X):
        return X
    if str(X.layout) != "torch.strided":
        return _csr(X, name)
    X = _readable(X, name)
    return X if keep else host(X)


def check_rows(X: Any, name: str) -> None:
    """A tensor is a matrix, or an error."""
    if X.is_nested:
        raise ValueError(f"{name} must be a tensor with rows of one length, got a nested tensor; pad its rows")
    if X.ndim != 2:
        advice = "; reshape(-1, 1) makes one column, reshape(1, -1) one row" if X.ndim == 1 else ""
        raise ValueError(f"{name} must be rows and columns, got a tensor of shape {tuple(X.shape)}{advice}")


def there(X: Any, ids: Any, rows: Any) -> There | None:
    """The memory of the CSR tensor X, if it holds the entries that `ids` belong to, one after the other.

    `rows` are NumPy's view or copy of it. Where entries had to be sorted or summed, `ids` are no longer its own, and
    the tensor's are of no use.
    """
    if not is_tensor(X) or str(X.layout) != "torch.sparse_csr" or ids is not getattr(rows, "indices", None):
        return None
    own, values = X.detach().col_indices(), X.detach().values()
    if len(own) and own.stride(0) != 1:
        return None
    as_kernels_want = str(values.dtype) == "torch.float32" and values.is_contiguous()
    return There(own, values if as_kernels_want else None)


def as_tensor_or_numpy(value: Any, name: str) -> Any:
    """Another library's array through DLPack: NumPy's on the host, torch's elsewhere and for dtypes NumPy lacks."""
    if is_tensor(value):
        if value.is_nested:
            check_rows(value, name)
        return value.detach().resolve_conj().resolve_neg()
    what = "is not on the host"
    if value.__dlpack_device__()[0] == CPU:
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            what = f"NumPy cannot read ({error})"
    torch = load_torch(f"{name}, an array of {type(value).__module__} that {what},")
    try:
        return torch.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{name} cannot be read through DLPack, from a {type(value).__name__}: {error}") from None


def _readable(tensor: Any, name: str) -> Any:
    """Numbers that can be computed with."""
    if tensor.device.type == "meta" or tensor.is_quantized:
        what = "on the meta device, which holds none" if tensor.device.type == "meta" else f"of dtype {tensor.dtype}"
        raise ValueError(f"{name} must be a tensor of numbers, got one {what}")
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() == 1 else tensor


def _csr(tensor: Any, name: str) -> Any:
    """scipy's view of a sparse tensor; of one that is not CSR, or not on the host, a copy."""
    layout = str(tensor.layout).removeprefix("torch.sparse_")
    if layout not in ("csr", "csc", "coo") or tensor.ndim != 2 or tensor.dense_dim() != 0:
        raise ValueError(
            f"{name} must be rows and columns of single numbers, a tensor that is dense, CSR, CSC or COO; got shape "
            f"{tuple(tensor.shape)}, layout {tensor.layout}"
        )
    tensor = tensor.coalesce() if layout == "coo" else tensor
    values, shape = _readable(tensor.values(), name), tuple(tensor.shape)
    if layout == "coo":  # by scipy: torch would warn of what it thinks of its own CSR
        return scipy.sparse.coo_array((host(values), tuple(host(tensor.indices()))), shape=shape).tocsr()
    if layout == "csc":
        columns = host(values), host(tensor.row_indices()), host(tensor.ccol_indices())
        return scipy.sparse.csc_array(columns, shape=shape).tocsr()
    found: Any = scipy.sparse.csr_array(shape, dtype=np.float32)
    # Given to the constructor, indices would be copied into narrower numbers.
    found.indptr, found.indices, found.data = (host(a) for a in (tensor.crow_indices(), tensor.col_indices(), values))
    return found


def like_input(result: Any, X: Any, output: str) -> Any:
    """A prediction as NumPy has it, or ("input") as an array of X's library, where X is."""
    if output not in OUTPUTS:
        raise ValueError(f"output must be 'numpy' or 'input', got {output!r}")
    if output == "numpy" or not is_foreign(X):
        return result
    if result.dtype.kind not in "fiub":
        raise ValueError(f"output='input' needs numbers, but the classes are {result.dtype}; use output='numpy'")
    if is_tensor(X):
        torch = load_torch("a tensor")
        if X.device.type == "mps" and result.dtype == np.float64:
            result = result.astype(np.float32)  # it has no float64
        return torch.from_numpy(np.ascontiguousarray(result)).to(X.device)
    try:
        return namespace(X).asarray(result, device=array_api_compat.device(X))
    except TypeError:
        raise ValueError(f"output='input' cannot make a {type(X).__name__}; use output='numpy'") from None
