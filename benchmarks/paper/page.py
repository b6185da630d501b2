"""The report as one page of HTML: style and pictures are in it, and no script."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
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
KINDS = {".svg": "image/svg+xml", ".png": "image/png"}
FACTS = ("cpu", "cores", "memory", "kernel", "python", "threads", "jobs", "code")
GOALS = "goals"  # the table whose rows come first
SHORT = 32  # characters that stay on one line
MET = {True: "met", False: "not met", None: "not measured"}


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

    @property
    def abouts(self) -> list[Mapping[str, Any]]:
        return [finding.about for finding in self.findings]


def html(sections: Sequence[Section], command: str, quick: bool) -> str:
    abouts = [about for section in sections for about in section.abouts]
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
{chr(10).join(map(article, sections))}
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


def machine(abouts: Sequence[Mapping[str, Any]]) -> str:
    """All values there were: parts may have been measured on different days, with different versions."""

    def values(given: Iterable[Any]) -> str:
        return "; ".join(dict.fromkeys(str(value) for value in given if value is not None))

    rows = [{"": name, "value": text} for name in FACTS if (text := values(about.get(name) for about in abouts))]
    for name in dict.fromkeys(name for about in abouts for name in about.get("packages", {})):
        rows.append({"": name, "value": values(about.get("packages", {}).get(name) for about in abouts)})
    mixed = [row[""] for row in rows if ";" in row["value"]]
    note = f'<p class="notice">Not all parts were measured alike: {escape(", ".join(mixed))}.</p>\n' if mixed else ""
    return f"<h2>Machine and versions</h2>\n{note}{table('Where it was measured, and with what', ['', 'value'], rows)}"


def dates(abouts: Sequence[Mapping[str, Any]]) -> str:
    """
    >>> dates([{"date": "2026-11-03T10:00:00+00:00"}, {"date": "2026-11-01T10:00:00+00:00"}])
    '2026-11-01 to 2026-11-03'
    """
    days = sorted({about["date"][:10] for about in abouts})
    return " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "never"


def article(section: Section) -> str:
    parts = [f'<section id="{section.name}" aria-labelledby="{section.name}-title">']
    parts.append(f'<h2 id="{section.name}-title">{escape(section.title)}</h2>')
    parts += [f"<p>{escape(paragraph)}</p>" for paragraph in section.text.split("\n\n") if paragraph]
    if section.reason:
        parts.append(f'<p class="notice">{escape(section.reason)}</p>')
    parts += [table(*one) for one in report.tables([row for row in section.rows if row["table"] != GOALS])]
    parts += [figure(section.title, picture) for picture in section.pictures]
    return "\n".join([*parts, *_coverage(section), "</section>"])


def _coverage(section: Section) -> Iterable[str]:
    """What was run and what was not."""
    failed = [finding for finding in section.findings if finding.failed]
    known, planned = len(section.findings), len(section.findings) + len(section.absent)
    yield "<h3>What was run, and what was not</h3>"
    if known:
        took = duration(sum(finding.seconds / finding.about.get("jobs", 1) for finding in section.findings))
        form = " (quick size)" if any(about["quick"] for about in section.abouts) else ""
        link = f'<a href="{section.name}.json">{section.name}.json</a>'
        yield f"<p>{known} of {planned} planned cells were measured, {dates(section.abouts)}, in {took}{form}; "
        yield f"{len(failed)} of them ended with a reason instead of a figure. All findings: {link}.</p>"
    else:
        yield "<p>Nothing was measured.</p>"
    if failed:
        rows = [{"cell": finding.name, "reason": finding.failed} for finding in failed]
        yield table("Cells without a figure", ["cell", "reason"], rows)
    if section.absent:
        names = "".join(f"<li>{escape(name)}</li>" for name in section.absent)
        yield f"<details><summary>{len(section.absent)} cells were not run</summary><ul>{names}</ul></details>"
    yield f"<p>Again: <code>{escape(section.command)}</code></p>"


def table(title: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """It scrolls in a region of its own, which the keyboard reaches too; the first column names the row."""
    head = "".join(f'<th scope="col">{escape(column) or "what"}</th>' for column in columns)
    body = "\n".join(f"<tr>{_cells(columns, row)}</tr>" for row in rows)
    name = escape(title, quote=True)
    return (
        f'<div class="scroll" role="region" aria-label="{name}" tabindex="0"><table>\n'
        f"<caption><span>{name}</span></caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def _cells(columns: Sequence[str], row: Mapping[str, Any]) -> str:
    cells = []
    for number, column in enumerate(columns):
        value, kind = row.get(column), ""
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            kind = "n"
        elif column == "met" and value in MET.values():
            kind = value.replace(" ", "-")
        elif isinstance(value, str) and number and len(value) > SHORT:
            kind = "long"
        tag = 'th scope="row"' if number == 0 else "td"
        cells.append(f"<{tag}{f' class={kind}' if kind else ''}>{escape(report.cell(value))}")  # HTML ends it
    return "".join(cells)


def figure(title: str, picture: Picture) -> str:
    if picture.path.suffix not in KINDS:
        raise ValueError(f"a picture must be one of {', '.join(KINDS)}, got {picture.path.name!r}")
    data = base64.b64encode(picture.path.read_bytes()).decode()
    alt = escape(f"{title}: {picture.caption}", quote=True)
    source = f"data:{KINDS[picture.path.suffix]};base64,{data}"
    return f'<figure><img alt="{alt}" src="{source}"><figcaption>{escape(picture.caption)}</figcaption></figure>'
