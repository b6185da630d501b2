"""Parameters of the Spark estimators: those of Spark, and every training parameter of gbun, from `gbun.config`."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from pyspark.ml.param import Param, Params, TypeConverters, shared

from gbun.collectives.wire import FORMATS
from gbun.config import parameter_fields
from gbun.defaults import resolve_seed
from gbun.launcher import TIMEOUT
from gbun.ranges import Choice, Interval, Range

Self = TypeVar("Self", bound="GBUNParams")


def _within_range(name: str, allowed: Range) -> Callable[[Any], Any]:
    """Make a converter that refuses values out of range; Spark expects a TypeError.

    `fit` checks the rules between parameters, and `gbun.train` on the workers checks all of them again.
    """
    takes_objects = isinstance(allowed, Choice) and allowed.objects

    def convert(value: Any) -> Any:
        value = value.item() if isinstance(value, np.generic) else value  # JSON cannot write NumPy's numbers
        if name == "random_state":
            return None if value is None else resolve_seed(value)
        # A file has "<name>" in the place of a function; `fit` then asks for the function.
        is_function_name = takes_objects and isinstance(value, str) and value.startswith("<")
        if not allowed.admits(value) and not is_function_name:
            raise TypeError(f"{name} must be {allowed}, got {value!r}")
        return value

    return convert


SPARK_PARAMETERS: dict[str, tuple[str, Callable[[Any], Any] | Range, Any]] = {
    "featuresCol": (
        "features: a column of vectors, of arrays of numbers or of strings (tokens), or a list of plain columns.",
        lambda value: value if isinstance(value, str) else TypeConverters.toListString(value), "features"),
    "categoricalCols": (
        "which plain columns hold categories though their type is a number; strings always are.",
        TypeConverters.toListString, []),
    "contributionsCol": (
        "a column that transform adds: what each column of the features adds to the scores, and the base as the last "
        "element; None: no such column.",
        lambda value: None if value is None else TypeConverters.toString(value), None),
    "numWorkers": (
        "number of tasks that train together, each on its share of the rows. None: one for each task slot there is.",
        Interval(1, math.inf, integral=True, optional=True), None),
    "repartition": (
        "whether rows are distributed evenly to the workers. False: they stay in their partitions, which must be as "
        "many as workers.", TypeConverters.toBoolean, True),
    "checkpointPath": (
        "a folder that every executor reaches under this name. With it Spark tries again if a worker is lost, and "
        "training continues from the last checkpoint.",
        lambda value: None if value is None else TypeConverters.toString(value), None),
    "checkpointInterval": ("rounds from one checkpoint to the next.", Interval(1, math.inf, integral=True), 10),
    "timeout": (
        "seconds of silence after which a worker counts as lost; also how long the driver waits, after executors were "
        "lost, until there are slots for all workers again.", Interval(0, math.inf, "neither"), TIMEOUT),
    "transport": (
        "number format in which workers send sums: 'float32', 'float64', or 'int16' for slow links.",
        Choice(FORMATS), "float32"),
    "onProgress": (
        "a function that the driver calls with a gbun.spark.RoundProgress of each round.",
        TypeConverters.identity, None),
}  # fmt: skip
"""Parameters of the cluster: sentence, converter or range, default."""

OTHER_LIBRARY_HINTS = {
    **dict.fromkeys(("max_depth", "max_leaves", "max_bin", "tree_method", "grow_policy", "gamma", "min_child_weight",
                     "subsample", "colsample_bytree"), "it is one of trees; n_neurons is the size of a round"),
    **dict.fromkeys(("missing", "enable_sparse_data_optim"), "leave it out: sparse vectors stay sparse"),
    "use_gpu": "say device='cuda'", "num_round": "say n_estimators", "class_weight": "give rows weights by weightCol",
    "pred_contrib_col": "it is contributionsCol here", "features_shap_col": "it is contributionsCol here",
    "xgb_model": "checkpointPath goes on from where a training was cut short",
}  # fmt: skip
"""Parameters of other libraries, and what to use instead."""


def to_camel_case(name: str) -> str:
    """
    >>> to_camel_case("features_col"), to_camel_case("num_workers"), to_camel_case("timeout")
    ('featuresCol', 'numWorkers', 'timeout')
    """
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


class GBUNParams(shared.HasLabelCol, shared.HasWeightCol, shared.HasPredictionCol, shared.HasValidationIndicatorCol):
    """Parameters of all estimators and models."""

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(
            **{name: default for name, (_, _, default) in SPARK_PARAMETERS.items()},
            **{field.name: field.default for field in parameter_fields()},
        )

    def setParams(self: Self, **params: Any) -> Self:
        """Set parameters by name; names of Spark may be written with underscores, as in xgboost.spark."""
        known, values = [param.name for param in self.params], dict[str, Any]()
        for key, value in params.items():
            name = key if key in known else to_camel_case(key)
            if name not in known:
                near = [f"did you mean {n!r}?" for n in difflib.get_close_matches(key, known, n=1)]
                hint = OTHER_LIBRARY_HINTS.get(key) or (near or ["known are " + ", ".join(known)])[0]
                raise ValueError(f"unknown parameter {key!r}; {hint}")
            if name in values:
                raise ValueError(f"{name} is given twice, also as {key!r}")
            values[name] = value
        return self._set(**values)

    def get_or_none(self, name: str) -> Any:
        """Return the value of a parameter; None if it has none, or an empty name."""
        value = self.getOrDefault(name) if self.isDefined(name) else None
        return None if value == "" else value

    def training_parameters(self) -> dict[str, Any]:
        """Return the parameters of `gbun.train`."""
        return {field.name: self.getOrDefault(field.name) for field in parameter_fields()}


class ClassifierParams(GBUNParams, shared.HasProbabilityCol, shared.HasRawPredictionCol):
    """Parameters of classifiers."""


for _name, _doc, _converter in [
    *((name, doc, converter) for name, (doc, converter, _) in SPARK_PARAMETERS.items()),
    *((field.name, field.metadata["sentence"], field.metadata["range"]) for field in parameter_fields()),
]:
    _convert = _converter if callable(_converter) else _within_range(_name, _converter)
    setattr(GBUNParams, _name, Param(Params._dummy(), _name, _doc, typeConverter=_convert))


def add_accessors(cls: type[Self]) -> type[Self]:
    """Add setFeaturesCol, getFeaturesCol and so on for the parameters with names in Spark's style."""
    training_parameters = {field.name for field in parameter_fields()}
    for name in dir(cls):
        if isinstance(getattr(cls, name), Param) and name not in training_parameters:
            for verb, accessor in zip(("set", "get"), _make_accessors(name), strict=True):
                accessor_name = f"{verb}{name[0].upper()}{name[1:]}"
                if not hasattr(cls, accessor_name):
                    setattr(cls, accessor_name, accessor)
    return cls


def _make_accessors(name: str) -> tuple[Callable[[Any, Any], Any], Callable[[Any], Any]]:
    def setter(self: Any, value: Any) -> Any:
        return self._set(**{name: value})

    def getter(self: Any) -> Any:
        return self.getOrDefault(name)

    setter.__doc__, getter.__doc__ = f"Set `{name}`.", f"Return the value of `{name}`."
    return setter, getter
