"""Seconds of training until the validation score that LightGBM's best round has.

A fifth of the training rows judges. LightGBM trains with its defaults until it has not improved for 20 rounds; gbun has
one setting for each set, written down here, XGBoost its defaults. Rounds take turns, the one that has used the least
time goes next, and scoring is not counted. Whoever has not reached LightGBM's best score by the cap is said not to
have, with the score it came to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.speed import contestants
from benchmarks.speed.children import PEERS, Worker, together
from benchmarks.speed.contestants import Problem
from benchmarks.speed.data import KDD12_ROWS, clicks
from benchmarks.speed.options import Options
from benchmarks.speed.picture import bars
from benchmarks.speed.report import Row
from benchmarks.speed.timing import Failed, ratio

LIGHTGBM, XGBOOST, GBUN = "LightGBM", "XGBoost", "gbun"
LIGHTGBM_ROUNDS, PATIENCE, OTHERS_ROUNDS = 200, 20, 2000
CAP = 45.0  # seconds of training, for each

TEXT = {"n_neurons": 512, "learning_rate": 0.3, "reg_lambda": 1e-3}
SETTINGS: dict[str, dict[str, Any]] = {
    "book_crossing": {"n_neurons": 256, "temperature": 2.0, "learning_rate": 0.3},
    "imdb": {**TEXT, "temperature": 0.5, "learning_rate": 0.5},
    "news20_multi": {**TEXT, "temperature": 0.25},
    "rcv1_binary": {**TEXT, "temperature": 0.5},
    "KDD12.sub": {"n_neurons": 256, "learning_rate": 0.3},  # where there is no folder of data
}
SETS = ("book_crossing", "imdb", "news20_multi", "rcv1_binary")
UNIT_ROWS = ("imdb", "rcv1_binary")  # gbun gets rows of length 1; the peers get them as they are
SEVERAL_CLASSES = ("news20_multi",)


@dataclass
class Curve:
    """How the score of a learner rose, round by round, with the seconds of training so far."""

    seconds: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    note: str = ""

    def add(self, seconds: float, score: float) -> None:
        self.seconds.append(self.spent + seconds)
        self.scores.append(score)

    @property
    def spent(self) -> float:
        return self.seconds[-1] if self.seconds else 0.0

    @property
    def best(self) -> float | None:
        return max(self.scores, default=None)

    def reached(self, score: float) -> float | None:
        """The seconds after which it had this score."""
        return next((s for s, own in zip(self.seconds, self.scores, strict=True) if own >= score), None)

    def best_within(self, seconds: float) -> float | None:
        return max((own for s, own in zip(self.seconds, self.scores, strict=True) if s <= seconds), default=None)


def run(options: Options) -> list[Row]:
    return [row for problem in problems(options) for row in contest(problem, options)]


def problems(options: Options) -> list[Problem]:
    if options.data is None:
        return [Problem("KDD12.sub", clicks(options.rows(KDD12_ROWS)).load, "auc", settings("KDD12.sub", options))]
    return [
        Problem(
            name,
            partial(contestants.read, options.data, name),
            "accuracy" if name in SEVERAL_CLASSES else "auc",
            settings(name, options),
            unit_rows=name in UNIT_ROWS,
            thin=options.quick,
        )
        for name in options.sets or options.pick(SETS, SETS[-2:])
    ]


def settings(name: str, options: Options) -> dict[str, Any]:
    return {**SETTINGS[name], **({"n_neurons": 64} if options.quick else {})}


def contest(problem: Problem, options: Options) -> list[Row]:
    starters: dict[str, Callable[[], Worker]] = {
        GBUN: partial(Worker, contestants.gbun, problem, options.threads),
        LIGHTGBM: partial(Worker, contestants.lightgbm, problem, options.threads, limits=PEERS),
        XGBOOST: partial(Worker, contestants.xgboost, problem, options.threads, limits=PEERS),
    }
    with together(starters) as (workers, failed):
        curves = race(workers, options.pick(CAP, 1.0))
    curves |= {name: Curve(note=note) for name, note in failed.items()}
    theirs = curves[LIGHTGBM]
    goal = theirs.best
    since = None if goal is None else theirs.reached(goal)
    rows = []
    for name, curve in curves.items():
        setup = workers[name].facts["setup"] if name in workers else None
        seconds = None if goal is None else curve.reached(goal)
        rows.append(
            {
                "table": "target: seconds of training until LightGBM's best validation score",
                "data": problem.name,
                "learner": name,
                "metric": problem.metric,
                "to reach": goal,
                "setup": setup,
                "seconds": seconds,
                "with setup": None if seconds is None else seconds + setup,
                "of LightGBM's": ratio(seconds, since),
                "rounds": len(curve.scores),
                "best score": curve.best,
                "in LightGBM's time": None if since is None else curve.best_within(since),
                "note": curve.note or verdict(curve, goal),
                "settings": str(problem.settings) if name == GBUN else "",
            }
        )
    return rows


def verdict(curve: Curve, goal: float | None) -> str:
    if goal is None:
        return "LightGBM has no score"
    return "" if curve.reached(goal) is not None else f"not reached in {curve.spent:.0f} s"


def race(workers: Mapping[str, Worker], cap: float) -> dict[str, Curve]:
    """A round of whoever has used the least time, until LightGBM is done and the others have its score or no time."""
    curves = {name: Curve() for name in workers}
    running = set(workers)
    while running:
        name = min(sorted(running), key=lambda n: curves[n].spent)
        curve = curves[name]
        try:
            seconds, _ = workers[name].ask("round")
            curve.add(seconds, workers[name].ask("score")[1])
        except Failed as failure:
            curve.note = str(failure)
            running.remove(name)
        goal = curves[LIGHTGBM].best if LIGHTGBM in curves and LIGHTGBM not in running else None
        running -= {n for n in running if finished(n, curves[n], goal, cap)}
    return curves


def finished(name: str, curve: Curve, goal: float | None, cap: float) -> bool:
    if curve.spent > cap:
        return True
    if name != LIGHTGBM:
        return len(curve.scores) >= OTHERS_ROUNDS or (goal is not None and curve.reached(goal) is not None)
    since_best = len(curve.scores) - 1 - curve.scores.index(max(curve.scores)) if curve.scores else 0
    return len(curve.scores) >= LIGHTGBM_ROUNDS or since_best >= PATIENCE


def draw(ax: Any, rows: list[Row]) -> None:
    names = [f"{row['data']}: {row['learner']}" for row in rows]
    words = [row["note"] or f"{row['seconds']:.2f} s" for row in rows]
    bars(ax, names, [row["seconds"] or 0.0 for row in rows], words, [row["learner"] for row in rows])
    ax.set_title("target: seconds of training until LightGBM's best validation score")
