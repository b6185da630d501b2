"""Base learners: what divides the rows of a round, how a model file stores it, and where new kinds are registered.

A learner makes the partition of round t from rows and from sums over all workers' rows. A partition maps any rows to
memberships P, n x K: dense numbers, or one leaf of each of its trees. The boosting loop solves for the head W of the
round and adds P W to the scores; it knows nothing else about learners.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from gbun.arrays import Array
from gbun.collectives import Collective
from gbun.data.features import Features
from gbun.dtypes import MEMBERSHIP, FloatArray, IntArray, Reduce
from gbun.kernels.interface import NormalEquations
from gbun.kernels.threads import ThreadPool
from gbun.networks import Family, Network

USUAL_EXPONENT = 30  # of a mean weight, base 2: g and h then have room in float32

Arrays = Mapping[str, NDArray[Any]]


class Partition(ABC):
    """A map from rows to K memberships, described by a few numbers.

    A subclass overrides `memberships` (dense layout), or `leaves` and `n_trees` (a hard split).
    """

    n_trees: int = 0
    """0: dense memberships."""
    network: Network | None = None
    """The network whose kernels compute memberships, normal equations and steps, in passes of their own."""

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """K."""

    def memberships(self, features: Features) -> FloatArray:
        """Compute P of n scaled rows, float32 of shape (n, K); a hard split has ones at the leaves of a row."""
        P = np.zeros((features.n_rows, self.n_outputs), dtype=MEMBERSHIP)
        np.put_along_axis(P, self.leaves(features), 1.0, axis=1)
        return P

    def leaves(self, features: Features) -> IntArray:
        """Find the leaf of each of n scaled rows in each tree, integers of shape (n, n_trees) from 0 to K - 1.

        Leaves are numbered over all trees: those of the second tree follow those of the first.
        """
        raise NotImplementedError(f"{type(self).__name__} must have memberships or leaves")

    @classmethod
    def pack_steps(cls, steps: Sequence[Step]) -> Any:
        """Make of rounds of this kind, before any row is read, what `add_steps` finds in their `StepRun.packed`."""
        return None

    @classmethod
    def add_steps(cls, steps: StepRun, features: Features, scores: FloatArray) -> bool:
        """scores += P W for rounds of this kind, in their order; False where there is no faster way than `leaves`.

        Several threads call it, each with other rows. A row's bits must not depend on the rows beside it.
        """
        return False


@dataclass(frozen=True)
class Step:
    """One round of a model: scores += P W, with shrinkage and step length multiplied into the head W (K x C)."""

    partition: Partition
    head: FloatArray


class StepRun(tuple[Step, ...]):
    """Rounds of one kind, one after the other, and what their kind makes of them: once, for all rows to come."""

    _packed: Any = None

    @property
    def packed(self) -> Any:
        if self._packed is None:  # two threads may both make it: it is the same
            self._packed = type(self[0].partition).pack_steps(self)
        return self._packed


def group_steps(steps: Sequence[Step]) -> list[StepRun]:
    """Divide rounds where their kind changes, or the family of their networks."""
    if isinstance(steps, StepRun):
        return [steps]

    def kind(step: Step) -> tuple[Any, ...]:
        network = step.partition.network
        return type(step.partition), None if network is None else network.family

    return [StepRun(some) for _, some in groupby(steps, key=kind)]


@dataclass(frozen=True)
class RowTotals:
    """Of all workers' rows: how many there are, how many have a weight, and the sum of the weights."""

    n_rows: int
    n_weighted: int
    weight: float

    @property
    def weight_unit(self) -> float:
        """The power of two nearest to the mean weight, and 1 for usual ones: weights that float32 has room for.

        >>> RowTotals(10, 10, 25.0).weight_unit, RowTotals(10, 8, 1e-300).weight_unit == 2.0**-1000
        (1.0, True)
        """
        exponent = math.frexp(self.weight / max(1, self.n_weighted))[1]
        return 1.0 if abs(exponent) <= USUAL_EXPONENT else math.ldexp(1.0, exponent - 1)


