"""Objectives by name, and those that users write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gbun.objectives.autograd import TorchLoss
from gbun.objectives.base import Objective
from gbun.objectives.classification import Logistic, MultiLogistic, Softmax
from gbun.objectives.custom import Custom
from gbun.objectives.regression import Gamma, Huber, MultiSquaredError, Poisson, Quantile, SquaredError, Tweedie
from gbun.objectives.selection import OBJECTIVES, choose_class_objective, choose_number_objective


def make_objective(name: str, parameters: Mapping[str, Any]) -> Objective:
    """Make the objective that a model file describes, by its name and what `Objective.parameters` returned.

    A "custom" one has no function: it predicts and cannot be trained.
    """
    if name == Custom.name:
        return Custom(None, **parameters)
    if name not in OBJECTIVES:
        raise ValueError(f"objective must be one of {', '.join(OBJECTIVES)}, got {name!r}")
    return OBJECTIVES[name](**parameters)


__all__ = [
    "OBJECTIVES", "Custom", "Gamma", "Huber", "Logistic", "MultiLogistic", "MultiSquaredError", "Objective", "Poisson",
    "Quantile", "Softmax", "SquaredError", "TorchLoss", "Tweedie", "choose_class_objective", "choose_number_objective",
    "make_objective",
]  # fmt: skip
