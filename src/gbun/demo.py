"""The demo: gbun, LightGBM and XGBoost on four data sets, as one table and one picture.

Each learner trains on each data set in a new process, one after the other, so that peak memory is that of one learner,
and a learner that takes too long can be stopped.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import perf_counter
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from gbun.datasets import make_clicks
from gbun.peers import INSTALL, LEARNERS, PeerLearner, Split, Task
from gbun.plots import Panel, plot_curves

SEED = 0
TEST_SHARE = 0.25
PICTURE = "learning_curves.png"
STOPPED = "stopped"


@dataclass(frozen=True)
class DemoProblem:
    """A data set, the metric on it, and the number of rounds; peers may take `peer_time_limit` seconds."""

    name: str
    task: Task
    load: Callable[[], tuple[Any, Any]]
    n_rounds: int
    peer_time_limit: float | None = None

    @property
    def metric(self) -> str:
        return {"binary": "AUC", "multiclass": "accuracy", "regression": "R²"}[self.task]

    @property
    def loss(self) -> str:
        return "RMSE" if self.task == "regression" else "log loss"


@dataclass(frozen=True)
class DemoResult:
    """The result of one learner on one problem; `note` is the reason if there is no score."""

    score: float | None = None
    seconds: float | None = None
    megabytes: float | None = None
    note: str = ""
    curve: tuple[float, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """The results of all learners on one problem of some rows and columns."""

    problem: DemoProblem
    shape: tuple[int, int]
    results: dict[str, DemoResult]

    @property
    def size(self) -> str:
        return f"{self.shape[0]:,} x {self.shape[1]:,}"


def make_problems(quick: bool) -> tuple[DemoProblem, ...]:
    from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

    cancer = partial(load_breast_cancer, return_X_y=True)
    if quick:
        clicks = partial(make_clicks, 2_000, 20_000, seed=SEED)
        return (DemoProblem("breast cancer", "binary", cancer, 5), DemoProblem("clicks", "binary", clicks, 5, 10.0))
    return (
        DemoProblem("digits", "multiclass", partial(load_digits, return_X_y=True), 100),
        DemoProblem("breast cancer", "binary", cancer, 100),
        DemoProblem("diabetes", "regression", partial(load_diabetes, return_X_y=True), 100),
        DemoProblem("clicks", "binary", partial(make_clicks, 20_000, 10_000_000, seed=SEED), 50, 10.0),
    )


def run(output: Path, quick: bool = False) -> None:
    """Train all learners on all problems, print the table, and write `learning_curves.png` into `output`."""
    problems, comparisons = make_problems(quick), []
    with _make_progress() as progress:
        total = progress.add_task("all", total=len(problems) * len(LEARNERS), loss="")
        for problem in problems:
            comparisons.append(Comparison(problem, problem.load()[0].shape, {}))
            for learner in LEARNERS:
                comparisons[-1].results[learner.name] = run_learner(problem, learner, progress)
                progress.advance(total)
    console = Console()
    console.print(make_table(comparisons))
    console.print(footnotes(problems), style="dim", highlight=False)
    try:
        path = plot_curves([make_panel(comparison) for comparison in comparisons], output / PICTURE)
        console.print(f"Learning curves: {path}", soft_wrap=True, highlight=False, markup=False)
    except ImportError as missing:
        console.print(f"No learning curves: {missing}", highlight=False, markup=False)


# The child process: one learner on one problem.


def train_in_child(problem: DemoProblem, learner: PeerLearner, connection: Connection) -> None:
    """Send ("started", megabytes), the test loss after each round, and a `DemoResult`."""
    warnings.simplefilter("ignore")  # they would break the parent's progress bars
    try:
        learner.fit(make_warmup_split(problem), 2, lambda loss: None)
        data = split_rows(problem.task, *problem.load())
        connection.send(("started", peak_megabytes(reset=True)))
        began = perf_counter()
        predict = learner.fit(data, problem.n_rounds, connection.send)
        result = DemoResult(seconds=perf_counter() - began, megabytes=peak_megabytes())
        connection.send(replace(result, score=score_predictions(problem, data.y_test, predict(data.X_test))))
    except Exception as error:
        connection.send(DemoResult(note=f"failed: {type(error).__name__}: {error}"))


def split_rows(task: Task, X: Any, y: Any) -> Split:
    from sklearn.model_selection import train_test_split

    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=TEST_SHARE, random_state=SEED)
    return Split(task, X_train, y_train, X_test, y_test)


def make_warmup_split(problem: DemoProblem) -> Split:
    """Return a few rows of the same kind; fitting them imports and compiles code before time is measured."""
    if problem.name == "clicks":  # few columns too, as peers take long with many
        return split_rows(problem.task, *make_clicks(500, 10_000))
    X, y = problem.load()
    return split_rows(problem.task, X[:200], y[:200])


def score_predictions(problem: DemoProblem, y: Any, predicted: Any) -> float:
    from sklearn.metrics import accuracy_score, r2_score, roc_auc_score

    if problem.task == "multiclass":
        return float(accuracy_score(y, predicted.argmax(axis=1)))
    return float((r2_score if problem.task == "regression" else roc_auc_score)(y, predicted))


def peak_megabytes(pid: int | None = None, reset: bool = False) -> float | None:
    """Return the peak memory of a process, this one by default; None if it is not known.

    `reset` starts the measurement anew. On Linux, getrusage is not used: its ru_maxrss begins with the memory of the
    parent when it started the child.
    """
    if reset:
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
    with suppress(OSError):
        status = Path(f"/proc/{pid or os.getpid()}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines())
        return int(fields["VmHWM"].split()[0]) / 1024 if "VmHWM" in fields else None
    if pid is not None or sys.platform == "win32":
        return None
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


# The parent process: limits the time of a child and measures its memory.


def run_learner(problem: DemoProblem, learner: PeerLearner, progress: Progress) -> DemoResult:
    if not learner.is_available():
        return DemoResult(note=f"not installed: {INSTALL}")
    context = get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=train_in_child, args=(problem, learner, send), daemon=True)
    name = f"{problem.name}, {learner.name}"
    task = progress.add_task(name, total=problem.n_rounds, loss="starting")
    with passive_openmp_wait():
        process.start()
    send.close()  # so that the pipe ends with the child
    limit = None if learner.name == "gbun" else problem.peer_time_limit

    def show(loss: float) -> None:
        progress.update(task, advance=1, loss=f"{problem.loss} {loss:.4g}")

    try:
        result = collect_result(process, receive, limit, show)
    finally:
        process.kill()
        process.join()
        progress.remove_task(task)
    if not progress.console.is_terminal:
        progress.console.print(f"{name}: {', '.join(format_cells(problem, result))}", highlight=False, markup=False)
    return result


@contextmanager
def passive_openmp_wait() -> Iterator[None]:
    """Let idle OpenMP threads sleep in processes that are started in this context.

    By default they spin, which made the peers five times slower on a busy machine.
    """
    name, given = "OMP_WAIT_POLICY", os.environ.get("OMP_WAIT_POLICY")
    os.environ[name] = given or "passive"
    try:
        yield
    finally:
        if given is None:
            del os.environ[name]


def collect_result(
    process: BaseProcess, receive: Any, limit: float | None, show: Callable[[float], None]
) -> DemoResult:
    """Return the child's result, or what is known of it after `limit` seconds of training."""
    curve: list[float] = []
    start: float | None = None
    deadline = float("inf")

    def growth(peak: float | None) -> float | None:
        return None if peak is None or start is None else peak - start

    while perf_counter() < deadline:
        if not receive.poll(0.05):
            continue
        try:
            message = receive.recv()
        except EOFError:
            process.join()
            return DemoResult(note=f"died with exit code {process.exitcode}", curve=tuple(curve))
        if isinstance(message, DemoResult):
            return replace(message, megabytes=growth(message.megabytes), curve=tuple(curve))
        if isinstance(message, tuple):
            start, deadline = message[1], perf_counter() + (limit or float("inf"))
        else:
            curve.append(message)
            show(message)
    megabytes = growth(peak_megabytes(process.pid))
    return DemoResult(note=STOPPED, seconds=limit, megabytes=megabytes, curve=tuple(curve))


