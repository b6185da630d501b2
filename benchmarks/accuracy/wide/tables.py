"""Finished cells as rows of tables."""

from __future__ import annotations

from typing import Any

from benchmarks.accuracy.wide.learners import LEARNERS
from benchmarks.accuracy.wide.sets import SETS
from benchmarks.accuracy.wide.store import Finished
from benchmarks.speed.report import Row

TITLES = {
    "defaults": "defaults: test scores of learners as they come, rows as they are in the file",
    "tuned": "tuned: test scores after the same seconds of tuning for each",
    "target": "target: seconds of fit until LightGBM's best validation score of 100 rounds, and of 300",
}


def sorted_cells(cells: list[Finished]) -> list[Finished]:
    """By set and learner, in the order these are listed in; those of learners no longer listed are left out."""
    sets, learners = list(SETS), list(LEARNERS)
    listed = [c for c in cells if c["data"] in sets and c["learner"] in learners]
    return sorted(listed, key=lambda c: (sets.index(c["data"]), learners.index(c["learner"])))


def best(cells: list[Finished], data: str, kind: str) -> Finished | None:
    """The cell with the best score on a set among learners of a kind, the first of equals."""
    judged = [c for c in cells if c["data"] == data and LEARNERS[c["learner"]].kind == kind and "score" in c]
    return max(judged, key=lambda c: c["score"], default=None)


def overview(part: str, cells: list[Finished]) -> list[Row]:
    """A row for each set, a column for each learner; the best trees and the best linear model have a star."""
    rows = []
    for data in dict.fromkeys(c["data"] for c in cells):
        row: Row = {"table": TITLES[part], "data": data, "metric": SETS[data].metric, **dict.fromkeys(LEARNERS)}
        stars = [best(cells, data, kind) for kind in ("trees", "linear")]
        for cell in (c for c in cells if c["data"] == data):
            star = " *" if any(cell is s for s in stars) else ""
            row[cell["learner"]] = f"{cell['score']:.4f}{star}" if "score" in cell else cell["note"]
        rows.append(row)
    return rows


def details(part: str, cells: list[Finished]) -> list[Row]:
    """A row for each cell."""
    return [
        {
            "table": f"{part}: seconds, and peak memory of the process",
            "data": c["data"],
            "learner": c["learner"],
            "score": _number(c.get("score")),
            "standing": standing(c, cells),
            "fit": c.get("fit"),
            "predict": c.get("predict"),
            "MB": _whole(c.get("megabytes")),
            "validation": _number(c.get("validation")),
            "tried": len(c["attempts"]) if "attempts" in c else None,
            "budget": c["budget"] if part == "tuned" else None,
            "settings": " ".join(f"{k}={_short(v)}" for k, v in c.get("settings", {}).items()),
            "threads": c["threads"],
            "note": c.get("note", ""),
        }
        for c in cells
    ]


def standing(cell: Finished, cells: list[Finished]) -> str:
    """Whether it is the best of its kind; for gbun, how far it is from the best of the others."""
    kind = LEARNERS[cell["learner"]].kind
    if kind != "ours":
        return f"best {kind}" if cell is best(cells, cell["data"], kind) else ""
    rivals = [(k, best(cells, cell["data"], k)) for k in ("trees", "linear")]
    return ", ".join(f"{k} {cell['score'] - rival['score']:+.4f}" for k, rival in rivals if rival and "score" in cell)


def race(cells: list[Finished]) -> list[Row]:
    """The part `target`."""
    setters = {c["data"]: c for c in cells if c["learner"] == "lightgbm"}
    return [
        {
            "table": TITLES["target"],
            "data": c["data"],
            "metric": SETS[c["data"]].metric,
            "learner": c["learner"],
            "to reach": _number(c.get("goal")),
            "seconds": c.get("seconds"),
            "of LightGBM's": _ratio(c.get("seconds"), setters.get(c["data"], {}).get("seconds")),
            "of 300 rounds": _number(setters.get(c["data"], {}).get("best")),
            "seconds ": c.get("last_seconds"),
            "rounds": c.get("rounds"),
            "best score": _number(c.get("best")),
            "note": c.get("note", ""),
        }
        for c in cells
    ]


def rows(part: str, cells: list[Finished]) -> list[Row]:
    cells = sorted_cells(cells)
    return race(cells) if part == "target" else [*overview(part, cells), *details(part, cells)]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above and below else None


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
