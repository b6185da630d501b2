"""Objectives that users write: a function (y, scores, weight) -> (gradient, Hessian), and what all of them share."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gbun.arrays import Array, asarray_like, is_tensor, namespace, to_host
from gbun.collectives import Collective
from gbun.dtypes import FloatArray
from gbun.objectives.base import Objective, Scores, as_columns
from gbun.objectives.classification import Logistic, Softmax

ObjectiveFunction = Callable[[FloatArray, FloatArray, FloatArray], tuple[FloatArray, FloatArray]]
LINKS = ("identity", "logistic", "softmax")
SCORES_PER_CHUNK = 2**18  # scores that a function gets at a time where all rows are evaluated


class UserObjective(Objective):
    """An objective that a user writes: a number of outputs, a link, and a search for the best constant.

    It is stored as "custom", without its function. A loaded model predicts as before; to train it further, pass the
    objective again.
    """

    name: ClassVar[str] = "custom"
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
        built_in = {"logistic": Logistic(), "softmax": Softmax()}
        return built_in[self.link].response(scores) if self.link in built_in else scores

    @abstractmethod
    def evaluate_unchecked(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        """Return what `derivatives` does, in the right shapes and with h >= 0, but perhaps not finite."""

    def derivatives(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        g, h = self.evaluate_unchecked(y, scores, weight)
        for what, values in (("gradient", g), ("Hessian", h)):
            finite = namespace(values).isfinite(values)
            if not finite.all():
                i = int(as_columns(to_host(finite)).all(axis=1).argmin())
                raise ValueError(
                    f"objective returned a {what} that is not finite for y = {to_host(y[i])}, "
                    f"scores = {to_host(scores[i])}; check it for {self.pitfalls}"
                )
        return g, h

    def make_derivative_sums(
        self, y: FloatArray, weight: FloatArray, collective: Collective
    ) -> Callable[[FloatArray], FloatArray]:
        """Return the function that sums gradient and Hessian at a constant over all workers' rows, (C,) -> (2, C)."""
        C = self.n_outputs(y)

        def derivative_sums(constant: FloatArray) -> FloatArray:
            total = np.zeros((2, C))
            with np.errstate(all="ignore"):  # the search handles steps that overflow
                for rows in split_rows(len(y), C):
                    scores = np.tile(constant, (rows.stop - rows.start, 1))
                    for sum_, values in zip(total, self.evaluate_unchecked(y[rows], scores, weight[rows]), strict=True):
                        sum_ += as_columns(values).sum(axis=0)
            return collective.sum(total)

        return derivative_sums

    def start(self, y: FloatArray, weight: FloatArray, collective: Collective) -> FloatArray:
        constant, converged = find_best_constant(self.make_derivative_sums(y, weight, collective), self.n_outputs(y))
        return constant if converged else np.zeros_like(constant)


