"""A learner tuned on a set: an Optuna study of so many seconds, then the best of it judged on test rows.

The study runs here, its trials are trained in a child process: `Bench` is what happens there. A trial that dies costs
its seconds and a new process. The paper's own protocol is at the end. Optuna: pip install optuna.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from random import Random
from statistics import fmean, stdev
from time import perf_counter
from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from benchmarks.accuracy.sets import take
from benchmarks.paper.accuracy.judging import encode_rows, judge, strata
from benchmarks.paper.accuracy.sets import divide, find_sets
from benchmarks.paper.accuracy.spaces import LEARNERS, default_point, fixed_settings, suggest
from benchmarks.paper.experiment import JOB_MEMORY
from benchmarks.paper.figures import MODEL_SIZES, PENALTIES, ROUNDS, SHRINKAGES
from benchmarks.peers.base import MOST_ROUNDS, Learner, Rows, Run, Settings, Task, Watch
from benchmarks.timing import Built, Failed, Limits, Worker

Found = dict[str, Any]
PATIENCE = 30  # rounds without improvement, of every learner
GBUN_MEMORY = "4GB"  # beside the data; the model does not depend on it
MOST_POINTS = 100  # of a curve that is kept
NEVER = 10**9  # rounds of patience
START = 300.0  # seconds to read rows and to warm up; in nobody's budget
MOST_OF_BUDGET = 0.5  # that a trial may take, so that there are at least two
GRACE, LEAST_GRACE = 0.5, 5.0  # of the budget, and seconds: a running round may end when time is up
REFIT = 2.0  # budgets that a refit may take; then its model is that of the rounds so far
LAST_ROUND = 60.0  # seconds for the last round of a refit and the test rows
MOST_FAILURES = 3  # one after the other: then there are no more trials
STUDY_SEED = GRID_SEED = 0
FIRST_POINT = (256, 0.3, 0.1)  # of the paper's grid, suits most sets; the others come in a random order
RULES = {
    "memory": JOB_MEMORY,
    "patience": PATIENCE,
    "most rounds": MOST_ROUNDS,
    "most of budget": MOST_OF_BUDGET,
    "grace": [GRACE, LEAST_GRACE],
    "refit": [REFIT, LAST_ROUND],
    "most failures": MOST_FAILURES,
    "rounds of a curve": ROUNDS,
}
"""What figures depend on, the same for every learner."""


@dataclass(frozen=True)
class Bench:
    """A learner with its rows, in the child process."""

    learner: Learner
    task: Task
    train: Rows
    test: Rows

    @cached_property
    def divided(self) -> tuple[Rows, Rows]:
        return divide(self.train, self.task.metric)

    def attempt(self, settings: Settings, seconds: float) -> Found:
        """Train on four fifths, judge on one: the best score and what makes that model on all rows."""
        fit, valid = self.divided
        watch = Watch(PATIENCE, seconds)
        _, again = self.learner.train(self.task, settings, fit, Run(watch, valid, seed=0))
        return {"score": watch.best_score, "settings": again, "rounds": self.learner.rounds(watch.best)}

    def refit(self, settings: Settings, rounds: int, seed: int, seconds: float) -> Found:
        """Train on all training rows in the order of a seed, at most so many seconds; judge on the test rows."""
        order = np.random.default_rng(seed).permutation(len(self.train[1]))
        watch = Watch(NEVER, seconds)
        predict, _ = self.learner.train(self.task, settings, take(self.train, order), Run(watch, None, rounds, seed))
        metric, y = self.task.metric, self.test[1]
        found = {**judge(metric, y, predict(self.test[0])), "strata": strata(metric, y)}
        return {**found, "rounds": self.learner.rounds(len(watch.scores) - 1), "cut": watch.seconds[-1] >= seconds}

    def curve(self, settings: Settings, rounds: int, seconds: float, metric: str) -> Found:
        """The score on test rows after each round, with the seconds since training began, evaluations included."""
        watch = Watch(NEVER, seconds)
        self.learner.train(replace(self.task, metric=metric), settings, self.train, Run(watch, self.test, rounds, 0))
        kept = np.unique(np.linspace(0, len(watch.scores) - 1, MOST_POINTS).round().astype(int))
        return {
            "best": watch.best_score,
            "best round": self.learner.rounds(watch.best),
            "rounds": [self.learner.rounds(int(i)) for i in kept],
            "seconds": [round(watch.seconds[i], 4) for i in kept],
            "scores": [round(watch.scores[i], 6) for i in kept],
        }


@contextmanager
def build_bench(set_name: str, folder: Path | None, learner_name: str, threads: int) -> Iterator[Built]:
    """Reading rows, imports and compiled code are in nobody's seconds: a short training warms up."""
    dataset, learner = find_sets(folder)[set_name], LEARNERS[learner_name]
    with threadpool_limits(threads):
        train, test, metric = dataset.read()
        if sp.issparse(train[0]) != dataset.sparse:
            raise ValueError(f"rows of {set_name} must be sparse={dataset.sparse}, got {type(train[0]).__name__}")
        n_classes = 0 if dataset.regression else int(train[1].max()) + 1
        fixed = fixed_settings(learner_name, dataset.sparse)
        sizes = {"n_rows": len(train[1]), "sparse": dataset.sparse, "words": dataset.words}
        task = Task(metric, n_classes, threads, **sizes, fixed=fixed, memory_budget=GBUN_MEMORY)
        n = 4 * max(n_classes, 50)
        X = sp.random(n, 16, density=0.2, format="csr", dtype=np.float32, random_state=0)
        y = np.arange(n) % max(n_classes, 2)
        few = (X if task.sparse else X.toarray(), y.astype(float) if task.regression else y)
        learner.train(task, {}, few, Run(Watch(), few, 2, 0))
        facts = {"metric": metric, "classes": n_classes, "rows": len(train[1]), "test rows": len(test[1])}
        bench = Bench(learner, task, train, test)
        _ = bench.divided  # before the clock runs
        units = {unit.__name__: unit for unit in (bench.attempt, bench.refit, bench.curve)}
        yield units, {**facts, "features": train[0].shape[1], "task": task}


