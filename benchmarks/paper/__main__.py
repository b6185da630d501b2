"""All experiments of the paper, one after the other, and a report in HTML.

    python -m benchmarks.paper --data FOLDER [--only accuracy,bandwidth] [--quick] [--report docs/benchmarks] [--no-run]

Cells that were measured before are not measured again. An experiment that cannot be run here says why in the report;
one that fails says so too, and the command ends with an error after the others. A folder without data sets ends it at
once. --only and --no-run restrict what is measured, never what is reported. The report is index.html, which needs no
other file, with summaries of the findings beside it as JSON; a browser, if there is one, checks it.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.cells import Finding, NotRun, Store, cell_key, dump, is_incomplete
from benchmarks.paper import browser, page
from benchmarks.paper.experiment import (
    INTERRUPTED,
    REPORT,
    Experiment,
    Plan,
    make_parser,
    make_plan,
    measure,
    open_store,
    results_folder,
)
from benchmarks.paper.page import Section
from benchmarks.report import names_of
from benchmarks.timing import Absent, Failed, describe_error

NAMES = ("accuracy", "rounds", "scaling", "bandwidth", "uniformity", "classes")


def import_experiments() -> dict[str, Experiment | Exception]:
    """The EXPERIMENT of each module, or why it cannot be imported."""
    found: dict[str, Experiment | Exception] = {}
    for name in NAMES:
        try:
            found[name] = import_module(f"benchmarks.paper.{name}").EXPERIMENT
        except (ImportError, AttributeError) as error:
            found[name] = error
    return found


def parse_arguments(experiments: Mapping[str, Experiment | Exception]) -> tuple[Plan, list[str]]:
    """The plan, and the names of the experiments to run."""
    parser = make_parser("paper", __doc__, [one for one in experiments.values() if isinstance(one, Experiment)])
    parser.add_argument("--only", type=names_of(NAMES), help="experiments to run, separated by commas; all by default")
    parser.add_argument("--no-run", action="store_true", help="report what is known, measure nothing")
    parser.add_argument("--report", type=Path, help=f"{REPORT} by default, with --quick beside the results")
    parser.add_argument("--screenshots", type=Path, help="folder for pictures of the page in the browser")
    plan = make_plan(parser)
    if plan.given.no_run:
        return plan, []
    if plan.given.only is None and plan.data is None and not plan.quick:
        parser.error("--data FOLDER with the data sets is needed, or --quick for generated rows, or --only for some")
    return plan, plan.given.only or list(NAMES)


class Reporter:
    """Runs the wanted experiments and records those with errors in `broken`."""

    def __init__(self, plan: Plan, wanted: Sequence[str], console: Console) -> None:
        self.plan, self.wanted, self.console = plan, wanted, console
        self.broken: list[str] = []

    def section(self, name: str, experiment: Experiment | Exception) -> Section:
        """The section of an experiment, after running it if wanted; an exception is why it could not be imported."""
        command = f"python -m benchmarks.paper.{name} {'--quick' if self.plan.quick else '--data FOLDER'}"
        if isinstance(experiment, Exception):
            reason = hide_folders(self.plan.given, self.explain(name, experiment))
            return Section(name, name.capitalize(), reason=reason, command=command)
        self.console.rule(experiment.title)
        findings, absent, reason = self.find(experiment)
        rows, pictures = [], []
        try:
            rows = experiment.tables(findings)
            pictures = experiment.draw(findings, results_folder(self.plan.given))
        except Exception as error:
            reason = self.explain(name, error)
        absent += [f"{one.name}: {one.failed}" for one in findings if isinstance(one, NotRun)]
        if absent and not reason:
            reason = "It was not run to its end: what is known is shown."
        measured = [asdict(one) for one in experiment.summarise([f for f in findings if not isinstance(f, NotRun)])]
        measured, absent, rows, reason = hide_folders(self.plan.given, [measured, absent, rows, reason])
        findings = [Finding(**one) for one in measured]
        return Section(name, experiment.title, experiment.text, findings, absent, rows, pictures, reason, command)

    def find(self, experiment: Experiment) -> tuple[list[Finding], list[str], str]:
        """Findings, names of the cells that are missing, and why they are."""
        name, cells, reason = experiment.name, None, ""
        try:
            cells = experiment.cells(self.plan)
            if name in self.wanted:
                return measure(experiment, self.plan, self.console), [], ""
        except Exception as error:
            if isinstance(error, Absent) and name in self.wanted:
                sys.exit(str(error))  # before hours are spent on the others
            reason = self.explain(name, error)
        store = open_store(name, self.plan.given)
        if cells is None:
            return store.all(), [], reason
        found = {cell.name: store.of(cell) for cell in cells}
        absent = [cell for cell, finding in found.items() if finding is None]
        return [finding for finding in found.values() if finding is not None], absent, reason

    def explain(self, name: str, error: Exception) -> str:
        """What cannot be done here is a finding; anything else is an error, which the command's end repeats."""
        if isinstance(error, Failed):
            self.console.print(f"{name} cannot be run here: {error}", markup=False)
            return f"It cannot be run here: {error}"
        if name in self.wanted:
            self.broken.append(name)
            self.console.print("".join(traceback.format_exception(error)), markup=False)
        return f"It failed: {describe_error(error)}"


