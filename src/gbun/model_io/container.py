"""Header and tensors as one safetensors file, sealed by a digest.

The safetensors library writes and reads the file. It would let pass a tensor named twice and keys it does not know:
these are refused before it is asked. Files are read, never mapped into memory: a mapped file that is cut short
meanwhile ends the process.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from gbun.model_io.checks import anything, brief, record, strict_json
from gbun.model_io.header import canonical, checked

Tensors = Mapping[str, NDArray[Any]]

# The one key of the metadata: the library would write several in random order.
KEY = "gbun"
ENTRY = record({"dtype": anything, "shape": anything, "data_offsets": anything})

# Parsed JSON takes up to 25 times the memory of its text; a million column names fit, and little harm does.
DIRECTORY_LIMIT = 2**25


def pack(header: Mapping[str, Any], tensors: Tensors) -> bytes:
    """The file; the same header and tensors give the same bytes."""
    # The library takes an array's memory as it lies: it must lie row by row and be little-endian.
    plain = {name: np.asarray(array, array.dtype.newbyteorder("<"), order="C") for name, array in tensors.items()}
    content = save(plain, metadata={KEY: sealed(header, plain)})
    length = int.from_bytes(content[:8], "little")
    if length > DIRECTORY_LIMIT:
        raise ValueError(
            f"names and labels take {length} bytes, a model file holds at most {DIRECTORY_LIMIT}; "
            "use shorter column names or integer labels"
        )
    return content


def unpack(file: IO[bytes]) -> tuple[dict[str, Any], Tensors]:
    """The header, checked, and the tensors, just as `pack` was given them."""
    size = os.fstat(file.fileno()).st_size
    first = file.read(8)
    length = int.from_bytes(first, "little")
    if length > min(size - 8, DIRECTORY_LIMIT):
        raise ValueError(
            f"no model file, or truncated: it has {size} bytes, of which {length} would be a directory; "
            f"at most {DIRECTORY_LIMIT} are read"
        )
    directory = file.read(length)
    text = _metadata(directory)
    stated = strict_json(text, "header")
    if isinstance(stated, dict):
        stated.pop("digest", None)  # compared below, with all the text
    header = checked(stated)
    tensors = _tensors(first + directory + file.read(size - 8 - length))
    if sealed(stated, tensors) != text:
        raise ValueError("altered or damaged file: its digest does not fit its content; get a fresh copy")
    return header, tensors


def sealed(header: Mapping[str, Any], tensors: Tensors) -> str:
    """The header as text, with a SHA-256 of itself and of each tensor's name, dtype, shape and bytes."""
    sha = hashlib.sha256(canonical(header).encode("ascii"))
    for name, array in sorted(tensors.items()):
        shape = ",".join(map(str, array.shape))
        sha.update(f"\n{name} {array.dtype.name} [{shape}]\n".encode())
        sha.update(array.reshape(-1).view(np.uint8).data)
    return canonical({**header, "digest": sha.hexdigest()})


def _metadata(directory: bytes) -> str:
    """The text under our key, once the directory is found to be one that the library cannot misread."""
    source = directory.decode("utf-8", "replace")  # what is replaced is no JSON to the library
    entries = strict_json(source, "its directory")
    # Spaces at the end are padding; what begins or ends otherwise was not written by us.
    if not isinstance(entries, dict) or source[:1] != "{" or source.rstrip(" ")[-1:] != "}":
        raise ValueError("no model file: its directory is not a JSON object")
    metadata = entries.pop("__metadata__", None)
    text = metadata.get(KEY) if isinstance(metadata, dict) and len(metadata) == 1 else None
    if not isinstance(text, str):
        raise ValueError(f"no gbun model: its metadata is {brief(metadata)}, expected one text named {KEY!r}")
    for name, entry in entries.items():
        ENTRY(f"tensor {brief(name)}", entry)
    return text


def _tensors(content: bytes) -> Tensors:
    try:
        return load(content)
    except (SafetensorError, KeyError, ValueError, OverflowError) as error:  # KeyError: a dtype that NumPy lacks
        raise ValueError(f"truncated or damaged file: its tensors cannot be read ({error})") from None
