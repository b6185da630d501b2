"""Targets as the loop wants them: numbers, the objective that fits them, and the names of their classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbun.agreement import ALONE, by_value, decided, listed, together
from gbun.arrays import real_numbers
from gbun.collectives import Collective
from gbun.config import Parameters
from gbun.data.buckets import distinct
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
MANY_LABELS, MOST_LABELS = 2**16, 2**22  # more numbers than many are counted before they are told to others as labels
GROUPS = {"U": "words", "T": "words", "S": "bytes", "O": "objects"}  # by kind of dtype; all others are numbers
TYPES = {"b": "bool", "i": "int", "u": "int", "f": "float", "U": "str", "T": "str", "S": "bytes"}


@dataclass(frozen=True)
class Target:
    """y in float64 (class codes for classification), its task, its objective and the classes the codes stand for."""

    y: FloatArray
    task: str
    objective: Objective
    classes: NDArray[Any] | None = None

    def encode(self, y: Any, name: str = "y", collective: Collective = ALONE) -> FloatArray:
        """Other targets (of an evaluation set) in the same coding."""
        array = together(collective, lambda: target_array(y, name))
        if collective.size > 1 and not len(array):
            array = np.zeros((0, *self.y.shape[1:]), dtype=np.float64 if self.classes is None else self.classes.dtype)
        if self.classes is not None:
            return together(collective, lambda: self._codes(array, name))
        values = together(collective, lambda: numbers_of(array, name))
        check_size(values, name, collective)
        return together(collective, lambda: self._shaped(values, name))

    def _shaped(self, values: FloatArray, name: str) -> FloatArray:
        if values.shape[1:] != self.y.shape[1:]:
            raise ValueError(
                f"{name} must have shape (n{', ' if values.ndim > 1 else ''}...) as in training, got {values.shape}"
            )
        return values

    def _codes(self, labels: NDArray[Any], name: str) -> FloatArray:
        assert self.classes is not None
        codes = np.searchsorted(self.classes, labels).clip(max=len(self.classes) - 1)
        unseen = np.unique(labels[self.classes[codes] != labels])
        if len(unseen):
            raise ValueError(
                f"{name} has labels that training has not: {unseen[:5].tolist()}; known are "
                f"{self.classes[:10].tolist()}"
            )
        return codes.astype(np.float64)


def make_target(
    parameters: Parameters,
    y: Any,
    task: str | None,
    classes: NDArray[Any] | None = None,
    collective: Collective = ALONE,
) -> Target:
    """Read y for `task` ("classification", "regression" or None: told by the objective, then by y's type).

    `classes` fixes the coding, as continuing from a model must. What is found out of y is that of all workers' rows.
    """
    own, name = together(collective, lambda: target_array(y, "y")), parameters.objective
    array, whole = own, Whole(own.dtype, len(own))
    if collective.size > 1:
        array, whole = _agreed(own, task, name, collective)
    task = task or _task_of(name, whole.dtype.kind)
    if task == "classification" and array.ndim == 2:
        task = "multilabel"
    if task == "classification":
        return _classes(parameters, array, classes, whole, collective)
    values = together(collective, lambda: numbers_of(array, "y"))
    check_size(values, "y", collective)
    return together(collective, lambda: _numbers(parameters, values, task))


def _numbers(parameters: Parameters, values: FloatArray, task: str) -> Target:
    if task == "multilabel" and not np.isin(values, (0.0, 1.0)).all():
        raise ValueError("y with several columns must hold labels of 0 and 1, one column a label")
    objective = _objective(parameters, task, values)
    objective.check_target(values)
    return Target(values, task, objective)


def _task_of(objective: Any, kind: str) -> str:
    if objective in CLASSIFICATION:
        return "classification"
    if objective == "multi_logistic":
        return "multilabel"
    return "classification" if objective == "auto" and kind in "OUSTb" else "regression"


@dataclass(frozen=True)
class Whole:
    """The targets of all workers, were they one array: its dtype and number of rows."""

    dtype: np.dtype[Any]
    n_rows: int


def _agreed(y: NDArray[Any], task: str | None, objective: Any, collective: Collective) -> tuple[NDArray[Any], Whole]:
    """y, which follows the others where it has no rows, and the array of which it is a share."""

    def decide(said: list[Any]) -> tuple[Any, str, int]:
        telling = {rank: one for rank, one in enumerate(said) if one[0]}
        columns = by_value({rank: one[1] for rank, one in telling.items()})
        if len(columns) > 1:
            raise ValueError(f"y must have the same columns on all workers, got {listed(columns)}")
        groups = by_value({rank: GROUPS.get(one[2][0], "numbers") for rank, one in telling.items()})
        if len(groups) > 1 and "objects" not in groups:
            raise ValueError(f"y must hold labels of one kind, strings or numbers, got {listed(groups)}")
        dtype = _common([one[2] for one in telling.values()], groups)
        kinds = {rank: ", ".join(one[3]) for rank, one in telling.items()}
        labels = columns.keys() == {1} and (task or _task_of(objective, "O")) == "classification"
        if labels and "objects" in groups and len(by_value(kinds)) > 1:
            raise ValueError(f"y must hold labels of one kind, strings or numbers, got {listed(by_value(kinds))}")
        return next(iter(columns), 1), dtype, sum(one[0] for one in said)

    kinds = [TYPES.get(y.dtype.kind, "")] if y.dtype.kind != "O" or y.ndim == 2 else sorted(_types(y))
    said = len(y), 1 if y.ndim == 1 else y.shape[1], _dtype_name(y.dtype), kinds
    n_columns, dtype, n_rows = decided(collective, said, decide)
    whole = Whole(_dtype(dtype), n_rows)
    return y if len(y) else np.zeros((0, n_columns) if n_columns != 1 else 0, dtype=whole.dtype), whole


def _common(dtypes: list[str], groups: Mapping[str, Any]) -> str:
    """The dtype of arrays of these dtypes put together."""
    if "objects" in groups:
        return "O"
    return "T" if "T" in dtypes else str(np.result_type(*(dtypes or ["f8"])).str)


def _dtype_name(dtype: np.dtype[Any]) -> str:
    return dtype.kind if dtype.kind in "OT" else dtype.str.lstrip("<>|=")


def _dtype(name: str) -> np.dtype[Any]:
    return np.dtypes.StringDType() if name == "T" else np.dtype(name)


def _classes(
    parameters: Parameters, y: NDArray[Any], classes: NDArray[Any] | None, whole: Whole, collective: Collective
) -> Target:
    own = together(collective, lambda: _checked(y) if classes is not None else np.unique(_checked(y)))
    if classes is None:
        classes = own if collective.size == 1 else _all_labels(own, whole, collective)
    if len(classes) < 2:
        raise ValueError(
            f"y must have at least 2 classes to tell apart, got only one class: {classes[:1].tolist()}; "
            "check how the rows were selected"
        )
    if len(classes) > 50 and len(classes) > whole.n_rows // 2 and whole.dtype.kind == "f":
        raise ValueError(_no_classes(str(len(classes)), whole))
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
    return Target(target.encode(y, collective=collective), "classification", chosen, classes)


def _checked(y: NDArray[Any]) -> NDArray[Any]:
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError("y has labels that are NaN or infinite; drop or fill those rows")
    check_labels(y)
    return y


def _all_labels(labels: NDArray[Any], whole: Whole, collective: Collective) -> NDArray[Any]:
    """Those that any worker has, sorted. Numbers that are as good as all different stay where they are."""
    kind, dtype = whole.dtype.kind, whole.dtype
    if kind == "f" and collective.sum(np.array([float(len(labels))]))[0] > MANY_LABELS:
        about = distinct(labels.astype(np.float64).view(np.int64), collective)
        if about > min(0.6 * whole.n_rows, MOST_LABELS):
            raise ValueError(_no_classes(f"about {about:.0f}", whole))
    own = np.char.decode(labels, "latin-1") if kind == "S" and len(labels) else labels.astype(dtype)
    told = together(collective, lambda: _tellable(own.tolist()))
    found = decided(collective, told, lambda said: sorted({label for one in said for label in one}))
    return np.array([label.encode("latin-1") if kind == "S" else label for label in found], dtype=dtype)


def _tellable(labels: list[Any]) -> list[Any]:
    labels = [label.item() if isinstance(label, np.generic) else label for label in labels]
    other = next((label for label in labels if type(label) not in (bool, int, float, str)), None)
    if other is not None:
        raise ValueError(f"y must hold strings, numbers or truth values for labels, got {type(other).__name__}")
    return labels


def _no_classes(n_labels: str, whole: Whole) -> str:
    return f"y has {n_labels} different values in {whole.n_rows} rows: these are numbers, not classes; use a regressor"


def check_labels(y: Any) -> None:
    """Labels of several kinds cannot be sorted, and a missing one is none of them."""
    array = target_array(y, "y")
    kinds = sorted(_types(array)) if array.dtype.kind == "O" and array.ndim == 1 else []
    if len(kinds) > 1:
        raise ValueError(
            f"y must hold labels of one kind, strings or numbers, got {kinds} in it; fill the missing ones"
        )


def _types(array: NDArray[Any]) -> set[str]:
    return {type(value).__name__ for value in array}


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
    return values


def check_size(values: FloatArray, name: str, collective: Collective = ALONE) -> None:
    largest = decided(collective, float(np.abs(values).max(initial=0.0)), max)
    if largest > 1e30 or 0.0 < largest < 1e-30:
        raise ValueError(f"{name} has values of size {largest:.0e}, beyond what float32 can hold; change its unit")


def weight_array(weight: Any, n_rows: int, name: str = "sample_weight", share: bool = False) -> FloatArray:
    """Weights of the rows: finite, not negative, not all zero unless they are a worker's `share`."""
    if weight is None:
        return np.ones(n_rows)
    array = real_numbers(weight, name)
    if array.ndim == 0:
        array = np.full(n_rows, float(array))
    if array.shape != (n_rows,):
        raise ValueError(f"{name} must hold one number for each of {n_rows} rows, got shape {array.shape}")
    if not np.isfinite(array).all() or (array < 0).any():
        raise ValueError(f"{name} must be finite and not negative")
    if not share:
        check_weights(float(array.sum()), name)
    return array


def check_weights(total: float, name: str = "sample_weight") -> None:
    if not total > 0:
        raise ValueError(f"{name} is zero for every row: nothing to learn from")
