"""XGBoost, LightGBM and CatBoost. Each reads compressed sparse rows as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.accuracy.wide.base import Settings, Watch
from benchmarks.accuracy.wide.sets import Rows
from benchmarks.accuracy.wide.trees import xgboost_objective
from benchmarks.paper.accuracy.base import Answer, Learner, Task, r2

METRICS: dict[str, dict[str, tuple[str, Callable[[float, Any], float]]]] = {
    "xgboost": {
        "auc": ("auc", lambda auc, y: auc),
        "accuracy": ("merror", lambda error, y: 1.0 - error),
        "r2": ("rmse", lambda root, y: r2(root**2, y)),
    },
    "lightgbm": {
        "auc": ("auc", lambda auc, y: auc),
        "accuracy": ("multi_error", lambda error, y: 1.0 - error),
        "r2": ("l2", r2),
    },
    "catboost": {
        "auc": ("AUC", lambda auc, y: auc),
        "accuracy": ("Accuracy", lambda accuracy, y: accuracy),
        "r2": ("RMSE", lambda root, y: r2(root**2, y)),
    },
}
"""How each calls the metric that it watches, and what makes the metric of the task out of its value and y."""


class XGBoost(Learner):
    name, title, module, package, also = "xgboost", "XGBoost", "xgboost", "xgboost", ("xgboost-cpu",)

    def __init__(self) -> None:
        self._kept: list[tuple[Rows, Any]] = []

    def nearest(self, task: Task) -> Settings:
        return {
            "max_depth": 6,
            "learning_rate": 0.3,
            "reg_lambda": 1.0,
            "min_child_weight": 1.0,
            "colsample_bytree": 1.0,
        }

    def space(self, trial: Any, task: Task) -> Settings:
        return {
            "max_depth": trial.suggest_int("max_depth", 2, 12),
            "learning_rate": trial.suggest_float("learning_rate", 0.02, 1.0, log=True),
            "reg_lambda": trial.suggest_float("reg_lambda", 0.01, 100.0, log=True),
            "min_child_weight": trial.suggest_float("min_child_weight", 0.01, 20.0, log=True),
            "colsample_bytree": trial.suggest_float("colsample_bytree", 0.2, 1.0),
        }

    def fixed(self, sparse: bool) -> Settings:
        return {"tree_method": "hist"}

    def train(
        self, task: Task, settings: Settings, rows: Rows, rounds: int, seed: int, watch: Watch, judging: Rows | None
    ) -> tuple[Answer, Settings]:
        """By xgboost.train, whose rows of a DMatrix are predicted as they are. What XGBClassifier makes of judging rows
        has a place for every feature in every row: on wide rows that is most of a round's time."""
        from xgboost import DMatrix, train
        from xgboost.callback import TrainingCallback

        if judging is None:
            self._kept = []  # trials are over, and a refit has all rows
        watched, score = METRICS[self.name][task.metric]
        told = {**self.fixed(task.sparse), **xgboost_objective(task.n_classes), "eval_metric": watched, **settings}

        class Told(TrainingCallback):
            def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
                return watch.add(score(evals_log["judging"][watched][-1], judging[1]) if judging else 0.0)

        model = train(
            {**told, "nthread": task.threads, "seed": seed},
            self._matrix(rows, task.threads, keep=judging is not None),
            rounds,
            evals=[(self._matrix(judging, task.threads, keep=True), "judging")] if judging else [],
            callbacks=[Told()],
            verbose_eval=False,
        )

        def answer(X: Any) -> Any:
            found = model.predict(DMatrix(X, nthread=task.threads))
            return found.argmax(axis=1) if task.metric == "accuracy" else found

        return answer, settings

    def _matrix(self, rows: Rows, threads: int, keep: bool) -> Any:
        """Trials have the same rows: as Optuna's users do, they share a matrix, and with it the bins."""
        from xgboost import DMatrix

        found = next((matrix for kept, matrix in self._kept if kept is rows), None)
        if found is None:
            found = DMatrix(*rows, nthread=threads)
            if keep:
                self._kept = [*self._kept[-1:], (rows, found)]
        return found


