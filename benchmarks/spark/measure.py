"""Models fitted by a driver process, while the memory of executors is watched."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import perf_counter, sleep
from typing import Any

import numpy as np
from pyspark.ml.evaluation import BinaryClassificationEvaluator
from pyspark.sql import SparkSession

from benchmarks.peers.spark import LEARNERS
from benchmarks.spark.cluster import Standalone, session
from benchmarks.timing import Built, Failed, Limits, Worker
from gbun.spark.cluster import count_task_slots

Fit = Callable[..., dict[str, Any]]


@dataclass(frozen=True)
class Bench:
    """Where models are fitted, and how many seconds one may take."""

    cluster: Standalone
    workers: int
    settings: dict[str, str]
    limit: float

    @contextmanager
    def driver(self) -> Iterator[Fit]:
        """A session in a process of its own, which ends where a fit takes too long."""
        limits = Limits(seconds=self.limit)
        with Worker(drive, self.cluster.master, self.workers, self.settings, limits=limits) as worker:

            def fit(**job: Any) -> dict[str, Any]:
                _, answer = worker.ask("fit", **job)
                if isinstance(answer, Failed):
                    raise answer
                return dict(answer)

            yield fit
            with suppress(Failed):
                worker.ask("stop", 60.0)  # so that the executors' places are free

    def fit_alone(self, **job: Any) -> dict[str, Any]:
        """A fit by a driver that does nothing else, and the most bytes that one of its executors held."""
        with watch_memory(self.cluster) as most:
            try:
                with self.driver() as fit:
                    answer = fit(**job)
            except Failed as failure:
                raise Failed(f"{failure}, executor at {most[-1] / 1e9:.1f} GB") from None
        return {**answer, "executor bytes": most[-1]}


@contextmanager
def drive(master: str, workers: int, settings: Mapping[str, str]) -> Iterator[Built]:
    """What a driver does: "fit" answers with the reason where it fails, so that the next job is tried."""
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)  # Spark writes to both
    spark = session(master, settings)

    def attempt(**job: Any) -> dict[str, Any] | Failed:
        try:
            return fit(spark, workers, **job)
        except Exception as error:
            return Failed(find_reason(f"{type(error).__name__}: {error}"))

    yield {"fit": attempt, "stop": spark.stop}, {}


def fit(
    spark: SparkSession, workers: int, learner: str, rounds: int, size: int, train: str, test: str | None = None
) -> dict[str, Any]:
    """Seconds of the fit, and the AUC on test rows if there are some."""
    rows, estimator = spark.read.parquet(train), LEARNERS[learner](workers, rounds, size)
    wait_for_slots(spark, workers)
    began = perf_counter()
    model = estimator.fit(rows)
    found: dict[str, Any] = {"seconds": perf_counter() - began}
    if learner.startswith("gbun"):
        found["a round by its own clock"] = float(np.median(np.diff(model.summary.seconds)))
    if test:
        scored = model.transform(spark.read.parquet(test))
        found["auc"] = BinaryClassificationEvaluator(metricName="areaUnderROC").evaluate(scored)
    return found


def wait_for_slots(spark: SparkSession, wanted: int, seconds: float = 120.0) -> None:
    """Wait until all executors have started a Python process, before anything is timed."""
    until = perf_counter() + seconds
    while count_task_slots(spark.sparkContext) < wanted:
        if perf_counter() > until:
            raise TimeoutError(f"{count_task_slots(spark.sparkContext)} of {wanted} executors in {seconds:.0f} s")
        sleep(0.2)
    spark.range(100 * wanted).repartition(wanted).rdd.map(lambda row: row[0]).count()


def find_reason(text: str) -> str:
    """The most useful line of a traceback: of a process that died, or the last one, without Java's own.

    >>> find_reason("SparkException: Python worker exited unexpectedly (crashed)\\n  at a.b\\nCaused by: EOFException")
    'SparkException: Python worker exited unexpectedly (crashed)'
    """
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("at ", "..."))]
    died = [line for line in lines if "worker exited" in line or "ExecutorLostFailure" in line]
    errors = [line for line in lines if "Error" in line or "Exception" in line]
    return ([*errors, *died] or lines or ["ended without a message"])[-1][:200]


@contextmanager
def watch_memory(cluster: Standalone, every: float = 0.2) -> Iterator[list[int]]:
    """The last of a list is the most memory that the processes of any executor have held at a time."""
    most, ended = [0], threading.Event()

    def look() -> None:
        while not ended.wait(every):
            most.append(max([most[-1], *cluster.executor_bytes()]))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        ended.set()
        thread.join()
