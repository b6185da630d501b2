"""Models fitted by drivers of their own, while the memory of executors is watched."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import Any

from benchmarks.spark.cluster import ENVIRONMENT, Standalone
from benchmarks.speed.timing import Failed


@dataclass(frozen=True)
class Bench:
    """Where models are fitted, and how long one may take."""

    cluster: Standalone
    workers: int
    settings: dict[str, str]
    limit: float

    def fit(self, **job: Any) -> dict[str, Any]:
        """Seconds of the fit, the AUC on test rows if there are some, and the most bytes an executor held."""
        told = {"master": self.cluster.master, "workers": self.workers, "settings": self.settings, **job}
        command = [sys.executable, "-m", "benchmarks.spark.driver", json.dumps(told)]
        with Watch(self.cluster) as watch:
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=self.limit, env=ENVIRONMENT, check=False
                )
            except subprocess.TimeoutExpired:
                raise Failed(f"no answer in {self.limit:.0f} s, {watch.words()}") from None
        if done.returncode:
            raise Failed(f"{reason(done.stderr)}, {watch.words()}")
        return {**json.loads(done.stdout.strip().splitlines()[-1]), "executor bytes": watch.most}


def reason(text: str) -> str:
    """The last line of a traceback that tells what happened, without Java's."""
    lines = [
        line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("at ", "..."))
    ]
    errors = [line for line in lines if "Error" in line or "Exception" in line]
    return (errors or lines or ["ended without a word"])[-1][:160]


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

    def words(self) -> str:
        return f"executor at {self.most / 1e9:.1f} GB"
