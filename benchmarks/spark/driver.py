"""A driver of its own: fits one model on the cluster and tells how long that took. Reads JSON, writes JSON.

python -m benchmarks.spark.driver '{"master": ..., "learner": "gbun", ...}'
"""

from __future__ import annotations

import json
import sys
from time import perf_counter
from typing import Any

from pyspark.ml.evaluation import BinaryClassificationEvaluator
from pyspark.sql import SparkSession

from benchmarks.spark.cluster import session


def gbun(job: dict[str, Any]) -> Any:
    from gbun.spark import GBUNClassifier

    return GBUNClassifier(
        numWorkers=job["workers"], n_estimators=job["rounds"], n_neurons=job["size"], **job["parameters"]
    )


def xgboost(job: dict[str, Any]) -> Any:
    from xgboost.spark import SparkXGBClassifier

    return SparkXGBClassifier(
        num_workers=job["workers"], n_estimators=job["rounds"], max_leaves=job["size"], max_depth=0,
        grow_policy="lossguide", tree_method="hist", enable_sparse_data_optim=True, missing=0.0, **job["parameters"],
    )  # fmt: skip


LEARNERS = {"gbun": gbun, "xgboost.spark": xgboost}


def fit(spark: SparkSession, job: dict[str, Any]) -> dict[str, Any]:
    rows = spark.read.parquet(job["train"])
    learner = LEARNERS[job["learner"]](job)
    spark.range(job["workers"]).repartition(job["workers"]).count()  # executors are there
    began = perf_counter()
    model = learner.fit(rows)
    found: dict[str, Any] = {"seconds": perf_counter() - began}
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
