"""The report in Markdown, with pictures beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from benchmarks import report
from benchmarks.cells import Finding, duration
from benchmarks.paper.experiment import Experiment, Picture
from benchmarks.report import Row

FACTS = ("cpu", "cores", "memory", "kernel", "python", "threads", "jobs", "code")
GOALS = "goals"  # the table whose rows come first
MET = {True: "met", False: "not met", None: "not measured"}
Abouts = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Section:
    """What the report says of an experiment: `absent` are planned cells without a finding, `reason` is why."""

    experiment: Experiment
    findings: Sequence[Finding]
    absent: Sequence[str]
    rows: Sequence[Row]
    pictures: Sequence[Picture]
    reason: str = ""


def make_page(sections: Sequence[Section], command: str, quick: bool) -> str:
    abouts = [finding.about for section in sections for finding in section.findings]
    paragraphs = [
        "# The experiments of the paper",
        f"Measured {dates(abouts)}; written {datetime.now(timezone.utc):%Y-%m-%d}.",
        *(["A quick run: tiny, on generated rows. It shows that everything works, and nothing else."] if quick else []),
        *describe_goals(sections),
        *describe_machine(abouts),
        "## How it was made",
        "The first command makes this page; the second measures everything again.",
        f"```sh\n{command}\nmake benchmark-report DATA=FOLDER ARGS=--again\n```",
        *(paragraph for section in sections for paragraph in describe_experiment(section, quick)),
    ]
    return "\n\n".join(paragraphs) + "\n"


def describe_goals(sections: Sequence[Section]) -> Iterator[str]:
    rows = [
        {"experiment": section.experiment.title, **row, "met": MET[row["met"]]}
        for section in sections
        for row in section.rows
        if row["table"] == GOALS
    ]
    yield "## Goals"
    yield ", ".join(f"{sum(row['met'] == word for row in rows)} {word}" for word in MET.values()) + "."
    yield table("Goals the project set itself", ["goal", "met", "measured", "limit", "data", "experiment"], rows)


def describe_machine(abouts: Abouts) -> Iterator[str]:
    """All values there were: parts may have been measured on different days, with different versions."""

    def values(given: Iterable[Any]) -> str:
        return "; ".join(dict.fromkeys(str(value) for value in given if value is not None))

    packages = [about.get("packages", {}) for about in abouts]
    facts = {name: values(about.get(name) for about in abouts) for name in FACTS}
    facts |= {name: values(one.get(name) for one in packages) for one in packages for name in one}
    yield "## Machine and versions"
    if mixed := [name for name, text in facts.items() if ";" in text]:
        yield f"Not all parts were measured alike: {', '.join(mixed)}."
    rows = [{"what": name, "value": text} for name, text in facts.items() if text]
    yield table("Where it was measured, and with what", ["what", "value"], rows)


def dates(abouts: Abouts) -> str:
    """
    >>> dates([{"date": "2026-11-03T10:00:00+00:00"}, {"date": "2026-11-01T10:00:00+00:00"}])
    '2026-11-01 to 2026-11-03'
    """
    days = sorted({about["date"][:10] for about in abouts})
    return " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "never"


def describe_experiment(section: Section, quick: bool) -> Iterator[str]:
    """Text, tables and pictures of an experiment; what was run of it and what was not."""
    name, title, findings = section.experiment.name, section.experiment.title, section.findings
    yield f"## {title}"
    yield from (escape(" ".join(paragraph.split())) for paragraph in section.experiment.text.split("\n\n"))
    for one in report.tables([row for row in section.rows if row["table"] != GOALS]):
        yield table(*one)
    for picture in section.pictures:
        yield f"![{title}]({picture.path.name})\n\n*{escape(picture.caption)}*"
    yield f"### {title}: what was run, and what was not"
    if section.reason:
        yield escape(section.reason)
    failed = [{"cell": finding.name, "reason": finding.failed} for finding in findings if finding.failed]
    took = duration(sum(finding.seconds / finding.about.get("jobs", 1) for finding in findings))
    yield (
        f"{len(findings)} of {len(findings) + len(section.absent)} planned cells were measured "
        f"({dates([finding.about for finding in findings])}, in {took}); {len(failed)} of them ended with a reason "
        f"instead of a figure. All findings: [{name}.json]({name}.json)."
    )
    if failed:
        yield table("Cells without a figure", ["cell", "reason"], failed)
    if section.absent:
        yield "Not run:\n\n" + "\n".join(f"- {escape(cell)}" for cell in section.absent)
    yield f"To run it again: `python -m benchmarks.paper.{name} {'--quick' if quick else '--data FOLDER'}`"


def table(title: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    numeric = [any(isinstance(row.get(column), (int, float)) for row in rows) for column in columns]
    cells = [columns, *([report.cell(row.get(column)) for column in columns] for row in rows)]
    head, *body = ("| " + " | ".join(map(escape, row)) + " |" for row in cells)
    rule = "|" + "|".join("---:" if right else "---" for right in numeric) + "|"
    return "\n".join([f"**{escape(title)}**\n", head, rule, *body])


def escape(text: str) -> str:
    r"""
    >>> print(escape("a | b <c> *d*"))
    a \| b \<c> \*d\*
    """
    return re.sub(r"([\\|<*`~])", r"\\\1", " ".join(text.split()))
