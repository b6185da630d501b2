"""Objectives and tasks for tests on Spark, in a module that workers can import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def patient(y, scores, weight):
    """Compute squared error slowly, so that there is time to kill something meanwhile."""
    time.sleep(0.05)
    return weight * (scores - y), weight


def failing(y, scores, weight):
    if len(y) and scores[0].any():
        raise ZeroDivisionError("in the user's objective")
    return weight * (scores - y), weight


def frozen(y, scores, weight):
    if scores.any() and _rank() == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    return weight * (scores - y), weight


def _rank():
    from pyspark import BarrierTaskContext

    return BarrierTaskContext.get().partitionId()


class Known:
    """A patient objective that writes the process of each rank to a file, which `process` reads."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __call__(self, y, scores, weight):
        path = Path(self.folder) / f"{_rank()}.pid"
        path.with_suffix(".new").write_text(str(os.getpid()))
        path.with_suffix(".new").replace(path)  # readers find it complete
        return patient(y, scores, weight)

    def process(self, rank):
        return int((Path(self.folder) / f"{rank}.pid").read_text())


class Dying(Known):
    """Kills the Python worker of rank 1 after some calls."""

    def __init__(self, folder, after):
        super().__init__(folder)
        self.after, self.calls = after, 0

    def __call__(self, y, scores, weight):
        self.calls += 1
        if self.calls > self.after and _rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(y, scores, weight)


def record_threads(batches, job, folder):
    """Run a task and write the number of threads of its worker to a file."""
    from gbun.spark import cluster

    def record(batches, rendezvous, job):
        (Path(folder) / f"{rendezvous.rank}.threads").write_text(str(job.parameters["n_jobs"]))
        return work(batches, rendezvous, job)

    work, cluster.work = cluster.work, record
    try:
        yield from cluster.run_task(batches, job)
    finally:
        cluster.work = work


def die_at_the_end(batches, job, folder):
    """Run a task; the first time, the Python worker of rank 0 is killed before it returns the outcome."""
    from gbun.spark.cluster import run_task

    (outcome,) = run_task(batches, job)
    marker = Path(folder) / "killed"
    if _rank() == 0 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    yield outcome
