"""Seconds by bandwidth, and bytes by K."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.speed.report import Row

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
    figure.savefig(path, dpi=120)


def seconds(ax: Any, rows: list[Row], title: str) -> None:
    """Of a round, of an all-reduce, and of a round without a limit: a line across."""
    for K, colour in zip(sorted({row["K"] for row in rows}), COLOURS, strict=False):
        own = [row for row in rows if row["K"] == K]
        limited = [row for row in own if row["bytes/s"]]
        for key, style, what in (("round s", "o-", "a round"), ("all_reduce s", "s:", "all_reduce of K x K")):
            points = [(row["bytes/s"], row[key]) for row in limited if row[key] is not None]
            ax.plot(*zip(*points, strict=True), style, color=colour, label=f"K = {K}, {what}") if points else None
        for row in own:
            if not row["bytes/s"] and row["round s"] is not None:
                ax.axhline(row["round s"], color=colour, linewidth=0.5)
    ax.set_xlabel("bytes a second of each host", fontsize=8)
    ax.set_title(title)


def sent(ax: Any, rows: list[Row], sizes: list[int]) -> None:
    for size, colour in zip(sizes, COLOURS, strict=False):
        own = [row for row in rows if row["hosts"] == size and not row["bytes/s"]]
        for key, style, what in (("sent", "o-", "a round"), ("all_reduce sent", "s:", "all_reduce of K x K")):
            points = sorted((row["K"], row[key]) for row in own if row[key] is not None)
            ax.plot(*zip(*points, strict=True), style, color=colour, label=f"{size} hosts, {what}") if points else None
    ax.set_xlabel("K", fontsize=8)
    ax.set_title("bytes that a host sends in a round, at its interface")
