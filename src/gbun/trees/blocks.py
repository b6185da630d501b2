"""Blocks of the user's array as float32, in whichever order they are in memory.

    x of row i and column j of a block  =  values[i row_stride + j column_stride]

So one compiled kernel serves rows in C order and in F order, and the array is never converted as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from gbun.dtypes import FloatArray, IntArray

VALUES_AT_A_TIME = 2**17  # half a megabyte of float32, which stays in the second cache
MAX_ROWS = 2**14


class Block(NamedTuple):
    """Some rows and columns: their values, flat, and how many values lie between neighbours."""

    values: FloatArray
    row_stride: int
    column_stride: int
    n_rows: int
    n_columns: int

    def columns(self) -> FloatArray:
        """Return the values of shape (columns, rows)."""
        if self.row_stride == 1 and self.column_stride == self.n_rows:
            return np.asarray(self.values.reshape(self.n_columns, self.n_rows))
        return np.asarray(self.values.reshape(self.n_rows, self.n_columns).T)


def read_block(X: FloatArray, rows: slice | IntArray, columns: slice | IntArray | None = None) -> Block:
    """Return the block of some rows and columns as float32: a view where X has that form already, else a copy.

    What float32 cannot hold is infinite, a number like any other.

    >>> read_block(np.array([[1, 2], [3, 4]]), slice(1, 2), np.array([1]))
    Block(values=array([4.], dtype=float32), row_stride=1, column_stride=1, n_rows=1, n_columns=1)
    """
    part = X[rows] if columns is None else X[rows][:, columns]
    n, m = part.shape
    by_column = abs(X.strides[0]) < abs(X.strides[1])
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.ascontiguousarray(part.T if by_column else part, dtype=np.float32).reshape(-1)
    return Block(values, 1, n, n, m) if by_column else Block(values, m, 1, n, m)


def row_blocks(n: int, n_columns: int) -> Iterator[slice]:
    """Cut rows into blocks of about `VALUES_AT_A_TIME` values; the length is a multiple of 64, except for the last.

    >>> [(block.start, block.stop) for block in row_blocks(200, 1000)]
    [(0, 128), (128, 200)]
    """
    size = min(MAX_ROWS, max(64, VALUES_AT_A_TIME // max(1, n_columns) // 64 * 64))
    return (slice(first, min(first + size, n)) for first in range(0, n, size))
