"""What a model is besides its numbers: the task, the input it expects, the classes it names, how it was trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbun.data.features import Schema


@dataclass(frozen=True)
class Description:
    """task is "classification", "multilabel" or "regression"; `single_column` says whether y was one-dimensional.

    `parameters` holds the training parameters that can be written down (numbers, strings, None); `best_round` and
    `best_score` are those of early stopping, where there was any.
    """

    task: str
    schema: Schema
    classes: NDArray[Any] | None = None
    single_column: bool = True
    parameters: Mapping[str, Any] = field(default_factory=dict)
    best_round: int | None = None
    best_score: float | None = None

    def labels(self, codes: NDArray[np.intp]) -> NDArray[Any]:
        assert self.classes is not None
        return self.classes[codes]
