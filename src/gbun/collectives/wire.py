"""The formats of numbers in messages: float64, or a narrower one.

float64 and float32 are those of IEEE 754. int16 cuts the values into blocks of 256 and sends 16-bit integers and one
float32 scale per block, so that the largest value of a block keeps 15 bits. Sums are always made in float64; only
messages are narrow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbun.collectives.base import WireFormat
from gbun.dtypes import SUM, FloatArray

FORMATS = ("float64", "float32", "int16")
BLOCK = 256
MAX_INT16 = 2**15 - 1


def n_bytes(wire: WireFormat) -> int:
    """Return the size of a message.

    >>> n_bytes([(1000, "float32"), (2, "float64")])
    4016
    """
    return sum(_n_bytes(count, name) for count, name in wire)


def encode(values: FloatArray, wire: WireFormat) -> NDArray[np.uint8]:
    """Return the bytes of a message."""
    parts, first = [np.zeros(0, dtype=np.uint8)], 0
    for count, name in wire:
        part = values[first : first + count]
        parts.append(_encode_int16(part) if name == "int16" else part.astype(name).view(np.uint8))
        first += count
    return np.concatenate(parts)


def decode(data: NDArray[np.uint8], wire: WireFormat) -> FloatArray:
    """Return the values of a message in float64."""
    parts, first = [np.zeros(0)], 0
    for count, name in wire:
        part = data[first : first + _n_bytes(count, name)]
        parts.append(_decode_int16(part, count) if name == "int16" else part.view(name).astype(SUM))
        first += len(part)
    return np.concatenate(parts)


def round_trip(values: NDArray[Any], wire: WireFormat | None) -> NDArray[Any]:
    """Return values as they arrive in a message of this format."""
    return values if wire is None else decode(encode(values, wire), wire)


def rounding(name: str) -> float:
    """Return the rounding error of one message, relative to the largest value of a block.

    >>> rounding("float32") < rounding("int16") < 1e-4
    True
    """
    return 0.5 / MAX_INT16 if name == "int16" else float(np.finfo(name).eps)


def _n_bytes(count: int, name: str) -> int:
    return 2 * count + 4 * -(-count // BLOCK) if name == "int16" else count * np.dtype(name).itemsize


def _encode_int16(values: FloatArray) -> NDArray[np.uint8]:
    blocks = np.zeros((-(-len(values) // BLOCK), BLOCK))
    blocks.reshape(-1)[: len(values)] = values
    largest = np.abs(blocks).max(axis=1, initial=0.0)
    # Slightly more than needed: rounding must not carry the largest value beyond MAX_INT16.
    with np.errstate(over="ignore"):
        scale = (largest * (1.0 + 2.0**-20) / MAX_INT16).astype(np.float32)
    usable = np.isfinite(scale)
    scale[~usable] = np.nan  # nan or infinity in a block makes all of the block nan
    divisor = np.where(usable & (scale > 0), scale, 1.0)[:, None]
    integers = np.rint(np.where(usable[:, None], blocks, 0.0) / divisor).astype(np.int16)
    return np.concatenate([scale.view(np.uint8), integers.reshape(-1)[: len(values)].view(np.uint8)])


def _decode_int16(data: NDArray[np.uint8], count: int) -> FloatArray:
    n_blocks = -(-count // BLOCK)
    scale = data[: 4 * n_blocks].view(np.float32).astype(SUM)
    return data[4 * n_blocks :].view(np.int16) * np.repeat(scale, BLOCK)[:count]
