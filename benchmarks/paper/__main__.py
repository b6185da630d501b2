"""All experiments of the paper, one after the other, and a report in Markdown.

    python -m benchmarks.paper --data FOLDER [--only accuracy,bandwidth] [--quick] [--report docs/benchmarks] [--no-run]

Cells that were measured before are not measured again. An experiment that cannot be run here says why in the report.
After an error the others are run, and no report is written. A folder without data sets ends the command at once. --only
and --no-run restrict what is measured, not what is reported; --sets and --learners restrict both, so give them another
--report. The report is README.md with pictures and with summaries of the findings as JSON beside it.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import traceback
from pathlib import Path

from rich.console import Console

from benchmarks.cells import Finding, NotRun, dump
from benchmarks.paper import accuracy, bandwidth, classes, rounds, scaling, uniformity
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
from benchmarks.paper.page import Section, make_page
from benchmarks.report import names_of
from benchmarks.timing import Absent, Failed

EXPERIMENTS = {module.EXPERIMENT.name: module.EXPERIMENT for module in (accuracy, rounds, scaling, bandwidth)}
EXPERIMENTS |= {module.EXPERIMENT.name: module.EXPERIMENT for module in (uniformity, classes)}


def parse_arguments() -> tuple[Plan, list[str]]:
    """The plan, and the names of the experiments to run."""
    parser = make_parser("paper", __doc__, EXPERIMENTS.values())
    only = "experiments to run, separated by commas; all by default"
    parser.add_argument("--only", type=names_of(EXPERIMENTS), default=[*EXPERIMENTS], help=only)
    parser.add_argument("--no-run", action="store_true", help="report what is known, measure nothing")
    parser.add_argument("--report", type=Path, help=f"{REPORT} by default, with --quick beside the results")
    plan = make_plan(parser)
    return plan, [] if plan.given.no_run else plan.given.only


def make_section(experiment: Experiment, plan: Plan, wanted: bool, folder: Path, console: Console) -> Section:
    """What the report says of an experiment, after running it if wanted; pictures are drawn into the folder."""
    console.rule(experiment.title)
    findings, absent = recall(experiment, plan)
    reason = ""
    try:
        if wanted:
            findings, absent = measure(experiment, plan, console), []
    except Absent:
        raise  # the wrong folder: before hours are spent on the others
    except Failed as failure:
        reason = f"It cannot be run here: {failure}"
    rows, pictures = experiment.tables(findings), experiment.draw(findings, folder)
    absent += [f"{one.name}: {one.failed}" for one in findings if isinstance(one, NotRun)]
    measured = experiment.summarise([one for one in findings if not isinstance(one, NotRun)])
    return Section(experiment, measured, absent, rows, pictures, reason)


def recall(experiment: Experiment, plan: Plan) -> tuple[list[Finding], list[str]]:
    """What is known of the planned cells, measured with any versions; names of the others."""
    known = {finding.name: finding for finding in open_store(experiment.name, plan.given).all()}
    try:
        names = [cell.name for cell in experiment.cells(plan)]
    except Failed:  # without the data sets there is no plan
        names = [*known]
    return [known[name] for name in names if name in known], [name for name in names if name not in known]


def publish(path: Path, text: str, given: argparse.Namespace) -> None:
    """Write a text with names in place of this machine's folders, the longest first."""
    names = {Path.cwd(): ".", Path.home(): "~"}
    names |= {given.data.absolute(): "FOLDER", given.data.resolve(): "FOLDER"} if given.data else {}
    for folder in sorted(names, key=lambda folder: -len(str(folder))):
        text = text.replace(str(folder), names[folder]) if len(folder.parts) > 1 else text
    path.write_text(text, "utf-8")


def main() -> None:
    console, sections, broken = Console(width=200), [], []
    plan, wanted = parse_arguments()
    folder = plan.given.report or (results_folder(plan.given) / "report" if plan.quick else REPORT)
    try:
        for name in EXPERIMENTS:  # a damaged file is reported before hours are spent
            open_store(name, plan.given)
        folder.mkdir(parents=True, exist_ok=True)
        for name, experiment in EXPERIMENTS.items():
            try:
                sections.append(make_section(experiment, plan, name in wanted, folder, console))
            except Failed:
                raise
            except Exception:
                broken.append(name)
                traceback.print_exc()
    except Failed as failure:
        sys.exit(str(failure))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    if broken:
        sys.exit(f"failed: {', '.join(broken)}; there is no report, what was measured is kept")
    for section in sections:
        publish(folder / f"{section.experiment.name}.json", dump(section.findings), plan.given)
    command = shlex.join(["python", "-m", "benchmarks.paper", *sys.argv[1:]])
    publish(folder / "README.md", make_page(sections, command, plan.quick), plan.given)
    print(f"written to {folder / 'README.md'}")


if __name__ == "__main__":
    main()
