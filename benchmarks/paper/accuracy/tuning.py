"""A learner tuned on a set: an Optuna study of so many seconds, then the best of it judged on test rows.

The study is here, its trials are trained in a child process. A trial that dies there costs its seconds and a new
process. Optuna: pip install optuna.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from time import perf_counter
from typing import Any

from benchmarks.accuracy.wide.base import Settings
from benchmarks.paper.accuracy.answers import Answers
from benchmarks.paper.accuracy.base import MOST_ROUNDS, PATIENCE
from benchmarks.paper.accuracy.figures import ROUNDS
from benchmarks.paper.accuracy.learners import LEARNERS
from benchmarks.paper.accuracy.work import bench, request
from benchmarks.paper.experiment import A_JOB
from benchmarks.speed.children import Limits, Worker
from benchmarks.speed.timing import Failed

MEMORY = A_JOB
START = 300.0  # seconds to read rows and to warm up; in nobody's budget
MOST_OF_BUDGET = 0.5  # that a trial may take, so that there are at least two
GRACE, LEAST_GRACE = 0.5, 5.0  # of the budget, and seconds: a round that is under way when time is up may end
REFIT = 2.0  # budgets that a refit may take; then it is what it is after that round
LAST_ROUND = 60.0  # seconds, beside as much again as the refit had, for its last round and the test rows
MOST_FAILURES = 3  # one after the other: then there are no more trials
STUDY_SEED = 0
RULES = {
    "memory": MEMORY,
    "patience": PATIENCE,
    "most rounds": MOST_ROUNDS,
    "most of budget": MOST_OF_BUDGET,
    "grace": [GRACE, LEAST_GRACE],
    "refit": [REFIT, LAST_ROUND],
    "most failures": MOST_FAILURES,
    "rounds of a curve": ROUNDS,
}
"""What figures depend on, the same for everyone."""


@dataclass(frozen=True)
class Tuning:
    """Everyone has the same `budget`, in seconds of trials; `curve` asks for a curve of convergence too."""

    set_name: str
    learner_name: str
    folder: Path | None
    budget: float
    seeds: int
    threads: int
    curve: bool

    def start(self) -> Worker:
        return Worker(bench, self.set_name, self.folder, self.learner_name, self.threads, limits=Limits(MEMORY, START))


def tuned(tuning: Tuning) -> dict[str, Any]:
    """What the best settings are worth on test rows, and how they were found."""
    search = Search(tuning)
    try:
        search.run()
        best = search.best()
        found = {**_told(search.facts), **_of(best), "trials": len(search.trials), "tuning": sum(search.seconds)}
        search.worker = search.worker or tuning.start()
        found |= {"failures": search.failures, **_refitted(search.worker, best, tuning)}
        if tuning.curve and not found["note"]:
            found |= _curve(search.worker, best, tuning, search.facts["metric"])
        return found
    finally:
        search.close()


class Search:
    """Trials until the budget is spent. The first has the learner's own defaults."""

    def __init__(self, tuning: Tuning) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.tuning, self.learner = tuning, LEARNERS[tuning.learner_name]
        sampler = optuna.samplers.TPESampler(seed=STUDY_SEED, n_startup_trials=6)
        self.study = optuna.create_study(direction="maximize", sampler=sampler)
        self.failed_state = optuna.trial.TrialState.FAIL
        self.trials: list[dict[str, Any]] = []
        self.failures: list[dict[str, Any]] = []
        self.in_a_row = 0
        self.seconds: list[float] = []
        self.facts: dict[str, Any] = {}
        self.worker: Worker | None = None

    def run(self) -> None:
        """To the end of the budget; who fails again and again, or cannot be started once more, has what it has."""
        left = self.tuning.budget
        while left > 0 and self.in_a_row < MOST_FAILURES:
            if self.worker is None:
                try:
                    self.worker = self.tuning.start()
                except Failed as failure:
                    if not self.trials:
                        raise
                    self.failures.append({"settings": {}, "why": f"no new process: {failure}"})
                    return
                self.facts = self.worker.facts
            self._trial(self.worker, left)
            left = self.tuning.budget - sum(self.seconds)

    def _trial(self, worker: Worker, left: float) -> None:
        first, task = not self.seconds, self.facts["task"]
        if first:
            self.study.enqueue_trial(self.learner.nearest(task))
        trial = self.study.ask()
        suggested = self.learner.space(trial, task)
        settings = {} if first else suggested  # the study is told the point of its space next to the defaults
        within = min(left, MOST_OF_BUDGET * self.tuning.budget)
        began = perf_counter()
        try:
            asked = request("attempt", settings=settings, seconds=within)
            _, answer = worker.ask(asked, within + max(GRACE * self.tuning.budget, LEAST_GRACE))
        except Failed as failure:
            self.study.tell(trial, state=self.failed_state)
            self.failures.append({"settings": settings, "why": str(failure)})
            self.in_a_row += 1
            self.close()
        else:
            self.in_a_row = 0
            self.study.tell(trial, answer["score"])
            self.trials.append(answer)
        self.seconds.append(perf_counter() - began)

    def best(self) -> dict[str, Any]:
        """Of equals the first."""
        if not self.trials:
            tried = f"none of {len(self.failures)} trial(s) ended in {self.tuning.budget:g} s"
            raise Failed(f"{tried}: {self.failures[0]['why']}")
        return max(self.trials, key=lambda trial: float(trial["score"]))

    def close(self) -> None:
        if self.worker is not None:
            self.worker.close()
        self.worker = None


def _told(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name != "task"}


def _of(best: dict[str, Any]) -> dict[str, Any]:
    return {"validation": best["score"], "settings": best["settings"], "rounds": best["rounds"]}


def _refitted(worker: Worker, best: dict[str, Any], tuning: Tuning) -> dict[str, Any]:
    """The best settings on all training rows; where one of the seeds fails, those that ended before it stand."""
    refits, rows, note, most = [], [], "", REFIT * tuning.budget
    groups = worker.ask(request("groups"))[1]
    for seed in range(tuning.seeds):
        asked = request("refit", settings=best["settings"], rounds=best["rounds"], seed=seed, seconds=most)
        try:
            seconds, answer = worker.ask(asked, 2 * most + LAST_ROUND)
        except Failed as failure:
            note = f"training on all rows, {seed} of {tuning.seeds} seeds ended: {failure}"
            break
        rows.append(answer.pop("contributions"))
        refits.append({**answer, "seconds": seconds})
    if not refits:
        raise Failed(note)
    scores = [one["score"] for one in refits]
    return {
        "mean": fmean(scores),
        "deviation": stdev(scores) if len(scores) > 1 else 0.0,
        "papers": fmean(one["papers"] for one in refits),
        "refitting": sum(one["seconds"] for one in refits),
        "refits": refits,
        "answers": Answers.of(rows, groups).to_json(),
        "note": note,
    }


def _curve(worker: Worker, best: dict[str, Any], tuning: Tuning, metric: str) -> dict[str, Any]:
    """As many rounds as the paper's figure has, or as the budget has time for; without it the scores stand."""
    settings: Settings = best["settings"]
    asked = request("curve", settings=settings, rounds=ROUNDS, seconds=tuning.budget, metric=metric)
    try:
        return {"curve": worker.ask(asked, 2 * tuning.budget + LAST_ROUND)[1]}
    except Failed as failure:
        return {"note": f"no curve: {failure}"}
