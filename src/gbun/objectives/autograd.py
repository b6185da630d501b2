"""`TorchLoss`: an objective from a loss alone, which torch differentiates."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from gbun.arrays import Array, asarray_like, disable_autocast, is_tensor, load_torch, namespace, to_host
from gbun.collectives import Collective
from gbun.devices import HOST_THREADS
from gbun.dtypes import SUM, FloatArray
from gbun.metrics.function import RowMetric
from gbun.objectives.base import Scores, as_columns
from gbun.objectives.custom import LINKS, UserObjective, find_best_constant, split_rows

HESSIANS = ("exact", "gauss_newton")
EPS = float(np.finfo(SUM).eps)
MAX_START_RATIO = 1e9  # a start farther out, in units of the mean |y|, means that the loss has no minimum
# Words in the error messages of torch, and the mistake that they hint at.
SHAPE_ERROR_WORDS = ("size", "shape", "dimension", "Dimension", "out of bounds", "class probabilities")
DTYPE_ERROR_WORDS = ("dtype", "scalar type", "used as indices", "one_hot", "Long", "Int")

Tensor = Any
Torch = Any


@dataclass(frozen=True)
class TorchLoss(UserObjective):
    """Objective from a loss that is written in torch: `function(y, scores)` returns the loss of each row.

    The function is called on chunks of rows, by several threads at once: the loss of a row must depend on that row
    only, and the function must not keep state. It must not write to y. The loss must be bounded below; its scale does
    not matter. The losses are multiplied by the weights outside of the function.

    Parameters
    ----------
    function : callable
        Takes the tensors y, (n,) or (n, targets), of classes their numbers 0 .. C-1, and scores, (n,) with one output
        and (n, C) with several. Returns a tensor of n losses.
    outputs : int, optional
        C, the number of scores of a row. None: one for each target, or for each class (one for two classes).
    link : {"identity", "logistic", "softmax"}, optional
        What makes predictions of scores. None: the link of the task.
    hessian : {"exact", "gauss_newton"}
        "exact" is the second derivative by each score, for every loss that is not piecewise linear. It takes C more
        differentiations with C outputs. "gauss_newton" is h_c = g_c^2, the diagonal of gg', for negative
        log-likelihoods: the expectations of g^2 and of the second derivative are equal. It is never negative and takes
        no second differentiation, so it also serves piecewise linear losses.

    Notes
    -----
    A negative second derivative counts by its size, |h|. The step descends with |h| as with max(h, 0); but g / |h| is
    the distance over which the slope changes by all of itself, so about how far the slope can be trusted. With max(h,
    0) rows far out in a robust loss would have a gradient and no curvature, and steps would be far too long where there
    are many such rows. For a convex loss the two are the same.

    The diagonal ignores how outputs interact, and g^2 is a curvature on average only. So with several outputs, and with
    "gauss_newton", the length of each step is searched by g'd and the sum over rows of |d'Hd| (of (g'd)^2 with
    "gauss_newton").

    Examples
    --------
    >>> import torch
    >>> half_square = TorchLoss(lambda y, scores: (scores - y) ** 2 / 2)
    >>> half_square.derivatives(np.array([1.0]), np.array([[3.0]]), np.array([1.0]))
    (array([[2.]]), array([1.]))
    """

    function: Callable[[Tensor, Tensor], Tensor]
    outputs: int | None = field(default=None, kw_only=True)
    link: str | None = field(default=None, kw_only=True)
    hessian: str = field(default="exact", kw_only=True)
    score_bytes: ClassVar[int] = 240  # torch keeps the result of each operation
    pitfalls: ClassVar[str] = f"{UserObjective.pitfalls}, and torch.where, which differentiates both of its branches"

    def __post_init__(self) -> None:
        load_torch("TorchLoss")
        if not callable(self.function):
            raise ValueError(f"function must take (y, scores) and return the loss of each row, got {self.function!r}")
        is_integer = isinstance(self.outputs, Integral) and not isinstance(self.outputs, bool)
        if self.outputs is not None and not (is_integer and self.outputs > 0):
            raise ValueError(f"outputs must be a positive integer or None, got {self.outputs!r}")
        if self.link not in (None, *LINKS):
            raise ValueError(f"link must be one of {', '.join(map(repr, LINKS))} or None, got {self.link!r}")
        if self.hessian not in HESSIANS:
            raise ValueError(f"hessian must be one of {', '.join(map(repr, HESSIANS))}, got {self.hessian!r}")

    def resolve(self, outputs: int, link: str) -> TorchLoss:
        """Return this objective with the outputs and the link of the task where the user gave none."""
        return replace(self, outputs=self.outputs or outputs, link=self.link or link)

    @property
    def line_search(self) -> bool:  # type: ignore[override]
        return self.hessian == "gauss_newton" or (self.outputs or 1) > 1

    def loss(self, y: Array, scores: Scores) -> Array:
        losses = [self._compute_losses(y[rows], scores[rows]) for rows in split_rows(*scores.shape)]
        return namespace(scores).concat(losses) if losses else scores.sum(axis=1)

    def _compute_losses(self, y: Array, scores: Scores) -> Array:
        with enable_autograd(scores) as torch:
            s, losses = self._trace_losses(torch, y, scores)
            return _convert_back(losses.to(s.dtype), scores)

    def evaluate_unchecked(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        several = scores.shape[1] > 1
        if not len(scores):
            return scores, scores if several else scores[:, 0]
        with enable_autograd(scores) as torch:
            s, losses = self._trace_losses(torch, y, scores)
            g = self._gradient(torch, losses, s)
            g = torch.where(torch.isfinite(losses)[:, None], g, torch.nan)  # no loss, no slope, as of log(-1)
            h = g * g if self.hessian == "gauss_newton" else abs(_hessian_diagonal(torch, g, s))
            g, h = _convert_back(g, scores), _convert_back(h, scores)
        return g * weight[:, None], h * weight[:, None] if several else h[:, 0] * weight

    def derivatives_along(self, y: Array, scores: Scores, weight: Array, direction: Array) -> Array:
        if not len(scores):
            return asarray_like(np.zeros(2), scores)
        with enable_autograd(scores) as torch:
            s, losses = self._trace_losses(torch, y, scores)
            d = _as_tensor(torch, direction).to(s.dtype)
            slope = (self._gradient(torch, losses, s) * d).sum(dim=1)
            if self.hessian == "gauss_newton":
                curvature = slope * slope
            else:
                Hd = _derivative(torch, slope, s)
                curvature = torch.zeros_like(slope) if Hd is None else abs((Hd * d).sum(dim=1))
            slope, curvature = _convert_back(slope, scores), _convert_back(curvature, scores)
        return namespace(scores).stack([weight @ slope, weight @ curvature])

    def start(self, y: FloatArray, weight: FloatArray, collective: Collective) -> FloatArray:
        """Return the constant at which Newton's steps from 0 end, converged or not, unless 0 is better."""
        C = self.n_outputs(y)

        def total(constant: FloatArray) -> float:
            with np.errstate(all="ignore"):  # losses far away may overflow
                return sum(
                    float(weight[rows] @ self._compute_losses(y[rows], np.tile(constant, (rows.stop - rows.start, 1))))
                    for rows in split_rows(len(y), C)
                )

        sums, zero = self.make_derivative_sums(y, weight, collective), np.zeros(C)
        best, converged = find_best_constant(sums, C)
        size_of_y = np.abs(as_columns(y)).mean(axis=1) @ weight
        at_zero, at_best, size, n = collective.sum(
            np.array([total(zero), total(best), size_of_y, weight.sum()], dtype=SUM)
        )
        diverged = not converged and np.abs(best).max() > MAX_START_RATIO * (1.0 + size / n)
        if diverged and not at_best > at_zero:
            raise ValueError(
                "objective seems to have no minimum: the search for a constant to start from ran off to scores of "
                f"{np.array2string(best, precision=1)}, where the loss still falls; it must be bounded below"
            )
        start = best if at_best <= at_zero else zero
        flat = np.flatnonzero(sums(start)[1] == 0.0)
        if len(flat):
            self._check_second_derivative(y, start)
            warnings.warn(
                f"objective has a second derivative of 0 by output(s) {flat[:5].tolist()} for every row at the start: "
                "nothing tells how long a step should be, and none is taken while that is so; use "
                "hessian='gauss_newton', or a loss that bends",
                stacklevel=2,
            )
        return start

    def _check_second_derivative(self, y: FloatArray, start: FloatArray) -> None:
        """Raise a ValueError if torch finds a second derivative of 0 although the slope changes."""
        few = y[:64]
        near = [np.tile(start + step, (len(few), 1)) for step in (0.0, 1e-3)]
        slope, slope_beside = (to_host(self.derivatives(few, s, np.ones(len(few)))[0]) for s in near)
        changed = np.mean(~np.isclose(slope, slope_beside, rtol=1e-6, atol=1e-12)) if len(few) else 0.0
        if changed > 0.5 and self.hessian == "exact":  # few rows are at a kink
            raise ValueError(
                "objective has a slope that changes, but torch finds no second derivative: it cannot differentiate a "
                "compiled or once-differentiable function twice; use hessian='gauss_newton', or plain operations"
            )

    def default_metric(self) -> Any:
        return RowMetric("loss", self._loss_of_response)

    def _loss_of_response(self, y: FloatArray, response: FloatArray) -> Array:
        """Return the loss at the scores of this response; for the softmax, at the log-probabilities."""
        if self.link not in ("logistic", "softmax"):
            return self.loss(y, response)
        q = response.clip(EPS, 1.0 - EPS)  # clipped as in log_loss
        return self.loss(y, np.log(q) - np.log1p(-q) if self.link == "logistic" else np.log(q))

    def _trace_losses(self, torch: Torch, y: Array, scores: Scores) -> tuple[Tensor, Tensor]:
        """Return the scores as a tensor that torch tracks, (n, C), and the losses of the function."""
        s, target = _as_tensor(torch, scores).detach().requires_grad_(), _as_tensor(torch, y)
        version = target._version
        try:
            losses = self.function(target, s if s.shape[1] > 1 else s[:, 0])
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError) as error:
            if "numpy()" in str(error):  # torch advises to detach, which is a mistake too
                raise ValueError(_make_untraceable_message("an array of NumPy")) from error
            if isinstance(error, torch.OutOfMemoryError) or "memory" in str(error) or "float64" in str(error):
                raise
            shape = tuple(s.shape if s.shape[1] > 1 else s.shape[:1])
            raise ValueError(
                f"objective: the loss failed with y of shape {tuple(y.shape)} and scores of shape {shape}: {error}"
                f"{_suggest_fix(str(error))}"
            ) from error
        if target._version != version:
            raise ValueError("objective must not write to y, whose targets all rounds share; use y.clone()")
        is_torch = torch.is_tensor(losses)
        if not is_torch or losses.shape != (len(s),) or not losses.is_floating_point():
            what = f"{losses.dtype} of shape {tuple(losses.shape)}" if is_torch else type(losses).__name__
            raise ValueError(
                f"objective must return the loss of each row, a tensor of floats of shape ({len(s)},), got {what}; sum "
                "over outputs, but neither sum nor average over rows (reduction='none')"
            )
        return s, losses

    def _gradient(self, torch: Torch, losses: Tensor, s: Tensor) -> Tensor:
        g = _derivative(torch, losses, s, twice=self.hessian == "exact")
        if g is None:
            raise ValueError(_make_untraceable_message("a tensor that does not depend on them"))
        return g


