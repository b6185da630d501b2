"""Progress reports from the first worker to the driver while training runs: lines of JSON through a socket.

Reports are best effort: training continues without them where the driver cannot be reached.
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

DRIVER_TIMEOUT = 3.0  # seconds that a worker waits for the driver, once


@dataclass(frozen=True)
class ListenerAddress:
    """Where the driver listens, and the token by which it recognises its workers."""

    host: str
    port: int
    token: str


@dataclass(frozen=True)
class RoundProgress:
    """A finished round, for `onProgress`.

    Attributes
    ----------
    round : int
        Number of the round, from 0.
    n_rounds : int
        The largest number of rounds there can be.
    evaluations : dict
        {evaluation set: {metric: value}}.
    seconds : float
        Seconds since the first round began.
    trial : bool
        True in the training on part of the rows that chooses the number of rounds; training on all rows follows it.
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


class ProgressSender(Callback):
    """Sends a report of each round to the driver; `progress_error` is the reason if that failed."""

    during_trial = True

    def __init__(self, listener: ListenerAddress | None) -> None:
        self.progress_error, self._n_rounds = "", 0
        self._socket: socket.socket | None = None
        if listener is None:
            return
        try:
            self._socket = socket.create_connection((listener.host, listener.port), DRIVER_TIMEOUT)
        except OSError as error:
            self._give_up(error)
        self._send(listener.token)

    def before_training(self, training: Training, n_rounds: int) -> None:
        self._n_rounds = n_rounds

    def after_round(self, training: Training, report: RoundReport) -> bool:
        if report.round >= training.n_resumed:  # the driver knows the rounds of a checkpoint
            progress = RoundProgress(report.round, self._n_rounds, report.evaluations, report.seconds, training.trial)
            self._send(json.dumps(asdict(progress)))
        return False

    def _send(self, line: str) -> None:
        if self._socket is not None:
            try:
                self._socket.sendall(line.encode() + b"\n")
            except OSError as error:
                self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.progress_error = f"{type(error).__name__}: {error}"
        self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class ProgressListener:
    """The driver's end of the socket: calls `on_report` with each report, in a thread."""

    def __init__(self, host: str, on_report: Callable[[RoundProgress], None]) -> None:
        self._on_report, self._token = on_report, secrets.token_hex(16)
        try:
            self._server = socket.create_server((host, 0))
        except OSError:  # a name that other machines use for this one, not an address of it
            self._server = socket.create_server(("", 0))
        self.address = ListenerAddress(host, self._server.getsockname()[1], self._token)
        self._connections: list[tuple[threading.Thread, socket.socket]] = []
        self._closed = False
        threading.Thread(target=self._accept, name="gbun-progress", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return  # closed
            reader = threading.Thread(target=self._read, args=(connection,), name="gbun-progress", daemon=True)
            self._connections.append((reader, connection))
            reader.start()

    def _read(self, connection: socket.socket) -> None:
        connection.settimeout(DRIVER_TIMEOUT)
        with connection, connection.makefile("r", encoding="utf-8") as lines:
            try:
                known = secrets.compare_digest(lines.readline(100).strip().encode(), self._token.encode())
                connection.settimeout(None)
                for line in lines if known else ():
                    if self._closed:
                        return
                    self._on_report(RoundProgress(**json.loads(line)))
            except (OSError, ValueError, TypeError):
                return  # the connection broke, or the sender is not one of our workers

    def close(self) -> None:
        """Stop listening. Reports sent before are still read for a short time; later ones are ignored."""
        with suppress(OSError):  # some systems refuse this for a listening socket; closing it is enough there
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for reader, _ in self._connections:
            reader.join(DRIVER_TIMEOUT)
        self._closed = True
        for _, connection in self._connections:
            with suppress(OSError):  # closed by its reader
                connection.shutdown(socket.SHUT_RDWR)
