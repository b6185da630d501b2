"""Tables from .npz archives, whole or the rows of one worker."""

from __future__ import annotations

import io
import math
import os
import struct
import zipfile
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.lib import format as npy
from numpy.typing import NDArray

from gbun.data.streams import (
    EXPANSION_VARIABLE,
    PathLike,
    Share,
    check_magic,
    expansion_limit,
    explain_broken_content,
    share_bounds,
)

_SPARSE_PARTS = ("data", "indices", "indptr", "shape")
_HEADER_SIZE = 1 << 14  # bytes read for the header of an array: numpy's longest fits in
# zipfile joins the pieces it inflates within one read by copying everything again, so one read asks for little.
_INFLATE_SIZE = 1 << 18
MAX_DEFLATE_RATIO = 1032  # of deflate: no content is compressed more than that


def read_npz(path: Path, labels: PathLike | None, share: Share) -> tuple[Any, Any, Any]:
    """Read X, y and weight, or a worker's rows of them; y and weight are None where neither file has them."""
    # Checked first, as numpy takes any other content for a pickle.
    check_magic(path, b"PK\x03\x04", "an .npz archive")
    with _explain_broken(path, ".npz"):
        archive = NpzReader(path, verify=share[1] == 1)
    with archive:
        names, form = archive.names, archive.sparse_format
        if form is None and "X" not in names:
            raise ValueError(
                f"{path}: got the arrays {sorted(names)}, expected X, or the parts of a sparse matrix "
                f"({', '.join(_SPARSE_PARTS)}); save them under these names"
            )
        if "y" in names and labels is not None:
            raise ValueError(f"labels: got {str(labels)!r}, expected None, as {path} holds y itself; leave labels out")
        if form not in (None, "csr") and share[1] > 1:
            raise ValueError(
                f"{path}: got a sparse matrix of format {form!s} for worker {share[0]} of {share[1]}, expected csr, "
                "the one whose rows lie together; save X.tocsr(), or give one file per worker"
            )
        with _explain_broken(path, ".npz"):
            headers = {name: archive.header(name) for name in ("X", "y", "weight") if name in names}
            X: Any = headers["X"] if form is None else archive.csr_header() if form == "csr" else archive.read_as_csr()
        separate_y: Any = None
        if labels is not None:
            check_magic(Path(labels), b"\x93NUMPY", "a .npy file")
            with _explain_broken(Path(labels), ".npy"):
                separate_y = np.load(labels, mmap_mode="r", allow_pickle=False)
        _check_shapes(path, X, headers.get("y") if labels is None else separate_y, headers.get("weight"))
        first, last = share_bounds(X.shape[0], share)
        with _explain_broken(path, ".npz"):
            if form in (None, "csr"):
                X = archive.read_rows("X", first, last) if form is None else archive.read_csr_rows(first, last)
            y, weight = (archive.read_rows(name, first, last) if name in headers else None for name in ("y", "weight"))
    return X, y if separate_y is None else np.array(separate_y[first:last]), weight


def _explain_broken(path: Path, ending: str) -> AbstractContextManager[None]:
    expected = f"a whole {ending} of numbers or fixed-width strings"
    return explain_broken_content(path, expected, "save it again, without objects")


def _check_shapes(path: Path, X: Any, y: Any, weight: Any) -> None:
    """Check arrays of an .npz, or their headers."""
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        raise ValueError(
            f"{path}: got X of shape {X.shape} and {X.dtype}, expected rows x columns of real numbers; "
            "reshape or convert it"
        )
    for name, values in (("y", y), ("weight", weight)):
        if values is not None and values.shape != X.shape[:1]:
            raise ValueError(
                f"{path}: got {name} of shape {values.shape} for {X.shape[0]} rows of X, expected "
                f"({X.shape[0]},); save one value per row"
            )


