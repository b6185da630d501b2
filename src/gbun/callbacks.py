"""Observers of a training run: progress, history, early stopping, checkpoints, schedules, time."""

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
    """What is known when a round is done: its number (from 0), the metrics, the seconds since the start."""

    round: int
    evaluations: Evaluations
    seconds: float


class Callback:
    """Does nothing; override what you need. `after_round` returns True to stop training."""

    last = False
    """Whether `after_training` waits for all others, because they may still change the model."""
    during_trial = False
    """Whether it also watches the training on part of the rows that finds the number of rounds (`training.trial`)."""

    def before_training(self, training: Training, n_rounds: int) -> None: ...

    def after_start(self, training: Training, report: RoundReport) -> None:
        """Before the first round: how good the start is; the report's round is one below the first."""

    def before_round(self, training: Training, round_: int) -> None:
        """Called for each training where several run in step in a trial; all else sees the first of them only."""

    def after_round(self, training: Training, report: RoundReport) -> bool:
        return False

    def after_training(self, training: Training) -> None: ...

    def on_failure(self, training: Training) -> None:
        """Called when a round raises, also on Ctrl-C: the complete rounds are still there."""


class Watch:
    """The callbacks of a training, told of it in order; where it fails, they are told that too."""

    def __init__(self, training: Training, callbacks: Sequence[Callback], n_rounds: int) -> None:
        self.training, self.n_rounds, self.first = training, n_rounds, training.n_rounds
        self.callbacks, self.watching = sorted(callbacks, key=lambda c: c.last), list[Callback]()

    def __enter__(self) -> Watch:
        self.began = perf_counter()
        try:
            for callback in self.callbacks:
                callback.before_training(self.training, self.n_rounds)
                self.watching.append(callback)
        except BaseException:
            self._failed()
            raise
        return self

    def hears(self, round_: int, evaluations: Evaluations) -> bool:
        """What the model is worth after a round, or (one before the first) at the start; True: that is enough."""
        report = RoundReport(round_, evaluations, perf_counter() - self.began)
        if round_ < self.first:
            for callback in self.watching:
                callback.after_start(self.training, report)
            return False
        return any([callback.after_round(self.training, report) for callback in self.watching])  # noqa: C419 - all see it

    def before_round(self, run: Training, round_: int) -> None:
        for callback in self.watching:
            callback.before_round(run, round_)

    def end(self) -> None:
        for callback in self.watching:
            callback.after_training(self.training)

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None:
            self._failed()

    def _failed(self) -> None:
        for callback in self.watching:
            callback.on_failure(self.training)


class History(Callback):
    """Keeps every metric of every round: `values[set][metric]` is a list; `start` has those before the first round.

    `n_known` of the rounds were taken over from a checkpoint.
    """

    during_trial = True
    n_known = 0

    def __init__(self) -> None:
        self.values: dict[str, dict[str, list[float]]] = {}
        self.start: Evaluations = {}
        self.seconds: list[float] = []

    def after_start(self, training: Training, report: RoundReport) -> None:
        self.start |= report.evaluations
        self.seconds, self.n_known = [], 0
        for name, metrics in report.evaluations.items():
            for metric in metrics:
                self.values.setdefault(name, {}).setdefault(metric, [])

    def after_round(self, training: Training, report: RoundReport) -> bool:
        self.seconds.append(report.seconds)
        self.n_known += report.round < training.n_known
        for name, metrics in report.evaluations.items():
            for metric, value in metrics.items():
                self.values.setdefault(name, {}).setdefault(metric, []).append(value)
        return False


