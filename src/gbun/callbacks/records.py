"""Callbacks that keep what happened, or change the rate: history, checkpoints, schedules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gbun.boosting import Training

from gbun.callbacks.base import Callback, Evaluations, RoundReport, check_at_least_one


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
        check_at_least_one("every", every)
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
