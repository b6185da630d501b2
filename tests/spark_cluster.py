"""Spark for tests: sessions that begin quickly, on this machine or on a standalone cluster of its processes."""

from __future__ import annotations

import time

from benchmarks.spark import cluster
from benchmarks.spark.cluster import QUICK, Standalone

from gbun.spark.cluster import slots

__all__ = ["Standalone", "session", "wait_for_slots"]


def session(master):
    """A new session; there must be no other."""
    return cluster.session(master, {"spark.executor.extraJavaOptions": QUICK, "spark.driver.extraJavaOptions": QUICK})


def wait_for_slots(spark, wanted=2):
    """A busy machine takes its time to start executors."""
    until = time.monotonic() + 120
    while (found := slots(spark.sparkContext)) < wanted:
        if time.monotonic() > until:
            raise TimeoutError(f"{found} task slots after 120 s, {wanted} are wanted")
        time.sleep(0.2)
