"""Objectives for tests on Spark: functions of a module, as workers import them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def patient(y, scores, weight):
    """Squared error that takes its time, so that something may happen meanwhile."""
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
    """Patient, and writes the process of each rank to a file: `process` reads it."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __call__(self, y, scores, weight):
        path = Path(self.folder) / f"{_rank()}.pid"
        path.with_suffix(".new").write_text(str(os.getpid()))
        path.with_suffix(".new").replace(path)  # whoever reads it meanwhile finds it whole
        return patient(y, scores, weight)

    def process(self, rank):
        return int((Path(self.folder) / f"{rank}.pid").read_text())


class Dying(Known):
    """Kills the Python worker of rank 1 when it is so far."""

    def __init__(self, folder, after):
        super().__init__(folder)
        self.after, self.calls = after, 0

    def __call__(self, y, scores, weight):
        self.calls += 1
        if self.calls > self.after and _rank() == 1:
            (Path(self.folder) / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(y, scores, weight)


def telling_threads(job, folder):
    """A task that writes with how many threads its worker is to compute."""

    def task(batches):
        from gbun.spark import cluster

        def told(batches, meeting, job):
            (Path(folder) / f"{meeting.rank}.threads").write_text(str(job.parameters["n_jobs"]))
            return work(batches, meeting, job)

        work, cluster.work = cluster.work, told
        try:
            yield cluster.in_task(batches, job)
        finally:
            cluster.work = work

    return task


def dying_at_the_end(job, folder):
    """A task that does its work, but the first time its Python worker is killed before anyone hears of it."""

    def task(batches):
        from gbun.spark.cluster import in_task

        outcome = in_task(batches, job)
        if _rank() == 0 and _first_time(folder):
            os.kill(os.getpid(), signal.SIGKILL)
        yield outcome

    return task


def _first_time(folder):
    marker = Path(folder) / "killed"
    first = not marker.exists()
    marker.touch()
    return first
