"""What classes cost, as tables: seconds, bytes, and how both grow."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.paper.cells import Finding
from benchmarks.paper.classes.measure import LEARNERS, LIGHTGBM, OURS, XGBOOST, by_formula
from benchmarks.speed.report import Row
from benchmarks.speed.timing import ratio

SECONDS = "classes: median seconds of a round, {}, K = {}"
BYTES = "classes: bytes a round that a worker of two sends, K = {}"
GROWTH = "classes: the cost of the most classes over that of the fewest"


def tables(findings: Sequence[Finding]) -> list[Row]:
    rows = [_sent(finding) if "rounds" in finding.settings else _seconds(finding) for finding in findings]
    return sorted(rows, key=lambda row: row["table"], reverse=True) + growth(rows)


def _seconds(finding: Finding) -> Row:
    told, found = finding.settings, finding.found
    seconds = {name: found.get(f"{name} s") for name in LEARNERS}
    notes = [f"{name}: {row['note']}" for name, row in found.get("learners", {}).items() if row["note"]]
    return {
        "table": SECONDS.format(told["kind"], told["K"]),
        "classes": told["n_classes"],
        **seconds,
        **{f"{name} / gbun": ratio(seconds[name], seconds[OURS]) for name in (LIGHTGBM, XGBOOST)},
        "note": finding.failed or "; ".join(notes),
    }


def _sent(finding: Finding) -> Row:
    told = finding.settings
    formulas = by_formula(told["classes"], told["K"])
    return {
        "table": BYTES.format(told["K"]),
        "classes": told["classes"],
        OURS: finding.found.get("bytes"),
        "most of a worker": finding.found.get("most"),
        **{f"{name}, {_how(name)}": value for name, value in formulas.items()},
        "note": finding.failed,
    }


def _how(name: str) -> str:
    """Trees may have fewer leaves than they are allowed."""
    return "at most, by formula" if name in (LIGHTGBM, XGBOOST) else "by formula"


def growth(rows: Sequence[Row]) -> list[Row]:
    """Of each table and learner, where both ends are known."""
    found: list[Row] = []
    for title in sorted({row["table"] for row in rows}, reverse=True):
        own = sorted((row for row in rows if row["table"] == title), key=lambda row: row["classes"])
        first, last = own[0], own[-1]
        if first is last:
            continue
        columns = [key for key in first if key.split(",")[0] in LEARNERS]
        grown = {key.split(",")[0]: ratio(last[key], first[key]) for key in columns}
        classes = {"fewest": first["classes"], "most": last["classes"]}
        found.append({"table": GROWTH, "of": title.removeprefix("classes: "), **classes, **grown})
    return found
