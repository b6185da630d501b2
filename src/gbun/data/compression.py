"""Files as bytes, whether compressed or not; and the part of a file's bytes that one of several workers reads."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeAlias

PathLike: TypeAlias = "str | os.PathLike[str]"
Share: TypeAlias = tuple[int, int]

WHOLE: Share = (0, 1)

_OPEN: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
MAGIC = {".gz": b"\x1f\x8b", ".bz2": b"BZh", ".xz": b"\xfd7zXZ\x00"}

# A line end is looked for, and the header of an array is read, in pieces of this size: numpy's longest header fits in.
_PIECE = 1 << 14


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
            lines: Any = raw if share[1] == 1 else Part(raw, *_span(raw, share, after))
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
        part = Part(raw, 0, _span(raw, share, 0)[0])
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


class Part:
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
