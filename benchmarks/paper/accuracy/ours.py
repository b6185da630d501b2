"""gbun, by its public estimators. Its linear start is what "auto" makes of the data."""

from __future__ import annotations

from typing import Any

from benchmarks.accuracy.wide.base import Settings, Watch
from benchmarks.accuracy.wide.sets import Rows
from benchmarks.paper.accuracy.base import Answer, Learner, Task
from gbun.callbacks import Callback
from gbun.defaults import DENSE_DENSITY, DENSE_GROUP, DENSE_TEMPERATURE, SPARSE_TEMPERATURE, neurons_for

MEMORY = "4GB"  # beside the data; the model does not depend on it


class Told(Callback):
    """Tells a watch of the start and of each round."""

    def __init__(self, watch: Watch, metric: str | None) -> None:
        self.watch, self.metric = watch, metric
        self.enough = False

    def after_start(self, training: Any, report: Any) -> None:
        self.enough = self.watch.add(self._score(report))

    def after_round(self, training: Any, report: Any) -> bool:
        return self.watch.add(self._score(report)) or self.enough

    def _score(self, report: Any) -> float:
        return float(report.evaluations["eval_0"][self.metric]) if self.metric else 0.0


class Gbun(Learner):
    name, title, module, package, starts = "gbun", "gbun", "gbun", "gbun", 0
    also = ("numpy", "scipy", "numba")

    def nearest(self, task: Task) -> Settings:
        return {
            "groups": neurons_for(task.n_rows) // DENSE_GROUP,
            "learning_rate": 0.1,
            "reg_lambda": 0.01,
            "temperature": SPARSE_TEMPERATURE if task.sparse else DENSE_TEMPERATURE,
            "density": 1.0 if task.sparse else DENSE_DENSITY,
        }

    def space(self, trial: Any, task: Task) -> Settings:
        return {
            "n_neurons": DENSE_GROUP * trial.suggest_int("groups", 1, 64, log=True),
            "learning_rate": trial.suggest_float("learning_rate", 0.03, 1.0, log=True),
            "reg_lambda": trial.suggest_float("reg_lambda", 1e-4, 1.0, log=True),
            "temperature": trial.suggest_float("temperature", 0.25, 8.0, log=True),
            "density": trial.suggest_float("density", 0.03, 1.0, log=True),
        }

    def train(
        self, task: Task, settings: Settings, rows: Rows, rounds: int, seed: int, watch: Watch, judging: Rows | None
    ) -> tuple[Answer, Settings]:
        from gbun import GBUNClassifier, GBUNRegressor

        told = {"n_estimators": rounds, "n_jobs": task.threads, "random_state": seed, "memory_budget": MEMORY}
        metric = None if judging is None else task.metric
        made = GBUNRegressor if task.regression else GBUNClassifier
        model = made(eval_metric=metric, **told, **settings)
        model.fit(*rows, eval_set=judging, callbacks=[Told(watch, metric)])
        return ((lambda X: model.predict_proba(X)[:, 1]) if task.ranks else model.predict), settings
