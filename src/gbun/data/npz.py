"""The arrays of an .npz, rows of which can be read without the others."""

from __future__ import annotations

import io
import math
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.lib import format as npy
from numpy.typing import NDArray

from gbun.data.compression import Part

SPARSE_PARTS = ("data", "indices", "indptr", "shape")

# The header of an array is read in a piece of this size: numpy's longest fits in.
_PIECE = 1 << 14
# zipfile joins what it inflates in one read piece by piece, each time copying all: it is asked for little at once.
_INFLATED = 1 << 18


@dataclass(frozen=True)
class Stored:
    """What an .npz says of an array: `start` is where its numbers begin among the bytes of its member."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_columns: bool = False
    start: int = 0

    @property
    def ndim(self) -> int:
        return len(self.shape)


class Npz:
    """The arrays of an .npz, any rows of which can be read without holding the others. No object is unpickled.

    Other rows are not read where the archive only stores its arrays, as that of np.savez does; where it compresses
    them, they are inflated and dropped. Its checksums, which are of whole arrays, are not looked at.
    """

    def __init__(self, path: Path) -> None:
        self._raw = path.open("rb")
        self._stored: dict[str, Stored] = {}
        try:
            self._archive = zipfile.ZipFile(self._raw)
            self._members = {info.filename.removesuffix(".npy"): info for info in self._archive.infolist()}
        except BaseException:
            self._raw.close()
            raise

    @property
    def names(self) -> set[str]:
        return set(self._members)

    def __enter__(self) -> Npz:
        return self

    def __exit__(self, *_: object) -> None:
        self._archive.close()
        self._raw.close()

    def stored(self, name: str) -> Stored:
        if name not in self._stored:
            self._stored[name] = self._header(name)
        return self._stored[name]

    def rows(self, name: str, first: int = 0, last: int | None = None) -> NDArray[Any]:
        """Rows `first` to `last` of a vector or matrix, or all of it; a lone value comes as a vector of one."""
        array = self.stored(name)
        shape = array.shape or (1,)
        last = shape[0] if last is None else last
        by_columns = array.by_columns and array.ndim == 2
        rows: NDArray[Any] = np.empty((last - first, *shape[1:]), array.dtype, order="F" if by_columns else "C")
        if not rows.nbytes:
            return rows
        stream = self._open(name)
        # The rows lie in one piece, or those of each column do.
        width = array.dtype.itemsize * (1 if by_columns else math.prod(shape[1:]))
        ahead = array.start + first * width
        for piece in rows.T if by_columns else rows[np.newaxis]:
            _skip(stream, ahead)
            _fill(stream, memoryview(piece.reshape(-1).view(np.uint8)))
            ahead = (shape[0] - len(rows)) * width
        return rows

    def csr(self) -> Stored:
        """What the parts of a CSR matrix say of it."""
        data, indices, indptr, shape = (self.stored(name) for name in SPARSE_PARTS)
        if shape.shape != (2,) or any(part.dtype.kind not in "iu" for part in (indices, indptr, shape)):
            raise ValueError("shape must be two integers, and indices and indptr must hold integers")
        n, m = self.rows("shape").tolist()
        if m < 0 or indptr.shape != (n + 1,) or indices.ndim != 1 or indices.shape != data.shape:
            found = f"indptr {indptr.shape}, indices {indices.shape} and data {data.shape}"
            raise ValueError(f"{found} are not the parts of a matrix of shape {(n, m)}")
        return Stored((n, m), data.dtype)

    def csr_rows(self, first: int, last: int) -> scipy.sparse.csr_array:
        m = self.csr().shape[1]
        ends = self.rows("indptr", first, last + 1).astype(np.int64)
        start, end = int(ends[0]), int(ends[-1])
        sound = start >= 0 and (first > 0 or start == 0) and end <= self.stored("indices").shape[0]
        if not sound or (ends[1:] < ends[:-1]).any():
            raise ValueError("indptr must begin with 0, must not decrease and must end at the number of indices")
        indices = self.rows("indices", start, end)
        # An index outside the shape would make compiled code read outside its arrays.
        if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < m:
            raise ValueError(f"indices must be from 0 to {m - 1}")
        data = self.rows("data", start, end)
        return scipy.sparse.csr_array((data, indices, ends - start), shape=(last - first, m))

    def _header(self, name: str) -> Stored:
        head = io.BytesIO(self._open(name).read(_PIECE))
        version = npy.read_magic(head)
        readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        if version not in readers:
            raise ValueError(f"array {name!r} is of .npy version {version}, which has no plain numbers or strings")
        shape, by_columns, dtype = readers[version](head)
        if dtype.hasobject:
            raise ValueError(f"Object arrays cannot be loaded without pickle, and {name!r} is one")
        needed, found = head.tell() + math.prod(shape) * dtype.itemsize, self._members[name].file_size
        if needed != found or min(shape, default=0) < 0:
            raise ValueError(f"array {name!r} of shape {shape} needs {needed} bytes, there are {found}")
        return Stored(shape, dtype, by_columns, head.tell())

    def _open(self, name: str) -> Any:
        info = self._members[name]
        if info.flag_bits & 1:
            raise ValueError(f"array {name!r} is encrypted")
        if info.compress_type != zipfile.ZIP_STORED:
            return self._archive.open(info)
        # After 26 bytes of a member's own header, the lengths of the two fields that follow it.
        self._raw.seek(info.header_offset)
        lengths = struct.unpack("<2H", self._raw.read(30)[26:])
        start = info.header_offset + 30 + sum(lengths)
        return Part(self._raw, start, start + info.file_size)


def _skip(stream: Any, n: int) -> None:
    if isinstance(stream, Part):
        stream.skip(n)
        return
    while n > 0:
        n -= len(stream.read(min(n, _INFLATED))) or n


def _fill(stream: Any, view: memoryview) -> None:
    while view:
        n = stream.readinto(view[:_INFLATED])
        if not n:
            raise EOFError("the archive ends before its array does")
        view = view[n:]
