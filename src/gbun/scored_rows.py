"""Rows and their running scores: rows that are predicted, and rows that a model learns from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from gbun.arrays import Array
from gbun.data.features import Features, Shard
from gbun.data.scaling import Scaling
from gbun.devices import Device
from gbun.dtypes import MEMBERSHIP, SUM, FloatArray, IntArray
from gbun.kernels import Plan, UnfusedKernels, network_kernels, network_training_kernels
from gbun.kernels.interface import (
    MAX_EXACT_ROWS,
    NetworkKernels,
    NormalEquations,
    RowKernels,
    RowSampler,
    TrainingKernels,
)
from gbun.kernels.sampling import row_curvature
from gbun.kernels.threads import ThreadPool
from gbun.learners import AnyLearner, DataIndependentLearner, Partition, RowTotals, Step, StepRun, group_steps
from gbun.linear import LinearStart
from gbun.networks import Family, Network
from gbun.objectives import Objective


@dataclass(frozen=True)
class Start:
    """Where scores begin: a constant for each score, plus phi(x) theta with a linear start."""

    constant: FloatArray
    linear: LinearStart | None = None

    @property
    def n_scores(self) -> int:
        return len(self.constant)

    def scores(self, features: Features, base_margin: FloatArray | None, threads: ThreadPool) -> FloatArray:
        """Compute the scores of n scaled rows before the first round, n x C; a base margin replaces the constant."""
        scores = np.empty((features.n_rows, self.n_scores), dtype=SUM)
        scores[:] = self.constant if base_margin is None else base_margin
        if self.linear is not None:
            scores += self.linear.scores(features, threads)
        return scores


@dataclass(frozen=True)
class Place:
    """Where rows are computed: on which device, by which threads of the host.

    `budget` is how many bytes of a device rows that are only predicted may take; `form` is `Plan.form`.
    """

    device: Device
    threads: ThreadPool
    budget: int = 0
    form: str = "auto"


class ScoredRows:
    """Scaled rows and their scores so far, to which finished rounds are added."""

    def __init__(self, features: Features, start: Start, base_margin: FloatArray | None, place: Place) -> None:
        self.features, self.place = features, place
        self._start, self._base_margin = start, base_margin
        self._kernels: dict[Family | None, RowKernels] = {}
        self.restart()

    def restart(self) -> None:
        """Bring the scores back to the start."""
        device, threads = self.place.device, self.place.threads
        scores = self._start.scores(self.features, self._base_margin, threads)
        self.scores: Array = device.put(scores, device.score_dtype)

    def add_rounds(self, steps: Sequence[Step]) -> None:
        """scores += P W, for one round after the other."""
        self.add_runs(group_steps(steps))

    def add_runs(self, runs: Sequence[StepRun]) -> None:
        """scores += P W, for rounds that are grouped already."""
        for run in runs:
            self._kernels_of(_family(run[0])).add_rounds(run, self.scores)

    def rehearse(self, learner: AnyLearner) -> None:
        """Add a round that changes nothing, to find out whether a device has the memory for it."""
        if isinstance(learner, DataIndependentLearner):
            self.add_rounds([empty_step(learner, self.scores.shape[1])])

    def _kernels_of(self, family: Family | None) -> RowKernels:
        """Kernels are made when the first round comes: a start alone needs none."""
        if family not in self._kernels:
            place, C = self.place, self.scores.shape[1]
            self._kernels[family] = (
                UnfusedKernels(self.features, place.threads)
                if family is None
                else network_kernels(self.features, family, C, place.threads, place.device, place.budget, place.form)
            )
        return self._kernels[family]


class TrainingRows:
    """The rows a model learns from, which wait for the head between the passes of a round.

    The step of a round is added by the next pass that has every chunk in its cache anyway: the forward pass of the next
    round, or, where that came before the step was known, the pass that makes the normal equations.
    """

    def __init__(
        self,
        shard: Shard,
        learner: AnyLearner,
        start: Start,
        objective: Objective,
        plan: Plan,
        totals: RowTotals,
        place: Place,
    ) -> None:
        """The features of `shard` are scaled."""
        self.features, self.learner, self.objective, self.plan = shard.features, learner, objective, plan
        self.totals, self.device, self.threads = totals, place.device, place.threads
        self.exact = totals.n_rows <= MAX_EXACT_ROWS  # sums are float64 throughout, where the device has it
        self._unfused = UnfusedKernels(self.features, place.threads)
        self.kernels: TrainingKernels = self._unfused  # those of the current round
        self._network: NetworkKernels | None = None
        if learner.family is not None:
            self.kernels = self._network = network_training_kernels(
                self.features, learner.family, plan, place.threads, self.device, shard.weight
            )
        put, dtype = self.device.put, self.device.score_dtype
        self.y, self.weight = put(shard.y, dtype), put(shard.weight, dtype)
        self._start, self._base_margin = start, shard.base_margin
        self._directions: Array = None
        self._torn = False
        self.restart()

    def restart(self) -> None:
        """Bring the scores back to the start."""
        scores = self._start.scores(self.features, self._base_margin, self.threads)
        self._scores: Array = self.device.put(scores, self.device.score_dtype)
        self._pending: FloatArray | None = None  # the head of a step that is not added yet

    @property
    def rounding(self) -> float | None:
        """How exact the normal equations are; None: as float64 is."""
        return None if self.kernels.exact else float(np.finfo(MEMBERSHIP).eps)

    def current_scores(self) -> Array:
        """Return the scores, n x C, after adding the step that is pending."""
        if self._torn:
            raise RuntimeError("these rows were left in the middle of a round; go on from the model, with init_model")
        if self._pending is not None:
            with self._step_to_add() as head:
                assert head is not None
                self.kernels.add_step(head, self._scores)
        return self._scores

    def derivatives(self, rows: slice) -> tuple[Array, Array]:
        """Compute g and h of the loss at the current scores of some rows."""
        return self.objective.derivatives(self.y[rows], self.current_scores()[rows], self.weight[rows])

    def forward(self, network: Network) -> FloatArray:
        """Add the pending step; compute the outputs Z of a network; return [sum w z; sum w z^2]."""
        kernels = self._network
        assert kernels is not None, "the learner has networks"
        self._switch_to(kernels)
        with self._step_to_add() as head:
            return kernels.first_pass(network, head, self._scores)

    def normal_equations(self, partition: Partition, pick: RowSampler | None = None) -> NormalEquations:
        """Add the pending step; compute memberships P, and A = P'HP, B = P'G of the rows of this worker.

        A is made of the rows that `pick` chooses.
        """
        self._switch_to(self._kernels_of(partition.network is not None))
        with self._step_to_add() as head:
            return self.kernels.normal_equations(partition, self.derivatives, pick, head, self._scores)

    def take_leaves(self, partition: Partition, leaves: IntArray) -> None:
        """Take the leaf of each row from the learner, which found them with the partition, one tree."""
        self.current_scores()
        self._switch_to(self._unfused)
        self._unfused.take_leaves(partition, leaves)

    def fill_leaf_derivatives(self, rows: slice, g: FloatArray, h: FloatArray) -> None:
        """Write g and h, one for each score, of the loss at the current scores of some rows, by the unit of weights."""
        unit, weight = self.totals.weight_unit, self.weight[rows]
        weight = weight if unit == 1.0 else weight / unit
        self.objective.fill_leaf_derivatives(self.y[rows], self.current_scores()[rows], weight, g, h)

    def add(self, head: FloatArray) -> None:
        """scores += P W, in the next pass."""
        self._pending = head

    def add_rounds(self, steps: Sequence[Step]) -> None:
        """Add rounds that another training found."""
        scores = self.current_scores()
        for run in group_steps(steps):
            self._kernels_of(_family(run[0]) is not None).add_rounds(run, scores)

    def directions(self, head: FloatArray) -> Array:
        """Compute P W, n x C, in the same place each time."""
        if self._directions is None:
            self._directions = self.device.empty(*self._scores.shape)
        self._directions[...] = 0.0
        self.kernels.add_step(head, self._directions)
        return self._directions

    def slope_along(self, directions: Array, alpha: float) -> FloatArray:
        """Compute slope and curvature of the loss of this worker's rows at scores + alpha directions, (2,)."""
        scores = self.current_scores()

        def part(rows: slice) -> Array:
            d = directions[rows]
            return self.objective.derivatives_along(self.y[rows], scores[rows] + alpha * d, self.weight[rows], d)

        return self.kernels.sum_rows(part)

    def curvature(self) -> FloatArray:
        """Sum h over the rows of this worker, at the current scores."""
        self.current_scores()
        return self.kernels.sum_rows(lambda rows: row_curvature(self.derivatives(rows)[1]).sum()[None])

    def rehearse(self) -> None:
        """Compute rounds that change nothing, to find out whether a device has the memory for them.

        Passes come in the order of a training. Where rounds are pipelined, two are forwarded ahead. A sample has all
        rows.
        """
        learner = self.learner
        if not isinstance(learner, DataIndependentLearner):
            return
        step, pick = empty_step(learner, self._scores.shape[1]), all_rows if self.plan.gram_share < 1.0 else None
        for action in "FFE F A E A E A" if self.plan.pipelined else "F E A F E A":
            if action == "F":
                learner.local_sums(0, self)
            elif action == "E":
                self.normal_equations(step.partition, pick)
                if self.objective.line_search:
                    self.slope_along(self.directions(step.head), 0.0)
            elif action == "A":
                self.add(step.head)
        self._pending = None

    def _kernels_of(self, of_network: bool) -> TrainingKernels:
        if not of_network:
            return self._unfused
        assert self._network is not None, "the learner has networks"
        return self._network

    def _switch_to(self, kernels: TrainingKernels) -> None:
        """Use these kernels from here on; the pending step belongs to those of its round."""
        if self.kernels is not kernels:
            self.current_scores()
            self.kernels = kernels

    @contextmanager
    def _step_to_add(self) -> Iterator[FloatArray | None]:
        """Give the head that is pending. Scores change chunk by chunk: all of them do, or these rows are of no use."""
        head, self._pending = self._pending, None
        try:
            yield head
        except BaseException:
            self._torn = True
            raise


