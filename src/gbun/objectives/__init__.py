"""Objectives by name; a user's own function is one too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gbun.objectives.autograd import TorchLoss
from gbun.objectives.base import Objective
from gbun.objectives.classification import Logistic, MultiLogistic, Softmax
from gbun.objectives.custom import Custom
from gbun.objectives.regression import (
    Gamma,
    Huber,
    MultiSquaredError,
    Poisson,
    Quantile,
    SquaredError,
    Tweedie,
)

OBJECTIVES: dict[str, type[Objective]] = {
    cls.name: cls
    for cls in (
        SquaredError,
        Huber,
        Quantile,
        Poisson,
        Gamma,
        Tweedie,
        Logistic,
        Softmax,
        MultiSquaredError,
        MultiLogistic,
    )
}


def objective_from(name: str, parameters: Mapping[str, Any]) -> Objective:
    """The objective a model file describes.

    >>> objective_from("quantile", {"quantile": 0.9, "epsilon": 0.1})
    Quantile(quantile=0.9, epsilon=0.1)
    """
    if name == Custom.name:
        return Custom(None, **parameters)
    if name not in OBJECTIVES:
        raise ValueError(f"objective must be one of {', '.join(OBJECTIVES)}, got {name!r}")
    return OBJECTIVES[name](**parameters)


__all__ = [
    "OBJECTIVES",
    "Custom",
    "Gamma",
    "Huber",
    "Logistic",
    "MultiLogistic",
    "MultiSquaredError",
    "Objective",
    "Poisson",
    "Quantile",
    "Softmax",
    "SquaredError",
    "TorchLoss",
    "Tweedie",
    "objective_from",
]
