"""What an experiment of the paper is, the command line that all experiments share, and their pictures."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from benchmarks import report
from benchmarks.cells import Cell, Finding, NotRun, Store, run
from benchmarks.report import Row, new_figure, number, save
from benchmarks.timing import Failed

RESULTS, QUICK_RESULTS = Path("results/paper"), Path("results/paper_quick")
REPORT = Path("docs/benchmarks")  # the latest report with its findings
INTERRUPTED = "interrupted: cells that were measured are kept, and the same command goes on with the others"
T = TypeVar("T")
JOB_MEMORY = 12 * 10**9  # bytes for each of several cells side by side


@dataclass(frozen=True)
class Plan:
    """How much is measured. Rows are generated without `data`, or where `quick`.

    `jobs` cells share the threads where an experiment is not about seconds; `given` are all arguments.
    """

    data: Path | None
    quick: bool
    threads: int
    jobs: int
    given: argparse.Namespace

    def pick(self, whole: T, quick: T) -> T:
        return quick if self.quick else whole


@dataclass(frozen=True)
class Picture:
    path: Path  # a PNG file
    caption: str


@dataclass(frozen=True)
class Experiment:
    """`tables` returns rows, each of which names its "table"; `draw` writes pictures into a folder.

    Both get the findings of all cells of the plan, failures too. The paper's figures have columns of their own.
    """

    name: str
    title: str
    text: str  # what the paper did, what is done here, and what differs: paragraphs for the report
    cells: Callable[[Plan], Sequence[Cell]]
    tables: Callable[[Sequence[Finding]], list[Row]]
    draw: Callable[[Sequence[Finding], Path], list[Picture]]
    add_options: Callable[[argparse.ArgumentParser], None] = lambda parser: None
    alone: bool = True  # its seconds are figures: one cell at a time, whatever --jobs says
    summarise: Callable[[Sequence[Finding]], Sequence[Finding]] = lambda findings: findings  # for the report's folder


def measure(experiment: Experiment, plan: Plan, console: Console) -> list[Finding]:
    """Return the findings of a plan's cells; measure those that are missing."""
    jobs = 1 if experiment.alone else plan.jobs

    def about() -> dict[str, Any]:
        return {**report.about(plan.threads // jobs, plan.quick), "jobs": jobs, "code": report.code()}

    store = open_store(experiment.name, plan.given)
    return run(experiment.cells(plan), store, about, console, plan.given.again, jobs)


def main(experiment: Experiment) -> None:
    """Measure what is missing, print tables and write pictures."""
    plan = make_plan(make_parser(f"paper.{experiment.name}", experiment.text, [experiment]))
    console, folder = Console(width=200), results_folder(plan.given)
    try:
        findings = measure(experiment, plan, console)
    except Failed as failure:
        sys.exit(f"{experiment.name} cannot be run here: {failure}")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    report.show(experiment.tables(findings), console)
    if findings and all(isinstance(finding, NotRun) for finding in findings):
        sys.exit(f"nothing could be run: {findings[0].failed}")
    pictures = experiment.draw(findings, folder)
    console.print(f"written to {', '.join(str(picture.path) for picture in pictures) or folder}")


def open_store(name: str, given: argparse.Namespace) -> Store:
    """The findings of an experiment; a new clone begins with those of the report in the repository."""
    path, published = results_folder(given) / f"{name}.json", REPORT / f"{name}.json"
    if not path.exists() and published.exists() and given.output is None and not given.quick:
        shutil.copyfile(published, path)
    return Store(path)


def results_folder(given: argparse.Namespace) -> Path:
    folder = Path(given.output or (QUICK_RESULTS if given.quick else RESULTS))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def make_parser(command: str, description: str | None, experiments: Iterable[Experiment]) -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(f"python -m benchmarks.{command}", description=description, formatter_class=raw)
    add = parser.add_argument
    add("--data", type=Path, help="folder of the data sets")
    add("--quick", action="store_true", help="a tiny form on generated rows")
    add("--again", action="store_true", help="measure known cells again; the old file is kept beside the new one")
    add("--threads", type=number(), default=os.cpu_count() or 1, help="all cores by default")
    jobs = "cells measured side by side, where seconds are no figures; they share --threads. One for each thread by "
    add("--jobs", type=number(), help=f"{jobs}default, as far as memory allows")
    add("--output", type=Path, help=f"{RESULTS} by default, {QUICK_RESULTS} with --quick")
    for experiment in experiments:
        experiment.add_options(parser)
    return parser


def make_plan(parser: argparse.ArgumentParser, words: Sequence[str] | None = None) -> Plan:
    """The plan of a command line, by default that of this process."""
    given = parser.parse_args(words)
    for name, value in vars(given).items():
        if isinstance(value, Path) and not value.is_dir() and (name == "data" or value.exists()):
            parser.error(f"--{name} must be a folder, got {str(value)!r}")
    jobs = given.jobs or max(1, min(given.threads, memory() // JOB_MEMORY))
    if jobs > given.threads:
        parser.error(f"--jobs must be at most --threads, {given.threads}, got {jobs}")
    return Plan(None if given.quick else given.data, given.quick, given.threads, jobs, given)


def memory() -> int:
    """Bytes of this machine. Free bytes would change, and the cells with them."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def draw_panels(
    fills: Sequence[Callable[[Any], None]], path: Path, caption: str, height: float, shades: int = 32
) -> list[Picture]:
    """Draw panels one below the other, so that a phone can show them; nothing without panels."""
    if not fills:
        return []
    figure = new_figure(5.0, height * len(fills))
    for ax, fill in zip(figure.subplots(len(fills), 1, squeeze=False)[:, 0], fills, strict=True):
        fill(ax)
        ax.title.set_fontsize(9)
        ax.tick_params(labelsize=7)
        for axis in (ax.xaxis, ax.yaxis):
            axis.label.set_fontsize(8)
        if ax.get_legend_handles_labels()[0]:
            ax.legend(fontsize=6)
    save(figure, path, shades)
    return [Picture(path, caption)]
