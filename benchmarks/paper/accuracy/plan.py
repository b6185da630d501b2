"""The cells of the experiment: each learner tuned on each set, and gbun by the paper's protocol on each of the ten.

Sets that the folder does not have are planned too, and say that they are missing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.accuracy.problems import SPLIT_SEED, VALIDATION_SEED
from benchmarks.paper.accuracy.learners import LEARNERS
from benchmarks.paper.accuracy.protocol import GRID_SEED, papers_protocol
from benchmarks.paper.accuracy.sets import PaperSet, planned_sets
from benchmarks.paper.accuracy.tuning import RULES, STUDY_SEED, Tuning, tuned
from benchmarks.paper.cells import Cell
from benchmarks.paper.experiment import Plan
from benchmarks.paper.given import chosen, number

Work = Callable[[], dict[str, Any]]

WHOLE = {"budget": 30.0, "tabular_budget": 5.0, "seeds": 3}
QUICK = {"budget": 0.5, "tabular_budget": 0.5, "seeds": 2}
QUICK_LEARNERS = {"clicks": ["gbun"], "friedman": ["gbun", "lightgbm"]}  # on other sets all of them
PROTOCOL = "paper's protocol"
CURVES_OF = (
    *("letter", "news20_binary", "news20_multi", "rcv1_binary", "aloi", "epsilon", "book_crossing"),
    "classes",
)
CURVES_BY = ("gbun", "xgboost", "lightgbm")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sets", help="some of the sets, such as letter,a9a; all that the folder has by default")
    parser.add_argument("--learners", help=f"some of {','.join(LEARNERS)}")
    seconds = number(float, 0.1)
    parser.add_argument("--budget", type=seconds, help="seconds of tuning for each learner, 30 by default")
    parser.add_argument("--tabular-budget", type=seconds, help="the same for tabular sets, 5 by default")
    parser.add_argument("--seeds", type=number(), help="trainings that are judged on test rows, 3 by default")


def cells(plan: Plan) -> list[Cell]:
    given, known = chosen(plan, WHOLE, QUICK), planned_sets(plan)
    names = _named("--sets", given.sets, list(known))
    learners = _named("--learners", given.learners, list(LEARNERS))
    found = []
    for one in (known[name] for name in names):
        few = QUICK_LEARNERS.get(one.name) if plan.quick and not given.learners else None
        cell = partial(_cell, plan, one, given.tabular_budget if one.tabular else given.budget * one.budgets)
        found += [cell(learner, given.seeds) for learner in few or learners]
        if not one.tabular and not few and "gbun" in learners:
            found.append(cell(None, 1))
    return found


def _named(option: str, text: str | None, known: list[str]) -> list[str]:
    names = known if text is None else text.split(",")
    if missing := [name for name in names if name not in known]:
        raise SystemExit(f"{option} must be some of {','.join(known)}, got {','.join(missing)}")
    return names


def _cell(plan: Plan, one: PaperSet, budget: float, learner: str | None, seeds: int) -> Cell:
    """A learner tuned on a set; without its name gbun by the paper's protocol."""
    name = f"{one.name} / {learner or PROTOCOL}"
    curve = one.name in CURVES_OF and learner in CURVES_BY
    contestant, threads = LEARNERS[learner or "gbun"], plan.threads // plan.jobs
    settings = {
        "data": one.name,
        "tabular": one.tabular,
        "source": one.source,
        "bytes": one.size,
        "budget": budget,
        "threads": threads,
        "jobs": plan.jobs,
        **RULES,
    }
    if learner is not None:
        settings |= {"learner": learner, "seeds": seeds, "curve": curve, "spaces": contestant.spaces()}
        if fixed := contestant.fixed(one.sparse):
            settings["fixed"] = fixed
    if learner is None:
        work: Work = partial(papers_protocol, one.name, plan.data, budget, threads)
    else:
        work = partial(tuned, Tuning(one.name, learner, plan.data, budget, seeds, threads, curve))
    guess = 5.0 + budget * (1.0 if learner is None else 1.0 + 0.6 * seeds + curve)
    packages = contestant.package, *contestant.also, "optuna"
    return Cell(
        name, settings, work, guess, packages, (contestant.module, "optuna"), _seeds(learner, seeds), one.missing
    )


def _seeds(learner: str | None, n: int) -> dict[str, Any]:
    """Trials have the first of the trainings' seeds; a seed of a training is also that of its order of rows."""
    if learner is None:
        return {"split": SPLIT_SEED, "order of the grid": GRID_SEED, "trainings": [0]}
    return {"split": SPLIT_SEED, "validation": VALIDATION_SEED, "study": STUDY_SEED, "trainings": list(range(n))}
