"""All experiments of the paper, one after the other, and a report in HTML of what is known.

    python -m benchmarks.paper --data FOLDER [--only accuracy,bandwidth] [--quick] [--report docs/benchmarks] [--no-run]

What an experiment has found before is not measured again. One that cannot be run here says why in the report; one that
fails says so too, and the command then ends with an error after the others. A folder without data sets ends it at once.
--only and --no-run restrict what is measured, never what is reported. The report is index.html, which needs nothing
else, with the findings beside it as JSON; a browser, if there is one, checks it.
"""

from __future__ import annotations

import json
import shlex
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from rich.console import Console

from benchmarks.paper import browser, page
from benchmarks.paper.cells import Finding, NotRun, Store, flawed, key
from benchmarks.paper.experiment import (
    INTERRUPTED,
    REPORT,
    Experiment,
    Plan,
    common,
    findings,
    folder,
    planned,
    store_of,
)
from benchmarks.paper.page import Section
from benchmarks.speed.children import in_words
from benchmarks.speed.timing import Absent, Failed

NAMES = ("accuracy", "rounds", "scaling", "bandwidth", "uniformity", "classes")


class Reporter:
    """Runs what is to be run, and remembers what went wrong."""

    def __init__(self, plan: Plan, wanted: Sequence[str], console: Console) -> None:
        self.plan, self.wanted, self.console = plan, wanted, console
        self.broken: list[str] = []

    def section(self, name: str, experiment: Experiment | Exception) -> Section:
        """What is known of an experiment, after running it if it is wanted; or why it could not be imported."""
        rerun = f"python -m benchmarks.paper.{name} {'--quick' if self.plan.quick else '--data FOLDER'}"
        if isinstance(experiment, Exception):
            return Section(name, name.capitalize(), reason=self._reason(name, experiment), rerun=rerun)
        self.console.rule(experiment.title)
        found, absent, reason = self._known(experiment)
        rows, pictures = [], []
        try:
            rows, pictures = experiment.tables(found), experiment.draw(found, folder(self.plan.given))
        except Exception as error:
            reason = self._reason(name, error)
        absent += [self._cleaned(f"{one.name}: {one.failed}") for one in found if isinstance(one, NotRun)]
        if absent and not reason:
            reason = "It was not run to its end: what is known is shown."
        measured = [one for one in found if not isinstance(one, NotRun)]
        told = json.loads(self._cleaned(json.dumps([asdict(finding) for finding in measured])))
        shown = [{k: self._cleaned(v) if isinstance(v, str) else v for k, v in row.items()} for row in rows]
        known = [Finding(**one) for one in told]
        return Section(name, experiment.title, experiment.text, known, absent, shown, pictures, reason, rerun)

    def _known(self, experiment: Experiment) -> tuple[list[Finding], list[str], str]:
        """Findings, names of the cells that are missing, and why they are."""
        name, reason = experiment.name, ""
        try:
            cells = experiment.cells(self.plan)
        except Exception as error:
            if isinstance(error, Absent) and name in self.wanted:
                sys.exit(str(error))  # before hours are spent on the others
            return self._store(name).all(), [], self._reason(name, error)
        if name in self.wanted:
            try:
                return findings(experiment, self.plan, self.console), [], ""
            except Exception as error:
                reason = self._reason(name, error)
        store = self._store(name)
        found = {cell.name: store.of(cell) for cell in cells}
        absent = [cell for cell, finding in found.items() if finding is None]
        return [finding for finding in found.values() if finding is not None], absent, reason

    def _store(self, name: str) -> Store:
        return store_of(name, self.plan.given)

    def _reason(self, name: str, error: Exception) -> str:
        """What cannot be done here is a finding; anything else is an error, which is told at the end once more."""
        if isinstance(error, Failed):
            self.console.print(f"{name} cannot be run here: {error}", markup=False)
            return f"It cannot be run here: {self._cleaned(str(error))}"
        if name in self.wanted:
            self.broken.append(name)
            self.console.print("".join(traceback.format_exception(error)), markup=False)
        return f"It failed: {self._cleaned(in_words(error))}"

    def _cleaned(self, text: str) -> str:
        """As others may read it: a machine's folders are not their business."""
        data, results = self.plan.given.data, folder(self.plan.given)
        hidden = {Path.cwd(): ".", Path.home(): "~", results.resolve(): "RESULTS"}
        if data is not None:
            hidden |= {data: "FOLDER", data.resolve(): "FOLDER"}
        for path, name in sorted(hidden.items(), key=lambda item: -len(str(item[0]))):
            if len(path.parts) > 1:
                text = text.replace(json.dumps(str(path))[1:-1], name)
        return text


