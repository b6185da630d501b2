"""gbun, LightGBM, XGBoost and CatBoost. Each reads compressed sparse rows as they are."""

from __future__ import annotations

from typing import Any

from benchmarks.peers.base import MOST_ROUNDS, Learner, Predict, Rows, Run, Settings, Task, Watch, predictor, score_of
from gbun.callbacks import Callback


class Report(Callback):
    """Give the watch the score of the start and of each round."""

    def __init__(self, watch: Watch, metric: str | None) -> None:
        self.watch, self.metric, self.enough = watch, metric, False

    def after_start(self, training: Any, report: Any) -> None:
        self.enough = self.watch.add(self._score(report))

    def after_round(self, training: Any, report: Any) -> bool:
        return self.watch.add(self._score(report)) or self.enough

    def _score(self, report: Any) -> float:
        return float(report.evaluations["eval_0"][self.metric]) if self.metric else 0.0


class Gbun(Learner):
    """Its linear start is what "auto" makes of the data."""

    name, title, kind, module, first_round = "gbun", "gbun", "ours", "gbun", 0
    packages, reads_tokens = ("gbun", "numpy", "scipy", "numba"), True

    def train(self, task: Task, settings: Settings, rows: Rows, run: Run) -> tuple[Predict, Settings]:
        given = {"n_estimators": run.rounds, **settings, **run.seed_as("random_state")}
        return predictor(task, self._fit_watched(task, given, rows, run.watch, run.valid)), settings

    def choose(self, task: Task, settings: Settings, fit: Rows, valid: Rows, watch: Watch) -> tuple[float, Settings]:
        """Patience is left to gbun, which then keeps the best round."""
        clock = Watch(MOST_ROUNDS, watch.most_seconds)
        given = {"n_estimators": MOST_ROUNDS, "early_stopping_rounds": watch.patience, **settings}
        model = self._fit_watched(task, given, fit, clock, valid)
        return clock.best_score, {**settings, "n_estimators": model.n_estimators_}

    def _fit_watched(self, task: Task, settings: Settings, rows: Rows, watch: Watch, valid: Rows | None) -> Any:
        metric = None if valid is None else task.metric
        model = self.estimator(task, {"eval_metric": metric, **settings})
        return model.fit(*rows, eval_set=valid, callbacks=[Report(watch, metric)])

    def estimator(self, task: Task, settings: Settings) -> Any:
        from gbun import GBUNClassifier, GBUNRegressor

        memory = {} if task.memory_budget is None else {"memory_budget": task.memory_budget}
        estimator = GBUNRegressor if task.regression else GBUNClassifier
        return estimator(n_jobs=task.threads, **memory, **settings)


class LightGBM(Learner):
    name, title, kind, module, packages = "lightgbm", "LightGBM", "trees", "lightgbm", ("lightgbm",)

    def train(self, task: Task, settings: Settings, rows: Rows, run: Run) -> tuple[Predict, Settings]:
        from lightgbm.callback import EarlyStopException

        error = "binary_error" if task.n_classes == 2 else "multi_error"
        watched = {"auc": "auc", "r2": "l2"}.get(task.metric, error)

        def report(env: Any) -> None:
            value = env.evaluation_result_list[0][2] if run.valid else 0.0
            if run.watch.add(score_of(task, watched, value, run.valid)):
                raise EarlyStopException(env.iteration, env.evaluation_result_list)

        given = {"n_estimators": run.rounds, "metric": watched, **run.seed_as("random_state"), **task.fixed, **settings}
        model = self.estimator(task, given)
        model.fit(*rows, eval_set=[run.valid] if run.valid else None, callbacks=[report])
        return predictor(task, model), settings

    def estimator(self, task: Task, settings: Settings) -> Any:
        from lightgbm import LGBMClassifier, LGBMRegressor

        estimator = LGBMRegressor if task.regression else LGBMClassifier
        return estimator(verbose=-1, n_jobs=task.threads, **settings)