def _make_progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    loss = TextColumn("{task.fields[loss]}")
    return Progress(*columns, loss, console=Console(stderr=True), transient=True)


# Table and picture.


def make_table(comparisons: Sequence[Comparison]) -> Table:
    table = Table(title="gbun beside its peers", title_justify="left", title_style="bold", box=box.HORIZONTALS)
    table.padding = (0, 1, 0, 0)
    table.add_column("data set", no_wrap=True)
    table.add_column("learner", no_wrap=True)
    for name in ("test score", "training", "memory"):
        table.add_column(name, justify="right")
    for comparison in comparisons:
        problem, results = comparison.problem, comparison.results
        lines = (f"[bold]{problem.name}[/]", comparison.size, f"{problem.n_rounds} rounds")
        best = max((result.score for result in results.values() if result.score is not None), default=None)
        for line, (name, result) in zip(lines, results.items(), strict=True):
            score, *rest = (escape(cell) for cell in format_cells(problem, result))
            is_best = result.score is not None and result.score == best
            table.add_row(line, name, f"[bold green]{score}[/]" if is_best else score, *rest)
        table.add_section()
    return table


def format_cells(problem: DemoProblem, result: DemoResult) -> tuple[str, str, str]:
    """Format score, seconds and megabytes."""
    if result.note not in ("", STOPPED):
        return result.note, "", ""
    more = "> " if result.note == STOPPED else ""
    m = result.megabytes
    megabytes = "" if m is None else f"{more}{m:,.0f} MB" if m >= 1 else "< 1 MB"
    if result.note == STOPPED:
        return "-", f"> {result.seconds:.0f} s, {STOPPED}", megabytes
    return f"{problem.metric} {result.score:.4f}", f"{result.seconds:.2f} s", megabytes


def footnotes(problems: Sequence[DemoProblem]) -> str:
    limits = "".join(f" Peers may take {p.peer_time_limit:.0f} s on {p.name}." for p in problems if p.peer_time_limit)
    return (
        f"Trained on {1 - TEST_SHARE:.0%} of the rows, scored on the others. Training includes converting the data to "
        "the learner's format and scoring the test rows after each round; a small fit comes before, so imports and "
        "compilation are not timed. Memory is how far training raised the peak of its process. Each learner has all "
        f"cores and its default settings.{limits}"
    )


def make_panel(comparison: Comparison) -> Panel:
    problem, results = comparison.problem, comparison.results
    notes = {name: curve_note(result) for name, result in results.items() if result.note}
    curves = {name: result.curve for name, result in results.items()}
    return Panel(f"{problem.name}, {comparison.size}", f"{problem.loss} on test rows", curves, notes)


def curve_note(result: DemoResult) -> str:
    """Return why a curve is short or absent."""
    if result.note != STOPPED:
        return result.note.partition(":")[0]
    return f"{STOPPED} after {result.seconds:.0f} s" if result.curve else f"no round within {result.seconds:.0f} s"
