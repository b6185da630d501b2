"""Processes that are started together, one on each host, and end together."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import IO

from benchmarks.network.namespaces import GRACE, SECONDS, end_inside


@dataclass(frozen=True)
class Done:
    """How a process ended; the code is negative where a signal ended it."""

    code: int
    output: str
    errors: str
    timed_out: bool = False


class Group:
    """Processes in these namespaces, each in a session of its own: pipes for stdin and stdout, a file for stderr."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names, self.closed = names, False
        self.processes: list[subprocess.Popen[str]] = []
        self._errors: list[IO[bytes]] = []

    def start(self, command: Sequence[str], env: Mapping[str, str], cwd: Path | None) -> None:
        """The next process, in the next namespace."""
        self._errors.append(tempfile.TemporaryFile())  # noqa: SIM115 - until close()
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.names[len(self.processes)], *command],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors[-1],
            env={**os.environ, **env}, cwd=cwd, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        self.processes.append(process)

    def wait(self, timeout: float) -> list[Done]:
        """Until all have ended; those that have not by then, or soon after one has failed, are ended."""
        outputs = [""] * len(self.processes)

        def read(i: int) -> None:
            outputs[i] = self.processes[i].communicate()[0]

        readers = [threading.Thread(target=read, args=(i,), daemon=True) for i in range(len(self.processes))]
        for reader in readers:
            reader.start()
        late = self._until_ended(monotonic() + timeout)
        self.end()
        for reader in readers:
            reader.join(SECONDS)
        return [Done(p.wait(SECONDS), outputs[i], self.errors(i), late[i]) for i, p in enumerate(self.processes)]

    def _until_ended(self, deadline: float) -> list[bool]:
        """Which were still running when the wait was over."""
        while monotonic() < deadline:
            codes = [process.poll() for process in self.processes]
            if None not in codes:
                break
            if any(codes):
                deadline = min(deadline, monotonic() + GRACE)
            sleep(0.01)
        return [process.poll() is None for process in self.processes]

    def errors(self, i: int) -> str:
        """What a process has written to stderr so far. Read without a seek: it writes where the file is at."""
        file = self._errors[i].fileno()
        return os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace")

    def end(self) -> None:
        """SIGTERM to those that run and to all they have started, SIGKILL to those that take no notice."""
        running = [process for process in self.processes if process.poll() is None]
        for process in running:
            _tell(process, signal.SIGTERM)
        deadline = monotonic() + GRACE
        while monotonic() < deadline and any(process.poll() is None for process in running):
            sleep(0.01)
        for process in running:
            if process.poll() is None:
                _tell(process, signal.SIGKILL)
            process.wait(SECONDS)
        end_inside(self.names)  # those that have left their session

    def close(self) -> None:
        if self.closed:
            return
        self.end()
        for process in self.processes:
            for stream in (process.stdin, process.stdout):
                with suppress(OSError):  # a line that nobody read
                    if stream is not None:
                        stream.close()
        for errors in self._errors:
            errors.close()
        self.closed = True


def _tell(process: subprocess.Popen[str], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
