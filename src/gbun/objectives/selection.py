"""The objective that parameters ask for, given the task and the targets."""

from __future__ import annotations

from typing import Any

from gbun.config import Parameters
from gbun.dtypes import FloatArray
from gbun.objectives.autograd import TorchLoss
from gbun.objectives.base import Objective
from gbun.objectives.classification import Logistic, MultiLogistic, Softmax
from gbun.objectives.custom import Custom
from gbun.objectives.regression import Gamma, Huber, MultiSquaredError, Poisson, Quantile, SquaredError, Tweedie

OBJECTIVES: dict[str, type[Objective]] = {
    cls.name: cls
    for cls in (
        *(SquaredError, Huber, Quantile, Poisson, Gamma, Tweedie),
        *(Logistic, Softmax, MultiSquaredError, MultiLogistic),
    )
}
CLASSIFICATION = ("logistic", "softmax")


def choose_class_objective(parameters: Parameters, n_classes: int) -> Objective:
    """Return the objective for labels of `n_classes` classes."""
    name = parameters.objective
    if not isinstance(name, str):
        return _adapt_object(name, *((1, "logistic") if n_classes == 2 else (n_classes, "softmax")))
    if name not in ("auto", *CLASSIFICATION):
        raise ValueError(f"objective for classes must be 'auto', 'logistic' or 'softmax', got {name!r}")
    if name == "logistic" and n_classes > 2:
        raise ValueError(f"objective='logistic' takes 2 classes, y has {n_classes}; use 'softmax' or 'auto'")
    if n_classes == 2 and name != "softmax":
        return Logistic()
    return Softmax(n_classes, parameters.hessian == "shared")


def choose_number_objective(parameters: Parameters, task: str, y: FloatArray) -> Objective:
    """Return the objective for numbers (task "regression") or columns of 0 and 1 ("multilabel")."""
    name = parameters.objective
    if not isinstance(name, str):
        n_outputs = 1 if y.ndim == 1 else y.shape[1]
        return _adapt_object(name, n_outputs, "logistic" if task == "multilabel" else "identity")
    if name == "auto":
        name = "multi_logistic" if task == "multilabel" else "squared_error"
    if name in CLASSIFICATION:
        raise ValueError(f"objective={name!r} is for classifiers; this is a {task} task")
    if name == "multi_logistic" or task == "multilabel":
        if name != "multi_logistic" or y.ndim != 2:
            raise ValueError(
                "several 0/1 labels take objective='multi_logistic' and y with a column a label, "
                f"got {name!r} and y of shape {y.shape}"
            )
        return MultiLogistic(parameters.hessian == "shared")
    if y.ndim == 2 or name == "multi_squared_error":
        if name not in ("squared_error", "multi_squared_error"):
            raise ValueError(f"objective={name!r} takes one target, y has {y.shape[1]} columns")
        return MultiSquaredError() if y.ndim == 2 else SquaredError()
    values = {
        "huber": parameters.huber_delta, "quantile": parameters.quantile, "tweedie": parameters.tweedie_power
    }  # fmt: skip
    return OBJECTIVES[name](*([values[name]] if name in values else []))


def _adapt_object(objective: Any, outputs: int, link: str) -> Objective:
    """Return an objective that the user passed as an object, with the outputs and the link of the task."""
    if isinstance(objective, TorchLoss):
        return objective.resolve(outputs, link) if link == "identity" else _adapt_label_loss(objective, outputs, link)
    if isinstance(objective, Objective) and type(objective) in OBJECTIVES.values():
        return objective
    if callable(objective):
        return Custom(objective, outputs, link)
    raise ValueError(
        "objective must be a name or a function (y, scores, weight) -> (gradient, Hessian), or a gbun.TorchLoss, "
        f"got {objective!r}"
    )


def _adapt_label_loss(objective: TorchLoss, outputs: int, link: str) -> TorchLoss:
    """Return a loss of classes or labels, which has a score for each of them and a link to probabilities."""
    if outputs == 1 and objective.outputs == 2:  # a score for each of two classes, where one is enough
        outputs, link = 2, "softmax"
    if objective.outputs not in (None, outputs):
        raise ValueError(
            f"objective must have {outputs} output(s) here, one for each class or label and one for two classes, "
            f"got outputs={objective.outputs}"
        )
    if objective.link not in (None, link, "logistic"):
        raise ValueError(f"objective must have link={link!r}, which makes probabilities, got {objective.link!r}")
    return objective.resolve(outputs, link)
