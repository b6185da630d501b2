"""Whether hashed weights are uniform: the paper's figure of 10,000 floats, and tests that could tell if they are not.

    python -m benchmarks.paper.uniformity [--quick]

A pattern is a sequence of weights, along one of the things a weight is a hash of, or over ids as they come in practice
or as an adversary would choose them. Of each pattern: a histogram of 100 bins and its chi-square test; the same test on
100 blocks one after the other, whose p-values must be uniform themselves (Kolmogorov-Smirnov); and the correlation of
neighbours. Hashes are a function, so a pattern gives the same figures on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats

from benchmarks.paper.cells import Cell, Finding
from benchmarks.paper.experiment import Experiment, Picture, Plan
from benchmarks.paper.uniformity.patterns import (
    FEATURES,
    LIKE_PAPER,
    MOST,
    OURS_LIKE_PAPER,
    PATTERNS,
    ROUND,
    SEED,
    SMALL,
    Floats,
)
from benchmarks.speed.report import Row, goal

BINS, BLOCKS = 100, 100
LEAST = 5  # floats that a bin must expect: below, a sum of squares is not yet distributed as chi-square
PAPER_FLOATS = 10_000
QUICK_FLOATS = 600_000  # a tenth of which are enough for all tests
LEVEL = 0.01  # all tests together cry wolf this often

TESTS = "uniformity: 100 bins, chi-square; p-values of 100 blocks; neighbours"
PAPER = "the paper's figure: 10,000 floats in 100 bins"


def examined(make: Callable[[int], Floats], n: int) -> dict[str, Any]:
    """What the tests say of a pattern of n hashes."""
    floats = make(n)
    counts = histogram(floats)
    statistic, p = chi_square(counts)
    correlation = float(np.corrcoef(floats[:-1], floats[1:])[0, 1])
    found = {"floats": len(floats), "chi-square": statistic, "p": p, "neighbours' correlation": correlation}
    found["its p"] = float(2 * stats.norm.sf(abs(correlation) * np.sqrt(len(floats))))
    if len(floats) >= BLOCKS * BINS * LEAST:
        blocks = [chi_square(histogram(block))[1] for block in np.array_split(floats, BLOCKS)]
        found["KS p of blocks"] = float(stats.kstest(blocks, "uniform").pvalue)
        found["p of blocks"] = blocks
    return found | {"counts": counts.tolist()}


def histogram(floats: Floats) -> NDArray[np.int64]:
    """Counts in equal bins of [-1, 1); a float outside is an error."""
    if not ((floats >= -1) & (floats < 1)).all():
        raise ValueError(f"floats must be in [-1, 1), got {floats.min()} to {floats.max()}")
    # 2^24 values in 100 bins: some have one more of them than others, six in a million, which no test here can see.
    return np.histogram(floats, BINS, (-1.0, 1.0))[0]


def chi_square(counts: NDArray[np.int64]) -> tuple[float, float]:
    """The statistic, of 99 degrees of freedom, and how often chance is further from even; p near 1 is too even."""
    found = stats.chisquare(counts)
    return float(found.statistic), float(found.pvalue)


def cells(plan: Plan) -> list[Cell]:
    n = QUICK_FLOATS if plan.quick else MOST
    sizes = {**dict.fromkeys(SMALL, PAPER_FLOATS), **dict.fromkeys(PATTERNS, n)}
    made = {**SMALL, **PATTERNS}
    return [
        Cell(
            name,
            {"hashes": size, "seed": SEED, "round": ROUND, "bins": BINS, "blocks": BLOCKS},
            partial(examined, made[name], size),
            size / 10**6,
            ("gbun", "scipy"),
        )
        for name, size in sizes.items()
    ]


def tables(findings: Sequence[Finding]) -> list[Row]:
    rows: list[Row] = []
    p_values: list[float] = []
    for finding in findings:
        told = {key: value for key, value in finding.found.items() if not isinstance(value, list)}
        if finding.name in SMALL:
            told["the paper"] = "“distributed uniformly”, by eye" if finding.name == LIKE_PAPER else ""
        title = PAPER if finding.name in SMALL else TESTS
        rows.append({"table": title, "pattern": finding.name, **told, "note": finding.failed})
        if finding.name != LIKE_PAPER:
            p_values += [told[key] for key in ("p", "its p", "KS p of blocks") if key in told]
    # By Bonferroni: the smallest of n p-values, times n.
    together = min(1.0, min(p_values) * len(p_values)) if p_values else None
    what = f"hashed weights are uniform: smallest of {len(p_values)} p-values, times their number"
    return [*rows, goal("hashes", what, together, least=LEVEL)]


def draw(findings: Sequence[Finding], folder: Path) -> list[Picture]:
    found = {finding.name: finding.found for finding in findings if finding.found}
    pictures = []
    shown = [name for name in (LIKE_PAPER, OURS_LIKE_PAPER, FEATURES) if name in found]
    if shown:
        path = folder / "uniformity_histogram.svg"
        figure = _figure(2.3 * len(shown))
        for ax, name in zip(figure.subplots(len(shown), 1, squeeze=False)[:, 0], shown, strict=True):
            _draw_histogram(ax, name, found[name]["counts"])
        figure.savefig(path)
        caption = (
            "Histograms of 100 bins; the band is where 95 % of bins of uniform floats are. The paper's is the first."
        )
        pictures.append(Picture(path, caption))
    tested = [name for name in found if "p of blocks" in found[name]]
    if tested:
        path, figure = folder / "uniformity_blocks.svg", _figure(4.5)
        ax = figure.subplots()
        for name in tested:
            ax.plot(np.linspace(0, 1, BLOCKS), sorted(found[name]["p of blocks"]), linewidth=1, label=name)
        ax.plot([0, 1], [0, 1], color="black", linestyle=":", label="uniform")
        ax.set(xlabel="share of blocks", ylabel="p-value at most")
        ax.legend(fontsize=6)
        figure.savefig(path)
        pictures.append(
            Picture(path, "p-values of the chi-square tests of 100 blocks, sorted: a line along the diagonal.")
        )
    return pictures


def _figure(height: float) -> Figure:
    figure = Figure(figsize=(5.0, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _draw_histogram(ax: Any, name: str, counts: Sequence[int]) -> None:
    mean = sum(counts) / BINS
    ax.stairs(counts, np.linspace(-1, 1, BINS + 1), fill=True, color="#1b6ca8")
    ax.axhspan(mean - 1.96 * mean**0.5, mean + 1.96 * mean**0.5, color="#e08e45", alpha=0.6)
    ax.set_ylim(0, 1.15 * max(counts))
    ax.set_title(f"{name}: {sum(counts):,} floats", fontsize=9)
    ax.tick_params(labelsize=7)


EXPERIMENT = Experiment(
    name="uniformity",
    title="Uniformity of hashed weights",
    text=(
        "The paper hashes the integers 1 to 10,000, makes floats of the hashes by two masks, draws a histogram of "
        "100 bins and finds it uniform; it tests nothing. Here its figure is made again (xxHash32 of eight bytes, "
        "hash seed 0; the paper does not say which bytes it hashes), and our weights are tested along features, "
        "rounds and outputs, and for ids that a weak hash would betray. Our weights differ from the paper's: a hash "
        "becomes a signed number of 24 bits, and hash seeds are hashes themselves. With one seed xxHash32 is a "
        "permutation of ids below 2^32, so billions of consecutive ids would be more even than chance; at 10^7 that "
        "takes a quarter of a percent from the variance."
    ),
    cells=cells,
    tables=tables,
    draw=draw,
    alone=False,
)
