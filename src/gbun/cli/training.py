"""`gbun train`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gbun.callbacks import Callback, Checkpoint, History, ProgressBar, TimeBudget
from gbun.cli.labels import RULE, class_labels, guess_together, is_text, seen
from gbun.cli.options import checked_device, option_name, read_parameters
from gbun.cli.screen import remark, show_table, size_in_words
from gbun.cli.tables import Input, check_output, fitted, read_labelled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gbun.boosting import Training
    from gbun.collectives import Collective
    from gbun.config import Parameters
    from gbun.data.files import Table
    from gbun.model import Model
    from gbun.problem import Dataset


class Transport(str, Enum):
    float32 = "float32"
    float64 = "float64"
    int16 = "int16"


class Task(str, Enum):
    auto = "auto"
    classification = "classification"
    regression = "regression"


DATA_HELP = "Rows to read: .svm .svmlight .libsvm .txt .csv .tsv (also .gz .bz2 .xz after it), .parquet or .npz."
TARGET_HELP = "Column of the labels, for .csv, .tsv and .parquet; the other formats have their own place for them."
WEIGHT_HELP = "Column of row weights, for .csv, .tsv and .parquet."
LAUNCHED = "GBUN_STORE_KEEPER"
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
        typer.Option(help="A model file to write now and then, and on Ctrl-C: --resume goes on from it."),
    ] = None,
    checkpoint_every: Annotated[
        int | None, typer.Option(min=1, help="Rounds between two checkpoints; 10 unless given.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from --checkpoint if the file is there, as if never stopped.")
    ] = False,
    time_budget: Annotated[
        float | None, typer.Option(help="Stop after the round in which this many seconds have passed.")
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Processes on this machine that train together, each with a share of the rows.")
    ] = 1,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds of silence after which a worker is given up, and the job ends.")
    ] = 300.0,
    transport: Annotated[
        Transport, typer.Option(help="How workers write sums of K x K on the way; int16 is for slow links.")
    ] = Transport.float32,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar and no notes.")] = False,
    **parameters: str | None,
) -> None:
    """Train a model on the rows of a file, or of several: a folder, or a pattern such as 'part-*.svm'.

    Several metrics are given with commas: --eval-metric auc,log_loss. Started by torchrun, every worker reads its share
    of the rows, and rank 0 writes the model.
    """
    chosen = read_parameters(parameters)
    checked_device(chosen.device)
    chosen = replace(chosen, verbose=0) if quiet else chosen
    if resume and checkpoint is None:
        raise typer.BadParameter("there is no file to go on from; give --checkpoint", param_hint="--resume")
    _optional_callbacks(chosen, checkpoint, checkpoint_every, time_budget)  # what is wrong with them is said now
    _check_outputs([model, checkpoint], [data, valid, labels])
    given = Job(
        data, model, target, task, valid, weight, labels, init_model, checkpoint, checkpoint_every, resume, time_budget,
        timeout, transport.value, quiet, chosen,
    )  # fmt: skip
    if workers > 1:
        from gbun.launcher import launch

        launch(Job.run, workers, [given], timeout=timeout)
    else:
        given.run()


@dataclass(frozen=True)
class Job:
    """What `gbun train` was asked to do: by one process, or by each worker with its share of the rows."""

    data: Path
    model: Path
    target: str | None
    task: Task
    valid: Path | None
    weight: str | None
    labels: Path | None
    init_model: Path | None
    checkpoint: Path | None
    checkpoint_every: int | None
    resume: bool
    time_budget: float | None
    timeout: float
    transport: str
    quiet: bool
    parameters: Parameters

    def run(self) -> None:
        with among_workers(self.timeout, self.transport) as collective:
            self._train(collective)

    def _train(self, collective: Collective) -> None:
        from gbun.agreement import decided, together

        leads = collective.rank == 0
        run = Run(self, _optional_callbacks(self.parameters, self.checkpoint, self.checkpoint_every, self.time_budget))
        rows, watched, initial = together(collective, lambda: self._read(collective))
        watched = self._fitted(watched, rows, collective)
        task, why = decided(collective, seen(_labels(rows)), lambda told: self._decide(initial, told))
        if leads and not self.quiet:
            remark(f"task: {task} ({why})")
        text = task == "classification" and decided(
            collective, is_text(rows.y if initial is None else initial.classes), any
        )
        trained = run.train(rows, watched, initial, task, text, collective)
        if leads:
            trained.save_model(self.model)
            show_table(run.summary(trained, self.model, collective))

    def _read(self, collective: Collective) -> tuple[Table, Table | None, Model | None]:
        """The training rows, those to watch, and the model to go on from."""
        from gbun.model import load_model

        share = collective.rank, collective.size
        initial = None if self.init_model is None else load_model(self.init_model)
        first = None if initial is None else Input.of_model(initial)
        rows = read_labelled(self.data, self.target, self.weight, self.labels, first.text if first else (), share)
        if first is not None:
            rows = fitted(rows, self.data, first)
        expected, watched = Input.of_table(rows, self.data), None
        if self.valid is not None:
            watched = read_labelled(self.valid, self.target, self.weight, None, expected.text, share)
        return rows, watched, initial

    def _fitted(self, watched: Table | None, rows: Table, collective: Collective) -> Table | None:
        """Rows to watch, as wide as the widest share of the others."""
        if watched is None or self.valid is None:
            return watched
        from gbun.agreement import decided, together

        valid, expected = self.valid, Input.of_table(rows, self.data)
        expected = replace(expected, n_columns=decided(collective, expected.n_columns, max))
        return together(collective, lambda: fitted(watched, valid, expected))

    def _decide(self, initial: Model | None, told: list[dict[str, Any]]) -> tuple[str, str]:
        """The task and why: asked for, the initial model's, the objective's, or what labels look like."""
        from gbun.targets import CLASSIFICATION

        objective = self.parameters.objective
        if self.task is not Task.auto:
            return self.task.value, "as asked for"
        if initial is not None:
            plain = "regression" if initial.description.task == "regression" else "classification"
            return plain, "as in the initial model"
        if objective != "auto":
            classes = objective in (*CLASSIFICATION, "multi_logistic")
            return "classification" if classes else "regression", f"objective {objective}"
        guessed, why = guess_together(told)
        return guessed, f"{why}; --task chooses another"


@contextmanager
def among_workers(timeout: float, transport: str) -> Iterator[Collective]:
    """The workers that the launcher or torchrun has started; nobody else, where neither has."""
    from gbun.collectives import Solo

    started = {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys()
    if not started and LAUNCHED not in os.environ:
        yield Solo()
        return
    from gbun.arrays import load_torch
    from gbun.distributed import workers

    dist = load_torch("training on several workers").distributed
    if not dist.is_initialized():
        dist.init_process_group("gloo", timeout=timedelta(seconds=max(timeout, 60.0)))
    with workers(None, timeout, transport) as courier:
        yield courier
    dist.destroy_process_group()


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


class CompleteRounds(Callback):
    """How many rounds there were when training was interrupted: what the checkpoint then holds."""

    count = 0

    def on_failure(self, training: Training) -> None:
        self.count = training.n_rounds

    after_training = on_failure


@dataclass
class Run:
    """One training run and what is told of it."""

    job: Job
    callbacks: list[Callback]
    history: History = field(default_factory=History)
    first: int = 0
    """How many rounds there were before this run."""
    seconds: float = 0.0

    def train(
        self, rows: Table, watched: Table | None, initial: Model | None, task: str, text: bool, collective: Collective
    ) -> Model:
        from gbun.training import train

        evals = {} if watched is None else {"valid": _dataset(watched, task, text)}
        self.first = 0 if initial is None else initial.n_rounds
        complete, began = CompleteRounds(), perf_counter()
        try:
            trained = train(
                self.job.parameters,
                _dataset(rows, task, text),
                evals=evals,
                callbacks=[*self._display(), self.history, *self.callbacks, complete],
                init_model=initial,
                task=task,
                resume=self.job.checkpoint if self.job.resume else None,
                collective=collective,
            )
        except KeyboardInterrupt:
            raise KeyboardInterrupt(self._what_is_left(complete.count)) from None
        self.seconds = perf_counter() - began
        return trained

    def _display(self) -> list[Callback]:
        """A bar unless --quiet; `train` itself sees to --verbose."""
        return [] if self.job.quiet or self.job.parameters.verbose else [ProgressBar()]

    def _what_is_left(self, rounds: int) -> str:
        checkpoint = self.job.checkpoint
        if checkpoint is None:
            return "nothing was saved; --checkpoint FILE keeps complete rounds"
        if not self.history.seconds and not rounds:
            return "no round was complete, so there is no checkpoint of this run"
        # Without a count, Ctrl-C came after the last round, while the checkpoint was being brought up to date.
        held = f"{rounds} rounds are" if rounds else "the last complete write is"
        return f"{held} in the checkpoint {checkpoint}; --resume goes on"

    def summary(self, model: Model, path: Path, collective: Collective) -> list[tuple[str, str]]:
        n_known = self.history.n_known
        made, known = len(self.history.seconds) - n_known, f" after {n_known} of the checkpoint" if n_known else ""
        rows = [("model", repr(model).strip("<>").removeprefix("gbun.Model: "))]
        rows.append(("rounds", f"{model.n_rounds}; this run made {made}{known} in {self.seconds:.2f} s"))
        if model.description.best_round is not None:
            best = model.description.best_round + 1
            rows.append(("best round", f"{best}, the last one that was kept" if best else "none: the start is best"))
        for name, metrics in self.history.start.items():
            for metric, value in metrics.items():
                values = [value, *self.history.values.get(name, {}).get(metric, [])]
                rows.append((f"{name} {metric}", f"{values[model.n_rounds - self.first]:.6g}"))
        if collective.size > 1:
            rows.append(("workers", str(collective.size)))
        rows.append(("file", f"{path}, {size_in_words(path.stat().st_size)}"))
        return rows


def _labels(table: Table) -> NDArray[Any]:
    assert table.y is not None, "read_labelled has seen to it"
    return table.y


def _dataset(table: Table, task: str, text: bool) -> Dataset:
    from gbun.problem import Dataset

    y = class_labels(_labels(table), text=text) if task == "classification" else _labels(table)
    return Dataset(table.X, y, table.weight)
