"""From the columns of a Spark data frame to those that workers read: their kinds, checked, in Arrow's terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyspark.sql.functions as F
from pyspark.ml.linalg import VectorUDT
from pyspark.mllib.linalg import VectorUDT as OldVectorUDT
from pyspark.sql.types import ArrayType, BooleanType, IntegralType, NumericType, StringType, StructType

from gbun.spark.params import GBUNParams
from gbun.spark.rows import FEATURES, INDICATOR, LABEL, WEIGHT, Columns


def columns_of(schema: StructType, params: GBUNParams, training: bool = False) -> Columns:
    """What `params` say about columns of a frame of this `schema`."""
    given = params.getOrDefault("featuresCol")
    names = (given,) if isinstance(given, str) else tuple(given)
    _check_names(names)
    kind = _kind([_type(schema, name, "featuresCol") for name in names], names)
    categorical = tuple(params.getOrDefault("categoricalCols"))
    unknown = [name for name in categorical if kind != "columns" or name not in names]
    if unknown:
        raise ValueError(
            f"categoricalCols must be some of the plain columns of featuresCol {list(names)}, got {unknown}"
        )
    if not training:
        return Columns(kind, names, categorical)
    columns = Columns(
        kind, names, categorical, params.getOrDefault("labelCol"), params.given("weightCol"),
        params.given("validationIndicatorCol"),
    )  # fmt: skip
    _check_training(schema, columns)
    return columns


def _check_names(names: Sequence[str]) -> None:
    if not names:
        raise ValueError("featuresCol must name at least one column, got an empty list")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"featuresCol has {twice!r} twice; columns must differ")


def _type(schema: StructType, name: str, parameter: str) -> Any:
    if name not in schema.names:
        raise ValueError(f"{parameter}={name!r} is no column of the data frame; it has {', '.join(schema.names)}")
    return schema[name].dataType


def _kind(types: Sequence[Any], names: Sequence[str]) -> str:
    if len(types) == 1:
        one = types[0]
        if isinstance(one, (VectorUDT, OldVectorUDT)):
            return "vector"
        if isinstance(one, ArrayType) and isinstance(one.elementType, StringType):
            return "tokens"
        if isinstance(one, ArrayType) and isinstance(one.elementType, (NumericType, BooleanType)):
            return "array"
    for name, kind in zip(names, types, strict=True):
        if not isinstance(kind, (NumericType, BooleanType, StringType)):
            raise ValueError(
                f"featuresCol: column {name!r} has type {kind.simpleString()}; "
                + (
                    "a list must name plain columns: numbers, booleans, strings (VectorAssembler joins vectors)"
                    if len(names) > 1
                    else "columns must hold vectors, arrays of numbers or of strings, numbers, booleans or strings"
                )
                + " (turn dates into numbers such as days since a date)"
            )
    return "columns"


def _check_training(schema: StructType, columns: Columns) -> None:
    label = _type(schema, columns.label, "labelCol")
    if isinstance(label, StringType):
        raise ValueError(
            f"labelCol: column {columns.label!r} holds strings; StringIndexer of pyspark.ml makes numbers of them, and "
            "IndexToString turns predictions back"
        )
    if not isinstance(label, (NumericType, BooleanType)):
        raise ValueError(f"labelCol: column {columns.label!r} must hold numbers, got {label.simpleString()}")
    if columns.weight is not None:
        kind = _type(schema, columns.weight, "weightCol")
        if not isinstance(kind, NumericType):
            raise ValueError(f"weightCol: column {columns.weight!r} must hold numbers, got {kind.simpleString()}")
    if columns.indicator is not None:
        kind = _type(schema, columns.indicator, "validationIndicatorCol")
        if not isinstance(kind, BooleanType):
            raise ValueError(
                f"validationIndicatorCol: column {columns.indicator!r} must be boolean, got {kind.simpleString()}"
            )


def features(schema: StructType, columns: Columns) -> Any:
    """The features of a row as one struct: a vector's parts, an array, or plain columns by name."""
    named = [(name, column(name)) for name in columns.features]
    if columns.kind == "vector":
        return _vector(F.unwrap_udt(named[0][1]))
    if columns.kind == "array":
        return F.struct(named[0][1].cast("array<double>").alias("array"))
    if columns.kind == "tokens":
        return F.struct(named[0][1].alias("tokens"))
    return F.struct(*[_cast(c, schema[name].dataType, name in columns.categorical).alias(name) for name, c in named])


def _vector(parts: Any) -> Any:
    """A vector's parts. Dense ones have neither size nor indices; a null list takes Spark six times as long to write to
    Arrow as an empty one (100,000 vectors of 10: 3.8 s and .6 s)."""
    size = F.coalesce(parts["size"], F.lit(0)).alias("size")
    indices = F.coalesce(parts["indices"], F.array().cast("array<int>")).alias("indices")
    there = F.struct(parts["type"].alias("type"), size, indices, parts["values"].alias("values"))
    return F.when(parts.isNotNull(), there)


def _cast(values: Any, kind: Any, categorical: bool) -> Any:
    if isinstance(kind, StringType):
        return values
    # Identifiers may be longer than a float64 can tell apart.
    return values.cast("string" if categorical and isinstance(kind, IntegralType) else "double")


def selected(dataset: Any, columns: Columns) -> Any:
    """What workers read of a data frame, and nothing else of it."""
    # Integers stay integers: they are labels, whatever their number.
    whole = isinstance(dataset.schema[columns.label].dataType, (IntegralType, BooleanType))
    wanted = {
        FEATURES: features(dataset.schema, columns),
        LABEL: column(columns.label).cast("bigint" if whole else "double"),
    }
    if columns.weight is not None:
        wanted[WEIGHT] = column(columns.weight).cast("double")
    if columns.indicator is not None:
        wanted[INDICATOR] = column(columns.indicator)
    return dataset.select(*[values.alias(name) for name, values in wanted.items()])


def by_rows(values: Any) -> Any:
    """The same values, made row by row before a Python function gets them.

    Spark 4.3 hands rows of a columnar source, such as Parquet, on to Arrow functions without making rows of them, and
    fails where any of their columns are vectors. What depends on a row's number cannot be computed there.
    """
    return F.when(F.monotonically_increasing_id() >= 0, values)


def column(name: str) -> Any:
    """A column by its whole name, dots and all."""
    return F.col(f"`{name.replace('`', '``')}`")
