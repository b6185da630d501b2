"""Read user data into `Features`: arrays, sparse matrices, data frames, dicts of names, lists of tokens.

Nothing is densified, no vocabulary is kept, and no memory grows with the largest feature id: the id of a name is its
hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from gbun.arrays import is_tensor, namespace, to_host
from gbun.data import frames
from gbun.data.declared import ARGUMENT, is_declaration, name_numbers, resolve_declared
from gbun.data.features import N_BUCKETS, Entries, Features, Schema
from gbun.data.frames import INFINITY_ADVICE, FrameColumn
from gbun.data.tensors import check_tensor_rows, find_device_entries, reshape_advice, to_matrix
from gbun.networks import hash_name

ACCEPTED = (
    "a 2-d array or tensor, a scipy sparse matrix, a pandas or polars frame, "
    "a list of dicts {name: value} or a list of token lists"
)

FLOAT32_MAX = float(np.finfo(np.float32).max)
CHECK_BLOCK = 2**22  # numbers checked at a time: a device may have no room for more
NO_COLUMNS_REASON = ": nothing to learn from or to predict by"


def ingest(
    X: Any, name: str = "X", tensors: bool = False, is_shard: bool = False, declared: Any = None
) -> tuple[Features, Schema]:
    """Return the features of X and the schema that describes them.

    With `tensors`, tensors stay on their device. A shard is one worker's part of the rows; it may have no columns, as
    other shards may have some. `name` is the argument in error messages. `declared` is the parameter
    categorical_features.

    >>> features, schema = ingest([{"age": 31, "city": "Paris"}, {"age": 40}])
    >>> features.sparse.indptr, schema.kind
    (array([0, 2, 3]), 'names')
    """
    rows = _to_rows(X, tensors, name)
    features, schema = _read_features(rows, name, is_shard, declared)
    return _attach_device_entries(features, X, rows) if tensors else features, schema


def conform(
    X: Any, schema: Schema, dense: bool, name: str = "X", tensors: bool = False, is_shard: bool = False
) -> Features:
    """Return the features of data that must have the schema of the training data.

    `dense` tells whether training had dense columns: a dense array given to a model of sparse rows is converted, and
    the other way round. A shard may be a sparse matrix with fewer columns, or a frame in which a column of any type has
    only missing values.
    """
    rows = matrix = _to_rows(X, tensors, name)
    if schema.kind in ("names", "tokens") and isinstance(rows, (list, tuple)):
        if not rows:
            raise ValueError(f"{name} has no rows")
        if isinstance(rows[0], dict if schema.kind == "names" else (list, tuple)):
            return (from_dicts if schema.kind == "names" else from_tokens)(rows, name)
    if schema.kind == "array" and is_sparse(rows):
        n_columns = schema.n_columns or 0
        if is_shard and rows.shape[1] < n_columns:
            parts = rows.data, rows.indices, rows.indptr
            rows = scipy.sparse.csr_array(parts, shape=(rows.shape[0], n_columns))
        rows = rows.toarray() if dense else rows
    if schema.kind == "columns" and not (is_sparse(rows) or detect_row_kind(rows)):
        features, found = _conform_columns(rows, schema, name)
    elif (schema.kind == "frame" or (is_shard and schema.kind == "array")) and frames.is_frame(rows):
        features, found = from_frame(rows, name, schema)
    else:
        features, found = _read_features(rows, name)
    _check_schema(found, schema, name)
    if schema.kind == "array" and not dense and features.dense is not None:
        features = from_sparse(scipy.sparse.csr_array(to_host(features.dense)), name)
    return _attach_device_entries(features, X, matrix) if tensors else features


def _conform_columns(rows: Any, schema: Schema, name: str) -> tuple[Features, Schema]:
    """Read an array whose columns are declared by the schema, or a frame of numbers in its place."""
    if frames.is_frame(rows):
        columns = [column.values for column in frames.read_columns(rows, name)]
        if not columns or any(values is None for values in columns):
            return _read_features(rows, name)
        rows = np.column_stack(columns)  # type: ignore[arg-type]
    X = to_host(from_array(rows, name).dense)
    if X.shape[1] != schema.n_columns:
        return Features(len(X)), Schema("columns", X.shape[1])
    return _declare_columns(X, [int(j) for j in schema.categorical])


def _to_rows(X: Any, tensors: bool, name: str) -> Any:
    """Convert arrays of other libraries, and sparse matrices to CSR with checked indices."""
    rows = to_matrix(X, tensors, name)
    if not is_sparse(rows):
        return rows
    if rows.ndim != 2:
        raise ValueError(f"{name} must have 2 dimensions, got a sparse array of shape {rows.shape}")
    try:
        # scipy trusts indices, and compiled code reads the memory they point to.
        has_check = hasattr(rows, "check_format")
        if has_check:
            rows.check_format(full_check=True)
        csr = rows.tocsr()
        if not has_check:
            csr.check_format(full_check=True)
    except ValueError as error:
        raise ValueError(f"{name} is a damaged sparse matrix: {error}; check how it was built") from None
    return csr


def _read_features(rows: Any, name: str, is_shard: bool = False, declared: Any = None) -> tuple[Features, Schema]:
    kind = None if is_sparse(rows) or frames.is_frame(rows) else detect_row_kind(rows)
    if is_declaration(declared) and (is_sparse(rows) or kind is not None):
        form = "a sparse matrix" if is_sparse(rows) else "a list of dicts or of token lists"
        raise ValueError(f"{ARGUMENT} names columns of a data frame or a dense array, {name} is {form}; leave it out")
    if is_sparse(rows):
        features, schema = from_sparse(rows, name), Schema("array", rows.shape[1])
    elif frames.is_frame(rows):
        features, schema = from_frame(rows, name, declared=declared)
    elif kind is not None:
        features, schema = (from_dicts if kind == "names" else from_tokens)(rows, name), Schema(kind)
    else:
        features = from_array(rows, name)
        assert features.dense is not None
        schema = Schema("array", features.dense.shape[1])
        columns = resolve_declared(declared, features.dense.shape[1], None, name)
        if columns:
            features, schema = _declare_columns(to_host(features.dense), columns)
    if schema.n_columns == 0 and not is_shard:
        raise ValueError(f"{name} has no columns{NO_COLUMNS_REASON}")
    return features, schema


def _attach_device_entries(features: Features, X: Any, rows: Any) -> Features:
    """Let sparse features refer to the tensor X that they came from; `rows` is what `_to_rows` made of it."""
    if features.sparse is None:
        return features
    on_device = find_device_entries(X, features.sparse.ids, rows)
    return replace(features, sparse=replace(features.sparse, on_device=on_device))


def _check_schema(found: Schema, schema: Schema, name: str) -> None:
    if found.kind != schema.kind:
        raise ValueError(f"{name} must be {_describe_schema(schema)} as in training, got {_describe_schema(found)}")
    if schema.names and found.names and schema.names != found.names:
        missing = [n for n in schema.names if n not in found.names]
        new = [n for n in found.names if n not in schema.names]
        raise ValueError(
            f"{name} has other columns than in training: missing {missing}, new {new}"
            if missing or new
            else f"{name} has the columns of training in another order; use {name}[{list(schema.names)[:3]!r} ...]"
        )
    if found.n_columns != schema.n_columns:
        raise ValueError(f"{name} has {found.n_columns} features, the model was trained on {schema.n_columns}")


def _describe_schema(schema: Schema) -> str:
    return {
        "array": f"an array of {schema.n_columns} columns",
        "columns": f"a dense array of {schema.n_columns} columns",
        "frame": "a data frame with categorical columns",
        "names": "a list of dicts",
        "tokens": "a list of token lists",
    }[schema.kind]


def describe_difference(stored: Schema, found: Schema) -> str:
    """Say in words how the columns of two trainings differ.

    >>> describe_difference(Schema("array", 2, ("a", "b")), Schema("array", 2, ("b", "c")))
    "those of the checkpoint that are missing: ['a']; others: ['c']"
    """
    if stored.names and found.names and stored.names != found.names:
        missing = [name for name in stored.names if name not in found.names]
        new = [name for name in found.names if name not in stored.names]
        if missing or new:
            return f"those of the checkpoint that are missing: {missing[:10]}; others: {new[:10]}"
        return f"they are in the order {list(stored.names[:10])} there, got {list(found.names[:10])}"
    if stored.kind != found.kind or stored.n_columns != found.n_columns:
        return f"{_describe_schema(stored)}, got {_describe_schema(found)}"
    if stored.categorical != found.categorical:
        return f"the columns {list(stored.categorical)} hold categories there, got {list(found.categorical)}"
    named, unnamed = "named columns", "columns without names"
    return f"{named if stored.names else unnamed}, got {named if found.names else unnamed}"


def detect_row_kind(X: Any) -> str | None:
    """Return "names" for a list of dicts, "tokens" for one of token lists, else None; the first non-empty row decides.

    >>> detect_row_kind([{}, {"age": 31}]), detect_row_kind([[], ["red"]]), detect_row_kind([[1.0, 2.0]])
    ('names', 'tokens', None)
    """
    if not isinstance(X, (list, tuple)):
        return None
    first = next((row for row in X if isinstance(row, (dict, list, tuple)) and len(row)), None)
    if isinstance(first, dict):
        return "names"
    return "tokens" if _is_tokens(first) else None


def _is_tokens(row: Any) -> bool:
    return isinstance(row, (list, tuple)) and len(row) > 0 and all(isinstance(token, str) for token in row)


def is_sparse(X: Any) -> bool:
    return bool(scipy.sparse.issparse(X))  # a plain bool: mypy knows nothing about the class that issparse narrows to


def is_empty(X: Any) -> bool:
    """Return whether X has no rows, in any form that has a length.

    >>> is_empty([]), is_empty(np.ones((0, 3))), is_empty([{}])
    (True, True, False)
    """
    shape = (len(X),) if isinstance(X, (list, tuple)) else tuple(getattr(X, "shape", ()))
    return shape[:1] == (0,)


def empty_features(schema: Schema, dense: bool) -> Features:
    """Return features of no rows; `dense` tells whether there are dense columns."""
    columns = np.zeros((0, (schema.n_columns or 0) - len(schema.categorical))) if dense else None
    entries = Entries(np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32))
    categories = np.zeros((0, len(schema.categorical)), dtype=np.uint16) if schema.categorical else None
    return Features(0, columns, None if dense and schema.kind == "array" else entries, categories=categories)


def from_array(X: Any, name: str) -> Features:
    """Check a dense array or tensor; a tensor stays where it is."""
    on_torch = is_tensor(X)
    if not on_torch:
        try:
            X = np.asarray(X)
        except ValueError as error:
            raise ValueError(f"{name} must be {ACCEPTED}, got rows of different kinds or lengths: {error}") from None
    if X.is_complex() if on_torch else X.dtype.kind in "cmM":
        raise ValueError(
            f"{name} must hold real numbers, got dtype {X.dtype}; make numbers of it. Complex data not supported"
        )
    if on_torch:
        check_tensor_rows(X, name)
    elif X.dtype.kind not in "fiub":
        try:
            X = X.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name} must be {ACCEPTED}, got dtype {X.dtype}: {error}") from None
    if X.ndim != 2:
        raise ValueError(f"{name} must be {ACCEPTED}, got an array of shape {X.shape}{reshape_advice(X)}")
    rows_per_block = max(1, CHECK_BLOCK // max(1, X.shape[1]))
    is_float = X.is_floating_point() if on_torch else X.dtype.kind == "f"
    for first in range(0, len(X) if is_float else 0, rows_per_block):
        block = X[first : first + rows_per_block]
        infinite = block.isinf() if on_torch else np.isinf(block)
        if infinite.any():
            row, column = (int(places[0]) for places in namespace(infinite).nonzero(infinite))
            raise ValueError(f"{name} has an infinite value in row {first + row}, column {column}; {INFINITY_ADVICE}")
    return Features(len(X), dense=X)


def from_sparse(csr: Any, name: str) -> Features:
    """Convert a CSR matrix whose indices are valid."""
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    if csr.data.dtype.kind not in "fiub":
        raise ValueError(f"{name} must hold real numbers, got dtype {csr.data.dtype}")
    with np.errstate(over="ignore"):
        values = np.asarray(csr.data, dtype=np.float32)
    infinite = np.isinf(values)
    if infinite.any():
        at = int(np.flatnonzero(infinite)[0])
        row = int(np.searchsorted(csr.indptr, at, side="right")) - 1
        raise ValueError(
            f"{name} has a value that is infinite or beyond float32 in row {row}, column {csr.indices[at]}; "
            f"{INFINITY_ADVICE}"
        )
    return Features(csr.shape[0], sparse=Entries(csr.indptr, csr.indices, values))


def from_frame(X: Any, name: str, schema: Schema | None = None, declared: Any = None) -> tuple[Features, Schema]:
    """Convert a frame: numeric columns stay columns; a value of another column is the feature "column=value"."""
    if schema is None:
        names = tuple(map(str, X.columns))
        chosen = tuple(names[j] for j in resolve_declared(declared, len(names), names, name))
        columns = frames.read_columns(X, name, declared=chosen)
    else:
        chosen = schema.declared
        columns = frames.read_columns(X, name, schema.categorical, chosen)
    numeric = [c.values for c in columns if c.values is not None]
    dense = np.column_stack(numeric) if numeric else None
    for column in columns:
        if column.values is not None:
            frames.check_finite(column.values, column.name, name)
    categorical = [c for c in columns if c.codes is not None]
    names = tuple(c.name for c in columns)
    if not categorical:
        return Features(len(X), dense), Schema("array", len(columns), names)
    features = _with_categories(len(X), dense, categorical)
    return features, Schema("frame", len(columns), names, tuple(c.name for c in categorical), chosen)


def _declare_columns(X: NDArray[Any], chosen: Sequence[int]) -> tuple[Features, Schema]:
    """Turn columns of an array into categories, named by the numbers of the columns."""
    columns = [FrameColumn(str(j), None, *name_numbers(X[:, j])) for j in chosen]
    others = np.delete(X, chosen, axis=1) if len(chosen) < X.shape[1] else None
    schema = Schema("columns", X.shape[1], categorical=tuple(column.name for column in columns))
    return _with_categories(len(X), others, columns), schema


def _with_categories(n_rows: int, dense: Any, columns: Sequence[FrameColumn]) -> Features:
    """Return features in which categories are both: sparse features by hash, and buckets for trees."""
    ids = np.empty((n_rows, len(columns)), dtype=np.int64)
    present = np.empty((n_rows, len(columns)), dtype=bool)
    for j, column in enumerate(columns):
        assert column.codes is not None
        hashed = np.array([hash_name(f"{column.name}={value}") for value in column.categories] or [0], dtype=np.int64)
        ids[:, j], present[:, j] = hashed[column.codes], column.codes >= 0
    buckets = np.where(present, 1 + ids % (N_BUCKETS - 1), 0).astype(np.uint16)
    indptr = np.concatenate([[0], np.cumsum(present.sum(axis=1))])
    sparse = Entries(indptr, ids[present], np.ones(indptr[-1], dtype=np.float32))
    return Features(n_rows, dense, sparse, categories=buckets)


def name_feature(key: Any, value: Any) -> tuple[str, Any]:
    """Return the feature that an item of a dict is, and its value.

    >>> name_feature("age", 31), name_feature("town", "Rome")
    (('age', 31), ('town=Rome', 1.0))
    """
    return (f"{key}={value}", 1.0) if isinstance(value, str) else (str(key), value)


def from_dicts(rows: Sequence[Any], name: str) -> Features:
    """Convert dicts: a number is the value of feature "key", a string is the feature "key=string", None is missing."""
    ids: list[int] = []
    values: list[float] = []
    indptr = np.zeros(len(rows) + 1, dtype=np.int64)
    hash_once = cache(hash_name)  # lives as long as this call: no vocabulary
    for i, row in enumerate(rows):
        if not isinstance(row, dict):
            raise ValueError(f"{name}[{i}] must be a dict like the rows before it, got {type(row).__name__}")
        for key, value in row.items():
            if value is None:
                continue
            feature, number = name_feature(key, value)
            if not isinstance(number, (int, float, np.number, np.bool_)):
                raise ValueError(f"{name}[{i}][{key!r}] must be a number, a string or None, got {type(value).__name__}")
            if abs(float(number)) > FLOAT32_MAX:
                raise ValueError(f"{name}[{i}][{key!r}] is infinite or beyond float32: {number!r}; {INFINITY_ADVICE}")
            ids.append(hash_once(feature))
            values.append(float(number))
        indptr[i + 1] = len(ids)
    return Features(len(rows), sparse=_sum_duplicates(indptr, ids, values))


def from_tokens(rows: Sequence[Any], name: str) -> Features:
    """Convert token lists: each token is a feature whose value is its count in the row."""
    for i, row in enumerate(rows):
        if not (_is_tokens(row) or row == [] or row == ()):
            raise ValueError(f"{name}[{i}] must be a list of strings like the rows before it, got {type(row).__name__}")
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    ids = list(map(cache(hash_name), chain.from_iterable(rows)))
    return Features(len(rows), sparse=_sum_duplicates(indptr, ids, np.ones(len(ids))))


def _sum_duplicates(indptr: NDArray[np.int64], ids: Sequence[int], values: Any) -> Entries:
    """Sort the ids within each row and sum the values of equal ones."""
    entries = Entries(indptr, np.array(ids, dtype=np.int64), np.asarray(values, dtype=np.float32))
    row = entries.row_of_entry
    order = np.lexsort((entries.ids, row))
    row, sorted_ids, sorted_values = row[order], entries.ids[order], entries.values[order]
    is_first = np.ones(len(sorted_ids), dtype=bool)
    is_first[1:] = (sorted_ids[1:] != sorted_ids[:-1]) | (row[1:] != row[:-1])
    at = np.flatnonzero(is_first)
    totals = np.add.reduceat(sorted_values, at) if len(at) else sorted_values
    counts = np.bincount(row[at], minlength=len(indptr) - 1)
    return Entries(np.concatenate([[0], np.cumsum(counts)]), sorted_ids[at], totals)
