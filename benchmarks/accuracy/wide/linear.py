"""Logistic regression of scikit-learn, and what people do to counts of words before it."""

from __future__ import annotations

from typing import Any

from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize

from benchmarks.accuracy.wide.base import Answer, Learner, Settings, Task
from benchmarks.accuracy.wide.sets import Rows, WideSet

MOST_STEPS = 300  # of L-BFGS; its own default of 100 is too few for counts as they are


class Scale:
    """What is done to entries: nothing ("raw"), log(1 + x) and rows of length 1 ("log"), or tf-idf ("tfidf")."""

    def __init__(self, kind: str, X: Any) -> None:
        self.kind = kind
        # 1 + log(x) is for counts: entries that are weights already may be below 1/e
        self.tfidf = TfidfTransformer(sublinear_tf=bool(X.data.min() >= 1)).fit(X) if kind == "tfidf" else None

    def __call__(self, X: Any) -> Any:
        if self.tfidf is not None:
            return self.tfidf.transform(X)
        return normalize(X.log1p()) if self.kind == "log" else X


class Logistic(Learner):
    name, kind, package = "logistic", "linear", "scikit-learn"

    def fit(self, task: Task, train: Rows, settings: Settings) -> Answer:
        X, y = train
        scale = Scale(settings.get("scale", "raw"), X)
        model = LogisticRegression(C=settings.get("C", 1.0), max_iter=MOST_STEPS).fit(scale(X), y)
        if task.ranks:
            return lambda X: model.decision_function(scale(X))
        return lambda X: model.predict(scale(X))


class LogisticTfidf(Logistic):
    """With tf-idf from the beginning, for texts; when tuned, `logistic` chooses its scale itself."""

    name = "logistic_tfidf"

    def suits(self, wide_set: WideSet, part: str) -> bool:
        return wide_set.words and part == "defaults"

    def fit(self, task: Task, train: Rows, settings: Settings) -> Answer:
        return super().fit(task, train, {"scale": "tfidf", **settings})
