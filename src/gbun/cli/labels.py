"""Labels from files: are they classes or numbers, and how are they written?"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_CLASSES = 1000
ROWS_A_CLASS = 10

RULE = (
    "'auto': what --init-model or --objective says; else classification if labels are text, true or false, "
    f"or whole numbers with two values, or with at most {MOST_CLASSES} values that fill half of their range "
    f"and have {ROWS_A_CLASS} rows each on average; else regression."
)


def guess_task(y: NDArray[Any]) -> tuple[str, str]:
    """The task that labels suggest, and why.

    >>> guess_task(np.array(["ham", "spam"]))
    ('classification', 'labels are text')
    >>> guess_task(np.arange(300.0) % 3)
    ('classification', 'labels are whole numbers with 3 values')
    >>> guess_task(np.array([1.5, 2.0, 2.5]))
    ('regression', 'labels have 3 values')
    """
    return guess_together([seen(y)])


def seen(y: NDArray[Any]) -> dict[str, Any]:
    """What workers tell each other of their labels: their kind, how many, and which, unless they are too many."""
    kind = "text" if y.dtype.kind in "OUST" else "truth" if y.dtype.kind == "b" else "number"
    if kind != "number":
        return {"kind": kind, "rows": len(y)}
    values = np.unique(y).astype(np.float64)
    return {"kind": kind, "rows": len(y), "whole": is_whole(y), "values": values[: MOST_CLASSES + 1].tolist()}


def guess_together(told: list[dict[str, Any]]) -> tuple[str, str]:
    """The task that the labels of all workers suggest."""
    told = [one for one in told if one["rows"]] or told
    kinds = {one["kind"] for one in told}
    if "text" in kinds:
        return "classification", "labels are text"
    if kinds == {"truth"}:
        return "classification", "labels are true or false"
    numbers = [one for one in told if one["kind"] == "number"]
    values = np.unique(np.concatenate([one["values"] for one in numbers]))
    many = max(len(one["values"]) for one in numbers) > MOST_CLASSES
    count = f"more than {MOST_CLASSES}" if many else str(len(values))
    if not all(one["whole"] for one in numbers):
        return "regression", f"labels have {count} values"
    few = len(values) <= MOST_CLASSES and sum(one["rows"] for one in told) >= ROWS_A_CLASS * len(values)
    filled = few and 2 * len(values) >= values[-1] - values[0] + 1.0
    task = "classification" if len(values) <= 2 or filled else "regression"
    return task, f"labels are whole numbers with {count} values"


def is_whole(y: NDArray[Any]) -> bool:
    return y.dtype.kind in "iu" or (y.dtype.kind == "f" and bool((np.floor(y) == y).all()))


def class_labels(y: NDArray[Any], *, text: bool) -> NDArray[Any]:
    """Labels of classes: 1.0 is written 1, and everything as text if the classes are known to be text.

    >>> class_labels(np.array([1.0, -1.0]), text=False), class_labels(np.array([1, 2]), text=True).tolist()
    (array([ 1, -1]), ['1', '2'])
    """
    if y.dtype.kind == "f" and is_whole(y) and np.abs(y).max(initial=0.0) < 2.0**53:
        y = y.astype(np.int64)
    return y.astype(str) if text else y


def is_text(classes: NDArray[Any] | None) -> bool:
    return classes is not None and classes.dtype.kind in "OUST"