def scale(features: Features, scaling: Scaling, device: Device, learner: AnyLearner, start: Start | None) -> Features:
    """Scale features as learner and start see them; a tensor that the device has is scaled when a batch of it is read.

    A learner that splits columns gets the user's columns too, and they are not scaled for it. A `start` of None may
    still become a linear one.
    """
    n, dense, sparse = features.n_rows, features.dense, features.sparse
    raw = dense if learner.splits_columns else None
    if raw is not None and learner.family is None and start is not None and start.linear is None:
        dense = None  # nobody looks at scaled columns
    rows = Features(n, dense, sparse, categories=features.categories)
    scaled = scaling.apply(rows, lazy=device.is_resident(dense))
    return Features(n, scaled.dense, scaled.sparse, raw, scaled.categories)


def empty_step(learner: DataIndependentLearner[Any], n_scores: int) -> Step:
    """Return a step of the first round that adds nothing."""
    partition = learner.from_array(0, learner.to_array(None))
    return Step(partition, np.zeros((learner.n_outputs, n_scores), dtype=MEMBERSHIP))


def all_rows(rows: slice, h: FloatArray) -> tuple[IntArray, FloatArray]:
    """Pick every row."""
    return np.arange(len(h)), h


def _family(step: Step) -> Family | None:
    network = step.partition.network
    return None if network is None else network.family
