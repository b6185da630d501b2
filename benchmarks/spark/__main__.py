"""Runs the benchmark and writes tables, spark.json and spark.png. See the package's docstring."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from sklearn.model_selection import train_test_split

from benchmarks.spark import rows as parquet
from benchmarks.spark.cluster import Standalone
from benchmarks.spark.driver import LEARNERS
from benchmarks.spark.measure import Bench
from benchmarks.speed import report
from benchmarks.speed.data import Source, kdd12_sub, real, spread_clicks
from benchmarks.speed.options import Options
from benchmarks.speed.timing import Failed

KDD12_DIMENSIONS = 54_686_452
COST = "a fit on Spark: seconds of a round, and of all that is not a round"
WIDE = f"{KDD12_DIMENSIONS:,} dimensions on Spark"
PARAMETERS: dict[str, dict[str, Any]] = {"gbun": {"init": "constant"}, "xgboost.spark": {}}


def main() -> None:
    args = arguments()
    console, output = Console(width=180), args.output or Path("results/spark_quick" if args.quick else "results/spark")
    output.mkdir(parents=True, exist_ok=True)
    about = report.about(1, args.quick) | {"workers": args.workers, "memory of an executor": args.memory}
    found: list[report.Row] = []
    settings = {
        "spark.executor.memory": args.memory,
        "spark.driver.memory": "2g",
        # Spark 4.3 fails where Arrow functions, as xgboost.spark predicts with, meet columns of vectors from Parquet.
        "spark.sql.parquet.enableVectorizedReader": "false",
    }
    with tempfile.TemporaryDirectory() as folder, Standalone(args.workers, memory=args.worker_memory) as cluster:
        bench = Bench(cluster, args.workers, settings, args.limit)
        for row in measured(bench, args, Path(folder)):
            found.append(row)
            report.write(output / "spark.json", {"spark": {"about": about, "rows": found}})
            console.print({key: value for key, value in row.items() if key != "table"})
    report.show(found, console)
    draw([row for row in found if row["table"] == COST], output / "spark.png")
    console.print(f"{about}\nwritten to {output}")


def measured(bench: Bench, args: argparse.Namespace, folder: Path) -> Iterator[report.Row]:
    options = Options(args.data, 1, args.quick, Console())
    yield from cost(bench, args, real(options, "book_crossing") or kdd12_sub(options), folder)
    n_rows = 20_000 if args.quick else args.wide_rows
    wide = spread_clicks(n_rows, KDD12_DIMENSIONS, n_rows)
    yield from largest(bench, wide, folder)


def cost(bench: Bench, args: argparse.Namespace, source: Source, folder: Path) -> Iterator[report.Row]:
    """Fits at two numbers of rounds, taking turns."""
    X, y = source.load()
    train, test = train_test_split(np.arange(X.shape[0]), test_size=0.2, random_state=0, stratify=y)
    paths = {name: str(folder / f"{name}.parquet") for name in ("train", "test")}
    for path, own in zip(paths.values(), (train, test), strict=True):
        parquet.write(X[own], y[own], Path(path))
    for size in args.sizes:
        seconds: dict[tuple[str, int], list[float]] = {}
        told: dict[str, dict[str, Any]] = {name: {} for name in LEARNERS}
        for repeat in range(args.repeats):
            for name in LEARNERS:
                for rounds in args.rounds:
                    if "note" in told[name]:
                        continue
                    own = {"learner": name, "rounds": rounds, "size": size, "parameters": PARAMETERS[name]}
                    own |= (
                        paths if repeat + 1 == args.repeats and rounds == args.rounds[1] else {"train": paths["train"]}
                    )
                    try:
                        answer = bench.fit(**own)
                    except Failed as failure:
                        told[name] = {"note": str(failure)}
                        continue
                    seconds.setdefault((name, rounds), []).append(answer["seconds"])
                    if "auc" not in answer:  # memory of fits alone
                        most = max(answer["executor bytes"], told[name].get("executor bytes", 0))
                        told[name]["executor bytes"] = most
                    told[name] |= {key: answer[key] for key in ("auc", "rounds of its own") if key in answer}
        for name in LEARNERS:
            few, many = (min(seconds.get((name, rounds), [np.nan])) for rounds in args.rounds)
            each = (many - few) / (args.rounds[1] - args.rounds[0])
            yield {
                "table": COST, "data": source.name, "rows": len(train), "learner": name, "K or leaves": size,
                f"{args.rounds[0]} rounds s": few, f"{args.rounds[1]} rounds s": many,
                "a round s": each, "besides s": few - args.rounds[0] * each, **told[name],
            }  # fmt: skip


def largest(bench: Bench, source: Source, folder: Path) -> Iterator[report.Row]:
    """Very many dimensions: whether it can be done at all, and with how much memory."""
    X, y = source.load()
    path = folder / "wide.parquet"
    parquet.write(X, y, path)
    for name in LEARNERS:
        row = {"table": WIDE, "rows": X.shape[0], "learner": name, "rounds": 10, "K or leaves": 64}
        own = {"learner": name, "rounds": 10, "size": 64, "parameters": PARAMETERS[name], "train": str(path)}
        try:
            yield {**row, **bench.fit(**own), "note": ""}
        except Failed as failure:
            yield {**row, "note": str(failure)}


def draw(rows: list[report.Row], path: Path) -> None:
    figure = Figure(figsize=(8.0, 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    for ax, what in zip(figure.subplots(1, 2), ("a round s", "besides s"), strict=True):
        names = [f"{row['learner']}\n{row['K or leaves']}" for row in rows]
        colours = ["#1b6ca8" if row["learner"] == "gbun" else "#e08e45" for row in rows]
        ax.bar(names, [row[what] for row in rows], color=colours)
        ax.set_title(what, fontsize=9)
        ax.tick_params(labelsize=7)
    figure.savefig(path, dpi=120)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with book_crossing")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=lambda told: [int(n) for n in told.split(",")], help="two numbers; 10,40")
    parser.add_argument("--sizes", type=lambda told: [int(n) for n in told.split(",")], help="K and leaves; 64")
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--wide-rows", type=int, default=500_000)
    parser.add_argument("--memory", default="2g", help="of an executor's Java")
    parser.add_argument("--worker-memory", default="3g", help="that a worker of the cluster offers")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds of a fit")
    parser.add_argument("--quick", action="store_true", help="few rows, few rounds")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    args.rounds = args.rounds or ([2, 6] if args.quick else [10, 40])
    args.sizes, args.repeats = args.sizes or [64], args.repeats or (1 if args.quick else 2)
    if len(args.rounds) != 2 or args.rounds[0] >= args.rounds[1]:
        parser.error(f"--rounds must be two numbers, the smaller first, got {args.rounds}")
    return args


if __name__ == "__main__":
    main()
