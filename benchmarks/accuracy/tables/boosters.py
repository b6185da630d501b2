"""The learners: how each is trained on rows to fit, and stopped early on the same held-out rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.accuracy.tables.sets import Rows
from gbun import GBUNClassifier, GBUNRegressor
from gbun.callbacks import Callback

Settings = dict[str, Any]
Late = Callable[[], bool]
"""Says after each round whether the time is up; then the model is that of the best round so far."""
Fit = Callable[[Rows, Settings, Late | None], Any]
ROUNDS, PATIENCE = 1000, 50
LEAST_PROBABILITY = 1e-15


class StopLate(Callback):
    during_trial = True

    def __init__(self, late: Late) -> None:
        self.late = late

    def after_round(self, training: Any, report: Any) -> bool:
        return self.late()


def make_gbun(rows: Rows, settings: Settings) -> Any:
    return (GBUNRegressor if rows.regression else GBUNClassifier)(n_jobs=1, random_state=rows.seed, **settings)


def fit_gbun(rows: Rows, settings: Settings, late: Late | None = None) -> Any:
    """As it comes: all training rows; it holds rows out itself where it wants to."""
    return make_gbun(rows, settings).fit(*rows.training, callbacks=[StopLate(late)] if late else [])


def fit_gbun_on_given(rows: Rows, settings: Settings, late: Late | None = None) -> Any:
    """With the held-out rows, the rounds and the patience of the others."""
    model = make_gbun(rows, {"n_estimators": ROUNDS, "early_stopping_rounds": PATIENCE, **settings})
    return model.fit(rows.X, rows.y, eval_set=(rows.X_held, rows.y_held), callbacks=[StopLate(late)] if late else [])


def fit_lightgbm(rows: Rows, settings: Settings, late: Late | None = None) -> Any:
    import lightgbm

    losses: list[float] = []

    def stop_late(env: Any) -> None:
        losses.append(env.evaluation_result_list[0][2])
        if late is not None and late():
            raise lightgbm.callback.EarlyStopException(int(np.argmin(losses)), env.evaluation_result_list)

    kind = lightgbm.LGBMRegressor if rows.regression else lightgbm.LGBMClassifier
    model = kind(n_estimators=ROUNDS, n_jobs=1, random_state=rows.seed, verbose=-1, **settings)
    callbacks = [lightgbm.early_stopping(PATIENCE, verbose=False), *([stop_late] if late else [])]
    return model.fit(rows.X, rows.y, eval_set=[(rows.X_held, rows.y_held)], callbacks=callbacks)


def fit_xgboost(rows: Rows, settings: Settings, late: Late | None = None) -> Any:
    import xgboost

    class XGBoostStopLate(xgboost.callback.TrainingCallback):  # type: ignore[misc]
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            return late is not None and late()

    kind = xgboost.XGBRegressor if rows.regression else xgboost.XGBClassifier
    given = {"callbacks": [XGBoostStopLate()] if late else None, **settings}
    model = kind(n_estimators=ROUNDS, early_stopping_rounds=PATIENCE, n_jobs=1, random_state=rows.seed, **given)
    return model.fit(rows.X, rows.y, eval_set=[(rows.X_held, rows.y_held)], verbose=False)


def fit_catboost(rows: Rows, settings: Settings, late: Late | None = None) -> Any:
    import catboost

    class CatBoostStopLate:
        def after_iteration(self, info: Any) -> bool:
            return late is None or not late()  # True goes on

    kind = catboost.CatBoostRegressor if rows.regression else catboost.CatBoostClassifier
    quiet = {"verbose": False, "allow_writing_files": False}
    model = kind(iterations=ROUNDS, thread_count=1, random_seed=rows.seed, **quiet, **settings)
    callbacks = [CatBoostStopLate()] if late else None
    held = (rows.X_held, rows.y_held)
    return model.fit(rows.X, rows.y, eval_set=held, early_stopping_rounds=PATIENCE, callbacks=callbacks)


def fit_hgb(rows: Rows, settings: Settings, late: Late | None = None) -> Any:
    """Rows to stop on can be given from scikit-learn 1.7 on."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    kind = HistGradientBoostingRegressor if rows.regression else HistGradientBoostingClassifier
    stopping = {"max_iter": ROUNDS, "early_stopping": True, "n_iter_no_change": PATIENCE}
    model = kind(**stopping, random_state=rows.seed, **settings)
    return model.fit(rows.X, rows.y, X_val=rows.X_held, y_val=rows.y_held)


def fit_linear(rows: Rows, settings: Settings, late: Late | None = None) -> Any:
    model = Ridge(**settings) if rows.regression else LogisticRegression(max_iter=1000, **settings)
    return make_pipeline(SimpleImputer(keep_empty_features=True), StandardScaler(), model).fit(*rows.training)


AS_THEY_COME: dict[str, tuple[Fit, Settings]] = {
    "gbun": (fit_gbun, {}),
    "gbun trees": (fit_gbun, {"learner": "tree"}),
    "gbun networks": (fit_gbun, {"learner": "network"}),
    "gbun (given rows)": (fit_gbun_on_given, {}),
    "gbun trees (given rows)": (fit_gbun_on_given, {"learner": "tree"}),
    "LightGBM": (fit_lightgbm, {}),
    "XGBoost": (fit_xgboost, {}),
    "CatBoost": (fit_catboost, {}),
    "HGB": (fit_hgb, {}),
    "linear": (fit_linear, {}),
}
TUNABLE: dict[str, Fit] = {
    "gbun": fit_gbun_on_given,
    "LightGBM": fit_lightgbm,
    "XGBoost": fit_xgboost,
    "CatBoost": fit_catboost,
}
OURS, PEERS = "gbun", ("LightGBM", "XGBoost", "CatBoost")


def loss(model: Any, X: Any, y: Any, regression: bool) -> float:
    """RMSE, or log loss. Columns of probabilities are the classes 0, 1, ..."""
    if regression:
        return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))
    q = model.predict_proba(X)[np.arange(len(y)), y]
    return float(-np.log(q.clip(LEAST_PROBABILITY)).mean())
