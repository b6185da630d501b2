"""A cell for each set: rounds of all learners, in turns. Sets that the folder does not have say so."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.accuracy.problems import SPLIT_SEED
from benchmarks.network.parameters import SEEDS
from benchmarks.paper.accuracy.figures import ROUNDS
from benchmarks.paper.accuracy.sets import planned_sets, sets_of
from benchmarks.paper.cells import Cell
from benchmarks.paper.experiment import Plan
from benchmarks.paper.given import chosen, number
from benchmarks.speed import learners
from benchmarks.speed.children import Limits, Worker, together
from benchmarks.speed.data import Source
from benchmarks.speed.timing import Absent, Times, interleave

SETS = ("letter", "epsilon", "news20_binary", "rcv1_binary", "aloi", "news20_multi", "book_crossing")
QUICK_SETS = ("clicks", "classes")
WHOLE = {"round_seconds": 10.0, "round_size": 256, "most_rounds": ROUNDS}
QUICK = {"round_seconds": 0.5, "round_size": 32, "most_rounds": 10}
LEAST_ROUNDS = 3  # of each, however long they take: a mean without a deviation says little
MEMORY, ALONE = 7 * 10**9, 20 * 10**9  # bytes for each, as all are alive at once; for who needs more, alone
START = 300.0  # seconds: a first round may take long with 1000 classes
TITLES = {"gbun": "gbun", "xgboost": "XGBoost", "lightgbm": "LightGBM"}
PACKAGES = ("gbun", "numba", "xgboost", "xgboost-cpu", "lightgbm")
PEERS = ("xgboost", "lightgbm")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--round-sets", help=f"some of {','.join(SETS)}")
    parser.add_argument("--round-seconds", type=number(float, 0.1), help="of each learner on each set, 10 by default")
    parser.add_argument(
        "--round-size", type=number(least=2), help="outputs of a network, leaves of a tree, 256 by default"
    )


def cells(plan: Plan) -> list[Cell]:
    given, known = chosen(plan, WHOLE, QUICK), planned_sets(plan)
    seconds, size, rounds = given.round_seconds, given.round_size, given.most_rounds
    planned = QUICK_SETS if plan.quick else SETS
    wanted = planned if given.round_sets is None else given.round_sets.split(",")
    if unknown := [name for name in wanted if name not in known]:
        raise SystemExit(f"--round-sets must be some of {','.join(known)}, got {','.join(unknown)}")
    if size & (size - 1):
        raise SystemExit(f"--round-size must be a power of two, as trees of a depth have leaves, got {size}")
    found = []
    for one in (known[name] for name in wanted):
        settings = {"data": one.name, "source": one.source, "bytes": one.size, "seconds": seconds, "size": size}
        settings |= {"threads": plan.threads, "memory": [MEMORY, ALONE], "rounds": [LEAST_ROUNDS, rounds]}
        work = partial(compare, one.name, plan.data, size, seconds, rounds, plan.threads)
        guess, seeds = len(TITLES) * (1.5 * seconds + 4.0), {"split": SPLIT_SEED, **SEEDS}
        found.append(Cell(one.name, settings, work, guess, PACKAGES, PEERS, seeds, one.missing))
    return found


def compare(name: str, folder: Path | None, size: int, seconds: float, rounds: int, threads: int) -> dict[str, Any]:
    """What each learner's rounds took, by its name among "learners". One that fails has the reason in its note."""
    made = partial(starters, name, folder, size, threads, START + 2 * seconds)
    found = _turns(made(MEMORY), rounds, seconds)
    if absent := [one["note"] for one in found.values() if one["note"].startswith("FileNotFoundError: ")]:
        raise Absent(absent[0])  # all read the same rows
    for learner in [learner for learner, one in found.items() if "mean" not in one]:
        again = _turns({learner: made(ALONE)[learner]}, rounds, seconds)[learner]
        why = f"measured alone, after the others; beside them: {found[learner]['note']}"
        found[learner] = {**again, "note": again["note"] or why}
    medians = {f"{learner} median": one["median"] for learner, one in found.items() if one.get("median") is not None}
    return {**medians, "learners": found}


def _turns(started: dict[str, Callable[[], Worker]], rounds: int, seconds: float) -> dict[str, Any]:
    with together(started) as (workers, failed):
        units = {learner: worker.unit("round") for learner, worker in workers.items()}
        times = interleave(units, rounds, seconds, LEAST_ROUNDS)
        found = {learner: {**workers[learner].facts, **_figures(times[learner])} for learner in times}
    return found | {learner: {"note": note} for learner, note in failed.items()}


def starters(
    name: str, folder: Path | None, size: int, threads: int, within: float, memory: int
) -> dict[str, Callable[[], Worker]]:
    """gbun begins with a constant, as the paper has it: what a round costs does not depend on the start."""
    source = Source(name, partial(training_rows, name, folder))
    ours = {"init": "constant", "n_neurons": size}
    asked = {
        "gbun": (learners.gbun, ours),
        "xgboost": (learners.xgboost, size.bit_length() - 1),
        "lightgbm": (learners.lightgbm, size),
    }
    limits = Limits(memory, within)
    return {
        learner: partial(Worker, build, source, model, threads, limits=limits)
        for learner, (build, model) in asked.items()
    }


def training_rows(name: str, folder: Path | None) -> tuple[Any, Any]:
    return sets_of(folder)[name].read()[0]


def _figures(times: Times) -> dict[str, Any]:
    seconds = times.seconds
    return {
        "rounds": len(seconds),
        "mean": fmean(seconds) if seconds else None,
        "deviation": stdev(seconds) if len(seconds) > 1 else None,
        "median": times.median,
        "note": times.note,
    }
