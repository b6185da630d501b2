"""Files as byte streams, compressed or not, and the range of lines that one of several workers reads."""

from __future__ import annotations

import bz2
import codecs
import errno
import gzip
import io
import lzma
import operator
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeAlias

PathLike: TypeAlias = "str | os.PathLike[str]"
Share: TypeAlias = tuple[int, int]
"""(rank, size): the part of worker `rank` of `size`."""

WHOLE_FILE: Share = (0, 1)

MAX_EXPANSION, EXPANSION_VARIABLE = 200, "GBUN_MAX_EXPANSION"  # times the size of a compressed file
LEAST_EXPANDED = 2**26  # bytes that any compressed file may have
PIECE = 2**20  # bytes that are read at a time
MAX_LINE, LINE_VARIABLE = 2**26, "GBUN_MAX_LINE_BYTES"

_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
MAGIC_BYTES = {".gz": b"\x1f\x8b", ".bz2": b"BZh", ".xz": b"\xfd7zXZ\x00"}

# What readers of numpy, zip and parquet raise on damaged content.
_READ_ERRORS = (
    *(EOFError, LookupError, NotImplementedError, OSError, OverflowError, SyntaxError, TypeError, ValueError),
    *(struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)


def check_share(share: Share) -> None:
    """Raise a ValueError unless `share` is (rank, size) with 0 <= rank < size."""
    try:
        rank, size = map(operator.index, share)
    except (TypeError, ValueError):
        rank, size = -1, 0
    if not 0 <= rank < size:
        raise ValueError(f"share: got {share!r}, expected (rank, size), integers with 0 <= rank < size; pass both")


def share_bounds(n: int, share: Share) -> tuple[int, int]:
    """Return the first index and the index after the last of a worker's share of n items.

    >>> [share_bounds(5, (rank, 3)) for rank in range(3)]
    [(0, 1), (1, 3), (3, 5)]
    """
    rank, size = share
    return n * rank // size, n * (rank + 1) // size


@contextmanager
def open_content(path: PathLike, share: Share = WHOLE_FILE, header_size: int = 0) -> Iterator[IO[bytes]]:
    """Open the bytes of a file, decompressed if its first bytes say so; a broken archive raises a ValueError.

    A share consists of the lines that begin in the worker's range of the bytes after the first `header_size`. No other
    bytes are read, except the rest of the line before. Compressed content cannot be divided into shares.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path}: got a folder, expected a file; name one file in it")
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file from {Path.cwd()}; check the path")
    with path.open("rb") as raw:
        ending = _detect_compression(path, raw.peek(8)[:8])
        if ending is not None and share[1] > 1:
            raise ValueError(
                f"{path}: got {ending} content for worker {share[0]} of {share[1]}, expected plain content, as "
                "compressed text cannot be cut; decompress it, or give one file per worker"
            )
        if ending is None:
            lines: Any = raw if share[1] == 1 else ByteRange(raw, *_find_byte_range(path, raw, share, header_size))
            yield lines
            return
        try:
            content = Expanding(_OPENERS[ending](raw), path, expansion_limit(path.stat().st_size))
            yield io.BufferedReader(content, PIECE)
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # an error of the disk, not of the archive
            raise ValueError(
                f"{path}: got a broken or truncated {ending} file ({error}), expected a whole one; "
                "copy or compress it again"
            ) from error


class ContentTooLargeError(ValueError):
    """A file holds more than may be read."""


class Expanding(io.RawIOBase):
    """The content of a compressed file, of at most `limit` bytes: a small file can hold more than any memory."""

    def __init__(self, stream: IO[bytes], path: Path, limit: int) -> None:
        self._stream, self._path, self._limit, self._size = stream, path, limit, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._stream.read(len(buffer))
        buffer[: len(piece)] = piece
        self._size += len(piece)
        if self._size > self._limit:
            times = read_limit(EXPANSION_VARIABLE, MAX_EXPANSION)
            raise ContentTooLargeError(
                f"{self._path}: got more than {self._limit:,} bytes, expected at most {times} times the size "
                f"of the file; if you trust it, decompress it or set {EXPANSION_VARIABLE} to a larger number of times"
            )
        return len(piece)


class LimitedLines(io.RawIOBase):
    """The content of a file of text, which is refused when it has a line that cannot be a row."""

    def __init__(self, stream: IO[bytes] | ByteRange, path: Path) -> None:
        self._stream, self._path, self._length = stream, path, 0  # of the line so far

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._stream.read(min(len(buffer), PIECE))
        buffer[: len(piece)] = piece
        last = max(piece.rfind(b"\n"), piece.rfind(b"\r"))
        self._length = self._length + len(piece) if last < 0 else len(piece) - 1 - last
        check_line_length(self._path, self._length)
        return len(piece)


def limit_lines(stream: IO[bytes] | ByteRange, path: Path) -> io.BufferedReader:
    """Return the same content, read in pieces, and refused when it has a line that cannot be a row."""
    return io.BufferedReader(LimitedLines(stream, path), PIECE)


def expansion_limit(size: int) -> int:
    """Return the bytes that the content of a file of `size` bytes may have."""
    return max(LEAST_EXPANDED, read_limit(EXPANSION_VARIABLE, MAX_EXPANSION) * size)


def read_limit(variable: str, default: int) -> int:
    """Return a limit that an environment variable may change."""
    text = os.environ.get(variable, "")
    if text and not (text.isdecimal() and int(text)):
        raise ValueError(f"the environment variable {variable} must be a positive whole number, got {text!r}")
    return int(text) if text else default


def check_line_length(path: PathLike, length: int) -> None:
    """Refuse a line that cannot be a row: it would be held in memory as a whole, several times."""
    most = read_limit(LINE_VARIABLE, MAX_LINE)
    if length > most:
        raise ContentTooLargeError(
            f"{path}: got a line of more than {most:,} bytes, expected a row; if it is one, set {LINE_VARIABLE} to a "
            "larger number of bytes"
        )


def read_first_line(path: PathLike, blank: bytes) -> bytes:
    """Return the bytes up to the end of the first line that has a byte outside `blank`."""
    head = b""
    with open_content(path) as stream:
        for line in iter(lambda: stream.readline(read_limit(LINE_VARIABLE, MAX_LINE) + 1), b""):
            check_line_length(path, len(line))
            head += line
            if line.removeprefix(codecs.BOM_UTF8).strip(blank):
                break
    if b"\r" in head.rstrip(b"\r\n").replace(b"\r\n", b"\n"):
        raise ValueError(
            f"{path}: got a line that ends with '\\r' alone, expected '\\n' or '\\r\\n', as files are cut at '\\n'; "
            "convert the line ends, or give one file per worker"
        )
    return head


def count_lines_before(path: PathLike, share: Share) -> int:
    """Count the lines before a share. This reads the file up to there, so it is used in error messages only."""
    if share[1] == 1:
        return 0
    with Path(path).open("rb") as raw:
        part = ByteRange(raw, 0, _find_byte_range(path, raw, share, 0)[0])
        return sum(piece.count(b"\n") for piece in iter(lambda: part.read(PIECE), b""))


def _detect_compression(path: Path, first: bytes) -> str | None:
    if not first:
        raise ValueError(f"{path}: got an empty file, expected rows; write it again")
    ending = next((ending for ending, magic in MAGIC_BYTES.items() if first.startswith(magic)), None)
    suffix = path.suffix.lower()
    if suffix in MAGIC_BYTES and ending != suffix:
        raise ValueError(
            f"{path}: got {ending or 'uncompressed'} content (it begins with {first!r}), expected {suffix} "
            "as the ending says; rename the file or compress it again"
        )
    return ending


def check_magic(path: Path, magic: bytes, expected: str) -> None:
    """Raise a ValueError unless the content of a file begins with `magic`."""
    with open_content(path) as stream:
        first = stream.read(len(magic))
    if first != magic:
        raise ValueError(
            f"{path}: got content that begins with {first!r}, expected {expected}, beginning with {magic!r}; "
            "give the file the ending of what it holds"
        )


@contextmanager
def explain_broken_content(path: Path, expected: str, advice: str) -> Iterator[None]:
    """Turn any error that a reader raises on broken content into one ValueError; errors of the disk pass."""
    try:
        yield
    except _READ_ERRORS as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # EINVAL: seek before the begin
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"{path}: got content that cannot be read ({reason}), expected {expected}; {advice}"
        ) from error


class ByteRange:
    """The bytes from `start` to `end` of an open file, whose position nothing else may move meanwhile."""

    def __init__(self, raw: IO[bytes], start: int, end: int) -> None:
        self._raw, self._remaining = raw, end - start
        raw.seek(start)

    def read(self, size: int = -1) -> bytes:
        piece = self._raw.read(self._remaining if size < 0 else min(size, self._remaining))
        self._remaining -= len(piece)
        return piece


def _find_byte_range(path: PathLike, raw: IO[bytes], share: Share, header_size: int) -> tuple[int, int]:
    """Find the bytes at which the lines of a share start and end."""
    size = raw.seek(0, os.SEEK_END)
    first, last = (header_size + bound for bound in share_bounds(max(0, size - header_size), share))
    start = _find_line_start(path, raw, first, last, header_size)
    return start, (start if start >= last else _find_line_start(path, raw, last, size, header_size))


def _find_line_start(path: PathLike, raw: IO[bytes], at: int, stop: int, header_size: int) -> int:
    """Find the first byte from `at` on that begins a line; `stop` if there is none before it."""
    if at <= header_size:
        return at
    raw.seek(at - 1)
    begin, length = at - 1, 0
    while piece := raw.readline(min(stop - begin - length, PIECE)):
        length += len(piece)
        if piece.endswith(b"\n"):
            return begin + length
        check_line_length(path, length)
    return stop
