"""Parameters of the Spark estimators: Spark's own, and every training parameter of gbun, taken from `gbun.config`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import Field
from typing import Any, TypeVar

import numpy as np
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import (
    HasLabelCol,
    HasPredictionCol,
    HasProbabilityCol,
    HasRawPredictionCol,
    HasValidationIndicatorCol,
    HasWeightCol,
)

from gbun.collectives.wire import FORMATS
from gbun.config import parameter_fields
from gbun.defaults import seed_of
from gbun.launcher import TIMEOUT

Self = TypeVar("Self", bound="GBUNParams")


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's, which JSON can write."""
    return value.item() if isinstance(value, np.generic) else value


def _names(value: Any) -> Any:
    return value if isinstance(value, str) else TypeConverters.toListString(value)


def _optional(converter: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """None, which a file holds where it was said, is as good as a value."""
    return lambda value: None if value is None else converter(value)


def _at_least_one(name: str) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        number = _plain(value)
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise TypeError(f"{name} must be an integer of at least 1, got {value!r}")
        return number

    return convert


def _seconds(value: Any) -> float:
    number = _plain(value)
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not number > 0:
        raise TypeError(f"timeout must be a positive number of seconds, got {value!r}")
    return float(number)


def _transport(value: Any) -> str:
    if value not in FORMATS:
        raise TypeError(f"transport must be one of {', '.join(FORMATS)}, got {value!r}")
    return str(value)


def _within_range(field: Field[Any]) -> Callable[[Any], Any]:
    """What `gbun.config` admits, as it is: numbers, names, None, functions."""
    admitted = field.metadata["range"]

    def convert(value: Any) -> Any:
        value = _plain(value)
        if field.name == "random_state":
            return None if value is None else seed_of(value)
        if isinstance(value, str) and value.startswith("<"):
            return value  # the name of a function, all that a file holds of it: `fit` asks for the function
        if not admitted.admits(value):
            raise TypeError(f"{field.name} must be {admitted}, got {value!r}")
        return value

    return convert


def camel(name: str) -> str:
    """
    >>> camel("features_col"), camel("num_workers"), camel("timeout")
    ('featuresCol', 'numWorkers', 'timeout')
    """
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _param(name: str, doc: str, converter: Callable[[Any], Any]) -> Any:
    return Param(Params._dummy(), name, doc, typeConverter=converter)


ELSEWHERE = {
    **dict.fromkeys(("max_depth", "max_leaves", "max_bin", "tree_method", "grow_policy", "gamma", "min_child_weight",
                     "subsample", "colsample_bytree"), "it is one of trees; n_neurons is the size of a round"),
    **dict.fromkeys(("missing", "enable_sparse_data_optim"), "leave it out: sparse vectors stay sparse"),
    "use_gpu": "say device='cuda'", "num_round": "say n_estimators", "class_weight": "give rows weights by weightCol",
    "xgb_model": "checkpointPath goes on from where a training was cut short",
}  # fmt: skip
"""Parameters that others have, and what to say instead."""


def _hint(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return ELSEWHERE.get(name) or (f"did you mean {near[0]!r}?" if near else "known are " + ", ".join(known))


class GBUNParams(HasLabelCol, HasWeightCol, HasPredictionCol, HasValidationIndicatorCol):
    """Parameters of estimators and models for numbers and classes alike."""

    featuresCol = _param(
        "featuresCol",
        "features: a column of vectors, of arrays of numbers or of strings (tokens), or a list of plain columns.",
        _names,
    )
    categoricalCols = _param(
        "categoricalCols",
        "which plain columns hold categories though their type is a number; strings always are.",
        TypeConverters.toListString,
    )
    numWorkers = _param(
        "numWorkers",
        "number of tasks that train together, each on its share of the rows. None: one for each task slot there is.",
        _optional(_at_least_one("numWorkers")),
    )
    repartition = _param(
        "repartition",
        "whether rows are dealt out evenly to the workers. False: they stay in their partitions, which must be as many "
        "as workers.",
        TypeConverters.toBoolean,
    )
    checkpointPath = _param(
        "checkpointPath",
        "a folder that every executor reaches under this name. With it Spark tries again where a worker is lost, and "
        "training goes on from the last checkpoint.",
        _optional(TypeConverters.toString),
    )
    checkpointInterval = _param(
        "checkpointInterval", "rounds from one checkpoint to the next.", _at_least_one("checkpointInterval")
    )
    timeout = _param(
        "timeout",
        "seconds of silence after which a worker is given up; also how long the driver waits, where executors were "
        "lost, until there are slots for all workers again.",
        _seconds,
    )
    transport = _param(
        "transport", "how sums are written on the way: 'float32', 'float64', or 'int16' for slow links.", _transport
    )
    onProgress = _param(
        "onProgress",
        "a function that the driver calls with a gbun.spark.Report of each round.",
        TypeConverters.identity,
    )

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(
            featuresCol="features", categoricalCols=[], numWorkers=None, repartition=True, checkpointPath=None,
            checkpointInterval=10, timeout=TIMEOUT, transport="float32", onProgress=None,
            **{field.name: field.default for field in parameter_fields()},
        )  # fmt: skip

    def setParams(self: Self, **params: Any) -> Self:
        """Set any parameters by name; those of Spark may be written with underscores, as xgboost.spark does."""
        known, named = [param.name for param in self.params], dict[str, Any]()
        for told, value in params.items():
            name = told if told in known else camel(told)
            if name not in known:
                raise ValueError(f"unknown parameter {told!r}; {_hint(told, known)}")
            if name in named:
                raise ValueError(f"{name} is given twice, also as {told!r}")
            named[name] = value
        return self._set(**named)

    def given(self, name: str) -> Any:
        """A parameter's value; None where it has none, or an empty name."""
        value = self.getOrDefault(name) if self.isDefined(name) else None
        return None if value == "" else value

    def training_parameters(self) -> dict[str, Any]:
        """Those of gbun, as `gbun.train` takes them."""
        return {field.name: self.getOrDefault(field.name) for field in parameter_fields()}


class ClassifierParams(GBUNParams, HasProbabilityCol, HasRawPredictionCol):
    """Those of classifiers."""


for _field in parameter_fields():
    setattr(GBUNParams, _field.name, _param(_field.name, _field.metadata["sentence"], _within_range(_field)))


def with_setters(cls: type[Self]) -> type[Self]:
    """setFeaturesCol and the like, getFeaturesCol and the like, for the parameters that are called as Spark's are."""
    of_gbun = {field.name for field in parameter_fields()}
    for name in dir(cls):
        if isinstance(getattr(cls, name), Param) and name not in of_gbun:
            setter, getter = (f"{verb}{name[0].upper()}{name[1:]}" for verb in ("set", "get"))
            if not hasattr(cls, setter):
                setattr(cls, setter, _setter(name))
            if not hasattr(cls, getter):
                setattr(cls, getter, _getter(name))
    return cls


def _setter(name: str) -> Callable[[Any, Any], Any]:
    def setter(self: Any, value: Any) -> Any:
        return self._set(**{name: value})

    setter.__doc__ = f"Set `{name}`."
    return setter


def _getter(name: str) -> Callable[[Any], Any]:
    def getter(self: Any) -> Any:
        return self.getOrDefault(name)

    getter.__doc__ = f"The value of `{name}`."
    return getter