def _make_untraceable_message(what: str) -> str:
    return (
        f"objective must return losses that torch can follow back to the scores, got {what}; use torch's functions "
        "alone, without NumPy, .detach(), .item() and torch.no_grad()"
    )


def _suggest_fix(message: str) -> str:
    """Return advice for error messages of torch about shapes and dtypes."""
    if any(word in message for word in SHAPE_ERROR_WORDS):
        return "; outputs=... says how many scores a row has"
    if any(word in message for word in DTYPE_ERROR_WORDS):
        return "; y and scores are floats, also of classes: y.long() makes indices, y.new_tensor(...) constants"
    return ""


def _derivative(torch: Torch, values: Tensor, s: Tensor, twice: bool = False) -> Tensor | None:
    """Return d (sum of values) / ds, row by row; None if the values do not depend on s."""
    if not values.requires_grad:
        return None
    return torch.autograd.grad(values.sum(), s, create_graph=twice, retain_graph=True, allow_unused=True)[0]


def _hessian_diagonal(torch: Torch, g: Tensor, s: Tensor) -> Tensor:
    """Return d g_c / d s_c, one output after the other: all at once would take C times the memory."""
    h = torch.zeros_like(s)  # as it stays for a loss that is linear in its scores
    for c in range(s.shape[1]):
        row = _derivative(torch, g[:, c], s)
        if row is not None:
            h[:, c] = row[:, c]
    return h


def _as_tensor(torch: Torch, values: Array) -> Tensor:
    """Return an array as a tensor that shares its memory, and a copy of a tensor that was made in inference mode."""
    if not is_tensor(values):
        return torch.from_numpy(np.require(values, requirements="W"))
    return values.clone() if values.is_inference() else values


def _convert_back(values: Tensor, scores: Scores) -> Array:
    """Return a result without its graph, in the library of the scores."""
    return values.detach() if is_tensor(scores) else to_host(values)


@contextmanager
def enable_autograd(scores: Scores) -> Iterator[Torch]:
    """Give torch with gradients on and autocast off, whatever holds outside; for NumPy arrays, with one thread."""
    torch = load_torch("TorchLoss")
    kind = scores.device.type if is_tensor(scores) else "cpu"
    with torch.inference_mode(False), torch.enable_grad(), disable_autocast(torch, kind):
        if is_tensor(scores):
            yield torch
        else:
            with HOST_THREADS.limit(torch, 1):  # so that the number of threads changes no bit
                yield torch
