"""Prediction on Spark: the model is broadcast once, and read once by each Python process that predicts."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import functions as spark_functions

from gbun.model import Model, load_model
from gbun.spark.rows import Columns, Matrix, reader

PREDICTION, PROBABILITY, RAW = "prediction", "probability", "rawPrediction"
functions: Any = spark_functions
TYPES = {PREDICTION: "double", PROBABILITY: "array<double>", RAW: "array<double>"}
PARTS = {
    "vector": {
        "type": pa.int8(),
        "size": pa.int32(),
        "indices": pa.list_(pa.int32()),
        "values": pa.list_(pa.float64()),
    },
    "array": {"array": pa.list_(pa.float64())},
    "tokens": {"tokens": pa.list_(pa.string())},
}
"""What the features' struct consists of; plain columns are numbers or strings."""

KEPT = 4  # models that a process keeps, those of a pipeline or of a comparison

_known: dict[bytes, Model] = {}
"""The models that this process has predicted with last, by their digests."""


def digest_of(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def model_from(content: bytes) -> Model:
    """The model in the bytes of a `.gbun` file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gbun"
        path.write_bytes(content)
        return load_model(path)


def known_model(digest: bytes, content: bytes) -> Model:
    """`model_from`, once in a process."""
    model = _known.pop(digest, None) or model_from(content)
    _known[digest] = model  # the last one comes last
    for old in list(_known)[:-KEPT]:
        _known.pop(old, None)
    return model


def predictor(broadcast: Any, columns: Columns, wanted: Sequence[str], n_jobs: int) -> Any:
    """A function of Spark columns: features in one struct -> a struct of what is `wanted`.

    `broadcast` has the digest and the bytes of a `.gbun` file.
    """

    # What Spark asks of such functions is told by their annotations.
    def arrow(struct: pa.Array) -> pa.Array:
        return predicted(known_model(*broadcast.value), struct, columns, wanted, n_jobs)

    def pandas(struct: pd.DataFrame) -> pd.DataFrame:
        found = arrow(_struct(struct, columns))
        return pd.DataFrame({name: found.field(name).to_pandas() for name in wanted})  # type: ignore[no-any-return]

    schema = "struct<" + ", ".join(f"{name}: {TYPES[name]}" for name in wanted) + ">"
    if hasattr(functions, "arrow_udf"):  # Spark 4.1 and later
        return functions.arrow_udf(arrow, schema)
    return functions.pandas_udf(pandas, schema)


def _struct(frame: pd.DataFrame, columns: Columns) -> Any:
    """A struct that pandas holds as a frame, of the types it had: pandas makes floats of integers where some are null,
    and of a batch of nulls nobody could tell that they are strings."""
    types = PARTS.get(columns.kind, {})
    arrays = []
    for name in frame.columns:
        plain = pa.float64() if pd.api.types.is_numeric_dtype(frame[name]) else pa.string()
        arrays.append(pa.Array.from_pandas(frame[name], type=types.get(name, plain)))
    null = arrays[0].is_null() if columns.kind == "vector" else None  # whose type is null has no part
    return pa.StructArray.from_arrays(arrays, [str(name) for name in frame.columns], mask=null)


def predicted(model: Model, struct: Any, columns: Columns, wanted: Sequence[str], n_jobs: int) -> Any:
    """Predictions for the rows of a batch, of as many kinds as are wanted, from one pass through the model."""
    if not len(struct):
        arrays = [pa.array([], pa.float64() if name == PREDICTION else pa.list_(pa.float64())) for name in wanted]
        return pa.StructArray.from_arrays(arrays, list(wanted))
    rows = reader(columns)
    rows.add(struct)
    dense = isinstance(rows, Matrix) and Matrix.is_dense([rows.said()])
    try:
        scores = model.decision_function(rows.rows(dense), n_jobs=n_jobs)
    except ValueError as error:
        raise ValueError(f"{error} ({columns})") from None
    scores = scores[:, None] if scores.ndim == 1 else scores
    made = {
        PREDICTION: lambda: pa.array(model._prediction(scores).astype(np.float64)),
        PROBABILITY: lambda: _lists(model._probabilities(scores)),
        # One score tells two classes apart: Spark's evaluators want a number for each.
        RAW: lambda: _lists(np.hstack([-scores, scores]) if scores.shape[1] == 1 else scores),
    }
    return pa.StructArray.from_arrays([made[name]() for name in wanted], list(wanted))


def _lists(matrix: Any) -> Any:
    offsets = pa.array(np.arange(0, matrix.size + 1, matrix.shape[1]), pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(matrix.reshape(-1).astype(np.float64)))
