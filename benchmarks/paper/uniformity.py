"""Whether hashed weights are uniform: the paper's figure of 10,000 floats, and tests that would show if they are not.

    python -m benchmarks.paper.uniformity [--quick]

A pattern is a sequence of weights along one of the inputs of the hash, or over ids as they come in practice or as an
adversary would choose them. Of each pattern: a histogram of 100 bins and its chi-square test; the same test on 100
blocks one after the other, whose p-values must be uniform themselves (Kolmogorov-Smirnov); and the correlation of
neighbours. Hashes are a function, so a pattern gives the same figures on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.cells import Cell, Finding
from benchmarks.internals import simhash
from benchmarks.paper.experiment import Experiment, Picture, Plan, draw_panels, main
from benchmarks.report import Row, goal

TEXT = """\
The paper hashes the integers 1 to 10,000, makes floats of the hashes by two masks, draws a histogram of 100 bins and
finds it uniform; it tests nothing. Here its figure is made again (xxHash32 of eight bytes, hash seed 0; the paper
does not say which bytes it hashes), and our weights are tested along features, rounds and outputs, and for ids that
would expose a weak hash. Our weights differ from the paper's: a hash becomes a signed number of 24 bits, and hash
seeds are hashes themselves. With one seed xxHash32 is a permutation of ids below 2^32, so billions of consecutive ids
would be more even than chance; at 10^7 that takes a quarter of a percent from the variance."""

Floats = NDArray[np.float32]
SEED, ROUND = 0, 7
FEATURE = np.array([12345])  # the one whose weights are looked at along rounds and outputs
MOST = 10**7  # floats of a pattern
PAPER_FLOATS, QUICK_FLOATS = 10_000, 600_000  # a tenth of the latter is enough for all tests
DENSITY = 0.1  # what the paper leaves of the weights of dense columns
BINS, BLOCKS = 100, 100
LEAST = 5  # floats that a bin must expect: below, a sum of squares is not yet distributed as chi-square
LEVEL = 0.01  # of all tests together
LIKE_PAPER, OURS_LIKE_PAPER = "the paper's floats, ids 1 to 10,000", "our weights, ids 1 to 10,000"
FEATURES = "consecutive features"
TESTS = "uniformity: 100 bins, chi-square; p-values of 100 blocks; neighbours"
PAPER = "the paper's figure: 10,000 floats in 100 bins"


def over_ids(n: int, step: int = 1, first: int = 0) -> Floats:
    """Weights of one output in one round."""
    return simhash.weights(SEED, ROUND, np.uint64(first) + np.arange(n, dtype=np.uint64) * np.uint64(step), 1)[:, 0]


def over_names(n: int) -> Floats:
    """The same for hashed names, a tenth as many: Python hashes them one by one."""
    ids = np.array([simhash.hash_name(f"city={i}") for i in range(n // 10)], dtype=np.uint64)
    return simhash.weights(SEED, ROUND, ids, 1)[:, 0]


def over_sparse_weights(n: int) -> Floats:
    """What a density leaves of the weights of consecutive features."""
    weights = simhash.weights(SEED, ROUND, np.arange(n, dtype=np.uint64), 1, DENSITY)[:, 0]
    return weights[weights != 0]


def over_rounds(n: int) -> Floats:
    """The weight of one feature and one output in consecutive rounds."""
    rounds = np.arange(n, dtype=np.uint32)[:, None]  # NumPy makes the seeds of all of them at once
    return _weights(simhash.output_seeds(SEED, rounds, 1)[:, 0])  # type: ignore[arg-type]


def over_outputs(n: int) -> Floats:
    """The weights of one feature in one round."""
    return _weights(simhash.output_seeds(SEED, ROUND, n))


def over_networks(n: int) -> Floats:
    """All weights of networks of 1000 features and 64 outputs, round after round."""
    rounds = range(-(-n // (1000 * 64)))
    return np.concatenate([simhash.weights(SEED, t, np.arange(1000), 64).ravel() for t in rounds])[:n]


def _weights(seeds: Any) -> Floats:
    return simhash.weights_from_hashes(simhash.hash_features(seeds, FEATURE)[0], simhash.HALF)


def paper_floats(n: int) -> Floats:
    """The paper's way from a hash to a float, by two masks; from [1, 2) to [-1, 1)."""
    h = simhash.hash_features(np.zeros(1, dtype=np.uint32), np.arange(1, n + 1))[:, 0]
    return ((h & np.uint32(0x3FFFFFFF)) | np.uint32(0x3F800000)).view(np.float32) * np.float32(2) - np.float32(3)


