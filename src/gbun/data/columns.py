"""Columns as a fitted scaling sees them: what it knows of each, and dense ones scaled when they are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbun.arrays import Array, device, host, like, namespace, widened
from gbun.dtypes import MEMBERSHIP, FloatArray, IntArray

FAR = 1e18  # values beyond it are cut: float32 holds their sums, and no softmax tells them apart
SCALED = 2**19  # numbers of dense columns that are scaled at a time


@dataclass(frozen=True)
class ColumnScale:
    """centre and factor (1 / deviation, 0 for a constant column) by column, or by sorted id when `ids` is given."""

    centre: FloatArray
    factor: FloatArray
    ids: IntArray | None = None

    def apply_dense(self, block: Array, missing_is_zero: bool) -> Array:
        missing = namespace(block).isnan(block)
        if missing_is_zero:
            block[missing] = 0.0
        block -= like(self.centre, block)
        block *= like(self.factor, block)
        if not missing_is_zero:
            block[missing] = 0.0
        return block

    def apply_sparse(self, ids: IntArray, values: FloatArray) -> FloatArray:
        assert self.ids is not None
        if len(self.ids) == 0:
            return np.zeros(len(ids), dtype=MEMBERSHIP)
        at = np.searchsorted(self.ids, ids).clip(max=len(self.ids) - 1)
        known = self.ids[at] == ids
        # A missing entry stands at its column's mean, as a centred dense column would have it.
        scaled = np.where(np.isnan(values), self.centre[at], values) * self.factor[at]
        return np.where(known, scaled, 0.0)


class ScaledColumns:
    """Dense columns where they are, as they came: float32 and scaled whenever some rows are written somewhere.

    >>> X = np.array([[1.0, 5.0], [3.0, 9.0]])
    >>> columns = ScaledColumns(X, ColumnScale(np.array([2.0, 7.0]), np.array([1.0, 0.5])), ("standard",))
    >>> np.asarray(columns[1:])
    array([[1., 1.]], dtype=float32)
    """

    def __init__(self, X: Array, scale: ColumnScale, steps: tuple[str, ...]) -> None:
        self.X, self.steps = X, steps
        wide = widened(X[:0])
        self.scale = ColumnScale(like(scale.centre, wide), like(scale.factor, wide))  # once, not block by block

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.X.shape[0]), int(self.X.shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> ScaledColumns:
        """Some rows; without a copy, where they are a slice."""
        return ScaledColumns(self.X[rows], self.scale, self.steps)

    def into(self, out: Array) -> None:
        """Chunk by chunk, so that no float64 copy is made."""
        xp, at_a_time = namespace(self.X), self._at_a_time
        for first in range(0, len(self), at_a_time):
            block = widened(self.X[first : first + at_a_time])
            block = logarithm(block) if "log" in self.steps else block
            block = self.scale.apply_dense(block, missing_is_zero="standard" not in self.steps)
            if "unit" in self.steps:
                block /= positive(xp.sqrt(xp.sum(block * block, axis=1)))[:, None]
            out[first : first + at_a_time] = xp.clip(block, -FAR, FAR)

    @property
    def _at_a_time(self) -> int:
        return max(1, SCALED // max(1, self.shape[1]))

    def copy(self) -> Array:
        """All of them, where they are."""
        xp = namespace(self.X)
        out = xp.empty(self.shape, dtype=xp.float32, device=device(self.X))
        self.into(out)
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """All of them, on the host; a device need not have room for them."""
        if copy is False:
            raise ValueError("scaled columns are made when they are asked for: there is nothing to look at")
        out = np.empty(self.shape, dtype=MEMBERSHIP)
        for first in range(0, len(self), self._at_a_time):
            some = slice(first, first + self._at_a_time)
            out[some] = host(self[some].copy())
        return out if dtype is None else out.astype(dtype, copy=False)


def logarithm(values: Array) -> Array:
    xp = namespace(values)
    return xp.sign(values) * xp.log1p(xp.abs(values))


def positive(lengths: Array) -> Array:
    xp = namespace(lengths)
    return xp.where(lengths > 0.0, lengths, xp.ones_like(lengths))