class LearnerRows(Protocol):
    """What a learner may ask of the training rows of this worker."""

    totals: RowTotals

    @property
    def features(self) -> Features:
        """Scaled features."""

    @property
    def weight(self) -> Array: ...

    @property
    def y(self) -> Array: ...

    @property
    def threads(self) -> ThreadPool:
        """Threads of this training, to compute blocks of rows side by side."""

    def derivatives(self, rows: slice) -> tuple[Array, Array]:
        """Compute g (n x C) and h (n, or n x C) of the loss at the current scores; several threads may call it."""

    def fill_leaf_derivatives(self, rows: slice, g: FloatArray, h: FloatArray) -> None:
        """Write g and h of the loss, float32 of shape (n, C), where rows of a leaf share one value for each score.

        Both are in units of `totals.weight_unit`.
        """

    def current_scores(self) -> Array:
        """Return the scores, n x C, after adding the step before; call it before threads ask for derivatives."""

    def forward(self, network: Network) -> FloatArray:
        """Compute Z = X N and return [sum w z; sum w z^2], 2 x K."""


P = TypeVar("P", bound=Partition)


@dataclass(frozen=True)
class FittedRound(Generic[P]):
    """The partition of a round, and what the learner found out of it already.

    A learner that sums over the leaves of its one tree anyway gives the leaf of each of this worker's training rows,
    and the normal equations of all workers' rows. Otherwise both are computed from the partition.
    """

    partition: P
    leaves: IntArray | None = None
    equations: NormalEquations | None = None


class RoundFitter(Protocol):
    """A learner at work: what it keeps from round to round of one training."""

    def restart(self) -> None:
        """Forget all rounds: the scores are those of the start again."""

    def take_rounds(self, partitions: Sequence[Any]) -> None:
        """Take rounds that the model has already, before its own: what follows is as if it had made them."""

    def fit_round(self, t: int) -> FittedRound[Any]:
        """Make the partition of round t; every worker calls this and gets the same partition."""


@dataclass(frozen=True)
class StatelessFitter:
    """The rounds of a learner that keeps nothing."""

    learner: AnyLearner
    rows: LearnerRows
    reduce: Reduce

    def restart(self) -> None:
        """There is nothing to forget."""

    def take_rounds(self, partitions: Sequence[Any]) -> None:
        """Keep nothing of them."""

    def fit_round(self, t: int) -> FittedRound[Any]:
        partition = self.learner.fit_round(t, self.rows, self.reduce)
        if not isinstance(partition, Partition):
            raise TypeError(f"{type(self.learner).__name__}.fit_round must return a Partition, got {partition!r}")
        return FittedRound(partition)


class Learner(ABC, Generic[P]):
    """Makes the partition of each round.

    `parameters` and `from_parameters`, `pack` and `unpack` are what a model file needs: a JSON object that describes
    the learner, and arrays that describe its partitions.
    """

    kind: ClassVar[str]
    """The name of this learner in model files."""
    diagonal: ClassVar[bool] = False
    """Whether all its partitions have one tree: then A is diagonal, and is summed over all rows instead of a sample."""
    splits_columns: ClassVar[bool] = False
    """Whether it wants the dense columns as the user gave them, `Features.raw`."""
    uses_blas: ClassVar[bool] = True
    """Whether its partitions may call BLAS, which then has one thread while rows are predicted."""
    family: Family | None = None
    """Of the networks among its partitions; None where it makes none."""

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """K, or the largest K of a round."""

    @property
    def data_independent(self) -> bool:
        """Whether rounds can be computed ahead: those of a `DataIndependentLearner`."""
        return isinstance(self, DataIndependentLearner)

    @property
    def row_bytes(self) -> int:
        """Bytes of a training row that a round keeps between its passes: the planner's cost of this learner."""
        return 4 * self.n_outputs

    def begin(self, rows: LearnerRows, collective: Collective) -> RoundFitter:
        """Prepare the rounds of a training; every worker calls this once, at the scores of the start.

        Override it, or `fit_round`: a learner that keeps something from round to round, as bins of columns, returns an
        object that has it.
        """
        return StatelessFitter(self, rows, collective.sum)

    def fit_round(self, t: int, rows: LearnerRows, reduce: Reduce) -> P:
        """Make the partition of round t.

        Every worker calls this with its own rows and must return the same partition: whatever depends on rows goes
        through `reduce`.

        Parameters
        ----------
        t : int
            The round, from 0.
        rows : LearnerRows
            The training rows of this worker.
        reduce : callable
            Sums an array over all workers.

        Returns
        -------
        Partition
        """
        raise NotImplementedError(f"{type(self).__name__} must have begin or fit_round")

    def kept_bytes(self, n_rows: int, n_scores: int) -> int:
        """Return the bytes that its fitter keeps from round to round: another cost of the planner."""
        return 0

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """Return what a model file needs to make this learner again: JSON values by name."""

    @classmethod
    @abstractmethod
    def from_parameters(cls, parameters: Any, n_columns: int | None) -> Learner[P]:
        """Make the learner that a model file describes.

        Parameters
        ----------
        parameters : object
            What the file has, untrusted. Anything that `parameters` cannot have written must raise a ValueError.
        n_columns : int or None
            The number of columns of the model's input; None where features have names.
        """

    @abstractmethod
    def pack(self, partitions: Sequence[P]) -> Arrays:
        """Return the arrays from which `unpack` makes these partitions again."""

    @abstractmethod
    def unpack(self, arrays: Arrays, rounds: Sequence[int]) -> list[P]:
        """Make the partitions of these rounds.

        The arrays come from a file and are untrusted: names, dtypes, shapes and values that `pack` cannot have written
        must raise a ValueError.
        """


