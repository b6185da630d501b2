"""A linear model of scikit-learn: logistic regression, or ridge regression.

L-BFGS takes its steps in rounds of ten, each from where the last one ended, so that it looks at the clock and at
validation rows as boosters do.
"""

from __future__ import annotations

from typing import Any

from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from benchmarks.accuracy.wide.base import Settings, Watch
from benchmarks.accuracy.wide.linear import Scale
from benchmarks.accuracy.wide.sets import Rows
from benchmarks.paper.accuracy.base import Answer, Learner, Task
from benchmarks.paper.accuracy.judging import judge

STEPS = 10


class Linear(Learner):
    """Dense columns are standardised; sparse ones are as they are or divided by their largest, words also tf-idf."""

    name, title, module, package, booster = "linear", "linear", "sklearn", "scikit-learn", False

    def nearest(self, task: Task) -> Settings:
        return {"C": 1.0, **({"scale": "raw"} if task.sparse else {})}

    def space(self, trial: Any, task: Task) -> Settings:
        found: Settings = {"C": trial.suggest_float("C", 1e-3, 1e3, log=True)}
        if task.sparse:
            scales = ["raw", "log", "tfidf"] if task.words else ["raw", "max_abs"]
            found["scale"] = trial.suggest_categorical("scale", scales)
        return found

    def train(
        self, task: Task, settings: Settings, rows: Rows, rounds: int, seed: int, watch: Watch, judging: Rows | None
    ) -> tuple[Answer, Settings]:
        scale = scaling(settings.get("scale", "raw" if task.sparse else "standard"), rows[0])
        X, y, C = scale(rows[0]), rows[1], settings.get("C", 1.0)
        held = None if judging is None else (scale(judging[0]), judging[1])
        one_go = task.regression
        model = Ridge(1.0 / C) if one_go else LogisticRegression(C=C, max_iter=STEPS, warm_start=True)
        for _ in range(1 if one_go else rounds):
            model.fit(X, y)
            score = judge(task.metric, held[1], _answer(task, model, held[0])).score if held is not None else 0.0
            if watch.add(score) or one_go or model.n_iter_.max() < STEPS:
                break
        return (lambda X: _answer(task, model, scale(X))), settings


def scaling(kind: str, X: Any) -> Any:
    """A function of rows."""
    if kind == "standard":
        return StandardScaler().fit(X).transform
    return MaxAbsScaler().fit(X).transform if kind == "max_abs" else Scale(kind, X)


def _answer(task: Task, model: Any, X: Any) -> Any:
    return model.decision_function(X) if task.ranks else model.predict(X)
