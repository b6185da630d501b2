"""The command line: which cells are missing, one after the other, then tables and a picture."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from benchmarks.accuracy import wide
from benchmarks.accuracy.wide import tables
from benchmarks.accuracy.wide.cells import Cell
from benchmarks.accuracy.wide.learners import LEARNERS
from benchmarks.accuracy.wide.parts import PARTS, Options, has, in_order
from benchmarks.accuracy.wide.picture import draw
from benchmarks.accuracy.wide.sets import SETS
from benchmarks.accuracy.wide.store import Store
from benchmarks.speed import report

ORDER = ("lightgbm", "xgboost", "logistic", "logistic_tfidf", "vowpal_wabbit", "gbun", "catboost")  # quick ones first


def main() -> None:
    args = arguments()
    console = Console(width=200)
    args.output.mkdir(parents=True, exist_ok=True)
    store, about = Store(args.output / "wide.json"), report.about(args.threads, quick=False)
    console.print(about)
    options = Options(args.limit, args.budget, store)
    with TemporaryDirectory(prefix="wide_") as scratch:
        _for_children(args.threads, scratch)
        for part, set_name, learner in wanted(args, console):
            if not args.fresh and store.find(part, set_name, learner) is not None:
                continue
            found = PARTS[part](Cell(args.data, set_name, learner, args.threads), options)
            names = {"part": part, "data": set_name, "learner": learner, "version": version(LEARNERS[learner].package)}
            limits = {"threads": args.threads, "limit": args.limit, "budget": args.budget}
            store.put({**names, **limits, **found}, about)
            brief = {k: v for k, v in found.items() if k not in ("attempts", "curve")}
            console.print(f"{part} {set_name} {learner} {brief}", soft_wrap=True, markup=False, highlight=False)
    for part in args.parts:
        report.show(tables.rows(part, store.cells(part)), console)
    draw({part: store.cells(part) for part in PARTS}, args.output / "wide.png")
    console.print(f"{about}\nwritten to {args.output}")


def wanted(args: argparse.Namespace, console: Console) -> Iterator[tuple[str, str, str]]:
    """Part, set and learner of all cells that were asked for and whose packages are there."""
    learners = []
    for name in args.learners:
        try:
            version(LEARNERS[name].package)
            learners.append(name)
        except PackageNotFoundError:
            console.print(f"{name} is left out: pip install {LEARNERS[name].package}")
    for part in args.parts:
        for set_name in args.sets:
            for name in in_order(part, learners):
                if has(part, set_name, name):
                    yield part, set_name, name


def _for_children(threads: int, scratch: str) -> None:
    """Libraries of children have this many threads, and files of those that are killed end with the run."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)
    os.environ["TMPDIR"] = scratch


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy --wide",
        description=wide.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--wide", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--sets", type=_names_of(SETS), default=list(SETS), help=f"some of {','.join(SETS)}")
    parser.add_argument("--learners", type=_names_of(ORDER), default=list(ORDER), help=f"some of {','.join(ORDER)}")
    parser.add_argument("--part", choices=[*PARTS, "all"], default="defaults")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of tuning for each learner on each set")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for a fit, and again for predicting")
    parser.add_argument("--threads", type=int, default=2, help="of every learner")
    parser.add_argument("--fresh", action="store_true", help="run cells again that are there already")
    parser.add_argument("--output", type=Path, default=Path("results/wide"))
    args = parser.parse_args()
    if not args.data.is_dir():
        parser.error(f"--data must be a folder, got {args.data}")
    args.parts = list(PARTS) if args.part == "all" else [args.part]
    return args


def _names_of(known: Collection[str]) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        given = [name for name in text.split(",") if name]
        unknown = sorted(set(given) - set(known))
        if unknown or not given:
            raise argparse.ArgumentTypeError(f"unknown {unknown}; known are {', '.join(known)}")
        return given

    return names
