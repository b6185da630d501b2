"""The user's own objective: a function of (y, scores, weight) that returns (gradient, Hessian)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gbun.collectives import Collective
from gbun.dtypes import FloatArray
from gbun.objectives.base import Objective, Scores
from gbun.objectives.classification import Logistic, Softmax

ObjectiveFunction = Callable[[FloatArray, FloatArray, FloatArray], tuple[FloatArray, FloatArray]]


@dataclass(frozen=True)
class Custom(Objective):
    """Wraps `function(y, scores, weight) -> (gradient, Hessian)`.

    With one output, scores, gradient and Hessian are vectors of n numbers; with C outputs they are n x C, and the
    Hessian may also be n numbers shared by all outputs. The function applies the weights itself. It is called on
    chunks of rows, by several threads at once, so a row's derivatives must depend on that row only and the function
    must not keep state. Negative Hessian values are raised to 0:
    such a row pulls by its gradient and does not shorten the step. Boosting starts from the constant that makes
    the Newton step vanish (found by iteration), or from 0 where that does not converge.

    A loaded model has no function: it predicts scores as before and cannot be trained further.
    """

    function: ObjectiveFunction | None
    outputs: int = 1
    link: str = "identity"
    name: ClassVar[str] = "custom"
    metric: ClassVar[str] = "rmse"

    def parameters(self) -> dict[str, Any]:
        return {"outputs": self.outputs, "link": self.link}

    def default_metric(self) -> str:
        return "rmse" if self.link == "identity" else "log_loss"

    def response(self, scores: Scores) -> FloatArray:
        """Scores by the link that the task expects: of labels log-odds, of classes logits, of numbers themselves."""
        built_in = {"logistic": Logistic(), "softmax": Softmax(self.outputs)}
        return built_in[self.link].response(scores) if self.link in built_in else scores

    def n_outputs(self, y: FloatArray) -> int:
        return self.outputs

    def loss(self, y: FloatArray, scores: Scores) -> FloatArray:
        raise ValueError("a custom objective gives derivatives, not a loss; name a metric with eval_metric")

    def derivatives(self, y: FloatArray, scores: Scores, weight: FloatArray) -> tuple[Scores, FloatArray]:
        if self.function is None:
            raise ValueError("this model was trained with a custom objective; pass the function to train it further")
        given = scores[:, 0] if self.outputs == 1 else scores
        result = self.function(y, given, weight)
        if not isinstance(result, tuple) or len(result) != 2:
            raise ValueError(f"objective must return the pair (gradient, Hessian), got {type(result).__name__}")
        g = self._checked("gradient", result[0], (scores.shape,))
        h = self._checked("Hessian", result[1], (scores.shape, (len(scores),)))
        shared = h[:, 0] if h.ndim == 2 and self.outputs == 1 else h
        return g, np.maximum(shared, 0.0)

    def _checked(self, what: str, values: Any, shapes: tuple[tuple[int, ...], ...]) -> FloatArray:
        try:
            array = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"objective must return a {what} of numbers, got {values!r:.80}") from None
        if self.outputs == 1 and array.ndim == 1:
            array = array[:, None]
        if array.shape not in shapes:
            wanted = " or ".join(str(s if self.outputs > 1 else s[:1]) for s in shapes)
            raise ValueError(f"objective must return a {what} of shape {wanted}, got {np.shape(values)}")
        if not np.isfinite(array).all():
            raise ValueError(f"objective returned a {what} that is not finite; check it for division by zero or log(0)")
        return array

    def start(self, y: FloatArray, weight: FloatArray, collective: Collective) -> FloatArray:
        constant = np.zeros(self.outputs)
        for _ in range(50):
            g, h = self.derivatives(y, np.tile(constant, (len(y), 1)), weight)
            gradient = collective.sum(g.sum(axis=0))
            hessian = collective.sum((h if h.ndim == 2 else h[:, None]).sum(axis=0))
            step = np.asarray(gradient / np.maximum(hessian, np.finfo(np.float64).tiny))
            constant = constant - step
            if not np.isfinite(constant).all():
                break
            if np.abs(step).max() <= 1e-10 * (1.0 + np.abs(constant).max()):
                return np.asarray(constant)
        return np.zeros(self.outputs)
