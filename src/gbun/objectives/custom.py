"""The user's own objective: a function of (y, scores, weight) that returns (gradient, Hessian)."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gbun.arrays import Array, host, is_tensor, like, namespace
from gbun.collectives import Collective
from gbun.dtypes import FloatArray
from gbun.objectives.base import Objective, Scores, column
from gbun.objectives.classification import Logistic, Softmax

ObjectiveFunction = Callable[[FloatArray, FloatArray, FloatArray], tuple[FloatArray, FloatArray]]
LINKS = ("identity", "logistic", "softmax")
PIECE = 2**18  # scores that a function sees at a time where all rows are asked about


class OwnObjective(Objective):
    """What objectives that users write have in common: outputs, a link, and a search for the best constant.

    They are stored as "custom", without their function: a loaded model predicts as before, and training goes on where
    the objective is passed again.
    """

    name: ClassVar[str] = "custom"
    metric: ClassVar[str] = "rmse"
    pitfalls: ClassVar[str] = "division by zero, log(0) and overflow"
    outputs: int | None
    link: str | None

    def parameters(self) -> dict[str, Any]:
        return {"outputs": self.outputs, "link": self.link}

    def default_metric(self) -> Any:
        return "rmse" if self.link in (None, "identity") else "log_loss"

    def n_outputs(self, y: FloatArray) -> int:
        return super().n_outputs(y) if self.outputs is None else self.outputs

    def n_grams(self, n_scores: int) -> int:
        return n_scores

    def response(self, scores: Scores) -> Array:
        """Scores by the link that the task expects: of labels log-odds, of classes logits, of numbers themselves."""
        built_in = {"logistic": Logistic(), "softmax": Softmax()}
        return built_in[self.link].response(scores) if self.link in built_in else scores

    @abstractmethod
    def evaluated(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        """`derivatives` before it is known whether they are finite: the right shapes, no negative Hessian."""

    def derivatives(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        g, h = self.evaluated(y, scores, weight)
        for what, values in (("gradient", g), ("Hessian", h)):
            finite = namespace(values).isfinite(values)
            if not finite.all():
                i = int(column(host(finite)).all(axis=1).argmin())
                raise ValueError(
                    f"objective returned a {what} that is not finite for y = {host(y[i])}, scores = {host(scores[i])}; "
                    f"check it for {self.pitfalls}"
                )
        return g, h

    def sums(self, y: FloatArray, weight: FloatArray, collective: Collective) -> Callable[[FloatArray], FloatArray]:
        """Gradient and Hessian of all rows at a constant, 2 x C."""
        C = self.n_outputs(y)

        def at(constant: FloatArray) -> FloatArray:
            total = np.zeros((2, C))
            with np.errstate(all="ignore"):  # whoever goes too far will notice
                for rows in pieces(len(y), C):
                    scores = np.tile(constant, (rows.stop - rows.start, 1))
                    for sum_, values in zip(total, self.evaluated(y[rows], scores, weight[rows]), strict=True):
                        sum_ += column(values).sum(axis=0)
            return collective.sum(total)

        return at

    def start(self, y: FloatArray, weight: FloatArray, collective: Collective) -> FloatArray:
        constant, converged = best_constant(self.sums(y, weight, collective), self.n_outputs(y))
        return constant if converged else np.zeros_like(constant)


def pieces(n_rows: int, n_scores: int) -> list[slice]:
    """Rows in pieces of about 2^18 scores."""
    size = max(256, PIECE // n_scores)
    return [slice(i, min(i + size, n_rows)) for i in range(0, n_rows, size)]


def best_constant(
    sums: Callable[[FloatArray], FloatArray], n_outputs: int, most: int = 100, tolerance: float = 1e-10
) -> tuple[FloatArray, bool]:
    """Where the gradient vanishes, from 0 by Newton's steps, and whether it was found.

    `sums` gives gradient and Hessian of all rows at a constant. Each output has its own reach, by which its step is
    multiplied: halved where the gradient would change its sign and grow, doubled where it hardly falls. So a
    Hessian may be wrong by any factor, or 0: then the step is 1.

    >>> constant, found = best_constant(lambda s: np.array([np.exp(s) - 3.0, np.exp(s)]), 1)
    >>> np.exp(constant).round(9), found
    (array([3.]), True)
    """
    constant, reach = np.zeros(n_outputs), np.ones(n_outputs)
    g, h = sums(constant)
    if not np.isfinite([g, h]).all():
        return constant, False
    for _ in range(most):
        with np.errstate(over="ignore"):  # what is too long comes back infinite
            step = reach * np.divide(-g, h, out=-np.sign(g), where=h > 0.0)
        to = constant + step
        new_g, new_h = sums(to)
        if not np.isfinite([new_g, new_h]).all():
            reach /= 4.0
            continue
        too_far = (np.sign(new_g) == -np.sign(g)) & (np.abs(new_g) > np.abs(g))
        if too_far.any():
            reach[too_far] /= 2.0
        else:
            hardly = (np.sign(new_g) == np.sign(g)) & (np.abs(new_g) > 0.3 * np.abs(g))
            reach = np.where(hardly, 2.0 * reach, np.minimum(reach, 1.0))
            constant, g, h = to, new_g, new_h
        if np.abs(step).max() <= tolerance * (1.0 + np.abs(constant).max()):
            return constant, True
    return constant, False


@dataclass(frozen=True)
class Custom(OwnObjective):
    """Wraps `function(y, scores, weight) -> (gradient, Hessian)`.

    With one output, scores, gradient and Hessian are vectors of n numbers; with C outputs they are n x C, and the
    Hessian may also be n numbers shared by all outputs. The function applies the weights itself. It is called on
    chunks of rows, by several threads at once, so a row's derivatives must depend on that row only and the function
    must not keep state. Negative Hessian values are raised to 0:
    such a row pulls by its gradient and does not shorten the step. Boosting starts from the constant that makes
    the Newton step vanish (found by iteration), or from 0 where that does not converge.

    Arrays are NumPy's wherever rows are computed: those of a device are copied to the host and back. The function is
    never called without rows. Who has none of his own, and has not seen it answer, asks about a made-up row, whose
    targets and weight are 1 and whose scores are 0, whether its Hessian is shared.

    A loaded model has no function: it predicts scores as before and cannot be trained further.
    """

    function: ObjectiveFunction | None
    outputs: int = 1
    link: str = "identity"

    def __post_init__(self) -> None:
        if isinstance(self.function, type) and issubclass(self.function, Objective):
            name = self.function.__name__
            raise ValueError(f"objective must be an object, got the class {name}; use {name}(...)")
        if self.function is not None and not _takes_three(self.function):
            raise ValueError(
                "objective must be a function of three arguments, (y, scores, weight) -> (gradient, Hessian), got "
                f"{self.function!r}; a loss of (y, scores) that is written in torch becomes one by gbun.TorchLoss(...)"
            )

    def loss(self, y: Array, scores: Scores) -> Array:
        raise ValueError("a custom objective gives derivatives, not a loss; name a metric with eval_metric")

    def evaluated(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        if self.function is None:
            raise ValueError("this model was trained with a custom objective; pass the function to train it further")
        if not len(scores):
            return scores, scores[:, 0] if self._is_shared(y, scores) else scores
        given = scores[:, 0] if self.outputs == 1 else scores
        result = self.function(host(y), host(given), host(weight))
        if not isinstance(result, tuple) or len(result) != 2:
            raise ValueError(f"objective must return the pair (gradient, Hessian), got {type(result).__name__}")
        shape = tuple(scores.shape)
        g = self._checked("gradient", result[0], (shape,))
        h = self._checked("Hessian", result[1], (shape, shape[:1]))
        shared = h[:, 0] if h.ndim == 2 and self.outputs == 1 else h
        h = np.maximum(shared, 0.0)
        self.__dict__["_shared"] = h.ndim == 1
        return (like(g, scores), like(h, scores)) if is_tensor(scores) else (g, h)

    def _is_shared(self, y: Array, scores: Scores) -> bool:
        """Whether the function gives a row one Hessian for all its outputs."""
        if self.outputs > 1 and "_shared" not in self.__dict__:
            with np.errstate(all="ignore"):
                self.evaluated(np.ones((1, *y.shape[1:])), np.zeros((1, *scores.shape[1:])), np.ones(1))
        return bool(self.outputs == 1 or self.__dict__["_shared"])

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
        return array


def _takes_three(function: Callable[..., Any]) -> bool:
    """Whether a function can be called with three arguments; True where nobody can tell."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(None, None, None)
    except TypeError:
        return False
    return True
