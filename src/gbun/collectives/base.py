"""The one interface through which a round learns anything about rows it does not hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from numpy.typing import NDArray

from gbun.dtypes import FloatArray

Wire: TypeAlias = Sequence[tuple[int, str]]
"""How numbers are written while they travel: (how many, format) one after the other; see `wire.FORMATS`."""


class Collective(Protocol):
    """Rank, size, sum, broadcast, gather; nothing else.

    Every worker calls the same of these in the same order. A message is a sum over rows, of a size that depends on K
    and C only (and before the first round, on the number of dense columns or buckets): no row and no per-row value is
    ever passed to it.
    """

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def sum(self, values: FloatArray, root: int | None = None, wire: Wire | None = None) -> FloatArray:
        """The elementwise sum of every worker's `values`, the same bits on all of them.

        With a `root`, the sum is wanted there only; elsewhere nothing comes back, an empty array, and half as much
        travels. `wire` writes numbers of a vector narrower than float64.
        """

    def broadcast(self, values: NDArray[Any], root: int = 0) -> NDArray[Any]:
        """The root's `values` on every worker; the others' tell shape and dtype."""

    def gather(self, values: NDArray[Any], root: int = 0) -> list[NDArray[Any]] | None:
        """Every worker's `values`, a vector of a length of its own, in rank order on the root; None elsewhere."""


class WorkerError(RuntimeError):
    """A worker ended, or went silent, and so the job ends on all of them. `rank` is whose fault it was, if known.

    `lost`: it was killed, is frozen or cannot be reached, and may do better another time; otherwise it raised an error.
    """

    def __init__(self, message: str, rank: int | None = None, lost: bool = False) -> None:
        super().__init__(message)
        self.rank, self.lost = rank, lost


class Elsewhere(Exception):
    """The traceback of an error in another process, as text: the cause of a `WorkerError`."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"
