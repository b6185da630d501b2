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
    "train": "gbun.training",
    "cv": "gbun.crossvalidation",
    "plan": "gbun.training",
    "Dataset": "gbun.problem",
    "Explanation": "gbun.explain",
    "Importance": "gbun.explain",
    "Model": "gbun.model",
    "load_model": "gbun.model",
    "Parameters": "gbun.config",
    "TorchLoss": "gbun.objectives",
    "distributed": "gbun.distributed",
    "WorkerError": "gbun.collectives",
    "callbacks": "gbun.callbacks",
    "plots": "gbun.plots",
    "learners": "gbun.learners",
    "metrics": "gbun.metrics",
    "networks": "gbun.networks",
    "objectives": "gbun.objectives",
}
__all__ = list(_HOMES)

if TYPE_CHECKING:
    from gbun import callbacks as callbacks
    from gbun import distributed as distributed
    from gbun import learners as learners
    from gbun import metrics as metrics
    from gbun import networks as networks
    from gbun import objectives as objectives
    from gbun import plots as plots
    from gbun.collectives import WorkerError as WorkerError
    from gbun.config import Parameters as Parameters
    from gbun.crossvalidation import cv as cv
    from gbun.estimators import GBUNClassifier as GBUNClassifier
    from gbun.estimators import GBUNRegressor as GBUNRegressor
    from gbun.explain import Explanation as Explanation
    from gbun.explain import Importance as Importance
    from gbun.model import Model as Model
    from gbun.model import load_model as load_model
    from gbun.objectives import TorchLoss as TorchLoss
    from gbun.problem import Dataset as Dataset
    from gbun.training import plan as plan
    from gbun.training import train as train


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gbun' has no attribute {name!r}")
    home = import_module(_HOMES[name])
    return home if home.__name__ == f"gbun.{name}" else getattr(home, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
