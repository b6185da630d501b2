"""gbun on Spark: estimators for pipelines of pyspark.ml, which train in one barrier stage: docs/spark.md."""

from __future__ import annotations

try:
    import pyspark  # noqa: F401
except ImportError:
    raise ImportError("gbun.spark needs pyspark, which is not installed: pip install 'gbun[spark]'") from None

from gbun.spark.estimators import GBUNClassificationModel, GBUNClassifier, GBUNRegressionModel, GBUNRegressor
from gbun.spark.progress import RoundProgress

__all__ = ["GBUNClassificationModel", "GBUNClassifier", "GBUNRegressionModel", "GBUNRegressor", "RoundProgress"]
