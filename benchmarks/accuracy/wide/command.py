"""The command line: missing cells, one after the other, then their tables and a picture."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

from benchmarks import report
from benchmarks.accuracy import wide
from benchmarks.accuracy.sets import WIDE_SETS as SETS
from benchmarks.accuracy.wide.parts import LEARNERS, PARTS, Contest, Finished, list_learners
from benchmarks.cells import Cell, Store, run
from benchmarks.report import Row, new_figure, save
from benchmarks.timing import ratio

ORDER = ("lightgbm", "xgboost", "logistic", "logistic_tfidf", "vowpal_wabbit", "gbun", "catboost")  # quick ones first
COLOURS = {"ours": "#1b6ca8", "trees": "#8fb339", "linear": "#e08e45"}
FAR = 0.15  # a score this much below the best is only written
TITLES = {
    "defaults": "defaults: test scores of learners as they come, rows as they are in the file",
    "tuned": "tuned: test scores after the same seconds of tuning for each",
    "target": "target: seconds of fit until LightGBM's best validation score of 100 rounds, and of 300",
}


def main() -> None:
    args = arguments()
    console, store = Console(width=200), Store(args.output / "wide.json")
    about = report.about(args.threads, quick=False)
    console.print(about)
    with TemporaryDirectory(prefix="wide_") as scratch:
        # Libraries of children have this many threads, and files of those that are killed end with the run.
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ[name] = str(args.threads)
        os.environ["TMPDIR"] = scratch
        run(list(make_cells(args, store)), store, lambda: about, console, args.fresh)
    known = [{**finding.settings, **finding.found} for finding in store.all()]
    parts = {part: [one for one in known if one["part"] == part] for part in PARTS}
    for part in args.parts:
        report.show(make_rows(part, parts[part]), console)
    draw(parts, args.output / "wide.png")
    console.print(f"{about}\nwritten to {args.output}")


def make_cells(args: argparse.Namespace, store: Store) -> Iterator[Cell]:
    """A cell for each part, set and learner that is wanted."""

    def find(*names: str) -> Finished:
        return next((dict(one.found) for one in store.all() if one.name == " ".join(names)), {})

    for part, data in product(args.parts, args.sets):
        for learner in list_learners(part, data, args.learners):
            limits = {"threads": args.threads, "limit": args.limit, "budget": args.budget}
            settings = {"part": part, "data": data, "learner": learner, **limits}
            measure = partial(PARTS[part], Contest(args.data, data, learner, **limits), find)
            packages, module = LEARNERS[learner].packages, LEARNERS[learner].module
            yield Cell(f"{part} {data} {learner}", settings, measure, packages, [module])


def arguments() -> argparse.Namespace:
    parser = report.make_parser("accuracy --wide", wide.__doc__, "results/wide")
    parser.add_argument("--wide", action="store_true", help=argparse.SUPPRESS)
    for option, known in (("--sets", SETS), ("--learners", ORDER)):
        parser.add_argument(option, type=report.names_of(known), default=list(known), help=f"some of {','.join(known)}")
    parser.add_argument("--part", choices=[*PARTS, "all"], default="defaults")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of tuning for each learner on each set")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for a fit, and again for predicting")
    parser.add_argument("--threads", type=int, default=2, help="of every learner")
    parser.add_argument("--fresh", action="store_true", help="run cells again that are there already")
    args = parser.parse_args()
    args.parts = list(PARTS) if args.part == "all" else [args.part]
    return args


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
    rows: list[Row] = []
    for c in cells:
        row = {"table": f"{part}: seconds, and peak memory of the process", "data": c["data"], "learner": c["learner"]}
        row |= {"score": _number(c.get("score")), "standing": standing(c, cells)}
        row |= {"fit": c.get("fit"), "predict": c.get("predict"), "MB": c.get("megabytes") and round(c["megabytes"])}
        row |= {"validation": _number(c.get("validation")), "tried": len(c["attempts"]) if "attempts" in c else None}
        settings = [f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in c.get("settings", {}).items()]
        row |= {"budget": c["budget"] if part == "tuned" else None, "settings": " ".join(settings)}
        rows.append({**row, "threads": c["threads"], "note": c.get("note", "")})
    return rows


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
    rows: list[Row] = []
    for c in cells:
        first = setters.get(c["data"], {})
        row = {"table": TITLES["target"], "data": c["data"], "metric": SETS[c["data"]].metric, "learner": c["learner"]}
        row |= {"to reach": _number(c.get("goal")), "seconds": c.get("seconds")}
        row |= {"of LightGBM's": ratio(c.get("seconds"), first.get("seconds"))}
        row |= {"of 300 rounds": _number(first.get("best")), "seconds ": c.get("last_seconds")}
        rows.append({**row, "rounds": c.get("rounds"), "best score": _number(c.get("best")), "note": c.get("note", "")})
    return rows


def make_rows(part: str, cells: list[Finished]) -> list[Row]:
    cells = sorted_cells(cells)
    return race(cells) if part == "target" else [*overview(part, cells), *details(part, cells)]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def draw(parts: dict[str, list[Finished]], path: Path) -> None:
    """A row of panels for each part that has cells, a panel for each set."""
    present = {part: sorted_cells(cells) for part, cells in parts.items() if cells}
    names = [n for n in SETS if any(c["data"] == n for cells in present.values() for c in cells)]
    if not names:
        return
    figure = new_figure(2.5 * len(names) + 1.0, 2.6 * len(present))
    panels = figure.subplots(len(present), len(names), squeeze=False)
    for line, (part, cells) in zip(panels, present.items(), strict=True):
        for ax, name in zip(line, names, strict=True):
            selected = [c for c in cells if c["data"] == name]
            if not selected:
                ax.set_axis_off()
                continue
            what = "seconds to LightGBM's best" if part == "target" else f"{SETS[name].metric}, {part}"
            _draw_panel(ax, selected, part == "target")
            ax.set_title(f"{name}\n{what}", fontsize=8)
            ax.tick_params(labelsize=7)
            ax.invert_yaxis()
    save(figure, path)


def _draw_panel(ax: Any, cells: list[Finished], race: bool) -> None:
    """Bars of scores begin below the worst that is not far from the best: differences are what is to be seen."""
    if race:
        floor, values = 0.0, [c.get("seconds") or 0.0 for c in cells]
        words = [c.get("note") or f"{c['seconds']:.2f} s" for c in cells]
    else:
        scores = [c["score"] for c in cells if "score" in c]
        top = max(scores, default=1.0)
        low = min((v for v in scores if v > top - FAR), default=0.0)
        floor = low - max(0.25 * (top - low), 0.002)
        values = [max(c.get("score", floor) - floor, 0.0) for c in cells]
        words = [f"{c['score']:.4f}" if "score" in c else c["note"] for c in cells]
    colours = [COLOURS[LEARNERS[c["learner"]].kind] for c in cells]
    bars = ax.barh([c["learner"] for c in cells], values, left=floor, color=colours)
    ax.bar_label(bars, words, fontsize=6, padding=2)
    ax.set_xlim(floor, floor + 1.45 * max([*values, 1e-9]))
