"""From the columns of a Spark data frame to those that workers read: their kinds, checked, in Arrow's terms."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyspark.sql.functions as F
from pyspark.ml.linalg import VectorUDT
from pyspark.mllib.linalg import VectorUDT as OldVectorUDT
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DateType,
    IntegralType,
    MapType,
    NullType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from gbun.data.features import Schema
from gbun.spark.params import GBUNParams
from gbun.spark.rows import FEATURES, INDICATOR, LABEL, WEIGHT, Columns

TIMES = (TimestampType, TimestampNTZType, DateType)
CONVERSIONS = {
    TimestampType: ('{}.cast("double")', "seconds since 1970"),
    TimestampNTZType: ('{}.cast("timestamp").cast("double")', "seconds since 1970"),
    DateType: ("F.unix_date({})", "days since 1970"),
    ArrayType: ('{}.cast("array<double>")', "in a featuresCol of its own"),
    MapType: ('{}["key"]', "a column for each key"),
    StructType: ('{}["field"]', "a column for each field"),
    NullType: ('{}.cast("double")', "missing numbers"),
}
"""How Spark makes of a column what can be read, and what that is."""


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
                    "a list must name plain columns: numbers, booleans, strings"
                    if len(names) > 1
                    else "columns must hold vectors, arrays of numbers or of strings, numbers, booleans or strings"
                )
                + f"; {_advice(name, kind)}"
            )
    return "columns"


def _advice(name: str, kind: Any) -> str:
    """How Spark makes of a column what can be read."""
    if isinstance(kind, (VectorUDT, OldVectorUDT)):
        return "VectorAssembler of pyspark.ml joins vectors and numbers"
    how, what = CONVERSIONS.get(type(kind), ('{}.cast("string")', "each value is a category"))
    return f"convert it: df.withColumn({_quoted(name)}, {how.format(_code(name))}), {what}"


def _cast_to(name: str, kind: str) -> str:
    return f'convert it: df.withColumn({_quoted(name)}, {_code(name)}.cast("{kind}"))'


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _code(name: str) -> str:
    """A column, as one writes it."""
    plain = name.replace("_", "a").isalnum()
    return f"F.col({_quoted(name if plain else _whole(name))})"


def check_as_trained(schema: StructType, columns: Columns, known: Schema) -> None:
    """Plain columns must hold numbers where they did in training, and categories where they did."""
    for name in columns.features if (columns.kind, known.kind) == ("columns", "frame") else ():
        kind, said = schema[name].dataType, name in columns.categorical
        now = said or isinstance(kind, StringType)
        if now != (name in known.categorical):
            was = "categories" if name in known.categorical else "numbers"
            advice = "leave it out of categoricalCols" if said else _cast_to(name, "double" if now else "string")
            raise ValueError(
                f"featuresCol: column {name!r} held {was} in training and has type {kind.simpleString()} now; {advice}"
            )


def _check_training(schema: StructType, columns: Columns) -> None:
    label = _type(schema, columns.label, "labelCol")
    if isinstance(label, StringType):
        raise ValueError(
            f"labelCol: column {columns.label!r} holds strings; StringIndexer of pyspark.ml makes numbers of them, and "
            "IndexToString turns predictions back"
        )
    if not isinstance(label, (NumericType, BooleanType)):
        raise ValueError(
            f"labelCol: column {columns.label!r} must hold numbers, got {label.simpleString()}"
            + (f"; {_advice(columns.label, label)}" if isinstance(label, TIMES) else "")
        )
    if columns.weight is not None:
        kind = _type(schema, columns.weight, "weightCol")
        if not isinstance(kind, NumericType):
            raise ValueError(
                f"weightCol: column {columns.weight!r} must hold numbers, got {kind.simpleString()}; "
                + _cast_to(columns.weight, "double")
            )
    if columns.indicator is not None:
        kind = _type(schema, columns.indicator, "validationIndicatorCol")
        if not isinstance(kind, BooleanType):
            raise ValueError(
                f"validationIndicatorCol: column {columns.indicator!r} must be boolean, got {kind.simpleString()}; "
                + _cast_to(columns.indicator, "boolean")
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
    return F.col(_whole(name))


def _whole(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
