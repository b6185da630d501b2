"""Targets and weights as boosting needs them: y as numbers, its objective, the classes that the numbers stand for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbun.agreement import SINGLE_WORKER, decide_at_root, format_groups, group_ranks, run_or_raise_everywhere
from gbun.arrays import to_real_numbers
from gbun.collectives import Collective
from gbun.config import Parameters
from gbun.data.buckets import estimate_distinct
from gbun.dtypes import FloatArray
from gbun.objectives import Objective, choose_class_objective, choose_number_objective
from gbun.objectives.selection import CLASSIFICATION as CLASSIFICATION

MAX_UNCOUNTED_LABELS = 2**16  # above, different numbers are counted before workers exchange them as labels
MAX_LABELS = 2**22
MAX_WEIGHT = 1e100  # sums of larger weights times squared features could overflow
LABEL_GROUPS = {"U": "words", "T": "words", "S": "bytes", "O": "objects"}  # by kind of dtype; all others are numbers
TYPE_NAMES = {"b": "bool", "i": "int", "u": "int", "f": "float", "U": "str", "T": "str", "S": "bytes"}


@dataclass(frozen=True)
class Target:
    """Targets of a training: y in float64 (class codes for classification), the task, the objective, the classes."""

    y: FloatArray
    task: str
    objective: Objective
    classes: NDArray[Any] | None = None

    def encode(self, y: Any, name: str = "y", collective: Collective = SINGLE_WORKER) -> FloatArray:
        """Return other targets, those of an evaluation set, in the same coding."""
        array = run_or_raise_everywhere(collective, lambda: to_target_array(y, name))
        if not len(array):  # without rows, y has no dtype and no columns
            array = np.zeros((0, *self.y.shape[1:]), dtype=np.float64 if self.classes is None else self.classes.dtype)
        if self.classes is not None:
            return run_or_raise_everywhere(collective, lambda: self._encode_classes(array, name))
        values = run_or_raise_everywhere(collective, lambda: self._encode_numbers(array, name))
        check_magnitude(values, name, collective)
        return values

    def _encode_numbers(self, array: NDArray[Any], name: str) -> FloatArray:
        values = to_numbers(array, name)
        if values.shape[1:] != self.y.shape[1:]:
            raise ValueError(
                f"{name} must have shape (n{', ' if values.ndim > 1 else ''}...) as in training, got {values.shape}"
            )
        return values

    def _encode_classes(self, labels: NDArray[Any], name: str) -> FloatArray:
        assert self.classes is not None
        codes = np.searchsorted(self.classes, labels).clip(max=len(self.classes) - 1)
        unseen = np.unique(labels[self.classes[codes] != labels])
        if len(unseen):
            raise ValueError(
                f"{name} has labels that training has not: {unseen[:5].tolist()}; known are "
                f"{self.classes[:10].tolist()}"
            )
        return codes.astype(np.float64)


@dataclass(frozen=True)
class GlobalTarget:
    """The dtype and the number of rows of the targets of all workers, if they were one array."""

    dtype: np.dtype[Any]
    n_rows: int


def make_target(
    parameters: Parameters,
    y: Any,
    task: str | None,
    classes: NDArray[Any] | None = None,
    collective: Collective = SINGLE_WORKER,
) -> Target:
    """Read y and choose its objective; what depends on y depends on the rows of all workers.

    y, of shape (n,) or (n, C), is this worker's share. Without a task, it is that of the objective, or of the dtype of
    y if the objective is "auto". `classes` are the coding of the labels, if training continues from a model.
    """
    array = run_or_raise_everywhere(collective, lambda: to_target_array(y, "y"))
    array, global_target = _decide_target_type(array, task, parameters.objective, collective)
    task = task or _infer_task(parameters.objective, global_target.dtype.kind)
    if task == "classification" and array.ndim == 2:
        task = "multilabel"
    if task == "classification":
        return _make_class_target(parameters, array, classes, global_target, collective)
    values = run_or_raise_everywhere(collective, lambda: to_numbers(array, "y"))
    check_magnitude(values, "y", collective)
    return run_or_raise_everywhere(collective, lambda: _make_number_target(parameters, values, task))


def _make_number_target(parameters: Parameters, values: FloatArray, task: str) -> Target:
    if task == "multilabel" and not np.isin(values, (0.0, 1.0)).all():
        raise ValueError("y with several columns must hold labels of 0 and 1, one column a label")
    objective = choose_number_objective(parameters, task, values)
    objective.check_target(values)
    return Target(values, task, objective)


def _make_class_target(
    parameters: Parameters,
    y: NDArray[Any],
    classes: NDArray[Any] | None,
    global_target: GlobalTarget,
    collective: Collective,
) -> Target:
    def find_local_labels() -> NDArray[Any]:
        check_labels(y)
        return np.unique(y) if classes is None else classes

    labels = run_or_raise_everywhere(collective, find_local_labels)
    if classes is None:  # labels of a single worker are not sent, so they may be of any type
        classes = labels if collective.size == 1 else _collect_labels(labels, global_target, collective)
    if len(classes) < 2:
        raise ValueError(
            f"y must have at least 2 classes to tell apart, got only one class: {classes[:1].tolist()}; "
            "check how the rows were selected"
        )
    if len(classes) > 50 and len(classes) > global_target.n_rows // 2 and global_target.dtype.kind == "f":
        raise ValueError(_too_many_classes_message(str(len(classes)), global_target))
    objective = choose_class_objective(parameters, len(classes))
    target = Target(np.zeros(0), "classification", objective, classes)
    return replace(target, y=target.encode(y, collective=collective))


def _infer_task(objective: Any, kind: str) -> str:
    if objective in CLASSIFICATION:
        return "classification"
    if objective == "multi_logistic":
        return "multilabel"
    return "classification" if objective == "auto" and kind in "OUSTb" else "regression"


def _decide_target_type(
    y: NDArray[Any], task: str | None, objective: Any, collective: Collective
) -> tuple[NDArray[Any], GlobalTarget]:
    """Agree on the columns and the dtype of y; return y, with those of the other workers if it has no rows."""

    def decide(messages: list[Any]) -> tuple[Any, str, int]:
        with_rows = {rank: message for rank, message in enumerate(messages) if message[0]}
        columns = group_ranks({rank: message[1] for rank, message in with_rows.items()})
        if len(columns) > 1:
            raise ValueError(f"y must have the same columns on all workers, got {format_groups(columns)}")
        groups = group_ranks({rank: LABEL_GROUPS.get(m[2][0], "numbers") for rank, m in with_rows.items()})
        type_names = group_ranks({rank: ", ".join(message[3]) for rank, message in with_rows.items()})
        has_objects = "objects" in groups
        are_labels = columns.keys() == {1} and (task or _infer_task(objective, "O")) == "classification"
        for kinds, must_agree in ((groups, not has_objects), (type_names, has_objects and are_labels)):
            if must_agree and len(kinds) > 1:
                raise ValueError(f"y must hold labels of one kind, strings or numbers, got {format_groups(kinds)}")
        dtypes = [message[2] for message in with_rows.values()]
        dtype = "O" if has_objects else "T" if "T" in dtypes else str(np.result_type(*(dtypes or ["f8"])).str)
        return next(iter(columns), 1), dtype, sum(message[0] for message in messages)

    kind = y.dtype.kind
    names = [TYPE_NAMES.get(kind, "")] if kind != "O" or y.ndim == 2 else sorted(_type_names(y))
    dtype_name = kind if kind in "OT" else y.dtype.str.lstrip("<>|=")
    message = len(y), 1 if y.ndim == 1 else y.shape[1], dtype_name, names
    n_columns, dtype_name, n_rows = decide_at_root(collective, message, decide)
    dtype = np.dtypes.StringDType() if dtype_name == "T" else np.dtype(dtype_name)
    if not len(y):
        y = np.zeros((0, n_columns) if n_columns != 1 else 0, dtype=dtype)
    return y, GlobalTarget(dtype, n_rows)


def _collect_labels(labels: NDArray[Any], global_target: GlobalTarget, collective: Collective) -> NDArray[Any]:
    """Return the sorted labels of all workers, unless they are floats that are nearly all different."""
    kind, dtype = global_target.dtype.kind, global_target.dtype
    if kind == "f" and collective.sum(np.array([float(len(labels))]))[0] > MAX_UNCOUNTED_LABELS:
        about = estimate_distinct(labels.astype(np.float64).view(np.int64), collective)
        if about > min(0.6 * global_target.n_rows, MAX_LABELS):
            raise ValueError(_too_many_classes_message(f"about {about:.0f}", global_target))
    local = np.char.decode(labels, "latin-1") if kind == "S" and len(labels) else labels.astype(dtype)
    plain_labels = run_or_raise_everywhere(collective, lambda: _to_plain_labels(local.tolist()))
    union = decide_at_root(collective, plain_labels, lambda lists: sorted({label for one in lists for label in one}))
    return np.array([label.encode("latin-1") if kind == "S" else label for label in union], dtype=dtype)


def _to_plain_labels(labels: list[Any]) -> list[Any]:
    labels = [label.item() if isinstance(label, np.generic) else label for label in labels]
    unknown = next((label for label in labels if type(label) not in (bool, int, float, str)), None)
    if unknown is not None:
        raise ValueError(f"y must hold strings, numbers or truth values for labels, got {type(unknown).__name__}")
    return labels


def _too_many_classes_message(n_labels: str, target: GlobalTarget) -> str:
    return f"y has {n_labels} different values in {target.n_rows} rows: these are numbers, not classes; use a regressor"


def check_labels(y: NDArray[Any]) -> None:
    """Raise a ValueError if labels, as `to_target_array` returns them, are missing or of several types."""
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError("y has NaN or infinite labels; drop or fill those rows")
    types = sorted(_type_names(y)) if y.dtype.kind == "O" and y.ndim == 1 else []
    if len(types) > 1:
        raise ValueError(
            f"y must hold labels of one kind, strings or numbers, got {types} in it; fill the missing ones"
        )


def _type_names(array: NDArray[Any]) -> set[str]:
    return {type(value).__name__ for value in array}


def to_target_array(y: Any, name: str) -> NDArray[Any]:
    """Return targets as an array of shape (n,) or (n, C); a single column as a vector, objects that are str as str."""
    if y is None:
        raise ValueError(f"{name} is missing: training and evaluation need targets")
    nullable = getattr(getattr(y, "dtype", None), "numpy_dtype", np.dtype(object))
    if nullable.kind in "biuf" and hasattr(y, "to_numpy") and not getattr(y, "hasnans", True):
        y = y.to_numpy(dtype=nullable)  # before pandas 2.2, to_numpy() makes objects of them
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


def to_numbers(array: NDArray[Any], name: str) -> FloatArray:
    """Return targets as finite float64."""
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


def check_magnitude(values: FloatArray, name: str, collective: Collective = SINGLE_WORKER) -> None:
    """Raise a ValueError if the targets of all workers are too large or too small for float32."""
    largest = decide_at_root(collective, float(np.abs(values).max(initial=0.0)), max)
    if largest > 1e30 or 0.0 < largest < 1e-30:
        side = "beyond" if largest > 1.0 else "below"
        raise ValueError(f"{name} has values of size {largest:.0e}, {side} what float32 can hold; change its unit")


def to_weight_array(weight: Any, n_rows: int, name: str = "sample_weight", share: bool = False) -> FloatArray:
    """Return the weights of the rows: finite, not negative, not all 0 unless they are a worker's `share`."""
    if weight is None:
        return np.ones(n_rows)
    array = to_real_numbers(weight, name)
    if array.ndim == 0:
        array = np.full(n_rows, float(array))
    if array.shape != (n_rows,):
        raise ValueError(f"{name} must hold one number for each of {n_rows} rows, got shape {array.shape}")
    if not np.isfinite(array).all() or (array < 0).any():
        raise ValueError(f"{name} must be finite and not negative")
    largest = float(array.max(initial=0.0))
    if largest > MAX_WEIGHT:
        raise ValueError(
            f"{name} must be at most {MAX_WEIGHT:g}, got {largest:g}; divide all weights by the same number"
        )
    if not share:
        check_weights(float(array.sum()), name)
    return array


def check_weights(total: float, name: str = "sample_weight") -> None:
    """Raise a ValueError if the sum of all weights is 0."""
    if not total > 0:
        raise ValueError(f"{name} is zero for every row: nothing to learn from")
