"""Callbacks that show progress: a bar, lines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gbun.boosting import Training

from gbun.callbacks.base import Callback, Evaluations, RoundReport, check_at_least_one


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
        check_at_least_one("every", every)
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


def _format_evaluations(evaluations: Evaluations) -> str:
    return "  ".join(f"{n} {m} {v:.5g}" for n, metrics in evaluations.items() for m, v in metrics.items())


def callbacks_for_verbosity(verbose: int, description: str = "boosting") -> list[Any]:
    """Return the callbacks that `verbose` asks for: 1 is a progress bar, more than 1 a log."""
    return [ProgressBar(description)] if verbose == 1 else [Log()] if verbose > 1 else []
