"""gbun, LightGBM and XGBoost behind one signature, each with its own defaults. The peers are imported here only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, Protocol

from scipy.sparse import csr_matrix, issparse

from gbun.callbacks import Callback, RoundReport
from gbun.kernels.threads import thread_count

if TYPE_CHECKING:
    from gbun.boosting import Training

Task = Literal["binary", "multiclass", "regression"]
RoundCallback = Callable[[float], None]
"""Called after each round with the loss on the test split."""
Predict = Callable[[Any], Any]
"""Probability of class 1, probabilities of all classes, or values: by task."""

INSTALL = "pip install 'gbun[peers]'"


@dataclass(frozen=True)
class Split:
    """Rows to train on and rows to watch. Classes are numbered from 0."""

    task: Task
    X_train: Any
    y_train: Any
    X_test: Any
    y_test: Any

    @property
    def n_classes(self) -> int:
        return int(max(self.y_train.max(), self.y_test.max())) + 1


@dataclass(frozen=True)
class FittedLearner:
    """The test loss after each round, and how to predict."""

    curve: list[float]
    predict: Predict


class PeerLearner(Protocol):
    """What the demo asks of each. `settings` are parameters in the learner's own names."""

    name: str

    def is_available(self) -> bool: ...

    def fit(
        self, split: Split, n_rounds: int, on_round: RoundCallback, settings: Mapping[str, Any]
    ) -> FittedLearner: ...


class Gbun:
    name = "gbun"

    def is_available(self) -> bool:
        return True

    def fit(self, split: Split, n_rounds: int, on_round: RoundCallback, settings: Mapping[str, Any]) -> FittedLearner:
        from gbun.estimators import GBUNClassifier, GBUNRegressor

        watch = _CurveRecorder(on_round)
        given = {**settings, "n_estimators": n_rounds}
        model = GBUNRegressor(**given) if split.task == "regression" else GBUNClassifier(**given)
        model.fit(split.X_train, split.y_train, eval_set=(split.X_test, split.y_test), callbacks=[watch])
        if split.task == "binary":
            return FittedLearner(watch.curve, lambda X: model.predict_proba(X)[:, 1])
        return FittedLearner(watch.curve, model.predict if split.task == "regression" else model.predict_proba)


class _CurveRecorder(Callback):
    def __init__(self, on_round: RoundCallback) -> None:
        self.on_round, self.curve = on_round, list[float]()

    def after_round(self, training: Training, report: RoundReport) -> bool:
        (metrics,) = report.evaluations.values()
        (loss,) = metrics.values()
        self.curve.append(loss)
        self.on_round(loss)
        return False


class LightGBM:
    name = "LightGBM"

    OBJECTIVES: Mapping[Task, tuple[str, str]] = {
        "binary": ("binary", "binary_logloss"),
        "multiclass": ("multiclass", "multi_logloss"),
        "regression": ("regression", "rmse"),
    }

    def is_available(self) -> bool:
        return find_spec("lightgbm") is not None

    def fit(self, split: Split, n_rounds: int, on_round: RoundCallback, settings: Mapping[str, Any]) -> FittedLearner:
        import lightgbm

        objective, metric = self.OBJECTIVES[split.task]
        params = {"objective": objective, "metric": metric, "verbosity": -1, "num_threads": thread_count(None)}
        if split.task == "multiclass":
            params["num_class"] = split.n_classes
        train = lightgbm.Dataset(_to_csr_matrix(split.X_train), split.y_train)
        test = lightgbm.Dataset(_to_csr_matrix(split.X_test), split.y_test, reference=train)
        values: dict[str, Any] = {}

        def report(env: Any) -> None:
            on_round(values["test"][metric][-1])

        report.order = 100  # type: ignore[attr-defined]  # after the one that fills `values`
        booster = lightgbm.train(
            {**params, **settings},
            train,
            n_rounds,
            valid_sets=[test],
            valid_names=["test"],
            callbacks=[lightgbm.record_evaluation(values), report],
        )
        return FittedLearner(list(values["test"][metric]), lambda X: booster.predict(_to_csr_matrix(X)))


class XGBoost:
    name = "XGBoost"

    OBJECTIVES: Mapping[Task, tuple[str, str]] = {
        "binary": ("binary:logistic", "logloss"),
        "multiclass": ("multi:softprob", "mlogloss"),
        "regression": ("reg:squarederror", "rmse"),
    }

    def is_available(self) -> bool:
        return find_spec("xgboost") is not None

    def fit(self, split: Split, n_rounds: int, on_round: RoundCallback, settings: Mapping[str, Any]) -> FittedLearner:
        import xgboost

        class RoundReporter(xgboost.callback.TrainingCallback):
            def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
                on_round(evals_log["test"][metric][-1])
                return False

        objective, metric = self.OBJECTIVES[split.task]
        params = {"objective": objective, "eval_metric": metric, "verbosity": 0, "nthread": thread_count(None)}
        if split.task == "multiclass":
            params["num_class"] = split.n_classes
        train = xgboost.QuantileDMatrix(_to_csr_matrix(split.X_train), split.y_train)
        test = xgboost.DMatrix(_to_csr_matrix(split.X_test), split.y_test)  # a quantile one is slow to judge
        values: dict[str, Any] = {}
        booster = xgboost.train(
            {**params, **settings},
            train,
            n_rounds,
            evals=[(test, "test")],
            evals_result=values,
            verbose_eval=False,
            callbacks=[RoundReporter()],
        )
        return FittedLearner(
            list(values["test"][metric]), lambda X: booster.predict(xgboost.DMatrix(_to_csr_matrix(X)))
        )


def _to_csr_matrix(X: Any) -> Any:
    """scipy's older sparse class, which every version of the peers knows; no copy is made."""
    if not issparse(X):
        return X
    sparse: Any = X
    return csr_matrix(sparse)


LEARNERS: tuple[PeerLearner, ...] = (Gbun(), LightGBM(), XGBoost())