@dataclass(frozen=True)
class ArrayHeader:
    """Shape and dtype of an array in an .npz; `start` is the offset of its numbers in the bytes of its member."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool = False
    start: int = 0

    @property
    def ndim(self) -> int:
        return len(self.shape)


class NpzReader:
    """The arrays of an .npz, any rows of which can be read without holding the others. No object is unpickled.

    If the archive stores its arrays uncompressed, as np.savez does, other rows are not read; otherwise they are
    inflated and dropped. Checksums belong to whole arrays: `verify` compares them, at the cost of reading all rows.
    """

    def __init__(self, path: Path, verify: bool = False) -> None:
        self._raw, self._verify = path.open("rb"), verify
        self._headers: dict[str, ArrayHeader] = {}
        try:
            self._archive = zipfile.ZipFile(self._raw)
            self._members = {info.filename.removesuffix(".npy"): info for info in self._archive.infolist()}
            self.names = set(self._members)
            self.sparse_format = "csr" if set(_SPARSE_PARTS) <= self.names else None
            if "format" in self.names:
                self.sparse_format = str(np.char.decode(self.read_rows("format").astype("S")).reshape(-1)[0])
        except BaseException:
            self._raw.close()
            raise

    def __enter__(self) -> NpzReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._archive.close()
        self._raw.close()

    def header(self, name: str) -> ArrayHeader:
        """Read the header of an array, once."""
        if name in self._headers:
            return self._headers[name]
        head = io.BytesIO(self._open(name).read(_HEADER_SIZE))
        version = npy.read_magic(head)
        readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        if version not in readers:
            raise ValueError(f"array {name!r} is of .npy version {version}, which has no plain numbers or strings")
        shape, fortran_order, dtype = readers[version](head)
        if dtype.hasobject:
            raise ValueError(f"Object arrays cannot be loaded without pickle, and {name!r} is one")
        needed, available = head.tell() + math.prod(shape) * dtype.itemsize, self._members[name].file_size
        if min(shape, default=0) < 0:
            raise ValueError(f"array {name!r} is of shape {shape}, which must not be negative")
        if needed != available:
            raise ValueError(f"array {name!r} of shape {shape} needs {needed} bytes, there are {available}")
        if fortran_order and len(shape) > 2:
            raise ValueError(f"array {name!r} of shape {shape} is in Fortran order, which is read of matrices only")
        stored = min(self._members[name].compress_size, os.fstat(self._raw.fileno()).st_size)
        if needed > MAX_DEFLATE_RATIO * stored + _HEADER_SIZE:  # before anything is allocated
            raise ValueError(f"array {name!r} of shape {shape} needs {needed} bytes, {stored} bytes cannot hold them")
        header = self._headers[name] = ArrayHeader(shape, dtype, fortran_order, head.tell())
        return header

    def read_rows(self, name: str, first: int = 0, last: int | None = None) -> NDArray[Any]:
        """Read rows `first` to `last - 1` of a vector or matrix, or all of it; a scalar becomes a vector of one."""
        header = self.header(name)
        shape = header.shape or (1,)
        last = shape[0] if last is None else last
        by_column = header.fortran_order and header.ndim == 2
        rows: NDArray[Any] = np.empty((last - first, *shape[1:]), header.dtype, order="F" if by_column else "C")
        if not rows.nbytes:
            return rows
        stream = self._open(name)
        # The rows are contiguous in the file, or those of each column are.
        width = header.dtype.itemsize * (1 if by_column else math.prod(shape[1:]))
        gap = header.start + first * width
        for piece in rows.T if by_column else rows[np.newaxis]:
            if stream is self._raw:
                stream.seek(gap, os.SEEK_CUR)
            else:
                while gap > 0:
                    gap -= len(stream.read(min(gap, _INFLATE_SIZE))) or gap
            view = memoryview(piece.reshape(-1).view(np.uint8))
            while view:
                n = stream.readinto(view[:_INFLATE_SIZE])
                if not n:
                    raise EOFError("the archive ends before its array does")
                view = view[n:]
            gap = (shape[0] - len(rows)) * width
        return rows

    def csr_header(self) -> ArrayHeader:
        """Return shape and dtype of the CSR matrix whose parts the archive holds."""
        data, indices, indptr, shape = (self.header(name) for name in _SPARSE_PARTS)
        if shape.shape != (2,) or any(part.dtype.kind not in "iu" for part in (indices, indptr, shape)):
            raise ValueError("shape must be two integers, and indices and indptr must hold integers")
        n, m = self.read_rows("shape").tolist()
        if m < 0 or indptr.shape != (n + 1,) or indices.ndim != 1 or indices.shape != data.shape:
            parts = f"indptr {indptr.shape}, indices {indices.shape} and data {data.shape}"
            raise ValueError(f"{parts} are not the parts of a matrix of shape {(n, m)}")
        return ArrayHeader((n, m), data.dtype)

    def read_csr_rows(self, first: int, last: int) -> scipy.sparse.csr_array:
        """Read rows `first` to `last - 1` of the CSR matrix and check their indices."""
        m = self.csr_header().shape[1]
        ends = self.read_rows("indptr", first, last + 1).astype(np.int64)
        _check_ends(ends, first == 0, self.header("indices").shape[0])
        start, end = int(ends[0]), int(ends[-1])
        indices = self.read_rows("indices", start, end)
        _check_indices(indices, m)
        data = self.read_rows("data", start, end)
        return scipy.sparse.csr_array((data, indices, ends - start), shape=(last - first, m))

    def read_as_csr(self) -> scipy.sparse.csr_array:
        """Read a matrix of another format, as scipy.sparse.save_npz writes it; compiled code trusts what is checked."""
        form, names = self.sparse_format, ["indices", "indptr"]
        if form == "dia":
            names = ["offsets"]
        elif form == "coo":
            names = ["coords"] if "coords" in self.names else ["row", "col"]
        elif form not in ("csc", "bsr"):
            raise ValueError(f"a sparse matrix of format {form!r} is none of csr, csc, coo, bsr and dia")
        data, shape, *parts = (self.read_rows(name) for name in ("data", "shape", *names))
        if shape.shape != (2,) or any(part.dtype.kind not in "iu" for part in (shape, *parts)):
            raise ValueError(f"shape must be two integers, and {' and '.join(names)} must hold integers")
        n, m = shape.tolist()
        limit = expansion_limit(os.fstat(self._raw.fileno()).st_size)
        if min(n, m) < 0 or 8 * n > limit:  # rows may be empty: nothing but their number is in the file
            raise ValueError(
                f"a matrix of shape {(n, m)} takes more than {limit:,} bytes as csr; save X.tocsr(), or set "
                f"{EXPANSION_VARIABLE} to a larger number of times"
            )
        if form == "coo":  # scipy checks its indices
            return scipy.sparse.coo_array((data, tuple(parts[0] if len(parts) == 1 else parts)), shape=(n, m)).tocsr()
        if form == "dia":
            return scipy.sparse.dia_array((data, parts[0]), shape=(n, m)).tocoo().tocsr()
        indices, ends = parts[0], parts[1].astype(np.int64)
        rows, columns = data.shape[1:] if form == "bsr" and data.ndim == 3 else (1, 1)
        if min(rows, columns) < 1:
            raise ValueError(f"blocks of {rows} x {columns} numbers make no matrix")
        outer, inner = (m, n) if form == "csc" else (n // rows, m // columns)
        if ends.shape != (outer + 1,) or indices.shape != data.shape[:1]:
            raise ValueError(f"indptr {ends.shape} and indices {indices.shape} are not those of a {form} of {(n, m)}")
        _check_ends(ends, True, len(indices))
        _check_indices(indices, inner)
        make: Any = scipy.sparse.csc_array if form == "csc" else scipy.sparse.bsr_array
        matrix: scipy.sparse.csr_array = make((data, indices, ends), shape=(n, m)).tocsr()
        return matrix

    def _open(self, name: str) -> Any:
        info = self._members[name]
        if info.flag_bits & 1:
            raise ValueError(f"array {name!r} is encrypted")
        if self._verify or info.compress_type != zipfile.ZIP_STORED:
            return self._archive.open(info)
        # A member's header has 30 bytes; the last four are the lengths of the two fields that follow it.
        self._raw.seek(info.header_offset)
        lengths = struct.unpack("<2H", self._raw.read(30)[26:])
        self._raw.seek(info.header_offset + 30 + sum(lengths))
        return self._raw


def _check_ends(ends: NDArray[np.int64], from_first: bool, n_indices: int) -> None:
    begins = ends[0] == 0 if from_first else ends[0] >= 0
    if not begins or ends[-1] > n_indices or (ends[1:] < ends[:-1]).any():
        raise ValueError("indptr must begin with 0, must not decrease and must end at the number of indices")


def _check_indices(indices: NDArray[Any], m: int) -> None:
    """Refuse an index outside the shape: it would make compiled code read outside its arrays."""
    if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < m:
        raise ValueError(f"indices must be from 0 to {m - 1}")