def imported() -> dict[str, Experiment | Exception]:
    """Each module has an EXPERIMENT; what one needs may be missing."""
    found: dict[str, Experiment | Exception] = {}
    for name in NAMES:
        try:
            found[name] = import_module(f"benchmarks.paper.{name}").EXPERIMENT
        except (ImportError, AttributeError) as error:
            found[name] = error
    return found


def write(sections: Sequence[Section], into: Path, command: str, quick: bool) -> Path:
    """The page, and what it was made of."""
    into.mkdir(parents=True, exist_ok=True)
    for section in sections:
        beside = into / f"{section.name}.json"
        beside.unlink(missing_ok=True)
        if section.findings:
            beside.write_text(json.dumps([asdict(finding) for finding in section.findings], indent=1) + "\n")
    written = into / "index.html"
    written.write_text(page.html(sections, command, quick), encoding="utf-8")
    return written


def place(sections: Sequence[Section], beside: Path, quick: bool, console: Console) -> Path:
    """Where the report belongs, unless the one that is there has cells with figures of which this one has none, or not
    all."""
    if quick:
        return beside
    lost = []
    for section in sections:
        here = {key(one): one for one in section.findings if one.found}
        there = [one for one in Store(REPORT / f"{section.name}.json").all() if one.found]
        if gone := [one for one in there if key(one) not in here or flawed(here[key(one)]) > flawed(one)]:
            lost.append(f"{section.name} ({len(gone)} cells)")
    if not lost:
        return REPORT
    console.print(f"{REPORT} has figures that are missing here, of {', '.join(lost)}, and stays;")
    console.print(f"--report {REPORT} replaces it")
    return beside


def check(written: Path, console: Console, screenshots: Path | None) -> list[str]:
    """What a browser finds wrong with the page; that there is none is said."""
    found = browser.find()
    if found is None:
        console.print(f"NOT CHECKED in a browser: there is none of {', '.join(browser.NAMES)}")
        return []
    if screenshots is not None:
        console.print(*browser.screenshots(written, found, screenshots), sep="\n")
    problems = browser.problems(written, len(NAMES), found)
    widths = " and ".join(map(str, browser.WIDTHS))
    console.print(*problems or [f"checked in {Path(found).name} at {widths} px: in order"], sep="\n", markup=False)
    return problems


def arguments(experiments: dict[str, Experiment | Exception]) -> tuple[Plan, list[str]]:
    """The plan, and the names of what is to be run."""
    parser = common("python -m benchmarks.paper", __doc__ or "")
    parser.add_argument("--only", help="experiments to run, separated by commas; all by default")
    parser.add_argument("--no-run", action="store_true", help="report what is known, measure nothing")
    parser.add_argument("--report", type=Path, help=f"{REPORT} by default, with --quick beside what was found")
    parser.add_argument("--screenshots", type=Path, help="folder for pictures of the page in the browser")
    for experiment in experiments.values():
        if isinstance(experiment, Experiment):
            experiment.options(parser)
    plan = planned(parser)
    wanted = list(NAMES) if plan.given.only is None else plan.given.only.split(",")
    if unknown := [name for name in wanted if name not in NAMES]:
        parser.error(f"--only must name some of {', '.join(NAMES)}, got {', '.join(map(repr, unknown))}")
    if plan.given.no_run:
        return plan, []
    if plan.given.only is None and plan.data is None and not plan.quick:
        parser.error("--data FOLDER with the data sets is needed, or --quick for generated rows, or --only for some")
    return plan, wanted


def command_of(plan: Plan) -> str:
    """What was typed, but for folders."""
    given = plan.given
    folders = [str(path) for path in (given.data, given.output, given.report, given.screenshots) if path]
    words = ["FOLDER" if word in folders else word for word in sys.argv[1:]]
    return shlex.join(["python", "-m", "benchmarks.paper", *words])


def main() -> None:
    experiments, console = imported(), Console(width=200)
    plan, wanted = arguments(experiments)
    reporter = Reporter(plan, wanted, console)
    try:
        for name in experiments:  # a damaged file is told before hours are spent
            store_of(name, plan.given)
            Store(REPORT / f"{name}.json")
    except Failed as failure:
        sys.exit(str(failure))
    try:
        sections = [reporter.section(name, experiment) for name, experiment in experiments.items()]
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    into = plan.given.report or place(sections, folder(plan.given) / "report", plan.quick, console)
    written = write(sections, into, command_of(plan), plan.quick)
    console.print(f"written to {written}, {written.stat().st_size / 1e6:.2f} MB", markup=False)
    problems = check(written, console, plan.given.screenshots)
    if reporter.broken or problems:
        sys.exit(f"failed: {', '.join([*reporter.broken, *(['the page'] if problems else [])])}")


if __name__ == "__main__":
    main()
