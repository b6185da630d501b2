"""Runs the combinations and writes a table, network.json and network.png. See the package's docstring."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console

from benchmarks.network import picture
from benchmarks.network.crew import Crew
from benchmarks.network.hosts import MOST_HOSTS, Hosts
from benchmarks.network.measure import Plan, limit_of, sweep
from benchmarks.network.namespaces import Unavailable
from benchmarks.speed import report
from benchmarks.speed.timing import Failed

WHOLE = {"hosts": "4,16", "neurons": "64,256,1024", "bandwidth": "1GB,100MB,10MB,1MB,100KB", "seconds": 10.0}
QUICK = {"hosts": "4", "neurons": "64", "bandwidth": "10MB,1MB", "seconds": 2.0}


def main() -> None:
    args = arguments()
    console = Console(width=220)
    output = args.output or Path("results/network_quick" if args.quick else "results/network")
    output.mkdir(parents=True, exist_ok=True)
    plan = Plan(args.rows_per_host, args.features, args.nnz, args.rounds, args.seconds, args.transport)
    about = report.about(1, args.quick) | {"plan": asdict(plan), "cores": os.cpu_count(), "kernel": platform.release()}
    rows: list[report.Row] = []
    try:
        with Hosts(max(args.hosts)) as hosts:
            began = perf_counter()
            for row in combinations(hosts, args, plan):
                rows.append(row)
                report.write(output / "network.json", {"network": {"about": about, "rows": rows}})
                took, began = perf_counter() - began, perf_counter()
                found = report.cell(row["round s"]) or row["note"]
                console.print(f"{row['hosts']} hosts, K = {row['K']}, {row['bandwidth']}: {found}; took {took:.0f} s")
    except (Unavailable, Failed) as error:
        print(f"benchmarks.network: {error}", file=sys.stderr)
        raise SystemExit(2 if isinstance(error, Unavailable) else 1) from None
    report.show(rows, console)
    picture.draw(rows, output / "network.png")
    console.print(f"{about}\nwritten to {output}")
    raise SystemExit(1 if any(row["note"] for row in rows) else 0)


def combinations(hosts: Hosts, args: argparse.Namespace, plan: Plan) -> Iterator[report.Row]:
    """Workers stay for all combinations of a number of hosts, unless one fails: then others take their place."""
    for size in args.hosts:
        crew: Crew | None = None
        try:
            for K in args.neurons:
                hosts.limit(None)
                crew = crew or Crew(hosts, size)
                for row in sweep(hosts, crew, K, args.bandwidth, plan):
                    yield row
                    if row["note"]:
                        crew = None
        finally:
            if crew is not None:
                crew.close()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.network", description=__doc__)
    parser.add_argument("--hosts", help=f"numbers of hosts, {WHOLE['hosts']} by default")
    parser.add_argument("--neurons", help=f"K, {WHOLE['neurons']} by default")
    parser.add_argument("--bandwidth", help=f"bytes a second, {WHOLE['bandwidth']} by default; no limit comes first")
    parser.add_argument("--rows-per-host", type=int, default=2000)
    parser.add_argument("--features", type=int, default=100_000)
    parser.add_argument("--nnz", type=int, default=10, help="ones in each row")
    parser.add_argument("--rounds", type=int, help="of each measurement; by default as many as take --seconds")
    parser.add_argument("--seconds", type=float, help=f"of each measurement, {WHOLE['seconds']:g} by default")
    parser.add_argument("--transport", default="float32", choices=("float32", "float64", "int16"))
    parser.add_argument("--quick", action="store_true", help="4 hosts, K = 64, 10 and 1 MB/s")
    parser.add_argument("--output", type=Path, help="results/network by default, results/network_quick with --quick")
    args = parser.parse_args()
    for name, value in (QUICK if args.quick else WHOLE).items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    args.hosts = listed(parser, "--hosts", args.hosts, lambda told: within(int(told), 2, MOST_HOSTS))
    args.neurons = listed(parser, "--neurons", args.neurons, lambda told: within(int(told), 2, 16384))
    args.bandwidth = listed(parser, "--bandwidth", args.bandwidth, limit_of)
    for name, least in {"rows_per_host": 1, "nnz": 1, "rounds": 2}.items():
        if getattr(args, name) is not None and getattr(args, name) < least:
            parser.error(f"--{name.replace('_', '-')} must be at least {least}, got {getattr(args, name)}")
    if args.features < args.nnz:
        parser.error(f"--features must be at least --nnz, got {args.features}")
    return args


def listed(parser: argparse.ArgumentParser, name: str, told: str, read: Callable[[str], Any]) -> list[Any]:
    try:
        return [read(part.strip()) for part in told.split(",")]
    except ValueError as error:
        parser.error(f"{name}: {error}")


def within(value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise ValueError(f"must be from {least} to {most}, got {value}")
    return value


if __name__ == "__main__":
    main()
