"""A driver of its own: fits models on the cluster, one after the other, and tells how long each took.

    python -m benchmarks.spark.driver '{"master": ..., "workers": 2, "settings": {...}}'

Jobs come as lines of JSON on stdin, answers go as lines of JSON to stdout; whatever else prints does so on stderr.
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

from benchmarks.spark.cluster import session
from gbun.spark.cluster import slots


def wait_for_slots(spark: SparkSession, wanted: int, seconds: float = 120.0) -> None:
    """Executors are there before anything is timed, and have made Python processes."""
    until = perf_counter() + seconds
    while slots(spark.sparkContext) < wanted:
        if perf_counter() > until:
            raise TimeoutError(f"{slots(spark.sparkContext)} of {wanted} executors in {seconds:.0f} s")
        sleep(0.2)
    spark.range(100 * wanted).repartition(wanted).rdd.map(lambda row: row[0]).count()


def gbun(workers: int, rounds: int, size: int, **parameters: Any) -> Any:
    from gbun.spark import GBUNClassifier

    return GBUNClassifier(numWorkers=workers, n_estimators=rounds, n_neurons=size, **parameters)


def xgboost(workers: int, rounds: int, size: int) -> Any:
    from xgboost.spark import SparkXGBClassifier

    return SparkXGBClassifier(
        # Levels, not leaves: that is its own default, and half the messages.
        num_workers=workers, n_estimators=rounds, max_depth=(size - 1).bit_length(), tree_method="hist",
        enable_sparse_data_optim=True, missing=0.0, force_repartition=True,
    )  # fmt: skip


LEARNERS = {
    "gbun": lambda *how: gbun(*how, init="constant"),
    "gbun, linear start": lambda *how: gbun(*how, init="linear"),
    "xgboost.spark": xgboost,
}


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
    told, answers = json.loads(sys.argv[1]), os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spark = session(told["master"], told["settings"])
    try:
        for line in sys.stdin:
            try:
                answer = fit(spark, told["workers"], json.loads(line))
            except Exception as error:  # told, and the next job is tried
                answer = {"failed": f"{type(error).__name__}: {error}"}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
