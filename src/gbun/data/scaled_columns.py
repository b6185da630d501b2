"""The scale of columns, and dense columns that are scaled when they are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from gbun.arrays import Array, asarray_like, namespace, to_host, widen
from gbun.dtypes import MEMBERSHIP, FloatArray, IntArray

VALUE_LIMIT = 1e18  # larger values are clipped: float32 holds their sums, and a softmax cannot tell them apart
SCALING_BLOCK = 2**19  # numbers of dense columns scaled at a time


@dataclass(frozen=True)
class ColumnScale:
    """Centre and factor (1 / deviation, 0 for a constant column) of each column, or of each id in the sorted `ids`.

    With a `bound`, scaled values of dense columns are clipped to -bound .. bound.
    """

    centre: FloatArray
    factor: FloatArray
    ids: IntArray | None = None
    bound: FloatArray | None = None

    def apply_dense(self, block: Array, missing_is_zero: bool) -> Array:
        """Scale rows in place. A missing value is 0 before scaling if `missing_is_zero`, else 0 after it."""
        missing = namespace(block).isnan(block)
        if missing_is_zero:
            block[missing] = 0.0
        block -= asarray_like(self.centre, block)
        block *= asarray_like(self.factor, block)
        if not missing_is_zero:
            block[missing] = 0.0
        if self.bound is not None:
            bound = asarray_like(self.bound, block)
            block = namespace(block).clip(block, -bound, bound)
        return block

    def apply_sparse(self, ids: IntArray, values: FloatArray) -> FloatArray:
        assert self.ids is not None
        if len(self.ids) == 0:
            return np.zeros(len(ids), dtype=MEMBERSHIP)
        at = np.searchsorted(self.ids, ids).clip(max=len(self.ids) - 1)
        known = self.ids[at] == ids
        # A missing entry gets the mean of its column, as in a centred dense column.
        scaled = np.where(np.isnan(values), self.centre[at], values) * self.factor[at]
        return np.where(known, scaled, 0.0)


class ScaledColumns:
    """Dense columns of the user's array, scaled to float32 each time rows are read.

    >>> X = np.array([[1.0, 5.0], [3.0, 9.0]])
    >>> columns = ScaledColumns(X, ColumnScale(np.array([2.0, 7.0]), np.array([1.0, 0.5])), ("standard",))
    >>> np.asarray(columns[1:])
    array([[1., 1.]], dtype=float32)
    """

    def __init__(self, X: Array, scale: ColumnScale, steps: tuple[str, ...]) -> None:
        self.X, self.steps = X, steps
        wide = widen(X[:0])  # converted once, not for each block
        bound = None if scale.bound is None else asarray_like(scale.bound, wide)
        self.scale = ColumnScale(asarray_like(scale.centre, wide), asarray_like(scale.factor, wide), bound=bound)

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.X.shape[0]), int(self.X.shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> ScaledColumns:
        """Return some rows; a slice is not copied."""
        return ScaledColumns(self.X[rows], self.scale, self.steps)

    def write_to(self, out: Array) -> None:
        """Write all rows, scaled block by block so that no float64 copy of X is made."""
        xp = namespace(self.X)
        for rows in self._blocks():
            block = widen(self.X[rows])
            block = signed_log(block) if "log" in self.steps else block
            block = self.scale.apply_dense(block, missing_is_zero="standard" not in self.steps)
            if "unit" in self.steps:
                block /= replace_zeros_by_ones(xp.sqrt(xp.sum(block * block, axis=1)))[:, None]
            out[rows] = xp.clip(block, -VALUE_LIMIT, VALUE_LIMIT)

    def _blocks(self) -> Iterator[slice]:
        rows = max(1, SCALING_BLOCK // max(1, self.shape[1]))
        return (slice(first, first + rows) for first in range(0, len(self), rows))

    def copy(self) -> Array:
        """Return all rows scaled, on the device of X."""
        xp = namespace(self.X)
        out = xp.empty(self.shape, dtype=xp.float32, device=array_api_compat.device(self.X))
        self.write_to(out)
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return all rows scaled, on the host; the device needs room for one block only."""
        if copy is False:
            raise ValueError("scaled columns are made when they are asked for: there is nothing to look at")
        out = np.empty(self.shape, dtype=MEMBERSHIP)
        for rows in self._blocks():
            out[rows] = to_host(self[rows].copy())
        return out if dtype is None else out.astype(dtype, copy=False)


def signed_log(values: Array) -> Array:
    xp = namespace(values)
    return xp.sign(values) * xp.log1p(xp.abs(values))


def replace_zeros_by_ones(lengths: Array) -> Array:
    xp = namespace(lengths)
    return xp.where(lengths > 0.0, lengths, xp.ones_like(lengths))
