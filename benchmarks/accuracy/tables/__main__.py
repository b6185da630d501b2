"""Runs the comparison and writes tables, JSON and pictures. See the package's docstring for how to call it."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import report
from benchmarks.accuracy import tables
from benchmarks.accuracy.tables import ablations
from benchmarks.accuracy.tables.boosters import OURS, PEERS
from benchmarks.accuracy.tables.measuring import Cell, Contestant, Store, as_they_come, measure_all, tuned
from benchmarks.accuracy.tables.pictures import draw_panels, draw_ranks, draw_ratios
from benchmarks.accuracy.tables.sets import TableSet, known_sets
from benchmarks.accuracy.tables.verdicts import make_rows, one_of_ours


def main() -> None:
    args, sets = arguments()
    warnings.filterwarnings("ignore")
    console = Console(width=220)
    args.output.mkdir(parents=True, exist_ok=True)
    part, contestants = part_of(args)
    store = Store(args.output / f"{part}_{args.rows}.json")
    store.forget(args.again, list(sets))
    measured = [one for one in contestants if not args.learners or one.name in args.learners]
    failures = fill(store, sets, measured, args, console)
    write_report(store, list(sets), args.splits, [one.name for one in contestants], console)
    console.print(f"{report.versions()}\nwritten to {store.path.parent}")
    if failures:
        sys.exit(f"{len(failures)} of the cells failed:\n" + "\n".join(failures))


def arguments() -> tuple[argparse.Namespace, dict[str, TableSet]]:
    parser = report.make_parser("accuracy.tables", tables.__doc__, "results/tables", data=False)
    parser.add_argument("--tables", action="store_true", help=argparse.SUPPRESS)  # of `python -m benchmarks.accuracy`
    parser.add_argument("--data", type=report.existing_folder, help="folder of the data sets")
    parser.add_argument("--folder", type=report.existing_folder, help="folder of csv, npz or parquet files")
    parser.add_argument("--rows", type=report.number(), default=10_000, help="most rows of a set; 10000 by default")
    parser.add_argument("--splits", type=report.number(), default=5, help="5 by default; a verdict needs two")
    parser.add_argument("--only", default="", help="comma-separated names of sets; all by default")
    parser.add_argument("--jobs", type=report.number(), default=1, help="processes side by side, of one thread each")
    several = {"type": lambda text: text.split(";"), "default": [], "metavar": "NAMES"}
    parser.add_argument("--learners", **several, help="to measure, with ';' between them; all by default")
    parser.add_argument("--again", **several, help="learners to forget first, with ';' between them")
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument("--tuned", type=report.number(float, 0.1), help="seconds of tuning of each booster")
    parts.add_argument("--ablations", action="store_true", help="gbun with one switch changed")
    args = parser.parse_args()
    if not (args.data or args.folder):
        parser.error("--data or --folder is needed")
    try:
        sets = known_sets(args.data, args.folder)
    except ValueError as error:
        parser.error(str(error))
    known = [one.name for one in part_of(args)[1]]
    if unknown := sorted({*args.learners, *args.again} - {*known}):
        parser.error(f"unknown learners {unknown}; known are {'; '.join(known)}")
    wanted = args.only.split(",") if args.only else list(sets)
    if unknown := sorted(set(wanted) - sets.keys()):
        parser.error(f"--only names unknown sets {unknown}; known are {', '.join(sets)}")
    return args, {name: sets[name] for name in wanted}


def part_of(args: argparse.Namespace) -> tuple[str, list[Contestant]]:
    """The name of a part, and who takes part."""
    if args.ablations:
        return "ablations", ablations.contestants()
    return (f"tuned_{args.tuned:g}s", tuned(args.tuned)) if args.tuned else ("tables", as_they_come())


def fill(
    store: Store, sets: dict[str, TableSet], contestants: list[Contestant], args: argparse.Namespace, console: Console
) -> list[str]:
    """Measure what the store does not have. What fails is returned in words, and all else goes on."""
    cells = [
        Cell(table, split, contestant, args.rows)
        for table in sets.values()
        for split in range(args.splits)
        for contestant in contestants
    ]
    missing = [cell for cell in cells if not store.has(cell.key)]
    console.print(f"{len(cells) - len(missing)} of {len(cells)} are known from {store.path}", markup=False)
    failures = []
    for number, (cell, answer) in enumerate(measure_all(missing, args.jobs), 1):
        words = f"[{number}/{len(missing)}] {', '.join(cell.key)}"
        try:
            found = answer()
        except Exception as error:
            failures.append(f"{', '.join(cell.key)}: {type(error).__name__}: {error}")
            console.print(f"{words}: {type(error).__name__}: {error}", markup=False)
            continue
        store.put(cell.key, found)
        console.print(f"{words}: loss {found['loss']:.4g}, {found['seconds']:.2f} s", markup=False)
    return failures


def write_report(store: Store, sets: Sequence[str], splits: int, learners: list[str], console: Console) -> None:
    """Tables and pictures of the sets that are complete."""
    results = store.complete(sets, splits, learners)
    if not results:
        console.print("no set has all learners yet")
        return

    def beside(name: str) -> Path:
        return store.path.with_name(f"{store.path.stem}_{name}.png")

    if ablations.REFERENCE in learners and OURS not in learners:
        report.show(ablations.make_rows(results, learners), console)
        title = "log of the loss / LightGBM's"
        draw_panels(ablations.ratios(results, learners[1:]), title, beside("ratios"))
        return
    ours = [one for one in (OURS, "gbun (given rows)") if one in learners]
    report.show(make_rows(results, learners, ours, PEERS), console)
    draw_ratios(results, OURS, PEERS, beside("ratios"))
    draw_ranks(results, one_of_ours(learners, OURS), beside("ranks"))
    if one_of_ours(learners, OURS) != learners:
        draw_ranks(results, learners, beside("ranks_all"))


if __name__ == "__main__":
    main()
