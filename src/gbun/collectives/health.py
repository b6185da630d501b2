"""How workers learn that one of them failed, and why: a failure record and pulses in the job's key-value store.

A worker that raises records its rank and its error before it ends; the others look for the record while they wait. A
worker that was killed closes its connections, and the worker at the other end records that. A frozen worker does
neither, but its pulse stops: after `timeout` seconds of silence it counts as failed. A worker that is slow keeps
its pulse, and the others wait for it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import wait
from time import monotonic, sleep
from typing import Any

from gbun.collectives.async_collective import run_in_thread
from gbun.collectives.base import WorkerError
from gbun.collectives.channels import AuthenticationError
from gbun.collectives.store import Store, close_store

PULSES_PER_TIMEOUT = 8
MAX_PULSE_INTERVAL = 5.0
FAILURE_WAIT_SECONDS = 3.0  # for a better explanation by another worker, after a connection broke


def clone_store(store: Store, store_owner: str) -> Any:
    """Return another connection to a store; without one, the process that keeps the store is lost."""
    try:
        return store.clone()
    except (RuntimeError, OSError) as error:  # torch's stores raise the first, ours the second
        raise _store_error(store_owner, f"cannot be reached ({str(error).splitlines()[0]})") from error


def _store_error(store_owner: str, reason: str) -> WorkerError:
    text = f"{store_owner}, which keeps the store of this job, {reason}: it was killed, or is frozen"
    return WorkerError(text, lost=True)


class Health:
    """The failures and pulses of one job. `store_owner` names the process that keeps the store, for error messages."""

    def __init__(self, store: Store, rank: int, size: int, timeout: float, store_owner: str = "worker 0") -> None:
        self.store, self.rank, self.size, self.timeout, self.store_owner = store, rank, size, timeout, store_owner
        self.pulse_interval = min(timeout / PULSES_PER_TIMEOUT, MAX_PULSE_INTERVAL)
        self._ended, self._store_is_lost, self._has_recorded = threading.Event(), False, False
        self._pulses: dict[int, tuple[bytes, float]] = {}
        self._last_check = 0.0
        self._ask_store(lambda: store.set(f"pulse/{rank}", "0"), quiet=True)
        self._pulse_thread = threading.Thread(target=self._send_pulses, name="gbun-pulse", daemon=True)
        self._pulse_thread.start()

    def _send_pulses(self) -> None:
        count = 0
        while not self._ended.wait(self.pulse_interval):
            count += 1
            try:
                self.store.set(f"pulse/{self.rank}", str(count))
            except (RuntimeError, OSError):
                return  # the store is gone: `check` finds out

    def end(self) -> None:
        """Stop the pulse: this worker is done."""
        self._ended.set()
        # A thread must not be in the store's code when the interpreter ends.
        self._pulse_thread.join(self.pulse_interval)
        self._ask_store(lambda: self.store.set(f"pulse/{self.rank}", "ended"), quiet=True)
        close_store(self.store)

    def report_failure(self, cause: BaseException) -> None:
        """Tell the other workers why this one fails. Only the first failure of the job is recorded."""
        if isinstance(cause, WorkerError):
            self._record_failure(self.rank if cause.rank is None else cause.rank, str(cause), cause.lost)
        else:
            self._record_failure(self.rank, f"{type(cause).__name__}: {cause}".rstrip(": "))
        self._ended.set()

    def check(self) -> None:
        """Raise if a worker failed; called while this one waits."""
        failure = self._read_failure()
        if failure is not None:
            raise failure
        now = monotonic()
        if now - self._last_check < self.pulse_interval:
            return
        if now - self._last_check > 4 * self.pulse_interval:  # this worker computed: what it read is out of date
            self._pulses.clear()
        self._last_check = now
        for rank, pulse in enumerate(self._ask_store(self._read_pulses)):
            before = self._pulses.get(rank)
            if rank == self.rank or before is None or before[0] != pulse:
                self._pulses[rank] = pulse, now
            elif now - before[1] > self.timeout:
                cause = f"no sign of life for {self.timeout:g} s: it is frozen, or its machine is gone"
                raise self._record_lost_worker(rank, cause)

    def explain_lost_peer(self, peer: int, error: BaseException) -> WorkerError:
        """Explain a broken connection: by the failure on record, after a while for other workers to record one."""
        failure = self._await_failure()
        if failure is not None:
            return failure
        reason = str(error) if isinstance(error, AuthenticationError) else "it was killed, or its machine is gone"
        cause = f"its connection broke: {reason}"
        return self._record_lost_worker(peer, cause, f": {error}")

    def explain_connection_error(self, error: BaseException) -> WorkerError:
        """Explain why workers could not connect: by the failure on record, if there is one."""
        if isinstance(error, WorkerError):
            return error
        reason = str(error).splitlines()[0]
        return self._await_failure() or WorkerError(
            f"worker {self.rank} of {self.size} could not connect with the others: {reason}", self.rank, lost=True
        )

    def _await_failure(self) -> WorkerError | None:
        deadline = monotonic() + min(FAILURE_WAIT_SECONDS, self.timeout)
        while (failure := self._read_failure()) is None and monotonic() < deadline:
            sleep(0.05)
        return failure

    def _record_lost_worker(self, rank: int, cause: str, detail: str = "") -> WorkerError:
        """Record a lost worker and return the failure on record, which may be an earlier one."""
        self._record_failure(rank, cause, lost=True)
        return self._read_failure() or WorkerError(f"worker {rank} was lost{detail}", rank, lost=True)

    def _read_failure(self) -> WorkerError | None:
        record = self._ask_store(lambda: self.store.get("failure") if self.store.check(["failure"]) else None)
        if record is None:
            return None
        try:
            rank, cause, lost = json.loads(record)
        except (TypeError, ValueError, RecursionError):
            rank = cause = lost = None
        if type(rank) is not int or not isinstance(cause, str) or not isinstance(lost, bool):
            return WorkerError(f"a worker failed, and its record cannot be read: {record[:100]!r}")
        return WorkerError(f"worker {rank} of {self.size} failed: {cause}", rank, lost)

    def _record_failure(self, rank: int, cause: str, lost: bool = False) -> None:
        """Leave a record, without an error where that fails; a store that is lost is tried once more all the same."""
        if self._store_is_lost and self._has_recorded:
            return
        self._has_recorded = True
        record = json.dumps([rank, cause, lost])
        self._ask_store(lambda: self.store.compare_set("failure", "", record), quiet=True, insist=True)

    def _read_pulses(self) -> list[bytes]:
        """Return the pulse of each rank, empty for workers that have not started: they may be silent as long."""
        keys = [f"pulse/{rank}" for rank in range(self.size)]
        if self.store.check(keys):
            return list(self.store.multi_get(keys))
        return [self.store.get(key) if self.store.check([key]) else b"" for key in keys]

    def _ask_store(self, ask: Callable[[], Any], quiet: bool = False, insist: bool = False) -> Any:
        """Return the store's answer within `timeout`; the store's own timeout is longer.

        Where `quiet`, a failure is no error, and a store that is lost is not asked, unless we `insist`.
        """
        if quiet and self._store_is_lost and not insist:
            return None
        future, reason = run_in_thread(ask), f"has not answered for {self.timeout:g} s"
        if wait([future], min(self.timeout, FAILURE_WAIT_SECONDS) if self._store_is_lost else self.timeout).done:
            error = future.exception()
            if error is None:
                return future.result()
            if not isinstance(error, (RuntimeError, OSError)):  # of this request, and not of the connection
                if quiet:
                    return None
                raise error
            reason = f"cannot be reached ({error})"
        self._store_is_lost = True  # nobody waits long for it again
        if quiet:
            return None
        raise _store_error(self.store_owner, reason)
