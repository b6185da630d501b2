"""gbun and XGBoost as estimators of Spark."""

from __future__ import annotations

from typing import Any


def gbun(workers: int, rounds: int, size: int, **parameters: Any) -> Any:
    from gbun.spark import GBUNClassifier

    return GBUNClassifier(numWorkers=workers, n_estimators=rounds, n_neurons=size, **parameters)


def xgboost(workers: int, rounds: int, size: int) -> Any:
    """Trees grow by levels, not by leaves: that is its default, and half the messages."""
    from xgboost.spark import SparkXGBClassifier

    return SparkXGBClassifier(
        num_workers=workers, n_estimators=rounds, max_depth=(size - 1).bit_length(), tree_method="hist",
        enable_sparse_data_optim=True, missing=0.0, force_repartition=True,
    )  # fmt: skip


LEARNERS = {
    "gbun": lambda *how: gbun(*how, init="constant"),
    "gbun, linear start": lambda *how: gbun(*how, init="linear"),
    "xgboost.spark": xgboost,
}
