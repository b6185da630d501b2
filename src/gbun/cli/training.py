"""`gbun train`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.filesize import decimal

from gbun.callbacks import Callback, Checkpoint, History, ProgressBar, TimeBudget
from gbun.cli.labels import TASK_HELP, class_labels, guess_task_from_summaries, is_text, summarize_labels
from gbun.cli.options import check_device, option_name, read_metrics
from gbun.cli.screen import show_table
from gbun.cli.tables import ExpectedInput, check_output, match_columns, read_rows
from gbun.cli.text_columns import describe_text_columns
from gbun.config import Parameters

if TYPE_CHECKING:
    from gbun.boosting import Training
    from gbun.collectives import Collective
    from gbun.data.files import Table
    from gbun.model import Model


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
LABELS_HELP = "A .npy file of labels, for an .npz without them."


@dataclass(frozen=True, kw_only=True)
class TrainCommand:
    """The options of `gbun train`, and the work of one process, which may be a worker with a share of the rows."""

    data: Annotated[Path, typer.Argument(help=DATA_HELP)]
    model: Annotated[Path, typer.Option("--model", help="The model file to write, such as model.gbun.")]
    target: Annotated[str | None, typer.Option(help=TARGET_HELP)] = None
    task: Annotated[Task, typer.Option(help=TASK_HELP)] = Task.auto
    valid: Annotated[
        Path | None, typer.Option(help="Rows to compute metrics on, and to stop early on with --early-stopping-rounds.")
    ] = None
    weight: Annotated[str | None, typer.Option(help=WEIGHT_HELP)] = None
    labels: Annotated[Path | None, typer.Option(help=LABELS_HELP)] = None
    init_model: Annotated[Path | None, typer.Option(help="A model file to add rounds to.")] = None
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="A model file to write every few rounds, and on Ctrl-C: --resume continues from it."),
    ] = None
    checkpoint_every: Annotated[
        int | None, typer.Option(min=1, help="Rounds between two checkpoints; 10 unless given.")
    ] = None
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from --checkpoint if the file exists, as if never stopped.")
    ] = False
    time_budget: Annotated[
        float | None, typer.Option(help="Stop after the round in which this many seconds have passed.")
    ] = None
    workers: Annotated[
        int, typer.Option(min=1, help="Processes on this machine that train together, each with a share of the rows.")
    ] = 1
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds of silence after which a worker counts as failed, and the job ends.")
    ] = 300.0
    transport: Annotated[
        Transport, typer.Option(help="Number format in which workers send sums of K x K; int16 is for slow links.")
    ] = Transport.float32
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar and no notes.")] = False
    parameters: Parameters

    def callbacks(self) -> list[Callback]:
        """Make the callbacks of these options; wrong values are usage errors."""
        if self.checkpoint is None and self.checkpoint_every is not None:
            raise typer.BadParameter("there is no file to write; give --checkpoint", param_hint="--checkpoint-every")
        callbacks: list[Callback] = []
        if self.checkpoint is not None:
            every = {} if self.checkpoint_every is None else {"every": self.checkpoint_every}
            callbacks.append(Checkpoint(self.checkpoint, **every))
        if self.time_budget is not None:
            try:
                callbacks.append(TimeBudget(self.time_budget))
            except ValueError as error:
                raise typer.BadParameter(str(error), param_hint="--time-budget") from None
        return callbacks

    def run(self) -> None:
        """Train, with the other workers if there are any; the root writes the model and prints the summary."""
        with join_workers(self.timeout, self.transport.value) as collective:
            self._train(collective)

    def _train(self, collective: Collective) -> None:
        from gbun.problem import Dataset
        from gbun.training import train

        if collective.rank == 0 and not self.quiet:
            self._announce_overwriting()
        rows, valid_rows, initial = self._read(collective)
        if not rows.X.shape[1] and collective.size == 1:
            raise ValueError(f"{self.data}: got rows without columns, expected features; check what wrote the file")
        if collective.rank == 0 and not self.quiet:
            for line in describe_text_columns(rows.X):
                typer.echo(line, err=True)
        task, text = self._choose_task(rows, initial, collective)

        def make_dataset(table: Table) -> Dataset:
            assert table.y is not None, "read_rows has checked it"
            y = class_labels(table.y, text=text) if task == "classification" else table.y
            return Dataset(table.X, y, table.weight)

        # `train` itself shows progress with --verbose.
        display: list[Callback] = [] if self.quiet or self.parameters.verbose else [ProgressBar()]
        history, counter, began = History(), RoundCounter(), perf_counter()
        try:
            model = train(
                self.parameters,
                make_dataset(rows),
                evals={} if valid_rows is None else {"valid": make_dataset(valid_rows)},
                callbacks=[*display, history, *self.callbacks(), counter],
                init_model=initial,
                task=task,
                resume=self.checkpoint if self.resume else None,
                collective=collective,
            )
        except KeyboardInterrupt:
            raise KeyboardInterrupt(self._interruption_message(history, counter.count)) from None
        seconds = perf_counter() - began
        if collective.rank == 0:
            model.save_model(self.model)
            lines = summarize(model, history, seconds, 0 if initial is None else initial.n_rounds)
            # One worker is not worth a line.
            lines += [("workers", str(collective.size))] if collective.size > 1 else []
            show_table([*lines, ("file", f"{self.model}, {decimal(self.model.stat().st_size)}")])

    def _read(self, collective: Collective) -> tuple[Table, Table | None, Model | None]:
        """Read this worker's training rows and validation rows, and the model to continue from."""
        from gbun.agreement import decide_at_root, run_or_raise_everywhere
        from gbun.model import load_model

        share = collective.rank, collective.size

        def read() -> tuple[Table, Table | None, Model | None]:
            initial = None if self.init_model is None else load_model(self.init_model)
            of_model = None if initial is None else ExpectedInput.of_model(initial)
            text = of_model.text if of_model else ()
            rows = read_rows(self.data, self.target, self.weight, self.labels, text, share, need_labels=True)
            if of_model is not None:
                rows = match_columns(rows, self.data, of_model)
            if self.valid is None:
                return rows, None, initial
            text = ExpectedInput.of_table(rows, self.data).text
            valid_rows = read_rows(self.valid, self.target, self.weight, None, text, share, need_labels=True)
            return rows, valid_rows, initial

        rows, valid_rows, initial = run_or_raise_everywhere(collective, read)
        if valid_rows is None or self.valid is None:
            return rows, None, initial
        # Shares of sparse rows may differ in width: the widest counts.
        valid, expected = self.valid, ExpectedInput.of_table(rows, self.data)
        expected = replace(expected, n_columns=decide_at_root(collective, expected.n_columns, max))
        matched = run_or_raise_everywhere(collective, lambda: match_columns(valid_rows, valid, expected))
        return rows, matched, initial

    def _choose_task(self, rows: Table, initial: Model | None, collective: Collective) -> tuple[str, bool]:
        """Choose the task, and whether classes are text; both are the same on all workers."""
        from gbun.agreement import decide_at_root
        from gbun.targets import CLASSIFICATION

        assert rows.y is not None, "read_rows has checked it"
        objective = self.parameters.objective

        def choose(label_summaries: list[dict[str, Any]]) -> tuple[str, str]:
            if self.task is not Task.auto:
                return self.task.value, "as asked for"
            if initial is not None:
                is_regression = initial.description.task == "regression"
                return "regression" if is_regression else "classification", "as in the initial model"
            if objective != "auto":
                has_classes = objective in (*CLASSIFICATION, "multi_logistic")
                return "classification" if has_classes else "regression", f"objective {objective}"
            task, reason = guess_task_from_summaries(label_summaries)
            return task, f"{reason}; --task chooses another"

        task, reason = decide_at_root(collective, summarize_labels(rows.y), choose)
        if collective.rank == 0 and not self.quiet:
            typer.echo(f"task: {task} ({reason})", err=True)
        labels = rows.y if initial is None else initial.classes
        return task, task == "classification" and decide_at_root(collective, is_text(labels), any)

    def _announce_overwriting(self) -> None:
        file, initial = self.checkpoint, self.init_model
        continued = self.resume or (file and initial and initial.exists() and file.exists() and file.samefile(initial))
        if file is not None and file.exists() and not continued:
            typer.echo(
                f"note: {file} exists, and without --resume training starts again: it will be overwritten", err=True
            )

    def _interruption_message(self, history: History, n_rounds: int) -> str:
        if self.checkpoint is None:
            return "nothing was saved; --checkpoint FILE keeps complete rounds"
        if not history.seconds and not n_rounds:
            return "no round was complete, so there is no checkpoint of this run"
        # Without a count, Ctrl-C came after the last round, while the last checkpoint was being written.
        content = f"{n_rounds} rounds are" if n_rounds else "the last complete write is"
        return f"{content} in the checkpoint {self.checkpoint}; --resume goes on"


