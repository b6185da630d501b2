"""The three parts: each makes a finished cell of a learner on a set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from time import perf_counter
from typing import Any

from benchmarks.accuracy.wide.base import Settings, Watch
from benchmarks.accuracy.wide.cells import Cell, trained, tried, watched
from benchmarks.accuracy.wide.learners import LEARNERS
from benchmarks.accuracy.wide.sets import SETS
from benchmarks.accuracy.wide.store import Finished, Store
from benchmarks.speed.children import Limits, Worker
from benchmarks.speed.timing import Failed

MEMORY = 12 * 10**9
GRACE = 0.1  # a candidate is cut off when it is this share of the budget over it; boosters stop by themselves before

TARGET_SETS = ("rcv1_binary", "book_crossing", "news20_multi", "imdb")
TARGET_LEARNERS = ("lightgbm", "gbun")  # in this order: the first sets the goal
LIGHTGBM_DEFAULT_ROUNDS, LIGHTGBM_ROUNDS, GBUN_ROUNDS, GBUN_PATIENCE = 100, 300, 1000, 100


@dataclass(frozen=True)
class Options:
    """Seconds of a cell's answers and of tuning, and the store that finished cells are in."""

    limit: float
    budget: float
    store: Store

    @property
    def limits(self) -> Limits:
        return Limits(MEMORY, self.limit)


def defaults(cell: Cell, options: Options) -> Finished:
    """Every learner as it comes."""
    return refit(cell, {}, options)


def tuned(cell: Cell, options: Options) -> Finished:
    """The best of the candidates that the budget has time for, trained on all rows."""
    attempts = search(cell, options)
    judged = [a for a in attempts if a["validation"] is not None]
    if not judged:
        return {"attempts": attempts, "note": attempts[0]["note"]}
    best = max(judged, key=lambda a: a["validation"])  # the first of equals
    found = refit(cell, best["refit"], options)
    return {"validation": best["validation"], "settings": best["refit"], **found, "attempts": attempts}


def search(cell: Cell, options: Options) -> list[dict[str, Any]]:
    """Candidates in turn until the budget is spent; one that fails costs its seconds and a new process."""
    attempts: list[dict[str, Any]] = []
    left, worker = options.budget, None
    try:
        for i, settings in enumerate(cell.learner.candidates):
            if left <= 0:
                break
            row: dict[str, Any] = {"settings": settings, "validation": None}
            began = None
            try:
                worker = worker or Worker(tried, cell, left, limits=options.limits)
                began = perf_counter()
                _, (row["validation"], row["refit"]) = worker.ask(str(i), left + GRACE * options.budget)
            except Failed as failure:
                row["note"] = str(failure)
                worker = worker and worker.close()
            row["seconds"] = left if began is None else perf_counter() - began  # who cannot begin will not later
            left -= row["seconds"]
            attempts.append(row)
    finally:
        if worker:
            worker.close()
    return attempts


def refit(cell: Cell, settings: Settings, options: Options) -> Finished:
    found: Finished = {}
    try:
        with Worker(trained, cell, settings, limits=options.limits) as worker:
            found["fit"], _ = worker.ask("fit")
            found["predict"], _ = worker.ask("predict")
            _, judged = worker.ask("judge")
            found |= judged
    except Failed as failure:
        found["note"] = str(failure)
    return found


def target(cell: Cell, options: Options) -> Finished:
    """Seconds until LightGBM's best validation score: ingestion, the linear start and evaluations are counted.

    There are two goals: the best that LightGBM has in the 100 rounds of its defaults, and in up to 300.
    """
    first = options.store.find("target", cell.set_name, "lightgbm") or {}
    if cell.learner_name == "lightgbm":
        settings, watch = {"n_estimators": LIGHTGBM_ROUNDS}, Watch(LIGHTGBM_ROUNDS, options.limit)
    else:
        settings = {"n_estimators": GBUN_ROUNDS, "early_stopping_rounds": GBUN_PATIENCE}
        watch = Watch(GBUN_PATIENCE, options.limit, first.get("best", inf))
    try:
        # It stops by itself when its time is up; the rest is for rows being read in and for the last round.
        with Worker(watched, cell, settings, watch, limits=Limits(MEMORY, 2 * options.limit)) as worker:
            _, watch = worker.ask("train")
    except Failed as failure:
        return {"note": str(failure)}
    found = {"best": watch.best_score, "rounds": len(watch.scores), "curve": [watch.seconds, watch.scores]}
    if cell.learner_name == "lightgbm":
        early = max(watch.scores[:LIGHTGBM_DEFAULT_ROUNDS])
        return {
            **found,
            "goal": early,
            "seconds": watch.reached(early),
            "last_seconds": watch.reached(watch.best_score),
        }
    if "goal" not in first:
        return {**found, "note": "LightGBM has no score"}
    reached = watch.reached(first["goal"])
    note = {} if reached is not None else {"note": f"not reached in {watch.seconds[-1]:.0f} s"}
    return {**found, "goal": first["goal"], "seconds": reached, "last_seconds": watch.reached(first["best"]), **note}


PARTS: dict[str, Callable[[Cell, Options], Finished]] = {"defaults": defaults, "tuned": tuned, "target": target}


def has(part: str, set_name: str, learner_name: str) -> bool:
    """Whether a part has a cell of this learner on this set."""
    if part == "target":
        return set_name in TARGET_SETS and learner_name in TARGET_LEARNERS
    return LEARNERS[learner_name].suits(SETS[set_name], part)


def in_order(part: str, learners: list[str]) -> list[str]:
    """LightGBM goes first where it sets the goal."""
    return [n for n in TARGET_LEARNERS if n in learners] if part == "target" else learners
