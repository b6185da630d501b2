"""Spark for tests: sessions, and a standalone cluster of processes on this machine that is gone when the tests are."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

import gbun
from gbun.spark.cluster import slots

HOST = "127.0.0.1"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # for processes of Java that do little
PLACES = (pyspark.__file__, 1), (gbun.__file__, 1), (__file__, 0)  # what workers import from: these, and no others
ENVIRONMENT = {
    "SPARK_LOCAL_IP": HOST,
    "SPARK_NO_DAEMONIZE": "1",
    "PYSPARK_PYTHON": sys.executable,
    "PYTHONPATH": os.pathsep.join(str(Path(file).parents[up]) for file, up in PLACES),
}
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.bindAddress": HOST,
    "spark.driver.host": HOST,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": QUICK,
    "spark.driver.extraJavaOptions": QUICK,
    "spark.executorEnv.PYTHONPATH": ENVIRONMENT["PYTHONPATH"],
    "spark.executorEnv.OMP_WAIT_POLICY": "PASSIVE",
}


def session(master):
    """A new session; there must be no other."""
    os.environ.update(ENVIRONMENT)
    builder = SparkSession.builder.master(master).appName("gbun-tests")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def wait_for_slots(spark, wanted=2):
    """A busy machine takes its time to start executors."""
    until = time.monotonic() + 120
    while slots(spark.sparkContext) < wanted and time.monotonic() < until:
        time.sleep(0.2)


def free_port():
    with socket.create_server((HOST, 0)) as server:
        return server.getsockname()[1]


class Standalone:
    """A master and some workers of one core each, in process groups of their own."""

    def __init__(self, n_workers=2):
        self.folder = tempfile.TemporaryDirectory(prefix="gbun-spark-")
        self.port, self.processes = free_port(), []
        self.master = f"spark://{HOST}:{self.port}"
        atexit.register(self.stop)
        try:
            self._start("master.Master", "--host", HOST, "--port", str(self.port), "--webui-port", "0")
            self._wait_for_master()
            for _ in range(n_workers):
                self._start(
                    "worker.Worker", "--host", HOST, "--cores", "1", "--memory", "1g", "--webui-port", "0",
                    "--work-dir", self.folder.name, self.master,
                )  # fmt: skip
        except BaseException:
            self.stop()
            raise

    def _start(self, name, *args):
        command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *args]
        log = (Path(self.folder.name) / f"{len(self.processes)}.log").open("wb")
        environment = {**os.environ, **ENVIRONMENT, "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": QUICK}
        with log:
            started = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        self.processes.append(started)

    def _wait_for_master(self):
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                socket.create_connection((HOST, self.port), 1).close()
                return
            except OSError:
                time.sleep(0.1)
        raise TimeoutError((Path(self.folder.name) / "0.log").read_text())

    def executors(self):
        """The ids of the processes in which executors run: children of our workers."""
        own, found = {process.pid for process in self.processes}, []
        for command in Path("/proc").glob("[0-9]*/cmdline"):
            pid = int(command.parent.name)
            with suppress(OSError):  # it has just ended
                if os.getpgid(pid) in own and b"CoarseGrainedExecutorBackend" in command.read_bytes():
                    found.append(pid)
        return found

    def stop(self):
        atexit.unregister(self.stop)
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.processes = []
        self.folder.cleanup()
