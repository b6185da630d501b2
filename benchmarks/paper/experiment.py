"""What an experiment of the paper is, and the command line that all of them share."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.paper.cells import Cell, Finding, NotRun, Store, run
from benchmarks.paper.given import number
from benchmarks.speed import report
from benchmarks.speed.report import Row
from benchmarks.speed.timing import Failed

RESULTS, QUICK_RESULTS = Path("results/paper"), Path("results/paper_quick")
REPORT = Path("docs/benchmarks")  # the latest report, and its findings
INTERRUPTED = "interrupted: cells that were measured are kept, and the same command goes on with the others"
A_JOB = 12 * 10**9  # bytes that one of several cells side by side may have


@dataclass(frozen=True)
class Plan:
    """How much is measured. Without `data`, or where `quick`, rows are generated."""

    data: Path | None
    quick: bool
    threads: int
    jobs: int
    """Cells side by side, among which the threads are divided, where an experiment is not about seconds."""
    given: argparse.Namespace
    """All arguments, those of the experiment's own too."""


@dataclass(frozen=True)
class Picture:
    path: Path
    caption: str


@dataclass(frozen=True)
class Experiment:
    """`tables` gives rows, each of which names its "table"; `draw` writes pictures into a folder.

    Both get what all cells of the plan have found, failures too, and say what they can of it: a run may have been
    small. The paper's figures are in the tables, in columns of their own.
    """

    name: str
    title: str
    text: str
    """What the paper did, what is done here, and what differs: a paragraph for the report."""
    cells: Callable[[Plan], Sequence[Cell]]
    tables: Callable[[Sequence[Finding]], list[Row]]
    draw: Callable[[Sequence[Finding], Path], list[Picture]]
    options: Callable[[argparse.ArgumentParser], None] = lambda parser: None
    """Adds arguments of its own; names of different experiments must not meet."""
    alone: bool = True
    """Its seconds are figures, so one cell at a time has the machine, whatever --jobs says."""


def findings(experiment: Experiment, plan: Plan, console: Console) -> list[Finding]:
    """What the cells of a plan have found; those that are missing are measured."""
    store = store_of(experiment.name, plan.given)
    jobs = 1 if experiment.alone else plan.jobs

    def about() -> dict[str, Any]:
        return {**report.about(plan.threads // jobs, plan.quick), "jobs": jobs, "code": report.code()}

    return run(experiment.cells(plan), store, about, console, plan.given.again, jobs)


def main(experiment: Experiment) -> None:
    """Measures what is missing, prints tables and writes pictures."""
    parser = common(f"python -m benchmarks.paper.{experiment.name}", experiment.text)
    experiment.options(parser)
    plan, console = planned(parser), Console(width=200)
    try:
        found = findings(experiment, plan, console)
    except Failed as failure:
        sys.exit(f"{experiment.name} cannot be run here: {failure}")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    report.show(experiment.tables(found), console)
    if found and all(isinstance(one, NotRun) for one in found):
        sys.exit(f"nothing could be run: {found[0].failed}")
    pictures = experiment.draw(found, folder(plan.given))
    console.print(f"written to {', '.join(str(picture.path) for picture in pictures) or folder(plan.given)}")


def store_of(name: str, given: argparse.Namespace) -> Store:
    """What is known of an experiment: in a new clone, what the report that comes with it has found."""
    path, published = folder(given) / f"{name}.json", REPORT / f"{name}.json"
    if not path.exists() and published.exists() and given.output is None and not given.quick:
        shutil.copyfile(published, path)
    return Store(path)


def common(prog: str, description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--quick", action="store_true", help="a tiny form on generated rows")
    parser.add_argument(
        "--again",
        nargs="?",
        const="all",
        choices=("all", "failed"),
        help="measure also what is known already, all of it or what failed in a part at least; what was known is kept "
        "in a file beside",
    )
    parser.add_argument("--threads", type=number(), default=os.cpu_count() or 1, help="all cores by default")
    parser.add_argument(
        "--jobs",
        type=number(),
        help="cells measured side by side, where an experiment is not about seconds; they share --threads. By default "
        "each has one thread, as far as memory allows",
    )
    parser.add_argument("--output", type=Path, help=f"{RESULTS} by default, {QUICK_RESULTS} with --quick")
    return parser


def planned(parser: argparse.ArgumentParser) -> Plan:
    given = parser.parse_args()
    if given.data is not None and not given.data.is_dir():
        parser.error(f"--data must be a folder, got {str(given.data)!r}")
    for name in ("output", "report", "screenshots"):
        path = getattr(given, name, None)
        if path is not None and path.exists() and not path.is_dir():
            parser.error(f"--{name} must be a folder, got {str(path)!r}")
    jobs = given.jobs or max(1, min(given.threads, memory() // A_JOB))
    if jobs > given.threads:
        parser.error(f"--jobs must be at most --threads, {given.threads}, got {jobs}")
    return Plan(None if given.quick else given.data, given.quick, given.threads, jobs, given)


def memory() -> int:
    """Bytes that this machine has. What is free of them changes, and with it the cells would."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def folder(given: argparse.Namespace) -> Path:
    chosen = given.output or (QUICK_RESULTS if given.quick else RESULTS)
    chosen.mkdir(parents=True, exist_ok=True)
    return Path(chosen)
