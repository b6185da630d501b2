"""Spark for tests: sessions that start quickly, local or on a standalone cluster of processes on this machine."""

from __future__ import annotations

from pathlib import Path

from benchmarks.spark import cluster
from benchmarks.spark.cluster import QUICK, Standalone

from gbun.spark.cluster import count_task_slots
from tests.worker_jobs import wait_for

__all__ = ["Standalone", "executor_of", "session", "wait_for_slots"]


def session(master, **settings):
    """Start a session; there must be no other."""
    quick = {"spark.executor.extraJavaOptions": QUICK, "spark.driver.extraJavaOptions": QUICK}
    return cluster.session(master, {**quick, **settings})


def executor_of(pid, executors):
    """Return the executor of a Python worker: the ancestor of its process among `executors`."""
    while pid not in executors:
        assert pid > 1
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def wait_for_slots(spark, wanted=2):
    """Wait for executors, which a busy machine starts slowly."""
    assert wait_for(lambda: count_task_slots(spark.sparkContext) >= wanted, 300.0)
