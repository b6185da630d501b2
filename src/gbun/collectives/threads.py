"""Workers that are threads of one process: for tests, and to try out training on workers without a network."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gbun.collectives.base import WireFormat, WorkerError
from gbun.collectives.wire import round_trip
from gbun.dtypes import FloatArray

Result = TypeVar("Result")


class ThreadRendezvous:
    """A barrier at which threads exchange values: each leaves its value and goes on when all have done so."""

    def __init__(self, size: int, timeout: float) -> None:
        self.size, self.timeout = size, timeout
        self.barrier = threading.Barrier(size)
        self.slots: list[Any] = [None] * size
        self.failure: tuple[int, BaseException] | None = None

    def exchange(self, rank: int, value: Any) -> list[Any]:
        self.slots[rank] = value
        self._wait()
        values = list(self.slots)
        self._wait()  # no thread may overwrite its slot before all have read it
        return values

    def _wait(self) -> None:
        try:
            self.barrier.wait(self.timeout)
        except threading.BrokenBarrierError:
            if self.failure is None:
                raise WorkerError(f"a worker did not come within {self.timeout} s") from None
            rank, cause = self.failure
            raise WorkerError(f"worker {rank} failed: {type(cause).__name__}: {cause}", rank) from cause

    def abort(self, rank: int, cause: BaseException) -> None:
        """Record that a worker failed; all that wait, or will wait, for it raise a `WorkerError`."""
        if self.failure is None and not isinstance(cause, WorkerError):
            self.failure = rank, cause
        self.barrier.abort()


class ThreadCollective:
    """The collective of one of several threads."""

    def __init__(self, rank: int, rendezvous: ThreadRendezvous) -> None:
        self.rank, self.size, self._rendezvous = rank, rendezvous.size, rendezvous

    def sum(self, values: FloatArray, root: int | None = None, wire: WireFormat | None = None) -> FloatArray:
        parts = self._rendezvous.exchange(self.rank, round_trip(np.asarray(values), wire))
        return np.asarray(reduce(np.add, parts)) if root in (None, self.rank) else np.zeros(0)

    def broadcast(self, values: NDArray[Any], root: int = 0) -> NDArray[Any]:
        return np.array(self._rendezvous.exchange(self.rank, values)[root])

    def gather(self, values: NDArray[Any], root: int = 0) -> list[NDArray[Any]] | None:
        parts = self._rendezvous.exchange(self.rank, values)
        return parts if self.rank == root else None


def in_threads(size: int, work: Callable[[ThreadCollective], Result], timeout: float = 60.0) -> Sequence[Result]:
    """Run `work(collective)` on `size` workers that are threads, and return the results in rank order.

    A worker waits `timeout` seconds for the others. If one raises, all of them end, and its error is raised.

    >>> in_threads(3, lambda collective: float(collective.sum(np.array([1.0]))[0]))
    [3.0, 3.0, 3.0]
    """
    rendezvous = ThreadRendezvous(size, timeout)

    def run(rank: int) -> Result:
        try:
            return work(ThreadCollective(rank, rendezvous))
        except BaseException as cause:
            rendezvous.abort(rank, cause)
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(run, rank) for rank in range(size)]
        errors = [future.exception() for future in futures]
    first = rendezvous.failure[1] if rendezvous.failure else next((e for e in errors if e is not None), None)
    if first is not None:
        raise first
    return [future.result() for future in futures]
