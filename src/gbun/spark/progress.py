"""Progress reports from the first worker to the driver while training runs.

Reports are best effort: training continues without them where the driver cannot be reached.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from gbun.callbacks import Callback, Evaluations, RoundReport
from gbun.checks import flag, integer, parse_strict_json, record, rule, table
from gbun.collectives.channels import Address, Channel, Listener, connect

if TYPE_CHECKING:
    from gbun.boosting import Training

DRIVER_TIMEOUT = 3.0  # seconds that a worker waits for the driver; then it reports no more
REPORT_LIMIT = 2**20  # bytes
PURPOSE = "progress"
ROUND = integer(0, 2**63 - 1)
MEASURE = rule("a number", lambda value: isinstance(value, float) or (type(value) is int and abs(value) < 2**63))
REPORT = record(
    {"round": ROUND, "n_rounds": ROUND, "evaluations": table(table(MEASURE)), "seconds": MEASURE, "trial": flag}
)


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


def read_report(message: bytearray) -> RoundProgress:
    """Read the report that a `ProgressSender` sent; a ValueError if it is none."""
    fields = REPORT("the report", parse_strict_json(message.decode(), "the report"))
    return RoundProgress(**fields)


class ProgressSender(Callback):
    """Sends a report of each round to the driver; `progress_error` is the reason if that failed."""

    during_trial = True

    def __init__(self, listener: Address | None, secret: bytes) -> None:
        self.progress_error, self._n_rounds = "", 0
        self._channel: Channel | None = None
        if listener is not None:
            try:
                self._channel = connect(listener, secret, PURPOSE, timeout=DRIVER_TIMEOUT, wait=DRIVER_TIMEOUT)
            except OSError as error:
                self._give_up(error)

    def before_training(self, training: Training, n_rounds: int) -> None:
        self._n_rounds = n_rounds

    def after_round(self, training: Training, report: RoundReport) -> bool:
        if report.round >= training.n_resumed:  # the driver knows the rounds of a checkpoint
            progress = RoundProgress(report.round, self._n_rounds, report.evaluations, report.seconds, training.trial)
            try:
                if self._channel is not None:
                    self._channel.send(json.dumps(asdict(progress)).encode())
            except OSError as error:
                self._give_up(error)
        return False

    def _give_up(self, error: OSError) -> None:
        self.progress_error = f"{type(error).__name__}: {error}"
        self.close()

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


class ProgressListener:
    """The driver's end: calls `on_report` with each report, in a thread."""

    def __init__(self, host: str, secret: bytes, on_report: Callable[[RoundProgress], None]) -> None:
        self._on_report = on_report
        self._closed = False
        try:
            self._listener = Listener(host, secret, PURPOSE, self._read)
        except OSError:  # a name that other machines use for this one, not an address of it
            self._listener = Listener("0.0.0.0", secret, PURPOSE, self._read)
        self.address: Address = (host, self._listener.address[1])

    def _read(self, channel: Channel) -> None:
        while True:
            try:
                report = read_report(channel.receive(REPORT_LIMIT))
            except (OSError, ValueError):  # the worker has no more to report, or reports nothing that we know
                channel.close()
                return
            if self._closed:
                return
            self._on_report(report)

    def close(self) -> None:
        """Stop listening. Reports sent before are still read for a short time; later ones are ignored."""
        self._listener.close()
        for reader in list(self._listener.connections.values()):
            reader.join(DRIVER_TIMEOUT)
        self._closed = True
        self._listener.disconnect()
