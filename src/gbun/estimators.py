"""`GBUNClassifier` and `GBUNRegressor`: the scikit-learn contract around `gbun.train`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_array
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from gbun.arrays import Array, is_tensor
from gbun.callbacks import Callback, History
from gbun.config import Parameters, check, parameter_fields
from gbun.data.features import Schema
from gbun.data.frames import check_names, is_frame
from gbun.data.ingest import kind_of_rows
from gbun.data.tensors import check_rows, is_foreign, like_input, on_host
from gbun.model import Model, load_model
from gbun.problem import Dataset
from gbun.targets import check_labels, weight_array
from gbun.training import train

Self = TypeVar("Self", bound="_Estimator")


class _Estimator(Parameters, BaseEstimator):  # type: ignore[misc]
    """What both estimators share. Parameters, their defaults and their ranges come from `gbun.Parameters`."""

    _task: str
    model_: Model

    def fit(
        self: Self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        base_margin: Any = None,
        eval_set: Sequence[tuple[Any, ...]] | tuple[Any, ...] | None = None,
        callbacks: Sequence[Callback] = (),
        init_model: Model | str | Path | None = None,
    ) -> Self:
        """Train on X and y.

        X: array, sparse matrix, data frame, list of dicts or list of token lists. y: a target for each row, or a
        column for each output. `base_margin`: scores to start from. `eval_set`: (X, y), (X, y, weight) or a list of
        such, to watch and to stop early on. `init_model`: a model, or its file, to add rounds to.
        """
        self._check_parameters()
        y, sample_weight = on_host(y, "y"), on_host(sample_weight, "sample_weight")
        X, y = self._check_training_data(X, y)
        evals = {f"eval_{i}": Dataset(*pair) for i, pair in enumerate(_pairs(eval_set))}
        history = History()
        weight = self._weights(y, sample_weight)
        self.model_ = train(
            self._parameters(),
            Dataset(X, y, weight, base_margin),
            evals=evals,
            callbacks=[history, *callbacks],
            init_model=init_model,
            task=self._task,
        )
        self._after_fit(history)
        return self

    def _check_parameters(self) -> None:
        objective = self.objective
        if isinstance(objective, str) and objective.startswith("<"):  # what load_model found
            raise ValueError(
                f"objective {objective} is a function, which the file of this model does not hold; say it again, "
                "set_params(objective=...), to train"
            )
        check(self)

    def _parameters(self) -> Parameters:
        return Parameters(**{f.name: getattr(self, f.name) for f in parameter_fields()})

    def _after_fit(self, history: History) -> None:
        self.evals_result_ = history.values
        self.n_estimators_ = self.model_.n_rounds
        self.best_iteration_ = self.model_.description.best_round
        self.best_score_ = self.model_.description.best_score
        linear = self.model_.ensemble.linear
        self.linear_l2_ = None if linear is None else linear.l2

    def _weights(self, y: Any, sample_weight: Any) -> Array | None:
        return None if sample_weight is None else weight_array(sample_weight, len(y))

    # Reading X the way scikit-learn expects where it knows the kind, our own way where it does not.

    def _check_training_data(self, X: Any, y: Any) -> tuple[Any, Any]:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        if kind_of_rows(X) is not None:
            self._forget_columns()
            return X, y
        X = self._check_columns(X, reset=True)
        with _named("y"):
            y = check_array(y, ensure_2d=False, dtype=None, ensure_all_finite=False, allow_nd=False, input_name="y")
        if y.ndim == 2 and y.shape[1] == 1:
            _warn_column_vector()
            y = y[:, 0]
        check_consistent_length(X, y)
        return X, y

    def _check_columns(self, X: Any, reset: bool) -> Any:
        # Frames are read by gbun itself, which knows categories; scikit-learn checks their columns' names. Arrays of
        # other libraries need not be on the host.
        if is_frame(X):
            check_names(X, "X")
        X = X if is_tensor(X) or not is_foreign(X) else on_host(X, "X")
        if is_tensor(X):
            check_rows(X, "X")
        with _named("X"):
            if is_frame(X) or is_tensor(X):
                return validate_data(self, X, reset=reset, skip_check_array=True)
            return validate_data(self, X, reset=reset, accept_sparse=["csr", "csc", "coo"], **_CHECKS)

    def _forget_columns(self) -> None:
        for name in ("feature_names_in_", "n_features_in_"):
            if hasattr(self, name):
                delattr(self, name)

    def _check_prediction_data(self, X: Any) -> Any:
        check_is_fitted(self, "model_")
        named = self.model_.description.schema.kind in ("names", "tokens")
        return X if named or kind_of_rows(X) is not None else self._check_columns(X, reset=False)

    def _computing(self) -> dict[str, Any]:
        return {"n_jobs": self.n_jobs, "device": self.device}

    def predict(self, X: Any, *, base_margin: Any = None, n_rounds: int | None = None, output: str = "numpy") -> Array:
        """Labels or values; `n_rounds` uses the first rounds only, `output="input"` gives a tensor for a tensor."""
        rows, known = self._check_prediction_data(X), dict[str, Any](base_margin=base_margin, n_rounds=n_rounds)
        return like_input(self.model_.predict(rows, **known, **self._computing()), X, output)

    def staged_predict(self, X: Any, *, base_margin: Any = None) -> Iterator[Array]:
        """The prediction after 1, 2, ... rounds."""
        X = self._check_prediction_data(X)
        return self.model_.staged_predict(X, base_margin=base_margin, **self._computing())

    def save_model(self, path: str | Path) -> None:
        """Write the fitted model to a `.gbun` file, which `gbun.load_model` and `load_model` read."""
        check_is_fitted(self, "model_")
        self.model_.save_model(path)

    @classmethod
    def load_model(cls: type[Self], path: str | Path) -> Self:
        """A fitted estimator from a `.gbun` file; it predicts on the processor unless `device` is set."""
        model = load_model(path)
        task = "regression" if model.description.task == "regression" else "classification"
        if task != cls._task:
            raise ValueError(f"{path} holds a {model.description.task} model, {cls.__name__} is for {cls._task}")
        names = {f.name: f for f in parameter_fields()}
        stored = {
            name: value
            for name, value in model.description.parameters.items()
            if name in names and names[name].metadata["range"].admits(value) and not str(value).startswith("<")
        }
        if model.ensemble.objective.name == "custom":  # its function was not stored: fit refuses what is left of it
            stored["objective"] = model.description.parameters["objective"]
        stored.pop("device", None)  # where it was trained is not where it has to predict
        estimator = cls(**stored)
        estimator.model_ = model
        estimator._restore_columns(model.description.schema)
        estimator._after_fit(History())
        return estimator

    def _restore_columns(self, schema: Schema) -> None:
        if schema.n_columns is not None:
            self.n_features_in_ = schema.n_columns
        if schema.names is not None:
            self.feature_names_in_ = np.array(schema.names, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.target_tags.multi_output = True
        return tags


class GBUNRegressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    """Gradient boosting of untrained networks for numbers, one or several a row.

    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = GBUNRegressor(n_estimators=20, n_neurons=32, learning_rate=0.1).fit(X[:300], y[:300])
    >>> model.predict(X[300:]).shape
    (142,)
    """

    _task = "regression"

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R2 of the predictions, weighted; y and its weights may be tensors, as for `fit`."""
        return float(super().score(X, on_host(y, "y"), on_host(sample_weight, "sample_weight")))


