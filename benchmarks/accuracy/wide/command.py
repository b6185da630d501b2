"""The command line: missing cells, one after the other, then tables and a picture."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from functools import partial
from itertools import product
from tempfile import TemporaryDirectory

from rich.console import Console

from benchmarks import report
from benchmarks.accuracy import wide
from benchmarks.accuracy.sets import WIDE_SETS
from benchmarks.accuracy.wide import tables
from benchmarks.accuracy.wide.parts import LEARNERS, PARTS, Contest, Finished, list_learners
from benchmarks.cells import Cell, Store, run

ORDER = ("lightgbm", "xgboost", "logistic", "logistic_tfidf", "vowpal_wabbit", "gbun", "catboost")  # quick ones first


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
        run(list(make_cells(args, store)), store, lambda: about, console, "all" if args.fresh else None)
    known = [{**finding.settings, **finding.found} for finding in store.all()]
    parts = {part: [one for one in known if one["part"] == part] for part in PARTS}
    for part in args.parts:
        report.show(tables.rows(part, parts[part]), console)
    tables.draw(parts, args.output / "wide.png")
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
    for option, known in (("--sets", WIDE_SETS), ("--learners", ORDER)):
        parser.add_argument(option, type=report.names_of(known), default=list(known), help=f"some of {','.join(known)}")
    parser.add_argument("--part", choices=[*PARTS, "all"], default="defaults")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of tuning for each learner on each set")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for a fit, and again for predicting")
    parser.add_argument("--threads", type=int, default=2, help="of every learner")
    parser.add_argument("--fresh", action="store_true", help="run cells again that are there already")
    args = parser.parse_args()
    args.parts = list(PARTS) if args.part == "all" else [args.part]
    return args
