"""Runs the benchmark and writes tables, spark.json and spark.png. See the package's docstring."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.ml.linalg import VectorUDT
from pyspark.sql.types import DoubleType, StructField, StructType
from rich.console import Console
from sklearn.model_selection import train_test_split

from benchmarks import report
from benchmarks import spark as package
from benchmarks.data import Options, kdd12_sub, real, spread_clicks
from benchmarks.peers.spark import LEARNERS
from benchmarks.report import new_figure, save
from benchmarks.spark.cluster import Standalone
from benchmarks.spark.measure import Bench
from benchmarks.timing import Failed, Times, ratio

KDD12_DIMENSIONS = 54_686_452
COST = "a fit on Spark: seconds of a round, and of all that is not a round"
MEMORY = "memory of an executor, and the AUC on test rows"
WIDE = f"{KDD12_DIMENSIONS:,} dimensions on Spark"
PEER = "xgboost.spark"


def main() -> None:
    args = arguments()
    console, output = Console(width=180), report.output_folder(args)
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
        for row in measure_parts(bench, args, Path(folder), console):
            found.append(row)
            report.write(output / "spark.json", {"spark": {"about": about, "rows": found}})
            console.print({key: value for key, value in row.items() if key != "table"})
    report.show(found, console)
    draw([row for row in found if row["table"] == COST], output / "spark.png")
    console.print(f"{about}\nwritten to {output}")


def measure_parts(bench: Bench, args: argparse.Namespace, folder: Path, console: Console) -> Iterator[report.Row]:
    options = Options(args.data, 1, args.quick)
    source = real(options, "book_crossing") or kdd12_sub(options)
    X, y = source.load()
    indices = train_test_split(np.arange(X.shape[0]), test_size=0.2, random_state=0, stratify=y)
    paths = {name: str(folder / f"{name}.parquet") for name in ("train", "test")}
    for path, selected in zip(paths.values(), indices, strict=True):
        write_parquet(X[selected], y[selected], path)
    about = {"data": source.name, "rows": len(indices[0]), "K or leaves": args.size}
    job = {"rounds": args.rounds[0], "size": args.size}
    if "cost" in args.parts:
        yield from measure_cost(bench, args, paths["train"], about, console)
    if "memory" in args.parts:
        yield from measure_memory(bench, MEMORY, about, {**job, **paths})
    if "wide" in args.parts:
        n, path = 20_000 if args.quick else args.wide_rows, str(folder / "wide.parquet")
        write_parquet(*spread_clicks(n, KDD12_DIMENSIONS, n).load(), path)
        yield from measure_memory(bench, WIDE, {"rows": n, "K or leaves": args.size}, {**job, "train": path})


def measure_cost(
    bench: Bench, args: argparse.Namespace, train: str, about: dict[str, Any], console: Console
) -> Iterator[report.Row]:
    turns: dict[str, list[tuple[float, float]]] = {name: [] for name in LEARNERS}  # seconds of a round, and besides
    clocks: dict[str, list[float]] = {name: [] for name in LEARNERS}
    notes = dict.fromkeys(LEARNERS, "")
    with bench.driver() as fit:
        for turn in range(args.repeats + 1):
            for name in (name for name in LEARNERS if not notes[name]):
                few, many = args.peer_rounds if name == PEER else args.rounds
                try:
                    fits = [fit(learner=name, rounds=rounds, size=args.size, train=train) for rounds in (few, many)]
                except Failed as failure:
                    notes[name] = str(failure)
                    continue
                seconds = [answer["seconds"] for answer in fits]
                console.print(f"turn {turn}, {name}: {seconds[0]:.2f} s, {seconds[1]:.2f} s")
                if turn:
                    each = (seconds[1] - seconds[0]) / (many - few)
                    turns[name].append((each, seconds[0] - few * each))
                    clocks[name] += [answer[key] for answer in fits if (key := "a round by its own clock") in answer]
    for name, selected in turns.items():
        each, besides = ([one[i] for one in selected] for i in (0, 1))
        # Ratios of the same turn: what slows the machine down for a while slows both.
        pairs = list(zip(turns[PEER], selected, strict=False))
        beside = [[ratio(theirs[i], ours[i]) for theirs, ours in pairs] for i in (0, 1)]
        yield {
            "table": COST, **about, "learner": name, "turns": len(selected),
            "a round s": _median(each), "least-most": _range(each), f"{PEER} / it": _median(beside[0]),
            "besides s": _median(besides), "least-most, besides": _range(besides),
            f"{PEER} / it, besides": _median(beside[1]),
            "a round by its own clock": _median(clocks[name]), "note": notes[name],
        }  # fmt: skip


def measure_memory(bench: Bench, table: str, about: dict[str, Any], job: dict[str, Any]) -> Iterator[report.Row]:
    """Fits with executors of their own: whether it can be done at all, and with how much memory."""
    for name in LEARNERS:
        row = {"table": table, **about, "rounds": job["rounds"], "learner": name}
        try:
            yield {**row, **bench.fit_alone(learner=name, **job), "note": ""}
        except Failed as failure:
            yield {**row, "note": str(failure)}


def _median(values: Sequence[float | None]) -> float | None:
    return Times([value for value in values if value is not None]).median


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.3g}-{max(values):.3g}" if values else ""


def draw(rows: list[report.Row], path: Path) -> None:
    figure = new_figure(9.0, 3.5)
    for ax, what in zip(figure.subplots(1, 2), ("a round s", "besides s"), strict=True):
        selected = [row for row in rows if row[what] is not None]
        colours = ["#e08e45" if row["learner"] == PEER else "#1b6ca8" for row in selected]
        ax.bar([row["learner"] for row in selected], [row[what] for row in selected], color=colours)
        ax.set_title(what, fontsize=9)
        ax.tick_params(labelsize=7)
    save(figure, path)


def arguments() -> argparse.Namespace:
    parser = report.make_parser("spark", package.__doc__, "results/spark", quick="few rows, few rounds")
    parts = ("cost", "memory", "wide")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--parts", type=report.names_of(parts), default=parts, help="some of cost,memory,wide")
    parser.add_argument("--rounds", type=report.numbers(), help="few and many; 10,40, with --quick 2,6")
    peer_rounds = f"of {PEER}, whose rounds are long; 2,8, with --quick 2,6"
    parser.add_argument("--peer-rounds", type=report.numbers(), help=peer_rounds)
    parser.add_argument("--size", type=int, default=64, help="K, and leaves")
    parser.add_argument("--repeats", type=int, help="turns that count; 5, with --quick 1")
    parser.add_argument("--wide-rows", type=int, default=500_000)
    parser.add_argument("--memory", default="2g", help="of an executor's Java")
    parser.add_argument("--worker-memory", default="3g", help="that a worker of the cluster offers")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds of a fit")
    args = parser.parse_args()
    args.rounds = args.rounds or ([2, 6] if args.quick else [10, 40])
    args.peer_rounds = args.peer_rounds or ([2, 6] if args.quick else [2, 8])
    for name, rounds in (("rounds", args.rounds), ("peer-rounds", args.peer_rounds)):
        if len(rounds) != 2 or rounds[0] >= rounds[1]:
            parser.error(f"--{name} must be two numbers, the smaller first, got {rounds}")
    args.repeats = args.repeats or (1 if args.quick else 5)
    return args


ROWS_OF_SPARK = "org.apache.spark.sql.parquet.row.metadata"
GROUP = 2**16  # rows of a row group: Spark reads each in a task of its own, if there are as many


def write_parquet(X: Any, y: Any, path: str) -> None:
    """Written directly, in the form that Spark would have written: a million vectors of Python take minutes."""
    n, m = X.shape
    lists = [pa.LargeListArray.from_arrays(X.indptr.astype(np.int64), values).cast(pa.list_(kind)) for values, kind in (
        (pa.array(X.indices.astype(np.int32)), pa.int32()), (pa.array(X.data.astype(np.float64)), pa.float64())
    )]  # fmt: skip
    parts = [pa.array(np.zeros(n, dtype=np.int8)), pa.array(np.full(n, m, dtype=np.int32)), *lists]
    fields = [
        pa.field("type", pa.int8(), nullable=False), pa.field("size", pa.int32()),
        pa.field("indices", pa.list_(pa.int32())), pa.field("values", pa.list_(pa.float64())),
    ]  # fmt: skip
    vectors = pa.StructArray.from_arrays(parts, fields=fields)
    schema = StructType([StructField("label", DoubleType()), StructField("features", VectorUDT())])
    table = pa.table({"label": pa.array(np.asarray(y, dtype=np.float64)), "features": vectors})
    pq.write_table(table.replace_schema_metadata({ROWS_OF_SPARK: schema.json()}), path, row_group_size=GROUP)


if __name__ == "__main__":
    main()