class DataIndependentLearner(Learner[P]):
    """A learner whose rounds depend on rows through one sum of fixed size, and not on scores.

    So the rounds ahead can be computed while the sums of this one travel.
    """

    @abstractmethod
    def local_sums(self, t: int, rows: LearnerRows) -> FloatArray:
        """Return what round t needs of this worker's rows, an array of the shape of `no_sums`."""

    @abstractmethod
    def no_sums(self) -> FloatArray:
        """Return the sums over no rows."""

    @abstractmethod
    def complete(self, t: int, sums: FloatArray, totals: RowTotals) -> P:
        """Make the partition of round t from the sums over all workers' rows."""

    @abstractmethod
    def to_array(self, partition: P | None) -> FloatArray:
        """Return an array that describes a partition, of the same shape for all rounds; None: zeros of that shape."""

    @abstractmethod
    def from_array(self, t: int, array: FloatArray) -> P:
        """Make the partition of round t that `to_array` described."""

    def fit_round(self, t: int, rows: LearnerRows, reduce: Reduce) -> P:
        return self.complete(t, reduce(self.local_sums(t, rows)), rows.totals)


AnyLearner = Learner[Any]
LEARNERS: dict[str, type[AnyLearner]] = {}
L = TypeVar("L", bound=type[AnyLearner])


def register_learner(learner: L) -> L:
    """Make a learner known by its kind, so that model files that name it can be read; use it as a class decorator."""
    known = LEARNERS.get(learner.kind, learner)
    if (known.__module__, known.__qualname__) != (learner.__module__, learner.__qualname__):
        home = f"{known.__module__}.{known.__qualname__}"
        raise ValueError(f"there is another learner of kind {learner.kind!r}, {home}; choose another kind")
    LEARNERS[learner.kind] = learner  # a notebook cell may define its class again
    return learner


def check_learner(learner: AnyLearner, n_columns: int | None) -> None:
    """Refuse a learner whose models could not be read back, before anything is trained."""
    if LEARNERS.get(learner.kind) is not type(learner):
        raise ValueError(
            f"learner {type(learner).__name__} is not registered under its kind {learner.kind!r}; decorate the class "
            "with gbun.learners.register_learner"
        )
    try:
        again = learner.from_parameters(json.loads(json.dumps(learner.parameters())), n_columns)
    except (TypeError, ValueError) as error:
        raise ValueError(f"learner {learner.kind!r} does not fit: {error}") from error
    if again.parameters() != learner.parameters():
        raise ValueError(f"learner {learner.kind!r}: from_parameters must make a learner with the same parameters")


def learner_from(kind: str, parameters: Any, n_columns: int | None) -> AnyLearner:
    """Make the learner that a model file describes."""
    if kind not in LEARNERS:
        raise ValueError(
            f"the model needs a learner of kind {kind!r}, and there are {sorted(LEARNERS)}; import the package that "
            "registers it before loading the model"
        )
    return LEARNERS[kind].from_parameters(parameters, n_columns)
