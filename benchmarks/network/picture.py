"""Seconds by bandwidth, and bytes by K."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from benchmarks.network.measure import bandwidth_of
from benchmarks.speed.report import Row

SERIES = (("round s", "o-", "a round"), ("all_reduce s", "s:", "all_reduce"))
COLOURS = ("#1b6ca8", "#e08e45", "#8fb339", "#9b5fa5", "#999999")


def draw(rows: list[Row], path: Path) -> None:
    sizes = sorted({row["hosts"] for row in rows})
    figure = Figure(figsize=(9.0, 4.5 * (len(sizes) + 1)), layout="constrained")
    FigureCanvasAgg(figure)
    *panels, last = figure.subplots(len(sizes) + 1, 1, squeeze=False)[:, 0]
    for ax, size in zip(panels, sizes, strict=True):
        seconds(ax, [row for row in rows if row["hosts"] == size], f"{size} hosts: seconds of a round by bandwidth")
    sent(last, rows, sizes)
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
    figure.savefig(path, dpi=120)


def seconds(ax: Any, rows: list[Row], title: str) -> None:
    """Of a round and of an all-reduce; of a round without a limit, a line across."""
    for K, colour in zip(sorted({row["K"] for row in rows}), COLOURS, strict=False):
        own = [row for row in rows if row["K"] == K]
        limited = [row for row in own if bandwidth_of(row["bandwidth"])]
        for key, style, what in SERIES:
            points = [(bandwidth_of(row["bandwidth"]), row[key]) for row in limited]
            line(ax, points, style, colour, f"K = {K}, {what}")
        for row in own:
            if row not in limited and row["round s"] is not None:
                ax.axhline(row["round s"], color=colour, linewidth=0.5)
    ax.set_xlabel("bytes a second of each host", fontsize=8)
    ax.set_title(title)


def sent(ax: Any, rows: list[Row], sizes: list[int]) -> None:
    free = [row for row in rows if bandwidth_of(row["bandwidth"]) is None]
    for size, colour in zip(sizes, COLOURS, strict=False):
        own = [row for row in free if row["hosts"] == size]
        line(ax, [(row["K"], row["sent"]) for row in own], "o-", colour, f"{size} hosts, a round")
        line(ax, [(row["K"], row["all_reduce sent"]) for row in own], "s:", colour, f"{size} hosts, all_reduce")
    ax.set_xlabel("K", fontsize=8)
    ax.set_title("bytes that a host sends in a round, at its interface")


def line(ax: Any, points: list[tuple[Any, Any]], style: str, colour: str, label: str) -> None:
    """What is known of a series."""
    known = sorted(point for point in points if None not in point)
    if known:
        ax.plot(*zip(*known, strict=True), style, color=colour, label=label)
