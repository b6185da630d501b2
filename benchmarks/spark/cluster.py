"""Spark on this machine: sessions, and a standalone cluster of processes on loopback that is gone when it is left."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

import gbun
from benchmarks.report import read_bytes

HOST = "127.0.0.1"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # for processes of Java that do little
HOME = Path(__file__).parents[2]
PLACES = Path(pyspark.__file__).parents[1], Path(gbun.__file__).parents[1], HOME, HOME / "tests"
PATH = os.pathsep.join(map(str, PLACES))  # what workers import from: these, and no others
VARIABLES = {"SPARK_LOCAL_IP": HOST, "SPARK_NO_DAEMONIZE": "1", "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": PATH}
ENVIRONMENT = {**os.environ, **VARIABLES}
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.bindAddress": HOST,
    "spark.driver.host": HOST,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executorEnv.PYTHONPATH": PATH,
    "spark.executorEnv.OMP_WAIT_POLICY": "PASSIVE",
}


def session(master: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A new session; there must be no other."""
    os.environ.update(VARIABLES)
    builder = SparkSession.builder.master(master).appName("gbun")
    for name, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


class Standalone(AbstractContextManager["Standalone"]):
    """A master and some workers of one core each, in process groups of their own."""

    def __init__(self, n_workers: int = 2, memory: str = "1g") -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="gbun-spark-")
        with socket.create_server((HOST, 0)) as server:
            self.port = int(server.getsockname()[1])  # free
        self.processes: list[subprocess.Popen[bytes]] = []
        self.master = f"spark://{HOST}:{self.port}"
        atexit.register(self.stop)
        try:
            self._start("master.Master", "--host", HOST, "--port", str(self.port), "--webui-port", "0")
            self._wait_for_master()
            for _ in range(n_workers):
                self._start(
                    "worker.Worker", "--host", HOST, "--cores", "1", "--memory", memory, "--webui-port", "0",
                    "--work-dir", self.folder.name, self.master,
                )  # fmt: skip
        except BaseException:
            self.stop()
            raise

    def _start(self, name: str, *args: str) -> None:
        command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *args]
        with (Path(self.folder.name) / f"{len(self.processes)}.log").open("wb") as log:
            environment = {**ENVIRONMENT, "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": QUICK}
            started = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        self.processes.append(started)

    def _wait_for_master(self) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                socket.create_connection((HOST, self.port), 1).close()
                return
            except OSError:
                time.sleep(0.1)
        raise TimeoutError((Path(self.folder.name) / "0.log").read_text())

    def executors(self) -> list[int]:
        """The ids of the processes in which executors run: children of our workers."""
        pids, found = {process.pid for process in self.processes}, []
        for command in Path("/proc").glob("[0-9]*/cmdline"):
            pid = int(command.parent.name)
            with suppress(OSError):  # it has just ended
                if os.getpgid(pid) in pids and b"CoarseGrainedExecutorBackend" in command.read_bytes():
                    found.append(pid)
        return found

    def executor_bytes(self) -> list[int]:
        """Memory that each executor holds now, its Python processes with it."""
        children: dict[int, list[int]] = {}
        for status in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                parent = int(status.read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(status.parent.name))

        def held(pid: int) -> int:
            size = read_bytes(f"/proc/{pid}/smaps_rollup", "Pss") or 0  # pages that processes share count in parts
            return size + sum(map(held, children.get(pid, [])))

        return [held(pid) for pid in self.executors()]

    def stop(self) -> None:
        atexit.unregister(self.stop)
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.processes = []
        self.folder.cleanup()

    def __exit__(self, *exception: object) -> None:
        self.stop()
