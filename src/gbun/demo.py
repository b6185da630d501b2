"""The demo: gbun beside LightGBM and XGBoost on four data sets, as one table and one picture.

Each (data set, learner) trains in a process of its own, one after the other. So peak memory belongs to one learner
alone, and one that takes too long can be stopped.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
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
from gbun.peers import INSTALL, LEARNERS, Learner, Split, Task
from gbun.plots import Panel, plot_curves

SEED = 0
TEST_SHARE = 0.25
PICTURE = "learning_curves.png"
STOPPED = "stopped"


@dataclass(frozen=True)
class Problem:
    """A data set, how to judge on it, and what gbun is told beyond its defaults."""

    name: str
    task: Task
    load: Callable[[], tuple[Any, Any]]
    n_rounds: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    peers_may_take: float | None = None

    @property
    def metric(self) -> str:
        return {"binary": "AUC", "multiclass": "accuracy", "regression": "R²"}[self.task]

    @property
    def loss(self) -> str:
        return "RMSE" if self.task == "regression" else "log loss"


@dataclass(frozen=True)
class Result:
    """What came of one learner on one problem; `note` says why there is no score."""

    score: float | None = None
    seconds: float | None = None
    megabytes: float | None = None
    note: str = ""
    curve: tuple[float, ...] = ()


@dataclass(frozen=True)
class Began:
    """The clock runs; peak memory stands at this many megabytes."""

    megabytes: float | None


Results = dict[tuple[str, str], Result]
"""(problem, learner) -> result"""
Shapes = dict[str, tuple[int, int]]
"""problem -> rows and columns"""


def problems(quick: bool) -> tuple[Problem, ...]:
    from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

    cancer = partial(load_breast_cancer, return_X_y=True)
    if quick:
        clicks = partial(make_clicks, 2_000, 20_000, seed=SEED)
        return (Problem("breast cancer", "binary", cancer, 5), Problem("clicks", "binary", clicks, 5, {}, 10.0))
    return (
        Problem("digits", "multiclass", partial(load_digits, return_X_y=True), 100),
        Problem("breast cancer", "binary", cancer, 100),
        Problem("diabetes", "regression", partial(load_diabetes, return_X_y=True), 100),
        Problem("clicks", "binary", partial(make_clicks, 20_000, 10_000_000, seed=SEED), 50, {}, 10.0),
    )


def run(output: Path, quick: bool = False) -> None:
    """Train everything, print the table, write `learning_curves.png` into `output`."""
    entered, shapes, results = problems(quick), Shapes(), Results()
    with _progress() as progress:
        whole = progress.add_task("all", total=len(entered) * len(LEARNERS), loss="")
        for problem in entered:
            shapes[problem.name] = problem.load()[0].shape
            for learner in LEARNERS:
                results[problem.name, learner.name] = contest(problem, learner, progress)
                progress.advance(whole)
    console = Console()
    console.print(table(entered, shapes, results))
    console.print(footnotes(entered), style="dim", highlight=False)
    try:
        path = plot_curves(panels(entered, shapes, results), output / PICTURE)
        console.print(f"Learning curves: {path}", soft_wrap=True, highlight=False, markup=False)
    except ImportError as missing:
        console.print(f"No learning curves: {missing}", highlight=False, markup=False)


# The child process: one learner on one problem.


def train_alone(problem: Problem, learner: Learner, connection: Connection) -> None:
    """Send `Began`, the test loss after each round, and a `Result`."""
    warnings.simplefilter("ignore")  # they would tear the parent's progress bars
    try:
        learner.fit(tiny(problem), 2, lambda loss: None, {})
        data = split(problem.task, *problem.load())
        connection.send(Began(peak_megabytes(forget=True)))
        began = perf_counter()
        settings = problem.settings if learner.name == "gbun" else {}
        fitted = learner.fit(data, problem.n_rounds, connection.send, settings)
        result = Result(seconds=perf_counter() - began, megabytes=peak_megabytes())
        connection.send(replace(result, score=judge(problem, data.y_test, fitted.predict(data.X_test))))
    except Exception as error:
        connection.send(Result(note=f"failed: {type(error).__name__}: {error}"))


def split(task: Task, X: Any, y: Any) -> Split:
    from sklearn.model_selection import train_test_split

    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=TEST_SHARE, random_state=SEED)
    return Split(task, X_train, y_train, X_test, y_test)


def tiny(problem: Problem) -> Split:
    """A few rows of the same kind: fitting them imports and compiles what the clock shall not see."""
    if problem.name == "clicks":  # few columns too, or peers would spend their time here
        return split(problem.task, *make_clicks(500, 10_000))
    X, y = problem.load()
    return split(problem.task, X[:200], y[:200])


def judge(problem: Problem, y: Any, predicted: Any) -> float:
    from sklearn.metrics import accuracy_score, r2_score, roc_auc_score

    if problem.task == "multiclass":
        return float(accuracy_score(y, predicted.argmax(axis=1)))
    return float((r2_score if problem.task == "regression" else roc_auc_score)(y, predicted))


def peak_megabytes(pid: int | None = None, forget: bool = False) -> float | None:
    """The most memory a process (this one by default) has held; `forget` makes now the start. None: not known.

    Not getrusage on Linux: its ru_maxrss begins with what the parent held when it started the child.
    """
    if forget:
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


# The parent: watches a child, its time and its memory.


def contest(problem: Problem, learner: Learner, progress: Progress) -> Result:
    if not learner.available():
        return Result(note=f"not installed: {INSTALL}")
    context = get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=train_alone, args=(problem, learner, send), daemon=True)
    words = f"{problem.name}, {learner.name}"
    task = progress.add_task(words, total=problem.n_rounds, loss="starting")
    with waiting_passively():
        process.start()
    send.close()  # so that the end of the child is the end of the pipe
    limit = None if learner.name == "gbun" else problem.peers_may_take

    def show(loss: float) -> None:
        progress.update(task, advance=1, loss=f"{problem.loss} {loss:.4g}")

    try:
        result = watch(process, receive, limit, show)
    finally:
        process.kill()
        process.join()
        progress.remove_task(task)
    if not progress.console.is_terminal:
        progress.console.print(f"{words}: {', '.join(cells(problem, result))}", highlight=False, markup=False)
    return result


@contextmanager
def waiting_passively() -> Iterator[None]:
    """Processes started in here let idle OpenMP threads sleep.

    By default they spin, and on a machine that is busy with something else this made the peers five times slower.
    """
    name, given = "OMP_WAIT_POLICY", os.environ.get("OMP_WAIT_POLICY")
    os.environ[name] = given or "passive"
    try:
        yield
    finally:
        if given is None:
            del os.environ[name]


def watch(process: BaseProcess, receive: Any, limit: float | None, show: Callable[[float], None]) -> Result:
    """The child's result, or what is known of it when `limit` seconds of training have passed."""
    curve: list[float] = []
    began, deadline = Began(None), float("inf")
    while perf_counter() < deadline:
        if not receive.poll(0.05):
            continue
        try:
            message = receive.recv()
        except EOFError:
            process.join()
            return Result(note=f"died with exit code {process.exitcode}", curve=tuple(curve))
        if isinstance(message, Result):
            return replace(message, megabytes=growth(message.megabytes, began), curve=tuple(curve))
        if isinstance(message, Began):
            began, deadline = message, perf_counter() + (limit or float("inf"))
        else:
            curve.append(message)
            show(message)
    reached = growth(peak_megabytes(process.pid), began)
    return Result(note=STOPPED, seconds=limit, megabytes=reached, curve=tuple(curve))


