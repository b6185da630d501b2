"""gbun and its peers behind one door: fit with a watch on validation rows, refit for a number of rounds, judge."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from gbun import GBUNClassifier
from gbun.callbacks import Callback, Log, TimeBudget
from gbun.collectives import Solo
from gbun.metrics import get_metric

PEER_SETTINGS: dict[str, list[dict[str, Any]]] = {
    "lightgbm": [
        {"learning_rate": 0.1, "num_leaves": 31},
        {"learning_rate": 0.05, "num_leaves": 64},
        {"learning_rate": 0.1, "num_leaves": 128, "min_child_samples": 5},
    ],
    "xgboost": [
        {"learning_rate": 0.3, "max_depth": 6},
        {"learning_rate": 0.1, "max_depth": 6},
        {"learning_rate": 0.1, "max_depth": 10},
    ],
}


def score(metric: str, y: Any, probabilities: Any) -> float:
    """A metric by its name, on class probabilities whose columns are the sorted labels."""
    codes = np.searchsorted(np.unique(y), y).astype(float)
    response = probabilities[:, 1:] if probabilities.shape[1] == 2 else probabilities
    return get_metric(metric).evaluate(codes, np.asarray(response, dtype=float), np.ones(len(y)), Solo())


class Gbun:
    name = "gbun"

    def choose(self, settings: dict[str, Any], fit: Any, valid: Any, metric: str, patience: int, budget: float) -> Any:
        model = GBUNClassifier(eval_metric=metric, early_stopping_rounds=patience, **settings)
        callbacks: list[Callback] = [Log(every=20)] if budget == np.inf else [Log(every=20), TimeBudget(budget)]
        model.fit(*fit, eval_set=valid, callbacks=callbacks)
        return model.best_score_, model.n_estimators_

    def refit(self, settings: dict[str, Any], rounds: int, train: Any) -> Callable[[Any], Any]:
        return (
            GBUNClassifier(**{**settings, "n_estimators": rounds}).fit(*train, callbacks=[Log(every=20)]).predict_proba
        )


class LightGBM:
    name = "lightgbm"

    def choose(self, settings: dict[str, Any], fit: Any, valid: Any, metric: str, patience: int, budget: float) -> Any:
        import lightgbm

        ends = perf_counter() + budget

        def stop(env: Any) -> None:
            if perf_counter() > ends:
                raise lightgbm.callback.EarlyStopException(env.iteration, env.evaluation_result_list)

        watched = "auc" if metric == "auc" else "multi_error"
        model = lightgbm.LGBMClassifier(n_estimators=1000, verbose=-1, n_jobs=-1, metric=watched, **settings)
        model.fit(*fit, eval_set=[valid], callbacks=[lightgbm.early_stopping(patience, verbose=False), stop])
        rounds = model.best_iteration_ or model.n_iter_
        return score(metric, valid[1], model.predict_proba(valid[0], num_iteration=rounds)), rounds

    def refit(self, settings: dict[str, Any], rounds: int, train: Any) -> Callable[[Any], Any]:
        import lightgbm

        model = lightgbm.LGBMClassifier(n_estimators=rounds, verbose=-1, n_jobs=-1, **settings).fit(*train)
        return lambda X: model.predict_proba(X)


class XGBoost:
    name = "xgboost"

    def choose(self, settings: dict[str, Any], fit: Any, valid: Any, metric: str, patience: int, budget: float) -> Any:
        import xgboost

        ends = perf_counter() + budget

        class Stop(xgboost.callback.TrainingCallback):  # type: ignore[misc]
            def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
                return perf_counter() > ends

        y_fit, y_valid = _codes(fit[1]), _codes(valid[1])
        watched = "auc" if metric == "auc" else "merror"
        early = xgboost.callback.EarlyStopping(rounds=patience, save_best=True)
        model = xgboost.XGBClassifier(
            n_estimators=1000, tree_method="hist", callbacks=[early, Stop()], eval_metric=watched, **settings
        )
        model.fit(fit[0], y_fit, eval_set=[(valid[0], y_valid)], verbose=False)
        return score(metric, y_valid, model.predict_proba(valid[0])), model.get_booster().num_boosted_rounds()

    def refit(self, settings: dict[str, Any], rounds: int, train: Any) -> Callable[[Any], Any]:
        import xgboost

        model = xgboost.XGBClassifier(n_estimators=rounds, tree_method="hist", **settings)
        model.fit(train[0], _codes(train[1]))
        return lambda X: model.predict_proba(X)


def _codes(y: Any) -> Any:
    return np.searchsorted(np.unique(y), y)


LEARNERS = {learner.name: learner for learner in (Gbun(), LightGBM(), XGBoost())}
