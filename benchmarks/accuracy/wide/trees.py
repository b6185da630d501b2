"""LightGBM, XGBoost and CatBoost. Each reads compressed sparse rows as they are."""

from __future__ import annotations

from typing import Any

from benchmarks.accuracy.wide.base import MOST_ROUNDS, Answer, Learner, Settings, Task, Watch
from benchmarks.accuracy.wide.sets import Rows


class LightGBM(Learner):
    name, kind, package, quick = "lightgbm", "trees", "lightgbm", {"n_estimators": 2}

    def fit(self, task: Task, train: Rows, settings: Settings) -> Answer:
        return _answer(task, self.model(task, settings).fit(*train))

    def choose(self, task: Task, fit: Rows, valid: Rows, settings: Settings, seconds: float) -> tuple[float, Settings]:
        watch = Watch(most_seconds=seconds)
        self.watched(task, fit, valid, {"n_estimators": MOST_ROUNDS, **settings}, watch)
        return watch.best_score, {**settings, "n_estimators": watch.best + 1}

    def watched(self, task: Task, fit: Rows, valid: Rows, settings: Settings, watch: Watch) -> Any:
        from lightgbm.callback import EarlyStopException

        def note(env: Any) -> None:
            value = env.evaluation_result_list[0][2]
            if watch.add(value if task.ranks else 1.0 - value):
                raise EarlyStopException(watch.best, env.evaluation_result_list)

        error = "binary_error" if task.n_classes == 2 else "multi_error"
        model = self.model(task, {"metric": "auc" if task.ranks else error, **settings})
        return model.fit(*fit, eval_set=[valid], callbacks=[note])

    def model(self, task: Task, settings: Settings) -> Any:
        from lightgbm import LGBMClassifier

        return LGBMClassifier(verbose=-1, n_jobs=task.threads, **settings)


class XGBoost(Learner):
    name, kind, package, quick = "xgboost", "trees", "xgboost-cpu", {"n_estimators": 2}

    def fit(self, task: Task, train: Rows, settings: Settings) -> Answer:
        return _answer(task, self.model(task, settings).fit(*train))

    def choose(self, task: Task, fit: Rows, valid: Rows, settings: Settings, seconds: float) -> tuple[float, Settings]:
        """By xgboost.train: XGBClassifier gives judging rows a place for every feature, which takes long to read."""
        from xgboost import DMatrix, train
        from xgboost.callback import TrainingCallback

        watch = Watch(most_seconds=seconds)
        watched = "auc" if task.ranks else "error" if task.n_classes == 2 else "merror"

        class Note(TrainingCallback):
            def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
                value = evals_log["judging"][watched][-1]
                return watch.add(value if task.ranks else 1.0 - value)

        told = {"tree_method": "hist", "nthread": task.threads, "eval_metric": watched, **settings}
        own, judging = (DMatrix(*rows, nthread=task.threads) for rows in (fit, valid))
        rounds, objective = told.pop("n_estimators", MOST_ROUNDS), xgboost_objective(task.n_classes)
        train({**objective, **told}, own, rounds, [(judging, "judging")], callbacks=[Note()], verbose_eval=False)
        return watch.best_score, {**settings, "n_estimators": watch.best + 1}

    def model(self, task: Task, settings: Settings) -> Any:
        from xgboost import XGBClassifier

        return XGBClassifier(tree_method="hist", n_jobs=task.threads, **settings)


def xgboost_objective(n_classes: int) -> Settings:
    """As its estimators choose it; 0 classes are a regression."""
    if n_classes == 0:
        return {"objective": "reg:squarederror"}
    if n_classes == 2:
        return {"objective": "binary:logistic"}
    return {"objective": "multi:softprob", "num_class": n_classes}


class CatBoost(Learner):
    name, kind, package, quick = "catboost", "trees", "catboost", {"n_estimators": 2}

    def fit(self, task: Task, train: Rows, settings: Settings) -> Answer:
        return _answer(task, self.model(task, settings).fit(*train))

    def choose(self, task: Task, fit: Rows, valid: Rows, settings: Settings, seconds: float) -> tuple[float, Settings]:
        watch, watched = Watch(most_seconds=seconds), "AUC" if task.ranks else "Accuracy"

        class Note:
            def after_iteration(self, info: Any) -> bool:
                return not watch.add(info.metrics["validation"][watched][-1])  # True goes on

        extra = {"eval_metric": watched, "use_best_model": False}
        model = self.model(task, {**extra, **settings}).fit(*fit, eval_set=valid, callbacks=[Note()])
        # Its own learning rate depends on the number of rounds it is told: the one it had is kept.
        rate = float(model.learning_rate_)
        return watch.best_score, {**settings, "learning_rate": rate, "n_estimators": watch.best + 1}

    def model(self, task: Task, settings: Settings) -> Any:
        from catboost import CatBoostClassifier

        return CatBoostClassifier(verbose=False, allow_writing_files=False, thread_count=task.threads, **settings)


def _answer(task: Task, model: Any) -> Answer:
    if task.ranks:
        return lambda X: model.predict_proba(X)[:, 1]
    return lambda X: model.predict(X).ravel()  # CatBoost gives several classes as a column
