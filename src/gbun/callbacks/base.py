"""The interface of callbacks, and who calls them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from gbun.boosting import Training


Evaluations: TypeAlias = dict[str, dict[str, float]]
"""evaluation set -> metric -> value"""


@dataclass(frozen=True)
class RoundReport:
    """The number of a finished round (from 0), the metrics after it, and the seconds since training began."""

    round: int
    evaluations: Evaluations
    seconds: float


class Callback:
    """Base class of callbacks: it does nothing, subclasses override the methods they need."""

    last = False
    """Whether `after_training` is called after that of all other callbacks, which may still change the model."""
    during_trial = False
    """Whether it is also called in the trial, the training on part of the rows that finds the number of rounds."""
    during_race = False
    """Whether it is also called in the first rounds of a learner that a trial compares with others."""

    def before_training(self, training: Training, n_rounds: int) -> None: ...

    def after_start(self, training: Training, report: RoundReport) -> None:
        """Called before the first round with the metrics of the start; the report's round is one below the first."""

    def before_round(self, training: Training, round_: int) -> None:
        """Called for every training of a trial with several; all other methods only for the first of them."""

    def after_round(self, training: Training, report: RoundReport) -> bool:
        """Return True to stop training."""
        return False

    def after_training(self, training: Training) -> None: ...

    def on_failure(self, training: Training) -> None:
        """Called when a round raises, also on Ctrl-C; the training holds all complete rounds."""


class CallbackRunner:
    """Calls the callbacks of a training in order, and tells them when it fails."""

    def __init__(self, training: Training, callbacks: Sequence[Callback], n_rounds: int, first: int) -> None:
        self.training, self.n_rounds, self.first = training, n_rounds, first
        self.callbacks, self.active = sorted(callbacks, key=lambda c: c.last), list[Callback]()

    def __enter__(self) -> CallbackRunner:
        self.began = perf_counter()
        try:
            for callback in self.callbacks:
                callback.before_training(self.training, self.n_rounds)
                self.active.append(callback)
        except BaseException:
            self._notify_failure()
            raise
        return self

    def report(self, round_: int, evaluations: Evaluations) -> bool:
        """Report the metrics after a round, or before the first one; return whether a callback stops training."""
        report = RoundReport(round_, evaluations, perf_counter() - self.began)
        if round_ < self.first:
            for callback in self.active:
                callback.after_start(self.training, report)
            return False
        # A list, so that all callbacks are called.
        return any([callback.after_round(self.training, report) for callback in self.active])  # noqa: C419

    def before_round(self, run: Training, round_: int) -> None:
        for callback in self.active:
            callback.before_round(run, round_)

    def end(self) -> None:
        for callback in self.active:
            callback.after_training(self.training)

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None:
            self._notify_failure()

    def _notify_failure(self) -> None:
        errors = list[Exception]()
        for callback in self.active:
            try:
                callback.on_failure(self.training)
            except Exception as error:  # the others learn of the failure all the same
                errors.append(error)
        if errors:
            raise errors[0]


def check_at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
