"""Header and tensors as one safetensors file with a digest.

The safetensors library writes and reads the file. It accepts a tensor named twice and keys it does not know, so these
are refused before it is called. Files are read and never mapped into memory: a mapped file that is cut short meanwhile
ends the process.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from gbun.checks import anything, brief, parse_strict_json, record
from gbun.learners.base import Arrays
from gbun.model_io.header import check_header, to_canonical_json
from gbun.model_io.upgrade import upgrade_tensors

KEY = "gbun"  # the only key of the metadata: the library would write several in random order
ENTRY = record({"dtype": anything, "shape": anything, "data_offsets": anything})
# Parsed JSON takes up to 25 times the memory of its text. A million column names fit.
DIRECTORY_LIMIT = 2**25


def pack(header: Mapping[str, Any], tensors: Arrays) -> bytes:
    """Return the content of the file; the same header and tensors give the same bytes."""
    # The library takes the memory of an array as it is: it must be contiguous row by row and little-endian.
    plain = {name: np.asarray(array, array.dtype.newbyteorder("<"), order="C") for name, array in tensors.items()}
    content = save(plain, metadata={KEY: seal(header, plain)})
    length = int.from_bytes(content[:8], "little")
    if length > DIRECTORY_LIMIT:
        raise ValueError(
            f"names and labels take {length} bytes, a model file holds at most {DIRECTORY_LIMIT}; "
            "use shorter column names or integer labels"
        )
    return content


def unpack(file: IO[bytes]) -> tuple[dict[str, Any], Arrays]:
    """Read the header, checked, and the tensors that `pack` was given; both as this version has them."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    first = file.read(8)
    length = int.from_bytes(first, "little")
    if length > min(size - 8, DIRECTORY_LIMIT):
        raise ValueError(
            f"not a .gbun file, or truncated: it has {size} bytes, and its header would have {length} (at most "
            f"{DIRECTORY_LIMIT})"
        )
    directory = file.read(length)
    text = _read_metadata(directory)
    stated = parse_strict_json(text, "header")
    if isinstance(stated, dict):
        stated.pop("digest", None)  # compared below, with all the text
    header = check_header(stated)
    content = first + directory + file.read(size - 8 - length)
    try:
        tensors = load(content)
    except (SafetensorError, KeyError, ValueError, OverflowError) as error:  # KeyError: a dtype that NumPy lacks
        raise ValueError(f"truncated or damaged file: its tensors cannot be read ({error})") from None
    if seal(stated, tensors) != text:
        raise ValueError("altered or damaged file: its digest does not fit its content; get a fresh copy")
    return upgrade_tensors(header, tensors)


def seal(header: Mapping[str, Any], tensors: Arrays) -> str:
    """Return the header as text, with a SHA-256 of itself and of each tensor's name, dtype, shape and bytes."""
    sha = hashlib.sha256(to_canonical_json(header).encode("ascii"))
    for name, array in sorted(tensors.items()):
        shape = ",".join(map(str, array.shape))
        sha.update(f"\n{name} {array.dtype.name} [{shape}]\n".encode())
        sha.update(array.reshape(-1).view(np.uint8).data)
    return to_canonical_json({**header, "digest": sha.hexdigest()})


def _read_metadata(directory: bytes) -> str:
    """Return the text under our key, after a check that the library cannot misread the directory."""
    source = directory.decode("utf-8", "replace")  # what is replaced is no JSON to the library
    entries = parse_strict_json(source, "its directory")
    # Spaces at the end are padding. We write nothing else before or after the object.
    if not isinstance(entries, dict) or source[:1] != "{" or source.rstrip(" ")[-1:] != "}":
        raise ValueError("no model file: its directory is not a JSON object")
    metadata = entries.pop("__metadata__", None)
    text = metadata.get(KEY) if isinstance(metadata, dict) and len(metadata) == 1 else None
    if not isinstance(text, str):
        raise ValueError(f"no gbun model: its metadata is {brief(metadata)}, expected one text named {KEY!r}")
    for name, entry in entries.items():
        ENTRY(f"tensor {brief(name)}", entry)
    return text
