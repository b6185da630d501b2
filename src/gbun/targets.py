"""Targets as the loop wants them: numbers, the objective that fits them, and the names of their classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbun.arrays import real_numbers
from gbun.config import Parameters
from gbun.dtypes import FloatArray
from gbun.objectives import (
    OBJECTIVES,
    Custom,
    Huber,
    Logistic,
    MultiLogistic,
    MultiSquaredError,
    Objective,
    Quantile,
    Softmax,
    SquaredError,
    TorchLoss,
    Tweedie,
)

CLASSIFICATION = ("logistic", "softmax")


@dataclass(frozen=True)
class Target:
    """y in float64 (class codes for classification), its task, its objective and the classes the codes stand for."""

    y: FloatArray
    task: str
    objective: Objective
    classes: NDArray[Any] | None = None

    def encode(self, y: Any, name: str = "y") -> FloatArray:
        """Other targets (of an evaluation set) in the same coding."""
        array = target_array(y, name)
        if self.classes is None:
            values = numbers_of(array, name)
            if values.shape[1:] != self.y.shape[1:]:
                raise ValueError(
                    f"{name} must have shape (n{', ' if values.ndim > 1 else ''}...) as in training, got {array.shape}"
                )
            return values
        codes = np.searchsorted(self.classes, array).clip(max=len(self.classes) - 1)
        unseen = np.unique(array[self.classes[codes] != array])
        if len(unseen):
            raise ValueError(
                f"{name} has labels that training has not: {unseen[:5].tolist()}; known are "
                f"{self.classes[:10].tolist()}"
            )
        return codes.astype(np.float64)


def make_target(parameters: Parameters, y: Any, task: str | None, classes: NDArray[Any] | None = None) -> Target:
    """Read y for `task` ("classification", "regression" or None: told by the objective, then by y's type).

    `classes` fixes the coding, as continuing from a model must.
    """
    array = target_array(y, "y")
    name = parameters.objective
    task = task or _task_of(name, array)
    if task == "classification" and array.ndim == 2:
        task = "multilabel"
    if task == "classification":
        return _classes(parameters, array, classes)
    values = numbers_of(array, "y")
    if task == "multilabel" and not np.isin(values, (0.0, 1.0)).all():
        raise ValueError("y with several columns must hold labels of 0 and 1, one column a label")
    objective = _objective(parameters, task, values)
    objective.check_target(values)
    return Target(values, task, objective)


def _task_of(objective: Any, y: NDArray[Any]) -> str:
    if objective in CLASSIFICATION:
        return "classification"
    if objective == "multi_logistic":
        return "multilabel"
    named = objective == "auto" and y.dtype.kind in "OUSTb"
    return "classification" if named else "regression"


def _classes(parameters: Parameters, y: NDArray[Any], classes: NDArray[Any] | None) -> Target:
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError("y has labels that are NaN or infinite; drop or fill those rows")
    check_labels(y)
    if classes is None:
        classes = np.unique(y)
    if len(classes) < 2:
        raise ValueError(
            f"y must have at least 2 classes to tell apart, got only one class: {classes[:1].tolist()}; "
            "check how the rows were selected"
        )
    if len(classes) > 50 and len(classes) > len(y) // 2 and y.dtype.kind == "f":
        raise ValueError(
            f"y has {len(classes)} different values in {len(y)} rows: these are numbers, not classes; use a regressor"
        )
    objective = parameters.objective
    chosen: Objective
    if isinstance(objective, str):
        if objective not in ("auto", *CLASSIFICATION):
            raise ValueError(f"objective for classes must be 'auto', 'logistic' or 'softmax', got {objective!r}")
        if objective == "logistic" and len(classes) > 2:
            raise ValueError(f"objective='logistic' takes 2 classes, y has {len(classes)}; use 'softmax' or 'auto'")
        binary = len(classes) == 2 and objective != "softmax"
        chosen = Logistic() if binary else Softmax(len(classes), parameters.hessian == "shared")
    else:
        chosen = _custom(objective, 1, "logistic") if len(classes) == 2 else _custom(objective, len(classes), "softmax")
    target = Target(np.zeros(0), "classification", chosen, classes)
    return Target(target.encode(y), "classification", chosen, classes)


def check_labels(y: Any) -> None:
    """Labels of several kinds cannot be sorted, and a missing one is none of them."""
    array = target_array(y, "y")
    kinds = sorted({type(value).__name__ for value in array}) if array.dtype.kind == "O" and array.ndim == 1 else []
    if len(kinds) > 1:
        raise ValueError(
            f"y must hold labels of one kind, strings or numbers, got {kinds} in it; fill the missing ones"
        )


def _objective(parameters: Parameters, task: str, y: FloatArray) -> Objective:
    name = parameters.objective
    if not isinstance(name, str):
        return _custom(name, 1 if y.ndim == 1 else y.shape[1], "logistic" if task == "multilabel" else "identity")
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
    special: dict[str, Objective] = {
        "huber": Huber(parameters.huber_delta),
        "quantile": Quantile(parameters.quantile),
        "tweedie": Tweedie(parameters.tweedie_power),
    }
    return special[name] if name in special else OBJECTIVES[name]()


def _custom(objective: Any, outputs: int, link: str) -> Objective:
    """`outputs` and `link` are what the task asks for: with "identity" numbers, otherwise probabilities."""
    if isinstance(objective, TorchLoss):
        return objective.resolved(outputs, link) if link == "identity" else _of_labels(objective, outputs, link)
    if isinstance(objective, Objective) and type(objective) in OBJECTIVES.values():
        return objective
    if callable(objective):
        return Custom(objective, outputs, link)
    raise ValueError(
        "objective must be a name or a function (y, scores, weight) -> (gradient, Hessian), or a gbun.TorchLoss, "
        f"got {objective!r}"
    )


def _of_labels(objective: TorchLoss, outputs: int, link: str) -> TorchLoss:
    """A loss of classes or labels, whose scores must be as many as they are and become probabilities."""
    if outputs == 1 and objective.outputs == 2:  # a score for each of two classes, where one would do
        outputs, link = 2, "softmax"
    if objective.outputs not in (None, outputs):
        raise ValueError(
            f"objective must have {outputs} output(s) here, one for each class or label and one for two classes, "
            f"got outputs={objective.outputs}"
        )
    if objective.link not in (None, link, "logistic"):
        raise ValueError(f"objective must have link={link!r}, which makes probabilities, got {objective.link!r}")
    return objective.resolved(outputs, link)


def target_array(y: Any, name: str) -> NDArray[Any]:
    if y is None:
        raise ValueError(f"{name} is missing: training and evaluation need targets")
    array = y.to_numpy() if hasattr(y, "to_numpy") else np.asarray(y)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.dtype.kind in "cmM":
        raise ValueError(
            f"{name} must hold real numbers or labels, got dtype {array.dtype}; Complex data not supported"
        )
    if array.ndim not in (1, 2):
        raise ValueError(f"{name} must be one column, or a column an output, got shape {array.shape}")
    if array.dtype.kind == "O" and array.ndim == 1 and all(isinstance(v, str) for v in array):
        array = array.astype(str)
    return np.asarray(array)


def numbers_of(array: NDArray[Any], name: str) -> FloatArray:
    try:
        values = array.astype(np.float64)
    except (TypeError, ValueError):
        if array.ndim == 2:
            raise ValueError(
                f"{name} with several columns must hold numbers, values or labels of 0 and 1, got {array.dtype}"
            ) from None
        raise ValueError(
            f"{name} must hold numbers, got {array.dtype}; use a classifier, or a classification objective, for labels"
        ) from None
    if not np.isfinite(values).all():
        raise ValueError(f"{name} has NaN or infinite targets; drop or fill those rows")
    largest = float(np.abs(values).max(initial=0.0))
    if largest > 1e30 or 0.0 < largest < 1e-30:
        raise ValueError(f"{name} has values of size {largest:.0e}, beyond what float32 can hold; change its unit")
    return values


def weight_array(weight: Any, n_rows: int, name: str = "sample_weight") -> FloatArray:
    """Weights of the rows: finite, not negative, not all zero."""
    if weight is None:
        return np.ones(n_rows)
    array = real_numbers(weight, name)
    if array.ndim == 0:
        array = np.full(n_rows, float(array))
    if array.shape != (n_rows,):
        raise ValueError(f"{name} must hold one number for each of {n_rows} rows, got shape {array.shape}")
    if not np.isfinite(array).all() or (array < 0).any():
        raise ValueError(f"{name} must be finite and not negative")
    if not array.sum() > 0:
        raise ValueError(f"{name} is zero for every row: nothing to learn from")
    return array
