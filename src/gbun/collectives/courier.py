"""A collective whose messages travel while the sender computes: one thread carries them, in the order it got them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from copy import copy
from typing import Any, TypeVar

from numpy.typing import NDArray

from gbun.collectives.base import Collective, Wire
from gbun.dtypes import FloatArray

Found = TypeVar("Found")
Job = tuple["Future[Any]", Callable[..., Any], tuple[Any, ...]]
PATIENCE = 0.5  # seconds of waiting after which it is asked, again and again, whether there is still hope


def watched(work: Callable[[], Found], alarm: Callable[[], None]) -> Found:
    """What `work` gives, in a thread of its own, while `alarm` looks now and then whether there is still hope."""
    future: Future[Found] = Future()
    threading.Thread(target=_carry_out, args=(future, work, ()), daemon=True).start()
    while not wait([future], timeout=PATIENCE).done:
        alarm()
    return future.result()


def _carry_out(future: Future[Any], work: Callable[..., Any], values: tuple[Any, ...]) -> None:
    try:
        future.set_result(work(*values))
    except BaseException as error:  # it belongs to whoever waits
        future.set_exception(error)


class Courier:
    """The members of a collective, and `send`, which does not wait.

    `transport` is how the large sums of a round are written on the way: see `wire`. `alarm` is called now and then
    while somebody waits; it raises if what he waits for will not come.
    """

    def __init__(
        self, collective: Collective, transport: str = "float32", alarm: Callable[[], None] = lambda: None
    ) -> None:
        self.collective, self.transport, self.alarm = collective, transport, alarm
        self.rank, self.size = collective.rank, collective.size
        self.traffic: list[Any] = []  # what the collective had sent and received when each round began
        self._jobs: queue.Queue[Job | None] = queue.Queue()
        # A daemon: where a message never arrives, the process can still end.
        self._carrier = threading.Thread(target=self._carry, name="gbun-courier", daemon=True)
        self._carrier.start()

    def _carry(self) -> None:
        while (job := self._jobs.get()) is not None:
            _carry_out(*job)

    def send(self, values: FloatArray, root: int | None = None, wire: Wire | None = None) -> Callable[[], FloatArray]:
        """A sum, on its way; the answer, when called, waits for it."""
        return self._given(self.collective.sum, values, root, wire)

    def sum(self, values: FloatArray, root: int | None = None, wire: Wire | None = None) -> FloatArray:
        return self.send(values, root, wire)()

    def broadcast(self, values: NDArray[Any], root: int = 0) -> NDArray[Any]:
        return self._given(self.collective.broadcast, values, root)()

    def gather(self, values: NDArray[Any], root: int = 0) -> list[NDArray[Any]] | None:
        return self._given(self.collective.gather, values, root)()

    def mark(self) -> None:
        """A round begins: take note of what was sent so far."""
        counted = getattr(self.collective, "traffic", None)
        if counted is not None:
            self.traffic.append(copy(counted))

    def close(self) -> None:
        """No more messages. What never arrives is not waited for."""
        self._jobs.put(None)
        self._carrier.join(PATIENCE)

    def _given(self, work: Callable[..., Found], *values: Any) -> Callable[[], Found]:
        future: Future[Found] = Future()
        self._jobs.put((future, work, values))

        def answer() -> Found:
            while not wait([future], timeout=PATIENCE).done:
                self.alarm()
            return future.result()

        return answer
