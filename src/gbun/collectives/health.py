"""How workers learn that one of them is lost, and why: a record of failures, and pulses, in the job's key-value store.

A worker that raises writes down its rank and its error before it goes; the others, while they wait for it, look there
every now and then. A worker that was killed closes its connections, and whoever was connected writes down that. One
that is frozen does neither, but its pulse stops: when it has been silent for `timeout` seconds, whoever waits gives up.
A worker that is slow has a pulse, and is waited for.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any

from gbun.collectives.base import WorkerError

BEATS = 8  # in `timeout` seconds
LONGEST_BEAT = 5.0
SECONDS_TO_TELL = 3.0  # how long a worker whose connection broke waits for somebody who knows why


class Health:
    """The failures and pulses of one job. `keeper` says who has the store, for the error where that is gone."""

    def __init__(self, store: Any, rank: int, size: int, timeout: float, keeper: str = "worker 0") -> None:
        self.store, self.rank, self.size, self.timeout, self.keeper = store, rank, size, timeout, keeper
        self.beat = min(timeout / BEATS, LONGEST_BEAT)
        self._ended = threading.Event()
        self._pulses: dict[int, tuple[bytes, float]] = {}
        self._looked = 0.0
        self._set(f"pulse/{rank}", "0")
        self._heart = threading.Thread(target=self._pulse, name="gbun-pulse", daemon=True)
        self._heart.start()

    def _pulse(self) -> None:
        count = 0
        while not self._ended.wait(self.beat):
            count += 1
            try:
                self.store.set(f"pulse/{self.rank}", str(count))
            except RuntimeError:
                return  # the store is gone: whoever waits for the others finds out

    def end(self) -> None:
        """This worker is through; it is not missed any more."""
        self._ended.set()
        self._heart.join(self.beat)  # a thread in the store's code must not meet the end of the interpreter
        self._set(f"pulse/{self.rank}", "ended")

    def failed(self, cause: BaseException) -> None:
        """Tell the others why this worker goes; the first one told is the cause of all that follows."""
        if isinstance(cause, WorkerError):
            self._record(self.rank if cause.rank is None else cause.rank, str(cause), cause.lost)
        else:
            self._record(self.rank, f"{type(cause).__name__}: {cause}".rstrip(": "))
        self._ended.set()

    def check(self) -> None:
        """Raise if a worker is known to be lost; called while this one waits."""
        told = self._told()
        if told is not None:
            raise told
        now = monotonic()
        if now - self._looked < self.beat:
            return
        if now - self._looked > 4 * self.beat:  # it computed, and looked at nobody
            self._pulses.clear()
        self._looked = now
        for rank, pulse in enumerate(self._bounded(self._read_pulses)):
            before = self._pulses.get(rank)
            if rank == self.rank or before is None or before[0] != pulse:
                self._pulses[rank] = pulse, now
            elif now - before[1] > self.timeout:
                self._record(
                    rank, f"no sign of life for {self.timeout:g} s: it is frozen, or its machine is gone", True
                )
                raise self._told() or WorkerError(f"worker {rank} was lost", rank, lost=True)

    def lost(self, peer: int, error: BaseException) -> WorkerError:
        """The connection to a worker broke: what is known of it, after a moment for those who know more."""
        told = self._told_in_time()
        if told is not None:
            return told
        self._record(peer, "its connection broke: it was killed, or its machine is gone", True)
        return self._told() or WorkerError(f"worker {peer} was lost: {error}", peer, lost=True)

    def unconnected(self, error: BaseException) -> WorkerError:
        """Workers did not come together: why, if somebody knows."""
        if isinstance(error, WorkerError):
            return error
        words = str(error).splitlines()[0]
        return self._told_in_time() or WorkerError(
            f"worker {self.rank} of {self.size} could not connect with the others: {words}", self.rank, lost=True
        )

    def _told_in_time(self) -> WorkerError | None:
        until = monotonic() + min(SECONDS_TO_TELL, self.timeout)
        while monotonic() < until:
            told = self._told()
            if told is not None:
                return told
            sleep(0.05)
        return None

    def _told(self) -> WorkerError | None:
        record = self._bounded(lambda: self.store.get("failure") if self.store.check(["failure"]) else None)
        if record is None:
            return None
        rank, cause, lost = json.loads(record)
        return WorkerError(f"worker {rank} of {self.size} failed: {cause}", rank, lost)

    def _record(self, rank: int, cause: str, lost: bool = False) -> None:
        self._bounded(lambda: self.store.compare_set("failure", "", json.dumps([rank, cause, lost])), quiet=True)

    def _read_pulses(self) -> list[bytes]:
        """Of those who have not begun, an empty one: they may be silent for as long as others."""
        keys = [f"pulse/{rank}" for rank in range(self.size)]
        if self.store.check(keys):
            return list(self.store.multi_get(keys))
        return [self.store.get(key) if self.store.check([key]) else b"" for key in keys]

    def _set(self, key: str, value: str) -> None:
        self._bounded(lambda: self.store.set(key, value), quiet=True)

    def _bounded(self, ask: Callable[[], Any], quiet: bool = False) -> Any:
        """The store's answer; its own timeout is longer than ours."""
        answer: list[Any] = []

        def run() -> None:
            try:
                answer.append(ask())
            except Exception as error:
                answer.append(error)

        asking = threading.Thread(target=run, daemon=True)
        asking.start()
        asking.join(self.timeout)
        if answer and not isinstance(answer[0], Exception):
            return answer[0]
        if quiet:
            return None
        why = f"cannot be reached ({answer[0]})" if answer else f"has not answered for {self.timeout:g} s"
        raise WorkerError(
            f"{self.keeper}, which keeps the store of this job, {why}: it was killed, or is frozen", lost=True
        )