PATTERNS: Mapping[str, Callable[[int], Floats]] = {
    FEATURES: over_ids,
    "consecutive rounds": over_rounds,
    "consecutive outputs": over_outputs,
    "whole networks, one after the other": over_networks,
    **{f"ids that are multiples of 2^{k}": partial(over_ids, step=2**k) for k in (8, 16, 24, 32)},
    "multiples of 2^32, plus one": partial(over_ids, step=2**32, first=1),
    "spread ids, multiples of a prime": partial(over_ids, step=2**31 - 1),
    "the largest ids": partial(over_ids, first=2**64 - 1 - MOST),
    "hashed names": over_names,
    f"what density {DENSITY} leaves": over_sparse_weights,
}
SMALL: Mapping[str, Callable[[int], Floats]] = {
    LIKE_PAPER: paper_floats,
    OURS_LIKE_PAPER: partial(over_ids, first=1),
}


def examine(make: Callable[[int], Floats], n: int) -> dict[str, Any]:
    """The tests of a pattern of n hashes."""
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
    """The statistic, of 99 degrees of freedom, and its p-value; p near 1 is too even."""
    result = stats.chisquare(counts)
    return float(result.statistic), float(result.pvalue)


def cells(plan: Plan) -> list[Cell]:
    n, common = QUICK_FLOATS if plan.quick else MOST, {"seed": SEED, "round": ROUND, "bins": BINS, "blocks": BLOCKS}
    sizes = {**dict.fromkeys(SMALL, PAPER_FLOATS), **dict.fromkeys(PATTERNS, n)}
    runs = {name: partial(examine, make, sizes[name]) for name, make in {**SMALL, **PATTERNS}.items()}
    return [Cell(name, {"hashes": size, **common}, runs[name], ("gbun", "scipy")) for name, size in sizes.items()]


def tables(findings: Sequence[Finding]) -> list[Row]:
    rows: list[Row] = []
    p_values: list[float] = []
    for finding in findings:
        figures = {key: value for key, value in finding.found.items() if not isinstance(value, list)}
        if finding.name in SMALL:
            figures["the paper"] = "“distributed uniformly”, by eye" if finding.name == LIKE_PAPER else ""
        title = PAPER if finding.name in SMALL else TESTS
        rows.append({"table": title, "pattern": finding.name, **figures, "note": finding.failed})
        if finding.name != LIKE_PAPER:
            p_values += [figures[key] for key in ("p", "its p", "KS p of blocks") if key in figures]
    # By Bonferroni: the smallest of n p-values, times n.
    corrected = min(1.0, min(p_values) * len(p_values)) if p_values else None
    what = f"hashed weights are uniform: smallest of {len(p_values)} p-values, times their number"
    return [*rows, goal("hashes", what, corrected, least=LEVEL)]


def draw(findings: Sequence[Finding], folder: Path) -> list[Picture]:
    found = {finding.name: finding.found for finding in findings if finding.found}
    shown = [name for name in (LIKE_PAPER, OURS_LIKE_PAPER, FEATURES) if name in found]
    blocks = {name: one["p of blocks"] for name, one in found.items() if "p of blocks" in one}
    bins = "Histograms of 100 bins; the band is where 95 % of bins of uniform floats are. The paper's is the first."
    panels = [partial(_draw_histogram, name, found[name]["counts"]) for name in shown]
    caption = "p-values of the chi-square tests of 100 blocks, sorted: a line along the diagonal."
    lines = [partial(_draw_blocks, blocks)] if blocks else []
    return [
        *draw_panels(panels, folder / "uniformity_histogram.png", bins, 2.3),
        *draw_panels(lines, folder / "uniformity_blocks.png", caption, 4.5, shades=96),
    ]


def _draw_histogram(name: str, counts: Sequence[int], ax: Any) -> None:
    mean = sum(counts) / BINS
    ax.stairs(counts, np.linspace(-1, 1, BINS + 1), fill=True, color="#1b6ca8")
    ax.axhspan(mean - 1.96 * mean**0.5, mean + 1.96 * mean**0.5, color="#e08e45", alpha=0.6)
    ax.set_ylim(0, 1.15 * max(counts))
    ax.set_title(f"{name}: {sum(counts):,} floats")


def _draw_blocks(blocks: Mapping[str, Sequence[float]], ax: Any) -> None:
    for name, p_values in blocks.items():
        ax.plot(np.linspace(0, 1, BLOCKS), sorted(p_values), linewidth=1, label=name)
    ax.plot([0, 1], [0, 1], color="black", linestyle=":", label="uniform")
    ax.set(xlabel="share of blocks", ylabel="p-value at most")


EXPERIMENT = Experiment("uniformity", "Uniformity of hashed weights", TEXT, cells, tables, draw, alone=False)

if __name__ == "__main__":
    main(EXPERIMENT)