class XGBoost(Learner):
    name, title, kind, module = "xgboost", "XGBoost", "trees", "xgboost"
    packages = ("xgboost", "xgboost-cpu")

    def __init__(self) -> None:
        self._matrices: list[tuple[Rows, Any]] = []

    def estimator(self, task: Task, settings: Settings) -> Any:
        from xgboost import XGBClassifier

        return XGBClassifier(tree_method="hist", n_jobs=task.threads, **settings)

    def train(self, task: Task, settings: Settings, rows: Rows, run: Run) -> tuple[Predict, Settings]:
        """By xgboost.train with a DMatrix: XGBClassifier gives every validation row a place for every feature, and on
        wide rows reading those takes most of a round's time."""
        from xgboost import DMatrix, train
        from xgboost.callback import TrainingCallback

        if run.valid is None:
            self._matrices = []  # the trials are over, and a refit has all rows
        error = "error" if task.n_classes == 2 else "merror"
        watched = {"auc": "auc", "r2": "rmse"}.get(task.metric, error)
        objective = {0: {"objective": "reg:squarederror"}, 2: {"objective": "binary:logistic"}}.get(
            task.n_classes, {"objective": "multi:softprob", "num_class": task.n_classes}
        )
        given = {"tree_method": "hist", **objective, "eval_metric": watched, "nthread": task.threads, **settings}

        class Reporting(TrainingCallback):
            def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
                value = evals_log["valid"][watched][-1] if run.valid else 0.0
                return run.watch.add(score_of(task, watched, value, run.valid))

        model = train(
            {**given, **run.seed_as("seed")},
            self._matrix(rows, task.threads, keep=run.valid is not None),
            run.rounds,
            evals=[(self._matrix(run.valid, task.threads, keep=True), "valid")] if run.valid else [],
            callbacks=[Reporting()],
            verbose_eval=False,
        )

        def predict(X: Any) -> Any:
            values = model.predict(DMatrix(X, nthread=task.threads))
            return values.argmax(axis=1) if task.metric == "accuracy" else values

        return predict, settings

    def _matrix(self, rows: Rows, threads: int, keep: bool) -> Any:
        """Trials have the same rows: as Optuna's users do, they share a matrix, and with it the bins."""
        from xgboost import DMatrix

        matrix = next((matrix for known, matrix in self._matrices if known is rows), None)
        if matrix is None:
            matrix = DMatrix(*rows, nthread=threads)
            if keep:
                self._matrices = [*self._matrices[-1:], (rows, matrix)]
        return matrix


class CatBoost(Learner):
    name, title, kind, module, packages = "catboost", "CatBoost", "trees", "catboost", ("catboost",)

    def train(self, task: Task, settings: Settings, rows: Rows, run: Run) -> tuple[Predict, Settings]:
        watched = {"auc": "AUC", "accuracy": "Accuracy", "r2": "RMSE"}[task.metric]

        class Reporting:
            def after_iteration(self, info: Any) -> bool:
                value = info.metrics["validation"][watched][-1] if run.valid else 0.0
                return not run.watch.add(score_of(task, watched, value, run.valid))  # True goes on

        given = {"n_estimators": run.rounds, "eval_metric": watched, "use_best_model": False, **settings}
        model = self.estimator(task, {**given, **run.seed_as("random_seed")})
        model.fit(*rows, eval_set=run.valid, callbacks=[Reporting()])
        # Its default learning rate depends on the number of rounds it is given: the one it had is kept.
        return predictor(task, model), {**settings, "learning_rate": float(model.learning_rate_)}

    def estimator(self, task: Task, settings: Settings) -> Any:
        from catboost import CatBoostClassifier, CatBoostRegressor

        estimator = CatBoostRegressor if task.regression else CatBoostClassifier
        return estimator(verbose=False, allow_writing_files=False, thread_count=task.threads, **settings)
