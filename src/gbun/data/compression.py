"""Files as bytes, whether compressed or not."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeAlias

PathLike: TypeAlias = "str | os.PathLike[str]"

_OPEN: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
MAGIC = {".gz": b"\x1f\x8b", ".bz2": b"BZh", ".xz": b"\xfd7zXZ\x00"}


@contextmanager
def open_content(path: PathLike) -> Iterator[IO[bytes]]:
    """The bytes of a file, decompressed if its first bytes say so; a broken archive is a ValueError."""
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path}: got a folder, expected a file; name one file in it")
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file from {Path.cwd()}; check the path")
    with path.open("rb") as raw:
        ending = _compression(path, raw.peek(8)[:8])
        if ending is None:
            yield raw
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
