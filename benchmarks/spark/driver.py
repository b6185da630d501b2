"""A driver process: fits models on the cluster, one after the other, and reports how long each took.

    python -m benchmarks.spark.driver '{"master": ..., "workers": 2, "settings": {...}}'

Jobs are lines of JSON on stdin, answers are lines of JSON on stdout. Other output goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
from time import perf_counter, sleep
from typing import Any

import numpy as np
from pyspark.ml.evaluation import BinaryClassificationEvaluator
from pyspark.sql import SparkSession

from benchmarks.peers.spark import LEARNERS
from benchmarks.spark.cluster import session
from gbun.spark.cluster import count_task_slots


def wait_for_slots(spark: SparkSession, wanted: int, seconds: float = 120.0) -> None:
    """Wait until all executors have started a Python process, before anything is timed."""
    until = perf_counter() + seconds
    while count_task_slots(spark.sparkContext) < wanted:
        if perf_counter() > until:
            raise TimeoutError(f"{count_task_slots(spark.sparkContext)} of {wanted} executors in {seconds:.0f} s")
        sleep(0.2)
    spark.range(100 * wanted).repartition(wanted).rdd.map(lambda row: row[0]).count()


def fit(spark: SparkSession, workers: int, job: dict[str, Any]) -> dict[str, Any]:
    rows = spark.read.parquet(job["train"])
    learner = LEARNERS[job["learner"]](workers, job["rounds"], job["size"])
    wait_for_slots(spark, workers)
    began = perf_counter()
    model = learner.fit(rows)
    found: dict[str, Any] = {"seconds": perf_counter() - began}
    if job["learner"].startswith("gbun"):
        found["a round by its own clock"] = float(np.median(np.diff(model.summary.seconds)))
    if job.get("test"):
        scored = model.transform(spark.read.parquet(job["test"]))
        found["auc"] = BinaryClassificationEvaluator(metricName="areaUnderROC").evaluate(scored)
    return found


def main() -> None:
    message, answers = json.loads(sys.argv[1]), os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spark = session(message["master"], message["settings"])
    try:
        for line in sys.stdin:
            try:
                answer = fit(spark, message["workers"], json.loads(line))
            except Exception as error:  # reported, and the next job is tried
                answer = {"failed": f"{type(error).__name__}: {error}"}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