def hide_folders(given: argparse.Namespace, value: Any) -> Any:
    """Replace the folders of this machine by names, the longest first, in all that JSON can write."""
    text = json.dumps(value)
    names = {Path.cwd(): ".", Path.home(): "~", results_folder(given).resolve(): "RESULTS"}
    names |= {given.data: "FOLDER", given.data.resolve(): "FOLDER"} if given.data else {}
    for path, name in sorted(names.items(), key=lambda item: -len(str(item[0]))):
        if len(path.parts) > 1:
            text = text.replace(json.dumps(str(path))[1:-1], name)
    return json.loads(text)


def choose_folder(sections: Sequence[Section], fallback: Path, quick: bool, console: Console) -> Path:
    """REPORT, unless the report that is there has cells whose figures are missing here, or not complete."""
    if quick:
        return fallback
    lost = []
    for section in sections:
        here = {cell_key(one): is_incomplete(one) for one in section.findings if one.found}
        there = [one for one in Store(REPORT / f"{section.name}.json").all() if one.found]
        if gone := sum(here.get(cell_key(one), 2) > is_incomplete(one) for one in there):
            lost.append(f"{section.name} ({gone} cells)")
    if not lost:
        return REPORT
    console.print(f"{REPORT} has figures that are missing here, of {', '.join(lost)}, and stays;")
    console.print(f"--report {REPORT} replaces it")
    return fallback


def main() -> None:
    experiments, console = import_experiments(), Console(width=200)
    plan, wanted = parse_arguments(experiments)
    given, reporter = plan.given, Reporter(plan, wanted, console)
    try:
        for name in experiments:  # a damaged file is reported before hours are spent
            open_store(name, given)
            Store(REPORT / f"{name}.json")
        sections = [reporter.section(name, experiment) for name, experiment in experiments.items()]
    except Failed as failure:
        sys.exit(str(failure))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    into = given.report or choose_folder(sections, results_folder(given) / "report", plan.quick, console)
    into.mkdir(parents=True, exist_ok=True)
    for section in sections:
        file = into / f"{section.name}.json"
        file.unlink(missing_ok=True)
        if section.findings:
            file.write_text(dump(section.findings))
    folders = [str(path) for path in vars(given).values() if isinstance(path, Path)]
    words = ["FOLDER" if word in folders else word for word in sys.argv[1:]]
    written = into / "index.html"
    written.write_text(
        page.html(sections, shlex.join(["python", "-m", "benchmarks.paper", *words]), plan.quick), "utf-8"
    )
    print(f"written to {written}, {written.stat().st_size / 1e6:.2f} MB", flush=True)
    if browser.check(written, len(NAMES), given.screenshots):
        reporter.broken.append("the page")
    if reporter.broken:
        sys.exit(f"failed: {', '.join(reporter.broken)}")


if __name__ == "__main__":
    main()