def split_rows(n_rows: int, n_scores: int, scores_per_chunk: int = SCORES_PER_CHUNK) -> list[slice]:
    """Divide rows into chunks of about `scores_per_chunk` scores, and at least 256 rows."""
    size = max(256, scores_per_chunk // n_scores)
    return [slice(i, min(i + size, n_rows)) for i in range(0, n_rows, size)]


def find_best_constant(
    sums: Callable[[FloatArray], FloatArray], n_outputs: int, most: int = 100, tolerance: float = 1e-10
) -> tuple[FloatArray, bool]:
    """Find where the gradient vanishes by Newton's steps from 0; return the constant and whether the search converged.

    `sums` returns gradient and Hessian of all rows at a constant. The step of each output is multiplied by its reach,
    which is halved where the gradient would change its sign and grow, and doubled where the gradient hardly falls. So
    the Hessian may be wrong by any factor, or 0: then the step is 1.

    >>> constant, converged = find_best_constant(lambda s: np.array([np.exp(s) - 3.0, np.exp(s)]), 1)
    >>> np.exp(constant).round(9), converged
    (array([3.]), True)
    """
    constant, reach = np.zeros(n_outputs), np.ones(n_outputs)
    g, h = sums(constant)
    if not np.isfinite([g, h]).all():
        return constant, False
    for _ in range(most):
        with np.errstate(over="ignore"):  # sums at a constant that overflowed are not finite, and the reach shrinks
            step = reach * np.divide(-g, h, out=-np.sign(g), where=h > 0.0)
        candidate = constant + step
        new_g, new_h = sums(candidate)
        if not np.isfinite([new_g, new_h]).all():
            reach /= 4.0
            continue
        too_far = (np.sign(new_g) == -np.sign(g)) & (np.abs(new_g) > np.abs(g))
        if too_far.any():
            reach[too_far] /= 2.0
        else:
            hardly = (np.sign(new_g) == np.sign(g)) & (np.abs(new_g) > 0.3 * np.abs(g))
            reach = np.where(hardly, 2.0 * reach, np.minimum(reach, 1.0))
            constant, g, h = candidate, new_g, new_h
        if np.abs(step).max() <= tolerance * (1.0 + np.abs(constant).max()):
            return constant, True
    return constant, False


@dataclass(frozen=True)
class Custom(UserObjective):
    """Objective from a function (y, scores, weight) -> (gradient, Hessian).

    The function applies the weights itself. It is called on chunks of rows, by several threads at once: the derivatives
    of a row must depend on that row only, and the function must not keep state. It gets NumPy arrays; those of a device
    are copied to the host and back. It is never called without rows: a worker that has none calls it once with a
    made-up row (targets and weight 1, scores 0) to find out whether its Hessian is shared.

    Negative Hessian values are raised to 0: such a row pulls by its gradient and does not shorten the step. If they are
    negative in all rows at scores of 0, that is an error. Boosting
    starts from the constant at which the Newton step vanishes, or from 0 if the search for it does not converge.

    Parameters
    ----------
    function : callable or None
        y is float64 of shape (n,) or (n, targets), scores and gradient are (n,) with one output and (n, C) with
        several, weight is (n,). The Hessian has the shape of the gradient, or is (n,) if all outputs share it. None: of
        a loaded model, which predicts and cannot be trained further.
    outputs : int
        C, the number of scores of a row.
    link : {"identity", "logistic", "softmax"}
        What makes predictions of scores.
    """

    function: ObjectiveFunction | None
    outputs: int = 1
    link: str = "identity"

    def __post_init__(self) -> None:
        if isinstance(self.function, type) and issubclass(self.function, Objective):
            name = self.function.__name__
            raise ValueError(f"objective must be an object, got the class {name}; use {name}(...)")
        if self.function is None:
            return
        try:
            inspect.signature(self.function).bind(None, None, None)
        except TypeError:
            raise ValueError(
                "objective must be a function of three arguments, (y, scores, weight) -> (gradient, Hessian), got "
                f"{self.function!r}; a loss of (y, scores) that is written in torch becomes one by gbun.TorchLoss(...)"
            ) from None
        except ValueError:  # it has no signature, as functions of compiled modules
            return

    def loss(self, y: Array, scores: Scores) -> Array:
        raise ValueError("a custom objective gives derivatives, not a loss; name a metric with eval_metric")

    def evaluate_unchecked(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        if self.function is None:
            raise ValueError("this model was trained with a custom objective; pass the function to train it further")
        if not len(scores):
            return scores, scores[:, 0] if self._is_shared(y, scores) else scores
        g, h = self._call(y, scores, weight)
        h = np.maximum(h, 0.0)
        return (asarray_like(g, scores), asarray_like(h, scores)) if is_tensor(scores) else (g, h)

    def _call(self, y: Array, scores: Scores, weight: Array) -> tuple[FloatArray, FloatArray]:
        """Return gradient and Hessian as the function gives them, in the right shapes and on the host."""
        assert self.function is not None, "evaluate_unchecked has checked it"
        flat = scores[:, 0] if self.outputs == 1 else scores
        result = self.function(to_host(y), to_host(flat), to_host(weight))
        if not isinstance(result, tuple) or len(result) != 2:
            raise ValueError(f"objective must return the pair (gradient, Hessian), got {type(result).__name__}")
        shape = tuple(scores.shape)
        g = self._check_array("gradient", result[0], (shape,))
        h = self._check_array("Hessian", result[1], (shape, shape[:1]))
        h = h[:, 0] if h.ndim == 2 and self.outputs == 1 else h
        self.__dict__["_shared"] = h.ndim == 1
        return g, h

    def start(self, y: FloatArray, weight: FloatArray, collective: Collective) -> FloatArray:
        self._refuse_negative_hessian(y, weight, collective)
        return super().start(y, weight, collective)

    def _refuse_negative_hessian(self, y: FloatArray, weight: FloatArray, collective: Collective) -> None:
        """Raise an error if the Hessian is negative in some rows and positive in none: its sign is wrong."""
        signs = np.zeros(2)
        if self.function is not None:
            for rows in split_rows(len(y), self.outputs):
                scores = np.zeros((rows.stop - rows.start, self.outputs))
                with np.errstate(all="ignore"):
                    _, h = self._call(y[rows], scores, weight[rows])
                signs += (h > 0.0).sum(), (h < 0.0).sum()
        positive, negative = collective.sum(signs)
        if negative and not positive:
            raise ValueError(
                "objective returned a Hessian that is negative, or 0, in all rows for scores of 0; check its sign: the "
                "second derivative of a loss that has a minimum is positive somewhere"
            )

    def _is_shared(self, y: Array, scores: Scores) -> bool:
        """Return whether the function gives a row one Hessian for all its outputs."""
        if self.outputs > 1 and "_shared" not in self.__dict__:
            with np.errstate(all="ignore"):
                self.evaluate_unchecked(np.ones((1, *y.shape[1:])), np.zeros((1, *scores.shape[1:])), np.ones(1))
        return bool(self.outputs == 1 or self.__dict__["_shared"])

    def _check_array(self, what: str, values: Any, shapes: tuple[tuple[int, ...], ...]) -> FloatArray:
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
