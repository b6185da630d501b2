"""Sparse rows as a Parquet file that Spark reads as a label and a vector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.ml.linalg import VectorUDT
from pyspark.sql.types import DoubleType, StructField, StructType

ROWS_OF_SPARK = "org.apache.spark.sql.parquet.row.metadata"
GROUP = 2**16  # rows of a row group: Spark reads each in a task of its own, if there are as many


def write(X: Any, y: Any, path: Path) -> None:
    """Written directly, in the form that Spark would have written: a million vectors of Python take minutes."""
    n, m = X.shape
    lists = [pa.LargeListArray.from_arrays(X.indptr.astype(np.int64), values).cast(pa.list_(kind)) for values, kind in (
        (pa.array(X.indices.astype(np.int32)), pa.int32()), (pa.array(X.data.astype(np.float64)), pa.float64())
    )]  # fmt: skip
    parts = [pa.array(np.zeros(n, dtype=np.int8)), pa.array(np.full(n, m, dtype=np.int32)), *lists]
    fields = [
        pa.field("type", pa.int8(), nullable=False), pa.field("size", pa.int32()),
        pa.field("indices", pa.list_(pa.int32())), pa.field("values", pa.list_(pa.float64())),
    ]  # fmt: skip
    vectors = pa.StructArray.from_arrays(parts, fields=fields)
    schema = StructType([StructField("label", DoubleType()), StructField("features", VectorUDT())])
    table = pa.table({"label": pa.array(np.asarray(y, dtype=np.float64)), "features": vectors})
    pq.write_table(table.replace_schema_metadata({ROWS_OF_SPARK: schema.json()}), path, row_group_size=GROUP)
