"""Description of a model besides its numbers: the task, the input it expects, its classes, how it was trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from gbun.data.features import Schema


@dataclass(frozen=True)
class Description:
    """The task ("classification", "multilabel" or "regression"), the schema of the input, and the sorted classes.

    `single_column`: whether y was one-dimensional. `parameters`: the training parameters that can be written down
    (numbers, strings, None). `best_round` and `best_score`: those of early stopping, if there was any.
    """

    task: str
    schema: Schema
    classes: NDArray[Any] | None = None
    single_column: bool = True
    parameters: Mapping[str, Any] = field(default_factory=dict)
    best_round: int | None = None
    best_score: float | None = None