@dataclass(frozen=True)
class Tuning:
    """Every learner has the same `budget`, in seconds of trials; `curve` asks for a curve of convergence too."""

    set_name: str
    learner_name: str
    folder: Path | None
    budget: float
    seeds: int
    threads: int
    curve: bool

    def start(self) -> Worker:
        limits = Limits(JOB_MEMORY, START)
        return Worker(build_bench, self.set_name, self.folder, self.learner_name, self.threads, limits=limits)


def tune(tuning: Tuning) -> Found:
    """The score of the best settings on test rows, and how they were found."""
    with ExitStack() as ends:

        def start() -> Worker:
            worker = tuning.start()
            ends.callback(worker.close)
            return worker

        worker, trials, failures, seconds = search(tuning, start)
        worker = worker or start()
        best = max(trials, key=lambda trial: float(trial["score"]))  # of equals the first
        facts = {name: value for name, value in worker.facts.items() if name != "task"}
        found = {**facts, "validation": best["score"], "settings": best["settings"], "rounds": best["rounds"]}
        found |= {"trials": len(trials), "tuning": sum(seconds), "failures": failures}
        found |= _refit(worker, best, tuning)
        if tuning.curve and not found["note"]:  # as many rounds as the paper's figure has, or the budget has time for
            arguments = {"settings": best["settings"], "rounds": ROUNDS, "metric": facts["metric"]}
            try:
                within = 2 * tuning.budget + LAST_ROUND
                found["curve"] = worker.ask("curve", within, seconds=tuning.budget, **arguments)[1]
            except Failed as failure:
                found["note"] = f"no curve: {failure}"
        return found


