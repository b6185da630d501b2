"""`gbun train`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from gbun.callbacks import Callback, Checkpoint, History, ProgressBar, TimeBudget
from gbun.cli.labels import RULE, class_labels, guess_task, is_text
from gbun.cli.options import checked_device, option_name, read_parameters
from gbun.cli.screen import remark, show_table, size_in_words
from gbun.cli.tables import Input, check_output, fitted, read_labelled

if TYPE_CHECKING:
    from gbun.boosting import Training
    from gbun.config import Parameters
    from gbun.data.files import Table
    from gbun.model import Model
    from gbun.problem import Dataset


class Task(str, Enum):
    auto = "auto"
    classification = "classification"
    regression = "regression"


DATA_HELP = "Rows to read: .svm .svmlight .libsvm .txt .csv .tsv (also .gz .bz2 .xz after it), .parquet or .npz."
TARGET_HELP = "Column of the labels, for .csv, .tsv and .parquet; the other formats have their own place for them."
WEIGHT_HELP = "Column of row weights, for .csv, .tsv and .parquet."
LABELS_HELP = "A .npy file of labels, for an .npz without them."


def train(
    data: Annotated[Path, typer.Argument(help=DATA_HELP)],
    model: Annotated[Path, typer.Option("--model", help="The model file to write, such as model.gbun.")],
    target: Annotated[str | None, typer.Option(help=TARGET_HELP)] = None,
    task: Annotated[Task, typer.Option(help=RULE)] = Task.auto,
    valid: Annotated[
        Path | None, typer.Option(help="Rows to watch metrics on, and to stop early on with --early-stopping-rounds.")
    ] = None,
    weight: Annotated[str | None, typer.Option(help=WEIGHT_HELP)] = None,
    labels: Annotated[Path | None, typer.Option(help=LABELS_HELP)] = None,
    init_model: Annotated[Path | None, typer.Option(help="A model file to add rounds to.")] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="A model file to write now and then, and on Ctrl-C: --init-model goes on from it."),
    ] = None,
    checkpoint_every: Annotated[
        int | None, typer.Option(min=1, help="Rounds between two checkpoints; 10 unless given.")
    ] = None,
    time_budget: Annotated[
        float | None, typer.Option(help="Stop after the round in which this many seconds have passed.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar and no notes.")] = False,
    **parameters: str | None,
) -> None:
    """Train a model on the rows of a file.

    Several metrics are given with commas: --eval-metric auc,log_loss.
    """
    chosen = read_parameters(parameters)
    checked_device(chosen.device)
    chosen = replace(chosen, verbose=0) if quiet else chosen
    run = Run(chosen, checkpoint, _optional_callbacks(chosen, checkpoint, checkpoint_every, time_budget), quiet)
    _check_outputs([model, checkpoint], [data, valid, labels])
    rows, watched, initial = _read(data, valid, target, weight, labels, init_model)
    decided, why = _decide(task, chosen, initial, rows)
    if not quiet:
        remark(f"task: {decided} ({why})")
    trained = run.train(rows, watched, initial, decided)
    trained.save_model(model)
    show_table(run.summary(trained, model))


def _optional_callbacks(
    parameters: Parameters, checkpoint: Path | None, every: int | None, seconds: float | None
) -> list[Callback]:
    """What was asked for on the command line; what is wrong with it is said before anything is read."""
    from gbun.metrics import get_metric

    if every is not None and checkpoint is None:
        raise typer.BadParameter("there is no file to write; give --checkpoint", param_hint="--checkpoint-every")
    metrics = parameters.eval_metric
    try:
        for metric in metrics if isinstance(metrics, list) else [] if metrics is None else [metrics]:
            get_metric(metric)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option_name("eval_metric")) from None
    callbacks: list[Callback] = []
    if checkpoint is not None:
        callbacks.append(Checkpoint(checkpoint) if every is None else Checkpoint(checkpoint, every))
    if seconds is not None:
        try:
            callbacks.append(TimeBudget(seconds))
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--time-budget") from None
    return callbacks


def _check_outputs(outputs: list[Path | None], inputs: list[Path | None]) -> None:
    """Hours of training must not end at a folder that does not exist, nor replace the data."""
    for path in outputs:
        if path is not None:
            check_output(path, inputs)


def _read(
    data: Path,
    valid: Path | None,
    target: str | None,
    weight: str | None,
    labels: Path | None,
    init: Path | None,
) -> tuple[Table, Table | None, Model | None]:
    """The training rows, those to watch, and the model to go on from."""
    from gbun.model import load_model

    initial = None if init is None else load_model(init)
    first = None if initial is None else Input.of_model(initial)
    rows = read_labelled(data, target, weight, labels, first.text if first else ())
    if first is not None:
        rows = fitted(rows, data, first)
    expected = Input.of_table(rows, data)
    watched = None
    if valid is not None:
        watched = fitted(read_labelled(valid, target, weight, None, expected.text), valid, expected)
    return rows, watched, initial


def _decide(task: Task, parameters: Parameters, initial: Model | None, rows: Table) -> tuple[str, str]:
    """The task and why: asked for, the initial model's, the objective's, or what labels look like."""
    from gbun.targets import CLASSIFICATION

    assert rows.y is not None
    if task is not Task.auto:
        return task.value, "as asked for"
    if initial is not None:
        plain = "regression" if initial.description.task == "regression" else "classification"
        return plain, "as in the initial model"
    if parameters.objective != "auto":
        classes = parameters.objective in (*CLASSIFICATION, "multi_logistic")
        return "classification" if classes else "regression", f"objective {parameters.objective}"
    guessed, why = guess_task(rows.y)
    return guessed, f"{why}; --task chooses another"


class CompleteRounds(Callback):
    """How many rounds there were when training was interrupted: what the checkpoint then holds."""

    count = 0

    def on_failure(self, training: Training) -> None:
        self.count = training.n_rounds

    after_training = on_failure


@dataclass
class Run:
    """One training run and what is told of it."""

    parameters: Parameters
    checkpoint: Path | None
    callbacks: list[Callback]
    quiet: bool
    history: History = field(default_factory=History)
    first: int = 0
    """How many rounds there were before this run."""
    seconds: float = 0.0

    def train(self, rows: Table, watched: Table | None, initial: Model | None, task: str) -> Model:
        from gbun.training import train

        text = task == "classification" and is_text(rows.y if initial is None else initial.classes)
        evals = {} if watched is None else {"valid": _dataset(watched, task, text)}
        self.first = 0 if initial is None else initial.n_rounds
        complete, began = CompleteRounds(), perf_counter()
        try:
            trained = train(
                self.parameters,
                _dataset(rows, task, text),
                evals=evals,
                callbacks=[*self._display(), self.history, *self.callbacks, complete],
                init_model=initial,
                task=task,
            )
        except KeyboardInterrupt:
            raise KeyboardInterrupt(self._what_is_left(complete.count)) from None
        self.seconds = perf_counter() - began
        return trained

    def _display(self) -> list[Callback]:
        """A bar unless --quiet; `train` itself sees to --verbose."""
        return [] if self.quiet or self.parameters.verbose else [ProgressBar()]

    def _what_is_left(self, rounds: int) -> str:
        if self.checkpoint is None:
            return "nothing was saved; --checkpoint FILE keeps complete rounds"
        if not self.history.seconds and not rounds:
            return "no round was complete, so there is no checkpoint of this run"
        # Without a count, Ctrl-C came after the last round, while the checkpoint was being brought up to date.
        held = f"{rounds} rounds are" if rounds else "the last complete write is"
        return f"{held} in the checkpoint {self.checkpoint}; --init-model {self.checkpoint} goes on"

    def summary(self, model: Model, path: Path) -> list[tuple[str, str]]:
        made = len(self.history.seconds)
        rows = [("model", repr(model).strip("<>").removeprefix("gbun.Model: "))]
        rows.append(("rounds", f"{model.n_rounds}; this run made {made} in {self.seconds:.2f} s"))
        if model.description.best_round is not None:
            best = model.description.best_round + 1
            rows.append(("best round", f"{best}, the last one that was kept" if best else "none: the start is best"))
        for name, metrics in self.history.start.items():
            for metric, value in metrics.items():
                values = [value, *self.history.values.get(name, {}).get(metric, [])]
                rows.append((f"{name} {metric}", f"{values[model.n_rounds - self.first]:.6g}"))
        rows.append(("file", f"{path}, {size_in_words(path.stat().st_size)}"))
        return rows


def _dataset(table: Table, task: str, text: bool) -> Dataset:
    from gbun.problem import Dataset

    assert table.y is not None
    y = class_labels(table.y, text=text) if task == "classification" else table.y
    return Dataset(table.X, y, table.weight)
