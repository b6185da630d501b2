"""What each part of gbun brings on tables: one switch changed, as the log ratio of its loss to LightGBM's.

All but "defaults" and "defaults, no refit" have the held-out rows, rounds and patience of LightGBM. To try another
setting, add a line.
"""

from __future__ import annotations

from statistics import fmean
from typing import Any

from benchmarks import report
from benchmarks.accuracy.tables.boosters import fit_gbun, fit_gbun_on_given, fit_lightgbm
from benchmarks.accuracy.tables.measuring import Contestant, Results, make_contestant
from benchmarks.accuracy.tables.verdicts import log_ratio, total_seconds

REFERENCE = "LightGBM"
SWITCHES: dict[str, dict[str, Any]] = {
    "mixed": {"learner": "mixed"},
    "trees": {"learner": "tree"},
    "trees of columns": {"learner": "tree", "n_projections": 0},
    "trees, 48 projections": {"learner": "tree", "n_projections": 48},
    "trees, all columns": {"learner": "tree", "n_candidates": 4096},
    "mixed, relevance": {"learner": "mixed", "scale": "standard+clip+relevance"},
    "networks": {"learner": "network"},
    "networks, relevance": {"learner": "network", "scale": "standard+clip+relevance"},
    "networks, many temperatures": {"learner": "network", "temperature": 1.0, "temperature_doublings": 3},
    "mixed, rate .05": {"learner": "mixed", "learning_rate": 0.05},
}


def contestants() -> list[Contestant]:
    as_they_come = {"defaults": {}, "defaults, no refit": {"refit": False}}
    return [
        make_contestant(REFERENCE, fit_lightgbm, {}),
        *(make_contestant(name, fit_gbun, settings) for name, settings in as_they_come.items()),
        *(make_contestant(name, fit_gbun_on_given, settings) for name, settings in SWITCHES.items()),
    ]


def ratios(results: Results, learners: list[str]) -> dict[str, dict[str, float]]:
    """Log ratios to LightGBM's loss, by learner and set."""
    return {one: {name: log_ratio(results, name, one, REFERENCE) for name in results} for one in learners}


def make_rows(results: Results, learners: list[str]) -> list[report.Row]:
    """Log ratios set by set, their means, and seconds."""
    found = ratios(results, learners)
    title = {"table": "log of the loss / LightGBM's, means over splits; less than 0 is better"}
    rows = [{**title, "data": name, **{one: f"{found[one][name]:+.3f}" for one in learners}} for name in results]
    rows.append({**title, "data": "mean", **{one: f"{fmean(found[one].values()):+.3f}" for one in learners}})
    seconds = {one: total_seconds(results, one) for one in learners}
    rows.append({**title, "data": "seconds, all sets", **{one: f"{seconds[one]:.1f}" for one in learners}})
    return rows