def train(command: TrainCommand) -> None:
    """Train a model on the rows of a file, or of several: a folder, or a pattern such as 'part-*.svm'.

    Several metrics are given with commas: --eval-metric auc,log_loss. Started by torchrun, every worker reads its share
    of the rows, and rank 0 writes the model.
    """
    parameters = command.parameters
    check_device(parameters.device)
    if command.resume and command.checkpoint is None:
        raise typer.BadParameter("there is no file to go on from; give --checkpoint", param_hint="--resume")
    command.callbacks()  # errors in these options are reported before anything is read
    names = [] if parameters.eval_metric is None else parameters.eval_metric
    read_metrics(names if isinstance(names, list) else [names], option_name("eval_metric"))
    # Hours of training must not end at a folder that does not exist, nor replace the data.
    for output in (command.model, command.checkpoint):
        if output is not None:
            check_output(output, [command.data, command.valid, command.labels])
    if command.quiet:
        command = replace(command, parameters=replace(parameters, verbose=0))
    if command.workers > 1:
        from gbun.launcher import launch

        launch(TrainCommand.run, command.workers, [command], timeout=command.timeout)
    else:
        command.run()


@contextmanager
def join_workers(timeout: float, transport: str) -> Iterator[Collective]:
    """Join the workers that the launcher or torchrun has started; without them, yield a collective of one."""
    from gbun.collectives import Solo
    from gbun.launcher import STORE_OWNER_VARIABLE

    by_torchrun = {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys()
    if not by_torchrun and STORE_OWNER_VARIABLE not in os.environ:
        yield Solo()
        return
    from gbun.arrays import load_torch
    from gbun.distributed import workers

    dist = load_torch("training on several workers").distributed
    if not dist.is_initialized():
        dist.init_process_group("gloo", timeout=timedelta(seconds=max(timeout, 60.0)))
    with workers(None, timeout, transport) as collective:
        yield collective
    dist.destroy_process_group()


class RoundCounter(Callback):
    """Counts the rounds when training ends or is interrupted: those that the checkpoint then holds."""

    count = 0

    def on_failure(self, training: Training) -> None:
        self.count = training.n_rounds

    after_training = on_failure


def summarize(model: Model, history: History, seconds: float, n_initial_rounds: int) -> list[tuple[str, str]]:
    """Summarize a training run; `n_initial_rounds` is the number of rounds of the initial model."""
    resumed = f" after {history.n_resumed} of the checkpoint" if history.n_resumed else ""
    made = f"this run made {len(history.seconds) - history.n_resumed}{resumed} in {seconds:.2f} s"
    lines = [
        ("model", repr(model).strip("<>").removeprefix("gbun.Model: ")),
        ("rounds", f"{model.n_rounds}; {made}"),
    ]
    if model.description.best_round is not None:
        best = model.description.best_round + 1
        lines.append(("best round", f"{best}, the last one that was kept" if best else "none: the start is best"))
    for name, metrics in history.start.items():
        for metric, value in metrics.items():
            values = [value, *history.values.get(name, {}).get(metric, [])]
            lines.append((f"{name} {metric}", f"{values[model.n_rounds - n_initial_rounds]:.6g}"))
    return lines
