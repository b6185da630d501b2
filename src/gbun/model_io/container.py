"""The safetensors container: 8 bytes with the length of a JSON directory, the directory, the tensors' bytes.

    {"__metadata__": {string: string},
     name: {"dtype": "F32", "shape": [T, K], "data_offsets": [begin, end]}, ...}

It is read here and not by the safetensors library because a model file may come from anyone: the library
takes the last of two tensors of one name, maps the file into memory (a file cut short meanwhile ends the
process), and orders metadata at random (the same model would give another file each time). What is written
here it reads.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbun.model_io.checks import brief, record, sequence, strict_json, table, text, whole

Tensors = Mapping[str, NDArray[Any]]

DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
}
CODES = {name: code for code, name in DTYPES.items()}

# Parsed JSON takes up to 25 times the memory of its text; a million column names fit, and little harm does.
DIRECTORY_LIMIT = 2**25
MOST_DIMENSIONS = 3


@dataclass(frozen=True)
class Spec:
    """Where a tensor is: its bytes are [begin, end) after the directory."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    end: int


def read_directory(file: BufferedReader) -> tuple[dict[str, Any], int]:
    """The directory, unchecked but for being a JSON object, and the number of bytes after it."""
    size = os.fstat(file.fileno()).st_size
    if size < 8:
        raise ValueError(f"the file has {size} bytes: empty, truncated or no model file")
    length = int.from_bytes(file.read(8), "little")
    if length > size - 8:
        raise ValueError("no model file, or truncated: its directory would end beyond the end of the file")
    if length > DIRECTORY_LIMIT:
        raise ValueError(f"no model file: its directory has {length} bytes, at most {DIRECTORY_LIMIT} are read")
    try:
        source = file.read(length).decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("no model file, or damaged: its directory is not text") from None
    # Spaces at the end are padding; a text that begins or ends otherwise was not written by us.
    directory = strict_json(source.rstrip(" "), "its directory")
    if not isinstance(directory, dict) or source[:1] != "{" or source.rstrip(" ")[-1:] != "}":
        raise ValueError("no model file: its directory is not a JSON object")
    return directory, size - 8 - length


def read_metadata(directory: Mapping[str, Any]) -> dict[str, str]:
    checked: dict[str, str] = table(text)("__metadata__", directory.get("__metadata__", {}))
    return checked


def read_tensors(file: BufferedReader, directory: Mapping[str, Any], size: int) -> dict[str, NDArray[Any]]:
    """All tensors, from a file that stands right after its directory and has `size` bytes to go."""
    specs = {name: _spec(name, value) for name, value in directory.items() if name != "__metadata__"}
    in_order = sorted(specs.items(), key=lambda item: (item[1].begin, item[1].end))
    at = 0
    for name, spec in in_order:
        if spec.begin != at:
            raise ValueError(f"damaged file: tensor {brief(name)} begins at byte {spec.begin}, expected {at}")
        at = spec.end
    if at != size:
        raise ValueError(f"truncated or damaged file: its tensors take {at} bytes, the file has {size}")
    return {name: _read_tensor(file, name, spec) for name, spec in in_order}


_ENTRY = record(
    {
        "dtype": text,
        "shape": sequence(whole(0, 2**48)),
        "data_offsets": sequence(whole(0, 2**62)),
    }
)


def _spec(name: str, value: Any) -> Spec:
    where = f"tensor {brief(name)}"
    entry = _ENTRY(where, value)
    if entry["dtype"] not in DTYPES:
        raise ValueError(f"{where} has the unknown dtype {brief(entry['dtype'])}")
    if len(entry["data_offsets"]) != 2 or len(entry["shape"]) > MOST_DIMENSIONS:
        raise ValueError(f"{where} has shape {brief(entry['shape'])} and offsets {brief(entry['data_offsets'])}")
    dtype = np.dtype(DTYPES[entry["dtype"]]).newbyteorder("<")
    spec = Spec(dtype, entry["shape"], *entry["data_offsets"])
    if math.prod(spec.shape) * dtype.itemsize != spec.end - spec.begin:
        raise ValueError(f"{where} has {spec.end - spec.begin} bytes, which shape {spec.shape} of {dtype.name} has not")
    # NumPy refuses an empty array whose other sides are beyond memory; better said here.
    if math.prod(max(side, 1) for side in spec.shape) >= 2**48:
        raise ValueError(f"{where} has the impossible shape {spec.shape}")
    return spec


def _read_tensor(file: BufferedReader, name: str, spec: Spec) -> NDArray[Any]:
    # Every byte of it is in the file, as the offsets have shown: no more is allocated than is there.
    array = np.empty(spec.shape, dtype=spec.dtype)
    if file.readinto(as_bytes(array)) != array.nbytes:
        raise ValueError(f"the file was cut short while it was read, in tensor {brief(name)}")
    if spec.dtype.kind == "b" and (array.view(np.uint8) > 1).any():
        raise ValueError(f"damaged file: tensor {brief(name)} has truth values besides 0 and 1")
    return array.astype(spec.dtype.newbyteorder("="), copy=False)


def as_bytes(array: NDArray[Any]) -> memoryview:
    """The array's bytes as the file holds them: row by row, little-endian; a view wherever possible."""
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return little.reshape(-1).view(np.uint8).data


def container_chunks(metadata: Mapping[str, str], tensors: Tensors) -> Iterator[Any]:
    """The file, piece by piece; the same metadata and tensors give the same bytes.

    >>> b"".join(container_chunks({"a": "b"}, {"x": np.zeros(1, np.uint8)}))[8:]
    b'{"__metadata__":{"a":"b"},"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}  \\x00'
    """
    directory: dict[str, Any] = {"__metadata__": dict(metadata)}
    # Wide numbers first, so that every tensor lies at a multiple of its items' size.
    in_order = sorted(tensors.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    at = 0
    for name, array in in_order:
        directory[name] = {
            "dtype": CODES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    encoded = json.dumps(directory, separators=(",", ":")).encode("ascii")
    encoded += b" " * (-len(encoded) % 8)
    if len(encoded) > DIRECTORY_LIMIT:
        raise ValueError(
            f"names and labels take {len(encoded)} bytes, a model file holds at most {DIRECTORY_LIMIT}; "
            "use shorter column names or integer labels"
        )
    yield len(encoded).to_bytes(8, "little")
    yield encoded
    for _, array in in_order:
        yield as_bytes(array)
