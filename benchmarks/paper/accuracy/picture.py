"""Curves of convergence: the test score against rounds and against seconds, two panels for each set.

All are one below the other, so that a phone can show them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.paper.accuracy.learners import LEARNERS
from benchmarks.paper.cells import Finding
from benchmarks.paper.experiment import Picture

WIDTH = 5.0  # inches
CAPTION = (
    "Convergence with the settings that were found: the score on test rows after each round, against rounds and "
    "against the seconds of one thread since training began, other cells running beside. gbun begins with its start, "
    "round 0. Boosters of the paper, on its sets and on book_crossing."
)


def draw(findings: Sequence[Finding], folder: Path) -> list[Picture]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # here, as every child process reads this file
    from matplotlib.figure import Figure

    curved = [finding for finding in findings if "curve" in finding.found]
    names = list(dict.fromkeys(finding.settings["data"] for finding in curved))
    if not names:
        return []
    shown = [(name, against) for name in names for against in ("rounds", "seconds")]
    figure = Figure(figsize=(WIDTH, 2.6 * len(shown)), layout="constrained")
    FigureCanvasAgg(figure)
    for ax, (name, against) in zip(figure.subplots(len(shown)), shown, strict=True):
        own = [finding for finding in curved if finding.settings["data"] == name]
        _panel(ax, own, against)
        ax.set_title(f"{name}: test {own[0].found['metric']}", fontsize=9)
    path = folder / "accuracy_convergence.png"
    figure.savefig(path, dpi=120)
    return [Picture(path, CAPTION)]


def _panel(ax: Any, findings: Sequence[Finding], against: str) -> None:
    from benchmarks.speed.picture import COLOURS

    for finding in findings:
        title, curve = LEARNERS[finding.settings["learner"]].title, finding.found["curve"]
        ax.plot(curve[against], curve["scores"], color=COLOURS[title], label=title)
    if against == "seconds":
        ax.set_xscale("log")
    # What is far below the best is of no interest, and would hide what is.
    best = max(max(finding.found["curve"]["scores"]) for finding in findings)
    lowest = min(min(finding.found["curve"]["scores"]) for finding in findings)
    ax.set_ylim(max(lowest, best - 0.25), best + 0.01)
    ax.set_xlabel(against, fontsize=8)
    ax.tick_params(labelsize=7)
    ax.legend(fontsize=7)
