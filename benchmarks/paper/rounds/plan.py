"""A cell for each set: rounds of all learners, in turns."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.paper.accuracy.figures import ROUNDS
from benchmarks.paper.accuracy.sets import sets_of
from benchmarks.paper.cells import Cell
from benchmarks.paper.experiment import Plan
from benchmarks.paper.rounds.learners import BUILDS
from benchmarks.speed.children import Limits, Worker, together
from benchmarks.speed.timing import Times, interleave

SETS = ("letter", "epsilon", "news20_binary", "rcv1_binary", "aloi", "news20_multi", "book_crossing")
QUICK_SETS, QUICK_SECONDS, QUICK_SIZE, QUICK_ROUNDS = ("clicks", "classes"), 0.5, 32, 10
MEMORY, START = 7 * 10**9, 300.0  # for each, as all are alive at once; a first round may take long with 1000 classes


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--round-sets", help=f"some of {','.join(SETS)}")
    parser.add_argument("--round-seconds", type=float, default=20.0, help="of each learner on each set")
    parser.add_argument("--round-size", type=int, default=256, help="outputs of a network, leaves of a tree")


def cells(plan: Plan) -> list[Cell]:
    given, known = plan.given, sets_of(plan.data)
    wanted = given.round_sets.split(",") if given.round_sets else [*SETS, *QUICK_SETS]
    if given.round_sets and (missing := [name for name in wanted if name not in known]):
        raise SystemExit(f"--round-sets must be some of {','.join(known)}, got {','.join(missing)}")
    seconds, size = (QUICK_SECONDS, QUICK_SIZE) if plan.quick else (given.round_seconds, given.round_size)
    if not seconds > 0:
        raise SystemExit(f"--round-seconds must be positive, got {seconds}")
    if size < 2 or size & (size - 1):
        raise SystemExit(f"--round-size must be a power of two, as trees of a depth have leaves, got {size}")
    rounds = QUICK_ROUNDS if plan.quick else ROUNDS
    found = []
    for name in (name for name in wanted if name in known):
        settings = {"data": name, "source": known[name].source, "seconds": seconds, "size": size}
        settings |= {"threads": plan.threads, "memory": MEMORY, "rounds": rounds}
        work = partial(compare, name, plan.data, size, seconds, rounds, plan.threads)
        found.append(Cell(name, settings, work, len(BUILDS) * (1.5 * seconds + 4.0)))
    return found


def compare(name: str, folder: Path | None, size: int, seconds: float, rounds: int, threads: int) -> dict[str, Any]:
    """What each learner's rounds took, by its name among "learners". One that fails has the reason in its note."""
    limits = Limits(MEMORY, START + 2 * seconds)
    start = {
        learner: partial(Worker, build, name, folder, size, threads, limits=limits) for learner, build in BUILDS.items()
    }
    with together(start) as (workers, failed):
        units = {learner: worker.unit("round") for learner, worker in workers.items()}
        times = interleave(units, rounds, seconds)
        found = {learner: {**workers[learner].facts, **_figures(times[learner])} for learner in times}
    found |= {learner: {"note": note} for learner, note in failed.items()}
    medians = {f"{learner} median": one["median"] for learner, one in found.items() if one.get("median") is not None}
    return {**medians, "learners": found}


def _figures(times: Times) -> dict[str, Any]:
    seconds = times.seconds
    return {
        "rounds": len(seconds),
        "mean": fmean(seconds) if seconds else None,
        "deviation": stdev(seconds) if len(seconds) > 1 else None,
        "median": times.median,
        "note": times.note,
    }
