"""The fitted ensemble: the start, recipes, normalisations and heads; and the running scores of a set of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gbun.arrays import Array, host
from gbun.data.features import Features, Shard
from gbun.data.scaling import Scaling
from gbun.devices import Device, TorchDevice
from gbun.dtypes import MEMBERSHIP, SUM, FloatArray
from gbun.kernels import BatchedKernels, BatchedTrainingKernels, DevicePlan, Kernels, Plan, Step, TrainingKernels, place
from gbun.kernels.dispatch import Derivatives, Picker
from gbun.kernels.threads import Threads
from gbun.linear import LinearStart
from gbun.networks import Family, Network
from gbun.objectives import Objective
from gbun.solve import Normaliser


@dataclass(frozen=True)
class Ensemble:
    """scores(x) = start + phi(x) theta + sum_t P_t(x) W_t: a start, constant or linear; T networks by recipe, their
    normalisation (T x K) and heads (T x K x C).

    Heads are stored as they are added: shrinkage and step length are multiplied in.
    """

    family: Family
    scaling: Scaling
    objective: Objective
    start: FloatArray
    centres: FloatArray
    factors: FloatArray
    heads: FloatArray
    linear: LinearStart | None = None

    @property
    def n_rounds(self) -> int:
        return len(self.heads)

    @property
    def n_scores(self) -> int:
        return len(self.start)

    def first(self, n_rounds: int) -> Ensemble:
        """The ensemble as it was after `n_rounds` rounds."""
        return replace(
            self,
            centres=self.centres[:n_rounds],
            factors=self.factors[:n_rounds],
            heads=self.heads[:n_rounds],
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "steps"}

    @cached_property
    def steps(self) -> list[Step]:
        """The rounds as rows meet them; kept, so that the next rows find the networks' seeds."""
        return [
            step_of(self.family.draw(t), Normaliser(self.centres[t], self.factors[t]), self.heads[t])
            for t in range(self.n_rounds)
        ]

    def staged_scores(self, rows: Rows) -> Iterator[FloatArray]:
        """Scores after 0, 1, ..., T rounds; the same array each time, growing."""
        yield host(rows.scores)
        for step in self.steps:
            rows.add_rounds([step])
            yield host(rows.scores)

    def scores(self, rows: Rows) -> FloatArray:
        rows.add_rounds(self.steps)
        return host(rows.scores)


def step_of(network: Network, normaliser: Normaliser, head: FloatArray) -> Step:
    return Step(network, normaliser.centre, tempered(normaliser, network.family), head)


def tempered(normaliser: Normaliser, family: Family) -> FloatArray:
    """The factor that normalises outputs and applies the temperature: softmax of tau x normalised output."""
    return np.asarray(normaliser.factor * MEMBERSHIP(family.temperature))


class Rows:
    """Rows on their way through the rounds: their features, scaled, and their scores so far.

    On a device, `budget` is how much of its memory they may take.
    """

    def __init__(
        self,
        features: Features,
        family: Family,
        start: FloatArray,
        base_margin: FloatArray | None,
        threads: Threads,
        network: str = "auto",
        linear: LinearStart | None = None,
        device: Device | None = None,
        budget: int = 0,
    ) -> None:
        device = device or Device()
        self.kernels: Kernels | BatchedKernels
        if isinstance(device, TorchDevice):
            placement = place(features, family.n_outputs, len(start), budget, device)
            self.kernels = BatchedKernels(features, family, len(start), device, placement)
        else:
            self.kernels = Kernels(features, family, len(start), threads, network)
        self.family = family
        scores = start_scores(features, start, base_margin, linear, threads)
        self.scores: Array = device.put(scores, device.score_dtype)

    def rehearse(self) -> None:
        """A round whose step is zero: if a device's memory is too small for it, that is found out before the first."""
        self.add_rounds([zero_step(self.family, self.scores.shape[1])])

    def add_rounds(self, steps: Sequence[Step]) -> None:
        """scores += P W, for one round after the other."""
        self.kernels.add_rounds(steps, self.scores)


