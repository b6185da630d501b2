"""Contributions of columns to the scores of rows, as a column of Spark.

Arrow functions return plain lists: for each score the contributions and then the base, and which columns or tokens
they belong to. The driver's plan makes vectors and maps of them, as Spark before 4.0 takes no vectors from such
functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyspark.sql.functions as F
from numpy.typing import NDArray
from pyspark.ml.functions import array_to_vector
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql.types import ArrayType

from gbun.explain import Explanation
from gbun.model import Model

CONTRIBUTIONS, INDICES, TOKENS = "contributions", "indices", "tokens"
BASE = "(base)"
"""The key of the base in a map of tokens."""
BLOCK_NUMBERS = 2**22  # contributions of a block of dense rows: 32 MB
MAX_NUMBERS = 2**31 - 1  # of a batch: Arrow's lists count in int32


def contribution_outputs(model: Model) -> list[str]:
    """Return what an Arrow function must return so that `contribution_column` has all it needs."""
    if model.description.schema.n_columns is None:
        return [CONTRIBUTIONS, TOKENS]
    return [CONTRIBUTIONS, INDICES] if has_sparse_contributions(model) else [CONTRIBUTIONS]


def has_sparse_contributions(model: Model) -> bool:
    """Return whether only features that a row has contribute: the model was trained on sparse vectors."""
    return model.description.schema.kind == "array" and model.ensemble.scaling.dense is None


def contribution_column(model: Model, packed: Any) -> Any:
    """Make the column of contributions from the struct that an Arrow function returned."""
    n_scores, outputs = model.ensemble.n_scores, contribution_outputs(model)
    values = packed[CONTRIBUTIONS]
    if TOKENS in outputs:
        maps = F.transform(values, lambda score: F.map_from_arrays(packed[TOKENS], score))
        return maps[0] if n_scores == 1 else maps
    if INDICES in outputs:
        return make_vector_function(int(model.description.schema.n_columns or 0) + 1, n_scores)(packed[INDICES], values)
    return array_to_vector(values[0]) if n_scores == 1 else F.transform(values, array_to_vector)


def make_vector_function(size: int, n_scores: int) -> Any:
    """Make a function of Spark columns: indices, values of each score -> sparse vectors."""

    def make_vectors(indices: Any, values: Any) -> Any:
        vectors = [Vectors.sparse(size, indices, score) for score in values]
        return vectors[0] if n_scores == 1 else vectors

    return F.udf(make_vectors, VectorUDT() if n_scores == 1 else ArrayType(VectorUDT()), useArrow=False)


def contribution_arrays(model: Model, rows: Any, n_jobs: int) -> dict[str, Any]:
    """Compute the `contribution_outputs` of a batch of rows."""
    n_rows, numbers = _n_rows(rows), _numbers_of_row(model, rows)
    if n_rows * numbers > MAX_NUMBERS:
        raise ValueError(
            f"{n_rows} rows of a batch have {n_rows * numbers} contributions, and Arrow's lists hold {MAX_NUMBERS}; "
            f"set spark.sql.execution.arrow.maxRecordsPerBatch to at most {MAX_NUMBERS // numbers}"
        )
    parts = [_block_arrays(explained) for explained in explain_blocks(model, rows, n_jobs)]
    return {name: pa.concat_arrays([part[name] for part in parts]) for name in parts[0]}


def explain_blocks(model: Model, rows: Any, n_jobs: int) -> Iterator[Explanation]:
    """Explain rows block by block, so that memory does not grow with a batch of wide dense rows."""
    size = max(1, BLOCK_NUMBERS // _numbers_of_row(model, rows))
    for first in range(0, _n_rows(rows), size):
        block = rows.iloc[first : first + size] if isinstance(rows, pd.DataFrame) else rows[first : first + size]
        yield model.explain(block, n_jobs=n_jobs)


def _n_rows(rows: Any) -> int:
    return len(rows) if isinstance(rows, list) else int(rows.shape[0])


def _numbers_of_row(model: Model, rows: Any) -> int:
    """Return how many contributions a dense row has, with the base; 1 for sparse rows, which have few."""
    if contribution_outputs(model) != [CONTRIBUTIONS] or isinstance(rows, list):
        return 1
    return int(rows.shape[1] + 1) * model.ensemble.n_scores


def sparse_parts(explained: Explanation) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.float64]] | None:
    """Return where rows begin, the columns of entries, and contributions (entries, C); None for dense contributions.

    The matrices of several scores have the same entries.
    """
    matrices = explained.values if isinstance(explained.values, list) else [explained.values]
    if isinstance(matrices[0], np.ndarray):
        return None
    return matrices[0].indptr.astype(np.int64), matrices[0].indices, np.column_stack([m.data for m in matrices])


def _block_arrays(explained: Explanation) -> dict[str, Any]:
    n, base = explained.n_rows, explained.base.reshape(explained.n_rows, -1)
    C, sparse = base.shape[1], sparse_parts(explained)
    if sparse is None:
        values = explained.values.reshape(n, explained.n_columns, C)
        numbers = np.concatenate([values, base[:, None]], axis=1).transpose(0, 2, 1)
        return {CONTRIBUTIONS: _nested_lists(numbers.reshape(-1), np.full(n, numbers.shape[2]), C)}
    indptr, columns, values = sparse
    counts = np.diff(indptr) + 1  # with the base
    starts = np.cumsum(counts) - counts
    is_base = np.zeros(counts.sum(), dtype=bool)
    is_base[starts + counts - 1] = True
    row = np.repeat(np.arange(n), counts)
    at = np.arange(len(is_base)) - starts[row]
    numbers = np.empty(C * len(is_base))
    for c in range(C):  # a row's lists, one for each score, are side by side
        numbers[C * starts[row] + c * counts[row] + at] = np.insert(values[:, c], indptr[1:], base[:, c])
    lists = {CONTRIBUTIONS: _nested_lists(numbers, counts, C)}
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    if explained.names is None:
        indices = np.full(len(is_base), explained.n_columns, dtype=np.int32)
        indices[~is_base] = columns
        return {**lists, INDICES: pa.ListArray.from_arrays(offsets, pa.array(indices))}
    if BASE in explained.names:
        raise ValueError(f"a token is {BASE!r}, which is the key of the base in maps of contributions; rename it")
    keys = np.full(len(is_base), len(explained.names))
    keys[~is_base] = columns
    tokens = pa.array([*explained.names, BASE], pa.string()).take(pa.array(keys))
    return {**lists, TOKENS: pa.ListArray.from_arrays(offsets, tokens)}


def _nested_lists(numbers: NDArray[np.float64], counts: NDArray[np.int64], n_scores: int) -> Any:
    """Make a list of `n_scores` lists for each row, each of as many numbers as `counts` says of the row."""
    inner = np.concatenate([[0], np.cumsum(np.repeat(counts, n_scores))])
    lists = pa.ListArray.from_arrays(pa.array(inner, pa.int32()), pa.array(numbers))
    outer = np.arange(len(counts) + 1) * n_scores
    return pa.ListArray.from_arrays(pa.array(outer, pa.int32()), lists)
