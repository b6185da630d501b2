"""gbun on Spark: estimators for pipelines of pyspark.ml, whose training is one barrier stage: docs/spark.md."""

from __future__ import annotations

try:
    import pyspark  # noqa: F401
except ImportError:
    raise ImportError("gbun.spark needs pyspark, which is not installed: pip install 'gbun[spark]'") from None

from gbun.spark.estimators import GBUNClassificationModel, GBUNClassifier, GBUNRegressionModel, GBUNRegressor
from gbun.spark.progress import Report

__all__ = ["GBUNClassificationModel", "GBUNClassifier", "GBUNRegressionModel", "GBUNRegressor", "Report"]
