"""An objective made of a loss alone: torch differentiates it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from gbun.arrays import Array, host, is_tensor, like, load_torch, namespace, without_autocast
from gbun.collectives import Collective
from gbun.devices import HOST_THREADS
from gbun.dtypes import SUM, FloatArray
from gbun.metrics.function import RowMetric
from gbun.objectives.base import Scores, column
from gbun.objectives.custom import LINKS, OwnObjective, best_constant, pieces

HESSIANS = ("exact", "gauss_newton")
EPS = float(np.finfo(SUM).eps)
OF_SHAPES = ("size", "shape", "dimension", "Dimension", "out of bounds", "class probabilities")  # as torch says it
OF_KINDS = ("dtype", "scalar type", "used as indices", "one_hot", "Long", "Int")
FAR = 1e9  # in sizes of y: no constant to start from is there

Tensor = Any
Torch = Any


@dataclass(frozen=True)
class TorchLoss(OwnObjective):
    """An objective from `function(y, scores) -> the loss of each row`, written in torch.

    y is a tensor of n targets (of classes their numbers 0 .. C-1), or n x targets; scores of n with one output, n x C
    with several. The function returns n losses; weights are applied to them here. It is called on chunks of rows, by
    several threads at once, so a row's loss must depend on that row only and the function must not keep state. It must
    not write to y. The loss must be bounded below; its scale changes nothing.

    `outputs`: how many scores a row has; by default one for each target, or for each class (one for two classes).
    `link`: what makes predictions of scores, "identity", "logistic" or "softmax"; by default the one of the task.

    `hessian`: "exact" is the second derivative by each score, for every loss that bends; it takes C differentiations
    more with C outputs. "gauss_newton" is h_c = g_c^2, the diagonal of gg', for negative log-likelihoods: their
    expectations of g^2 and of the second derivative are the same. It is never negative and takes no second
    differentiation, so it is also what is left for losses of straight pieces.

    A negative second derivative counts by its size, |h|. Steps then go down, as they do with max(h, 0); but g / |h| is
    how far one must go for the slope to change by all of itself, so about how far it can be trusted: far out in
    a robust loss, it is a share of the way back. max(h, 0) would let such rows push without holding any, and steps run
    away where they are many. For a convex loss nothing changes.

    The diagonal says nothing of what outputs do to each other, and g^2 is a curvature on average only. So with several
    outputs, and with "gauss_newton", the length of each step is searched: by g'd and, for the same reason as above, the
    sum over rows of |d'Hd| (of (g'd)^2 with "gauss_newton").

    >>> import torch
    >>> half_square = TorchLoss(lambda y, scores: (scores - y) ** 2 / 2)
    >>> half_square.derivatives(np.array([1.0]), np.array([[3.0]]), np.array([1.0]))
    (array([[2.]]), array([1.]))
    """

    function: Callable[[Tensor, Tensor], Tensor]
    outputs: int | None = field(default=None, kw_only=True)
    link: str | None = field(default=None, kw_only=True)
    hessian: str = field(default="exact", kw_only=True)
    score_bytes: ClassVar[int] = 240  # what torch keeps of each step of the function
    pitfalls: ClassVar[str] = f"{OwnObjective.pitfalls}, and torch.where, which differentiates both of its branches"

    def __post_init__(self) -> None:
        load_torch("TorchLoss")
        if not callable(self.function):
            raise ValueError(f"function must take (y, scores) and return the loss of each row, got {self.function!r}")
        whole = isinstance(self.outputs, Integral) and not isinstance(self.outputs, bool)
        if self.outputs is not None and not (whole and self.outputs > 0):
            raise ValueError(f"outputs must be a positive integer or None, got {self.outputs!r}")
        if self.link not in (None, *LINKS):
            raise ValueError(f"link must be one of {', '.join(map(repr, LINKS))} or None, got {self.link!r}")
        if self.hessian not in HESSIANS:
            raise ValueError(f"hessian must be one of {', '.join(map(repr, HESSIANS))}, got {self.hessian!r}")

    def resolved(self, outputs: int, link: str) -> TorchLoss:
        """This objective with what the task says about what the user did not."""
        return replace(self, outputs=self.outputs or outputs, link=self.link or link)

    @property
    def line_search(self) -> bool:  # type: ignore[override]
        return self.hessian == "gauss_newton" or (self.outputs or 1) > 1

    def loss(self, y: Array, scores: Scores) -> Array:
        losses = [self._losses(y[at], scores[at]) for at in pieces(*scores.shape)]
        return namespace(scores).concat(losses) if losses else scores.sum(axis=1)

    def _losses(self, y: Array, scores: Scores) -> Array:
        with differentiation(scores) as torch:
            s, losses = self._traced(torch, y, scores)
            return _returned(losses.to(s.dtype), scores)

    def evaluated(self, y: Array, scores: Scores, weight: Array) -> tuple[Scores, Array]:
        several = scores.shape[1] > 1
        if not len(scores):
            return scores, scores if several else scores[:, 0]
        with differentiation(scores) as torch:
            s, losses = self._traced(torch, y, scores)
            g = self._gradient(torch, losses, s)
            g = torch.where(torch.isfinite(losses)[:, None], g, torch.nan)  # no loss, no slope: where log(-1) was taken
            h = g * g if self.hessian == "gauss_newton" else abs(_diagonal(torch, g, s))
            g, h = _returned(g, scores), _returned(h, scores)
        return g * weight[:, None], h * weight[:, None] if several else h[:, 0] * weight

    def along(self, y: Array, scores: Scores, weight: Array, direction: Array) -> Array:
        if not len(scores):
            return like(np.zeros(2), scores)
        with differentiation(scores) as torch:
            s, losses = self._traced(torch, y, scores)
            d = _tensor(torch, direction).to(s.dtype)
            slope = (self._gradient(torch, losses, s) * d).sum(dim=1)
            if self.hessian == "gauss_newton":
                curvature = slope * slope
            else:
                Hd = _derivative(torch, slope, s)
                curvature = torch.zeros_like(slope) if Hd is None else abs((Hd * d).sum(dim=1))
            slope, curvature = _returned(slope, scores), _returned(curvature, scores)
        return namespace(scores).stack([weight @ slope, weight @ curvature])

    def start(self, y: FloatArray, weight: FloatArray, collective: Collective) -> FloatArray:
        """The constant that Newton's steps from 0 find, wherever they end, unless 0 is better."""
        C = self.n_outputs(y)

        def total(constant: FloatArray) -> float:
            with np.errstate(all="ignore"):  # far away it may be beyond all numbers
                return sum(
                    float(weight[at] @ self._losses(y[at], np.tile(constant, (at.stop - at.start, 1))))
                    for at in pieces(len(y), C)
                )

        sums, zero = self.sums(y, weight, collective), np.zeros(C)
        found, converged = best_constant(sums, C)
        size_of_y = np.abs(column(y)).mean(axis=1) @ weight
        at_zero, at_found, size, n = collective.sum(
            np.array([total(zero), total(found), size_of_y, weight.sum()], dtype=SUM)
        )
        ran_off = not converged and np.abs(found).max() > FAR * (1.0 + size / n)
        if ran_off and not at_found > at_zero:
            raise ValueError(
                "objective seems to have no minimum: the search for a constant to start from ran off to scores of "
                f"{np.array2string(found, precision=1)}, where the loss still falls; it must be bounded below"
            )
        start = found if at_found <= at_zero else zero
        flat = np.flatnonzero(sums(start)[1] == 0.0)
        if len(flat):
            self._check_twice(y, start)
            warnings.warn(
                f"objective has a second derivative of 0 by output(s) {flat[:5].tolist()} for every row at the start: "
                "nothing tells how long a step should be, and none is taken while that is so; use "
                "hessian='gauss_newton', or a loss that bends",
                stacklevel=2,
            )
        return start

    def _check_twice(self, y: FloatArray, start: FloatArray) -> None:
        """A slope that changes has a second derivative, whatever torch says of functions it can follow only once."""
        few = y[:64]
        near = [np.tile(start + step, (len(few), 1)) for step in (0.0, 1e-3)]
        at, beside = (host(self.derivatives(few, s, np.ones(len(few)))[0]) for s in near)
        changed = np.mean(~np.isclose(at, beside, rtol=1e-6, atol=1e-12)) if len(few) else 0.0
        if changed > 0.5 and self.hessian == "exact":  # kinks are met by few
            raise ValueError(
                "objective has a slope that changes, but torch finds no second derivative: it cannot differentiate a "
                "compiled or once-differentiable function twice; use hessian='gauss_newton', or plain operations"
            )

    def default_metric(self) -> Any:
        return RowMetric("loss", self._loss_of)

    def _loss_of(self, y: FloatArray, response: FloatArray) -> Array:
        """The loss at the scores that have this response; of the softmax, those whose exponentials add up to 1."""
        if self.link not in ("logistic", "softmax"):
            return self.loss(y, response)
        q = response.clip(EPS, 1.0 - EPS)  # as far as log_loss looks
        return self.loss(y, np.log(q) - np.log1p(-q) if self.link == "logistic" else np.log(q))

    def _traced(self, torch: Torch, y: Array, scores: Scores) -> tuple[Tensor, Tensor]:
        """Scores that torch keeps track of, n x C, and the losses that the function makes of them."""
        s, target = _tensor(torch, scores).detach().requires_grad_(), _tensor(torch, y)
        unwritten = target._version
        try:
            losses = self.function(target, s if s.shape[1] > 1 else s[:, 0])
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError) as error:
            if "numpy()" in str(error):  # torch advises to detach, which would be the next mistake
                raise ValueError(_untraceable("an array of NumPy")) from error
            if isinstance(error, torch.OutOfMemoryError) or "memory" in str(error) or "float64" in str(error):
                raise
            of = tuple(s.shape if s.shape[1] > 1 else s.shape[:1])
            raise ValueError(
                f"objective: the loss failed with y of shape {tuple(y.shape)} and scores of shape {of}: {error}"
                f"{_advice(str(error))}"
            ) from error
        if target._version != unwritten:
            raise ValueError("objective must not write to y, whose targets all rounds share; use y.clone()")
        known = torch.is_tensor(losses)
        if not known or losses.shape != (len(s),) or not losses.is_floating_point():
            what = f"{losses.dtype} of shape {tuple(losses.shape)}" if known else type(losses).__name__
            raise ValueError(
                f"objective must return the loss of each row, a tensor of floats of shape ({len(s)},), got {what}; sum "
                "over outputs, but neither sum nor average over rows (reduction='none')"
            )
        return s, losses

    def _gradient(self, torch: Torch, losses: Tensor, s: Tensor) -> Tensor:
        g = _derivative(torch, losses, s, again=self.hessian == "exact")
        if g is None:
            raise ValueError(_untraceable("a tensor that does not depend on them"))
        return g


