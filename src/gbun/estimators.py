"""`GBUNClassifier` and `GBUNRegressor`: `gbun.train` as estimators of scikit-learn."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import check_array
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from gbun.arrays import Array, is_tensor
from gbun.callbacks import Callback, History
from gbun.config import Parameters, parameter_fields
from gbun.data.frames import check_column_names, is_frame
from gbun.data.ingest import detect_row_kind
from gbun.data.tensors import check_tensor_rows, foreign_to_numpy, is_foreign, to_tensor_or_numpy
from gbun.explain import Explanation, Importance, LinearWeights
from gbun.model import Model, load_model
from gbun.problem import Dataset
from gbun.targets import check_labels, to_target_array, to_weight_array
from gbun.training import train

Self = TypeVar("Self", bound="_Estimator")

MAX_IMPORTANCES = 100_000  # columns
# gbun checks the numbers: its messages say where an infinite one is.
_CHECKS: dict[str, Any] = {"dtype": None, "ensure_all_finite": False, "accept_large_sparse": True}


class _Loader:
    """`load_model` of a class makes an estimator; that of an estimator fills it, as with other boosters."""

    def __get__(self, estimator: Any, owner: Any) -> Callable[[str | Path], Any]:
        def load_estimator(path: str | Path) -> Any:
            """Return a fitted estimator from a `.gbun` file; it predicts on the CPU unless `device` is set."""
            model = load_model(path)  # before anything of the estimator changes
            return (owner() if estimator is None else estimator)._take_model(model, path)

        return load_estimator


class _Estimator(Parameters, BaseEstimator):  # type: ignore[misc]
    """Base of both estimators; parameters, their defaults and their ranges are those of `gbun.Parameters`."""

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

        Parameters
        ----------
        X : array, sparse matrix, data frame or tensor of shape (n, m), or a list of n dicts or token lists
        y : array-like of shape (n,), or (n, C) with several outputs
        sample_weight : array-like of shape (n,), optional
        base_margin : array-like of shape (n,) or (n, C), optional
            Scores to start from.
        eval_set : (X, y), (X, y, weight), (X, y, weight, base_margin) or a list of such tuples, optional
            Sets to evaluate after each round and to stop early on.
        callbacks : sequence of gbun.callbacks.Callback
        init_model : Model or path, optional
            A model, or its file, to which rounds are added.

        Returns
        -------
        self
        """
        X, y = self._check_training_data(X, foreign_to_numpy(y, "y"))
        evals = {f"eval_{i}": Dataset(*given) for i, given in enumerate(_split_eval_set(eval_set))}
        history = History()
        self.model_ = train(
            self,
            Dataset(X, y, self._row_weights(y, sample_weight), base_margin),
            evals=evals,
            callbacks=[history, *callbacks],
            init_model=init_model,
            task=self._task,
        )
        self._set_fitted_attributes(history)
        return self

    def _set_fitted_attributes(self, history: History) -> None:
        self.evals_result_ = history.values
        self.n_estimators_ = self.model_.n_rounds
        self.best_iteration_ = self.model_.description.best_round
        self.best_score_ = self.model_.description.best_score
        linear = self.model_.ensemble.linear
        self.linear_l2_ = None if linear is None else linear.l2
        self.learner_ = self.model_.ensemble.learner.kind

    def _row_weights(self, y: Any, sample_weight: Any) -> Any:
        return sample_weight

    # scikit-learn checks the kinds of X that it knows; gbun checks all others, and all values.

    def _check_training_data(self, X: Any, y: Any) -> tuple[Any, Any]:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        if detect_row_kind(X) is not None:
            for name in ("feature_names_in_", "n_features_in_"):
                if hasattr(self, name):
                    delattr(self, name)
            return X, y
        rows = self._check_columns(X, reset=True)
        with _prefix_errors("y"):
            y = check_array(y, ensure_2d=False, dtype=None, ensure_all_finite=False, allow_nd=False, input_name="y")
        if y.ndim == 2 and y.shape[1] == 1:
            message = "A column-vector y was passed when a 1d array was expected; use y.ravel()."
            warnings.warn(message, DataConversionWarning, stacklevel=3)
            y = y[:, 0]
        check_consistent_length(rows, y)
        return X if is_foreign(X) else rows, y

    def _check_columns(self, X: Any, reset: bool) -> Any:
        """Check the shape of X and the names of its columns; return X as an array, a frame or a tensor."""
        if is_frame(X):
            check_column_names(X, "X")
        rows = to_tensor_or_numpy(X, "X") if is_foreign(X) else X
        if is_tensor(rows):
            check_tensor_rows(rows, "X")
        with _prefix_errors("X"):
            # gbun reads frames, whose categories it knows, and tensors, which may be on a device.
            if is_frame(X) or is_tensor(rows):
                return validate_data(self, rows, reset=reset, skip_check_array=True)
            return validate_data(self, rows, reset=reset, accept_sparse=["csr", "csc", "coo"], **_CHECKS)

    def _call_model(self, method: str, X: Any, **options: Any) -> Any:
        """Check X and call a method of the model with the threads and the device of this estimator."""
        rows = self._check_rows(X)
        rows = X if is_foreign(X) else rows  # the model converts its output to what X is
        return getattr(self.model_, method)(rows, **options, n_jobs=self.n_jobs, device=self.device)

    def _check_rows(self, X: Any) -> Any:
        check_is_fitted(self, "model_")
        has_columns = self.model_.description.schema.kind not in ("names", "tokens") and detect_row_kind(X) is None
        return self._check_columns(X, reset=False) if has_columns else X

    def predict(self, X: Any, *, base_margin: Any = None, n_rounds: int | None = None, output: str = "numpy") -> Array:
        """Predict labels or values.

        Parameters
        ----------
        X : rows, as for `fit`
        base_margin : array-like of shape (n,) or (n, C), optional
            Scores to add to those of the rounds, in the place of the constant start.
        n_rounds : int, optional
            Use only the first rounds.
        output : {"numpy", "input"}
            "input" returns an array of the library and the device of X: a tensor for a tensor.

        Returns
        -------
        array of shape (n,), or (n, C) with several outputs
        """
        return self._call_model("predict", X, base_margin=base_margin, n_rounds=n_rounds, output=output)

    def staged_predict(self, X: Any, *, base_margin: Any = None) -> Iterator[Array]:
        """Yield the predictions of the start and after 1, 2, ... rounds."""
        return self._call_model("staged_predict", X, base_margin=base_margin)  # type: ignore[no-any-return]

    def explain(self, X: Any, **options: Any) -> Explanation:
        """Explain the scores of rows: what each column adds to them; options are those of `Model.explain`."""
        return self.model_.explain(self._check_rows(X), **{"n_jobs": self.n_jobs, **options})

    def importance(self, X: Any = None, y: Any = None, **options: Any) -> Importance:
        """Compute how much each column matters; options are those of `Model.importance`."""
        check_is_fitted(self, "model_")
        rows = None if X is None else self._check_rows(X)
        return self.model_.importance(rows, y, **{"n_jobs": self.n_jobs, **options})

    def linear_weights(self, names: Sequence[str] | None = None) -> LinearWeights:
        """Look up the weights of the linear start, as `Model.linear_weights` does."""
        check_is_fitted(self, "model_")
        return self.model_.linear_weights(names)

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        """The importance of each column without rows, as shares of 1: gains of splits, or contributions of networks."""
        check_is_fitted(self, "model_")
        n = self.model_.description.schema.n_columns
        if n is None or n > MAX_IMPORTANCES:
            what = "features have names only" if n is None else f"there are {n:,} columns"
            raise AttributeError(
                f"feature_importances_ has a number for each column, but {what}; use importance(X, top=...)"
            )
        found = self.model_.importance(n_jobs=self.n_jobs)
        if found.kind == "gain" and self.linear_l2_ is not None:
            warnings.warn(
                "feature_importances_ are gains of splits here, without what the linear start has learnt; "
                "importance(X) has both", stacklevel=2,
            )  # fmt: skip
        values = found.values
        return np.asarray(values / (values.sum() or 1.0))

    def save_model(self, path: str | Path) -> None:
        """Write the fitted model to a `.gbun` file, which `gbun.load_model` and `load_model` read."""
        check_is_fitted(self, "model_")
        self.model_.save_model(path)

    load_model = _Loader()

    def _take_model(self: Self, model: Model, path: str | Path) -> Self:
        """Become the estimator of this model, with its parameters; it predicts on the CPU unless `device` is set."""
        description = model.description
        task = "regression" if description.task == "regression" else "classification"
        if task != self._task:
            raise ValueError(f"{path} holds a {description.task} model, {type(self).__name__} is for {self._task}")
        names = {f.name: f for f in parameter_fields()}
        stored = {
            name: value
            for name, value in description.parameters.items()
            if name in names and names[name].metadata["range"].admits(value) and not str(value).startswith("<")
        }
        if model.ensemble.objective.name == "custom":  # its function is not stored: `fit` refuses its name
            stored["objective"] = description.parameters["objective"]
        stored.pop("device", None)  # the device of the training may not be here
        self.set_params(**{name: stored.get(name, field.default) for name, field in names.items()})
        self.model_ = model
        for name in ("feature_names_in_", "n_features_in_"):
            self.__dict__.pop(name, None)
        if description.schema.n_columns is not None:
            self.n_features_in_ = description.schema.n_columns
        if description.schema.names is not None:
            self.feature_names_in_ = np.array(description.schema.names, dtype=object)
        self._set_fitted_attributes(History())
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.target_tags.multi_output = True
        return tags


class GBUNRegressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    """Regressor by gradient boosting of untrained networks, for one or several targets.

    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = GBUNRegressor(n_estimators=20, n_neurons=32, learning_rate=0.1).fit(X[:300], y[:300])
    >>> model.predict(X[300:]).shape
    (142,)
    """

    _task = "regression"

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the weighted R2 of the predictions; y and its weights may be tensors, as for `fit`."""
        return float(super().score(X, foreign_to_numpy(y, "y"), foreign_to_numpy(sample_weight, "sample_weight")))


@dataclass(eq=False, repr=False, kw_only=True)
class GBUNClassifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """Classifier by gradient boosting of untrained networks, for two or many classes, or several labels a row.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = GBUNClassifier(n_estimators=20, n_neurons=32).fit(X, y)
    >>> model.predict_proba(X).shape
    (150, 3)
    """

    class_weight: Any = None
    _task = "classification"

    def _check_training_data(self, X: Any, y: Any) -> tuple[Any, Any]:
        X, y = super()._check_training_data(X, y)
        y = to_target_array(y, "y")
        check_labels(y)
        check_classification_targets(y)
        return X, y

    def _set_fitted_attributes(self, history: History) -> None:
        super()._set_fitted_attributes(history)
        of_labels = [np.array([0, 1])] * self.model_.ensemble.n_scores  # each label is 0 or 1
        self.classes_: Any = of_labels if self.model_.classes is None else self.model_.classes

    def _row_weights(self, y: Any, sample_weight: Any) -> Any:
        if self.class_weight is None:
            return sample_weight
        by_class = self._weights_by_class(y)
        if (by_class < 0).any():
            raise ValueError(f"class_weight must not be negative, got {self.class_weight!r}")
        return by_class * to_weight_array(foreign_to_numpy(sample_weight, "sample_weight"), len(y))

    def _weights_by_class(self, y: Any) -> Any:
        """Return the weight of each row by its class; keys of a dict are labels as they are, also such as "1"."""
        if not isinstance(self.class_weight, dict) or np.ndim(y) != 1:
            return compute_sample_weight(self.class_weight, y)
        labels, codes = np.unique(np.asarray(y), return_inverse=True)
        unknown = [key for key in self.class_weight if key not in labels.tolist()]
        if unknown:
            raise ValueError(f"class_weight names {unknown}, which are not among the classes {labels.tolist()[:10]}")
        return np.array([self.class_weight.get(label, 1.0) for label in labels.tolist()], dtype=float)[codes]

    def predict_proba(
        self, X: Any, *, base_margin: Any = None, n_rounds: int | None = None, output: str = "numpy"
    ) -> Array:
        """Return the probability of each class, (n, C) in the order of `classes_`; arguments are those of `predict`."""
        return self._call_model("predict_proba", X, base_margin=base_margin, n_rounds=n_rounds, output=output)

    def decision_function(
        self, X: Any, *, base_margin: Any = None, n_rounds: int | None = None, output: str = "numpy"
    ) -> Array:
        """Return the scores before the link: log-odds (n,) with two classes, otherwise (n, C)."""
        return self._call_model("decision_function", X, base_margin=base_margin, n_rounds=n_rounds, output=output)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the weighted accuracy; y and its weights may be tensors, as for `fit`."""
        return float(super().score(X, foreign_to_numpy(y, "y"), foreign_to_numpy(sample_weight, "sample_weight")))

    def staged_predict_proba(self, X: Any, *, base_margin: Any = None) -> Iterator[Array]:
        """Yield the probabilities of the start and after 1, 2, ... rounds."""
        return self._call_model("staged_predict_proba", X, base_margin=base_margin)  # type: ignore[no-any-return]

    def staged_decision_function(self, X: Any, *, base_margin: Any = None) -> Iterator[Array]:
        """Yield the scores of the start and after 1, 2, ... rounds."""
        return self._call_model("staged_decision_function", X, base_margin=base_margin)  # type: ignore[no-any-return]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = False
        return tags


