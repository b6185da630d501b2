"""A driver of its own: fits one model on the cluster and tells how long that took. Reads JSON, writes JSON.

python -m benchmarks.spark.driver '{"master": ..., "learner": "gbun", ...}'
"""

from __future__ import annotations

import json
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


def gbun(job: dict[str, Any]) -> Any:
    from gbun.spark import GBUNClassifier

    return GBUNClassifier(
        numWorkers=job["workers"], n_estimators=job["rounds"], n_neurons=job["size"], **job["parameters"]
    )


def xgboost(job: dict[str, Any]) -> Any:
    from xgboost.spark import SparkXGBClassifier

    return SparkXGBClassifier(
        num_workers=job["workers"], n_estimators=job["rounds"], max_leaves=job["size"], max_depth=0,
        grow_policy="lossguide", tree_method="hist", enable_sparse_data_optim=True, missing=0.0, force_repartition=True,
        **job["parameters"],
    )  # fmt: skip


LEARNERS = {"gbun": gbun, "xgboost.spark": xgboost}


def fit(spark: SparkSession, job: dict[str, Any]) -> dict[str, Any]:
    rows = spark.read.parquet(job["train"])
    learner = LEARNERS[job["learner"]](job)
    wait_for_slots(spark, job["workers"])
    began = perf_counter()
    model = learner.fit(rows)
    found: dict[str, Any] = {"seconds": perf_counter() - began}
    if job["learner"] == "gbun":
        found["rounds of its own"] = float(np.median(np.diff(model.summary.seconds)))
    if job.get("test"):
        scored = model.transform(spark.read.parquet(job["test"]))
        found["auc"] = BinaryClassificationEvaluator(metricName="areaUnderROC").evaluate(scored)
    return found


def main() -> None:
    job = json.loads(sys.argv[1])
    spark = session(job["master"], job["settings"])
    try:
        answer = fit(spark, job)
    finally:
        spark.stop()
    sys.stdout.write("\n" + json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