def search(tuning: Tuning, start: Callable[[], Worker]) -> tuple[Worker | None, list[Found], list[Found], list[float]]:
    """Trials until the budget is spent, or until they fail again and again or no new process can be started.

    Returns the process, unless it failed last, the answers of trials, failures, and the seconds of both. The first
    trial has the learner's own defaults; the study gets the point of its space next to them.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=STUDY_SEED, n_startup_trials=6)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    worker: Worker | None = start()
    learner, budget, task = tuning.learner_name, tuning.budget, worker.facts["task"]
    study.enqueue_trial(default_point(learner, task))
    trials: list[Found] = []
    failures: list[Found] = []
    seconds: list[float] = []
    in_a_row = 0
    while (left := budget - sum(seconds)) > 0 and in_a_row < MOST_FAILURES:
        try:
            worker = worker or start()
        except Failed as failure:
            if not trials:
                raise
            failures.append({"settings": {}, "why": f"no new process: {failure}"})
            break
        trial = study.ask()
        suggested = suggest(trial, learner, task)
        settings, within = suggested if seconds else {}, min(left, MOST_OF_BUDGET * budget)
        began = perf_counter()
        try:
            grace = max(GRACE * budget, LEAST_GRACE)
            _, answer = worker.ask("attempt", within + grace, settings=settings, seconds=within)
        except Failed as failure:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            failures.append({"settings": settings, "why": str(failure)})
            in_a_row += 1
            worker.close()
            worker = None
        else:
            study.tell(trial, answer["score"])
            trials.append(answer)
            in_a_row = 0
        seconds.append(perf_counter() - began)
    if not trials:
        raise Failed(f"none of {len(failures)} trial(s) ended in {budget:g} s: {failures[0]['why']}")
    return worker, trials, failures, seconds


def _refit(worker: Worker, best: Found, tuning: Tuning) -> Found:
    """The best settings on all training rows; where one of the seeds fails, those that ended before it count."""
    refits, rows, note, most = [], [], "", REFIT * tuning.budget
    for seed in range(tuning.seeds):
        arguments = {"settings": best["settings"], "rounds": best["rounds"], "seed": seed, "seconds": most}
        try:
            seconds, answer = worker.ask("refit", 2 * most + LAST_ROUND, **arguments)
        except Failed as failure:
            note = f"training on all rows, {seed} of {tuning.seeds} seeds ended: {failure}"
            break
        rows.append(answer.pop("contributions"))
        groups = answer.pop("strata")
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
        "answers": encode_rows(rows, groups),
        "note": note,
    }


def grid() -> list[tuple[int, float, float]]:
    points = [point for point in product(MODEL_SIZES, SHRINKAGES, PENALTIES) if point != FIRST_POINT]
    return [FIRST_POINT, *Random(GRID_SEED).sample(points, len(points))]


def grid_settings(set_name: str, size: int, shrinkage: float, penalty: float) -> Settings:
    """gbun as the paper has it, but with one Hessian for all classes: one for each is 1000 Gram matrices on aloi.

    letter is dense here and sparse in the paper: there, none of the weights are zero.
    """
    fixed = {"init": "constant", "scale": "none", "temperature": 1.0, "group_size": size, "reg_form": "absolute"}
    tuned = {"n_neurons": size, "learning_rate": shrinkage, "reg_lambda": penalty}
    return {**fixed, **tuned, **({"density": 1.0} if set_name == "letter" else {})}


def follow_paper(set_name: str, folder: Path | None, budget: float, threads: int) -> Found:
    """The paper's protocol: the best test score over rounds and as much of its grid as the budget has time for.

    It is chosen on the rows it is judged by, so the figure is too good: it is for comparison with the paper's only.
    """
    tried: list[Found] = []
    left, note = budget, ""
    with Tuning(set_name, "gbun", folder, budget, 1, threads, False).start() as worker:
        metric = "macro_precision" if worker.facts["metric"] == "accuracy" else worker.facts["metric"]
        try:
            for point in grid():
                if left <= 0:
                    break
                settings, within = grid_settings(set_name, *point), min(left, MOST_OF_BUDGET * budget)
                began = perf_counter()
                arguments = {"settings": settings, "rounds": ROUNDS, "seconds": within, "metric": metric}
                _, answer = worker.ask("curve", within + GRACE * budget + LAST_ROUND, **arguments)
                left -= perf_counter() - began
                tried.append({"best": answer["best"], "round": answer["best round"], "settings": settings})
        except Failed as failure:
            if not tried:
                raise
            note = str(failure)
    return {"metric": metric, **max(tried, key=lambda one: float(one["best"])), "points": len(tried), "note": note}
