"""Prediction on Spark: the model is broadcast once, and each Python process reads it once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import functions as spark_functions

from gbun.model import Model, model_from_bytes
from gbun.spark.contributions import CONTRIBUTIONS, INDICES, TOKENS, contribution_arrays
from gbun.spark.rows import InputColumns, VectorReader, make_reader

PREDICTION, PROBABILITY, RAW = "prediction", "probability", "rawPrediction"
functions: Any = spark_functions
NUMBERS = pa.list_(pa.float64())
OUTPUT_TYPES = {
    PREDICTION: ("double", pa.float64()),
    PROBABILITY: ("array<double>", NUMBERS),
    RAW: ("array<double>", NUMBERS),
    CONTRIBUTIONS: ("array<array<double>>", pa.list_(NUMBERS)),
    INDICES: ("array<int>", pa.list_(pa.int32())),
    TOKENS: ("array<string>", pa.list_(pa.string())),
}
"""The type of each output in Spark and in Arrow."""
_SCORED = {PREDICTION, PROBABILITY, RAW}
STRUCT_TYPES = {
    "vector": {"type": pa.int8(), "size": pa.int32(), "indices": pa.list_(pa.int32()), "values": NUMBERS},
    "array": {"array": NUMBERS},
    "tokens": {"tokens": pa.list_(pa.string())},
}
"""Fields of the features' struct; plain columns are numbers or strings."""

MAX_CACHED_MODELS = 4  # in a process: those of a pipeline or of a comparison

_model_cache: dict[bytes, Model] = {}
"""The models that this process has used last, by digest."""


def cached_model(digest: bytes, content: bytes) -> Model:
    """Read a model once in a process; `digest` identifies its bytes."""
    model = _model_cache.pop(digest, None) or model_from_bytes(content, "the broadcast model")
    _model_cache[digest] = model  # the most recently used model is the last
    for old in list(_model_cache)[:-MAX_CACHED_MODELS]:
        _model_cache.pop(old, None)
    return model


def make_predictor(broadcast: Any, columns: InputColumns, outputs: Sequence[str], n_jobs: int) -> Any:
    """Make a function of Spark columns: features in one struct -> a struct of the `outputs`.

    `broadcast` has the digest and the bytes of a `.gbun` file.
    """

    # Spark reads the kind of such a function from its annotations.
    def arrow(struct: pa.Array) -> pa.Array:
        return predict_batch(cached_model(*broadcast.value), struct, columns, outputs, n_jobs)

    def pandas(struct: pd.DataFrame) -> pd.DataFrame:
        predicted = arrow(_to_struct(struct, columns))
        frame: pd.DataFrame = pd.DataFrame({name: _to_pandas(predicted.field(name)) for name in outputs})
        return frame

    schema = "struct<" + ", ".join(f"{name}: {OUTPUT_TYPES[name][0]}" for name in outputs) + ">"
    if hasattr(functions, "arrow_udf"):  # Spark 4.1 and later
        return functions.arrow_udf(arrow, schema)
    return functions.pandas_udf(pandas, schema)


def _to_pandas(values: Any) -> Any:
    """Convert an Arrow array to what Spark reads: pandas makes arrays of arrays of nested lists, and Spark lists."""
    nested = pa.types.is_list(values.type) and pa.types.is_list(values.type.value_type)
    return values.to_pylist() if nested else values.to_pandas()


def _to_struct(frame: pd.DataFrame, columns: InputColumns) -> Any:
    """Convert a frame that pandas made of a struct back to the struct, with its types.

    pandas turns integers with nulls into floats, and a batch of nulls does not show that it has strings.
    """
    types = STRUCT_TYPES.get(columns.kind, {})
    arrays = []
    for name in frame.columns:
        plain = pa.float64() if pd.api.types.is_numeric_dtype(frame[name]) else pa.string()
        arrays.append(pa.Array.from_pandas(frame[name], type=types.get(name, plain)))
    null = arrays[0].is_null() if columns.kind == "vector" else None  # a vector whose type is null is null
    return pa.StructArray.from_arrays(arrays, [str(name) for name in frame.columns], mask=null)


def predict_batch(model: Model, struct: Any, columns: InputColumns, outputs: Sequence[str], n_jobs: int) -> Any:
    """Compute the `outputs` for the rows of a batch, from one pass through the model."""
    if not len(struct):
        return pa.StructArray.from_arrays([pa.array([], OUTPUT_TYPES[name][1]) for name in outputs], list(outputs))
    rows, contributions = read_rows(struct, columns), dict[str, Any]()
    try:
        # Contributions alone need no scores.
        scores = model.decision_function(rows, n_jobs=n_jobs) if _SCORED & set(outputs) else np.zeros((0, 1))
        if CONTRIBUTIONS in outputs:
            contributions = contribution_arrays(model, rows, n_jobs)
    except ValueError as error:
        raise ValueError(f"{error} ({columns})") from None
    scores = scores[:, None] if scores.ndim == 1 else scores
    make = {
        PREDICTION: lambda: pa.array(model._prediction(scores).astype(np.float64)),
        PROBABILITY: lambda: _to_lists(model._probabilities(scores)),
        # Two classes have one score; Spark's evaluators want a number for each class.
        RAW: lambda: _to_lists(np.hstack([-scores, scores]) if scores.shape[1] == 1 else scores),
    }
    arrays = [contributions[name] if name in contributions else make[name]() for name in outputs]
    return pa.StructArray.from_arrays(arrays, list(outputs))


def read_rows(struct: Any, columns: InputColumns) -> Any:
    """Read the rows of a batch, in the form that `gbun.Model` takes."""
    rows = make_reader(columns)
    rows.add(struct)
    dense = isinstance(rows, VectorReader) and VectorReader.is_dense([rows.layout_stats()])
    return rows.take_rows(dense)


def _to_lists(matrix: Any) -> Any:
    offsets = pa.array(np.arange(0, matrix.size + 1, matrix.shape[1]), pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(matrix.reshape(-1).astype(np.float64)))
