"""Spark for tests: sessions that begin quickly, on this machine or on a standalone cluster of its processes."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.spark import cluster
from benchmarks.spark.cluster import QUICK, Standalone

from gbun.spark.cluster import slots

__all__ = ["Standalone", "executor_of", "session", "wait_for_slots"]


def session(master, **settings):
    """A new session; there must be no other."""
    quick = {"spark.executor.extraJavaOptions": QUICK, "spark.driver.extraJavaOptions": QUICK}
    return cluster.session(master, {**quick, **settings})


def executor_of(pid, executors):
    """The executor to which a Python worker belongs: an ancestor of its."""
    while pid not in executors:
        assert pid > 1
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def wait_for_slots(spark, wanted=2):
    """A busy machine takes its time to start executors."""
    until = time.monotonic() + 120
    while (found := slots(spark.sparkContext)) < wanted:
        if time.monotonic() > until:
            raise TimeoutError(f"{found} task slots after 120 s, {wanted} are wanted")
        time.sleep(0.2)
