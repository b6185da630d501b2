"""A collective whose messages travel while the worker computes: one thread sends them in the order of the calls."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from copy import copy
from typing import Any, TypeVar

from numpy.typing import NDArray

from gbun.collectives.base import Collective, WireFormat
from gbun.dtypes import FloatArray

Result = TypeVar("Result")
Job = tuple["Future[Any]", Callable[..., Any], tuple[Any, ...]]
CHECK_INTERVAL = 0.5  # seconds between checks for failed workers while this one waits


def run_in_thread(work: Callable[[], Result]) -> Future[Result]:
    """Run `work` in a daemon thread: the process can end although `work` never returns."""
    future: Future[Result] = Future()
    threading.Thread(target=_run_job, args=(future, work, ()), daemon=True).start()
    return future


def wait_with_checks(future: Future[Result], check: Callable[[], None]) -> Result:
    """Return a result, calling `check` at intervals meanwhile; what `check` raises ends the wait."""
    while not wait([future], timeout=CHECK_INTERVAL).done:
        check()
    return future.result()


def _run_job(future: Future[Any], work: Callable[..., Any], values: tuple[Any, ...]) -> None:
    try:
        future.set_result(work(*values))
    except BaseException as error:  # raised where the result is waited for
        future.set_exception(error)


class AsyncCollective:
    """A collective with `start_sum`, which does not wait for the sum.

    `transport` is the wire format of a round's large sums. `check` is called at intervals while this worker waits; it
    raises if a worker failed.
    """

    def __init__(
        self, collective: Collective, transport: str = "float32", check: Callable[[], None] = lambda: None
    ) -> None:
        self.collective, self.transport, self.check = collective, transport, check
        self.rank, self.size = collective.rank, collective.size
        self.traffic: list[Any] = []  # the collective's traffic when each round began
        self._jobs: queue.Queue[Job | None] = queue.Queue()
        # A daemon, so that the process can end although a message never arrives.
        self._thread = threading.Thread(target=self._run_jobs, name="gbun-messages", daemon=True)
        self._thread.start()

    def _run_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            _run_job(*job)

    def start_sum(
        self, values: FloatArray, root: int | None = None, wire: WireFormat | None = None
    ) -> Callable[[], FloatArray]:
        """Start a sum and return a function that waits for it."""
        return self._submit(self.collective.sum, values, root, wire)

    def sum(self, values: FloatArray, root: int | None = None, wire: WireFormat | None = None) -> FloatArray:
        return self.start_sum(values, root, wire)()

    def broadcast(self, values: NDArray[Any], root: int = 0) -> NDArray[Any]:
        return self._submit(self.collective.broadcast, values, root)()

    def gather(self, values: NDArray[Any], root: int = 0) -> list[NDArray[Any]] | None:
        return self._submit(self.collective.gather, values, root)()

    def close(self) -> None:
        """End the thread after the pending messages, without waiting for a message that never arrives."""
        self._jobs.put(None)
        self._thread.join(CHECK_INTERVAL)

    def _submit(self, work: Callable[..., Result], *values: Any) -> Callable[[], Result]:
        future: Future[Result] = Future()
        self._jobs.put((future, work, values))
        return lambda: wait_with_checks(future, self.check)


def record_round(collective: Collective) -> None:
    """Record the traffic so far at the beginning of a round, where the collective counts it."""
    if isinstance(collective, AsyncCollective) and hasattr(collective.collective, "traffic"):
        collective.traffic.append(copy(collective.collective.traffic))


def can_overlap(collective: Collective) -> bool:
    """Return whether messages travel while workers compute."""
    return isinstance(collective, AsyncCollective)