def _untraceable(what: str) -> str:
    return (
        f"objective must return losses that torch can follow back to the scores, got {what}; use torch's functions "
        "alone, without NumPy, .detach(), .item() and torch.no_grad()"
    )


def _advice(told: str) -> str:
    """What torch's complaints about shapes and kinds of numbers may come from."""
    if any(word in told for word in OF_SHAPES):
        return "; several scores a row are said with outputs=..."
    if any(word in told for word in OF_KINDS):
        return "; y and scores are floats, also of classes: y.long() makes indices, y.new_tensor(...) constants"
    return ""


def _derivative(torch: Torch, values: Tensor, s: Tensor, again: bool = False) -> Tensor | None:
    """d (sum of values) / ds, which is each row's own; None where no way leads from one to the other."""
    if not values.requires_grad:
        return None
    return torch.autograd.grad(values.sum(), s, create_graph=again, retain_graph=True, allow_unused=True)[0]


def _diagonal(torch: Torch, g: Tensor, s: Tensor) -> Tensor:
    """d g_c / d s_c, one output after the other: all at once would take C times the memory."""
    h = torch.zeros_like(s)  # which it is for a loss that is linear in its scores
    for c in range(s.shape[1]):
        found = _derivative(torch, g[:, c], s)
        if found is not None:
            h[:, c] = found[:, c]
    return h


def _tensor(torch: Torch, values: Array) -> Tensor:
    """An array as a tensor that shares its memory; of a tensor made in inference mode, which has no slopes, a copy."""
    if not is_tensor(values):
        return torch.from_numpy(np.require(values, requirements="W"))
    return values.clone() if values.is_inference() else values


def _returned(values: Tensor, scores: Scores) -> Array:
    """What was computed, without its history, in the library of the scores."""
    return values.detach() if is_tensor(scores) else host(values)


@contextmanager
def differentiation(scores: Scores) -> Iterator[Torch]:
    """torch, keeping track of what is computed, whatever holds outside; on the host's own kernels in one thread."""
    torch = load_torch("TorchLoss")
    kind = scores.device.type if is_tensor(scores) else "cpu"
    with torch.inference_mode(False), torch.enable_grad(), without_autocast(torch, kind):
        if is_tensor(scores):
            yield torch
        else:
            with HOST_THREADS.limited(torch, 1):  # a chunk is one thread's: so the number of threads changes no bit
                yield torch