def growth(peak: float | None, began: Began) -> float | None:
    return None if peak is None or began.megabytes is None else peak - began.megabytes


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    loss = TextColumn("{task.fields[loss]}")
    return Progress(*columns, loss, console=Console(stderr=True), transient=True)


# What the user sees.


def table(entered: Sequence[Problem], shapes: Shapes, results: Results) -> Table:
    title = "gbun beside its peers"
    shown = Table(title=title, title_justify="left", title_style="bold", box=box.HORIZONTALS, padding=(0, 1, 0, 0))
    shown.add_column("data set", no_wrap=True)
    shown.add_column("learner", no_wrap=True)
    for measured in ("test score", "training", "memory"):
        shown.add_column(measured, justify="right")
    for problem in entered:
        about = (f"[bold]{problem.name}[/]", size(shapes[problem.name]), f"{problem.n_rounds} rounds")
        of = [results[problem.name, learner.name] for learner in LEARNERS]
        best = max((result.score for result in of if result.score is not None), default=None)
        for words, learner, result in zip(about, LEARNERS, of, strict=True):
            score, *rest = (escape(cell) for cell in cells(problem, result))
            winner = result.score is not None and result.score == best
            shown.add_row(words, learner.name, f"[bold green]{score}[/]" if winner else score, *rest)
        shown.add_section()
    return shown


def size(shape: tuple[int, int]) -> str:
    return f"{shape[0]:,} x {shape[1]:,}"


def cells(problem: Problem, result: Result) -> tuple[str, str, str]:
    """Score, seconds and megabytes in words."""
    if result.note not in ("", STOPPED):
        return result.note, "", ""
    more = "> " if result.note == STOPPED else ""
    m = result.megabytes
    megabytes = "" if m is None else f"{more}{m:,.0f} MB" if m >= 1 else "< 1 MB"
    if result.note == STOPPED:
        return "-", f"> {result.seconds:.0f} s, {STOPPED}", megabytes
    return f"{problem.metric} {result.score:.4f}", f"{result.seconds:.2f} s", megabytes


def footnotes(entered: Sequence[Problem]) -> str:
    told: dict[str, list[str]] = {}
    for problem in entered:
        if problem.settings:
            words = ", ".join(f"{name}={value}" for name, value in problem.settings.items())
            told.setdefault(words, []).append(problem.name)
    exceptions = "".join(f"; gbun has {words} on {', '.join(names)}" for words, names in told.items())
    limits = "".join(f" Peers may take {p.peers_may_take:.0f} s on {p.name}." for p in entered if p.peers_may_take)
    return (
        f"Trained on {1 - TEST_SHARE:.0%} of the rows, scored on the others. Training includes bringing the data into "
        "the learner's own form and scoring the test rows after each round; a tiny fit comes before, so imports and "
        "compilation are not timed. Memory is how far training raised the peak of its process. Each learner has all "
        f"cores and its default settings{exceptions}.{limits}"
    )


def panels(entered: Sequence[Problem], shapes: Shapes, results: Results) -> list[Panel]:
    shown = []
    for problem in entered:
        of = {learner.name: results[problem.name, learner.name] for learner in LEARNERS}
        notes = {name: note(result) for name, result in of.items() if result.note}
        title = f"{problem.name}, {size(shapes[problem.name])}"
        curves = {name: result.curve for name, result in of.items()}
        shown.append(Panel(title, f"{problem.loss} on test rows", curves, notes))
    return shown


def note(result: Result) -> str:
    """Why a curve is short or absent."""
    if result.note != STOPPED:
        return result.note.partition(":")[0]
    return f"{STOPPED} after {result.seconds:.0f} s" if result.curve else f"no round within {result.seconds:.0f} s"
