"""How numbers are written while they travel: as they are, or narrower.

float64 and float32 are IEEE's. int16 writes numbers in blocks of 256: each as a 16-bit integer times the block's scale,
a float32, so that the largest of a block keeps 15 bits. Whoever adds adds in float64; only what travels is narrow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbun.collectives.base import Wire
from gbun.dtypes import SUM, FloatArray

FORMATS = ("float64", "float32", "int16")
BLOCK = 256
LARGEST = 2**15 - 1


def n_bytes(wire: Wire) -> int:
    """
    >>> n_bytes([(1000, "float32"), (2, "float64")])
    4016
    """
    return sum(_n_bytes(count, name) for count, name in wire)


def encode(values: FloatArray, wire: Wire) -> NDArray[np.uint8]:
    """The bytes that travel."""
    parts, first = [], 0
    for count, name in wire:
        own = values[first : first + count]
        parts.append(_narrow(own) if name == "int16" else own.astype(name).view(np.uint8))
        first += count
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint8)


def decode(data: NDArray[np.uint8], wire: Wire) -> FloatArray:
    """The numbers they stand for, in float64."""
    parts, first = [], 0
    for count, name in wire:
        own = data[first : first + _n_bytes(count, name)]
        parts.append(_widened(own, count) if name == "int16" else own.view(name).astype(SUM))
        first += len(own)
    return np.concatenate(parts) if parts else np.zeros(0)


def as_received(values: NDArray[Any], wire: Wire | None) -> NDArray[Any]:
    """What is left of numbers after a journey."""
    return values if wire is None else decode(encode(values, wire), wire)


def rounding(name: str) -> float:
    """How exact a number is after one journey, relative to the largest near it.

    >>> rounding("float32") < rounding("int16") < 1e-4
    True
    """
    return 0.5 / LARGEST if name == "int16" else float(np.finfo(name).eps)


def _n_bytes(count: int, name: str) -> int:
    return 2 * count + 4 * -(-count // BLOCK) if name == "int16" else count * np.dtype(name).itemsize


def _narrow(values: FloatArray) -> NDArray[np.uint8]:
    blocks = np.zeros((-(-len(values) // BLOCK), BLOCK))
    blocks.reshape(-1)[: len(values)] = values
    largest = np.abs(blocks).max(axis=1, initial=0.0)
    # A hair more than needed, or the largest might be rounded to what does not fit.
    with np.errstate(over="ignore"):
        scale = (largest * (1.0 + 2.0**-20) / LARGEST).astype(np.float32)
    usable = np.isfinite(scale)
    scale[~usable] = np.nan  # a block with something that is no number is none at all
    by = np.where(usable & (scale > 0), scale, 1.0)[:, None]
    whole = np.rint(np.where(usable[:, None], blocks, 0.0) / by).astype(np.int16)
    return np.concatenate([scale.view(np.uint8), whole.reshape(-1)[: len(values)].view(np.uint8)])


def _widened(data: NDArray[np.uint8], count: int) -> FloatArray:
    n_blocks = -(-count // BLOCK)
    scale = data[: 4 * n_blocks].view(np.float32).astype(SUM)
    return data[4 * n_blocks :].view(np.int16) * np.repeat(scale, BLOCK)[:count]
