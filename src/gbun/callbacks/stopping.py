"""Callbacks that end a training: early stopping, a time budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gbun.boosting import Training

from gbun.callbacks.base import Callback, RoundReport, check_at_least_one


class EarlyStopping(Callback):
    """Stops after rounds without improvement, and keeps the model of the best round.

    With several metrics, an improvement of any of them counts: the best round is the last in which one of them was
    better than ever before. The start counts as well: if no round improves on it, no round is kept, and the best round
    is the one before the first.

    Parameters
    ----------
    rounds : int
        The number of rounds without improvement after which training stops.
    metric : str or list of str, optional
        The metrics to watch; the last one by default.
    name : str, optional
        The evaluation set to watch; the last one by default.
    min_delta, min_gain : float, default=0.0
        An improvement is more than `min_delta`, and more than `min_gain` times the best value so far.
    """

    def __init__(
        self, rounds: int, *, metric: str | Sequence[str] | None = None, name: str | None = None,
        min_delta: float = 0.0, min_gain: float = 0.0,
    ) -> None:  # fmt: skip
        check_at_least_one("rounds", rounds)
        if min_delta < 0:
            raise ValueError(f"min_delta must not be negative, got {min_delta}")
        if not 0 <= min_gain < 1:
            raise ValueError(f"min_gain must be in [0, 1), got {min_gain}")
        self.rounds, self.metric, self.name = rounds, metric, name
        self.min_delta, self.min_gain = min_delta, min_gain
        self.seen, self.planned, self.ran_out = -1, 0, False

    @property
    def metrics(self) -> list[str]:
        """The metrics that were asked for."""
        return [self.metric] if isinstance(self.metric, str) else list(self.metric or ())

    def before_training(self, training: Training, n_rounds: int) -> None:
        if not training.evaluations:
            raise ValueError("early stopping needs an evaluation set; pass evals= or eval_set=")
        sets, metrics = [e.name for e in training.evaluations], {m.name: m for m in training.metrics}
        self.watched_set = self.name or sets[-1]
        self.watched_metrics = self.metrics or [training.metrics[-1].name]
        if self.watched_set not in sets:
            raise ValueError(f"name must be one of the evaluation sets {sets}, got {self.name!r}")
        if not set(self.watched_metrics) <= metrics.keys():
            raise ValueError(f"metric must be one of the metrics {list(metrics)}, got {self.metric!r}")
        self.signs = {name: 1.0 if metrics[name].higher_is_better else -1.0 for name in self.watched_metrics}
        self.best_values = dict.fromkeys(self.watched_metrics, -math.inf)
        self.best_round, self.best_score = training.n_rounds - 1, math.nan
        self.seen, self.planned, self.ran_out = self.best_round, training.planned, False

    @property
    def was_cut_short(self) -> bool:
        """Whether training ended before patience did and before its last round: another callback ended it."""
        return not self.ran_out and self.seen + 1 < self.planned

    def after_start(self, training: Training, report: RoundReport) -> None:
        self.best_round = report.round
        self._update_best(report.evaluations[self.watched_set], report.round)

    def after_round(self, training: Training, report: RoundReport) -> bool:
        self.seen = report.round
        self.ran_out = self.update_and_check_patience(report.evaluations[self.watched_set], report.round)
        return self.ran_out

    def update_and_check_patience(self, metrics: Mapping[str, float], round_: int) -> bool:
        """Take in the metrics of a round; return whether there was no improvement for `rounds` rounds."""
        for name in self.watched_metrics:
            if math.isnan(metrics[name]):
                raise ValueError(
                    f"early stopping watches {name!r} on {self.watched_set!r}, which is not a number in "
                    f"round {round_}; choose another metric or a set with all classes"
                )
        self._update_best(metrics, round_)
        return round_ - self.best_round >= self.patience_after(round_ + 1)

    def patience_after(self, n_rounds: int) -> float:
        """Return how many rounds may pass without improvement after so many rounds."""
        return self.rounds

    def _update_best(self, metrics: Mapping[str, float], round_: int) -> None:
        for name, best in self.best_values.items():
            value = self.signs[name] * metrics[name]
            needed = max(self.min_delta, self.min_gain * abs(best)) if math.isfinite(best) else 0.0
            if value > best + needed:  # False for a start whose metric is nan
                self.best_values[name], self.best_round = value, round_
                self.best_score = metrics[self.watched_metrics[0]]

    def after_training(self, training: Training) -> None:
        training.keep_first(self.best_round + 1)
        training.best_round = self.best_round
        training.best_score = None if math.isnan(self.best_score) else self.best_score


class TimeBudget(Callback):
    """Stops after the round in which `seconds` of boosting have passed; a trial may take half of them.

    The time to read data and to fit the start does not count.
    """

    during_trial = True
    during_race = True

    def __init__(self, seconds: float) -> None:
        if not seconds > 0:
            raise ValueError(f"seconds must be positive, got {seconds}")
        self.seconds = seconds
        self.deadline = 0.0
        self._began: float | None = None  # the first of a trial's trainings

    def before_training(self, training: Training, n_rounds: int) -> None:
        began = perf_counter() if self._began is None else self._began
        self._began = began if training.trial else None
        self.deadline = began + (self.seconds / 2 if training.trial else self.seconds)

    def on_failure(self, training: Training) -> None:
        self._began = None  # the next training has all of the seconds

    def after_round(self, training: Training, report: RoundReport) -> bool:
        return perf_counter() >= self.deadline
