"""Files that are there completely or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import time
from typing import Any

from gbun.data.streams import PathLike

LEAST_FREE = 2**20  # bytes on the disk of a file that is to be written
STALE_SECONDS = 86_400.0  # after which a temporary file belongs to no process any more


def write_atomically(path: PathLike, chunks: Iterable[Any]) -> None:
    """Write `chunks` (bytes or byte arrays) to a new file beside `path`, then put it in the place of `path`.

    Whatever happens in between, `path` is either as it was or complete. The new file is on the disk before it gets its
    name, so that a power cut cannot leave an empty file of that name.
    """
    target = writable_target(path)
    temporary = _temporary_beside(target)
    try:
        _write_new_file(temporary, chunks, path)
        with suppress(OSError):  # some file systems keep no modes; a file of ours has been written all the same
            shutil.copymode(target, temporary)
        with _explain(path):
            os.replace(temporary, target)  # noqa: PTH105 - the call whose atomicity is documented
    except BaseException:
        with suppress(OSError):  # what went wrong first is what matters
            temporary.unlink(missing_ok=True)
        raise


def _write_new_file(temporary: Path, chunks: Iterable[Any], path: PathLike) -> None:
    with _explain(path):
        file = temporary.open("xb")  # never an existing one; its mode is what the umask asks for
    try:
        for chunk in chunks:  # their errors are no errors of the file
            with _explain(path):
                file.write(chunk)
        with _explain(path):
            file.flush()
            os.fsync(file.fileno())
            file.close()
    finally:
        with suppress(OSError):  # closing tries again what could not be written
            file.close()


@contextmanager
def _explain(path: PathLike) -> Iterator[None]:
    """Name the file in errors of the system."""
    try:
        yield
    except OSError as error:
        if error.strerror is None:
            raise
        raise type(error)(error.errno, f"{path} cannot be written: {error.strerror}") from error


def probe_target(path: PathLike) -> None:
    """Find out whether `path` can be written, before hours of training: its folder, permissions, space on the disk.

    Temporary files of processes that were killed more than a day ago are removed.
    """
    target = writable_target(path)
    temporary = _temporary_beside(target)
    try:
        temporary.open("xb").close()
        temporary.unlink()
    except OSError as error:
        reason = error.strerror or str(error)
        raise type(error)(
            error.errno, f"{path} cannot be written: {target.parent} takes no new file ({reason})"
        ) from None
    free = _free_bytes(target.parent)
    if free is not None and free < LEAST_FREE:
        raise OSError(f"{path} cannot be written: {target.parent} has {free:,} bytes free, expected {LEAST_FREE:,}")
    for stale in target.parent.glob(".gbun-*.tmp"):
        with suppress(OSError):  # another process may remove it
            if stale.stat().st_mtime < time() - STALE_SECONDS:
                stale.unlink()


def _free_bytes(folder: Path) -> int | None:
    """Return the free bytes of a disk; None where its file system does not know, as some on a network."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None
    return usage.free if usage.total else None


def _temporary_beside(target: Path) -> Path:
    # Not named after the target: a name of 255 bytes leaves no room for an ending.
    return target.with_name(f".gbun-{secrets.token_hex(8)}.tmp")


def writable_target(path: PathLike) -> Path:
    """Return the file to write, behind symbolic links: a link stays a link, its file is replaced.

    What is no file, such as a device or a pipe, is refused: it must not be replaced by a file.
    """
    if not os.fspath(path):
        raise ValueError("the path to write to is empty; give the name of a file, such as 'model.gbun'")
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(
            f"{path} is a folder; give the name of a file in it, such as {Path(path) / 'model.gbun'}"
        )
    if Path(path).exists() and not Path(path).is_file():  # not of `target`: the link of an open pipe leads nowhere
        raise ValueError(f"{path} is not a regular file but a device, a pipe or a socket; give the name of a file")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: there is no folder {target.parent}; create it first")
    return target
