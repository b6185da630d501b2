"""Labels from files: whether they are classes or numbers, and how they are written."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_CLASSES = 1000
MIN_ROWS_PER_CLASS = 10

TASK_HELP = (
    "'auto': what --init-model or --objective says; else classification if labels are text, true or false, "
    f"or whole numbers with two values, or with at most {MAX_CLASSES} values that fill half of their range "
    f"and have {MIN_ROWS_PER_CLASS} rows each on average; else regression."
)


def summarize_labels(y: NDArray[Any]) -> dict[str, Any]:
    """Summarize the labels of one worker: their kind, their number, and the first values of numbers."""
    kind = "text" if is_text(y) else "truth" if y.dtype.kind == "b" else "number"
    if kind != "number":
        return {"kind": kind, "rows": len(y)}
    values = np.unique(y)[: MAX_CLASSES + 1].astype(np.float64).tolist()
    return {"kind": kind, "rows": len(y), "integral": has_integer_values(y), "values": values}


def guess_task_from_summaries(label_summaries: list[dict[str, Any]]) -> tuple[str, str]:
    """Guess the task from the label summaries of all workers; return it with the reason.

    >>> guess_task_from_summaries([summarize_labels(np.array(["ham", "spam"]))])
    ('classification', 'labels are text')
    >>> guess_task_from_summaries([summarize_labels(np.arange(300.0) % 3)])
    ('classification', 'labels are whole numbers with 3 values')
    >>> guess_task_from_summaries([summarize_labels(np.array([1.5, 2.0, 2.5]))])
    ('regression', 'labels have 3 values')
    """
    label_summaries = [summary for summary in label_summaries if summary["rows"]] or label_summaries
    kinds = {summary["kind"] for summary in label_summaries}
    if "text" in kinds:
        return "classification", "labels are text"
    if kinds == {"truth"}:
        return "classification", "labels are true or false"
    numbers = [summary for summary in label_summaries if summary["kind"] == "number"]
    values = np.unique(np.concatenate([summary["values"] for summary in numbers]))
    many = max(len(summary["values"]) for summary in numbers) > MAX_CLASSES
    count = f"more than {MAX_CLASSES}" if many else str(len(values))
    if not all(summary["integral"] for summary in numbers):
        return "regression", f"labels have {count} values"
    n_rows = sum(summary["rows"] for summary in label_summaries)
    few = len(values) <= MAX_CLASSES and n_rows >= MIN_ROWS_PER_CLASS * len(values)
    filled = few and 2 * len(values) >= values[-1] - values[0] + 1.0
    task = "classification" if len(values) <= 2 or filled else "regression"
    return task, f"labels are whole numbers with {count} values"


def has_integer_values(y: NDArray[Any]) -> bool:
    return y.dtype.kind in "iu" or (y.dtype.kind == "f" and bool((np.floor(y) == y).all()))


def class_labels(y: NDArray[Any], *, text: bool) -> NDArray[Any]:
    """Convert labels to classes: 1.0 becomes 1, and everything becomes text if the known classes are text.

    >>> class_labels(np.array([1.0, -1.0]), text=False), class_labels(np.array([1, 2]), text=True).tolist()
    (array([ 1, -1]), ['1', '2'])
    """
    if y.dtype.kind == "f" and has_integer_values(y) and np.abs(y).max(initial=0.0) < 2.0**53:
        y = y.astype(np.int64)
    return y.astype(str) if text else y


def is_text(labels: NDArray[Any] | None) -> bool:
    return labels is not None and labels.dtype.kind in "OUST"
