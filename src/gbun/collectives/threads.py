"""Workers that are threads of one process: for tests, and to see what workers do without a network."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gbun.collectives.base import Wire, WorkerError
from gbun.collectives.wire import as_received
from gbun.dtypes import FloatArray

Found = TypeVar("Found")


class Meeting:
    """Where threads meet: each lays down what it has, and goes on when all have done so."""

    def __init__(self, size: int, timeout: float) -> None:
        self.size, self.timeout = size, timeout
        self.barrier = threading.Barrier(size)
        self.laid: list[Any] = [None] * size
        self.failure: tuple[int, BaseException] | None = None

    def exchange(self, rank: int, value: Any) -> list[Any]:
        self.laid[rank] = value
        self._wait()
        found = list(self.laid)
        self._wait()  # nobody lays down the next value before all have taken this one
        return found

    def _wait(self) -> None:
        try:
            self.barrier.wait(self.timeout)
        except threading.BrokenBarrierError:
            if self.failure is None:
                raise WorkerError(f"a worker did not come within {self.timeout} s") from None
            rank, cause = self.failure
            raise WorkerError(f"worker {rank} failed: {type(cause).__name__}: {cause}", rank) from cause

    def leave(self, rank: int, cause: BaseException) -> None:
        """A worker failed: whoever waits for it, or will, is told why."""
        if self.failure is None and not isinstance(cause, WorkerError):
            self.failure = rank, cause
        self.barrier.abort()


class ThreadCollective:
    """One of several threads that train together."""

    def __init__(self, rank: int, meeting: Meeting) -> None:
        self.rank, self.size, self._meeting = rank, meeting.size, meeting

    def sum(self, values: FloatArray, root: int | None = None, wire: Wire | None = None) -> FloatArray:
        parts = self._meeting.exchange(self.rank, as_received(np.asarray(values), wire))
        return np.asarray(reduce(np.add, parts)) if root in (None, self.rank) else np.zeros(0)

    def broadcast(self, values: NDArray[Any], root: int = 0) -> NDArray[Any]:
        return np.array(self._meeting.exchange(self.rank, values)[root])

    def gather(self, values: NDArray[Any], root: int = 0) -> list[NDArray[Any]] | None:
        parts = self._meeting.exchange(self.rank, values)
        return parts if self.rank == root else None


def in_threads(size: int, work: Callable[[ThreadCollective], Found], timeout: float = 60.0) -> Sequence[Found]:
    """What `work` gives on each of `size` workers. Where one raises, all end, and its error is raised.

    >>> in_threads(3, lambda collective: float(collective.sum(np.array([1.0]))[0]))
    [3.0, 3.0, 3.0]
    """
    meeting = Meeting(size, timeout)

    def run(rank: int) -> Found:
        try:
            return work(ThreadCollective(rank, meeting))
        except BaseException as cause:
            meeting.leave(rank, cause)
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(run, rank) for rank in range(size)]
        errors = [future.exception() for future in futures]
    first = meeting.failure[1] if meeting.failure else next((e for e in errors if e is not None), None)
    if first is not None:
        raise first
    return [future.result() for future in futures]
