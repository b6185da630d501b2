"""Class labels in a model file: numbers as a tensor of their own dtype, strings in the header."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbun.model_io.checks import brief


def stored_classes(classes: Any) -> tuple[Any, dict[str, NDArray[Any]]]:
    """What the header says of the classes, and their tensor where they are numbers.

    >>> stored_classes(np.array(["no", "yes"]))
    (['no', 'yes'], {})
    >>> stored_classes(np.array([2, 3], dtype=np.int8))
    ('tensor', {'classes': array([2, 3], dtype=int8)})
    """
    if classes is None:
        return None, {}
    labels = np.asarray(classes)
    # Fixed-width strings, objects, NumPy 2's strings of any length; all else must be numbers.
    if labels.dtype.kind not in "UOT" or labels.ndim != 1:
        return "tensor", {"classes": labels}
    values = labels.tolist()
    for value in values:
        if not isinstance(value, str):
            raise ValueError(
                f"classes must be all strings or all numbers of one dtype, got {brief(value)} of type "
                f"{type(value).__name__}; convert y before training, for instance with astype(str)"
            )
    return [str(value) for value in values], {}


def classes_from(stored: Any, tensor: NDArray[Any] | None) -> NDArray[Any] | None:
    """The labels that `stored_classes` took apart."""
    if stored is None:
        return None
    labels = _string_array(stored) if tensor is None else tensor
    if labels.dtype.kind == "b" and (labels.view(np.uint8) > 1).any():
        raise ValueError("classes have truth values besides 0 and 1")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError("classes must be finite, got NaN or infinity")
    if len(np.unique(labels)) < len(labels):
        raise ValueError("classes must differ from each other, some label is there twice")
    return labels


def _string_array(values: tuple[str, ...]) -> NDArray[Any]:
    # Each string of an array takes the room of the longest: one long label among many short ones would take
    # far more memory than the file that names them.
    room = 4 * len(values) * max(map(len, values), default=0)
    if room > 2**24 + 64 * sum(map(len, values)):
        raise ValueError(f"classes would take {room} bytes as an array of strings; use shorter or integer labels")
    if any(value.endswith("\0") for value in values):  # NumPy drops them: two labels could become one
        raise ValueError("classes must not end in a NUL character")
    return np.array(values, dtype=np.str_)
