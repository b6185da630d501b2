"""The interface through which a training learns about rows of other workers, and its implementation for one process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from numpy.typing import NDArray

from gbun.dtypes import FloatArray

WireFormat: TypeAlias = Sequence[tuple[int, str]]
"""The formats of the consecutive parts of a message: (number of values, one of `wire.FORMATS`)."""


class Collective(Protocol):
    """Rank, size, sum, broadcast, gather; nothing else.

    All workers make the same calls in the same order. A message is a sum over rows: its size depends on K, C and what
    the learner sums (before the first round also on the number of dense columns or buckets), never on rows.
    """

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def sum(self, values: FloatArray, root: int | None = None, wire: WireFormat | None = None) -> FloatArray:
        """Return the elementwise sum of `values` over all workers, with the same bits on each of them.

        With a `root`, only the root gets the sum; the other workers get an empty array, and half of the traffic is
        saved. `wire` sends parts of a vector in formats narrower than float64.
        """

    def broadcast(self, values: NDArray[Any], root: int = 0) -> NDArray[Any]:
        """Return the root's `values` on all workers. Elsewhere, `values` only gives shape and dtype."""

    def gather(self, values: NDArray[Any], root: int = 0) -> list[NDArray[Any]] | None:
        """Return the vectors of all workers in rank order at the root, None elsewhere. Lengths may differ."""


class Solo:
    """The collective of a single process: every sum is complete already.

    >>> import numpy as np
    >>> Solo().sum(np.array([1.0, 2.0]))
    array([1., 2.])
    """

    rank = 0
    size = 1

    def sum(self, values: FloatArray, root: int | None = None, wire: WireFormat | None = None) -> FloatArray:
        return values

    def broadcast(self, values: NDArray[Any], root: int = 0) -> NDArray[Any]:
        return values

    def gather(self, values: NDArray[Any], root: int = 0) -> list[NDArray[Any]] | None:
        return [values]


class WorkerError(RuntimeError):
    """A worker failed, and so the job ends on all workers.

    Attributes
    ----------
    rank : int or None
        The worker that failed, if known.
    lost : bool
        True if it was killed, is frozen or cannot be reached, so that another attempt may succeed. False if it raised
        an error.
    """

    def __init__(self, message: str, rank: int | None = None, lost: bool = False) -> None:
        super().__init__(message)
        self.rank, self.lost = rank, lost


class RemoteTraceback(Exception):
    """The traceback of an error in another process, as text: the cause of a `WorkerError`."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"
