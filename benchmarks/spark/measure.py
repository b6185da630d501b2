"""Models fitted by a driver, while the memory of executors is watched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.spark.cluster import ENVIRONMENT, Standalone
from benchmarks.timing import Failed


@dataclass(frozen=True)
class Bench:
    """Where models are fitted, and how long one may take."""

    cluster: Standalone
    workers: int
    settings: dict[str, str]
    limit: float

    @contextmanager
    def driver(self) -> Iterator[Driver]:
        message = {"master": self.cluster.master, "workers": self.workers, "settings": self.settings}
        command = [sys.executable, "-m", "benchmarks.spark.driver", json.dumps(message)]
        with tempfile.TemporaryDirectory() as folder, (Path(folder) / "errors").open("w+") as errors:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=ENVIRONMENT,
                start_new_session=True,
            )  # fmt: skip
            driver = Driver(process, Path(errors.name), self)
            try:
                yield driver
                driver.leave()
            finally:
                driver.kill()

    def alone(self, **job: Any) -> dict[str, Any]:
        """A fit by a driver that does nothing else, and the most bytes that one of its executors held."""
        with Watch(self.cluster) as watch:
            try:
                with self.driver() as driver:
                    answer = driver.fit(**job)
            except Failed as failure:
                raise Failed(f"{failure}, executor at {watch.most / 1e9:.1f} GB") from None
        return {**answer, "executor bytes": watch.most}


@dataclass
class Driver:
    """A process with a Spark session. One that takes too long is ended, and with it its session."""

    process: subprocess.Popen[str]
    errors: Path
    bench: Bench

    def fit(self, **job: Any) -> dict[str, Any]:
        """Seconds of the fit, and the AUC on test rows if there are some."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        over = threading.Timer(self.bench.limit, self.kill)
        over.start()
        try:
            with suppress(BrokenPipeError):  # its errors are read below
                self.process.stdin.write(json.dumps(job) + "\n")
                self.process.stdin.flush()
            line = self.process.stdout.readline()
        finally:
            in_time = over.is_alive()
            over.cancel()
        if not line:
            raise Failed(
                reason(self.errors.read_text(errors="replace")) if in_time else f"no answer in {self.bench.limit:.0f} s"
            )
        answer = dict(json.loads(line))
        if "failed" in answer:
            raise Failed(reason(answer["failed"]))
        return answer

    def leave(self) -> None:
        """Its session ends, so that the executors' places are free."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(60)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def reason(text: str) -> str:
    """The most useful line of a traceback: of a process that died, or the last one, without Java's own.

    >>> reason("x\\nSparkException: Python worker exited unexpectedly (crashed)\\n  at a.b\\nCaused by: EOFException")
    'SparkException: Python worker exited unexpectedly (crashed)'
    """
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("at ", "..."))]
    died = [line for line in lines if "worker exited" in line or "ExecutorLostFailure" in line]
    errors = [line for line in lines if "Error" in line or "Exception" in line]
    return ([*errors, *died] or lines or ["ended without a message"])[-1][:200]


@dataclass
class Watch:
    """The most memory that the processes of any executor held at a time."""

    cluster: Standalone
    every: float = 0.2
    most: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Watch:
        self._ended.clear()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def _look(self) -> None:
        while not self._ended.wait(self.every):
            self.most = max([self.most, *self.cluster.executor_bytes()])

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join()
