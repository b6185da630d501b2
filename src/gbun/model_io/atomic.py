"""Files that are there completely or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gbun.data.streams import PathLike


def write_atomically(path: PathLike, chunks: Iterable[Any]) -> None:
    """Write `chunks` (bytes or byte arrays) to a new file beside `path`, then put it in the place of `path`.

    Whatever happens in between, `path` is either as it was or complete. The new file is on the disk before it gets its
    name, so that a power cut cannot leave an empty file of that name.
    """
    target = writable_target(path)
    # Not named after the target: a name of 255 bytes leaves no room for an ending. "xb" never opens an
    # existing file and gives the new one the permissions the umask asks for; tempfile would make it private.
    temporary = target.with_name(f".gbun-{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)  # noqa: PTH105 - the call whose atomicity is documented
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def writable_target(path: PathLike) -> Path:
    """Return the file to write, behind symbolic links: a link stays a link, its file is replaced."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(
            f"{path} is a folder; give the name of a file in it, such as {Path(path) / 'model.gbun'}"
        )
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: there is no folder {target.parent}; create it first")
    return target