class LightGBM(Learner):
    """With its defaults it diverges where many classes are rare; a child's least curvature is in the space for that."""

    name, title, module, package = "lightgbm", "LightGBM", "lightgbm", "lightgbm"

    def nearest(self, task: Task) -> Settings:
        return {
            "num_leaves": 31,
            "learning_rate": 0.1,
            "reg_lambda": 1e-3,
            "min_child_samples": 20,
            "min_child_weight": 1e-3,
            "colsample_bytree": 1.0,
        }

    def space(self, trial: Any, task: Task) -> Settings:
        return {
            "num_leaves": trial.suggest_int("num_leaves", 4, 512, log=True),
            "learning_rate": trial.suggest_float("learning_rate", 0.01, 0.5, log=True),
            "reg_lambda": trial.suggest_float("reg_lambda", 1e-3, 100.0, log=True),
            "min_child_samples": trial.suggest_int("min_child_samples", 1, 100, log=True),
            "min_child_weight": trial.suggest_float("min_child_weight", 1e-3, 10.0, log=True),
            "colsample_bytree": trial.suggest_float("colsample_bytree", 0.2, 1.0),
        }

    def fixed(self, sparse: bool) -> Settings:
        """What it finds out by itself on sparse rows, in several seconds that it says can be spared."""
        return {"force_row_wise": True} if sparse else {}

    def train(
        self, task: Task, settings: Settings, rows: Rows, rounds: int, seed: int, watch: Watch, judging: Rows | None
    ) -> tuple[Answer, Settings]:
        from lightgbm import LGBMClassifier, LGBMRegressor
        from lightgbm.callback import EarlyStopException

        watched, score = METRICS[self.name][task.metric]

        def told(env: Any) -> None:
            values = env.evaluation_result_list
            if watch.add(score(values[0][2], judging[1]) if judging else 0.0):
                raise EarlyStopException(env.iteration, values)

        model = (LGBMRegressor if task.regression else LGBMClassifier)(
            n_estimators=rounds, n_jobs=task.threads, random_state=seed, metric=watched, verbose=-1,
            **self.fixed(task.sparse), **settings,
        )  # fmt: skip
        model.fit(*rows, eval_set=[judging] if judging else None, callbacks=[told])
        return _answer(task, model), settings


class CatBoost(Learner):
    name, title, module, package = "catboost", "CatBoost", "catboost", "catboost"

    def nearest(self, task: Task) -> Settings:
        return {"depth": 6, "learning_rate": 0.1, "l2_leaf_reg": 3.0, "random_strength": 1.0, "rsm": 1.0}

    def space(self, trial: Any, task: Task) -> Settings:
        return {
            "depth": trial.suggest_int("depth", 2, 10),
            "learning_rate": trial.suggest_float("learning_rate", 0.02, 1.0, log=True),
            "l2_leaf_reg": trial.suggest_float("l2_leaf_reg", 0.1, 100.0, log=True),
            "random_strength": trial.suggest_float("random_strength", 0.1, 10.0, log=True),
            "rsm": trial.suggest_float("rsm", 0.2, 1.0),  # columns of a split, as colsample of the others
        }

    def train(
        self, task: Task, settings: Settings, rows: Rows, rounds: int, seed: int, watch: Watch, judging: Rows | None
    ) -> tuple[Answer, Settings]:
        from catboost import CatBoostClassifier, CatBoostRegressor

        watched, score = METRICS[self.name][task.metric]

        class Told:
            def after_iteration(self, info: Any) -> bool:
                # True goes on
                return not watch.add(score(info.metrics["validation"][watched][-1], judging[1]) if judging else 0.0)

        model = (CatBoostRegressor if task.regression else CatBoostClassifier)(
            n_estimators=rounds, thread_count=task.threads, random_seed=seed, eval_metric=watched,
            use_best_model=False, verbose=False, allow_writing_files=False, **settings,
        )  # fmt: skip
        model.fit(*rows, eval_set=judging, callbacks=[Told()])
        # Its own learning rate depends on the number of rounds it is told: the one it had is kept.
        return _answer(task, model), {**settings, "learning_rate": float(model.learning_rate_)}


def _answer(task: Task, model: Any) -> Answer:
    if task.ranks:
        return lambda X: model.predict_proba(X)[:, 1]
    return lambda X: model.predict(X).ravel()  # CatBoost gives several classes as a column