_ATTRIBUTES = """
Attributes
----------
model_ : the fitted `gbun.Model`
n_estimators_ : its number of rounds
linear_l2_ : the penalty of the linear start; None if the start is constant
learner_ : "network", "tree" or "mixed"
evals_result_ : {evaluation set: {metric: [value after each round]}}
best_iteration_, best_score_ : those of early stopping; None without it
n_features_in_, feature_names_in_ : of the columns seen in `fit`, if they have numbers or names
"""
_CLASS_WEIGHT = """
class_weight : dict {class: weight}, 'balanced' or None, default None
    Multiplies the weight of each row by that of its class; 'balanced' gives all classes the same total weight."""


def _add_parameter_docs(cls: type, more: str = "") -> None:
    """Add the description of every parameter in `gbun.config` to the docstring of a class."""
    lines = [
        f"{f.name} : {f.metadata['range']}, default {f.default!r}\n    {f.metadata['sentence']}"
        for f in parameter_fields()
    ]
    parameters = "\n".join(["", "Parameters", "----------", *lines]) + more
    cls.__doc__ = "\n".join([inspect.cleandoc(cls.__doc__ or ""), parameters, _ATTRIBUTES])


_add_parameter_docs(GBUNRegressor)
_add_parameter_docs(GBUNClassifier, _CLASS_WEIGHT)


@contextmanager
def _prefix_errors(argument: str) -> Iterator[None]:
    """Begin error messages of scikit-learn about an argument with its name."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if type(error) not in (TypeError, ValueError) or str(error).startswith(argument):
            raise
        raise type(error)(f"{argument}: {error}") from None


def _split_eval_set(eval_set: Any) -> list[tuple[Any, ...]]:
    """Return the evaluation sets of an argument that may be one of them, or a list."""
    if eval_set is None:
        return []
    if not isinstance(eval_set, (list, tuple)):
        raise ValueError(f"eval_set must be a pair (X, y) or a list of such pairs, got {type(eval_set).__name__}")
    is_one = isinstance(eval_set, tuple) and not all(isinstance(item, tuple) for item in eval_set)
    sets = [eval_set] if is_one else list(eval_set)
    if not all(isinstance(given, (tuple, list)) and 2 <= len(given) <= 4 for given in sets):
        raise ValueError("eval_set must be a pair (X, y) or a list of such pairs")
    return [tuple(given) for given in sets]
