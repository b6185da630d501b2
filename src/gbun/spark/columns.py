"""Columns of a Spark data frame: which of them workers read, what types they must have, and how they are converted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyspark.sql.functions as F
import pyspark.sql.types as T
from pyspark.ml.linalg import VectorUDT
from pyspark.mllib.linalg import VectorUDT as OldVectorUDT

from gbun.data.features import Schema
from gbun.spark.params import GBUNParams
from gbun.spark.rows import FEATURES, INDICATOR, LABEL, WEIGHT, InputColumns

TIMES = (T.TimestampType, T.TimestampNTZType, T.DateType)
CONVERSIONS = {
    T.TimestampType: ('{}.cast("double")', "seconds since 1970"),
    T.TimestampNTZType: ('{}.cast("timestamp").cast("double")', "seconds since 1970"),
    T.DateType: ("F.unix_date({})", "days since 1970"),
    T.ArrayType: ('{}.cast("array<double>")', "in a featuresCol of its own"),
    T.MapType: ('{}["key"]', "a column for each key"),
    T.StructType: ('{}["field"]', "a column for each field"),
    T.NullType: ('{}.cast("double")', "missing numbers"),
}
"""How Spark converts columns of other types, and what the result is."""


def resolve_columns(schema: T.StructType, params: GBUNParams, training: bool = False) -> InputColumns:
    """Find the columns that `params` name in a frame of this `schema`, and check their types."""
    given = params.getOrDefault("featuresCol")
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names:
        raise ValueError("featuresCol must name at least one column, got an empty list")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"featuresCol has {twice!r} twice; columns must differ")
    kind = _feature_kind([_column_type(schema, name, "featuresCol") for name in names], names)
    categorical = tuple(params.getOrDefault("categoricalCols"))
    unknown = [name for name in categorical if kind != "columns" or name not in names]
    if unknown:
        raise ValueError(
            f"categoricalCols must be some of the plain columns of featuresCol {list(names)}, got {unknown}"
        )
    if not training:
        return InputColumns(kind, names, categorical)
    columns = InputColumns(
        kind, names, categorical, params.getOrDefault("labelCol"), params.get_or_none("weightCol"),
        params.get_or_none("validationIndicatorCol"),
    )  # fmt: skip
    _check_training(schema, columns)
    return columns


def _column_type(schema: T.StructType, name: str, parameter: str) -> Any:
    if name not in schema.names:
        raise ValueError(f"{parameter}={name!r} is no column of the data frame; it has {', '.join(schema.names)}")
    return schema[name].dataType


def _feature_kind(types: Sequence[Any], names: Sequence[str]) -> str:
    if len(types) == 1:
        type_ = types[0]
        if isinstance(type_, (VectorUDT, OldVectorUDT)):
            return "vector"
        if isinstance(type_, T.ArrayType) and isinstance(type_.elementType, T.StringType):
            return "tokens"
        if isinstance(type_, T.ArrayType) and isinstance(type_.elementType, (T.NumericType, T.BooleanType)):
            return "array"
    expected = "columns must hold vectors, arrays of numbers or of strings, numbers, booleans or strings"
    if len(names) > 1:
        expected = "a list must name plain columns: numbers, booleans, strings"
    for name, type_ in zip(names, types, strict=True):
        if not isinstance(type_, (T.NumericType, T.BooleanType, T.StringType)):
            raise ValueError(
                f"featuresCol: column {name!r} has type {type_.simpleString()}; {expected}; "
                + _conversion_advice(name, type_)
            )
    return "columns"


def _conversion_advice(name: str, type_: Any) -> str:
    """Return the line of Spark that converts a column to a type that can be read."""
    if isinstance(type_, (VectorUDT, OldVectorUDT)):
        return "VectorAssembler of pyspark.ml joins vectors and numbers"
    code, result = CONVERSIONS.get(type(type_), ('{}.cast("string")', "each value is a category"))
    return f"{_convert_advice(name, code)}, {result}"


def _convert_advice(name: str, code: str) -> str:
    is_plain = name.replace("_", "a").isalnum()
    quoted, reference = (
        json.dumps(text, ensure_ascii=False) for text in (name, name if is_plain else _escape_name(name))
    )
    return f"convert it: df.withColumn({quoted}, {code.format(f'F.col({reference})')})"


def check_matches_training(schema: T.StructType, columns: InputColumns, trained: Schema) -> None:
    """Check that plain columns hold numbers or categories as they did in training."""
    for name in columns.features if (columns.kind, trained.kind) == ("columns", "frame") else ():
        if name in trained.declared:  # numbers are categories there
            continue
        type_, declared = schema[name].dataType, name in columns.categorical
        categorical = declared or isinstance(type_, T.StringType)
        if categorical != (name in trained.categorical):
            before = "categories" if name in trained.categorical else "numbers"
            advice = _convert_advice(name, '{}.cast("double")' if categorical else '{}.cast("string")')
            raise ValueError(
                f"featuresCol: column {name!r} held {before} in training and has type {type_.simpleString()} now; "
                + ("leave it out of categoricalCols" if declared else advice)
            )


def _check_training(schema: T.StructType, columns: InputColumns) -> None:
    label = _column_type(schema, columns.label, "labelCol")
    if isinstance(label, T.StringType):
        raise ValueError(
            f"labelCol: column {columns.label!r} holds strings; StringIndexer of pyspark.ml makes numbers of them, and "
            "IndexToString turns predictions back"
        )
    if not isinstance(label, (T.NumericType, T.BooleanType)):
        raise ValueError(
            f"labelCol: column {columns.label!r} must hold numbers, got {label.simpleString()}"
            + (f"; {_conversion_advice(columns.label, label)}" if isinstance(label, TIMES) else "")
        )
    for parameter, name, allowed, words, target in (
        ("weightCol", columns.weight, T.NumericType, "hold numbers", "double"),
        ("validationIndicatorCol", columns.indicator, T.BooleanType, "be boolean", "boolean"),
    ):
        if name is None:
            continue
        type_ = _column_type(schema, name, parameter)
        if not isinstance(type_, allowed):
            raise ValueError(
                f"{parameter}: column {name!r} must {words}, got {type_.simpleString()}; "
                + _convert_advice(name, f'{{}}.cast("{target}")')
            )


def feature_struct(schema: T.StructType, columns: InputColumns) -> Any:
    """Put the features of a row into one struct: the fields of a vector, an array, or plain columns by name."""
    named = [(name, column(name)) for name in columns.features]
    if columns.kind == "vector":
        vector = F.unwrap_udt(named[0][1])
        # Dense vectors have neither size nor indices. Spark takes six times as long to write a null list to Arrow as an
        # empty one (100,000 vectors of 10: 3.8 s and .6 s).
        size = F.coalesce(vector["size"], F.lit(0)).alias("size")
        indices = F.coalesce(vector["indices"], F.array().cast("array<int>")).alias("indices")
        fields = F.struct(vector["type"].alias("type"), size, indices, vector["values"].alias("values"))
        return F.when(vector.isNotNull(), fields)
    if columns.kind == "array":
        return F.struct(named[0][1].cast("array<double>").alias("array"))
    if columns.kind == "tokens":
        return F.struct(named[0][1].alias("tokens"))
    return F.struct(*[_cast(c, schema[name].dataType, name in columns.categorical).alias(name) for name, c in named])


def _cast(values: Any, type_: Any, categorical: bool) -> Any:
    if isinstance(type_, T.StringType):
        return values
    # Identifiers may have more digits than a float64.
    return values.cast("string" if categorical and isinstance(type_, T.IntegralType) else "double")


def select_columns(dataset: Any, columns: InputColumns) -> Any:
    """Select the columns of a data frame that workers read."""
    # Integers stay integers: any integer may be a label.
    integral = isinstance(dataset.schema[columns.label].dataType, (T.IntegralType, T.BooleanType))
    selected = {
        FEATURES: feature_struct(dataset.schema, columns),
        LABEL: column(columns.label).cast("bigint" if integral else "double"),
    }
    if columns.weight is not None:
        selected[WEIGHT] = column(columns.weight).cast("double")
    if columns.indicator is not None:
        selected[INDICATOR] = column(columns.indicator)
    return dataset.select(*[values.alias(name) for name, values in selected.items()])


def force_row_evaluation(values: Any) -> Any:
    """Return the same values, computed row by row before a Python function gets them.

    Spark 4.3 passes rows of a columnar source, such as Parquet, to Arrow functions without making rows of them, and
    fails if any of their columns are vectors. An expression of the row's number cannot be computed that way.
    """
    return F.when(F.monotonically_increasing_id() >= 0, values)


def column(name: str) -> Any:
    """Return a column by its whole name, which may have dots."""
    return F.col(_escape_name(name))


def _escape_name(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
