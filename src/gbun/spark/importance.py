"""Importance of columns over the rows of a Spark data frame: each task sums, Spark adds the sums of the tasks."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyspark.sql.functions as F

from gbun.data.features import Schema
from gbun.explain import Explanation, Importance
from gbun.explain.explanation import check_top
from gbun.model import Model
from gbun.networks import hash_name
from gbun.spark.columns import feature_struct, force_row_evaluation
from gbun.spark.contributions import explain_blocks, sparse_parts
from gbun.spark.failures import explain_failure
from gbun.spark.prediction import cached_model, read_rows
from gbun.spark.rows import FEATURES, InputColumns

log = logging.getLogger("gbun.spark")

Key = int | str
COLUMN, TOTAL = "column", "total"


def importance(
    dataset: Any, model: Model, columns: InputColumns, top: int | None, broadcast: Any, n_jobs: int
) -> Importance:
    """Return the mean absolute contribution of each column over the rows of a data frame.

    `broadcast` has the digest and the bytes of the model, and `n_jobs` is the number of threads of a task.
    """
    if top is not None:
        check_top(top)
    schema = model.description.schema
    key_type = ("string", pa.string()) if schema.n_columns is None else ("bigint", pa.int64())
    sum_rows = partial(sum_contributions, broadcast=broadcast, columns=columns, n_jobs=n_jobs, key_type=key_type[1])
    rows = dataset.select(force_row_evaluation(feature_struct(dataset.schema, columns)).alias(FEATURES))
    sums = rows.mapInArrow(sum_rows, f"{COLUMN} {key_type[0]}, {TOTAL} double")
    totals = sums.groupBy(COLUMN).agg(F.sum(TOTAL).alias(TOTAL))
    if top is not None:  # and the number of rows, whose key is null
        totals = totals.orderBy(F.col(COLUMN).isNotNull(), F.col(TOTAL).desc(), COLUMN).limit(int(top) + 1)
    try:
        found: dict[Key | None, float] = dict(totals.collect())
    except Exception as error:
        raise _explain(error) or error from None
    n_rows = found.pop(None, 0.0)
    if not n_rows:
        raise ValueError(f"X has no rows ({columns})")
    return _assemble({key: total / n_rows for key, total in found.items() if key is not None}, schema, top)


def sum_contributions(
    batches: Iterable[Any], broadcast: Any, columns: InputColumns, n_jobs: int, key_type: Any
) -> Iterator[Any]:
    """Sum the absolute contributions of each column over the rows of a partition; the null key counts the rows."""
    totals, n_rows = dict[Key, float](), 0
    for batch in batches:
        if not batch.num_rows:
            continue
        try:
            rows = read_rows(batch.column(FEATURES), columns)
            for explained in explain_blocks(cached_model(*broadcast.value), rows, n_jobs):
                for key, total in _column_sums(explained):
                    totals[key] = totals.get(key, 0.0) + total
                n_rows += explained.n_rows
        except ValueError as error:
            raise ValueError(f"{error} ({columns})") from None
    keys, sums = pa.array([*totals, None], key_type), pa.array([*totals.values(), float(n_rows)])
    yield pa.RecordBatch.from_arrays([keys, sums], names=[COLUMN, TOTAL])


def _column_sums(explained: Explanation) -> Iterator[tuple[Key, float]]:
    """Yield the sum over rows, and the mean over scores, of columns; of sparse rows, those that some row has."""
    sparse = sparse_parts(explained)
    if sparse is None:
        yield from enumerate(explained.sum_abs().tolist())
        return
    _, columns, values = sparse
    present, at = np.unique(columns, return_inverse=True)
    sums = np.bincount(at.reshape(-1), weights=np.abs(values).mean(axis=1), minlength=len(present))
    for column, total in zip(present.tolist(), sums.tolist(), strict=True):
        yield (explained.names[column] if explained.names else column), total


def _assemble(means: dict[Any, float], schema: Schema, top: int | None) -> Importance:
    """Put columns in the order of `gbun.Model.importance`: the largest first with `top`, else their own."""
    m = schema.n_columns
    if top is not None:
        keys = sorted(means, key=lambda key: (-means[key], key))
    elif m is None:
        keys = sorted(means, key=hash_name)
    else:
        keys = list(range(m))
    names = tuple(str(key) if schema.names is None else schema.names[key] for key in keys)
    return Importance(np.array([means.get(key, 0.0) for key in keys]), names, "contribution")


def _explain(error: Exception) -> Exception | None:
    """Make a short error of one that a task raised about its rows."""
    raised = re.search(r"^ValueError: (.*)$", str(error), re.MULTILINE)
    if raised is None:
        return explain_failure(error, None)
    log.debug("Spark says: %s", error)
    return ValueError(raised[1])
