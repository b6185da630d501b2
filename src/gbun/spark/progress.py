"""How the driver hears of a training's progress while it runs: lines of JSON through a socket, from the first worker.

It is a courtesy: where the driver cannot be reached, training goes on without.
"""

from __future__ import annotations

import json
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from gbun.callbacks import Callback, Evaluations, RoundReport

if TYPE_CHECKING:
    from gbun.boosting import Training

PATIENCE = 3.0  # seconds that a worker waits for the driver, once


@dataclass(frozen=True)
class Address:
    """Where the driver listens, and the word by which it knows its own workers."""

    host: str
    port: int
    token: str


@dataclass(frozen=True)
class Report:
    """A round that is done: its number (from 0), of how many at most, the metrics, the seconds since the start.

    `trial`: the training on part of the rows that finds the number of rounds; the one on all rows comes after it.
    """

    round: int
    n_rounds: int
    evaluations: Evaluations
    seconds: float
    trial: bool = False

    def __str__(self) -> str:
        values = [f"{n} {m} {v:.5g}" for n, metrics in self.evaluations.items() for m, v in metrics.items()]
        name = "trial round" if self.trial else "round"
        return f"{name} {self.round + 1} of {self.n_rounds}, {self.seconds:.1f} s  {'  '.join(values)}".rstrip()


class Progress(Callback):
    """Sends a report of each round to the driver; `unheard` says why, if it could not."""

    during_trial = True

    def __init__(self, listener: Address | None) -> None:
        self.unheard, self._n_rounds = "", 0
        self._socket: socket.socket | None = None
        if listener is not None:
            self._try(lambda: self._connect(listener))

    def before_training(self, training: Training, n_rounds: int) -> None:
        self._n_rounds = n_rounds

    def after_round(self, training: Training, report: RoundReport) -> bool:
        if report.round < training.n_known:
            return False  # of a checkpoint: the driver has heard of it
        told = Report(report.round, self._n_rounds, report.evaluations, report.seconds, training.trial)
        self._try(lambda: self._send(json.dumps(asdict(told))))
        return False

    def _connect(self, listener: Address) -> None:
        self._socket = socket.create_connection((listener.host, listener.port), PATIENCE)
        self._send(listener.token)

    def _send(self, line: str) -> None:
        if self._socket is not None:
            self._socket.sendall(line.encode() + b"\n")

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:  # the driver has other worries; training goes on
            self.unheard = f"{type(error).__name__}: {error}"
            self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Listener:
    """The driver's end: calls `heard` with each report, in a thread of its own."""

    def __init__(self, host: str, heard: Callable[[Report], None]) -> None:
        self._heard, self._token = heard, secrets.token_hex(16)
        try:
            self._server = socket.create_server((host, 0))
        except OSError:  # a name by which others know this machine, not an address of its own
            self._server = socket.create_server(("", 0))
        self.address = Address(host, self._server.getsockname()[1], self._token)
        self._busy: list[tuple[threading.Thread, socket.socket]] = []
        self._closed = False
        self._thread = threading.Thread(target=self._accept, name="gbun-progress", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return  # closed
            reading = threading.Thread(target=self._read, args=(connection,), name="gbun-progress", daemon=True)
            self._busy.append((reading, connection))
            reading.start()

    def _read(self, connection: socket.socket) -> None:
        connection.settimeout(PATIENCE)
        with connection, connection.makefile("r", encoding="utf-8") as lines:
            try:
                known = secrets.compare_digest(lines.readline(100).strip().encode(), self._token.encode())
                connection.settimeout(None)
                for line in lines if known else ():
                    if self._closed:
                        return
                    self._heard(Report(**json.loads(line)))
            except (OSError, ValueError, TypeError):
                return  # cut short, or not one of ours

    def close(self) -> None:
        """What has been sent is still read, for a while; what comes later nobody hears."""
        with suppress(OSError):  # some systems refuse it to a socket that only listens; closing is enough there
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for reading, _ in self._busy:
            reading.join(PATIENCE)
        self._closed = True
        for _, connection in self._busy:
            with suppress(OSError):  # it has gone by itself
                connection.shutdown(socket.SHUT_RDWR)
