"""The cells of the experiment: each learner tuned on each set, and gbun by the paper's protocol on each of the ten."""

from __future__ import annotations

import argparse
from functools import partial

from benchmarks.paper.accuracy.learners import LEARNERS
from benchmarks.paper.accuracy.protocol import papers_protocol
from benchmarks.paper.accuracy.sets import PaperSet, sets_of
from benchmarks.paper.accuracy.tuning import MEMORY, Tuning, tuned
from benchmarks.paper.cells import Cell
from benchmarks.paper.experiment import Plan

QUICK_BUDGET, QUICK_SEEDS = 0.5, 2
QUICK_LEARNERS = {"clicks": ("gbun",), "friedman": ("gbun", "lightgbm")}  # on other sets all of them
PROTOCOL = "paper's protocol"
CURVES_OF = ("letter", "news20_multi", "rcv1_binary", "aloi", "book_crossing", "classes")
CURVES_BY = ("gbun", "xgboost", "lightgbm")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sets", help="some of the sets, such as letter,a9a; all that the folder has by default")
    parser.add_argument("--learners", help=f"some of {','.join(LEARNERS)}")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of tuning for each learner")
    parser.add_argument("--tabular-budget", type=float, default=10.0, help="the same for tabular sets")
    parser.add_argument("--seeds", type=int, default=3, help="trainings that are judged on test rows")


def cells(plan: Plan) -> list[Cell]:
    given, known = plan.given, sets_of(plan.data)
    chosen = [known[name] for name in _named("--sets", given.sets, list(known))]
    learners = _named("--learners", given.learners, list(LEARNERS))
    for name in ("budget", "tabular_budget", "seeds"):
        if getattr(given, name) <= 0:
            raise SystemExit(f"--{name.replace('_', '-')} must be positive, got {getattr(given, name)}")
    found = []
    for one in chosen:
        few = QUICK_LEARNERS.get(one.name) if plan.quick and not given.learners else None
        found += [_tuned(plan, one, learner) for learner in (few or learners)]
        if not one.tabular and not few and "gbun" in learners:
            found.append(_protocol(plan, one))
    return found


def _named(option: str, text: str | None, known: list[str]) -> list[str]:
    names = text.split(",") if text else known
    if missing := [name for name in names if name not in known]:
        raise SystemExit(f"{option} must be some of {','.join(known)}, got {','.join(missing)}")
    return names


def _budget(plan: Plan, one: PaperSet) -> float:
    if plan.quick:
        return QUICK_BUDGET
    return float(plan.given.tabular_budget if one.tabular else plan.given.budget * one.budgets)


def _tuned(plan: Plan, one: PaperSet, learner: str) -> Cell:
    budget, seeds = _budget(plan, one), QUICK_SEEDS if plan.quick else plan.given.seeds
    curve = one.name in CURVES_OF and learner in CURVES_BY
    settings = {
        **_settings(plan, one, budget),
        "learner": learner,
        "seeds": seeds,
        "curve": curve,
        "installed": LEARNERS[learner].installed,
    }
    work = partial(tuned, Tuning(one.name, learner, plan.data, budget, seeds, plan.threads, curve))
    return Cell(f"{one.name} / {learner}", settings, work, budget * (1.0 + 0.6 * seeds + curve) + 5.0)


def _protocol(plan: Plan, one: PaperSet) -> Cell:
    budget = _budget(plan, one)
    work = partial(papers_protocol, one.name, plan.data, budget, plan.threads)
    return Cell(f"{one.name} / {PROTOCOL}", _settings(plan, one, budget), work, budget + 5.0)


def _settings(plan: Plan, one: PaperSet, budget: float) -> dict[str, object]:
    return {
        "data": one.name,
        "tabular": one.tabular,
        "source": one.source,
        "budget": budget,
        "threads": plan.threads,
        "memory": MEMORY,
    }
