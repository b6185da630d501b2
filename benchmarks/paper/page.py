"""The report as one page of HTML: style and pictures are in it, and no script."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from html import escape
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.cells import Finding, duration
from benchmarks.paper.experiment import Picture
from benchmarks.report import Row

TITLE = "gbun: the experiments of the paper"
FACTS = ("cpu", "cores", "memory", "kernel", "python", "threads", "jobs", "code")
GOALS = "goals"  # the table whose rows come first
SHORT = 32  # characters that stay on one line
MET = {True: "met", False: "not met", None: "not measured"}
Abouts = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Section:
    """What the report says of an experiment.

    `absent` are planned cells without a finding; `reason` is why it was not run, or not to its end.
    """

    name: str
    title: str
    text: str = ""
    findings: Sequence[Finding] = ()
    absent: Sequence[str] = ()
    rows: Sequence[Row] = ()
    pictures: Sequence[Picture] = ()
    reason: str = ""
    command: str = ""


def html(sections: Sequence[Section], command: str, quick: bool) -> str:
    abouts = [finding.about for section in sections for finding in section.findings]
    links = "".join(f'<li><a href="#{s.name}">{escape(s.title)}</a></li>' for s in sections)
    note = '<p class="notice">A quick run: tiny, on generated rows. It shows that all works, and nothing else.</p>'
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{TITLE}</title>
<style>
{Path(__file__).with_name("page.css").read_text()}</style>
</head>
<body>
<header>
<h1>{TITLE}</h1>
<p>Measured {escape(dates(abouts))}; written {datetime.now(timezone.utc):%Y-%m-%d}.</p>
{note if quick else ""}
<nav aria-label="Experiments"><ul>{links}</ul></nav>
</header>
<main>
{goals(sections)}
{machine(abouts)}
<h2>How it was made</h2>
<p>The first command makes this page; the second measures everything again.</p>
<pre>{escape(command)}
make benchmark-report DATA=FOLDER ARGS=--again</pre>
{chr(10).join(line for section in sections for line in article(section))}
</main>
</body>
</html>
"""


def goals(sections: Sequence[Section]) -> str:
    rows = [
        {"experiment": section.title, **row, "met": MET[row["met"]]}
        for section in sections
        for row in section.rows
        if row["table"] == GOALS
    ]
    if not rows:
        return "<h2>Goals</h2>\n<p>Nothing is known yet.</p>"
    counts = [f"{sum(row['met'] == word for row in rows)} {word}" for word in MET.values()]
    columns = ["goal", "met", "measured", "limit", "data", "experiment"]  # what matters is in sight on a phone
    return f"<h2>Goals</h2>\n<p>{', '.join(counts)}.</p>\n{table('Goals the project set itself', columns, rows)}"


def machine(abouts: Abouts) -> str:
    """All values there were: parts may have been measured on different days, with different versions."""

    def values(given: Iterable[Any]) -> str:
        return "; ".join(dict.fromkeys(str(value) for value in given if value is not None))

    rows = [{"": name, "value": text} for name in FACTS if (text := values(about.get(name) for about in abouts))]
    packages = [about.get("packages", {}) for about in abouts]
    for name in dict.fromkeys(name for versions in packages for name in versions):
        rows.append({"": name, "value": values(versions.get(name) for versions in packages)})
    mixed = [row[""] for row in rows if ";" in row["value"]]
    note = f'<p class="notice">Not all parts were measured alike: {escape(", ".join(mixed))}.</p>\n' if mixed else ""
    return f"<h2>Machine and versions</h2>\n{note}{table('Where it was measured, and with what', ['', 'value'], rows)}"


def dates(abouts: Abouts) -> str:
    """
    >>> dates([{"date": "2026-11-03T10:00:00+00:00"}, {"date": "2026-11-01T10:00:00+00:00"}])
    '2026-11-01 to 2026-11-03'
    """
    days = sorted({about["date"][:10] for about in abouts})
    return " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "never"


def article(section: Section) -> Iterator[str]:
    """Text, tables and pictures of an experiment; what was run of it and what was not."""
    name, title, findings = section.name, section.title, section.findings
    yield f'<section id="{name}" aria-labelledby="{name}-title">\n<h2 id="{name}-title">{escape(title)}</h2>'
    yield from (f"<p>{escape(paragraph)}</p>" for paragraph in section.text.split("\n\n") if paragraph)
    if section.reason:
        yield f'<p class="notice">{escape(section.reason)}</p>'
    for one in report.tables([row for row in section.rows if row["table"] != GOALS]):
        yield table(*one)
    for picture in section.pictures:
        data, alt = base64.b64encode(picture.path.read_bytes()).decode(), escape(f"{title}: {picture.caption}")
        image = f'<img alt="{alt}" src="data:image/png;base64,{data}">'
        yield f"<figure>{image}<figcaption>{escape(picture.caption)}</figcaption></figure>"
    yield "<h3>What was run, and what was not</h3>"
    failed = [{"cell": finding.name, "reason": finding.failed} for finding in findings if finding.failed]
    if findings:
        days = dates([finding.about for finding in findings])
        took = duration(sum(finding.seconds / finding.about.get("jobs", 1) for finding in findings))
        form = " (quick size)" if any(finding.about["quick"] for finding in findings) else ""
        planned = len(findings) + len(section.absent)
        yield f"<p>{len(findings)} of {planned} planned cells were measured, {days}, in {took}{form}; "
        link = f'<a href="{name}.json">{name}.json</a>'
        yield f"{len(failed)} of them ended with a reason instead of a figure. All findings: {link}.</p>"
    else:
        yield "<p>Nothing was measured.</p>"
    if failed:
        yield table("Cells without a figure", ["cell", "reason"], failed)
    if section.absent:
        names = "".join(f"<li>{escape(name)}</li>" for name in section.absent)
        yield f"<details><summary>{len(section.absent)} cells were not run</summary><ul>{names}</ul></details>"
    yield f"<p>Again: <code>{escape(section.command)}</code></p>\n</section>"


def table(title: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """It scrolls in a region of its own, which the keyboard reaches too; the first column names the row."""
    head = "".join(f'<th scope="col">{escape(column) or "what"}</th>' for column in columns)
    body = "\n".join(f"<tr>{_cells(columns, row)}</tr>" for row in rows)
    name = escape(title)
    return (
        f'<div class="scroll" role="region" aria-label="{name}" tabindex="0"><table>\n'
        f"<caption><span>{name}</span></caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def _cells(columns: Sequence[str], row: Mapping[str, Any]) -> str:
    cells = []
    for number, column in enumerate(columns):
        value, kind = row.get(column), ""
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            kind = " class=n"
        elif column == "met" and value in MET.values():
            kind = f" class={value.replace(' ', '-')}"
        elif isinstance(value, str) and number and len(value) > SHORT:
            kind = " class=long"
        tag = "td" if number else 'th scope="row"'
        cells.append(f"<{tag}{kind}>{escape(report.cell(value))}")  # HTML ends it
    return "".join(cells)