class TrainingRows:
    """The rows a model learns from: a round takes two passes over them, and they wait for the head in between.

    The step of a round is added by the next pass that has every chunk in its cache anyway: the first of the next round,
    or, where that was forwarded before the step was known, the second. Whoever asks for the scores gets them complete.
    """

    def __init__(
        self,
        features: Features,
        family: Family,
        start: FloatArray,
        shard: Shard,
        threads: Threads,
        plan: Plan | DevicePlan,
        exact: bool,
        linear: LinearStart | None = None,
        device: Device | None = None,
    ) -> None:
        """`features` are those of `shard`, scaled."""
        self.plan, self.family, self.device, self.few = plan, family, device or Device(), exact
        self.kernels: TrainingKernels | BatchedTrainingKernels
        if isinstance(plan, DevicePlan):
            self.kernels = BatchedTrainingKernels(features, family, len(start), plan, self.device, shard.weight, exact)
        else:
            self.kernels = TrainingKernels(features, family, len(start), plan, threads, shard.weight, exact)
        put, dtype = self.device.put, self.device.score_dtype
        self.y, self.weight = put(shard.y, dtype), put(shard.weight, dtype)
        self._scores: Array = put(start_scores(features, start, shard.base_margin, linear, threads), dtype)
        self._directions: Array = None
        self._waiting: FloatArray | None = None
        self._torn = False

    @property
    def scores(self) -> Array:
        if self._torn:
            raise RuntimeError("these rows were left in the middle of a round; go on from the model, with init_model")
        if self._waiting is not None:
            with self._whole():
                self.kernels.add_step(self._waiting, self._scores)
            self._waiting = None
        return self._scores

    def rehearse(self, objective: Objective) -> None:
        """Rounds whose steps are zero: if a device's memory is too small, that is found out before the first.

        The second of them adds the step of the one before, as all but the first do. A sample has all rows.
        """

        def derivatives(at: slice) -> tuple[Array, Array]:
            return objective.derivatives(self.y[at], self._scores[at], self.weight[at])

        def along(at: slice) -> Array:
            d = self._directions[at]
            return objective.along(self.y[at], self._scores[at] + 0.0 * d, self.weight[at], d)

        step, pick = zero_step(self.family, self._scores.shape[1]), all_rows if self.plan.gram_share < 1.0 else None
        for _ in range(2):
            (self.forward if self.plan.ahead else self.first_pass)(step.network)
            self.second_pass(Normaliser(step.centre, step.factor), derivatives, pick)
            if objective.line_search:
                self.directions(step.head)
                self.kernels.sum_rows(along)
            self.add(step.head)
        self._waiting = None

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Scores change chunk by chunk: all of them do, or these rows are of no more use."""
        try:
            yield
        except BaseException:
            self._torn = True
            raise

    def add_rounds(self, steps: Sequence[Step]) -> None:
        """Rounds that another training found."""
        self.kernels.add_rounds(steps, self.scores)

    def first_pass(self, network: Network) -> FloatArray:
        """scores += the step that waits; outputs of the network and their moments [sum w z ; sum w z^2]."""
        head, self._waiting = self._waiting, None
        with self._whole():
            return self.kernels.first_pass(network, head, self._scores)

    def forward(self, network: Network) -> FloatArray:
        """Outputs of the network and their moments, while a step is still to come."""
        return self.kernels.first_pass(network, None, self._scores)

    def second_pass(
        self, normaliser: Normaliser, derivatives: Derivatives, pick: Picker | None = None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """scores += the step that waits, if one does; memberships P, and of them A = P'HP, B = P'G and
        [sum h, sum h of the rows picked for A]."""
        head, self._waiting = self._waiting, None
        with self._whole():
            split = normaliser.centre, tempered(normaliser, self.family)
            return self.kernels.second_pass(*split, derivatives, pick, head, self._scores)

    @property
    def rounding(self) -> float | None:
        """How exact the normal equations are; None: as float64 is."""
        return None if self.kernels.exact else float(np.finfo(MEMBERSHIP).eps)

    def directions(self, head: FloatArray) -> Array:
        """P W, n x C, in the same place each time."""
        if self._directions is None:
            self._directions = self.device.empty(*self._scores.shape)
        self._directions[...] = 0.0
        self.kernels.add_step(head, self._directions)
        return self._directions

    def add(self, head: FloatArray) -> None:
        """scores += P W, in the next pass."""
        self._waiting = head


def scaled(features: Features, scaling: Scaling, device: Device) -> Features:
    """Features as the networks see them; of a tensor that the device has, no copy is made."""
    return scaling.apply(features, in_place=device.has(features.dense))


def zero_step(family: Family, n_scores: int) -> Step:
    """The first network with a head that adds nothing."""
    K = family.n_outputs
    none = np.zeros(K, dtype=MEMBERSHIP)
    return Step(family.draw(0), none, none, np.zeros((K, n_scores), dtype=MEMBERSHIP))


def all_rows(at: slice, h: FloatArray) -> tuple[Any, FloatArray]:
    """A sample that has every row."""
    return np.arange(len(h)), h


def start_scores(
    features: Features,
    start: FloatArray,
    base_margin: FloatArray | None,
    linear: LinearStart | None,
    threads: Threads,
) -> FloatArray:
    """A base margin takes the place of the start value, as a score that was known before."""
    scores = np.empty((features.n_rows, len(start)), dtype=SUM)
    scores[:] = start if base_margin is None else base_margin
    if linear is not None:
        scores += linear.scores(features, threads)
    return scores
