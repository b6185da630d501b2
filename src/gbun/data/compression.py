"""Files as bytes, whether compressed or not; and the part of a file's bytes that one of several workers reads."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import scipy.sparse
from numpy.lib import format as npy
from numpy.typing import NDArray

PathLike: TypeAlias = "str | os.PathLike[str]"
Share: TypeAlias = tuple[int, int]

WHOLE: Share = (0, 1)
SPARSE_PARTS = ("data", "indices", "indptr", "shape")

_OPEN: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
MAGIC = {".gz": b"\x1f\x8b", ".bz2": b"BZh", ".xz": b"\xfd7zXZ\x00"}

# A line end is looked for, and the header of an array is read, in pieces of this size: numpy's longest header fits in.
_PIECE = 1 << 14
# zipfile joins what it inflates in one read piece by piece, each time copying all: it is asked for little at once.
_INFLATED = 1 << 18


def check_share(share: Share) -> None:
    try:
        rank, size = (int(number) for number in share)
        sound = (rank, size) == tuple(share) and 0 <= rank < size
    except (TypeError, ValueError):
        sound = False
    if not sound:
        raise ValueError(f"share: got {share!r}, expected (rank, size), integers with 0 <= rank < size; pass both")


def bounds(n: int, share: Share) -> tuple[int, int]:
    """The first of a worker's n things, and the one after its last.

    >>> [bounds(5, (rank, 3)) for rank in range(3)]
    [(0, 1), (1, 3), (3, 5)]
    """
    rank, size = share
    return n * rank // size, n * (rank + 1) // size


@contextmanager
def open_content(path: PathLike, share: Share = WHOLE, after: int = 0) -> Iterator[IO[bytes]]:
    """The bytes of a file, decompressed if its first bytes say so; a broken archive is a ValueError.

    A share of the file is the lines that begin in the worker's range of the bytes which come `after` the first
    ones; no byte is read besides these lines and the rest of one before. Compressed content has no shares.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path}: got a folder, expected a file; name one file in it")
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file from {Path.cwd()}; check the path")
    with path.open("rb") as raw:
        ending = _compression(path, raw.peek(8)[:8])
        if ending is not None and share[1] > 1:
            raise ValueError(
                f"{path}: got {ending} content for worker {share[0]} of {share[1]}, expected plain content, as "
                "compressed text cannot be cut; decompress it, or give one file per worker"
            )
        if ending is None:
            lines: Any = raw if share[1] == 1 else _Part(raw, *_span(raw, share, after))
            yield lines
            return
        try:
            yield _OPEN[ending](raw)
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the disk's error, not the archive's
            raise ValueError(
                f"{path}: got a broken or truncated {ending} file ({error}), expected a whole one; "
                "copy or compress it again"
            ) from error


def first_line(path: PathLike, blank: bytes) -> bytes:
    """The bytes of a file up to the end of its first line that has others than those in `blank`."""
    found = b""
    with open_content(path) as stream:
        for line in stream:
            found += line
            if line.removeprefix(codecs.BOM_UTF8).strip(blank):
                break
    if b"\r" in found.rstrip(b"\r\n").replace(b"\r\n", b"\n"):
        raise ValueError(
            f"{path}: got a line that ends with '\\r' alone, expected '\\n' or '\\r\\n', as files are cut at '\\n'; "
            "convert the line ends, or give one file per worker"
        )
    return found


def lines_before(path: PathLike, share: Share) -> int:
    """How many lines of a file come before a share of it. The file is read up to there: this is for error messages."""
    if share[1] == 1:
        return 0
    with Path(path).open("rb") as raw:
        part = _Part(raw, 0, _span(raw, share, 0)[0])
        return sum(piece.count(b"\n") for piece in iter(lambda: part.read(1 << 20), b""))


def _compression(path: Path, first: bytes) -> str | None:
    if not first:
        raise ValueError(f"{path}: got an empty file, expected rows; write it again")
    found = next((ending for ending, magic in MAGIC.items() if first.startswith(magic)), None)
    promised = path.suffix.lower()
    if promised in MAGIC and found != promised:
        raise ValueError(
            f"{path}: got {found or 'uncompressed'} content (it begins with {first!r}), expected {promised} "
            "as the ending says; rename the file or compress it again"
        )
    return found


def create(path: PathLike) -> IO[bytes]:
    """A new file to write bytes to, which are compressed as the ending of its path says."""
    stream: IO[bytes] = _OPEN.get(Path(path).suffix.lower(), open)(path, "wb")
    return stream


# Parts of a file


class _Part:
    """The bytes of an open file from `start` to `end`, which nobody else may seek in meanwhile."""

    def __init__(self, raw: IO[bytes], start: int, end: int) -> None:
        self._raw: Any = raw
        self._left = max(0, end - start)
        raw.seek(start)

    def read(self, size: int = -1) -> bytes:
        piece: bytes = self._raw.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(piece)
        return piece

    def readinto(self, view: memoryview) -> int:
        n: int = self._raw.readinto(view[: self._left])
        self._left -= n
        return n

    def skip(self, n: int) -> None:
        self._raw.seek(n, os.SEEK_CUR)
        self._left = max(0, self._left - n)


def _span(raw: IO[bytes], share: Share, after: int) -> tuple[int, int]:
    """Where the lines of a share begin and end."""
    size = raw.seek(0, os.SEEK_END)
    first, last = (after + bound for bound in bounds(max(0, size - after), share))
    start = _line_start(raw, first, last, after)
    return start, (start if start >= last else _line_start(raw, last, size, after))


def _line_start(raw: IO[bytes], at: int, stop: int, after: int) -> int:
    """Where the first line begins that begins at a byte from `at` on, or `stop` if none does before."""
    if at <= after:
        return at
    place = raw.seek(at - 1)
    while piece := raw.read(min(_PIECE, stop - place)):
        end = piece.find(b"\n") + 1
        if end:
            return place + end
        place += len(piece)
    return stop


# Parts of the arrays in an .npz


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
        return _Part(self._raw, start, start + info.file_size)


def _skip(stream: Any, n: int) -> None:
    if isinstance(stream, _Part):
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
