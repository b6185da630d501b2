"""gbun, LightGBM and XGBoost behind one signature, each with its own defaults. The peers are imported here only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal

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
    def class_count(self) -> dict[str, int]:
        """The parameter by which both peers know the number of classes, if there are several."""
        return {"num_class": int(max(self.y_train.max(), self.y_test.max())) + 1} if self.task == "multiclass" else {}


class PeerLearner(ABC):
    name: ClassVar[str]

    def is_available(self) -> bool:
        return find_spec(self.name.lower()) is not None

    @abstractmethod
    def fit(self, split: Split, n_rounds: int, on_round: RoundCallback, n_jobs: int | None = None) -> Predict:
        """Train with default settings; None: with all cores."""


class Gbun(PeerLearner):
    name = "gbun"

    def fit(self, split: Split, n_rounds: int, on_round: RoundCallback, n_jobs: int | None = None) -> Predict:
        from gbun.estimators import GBUNClassifier, GBUNRegressor

        class RoundReporter(Callback):
            def after_round(self, training: Training, report: RoundReport) -> bool:
                ((loss,),) = (metrics.values() for metrics in report.evaluations.values())
                on_round(loss)
                return False

        model = (GBUNRegressor if split.task == "regression" else GBUNClassifier)(n_estimators=n_rounds, n_jobs=n_jobs)
        model.fit(split.X_train, split.y_train, eval_set=(split.X_test, split.y_test), callbacks=[RoundReporter()])
        if split.task == "binary":
            return lambda X: model.predict_proba(X)[:, 1]
        return model.predict if split.task == "regression" else model.predict_proba


class LightGBM(PeerLearner):
    name = "LightGBM"

    def fit(self, split: Split, n_rounds: int, on_round: RoundCallback, n_jobs: int | None = None) -> Predict:
        import lightgbm

        metric = {"binary": "binary_logloss", "multiclass": "multi_logloss", "regression": "rmse"}[split.task]
        params = {"objective": split.task, "metric": metric, "verbosity": -1, "num_threads": thread_count(n_jobs)}
        train = lightgbm.Dataset(_to_csr_matrix(split.X_train), split.y_train)
        test = lightgbm.Dataset(_to_csr_matrix(split.X_test), split.y_test, reference=train)

        def report(env: Any) -> None:
            ((_, _, loss, _),) = env.evaluation_result_list
            on_round(loss)

        params |= split.class_count
        booster = lightgbm.train(params, train, n_rounds, valid_sets=[test], callbacks=[report])
        return lambda X: booster.predict(_to_csr_matrix(X))


class XGBoost(PeerLearner):
    name = "XGBoost"

    def fit(self, split: Split, n_rounds: int, on_round: RoundCallback, n_jobs: int | None = None) -> Predict:
        import xgboost

        class RoundReporter(xgboost.callback.TrainingCallback):
            def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
                (losses,) = evals_log["test"].values()
                on_round(losses[-1])
                return False

        objective, metric = {
            "binary": ("binary:logistic", "logloss"),
            "multiclass": ("multi:softprob", "mlogloss"),
            "regression": ("reg:squarederror", "rmse"),
        }[split.task]
        params = {"objective": objective, "eval_metric": metric, "verbosity": 0, "nthread": thread_count(n_jobs)}
        train = xgboost.QuantileDMatrix(_to_csr_matrix(split.X_train), split.y_train)
        test = xgboost.DMatrix(_to_csr_matrix(split.X_test), split.y_test)  # a quantile one is slow to judge
        options = {"evals": [(test, "test")], "verbose_eval": False, "callbacks": [RoundReporter()]}
        booster = xgboost.train({**params, **split.class_count}, train, n_rounds, **options)
        return lambda X: booster.predict(xgboost.DMatrix(_to_csr_matrix(X)))


def _to_csr_matrix(X: Any) -> Any:
    """Return scipy's older sparse class, which every version of the peers knows, without a copy."""
    convert: Any = csr_matrix  # its stubs do not know what `issparse` says of X
    return convert(X) if issparse(X) else X


LEARNERS: tuple[PeerLearner, ...] = (Gbun(), LightGBM(), XGBoost())
