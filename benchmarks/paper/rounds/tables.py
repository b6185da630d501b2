"""Seconds of a round as a table like the paper's, with the paper's beside; the same in full; and as bars."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.paper.accuracy.figures import SECONDS
from benchmarks.paper.cells import Finding
from benchmarks.paper.experiment import Picture
from benchmarks.paper.rounds.plan import TITLES
from benchmarks.speed.report import Row
from benchmarks.speed.timing import ratio

TABLE = "rounds: seconds of a round, mean ± deviation; in words by medians"
FULL = "rounds: in full"
PAPERS = {"gbun": "GBUN", "xgboost": "XGB", "lightgbm": "LGB"}


def tables(findings: Sequence[Finding]) -> list[Row]:
    rows = [_row(finding) for finding in findings]
    return [*rows, *(row for finding in findings for row in _full(finding))]


def _row(finding: Finding) -> Row:
    name, found = finding.settings["data"], finding.found.get("learners", {})
    row: Row = {"table": TABLE, "data": name, "K": finding.settings["size"]}
    if finding.failed:
        return {**row, "in words": finding.failed}
    measured = {TITLES[learner]: _words(found[learner]) for learner in TITLES}
    papers = {
        f"paper's {PAPERS[learner]}": _plus_minus(*SECONDS[name][learner]) for learner in TITLES if name in SECONDS
    }
    return {**row, **measured, "in words": _verdict(found), **papers}


def _verdict(found: dict[str, Any]) -> str:
    """Who is fastest by medians, and where that is not us, by how much; and who has no figure."""
    medians = {learner: one["median"] for learner, one in found.items() if one.get("median") is not None}
    if "gbun" not in medians or len(medians) < 2:
        return "nothing to compare"
    fastest, without = min(medians, key=lambda learner: float(medians[learner])), found.keys() - medians.keys()
    if fastest == "gbun":
        second = min(value for learner, value in medians.items() if learner != "gbun")
        words = f"gbun is fastest, {second / medians['gbun']:.1f} times"
    else:
        words = f"gbun takes {medians['gbun'] / medians[fastest]:.2f} times as long as {TITLES[fastest]}"
    return "; without ".join([words, *([", ".join(TITLES[learner] for learner in sorted(without))] if without else [])])


def _words(one: dict[str, Any]) -> str:
    if one.get("mean") is None:
        return f"none: {one['note']}"
    return _plus_minus(one["mean"], one["deviation"]) + (f" ({one['note']})" if one["note"] else "")


def _plus_minus(mean: float, deviation: float | None) -> str:
    """
    >>> _plus_minus(0.123456, 0.01), _plus_minus(12.5, None)
    ('0.123 ± 0.01', '12.5')
    """
    return f"{mean:.3g}" if deviation is None else f"{mean:.3g} ± {deviation:.2g}"


def _full(finding: Finding) -> list[Row]:
    data, size = finding.settings["data"], finding.settings["size"]
    rows, found = [], finding.found.get("learners", {})
    for learner, one in found.items():
        row = {"table": FULL, "data": data, "learner": TITLES[learner], "K": size}
        row |= {key: one.get(key) for key in ("setup", "first round", "rounds", "mean", "deviation", "median")}
        ours = found.get("gbun", {}).get("median")
        rows.append({**row, "gbun's median of its": ratio(ours, one.get("median")), "note": one["note"]})
    return rows


def draw(findings: Sequence[Finding], folder: Path) -> list[Picture]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # here, as every child process reads this file
    from matplotlib.figure import Figure

    from benchmarks.speed.picture import bars

    rows = [row for finding in findings for row in _full(finding) if row["mean"] is not None]
    if not rows:
        return []
    figure = Figure(figsize=(5.0, 1.0 + 0.3 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    ax, means = figure.subplots(), [row["mean"] for row in rows]
    names = [f"{row['data']}: {row['learner']}" for row in rows]
    bars(ax, names, means, [_plus_minus(row["mean"], row["deviation"]) for row in rows], [r["learner"] for r in rows])
    ax.set_xscale("log")
    ax.set_title(f"seconds of a round, mean ± deviation, size {rows[0]['K']}", fontsize=9)
    ax.tick_params(labelsize=7)
    path = folder / "rounds.png"
    figure.savefig(path, dpi=120)
    return [Picture(path, "Seconds of a boosting round: learners of the same size, taking turns.")]
