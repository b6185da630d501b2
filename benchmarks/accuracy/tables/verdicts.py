"""Who is better: on a set by paired losses, over sets by ranks.

A learner with mean rank R_i over N sets differs from another one where |R_i - R_j| is more than Nemenyi's critical
difference for k learners,

    CD = q sqrt(k (k + 1) / (6 N)),    q = studentised range of k groups, at 5 %, divided by sqrt 2

(Demsar 2006). Splits of a set share rows, so a verdict on one set is a description; tests over sets are tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, log, sqrt
from statistics import fmean

import numpy as np
from scipy.stats import rankdata, studentized_range, wilcoxon

from benchmarks import report
from benchmarks.accuracy.tables.boosters import OURS
from benchmarks.accuracy.tables.measuring import Results

LEVEL = 0.05
FLOOR = 1e-3  # added to log losses in ratios: below that everything is right


def losses(results: Results, name: str, learner: str) -> list[float]:
    return [split[learner]["loss"] for split in results[name].values()]


def mean_losses(results: Results, learners: Sequence[str]) -> dict[str, dict[str, float]]:
    """Means over splits, by set and learner."""
    return {name: {one: fmean(losses(results, name, one)) for one in learners} for name in results}


def is_regression(results: Results, name: str) -> bool:
    return any(found["regression"] for split in results[name].values() for found in split.values())


def log_ratio(results: Results, name: str, learner: str, reference: str) -> float:
    """The log of the ratio of mean losses on a set."""
    floor = 0.0 if is_regression(results, name) else FLOOR
    above, below = (fmean(losses(results, name, one)) + floor for one in (learner, reference))
    return log(above / below)


def verdict(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Judge paired losses: won or lost where the mean difference is more than two standard errors."""
    gains = np.subtract(theirs, ours)
    error = gains.std(ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else 0.0
    return "tied" if abs(gains.mean()) <= 2 * error else "won" if gains.mean() > 0 else "lost"


def mean_ranks(means: Mapping[str, Mapping[str, float]], learners: Sequence[str]) -> dict[str, float]:
    """1 is the smallest loss; equal losses share their ranks."""
    ranks = [rankdata([row[one] for one in learners]) for row in means.values()]
    return dict(zip(learners, np.mean(ranks, axis=0).tolist(), strict=True))


def critical_difference(n_learners: int, n_sets: int) -> float:
    """
    >>> round(critical_difference(4, 14), 2)
    1.25
    """
    q = studentized_range.ppf(1 - LEVEL, n_learners, inf) / sqrt(2)
    return float(q * sqrt(n_learners * (n_learners + 1) / (6 * n_sets)))


def alike(ranks: Mapping[str, float], difference: float) -> list[tuple[float, float]]:
    """Intervals of ranks that are not different, the largest ones, each of two learners at least.

    >>> alike({"a": 1.0, "b": 1.5, "c": 2.4, "d": 4.0}, 1.0)
    [(1.0, 1.5), (1.5, 2.4)]
    """
    values = sorted(ranks.values())
    found: list[tuple[float, float]] = []
    for i, low in enumerate(values):
        high = max(value for value in values if value - low <= difference)
        if i + 1 < len(values) and high >= values[i + 1] and not any(a <= low and high <= b for a, b in found):
            found.append((low, high))
    return found


def compare_over_sets(results: Results, ours: str, theirs: str) -> float | None:
    """p of Wilcoxon's signed-rank test of the log ratios of losses; None where all are equal."""
    ratios = [log_ratio(results, name, ours, theirs) for name in results]
    return float(wilcoxon(ratios).pvalue) if any(ratios) else None


def make_rows(
    results: Results, learners: Sequence[str], judged: Sequence[str], peers: Sequence[str]
) -> list[report.Row]:
    """Losses set by set with a verdict on each of the judged learners, then ranks and seconds, then its verdicts."""
    means = mean_losses(results, learners)
    best = {name: min(peers, key=row.__getitem__) for name, row in means.items()}
    rows: list[report.Row] = []
    title = {"table": "Log loss or RMSE on test rows, means over splits"}
    for name, row in means.items():
        cells = {one: f"{row[one]:.4g}" for one in learners} | {"best peer": best[name]}
        words = {f"{one}: against it": verdict_on(results, name, one, best[name]) for one in judged}
        rows.append({**title, "data": name, **cells, **words})
    among_all = mean_ranks(means, learners)
    for one in learners:
        title = {"table": "Ranks, ratios and seconds of the processor", "learner": one}
        beside = mean_ranks(means, one_of_ours(learners, one if one.startswith(OURS) else OURS))
        ranks = {"mean rank, one gbun": f"{beside[one]:.2f}", "mean rank among all": f"{among_all[one]:.2f}"}
        rows.append({**title, **ranks, **over_sets(results, one)})
    for ours in judged:
        for one in learners:
            if one != ours:
                found = [verdict_on(results, name, ours, one) for name in results]
                p = {"p, Wilcoxon": compare_over_sets(results, ours, one)}
                rows.append({"table": f"{ours} against each, sets", "learner": one, **count(found), **p})
        found = [verdict_on(results, name, ours, best[name]) for name in results]
        words = f"best of {', '.join(peers)}"
        rows.append({"table": f"{ours} against each, sets", "learner": words, **count(found)})
    return rows


def one_of_ours(learners: Sequence[str], ours: str) -> list[str]:
    """The learners of others, and one of gbun's."""
    return [one for one in learners if one == ours or not one.startswith(OURS)]


def verdict_on(results: Results, name: str, ours: str, theirs: str) -> str:
    return verdict(losses(results, name, ours), losses(results, name, theirs))


def count(verdicts: Sequence[str]) -> dict[str, int]:
    return {kind: verdicts.count(kind) for kind in ("won", "tied", "lost")}


def over_sets(results: Results, learner: str, reference: str = "LightGBM") -> dict[str, str]:
    """Sums over sets of mean seconds, their ratio, and the mean log ratio of losses."""
    seconds, base = total_seconds(results, learner), total_seconds(results, reference)
    ratio = fmean(log_ratio(results, name, learner, reference) for name in results)
    found = {f"log of loss / {reference}'s": f"{ratio:+.3f}", "seconds, all sets": f"{seconds:.1f}"}
    return {**found, f"of {reference}'s": f"{seconds / base:.2f}"}


def total_seconds(results: Results, learner: str) -> float:
    return sum(fmean(split[learner]["seconds"] for split in splits.values()) for splits in results.values())
