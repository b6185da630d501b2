"""gbun: gradient boosting of untrained neural networks.

>>> import gbun
>>> from sklearn.datasets import load_breast_cancer
>>> X, y = load_breast_cancer(return_X_y=True)
>>> model = gbun.GBUNClassifier(n_estimators=20, n_neurons=64).fit(X[:400], y[:400])
>>> float(model.score(X[400:], y[400:])) > 0.95
True

`import gbun` is fast: the modules behind a name are imported when the name is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"

_HOMES = {
    "GBUNClassifier": "gbun.estimators",
    "GBUNRegressor": "gbun.estimators",
    "Dataset": "gbun.problem",
    "train": "gbun.training",
    "plan": "gbun.training",
    "cv": "gbun.crossvalidation",
    "Model": "gbun.model",
    "load_model": "gbun.model",
    "Parameters": "gbun.config",
    "TorchLoss": "gbun.objectives",
    "WorkerError": "gbun.collectives",
    "distributed": "gbun.distributed",
    "learners": "gbun.learners",
    "callbacks": "gbun.callbacks",
    "metrics": "gbun.metrics",
    "objectives": "gbun.objectives",
    "networks": "gbun.networks",
}

__all__ = [  # noqa: RUF022 - in the order a reader meets them
    "GBUNClassifier",
    "GBUNRegressor",
    "train",
    "cv",
    "plan",
    "Dataset",
    "Model",
    "load_model",
    "Parameters",
    "TorchLoss",
    "distributed",
    "WorkerError",
    "callbacks",
    "learners",
    "metrics",
    "networks",
    "objectives",
]

if TYPE_CHECKING:
    from gbun import callbacks, distributed, learners, metrics, networks, objectives
    from gbun.collectives import WorkerError
    from gbun.config import Parameters
    from gbun.crossvalidation import cv
    from gbun.estimators import GBUNClassifier, GBUNRegressor
    from gbun.model import Model, load_model
    from gbun.objectives import TorchLoss
    from gbun.problem import Dataset
    from gbun.training import plan, train


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gbun' has no attribute {name!r}")
    home = import_module(_HOMES[name])
    return home if home.__name__ == f"gbun.{name}" else getattr(home, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
