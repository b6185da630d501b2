"""The one interface through which a round learns anything about rows it does not hold."""

from __future__ import annotations

from typing import Protocol

from gbun.dtypes import FloatArray


class Collective(Protocol):
    """Rank, size, sum, broadcast, gather; nothing else.

    Every message is a sum over rows, of a size that depends on K and C only (and once, before the first round, on the
    number of dense columns): no row and no per-row value is ever passed to it.
    """

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def sum(self, values: FloatArray) -> FloatArray:
        """The elementwise sum of every worker's `values`, the same bits on all of them."""

    def broadcast(self, values: FloatArray, root: int = 0) -> FloatArray:
        """The root's `values` on every worker."""

    def gather(self, values: FloatArray, root: int = 0) -> list[FloatArray] | None:
        """Every worker's `values` in rank order on the root, None elsewhere."""
