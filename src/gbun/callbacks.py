"""Observers of a training run: progress, history, early stopping, checkpoints, learning rates, time budgets."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
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


class History(Callback):
    """Records the metrics of every round.

    Attributes
    ----------
    values : dict
        `values[set][metric]` is the list of values, one for each round.
    start : dict
        `start[set][metric]` is the value before the first round.
    seconds : list of float
        The time at the end of each round, since training began.
    n_resumed : int
        The number of rounds that were taken from a checkpoint.
    """

    during_trial = True
    n_resumed = 0

    def __init__(self) -> None:
        self.values: dict[str, dict[str, list[float]]] = {}
        self.start: Evaluations = {}
        self.seconds: list[float] = []

    def after_start(self, training: Training, report: RoundReport) -> None:
        self.start |= report.evaluations
        self.seconds, self.n_resumed = [], 0
        for name, metrics in report.evaluations.items():  # a second training of one trial, or another fit, begins anew
            self.values[name] = {metric: [] for metric in metrics}

    def after_round(self, training: Training, report: RoundReport) -> bool:
        self.seconds.append(report.seconds)
        self.n_resumed += report.round < training.n_resumed
        for name, metrics in report.evaluations.items():
            for metric, value in metrics.items():
                self.values.setdefault(name, {}).setdefault(metric, []).append(value)
        return False


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
        _check_at_least_one("rounds", rounds)
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


class Checkpoint(Callback):
    """Saves the model every few rounds, at the end, and when training is interrupted.

    The file is an ordinary model: load it, predict with it, or add rounds to it with `init_model`. With `resume`, an
    interrupted training continues from it. During a trial it holds the trial's model, which has seen part of the rows.

    Parameters
    ----------
    path : str or Path
        The file to write; its folder must exist.
    every : int, default=10
        The number of rounds between two checkpoints.
    """

    last = True  # early stopping removes rounds first
    during_trial = True

    def __init__(self, path: str | Path, every: int = 10) -> None:
        _check_at_least_one("every", every)
        self.path, self.every = Path(path), every

    def before_training(self, training: Training, n_rounds: int) -> None:
        if not self.path.parent.is_dir():
            raise FileNotFoundError(f"checkpoint folder {str(self.path.parent)!r} does not exist")
        from gbun.model_io.atomic import probe_target  # which the command line's help need not import

        probe_target(self.path)

    def after_round(self, training: Training, report: RoundReport) -> bool:
        if (report.round + 1) % self.every == 0:
            self._write(training)
        return False

    def after_training(self, training: Training) -> None:
        self._write(training)

    def on_failure(self, training: Training) -> None:
        if training.n_rounds:
            self._write(training)

    def _write(self, training: Training) -> None:
        if training.n_rounds >= training.n_resumed:  # before that, the file has more rounds
            training.checkpoint().save_model(self.path)


class LearningRateSchedule(Callback):
    """Sets the learning rate of each round.

    Parameters
    ----------
    schedule : callable
        `schedule(round) -> rate` with rounds from 0 and rates in (0, 1].

    Examples
    --------
    >>> LearningRateSchedule(lambda t: 0.3 * 0.99**t).schedule(0)
    0.3
    """

    during_trial = True
    during_race = True

    def __init__(self, schedule: Callable[[int], float]) -> None:
        if not callable(schedule):
            raise ValueError(f"schedule must be a function of the round, got {schedule!r}")
        self.schedule = schedule

    def before_round(self, training: Training, round_: int) -> None:
        rate = float(self.schedule(round_))
        if not 0.0 < rate <= 1.0:
            raise ValueError(f"the learning-rate schedule must give a number in (0, 1], got {rate} for round {round_}")
        training.learning_rate = rate


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


class ProgressBar(Callback):
    """Shows a progress bar with the latest metrics on stderr."""

    def __init__(self, description: str = "boosting") -> None:
        self.description = description

    def before_training(self, training: Training, n_rounds: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[metrics]}"),
            console=Console(stderr=True),
        )
        self.task = self.progress.add_task(self.description, total=n_rounds, metrics="")
        self.progress.start()

    def after_round(self, training: Training, report: RoundReport) -> bool:
        self.progress.update(self.task, advance=1, metrics=_format_evaluations(report.evaluations))
        return False

    def after_training(self, training: Training) -> None:
        self.progress.stop()

    def on_failure(self, training: Training) -> None:
        self.progress.stop()


class Log(Callback):
    """Writes the plan of the training, then one line for every `every`-th round, to stderr."""

    def __init__(self, every: int = 1) -> None:
        _check_at_least_one("every", every)
        self.every = every

    def before_training(self, training: Training, n_rounds: int) -> None:
        sys.stderr.write(f"{training.rows.plan}\n")

    def after_start(self, training: Training, report: RoundReport) -> None:
        if report.evaluations:
            sys.stderr.write(f"start  {_format_evaluations(report.evaluations)}\n")

    def after_round(self, training: Training, report: RoundReport) -> bool:
        if (report.round + 1) % self.every == 0:
            values = _format_evaluations(report.evaluations)
            sys.stderr.write(f"round {report.round + 1}  {report.seconds:.1f} s  {values}\n")
        return False


def _check_at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")


def _format_evaluations(evaluations: Evaluations) -> str:
    return "  ".join(f"{n} {m} {v:.5g}" for n, metrics in evaluations.items() for m, v in metrics.items())


def callbacks_for_verbosity(verbose: int, description: str = "boosting") -> list[Any]:
    """Return the callbacks that `verbose` asks for: 1 is a progress bar, more than 1 a log."""
    return [ProgressBar(description)] if verbose == 1 else [Log()] if verbose > 1 else []
