"""Pictures of a comparison: mean ranks with what is not different, and log ratios of losses set by set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.accuracy.tables.measuring import Results
from benchmarks.accuracy.tables.verdicts import alike, critical_difference, log_ratio, mean_losses, mean_ranks
from benchmarks.report import COLOURS, new_figure, save


def draw_ranks(results: Results, learners: Sequence[str], path: Path) -> None:
    """Critical-difference diagram: ranks on an axis, bars join learners that do not differ."""
    ranks = mean_ranks(mean_losses(results, learners), learners)
    difference = critical_difference(len(learners), len(results))
    bars = alike(ranks, difference)
    ordered = sorted(ranks, key=ranks.__getitem__)
    half, first_leg = (len(ordered) + 1) // 2, 0.35 * len(bars) + 0.6
    figure = new_figure(7.5, 0.28 * (first_leg + half) + 1.0)
    ax = figure.subplots()
    low, high = 1.0, float(len(learners))
    ax.set_xlim(low - 0.45 * (high - low), high + 0.45 * (high - low))
    ax.set_ylim(first_leg + half, -1.6)
    ax.axis("off")
    ax.plot([low, high], [0, 0], color="black", linewidth=1)
    for rank in range(1, len(learners) + 1):
        ax.plot([rank, rank], [0, -0.2], color="black", linewidth=1)
        ax.text(rank, -0.3, str(rank), ha="center", va="bottom", fontsize=8)
    ax.plot([low, low + difference], [-1.3, -1.3], color="black", linewidth=1.5, marker="|")
    words = f"  critical difference {difference:.2f} ({len(results)} sets)"
    ax.text(low + difference, -1.3, words, va="center", fontsize=8)
    for number, (left, right) in enumerate(bars):
        y = 0.35 * (number + 1)
        ax.plot([left - 0.03, right + 0.03], [y, y], color="black", linewidth=3, solid_capstyle="butt")
    for number, name in enumerate(ordered):
        on_left = number < half
        y = first_leg + (number if on_left else len(ordered) - 1 - number)
        edge = low - 0.04 * (high - low) if on_left else high + 0.04 * (high - low)
        colour = COLOURS.get(name.split()[0], "#555555")
        ax.plot([ranks[name], ranks[name], edge], [0, y, y], color=colour, linewidth=1)
        words = f"{name}  {ranks[name]:.2f}" if on_left else f"{ranks[name]:.2f}  {name}"
        ax.text(edge, y, f" {words} ", ha="right" if on_left else "left", va="center", fontsize=8)
    save(figure, path)


def draw_ratios(results: Results, ours: str, peers: Sequence[str], path: Path) -> None:
    """The loss of one learner relative to the best of its peers, set by set."""
    means = mean_losses(results, peers)
    found = {name: log_ratio(results, name, ours, min(peers, key=means[name].__getitem__)) for name in results}
    ordered = sorted(found, key=found.__getitem__)
    figure = new_figure(6, 0.22 * len(ordered) + 1)
    ax = figure.subplots()
    ax.barh(ordered, [found[name] for name in ordered], color=COLOURS["gbun"])
    ax.axvline(0.0, color="black", linewidth=0.8)
    ax.set_title(f"log of {ours}'s loss / that of the best of {', '.join(peers)}", fontsize=9)
    ax.tick_params(labelsize=7)
    save(figure, path)


def draw_panels(ratios: Mapping[str, Mapping[str, float]], title: str, path: Path, most: float = 1.0) -> None:
    """Bars of log ratios, a panel for each learner and a bar for each set; cut off at `most`."""
    figure = new_figure(1.2 * len(ratios) + 1.5, 0.2 * len(next(iter(ratios.values()))) + 1.2)
    for ax, (learner, row) in zip(
        figure.subplots(1, len(ratios), sharey=True, squeeze=False)[0], ratios.items(), strict=True
    ):
        ax.barh(list(row), np.clip(list(row.values()), -most, most), color=COLOURS["gbun"])
        ax.axvline(0.0, color="black", linewidth=0.8)
        ax.set_xlim(-most, most)
        ax.set_title(learner.replace(", ", ",\n"), fontsize=7)
        ax.tick_params(labelsize=6)
    figure.suptitle(title, fontsize=9)
    save(figure, path)
