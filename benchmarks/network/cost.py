"""A formula for the cost of a round, with constants fitted to the results of `python -m benchmarks.network`.

    python -m benchmarks.network.cost results/network/network.json [more.json] [--rows 1e9] [--neurons 256]

A round of S workers with n rows each:

    T = max(F, E) + R            forwarding the round after the next covers the exchange; the rest does not
    F = n f K                                                     seconds of a core
    R = o + n r K + n' g K^2 + s K^3                              n' rows of the Hessian sums; the root's solve
    E = up + down                K (K + 1) / 2 + K C + 2 K numbers up, K C + 2 K down
    up, down = d l + a (m + (d - 1) q) / (e b) + a p m            a message of m bytes in segments of q

with a = 1 along a chain of d = S - 1 steps and a = 2 along a tree of d = log2 S, l the seconds of a step, b the
bandwidth, e the share of it that messages get, p seconds of a core for each byte.
The measured hosts share the cores of one machine, so computation takes S / cores times as long there as where every
worker has a core. The logarithms of the seconds are fitted, so that every cell has the same weight.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from scipy.optimize import least_squares

from benchmarks import report
from benchmarks.internals import choose_tree, gram_share
from benchmarks.network.measure import parse_bandwidth, show_bandwidth
from benchmarks.report import SERIES_COLOURS, new_figure, save

MADE = "seconds of a round: measured and by the formula"
CARRIED = "the formula carried to more workers, each with a core of its own; seconds of a round"
WAYS = {"chain": 1, "tree": 2, None: None}  # branches; None lets gbun choose


@dataclass(frozen=True)
class Constants:
    """What is fitted; all positive."""

    latency: float = 3e-4  # l
    efficiency: float = 0.95  # e
    handling: float = 5e-9  # p
    overhead: float = 1e-3  # o
    forward: float = 3e-9  # f
    rest: float = 3e-9  # r
    gram: float = 3e-11  # g
    solve: float = 3e-11  # s


@dataclass(frozen=True)
class Setting:
    """S workers with n rows each; as many as `load` of them share a core."""

    S: int
    n: float
    K: int
    bandwidth: float | None
    load: float = 1.0


def messages(K: int, C: int = 1) -> tuple[int, int]:
    """Bytes up and down of a round.

    >>> messages(1024)
    (2119696, 12288)
    """
    return 4 * (K * (K + 1) // 2 + K * C) + 8 * (2 * K + 2), 4 * (K * C + 2 * K)


def exchange(at: Setting, by: Constants, way: str | None = None) -> float:
    """E. `way` is "tree" or "chain"; None takes what gbun does."""
    rate, handling, step = by.efficiency * (at.bandwidth or math.inf), by.handling * at.load, by.latency * at.load

    def travel(m: int) -> float:
        branches, steps, segment = choose_tree(m, at.S, WAYS[way])
        return steps * step + min(branches, at.S - 1) * ((m + (steps - 1) * segment) / rate + handling * m)

    return sum(map(travel, messages(at.K)))


def round_seconds(at: Setting, by: Constants, way: str | None = None) -> float:
    """T"""
    covered, rest = computation(at, by)
    return max(covered, exchange(at, by, way)) + rest


def computation(at: Setting, by: Constants) -> tuple[float, float]:
    """F and R"""
    summed = at.n * gram_share(None, round(at.S * at.n), at.K)
    shared = by.overhead + at.n * by.rest * at.K + summed * by.gram * at.K**2
    return at.load * at.n * by.forward * at.K, at.load * shared + by.solve * at.K**3


def cells_of(part: dict[str, Any]) -> list[tuple[Setting, report.Row]]:
    """What was measured, and where."""
    n, cores = part["about"]["plan"]["rows"], part["about"]["cores"]
    return [
        (Setting(r["hosts"], n, r["K"], parse_bandwidth(r["bandwidth"]), max(1.0, r["hosts"] / cores)), r)
        for r in part["rows"]
        if not r["note"]
    ]


def fit(cells: list[tuple[Setting, report.Row]]) -> Constants:
    """Find the constants for which the formula is nearest to the measured exchanges and rounds."""
    figures = np.array([(row["exchange s"], row["round s"]) for _, row in cells])

    def residuals(logs: Any) -> Any:
        by = Constants(*np.exp(logs))
        found = np.array([(exchange(at, by), round_seconds(at, by)) for at, _ in cells])
        return np.log(found / figures).ravel()

    start = np.log(astuple(Constants()))
    most = replace(Constants(*np.exp(start + 4.0)), efficiency=1.0)
    ends = start - 4.0, np.log(astuple(most))  # what the cells do not determine stays near where it began
    return Constants(*np.exp(least_squares(residuals, start, bounds=ends, loss="soft_l1", f_scale=0.2).x))


def extend(by: Constants, n_rows: float, K: int, bandwidth: float, latency: float) -> list[report.Row]:
    """Apply the formula to sixteen and to many more workers, with the latency of a cluster."""
    selected = replace(by, latency=latency)
    rows = []
    for S in (16, 1000, 100_000):
        at = Setting(S, n_rows / S, K, bandwidth)
        row = {"table": CARRIED, "workers": S, "rows each": at.n, "K": K, "bandwidth": show_bandwidth(bandwidth)}
        row["computation"] = sum(computation(at, selected))
        row |= {f"{way} E": exchange(at, selected, way) for way in ("chain", "tree")}
        rows.append(row | {f"{way} T": round_seconds(at, selected, way) for way in ("chain", "tree")})
    return rows


def draw(rows: list[report.Row], path: Path) -> None:
    figure = new_figure(5.5, 5.0)
    ax = figure.subplots()
    for K, colour in zip(sorted({row["K"] for row in rows}), SERIES_COLOURS, strict=False):
        points = [(row["measured s"], row["formula s"]) for row in rows if row["K"] == K]
        ax.loglog(*zip(*points, strict=True), "o", color=colour, label=f"K = {K}")
    ends = [min(r["measured s"] for r in rows) / 2, max(r["measured s"] for r in rows) * 2]
    ax.loglog(ends, ends, color="#999999", linewidth=1)
    ax.set_xlabel("measured, seconds of a round")
    ax.set_ylabel("by the formula")
    ax.legend()
    save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.network.cost", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", help="network.json, of one or more runs on one machine")
    parser.add_argument("--rows", type=float, default=1e9, help="of all workers, where the formula is carried further")
    parser.add_argument("--neurons", type=int, default=256)
    parser.add_argument("--bandwidth", default="100MB")
    parser.add_argument("--latency", type=float, default=2e-4, help="of a step, where the formula is carried further")
    args = parser.parse_args()
    cells = [cell for file in args.files for cell in cells_of(report.read(file)["network"])]
    by = fit(cells)
    rows = []
    for at, row in cells:
        found, measured = round_seconds(at, by), row["round s"]
        figures = {"hosts": at.S, "K": at.K, "rows each": at.n, "bandwidth": row["bandwidth"]}
        figures |= {"measured s": measured, "formula s": found, "ratio": found / measured}
        figures |= {"exchange s": row["exchange s"], "exchange by formula": exchange(at, by)}
        rows.append({"table": MADE, **figures})
    off = np.abs(np.log([row["ratio"] for row in rows]))
    further = extend(by, args.rows, args.neurons, parse_bandwidth(args.bandwidth) or math.inf, args.latency)
    console = Console(width=180)
    report.show(rows + further, console)
    console.print({name: float(f"{value:.3g}") for name, value in asdict(by).items()})
    console.print(f"off by {np.exp(np.median(off)) - 1:.0%} in the median, {np.exp(off.max()) - 1:.0%} at most")
    found = {"about": {"files": [str(file) for file in args.files]}, "constants": asdict(by), "rows": rows + further}
    report.write(args.files[0].with_name("cost.json"), {"cost": found})
    draw(rows, args.files[0].with_name("cost.png"))


if __name__ == "__main__":
    main()