@dataclass(eq=False, repr=False, kw_only=True)
class GBUNClassifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """Gradient boosting of untrained networks for classes: two, a thousand, or several labels a row.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = GBUNClassifier(n_estimators=20, n_neurons=32).fit(X, y)
    >>> model.predict_proba(X).shape
    (150, 3)
    """

    class_weight: Any = None
    """Weights of classes: {class: weight}, "balanced" (each class counts the same), or None."""
    _task = "classification"

    def _check_training_data(self, X: Any, y: Any) -> tuple[Any, Any]:
        X, y = super()._check_training_data(X, y)
        check_labels(y)
        check_classification_targets(y)
        return X, y

    def _after_fit(self, history: History) -> None:
        super()._after_fit(history)
        several = [np.array([0, 1])] * self.model_.ensemble.n_scores  # labels are 0 or 1 each
        self.classes_: Any = several if self.model_.classes is None else self.model_.classes

    def _weights(self, y: Any, sample_weight: Any) -> Array | None:
        given = super()._weights(y, sample_weight)
        if self.class_weight is None:
            return given
        by_class = compute_sample_weight(self.class_weight, y)
        if (by_class < 0).any():
            raise ValueError(f"class_weight must not be negative, got {self.class_weight!r}")
        return np.asarray(by_class if given is None else by_class * given)

    def predict_proba(
        self, X: Any, *, base_margin: Any = None, n_rounds: int | None = None, output: str = "numpy"
    ) -> Array:
        """The probability of each class, n x C, in the order of `classes_`."""
        rows, known = self._check_prediction_data(X), dict[str, Any](base_margin=base_margin, n_rounds=n_rounds)
        return like_input(self.model_.predict_proba(rows, **known, **self._computing()), X, output)

    def decision_function(
        self, X: Any, *, base_margin: Any = None, n_rounds: int | None = None, output: str = "numpy"
    ) -> Array:
        """Scores before the link: n log-odds with two classes, otherwise n x C."""
        rows, known = self._check_prediction_data(X), dict[str, Any](base_margin=base_margin, n_rounds=n_rounds)
        return like_input(self.model_.decision_function(rows, **known, **self._computing()), X, output)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of rows whose labels are right, weighted; y and its weights may be tensors, as for `fit`."""
        return float(super().score(X, on_host(y, "y"), on_host(sample_weight, "sample_weight")))

    def staged_predict_proba(self, X: Any, *, base_margin: Any = None) -> Iterator[Array]:
        X = self._check_prediction_data(X)
        return self.model_.staged_predict_proba(X, base_margin=base_margin, **self._computing())

    def staged_decision_function(self, X: Any, *, base_margin: Any = None) -> Iterator[Array]:
        X = self._check_prediction_data(X)
        return self.model_.staged_decision_function(X, base_margin=base_margin, **self._computing())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = False
        return tags


_ATTRIBUTES = """
Attributes
----------
model_ : the fitted `gbun.Model`
n_estimators_ : the number of rounds it has
linear_l2_ : the penalty of the linear start; None where the start is constant
evals_result_ : {evaluation set: {metric: [one a round]}}
best_iteration_, best_score_ : of early stopping, where it was asked for
n_features_in_, feature_names_in_ : of the columns seen in `fit`, where they have numbers or names
"""


def _describe(cls: type, more: str = "") -> None:
    """Add every parameter's sentence, which lives in `gbun.config`, to the class's docstring."""
    lines = [
        f"{f.name} : {f.metadata['range']}, default {f.default!r}\n    {f.metadata['sentence']}"
        for f in parameter_fields()
    ]
    cls.__doc__ = (
        f"{inspect.cleandoc(cls.__doc__ or '')}\n\nParameters\n----------\n"
        + "\n".join(lines)
        + more
        + "\n"
        + _ATTRIBUTES
    )


_describe(GBUNRegressor)
_describe(
    GBUNClassifier,
    "\nclass_weight : dict {class: weight}, 'balanced' or None, default None\n"
    "    Multiplies the weight of each row by its class's; 'balanced' makes all classes count the same.",
)


# Numbers are checked by gbun, whose messages say where an infinite one is.
_CHECKS: dict[str, Any] = {"dtype": None, "ensure_all_finite": False, "accept_large_sparse": True}


@contextmanager
def _named(argument: str) -> Iterator[None]:
    """scikit-learn's complaints about an argument begin with its name."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if type(error) not in (TypeError, ValueError) or str(error).startswith(argument):
            raise
        raise type(error)(f"{argument}: {error}") from None


def _pairs(eval_set: Any) -> list[tuple[Any, Any]]:
    if eval_set is None:
        return []
    if not isinstance(eval_set, (list, tuple)):
        raise ValueError(f"eval_set must be a pair (X, y) or a list of such pairs, got {type(eval_set).__name__}")
    one = isinstance(eval_set, tuple) and not all(isinstance(item, tuple) for item in eval_set)
    pairs = [eval_set] if one else list(eval_set)
    for pair in pairs:
        if not (isinstance(pair, (tuple, list)) and 2 <= len(pair) <= 4):
            raise ValueError("eval_set must be a pair (X, y) or a list of such pairs")
    return [tuple(pair) for pair in pairs]


def _warn_column_vector() -> None:
    import warnings

    from sklearn.exceptions import DataConversionWarning

    warnings.warn(
        "A column-vector y was passed when a 1d array was expected; use y.ravel().",
        DataConversionWarning,
        stacklevel=4,
    )
