"""gbun: as it comes, tuned, and watched."""

from __future__ import annotations

from typing import Any

from benchmarks.accuracy.wide.base import MOST_ROUNDS, PATIENCE, Answer, Learner, Settings, Task, Watch
from benchmarks.accuracy.wide.sets import Rows
from gbun.callbacks import Callback
from gbun.config import parameter_fields


class Note(Callback):
    """Tells a watch the validation score of the start, where there is one, and of each round."""

    def __init__(self, watch: Watch, metric: str) -> None:
        self.watch, self.metric = watch, metric

    def after_start(self, training: Any, report: Any) -> bool:
        return self.watch.add(report.evaluations["eval_0"][self.metric])

    def after_round(self, training: Any, report: Any) -> bool:
        return self.watch.add(report.evaluations["eval_0"][self.metric])


class Gbun(Learner):
    name, kind, package, quick, reads_tokens = "gbun", "ours", "gbun", {"n_estimators": 2}, True

    @property
    def candidates(self) -> list[Settings]:
        return [settings for settings in super().candidates if known(settings)]

    def fit(self, task: Task, train: Rows, settings: Settings) -> Answer:
        return self.answer(task, self.model(task, settings).fit(*train))

    def choose(self, task: Task, fit: Rows, valid: Rows, settings: Settings, seconds: float) -> tuple[float, Settings]:
        watch = Watch(MOST_ROUNDS, most_seconds=seconds)  # patience is left to gbun, which then keeps the best round
        model = self.watched(task, fit, valid, {"early_stopping_rounds": PATIENCE, **settings}, watch)
        return watch.best_score, {**settings, "n_estimators": model.n_estimators_}

    def watched(self, task: Task, fit: Rows, valid: Rows, settings: Settings, watch: Watch) -> Any:
        model = self.model(task, {"n_estimators": MOST_ROUNDS, "eval_metric": task.metric, **settings})
        return model.fit(*fit, eval_set=valid, callbacks=[Note(watch, task.metric)])

    def model(self, task: Task, settings: Settings) -> Any:
        from gbun import GBUNClassifier

        return GBUNClassifier(n_jobs=task.threads, **settings)

    def answer(self, task: Task, model: Any) -> Answer:
        return (lambda X: model.predict_proba(X)[:, 1]) if task.ranks else model.predict


def known(settings: Settings) -> bool:
    """Whether this version of gbun has these parameters and takes these values."""
    admitted = {f.name: f.metadata["range"] for f in parameter_fields()}
    return all(name in admitted and admitted[name].admits(value) for name, value in settings.items())