class EarlyStopping(Callback):
    """Stops after `rounds` rounds without improvement and keeps the model of the best round.

    An improvement is more than `min_delta`, and more than `min_gain` of the best value so far. Watches `metric` on
    evaluation set `name`; by default the last metric on the last set. Of several metrics any may improve: the best
    round is the last one that was better than all before by one of them. The start counts as well: where no round
    improves on it, none is kept, and the best round is the one before the first.
    """

    def __init__(
        self, rounds: int, *, metric: str | Sequence[str] | None = None, name: str | None = None,
        min_delta: float = 0.0, min_gain: float = 0.0,
    ) -> None:  # fmt: skip
        if rounds < 1:
            raise ValueError(f"rounds must be at least 1, got {rounds}")
        if min_delta < 0:
            raise ValueError(f"min_delta must not be negative, got {min_delta}")
        if not 0 <= min_gain < 1:
            raise ValueError(f"min_gain must be in [0, 1), got {min_gain}")
        self.rounds, self.metric, self.name = rounds, metric, name
        self.min_delta, self.min_gain = min_delta, min_gain

    def before_training(self, training: Training, n_rounds: int) -> None:
        if not training.evaluations:
            raise ValueError("early stopping needs an evaluation set; pass evals= or eval_set=")
        sets, metrics = [e.name for e in training.evaluations], {m.name: m for m in training.metrics}
        self.watched_set = self.name or sets[-1]
        given = self.metric or training.metrics[-1].name
        self.watched = [given] if isinstance(given, str) else list(given)
        if self.watched_set not in sets:
            raise ValueError(f"name must be one of the evaluation sets {sets}, got {self.name!r}")
        if not set(self.watched) <= metrics.keys():
            raise ValueError(f"metric must be one of the metrics {list(metrics)}, got {self.metric!r}")
        self.signs = {name: 1.0 if metrics[name].higher_is_better else -1.0 for name in self.watched}
        self.best_values = dict.fromkeys(self.watched, -math.inf)
        self.best_round, self.best_score = training.n_rounds - 1, math.nan

    def after_start(self, training: Training, report: RoundReport) -> None:
        self._note(report.evaluations[self.watched_set], self.best_round)

    def after_round(self, training: Training, report: RoundReport) -> bool:
        return self.improves_no_more(report.evaluations[self.watched_set], report.round)

    def improves_no_more(self, metrics: Mapping[str, float], round_: int) -> bool:
        """Takes note of a round's metrics; True when patience has run out."""
        for name in self.watched:
            if math.isnan(metrics[name]):
                raise ValueError(
                    f"early stopping watches {name!r} on {self.watched_set!r}, which is not a number in "
                    f"round {round_}; choose another metric or a set with all classes"
                )
        self._note(metrics, round_)
        return round_ - self.best_round >= self.rounds

    def _note(self, metrics: Mapping[str, float], round_: int) -> None:
        for name, best in self.best_values.items():
            value = self.signs[name] * metrics[name]
            needed = max(self.min_delta, self.min_gain * abs(best)) if math.isfinite(best) else 0.0
            if value > best + needed:  # never of a start that has no score: nothing is known of it
                self.best_values[name], self.best_round, self.best_score = value, round_, metrics[self.watched[0]]

    def after_training(self, training: Training) -> None:
        training.keep_first(self.best_round + 1)
        training.best_round = self.best_round
        training.best_score = None if math.isnan(self.best_score) else self.best_score


class Checkpoint(Callback):
    """Writes the model to `path` every `every` rounds, at the end, and when training is interrupted.

    The file is an ordinary model: load it, predict with it, or add rounds to it with `init_model`; with `resume` a
    training that was cut short goes on from it. During a trial it is the trial's, which has seen part of the rows.
    """

    last = True  # early stopping cuts the model back first
    during_trial = True

    def __init__(self, path: str | Path, every: int = 10) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1, got {every}")
        self.path, self.every = Path(path), every

    def before_training(self, training: Training, n_rounds: int) -> None:
        if not self.path.parent.is_dir():
            raise FileNotFoundError(f"checkpoint folder {str(self.path.parent)!r} does not exist")

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
        if training.n_rounds < training.n_known:
            return  # what is there has more of them
        training.checkpoint().save_model(self.path)


class LearningRateSchedule(Callback):
    """Sets the learning rate of each round: `schedule(round) -> rate`.

    >>> LearningRateSchedule(lambda t: 0.3 * 0.99**t).schedule(0)
    0.3
    """

    during_trial = True

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

    Reading data and fitting the start come before.
    """

    during_trial = True

    def __init__(self, seconds: float) -> None:
        if not seconds > 0:
            raise ValueError(f"seconds must be positive, got {seconds}")
        self.seconds = seconds

    def before_training(self, training: Training, n_rounds: int) -> None:
        now = perf_counter()
        if training.trial:
            self.began, self.deadline = now, now + self.seconds / 2
        else:
            self.deadline = self.__dict__.pop("began", now) + self.seconds

    def on_failure(self, training: Training) -> None:
        self.__dict__.pop("began", None)  # whoever uses it again has all of its seconds

    def after_round(self, training: Training, report: RoundReport) -> bool:
        return perf_counter() >= self.deadline


class ProgressBar(Callback):
    """A bar with the metrics of the last evaluation set, on the terminal's error stream."""

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
        self.progress.update(self.task, advance=1, metrics=_words(report.evaluations))
        return False

    def after_training(self, training: Training) -> None:
        self.progress.stop()

    def on_failure(self, training: Training) -> None:
        self.progress.stop()


class Log(Callback):
    """The plan of the training, then one line for every `every`-th round, on the terminal's error stream."""

    def __init__(self, every: int = 1) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1, got {every}")
        self.every = every

    def before_training(self, training: Training, n_rounds: int) -> None:
        sys.stderr.write(f"{training.rows.plan}\n")

    def after_start(self, training: Training, report: RoundReport) -> None:
        if report.evaluations:
            sys.stderr.write(f"start  {_words(report.evaluations)}\n")

    def after_round(self, training: Training, report: RoundReport) -> bool:
        if (report.round + 1) % self.every == 0:
            sys.stderr.write(f"round {report.round + 1}  {report.seconds:.1f} s  {_words(report.evaluations)}\n")
        return False


def _words(evaluations: Evaluations) -> str:
    return "  ".join(f"{n} {m} {v:.5g}" for n, metrics in evaluations.items() for m, v in metrics.items())


def callbacks_for_verbosity(verbose: int, doing: str = "boosting") -> list[Any]:
    return [ProgressBar(doing)] if verbose == 1 else [Log()] if verbose > 1 else []
