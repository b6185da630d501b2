"""Runs the combinations and writes a table, network.json and network.png. See the package's docstring."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

from matplotlib.ticker import NullLocator
from rich.console import Console

from benchmarks import report
from benchmarks.network.crew import Crew
from benchmarks.network.hosts import MOST_HOSTS, Hosts
from benchmarks.network.measure import Plan, parse_bandwidth, parse_limit, sweep
from benchmarks.network.namespaces import Unavailable
from benchmarks.report import SERIES_COLOURS, Row, new_figure, plot_line, save
from benchmarks.timing import Failed

WHOLE = {"hosts": [4, 16], "neurons": [64, 256, 1024], "bandwidth": [1e9, 1e8, 1e7, 1e6, 1e5], "seconds": 10.0}
QUICK = {"hosts": [4], "neurons": [64], "bandwidth": [1e7, 1e6], "seconds": 2.0}


def main() -> None:
    args = arguments()
    console = Console(width=220)
    output = report.output_folder(args)
    plan = Plan(args.rows_per_host, args.features, args.nnz, args.rounds, args.seconds, args.transport)
    about = report.about(1, args.quick) | {"plan": asdict(plan), "kernel": platform.release()}
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
    draw(rows, output / "network.png")
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
    quick = "4 hosts, K = 64, 10 and 1 MB/s"
    parser = report.make_parser("network", __doc__, "results/network", data=False, quick=quick)
    several, one, limits = report.numbers(least=2), report.number(), report.numbers(parse_limit)
    parser.add_argument("--hosts", type=several, help="numbers of hosts, 4,16 by default")
    parser.add_argument("--neurons", type=several, help="K, 64,256,1024 by default")
    bandwidths = "bytes a second, 1GB,100MB,10MB,1MB,100KB by default; no limit comes first"
    parser.add_argument("--bandwidth", type=limits, help=bandwidths)
    parser.add_argument("--rows-per-host", type=one, default=2000)
    parser.add_argument("--features", type=one, default=100_000)
    parser.add_argument("--nnz", type=one, default=10, help="ones in each row")
    rounds = "of each measurement; by default as many as take --seconds"
    parser.add_argument("--rounds", type=report.number(least=2), help=rounds)
    parser.add_argument("--seconds", type=float, help=f"of each measurement, {WHOLE['seconds']:g} by default")
    parser.add_argument("--transport", default="float32", choices=("float32", "float64", "int16"))
    args = parser.parse_args()
    for name, value in (QUICK if args.quick else WHOLE).items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    if max(args.hosts) > MOST_HOSTS:
        parser.error(f"--hosts must be at most {MOST_HOSTS}, got {max(args.hosts)}")
    if args.features < args.nnz:
        parser.error(f"--features must be at least --nnz, got {args.features}")
    return args


def draw(rows: list[Row], path: Path) -> None:
    sizes = sorted({row["hosts"] for row in rows})
    figure = new_figure(9.0, 4.5 * (len(sizes) + 1))
    *panels, last = figure.subplots(len(sizes) + 1, 1, squeeze=False)[:, 0]
    for ax, size in zip(panels, sizes, strict=True):
        title = f"{size} hosts: seconds of a round by bandwidth"
        draw_seconds(ax, [row for row in rows if row["hosts"] == size], title)
    draw_sent(last, rows, sizes)
    for ax in (*panels, last):
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.tick_params(labelsize=7)
        ax.title.set_fontsize(9)
        if ax.get_legend_handles_labels()[0]:
            ax.legend(fontsize=7)
    neurons = sorted({row["K"] for row in rows})
    last.set_xticks(neurons, [str(K) for K in neurons])
    last.xaxis.set_minor_locator(NullLocator())
    save(figure, path)


def draw_seconds(ax: Any, rows: list[Row], title: str) -> None:
    """Of a round and of an all-reduce; of a round without a limit, a line across."""
    for K, colour in zip(sorted({row["K"] for row in rows}), SERIES_COLOURS, strict=False):
        selected = [row for row in rows if row["K"] == K]
        limited = [row for row in selected if parse_bandwidth(row["bandwidth"])]
        for key, style, what in (("round s", "o-", "a round"), ("all_reduce s", "s:", "all_reduce")):
            points = [(parse_bandwidth(row["bandwidth"]), row[key]) for row in limited]
            plot_line(ax, points, style, colour, f"K = {K}, {what}")
        for row in selected:
            if row not in limited and row["round s"] is not None:
                ax.axhline(row["round s"], color=colour, linewidth=0.5)
    ax.set_xlabel("bytes a second of each host", fontsize=8)
    ax.set_title(title)


def draw_sent(ax: Any, rows: list[Row], sizes: list[int]) -> None:
    free = [row for row in rows if parse_bandwidth(row["bandwidth"]) is None]
    for size, colour in zip(sizes, SERIES_COLOURS, strict=False):
        selected = [row for row in free if row["hosts"] == size]
        for key, style, what in (("sent", "o-", "a round"), ("all_reduce sent", "s:", "all_reduce")):
            plot_line(ax, [(row["K"], row[key]) for row in selected], style, colour, f"{size} hosts, {what}")
    ax.set_xlabel("K", fontsize=8)
    ax.set_title("bytes that a host sends in a round, at its interface")


if __name__ == "__main__":
    main()
