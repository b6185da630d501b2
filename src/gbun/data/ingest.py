"""Whatever users hold, as `Features`: arrays, sparse matrices, data frames, dicts of names, lists of tokens.

Nothing is densified, no vocabulary is kept, and no memory grows with the largest feature id: a name's id is its hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from gbun.arrays import host, is_tensor
from gbun.data import frames
from gbun.data.features import Entries, Features, Schema
from gbun.data.tensors import check_rows, matrix, there
from gbun.dtypes import FloatArray
from gbun.networks import hash_name

ACCEPTED = (
    "a 2-d array or tensor, a scipy sparse matrix, a pandas or polars frame, "
    "a list of dicts {name: value} or a list of token lists"
)

FLOAT32_MAX = float(np.finfo(np.float32).max)
MISSING = "NaN means missing, infinity is an error"
LOOKED_AT = 2**22  # numbers of a tensor at a time: a device need not have room for more
NO_COLUMNS = ": nothing to learn from or to predict by"


def ingest(X: Any, name: str = "X", tensors: bool = False, share: bool = False) -> tuple[Features, Schema]:
    """Features and the schema to remember them by. With `tensors`, these stay where they are.

    A worker's `share` of the rows may have no columns: others may have some.

    >>> features, schema = ingest([{"age": 31, "city": "Paris"}, {"age": 40}])
    >>> features.sparse.indptr, schema.kind
    (array([0, 2, 3]), 'names')
    """
    rows = matrix(X, tensors, name)
    features, schema = _ingest(rows, name)
    features = _where_they_are(features, X, rows) if tensors else features
    if schema.n_columns == 0 and not share:
        raise ValueError(f"{name} has no columns{NO_COLUMNS}")
    return features, schema


def _where_they_are(features: Features, X: Any, rows: Any) -> Features:
    """Sparse features that remember the tensor they came from; `rows` are what `matrix` made of it."""
    if features.sparse is None:
        return features
    return replace(features, sparse=replace(features.sparse, there=there(X, features.sparse.ids, rows)))


def _ingest(X: Any, name: str) -> tuple[Features, Schema]:
    if scipy.sparse.issparse(X):
        sparse: Any = X
        return from_sparse(sparse, name), Schema("array", sparse.shape[1])
    if frames.is_frame(X):
        return from_frame(X, name)
    kind = kind_of_rows(X)
    if kind is not None:
        return (from_dicts if kind == "names" else from_tokens)(X, name), Schema(kind)
    dense = from_array(X, name)
    assert dense.dense is not None
    return dense, Schema("array", dense.dense.shape[1])


def kind_of_rows(X: Any) -> str | None:
    """Whether X is a list of dicts ("names") or of token lists ("tokens"), told by its first row that is not empty.

    >>> kind_of_rows([{}, {"age": 31}]), kind_of_rows([[], ["red"]]), kind_of_rows([[1.0, 2.0]])
    ('names', 'tokens', None)
    """
    if not isinstance(X, (list, tuple)):
        return None
    telling = next((row for row in X if isinstance(row, (dict, list, tuple)) and len(row)), None)
    if isinstance(telling, dict):
        return "names"
    return "tokens" if _is_tokens(telling) else None


def is_empty(X: Any) -> bool:
    """Whether X has no rows, in any form that has a length.

    >>> is_empty([]), is_empty(np.ones((0, 3))), is_empty([{}])
    (True, True, False)
    """
    shape = (len(X),) if isinstance(X, (list, tuple)) else tuple(getattr(X, "shape", ()))
    return shape[:1] == (0,)


def no_rows(schema: Schema, dense: bool) -> Features:
    """Features of no row at all, as `schema` has them; `dense` says whether there are dense columns."""
    columns = np.zeros((0, (schema.n_columns or 0) - len(schema.categorical))) if dense else None
    entries = Entries(np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32))
    return Features(0, columns, None if dense and schema.kind == "array" else entries)


def conform(
    X: Any, schema: Schema, dense: bool, name: str = "X", tensors: bool = False, share: bool = False
) -> Features:
    """Features of data that must look as it did in training.

    `dense` says whether training had dense columns: an array given for a sparse one, or the other way round, is
    turned into what the model was scaled for. A worker's `share` of the rows may be a sparse matrix with fewer columns,
    or a frame with a column that is missing everywhere, whatever its type.
    """
    given, X = X, matrix(X, tensors, name)
    rows = X
    if share and schema.kind == "array" and scipy.sparse.issparse(X):
        X = _with_columns(X, schema.n_columns or 0, name)
    if schema.kind == "array" and scipy.sparse.issparse(X) == dense:
        X = _other_storage(X, name)
    if schema.kind in ("names", "tokens") and isinstance(X, (list, tuple)) and not len(X):
        raise ValueError(f"{name} has no rows")
    if (schema.kind == "frame" or (share and schema.kind == "array")) and frames.is_frame(X):
        features, found = from_frame(X, name, schema)
    elif schema.kind == "names" and isinstance(X, (list, tuple)) and isinstance(X[0], dict):
        return from_dicts(X, name)
    elif schema.kind == "tokens" and isinstance(X, (list, tuple)) and isinstance(X[0], (list, tuple)):
        return from_tokens(X, name)
    else:
        features, found = ingest(X, name, tensors)
    if found.kind != schema.kind:
        raise ValueError(f"{name} must be {_words(schema)} as in training, got {_words(found)}")
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
    return _where_they_are(features, given, rows) if tensors else features


def _with_columns(X: Any, n_columns: int, name: str) -> Any:
    csr = _sound(X, name)
    if csr.shape[1] >= n_columns:
        return csr
    return scipy.sparse.csr_array((csr.data, csr.indices, csr.indptr), shape=(csr.shape[0], n_columns))


def _other_storage(X: Any, name: str) -> Any:
    if scipy.sparse.issparse(X):
        return _sound(X, name).toarray()
    features, _ = ingest(X, name)
    return X if features.dense is None else scipy.sparse.csr_array(host(features.dense))


def _words(schema: Schema) -> str:
    return {
        "array": f"an array of {schema.n_columns} columns",
        "frame": "a data frame with categorical columns",
        "names": "a list of dicts",
        "tokens": "a list of token lists",
    }[schema.kind]


def from_array(X: Any, name: str) -> Features:
    if is_tensor(X):
        return from_tensor(X, name)
    try:
        array = np.asarray(X)
    except ValueError as error:
        raise ValueError(f"{name} must be {ACCEPTED}, got rows of different kinds or lengths: {error}") from None
    if array.dtype.kind in "cmM":
        raise ValueError(
            f"{name} must hold real numbers, got dtype {array.dtype}; make numbers of it. Complex data not supported"
        )
    if array.dtype.kind not in "fiub":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name} must be {ACCEPTED}, got dtype {array.dtype}: {error}") from None
    if array.ndim != 2:
        advice = "; reshape(-1, 1) makes one column, reshape(1, -1) one row" if array.ndim == 1 else ""
        raise ValueError(f"{name} must be {ACCEPTED}, got an array of shape {array.shape}{advice}")
    if array.dtype.kind == "f" and np.isinf(array).any():
        row, col = np.argwhere(np.isinf(array))[0]
        raise ValueError(f"{name} has an infinite value in row {row}, column {col}; {MISSING}")
    return Features(len(array), dense=array)


def from_tensor(X: Any, name: str) -> Features:
    """A dense tensor, which stays where it is."""
    if X.is_complex():
        raise ValueError(
            f"{name} must hold real numbers, got dtype {X.dtype}; make numbers of it. Complex data not supported"
        )
    check_rows(X, name)
    at_a_time = max(1, LOOKED_AT // max(1, X.shape[1]))
    for first in range(0, len(X) if X.is_floating_point() else 0, at_a_time):
        infinite = X[first : first + at_a_time].isinf()
        if bool(infinite.any()):
            row, col = infinite.nonzero()[0].tolist()
            raise ValueError(f"{name} has an infinite value in row {first + row}, column {col}; {MISSING}")
    return Features(len(X), dense=X)


def from_sparse(X: Any, name: str) -> Features:
    csr = _sound(X, name)
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    return Features(csr.shape[0], sparse=_finite(Entries(csr.indptr, csr.indices, _values(csr.data, name)), name))


def _sound(X: Any, name: str) -> Any:
    """X as CSR whose indices are what they should be: scipy does not look, and compiled code reads what they say."""
    if X.ndim != 2:
        raise ValueError(f"{name} must have 2 dimensions, got a sparse array of shape {X.shape}")
    try:
        if hasattr(X, "check_format"):
            X.check_format(full_check=True)
        csr = X.tocsr()
        csr.check_format(full_check=True)
    except ValueError as error:
        raise ValueError(f"{name} is a damaged sparse matrix: {error}; check how it was built") from None
    return csr


def _finite(entries: Entries, name: str) -> Entries:
    infinite = np.isinf(entries.values)
    if infinite.any():
        at = int(np.flatnonzero(infinite)[0])
        row = int(np.searchsorted(entries.indptr, at, side="right")) - 1
        raise ValueError(
            f"{name} has a value that is infinite or beyond float32 in row {row}, column {entries.ids[at]}; {MISSING}"
        )
    return entries


def _values(data: Any, name: str) -> FloatArray:
    if data.dtype.kind not in "fiub":
        raise ValueError(f"{name} must hold real numbers, got dtype {data.dtype}")
    with np.errstate(over="ignore"):
        return np.asarray(data, dtype=np.float32)


def from_frame(X: Any, name: str, schema: Schema | None = None) -> tuple[Features, Schema]:
    """Numeric columns stay columns; every value of the others is a feature of its own, named column=value."""
    columns = frames.columns(X, name, None if schema is None else schema.categorical)
    numeric = [c.values for c in columns if c.values is not None]
    dense = np.column_stack(numeric) if numeric else None
    for column in columns:
        if column.values is not None and np.isinf(column.values).any():
            row = int(np.flatnonzero(np.isinf(column.values))[0])
            raise ValueError(f"{name}[{column.name!r}] has an infinite value in row {row}; {MISSING}")
    categorical = [c for c in columns if c.codes is not None]
    names = tuple(c.name for c in columns)
    if not categorical:
        return Features(len(X), dense), Schema("array", len(columns), names)
    features = Features(len(X), dense, _from_categories(len(X), categorical))
    return features, Schema("frame", len(columns), names, tuple(c.name for c in categorical))


def _from_categories(n_rows: int, columns: Sequence[frames.Column]) -> Entries:
    ids = np.empty((n_rows, len(columns)), dtype=np.int64)
    present = np.empty((n_rows, len(columns)), dtype=bool)
    for j, column in enumerate(columns):
        assert column.codes is not None
        hashed = np.array([hash_name(f"{column.name}={value}") for value in column.categories] or [0], dtype=np.int64)
        ids[:, j], present[:, j] = hashed[column.codes], column.codes >= 0
    indptr = np.concatenate([[0], np.cumsum(present.sum(axis=1))])
    return Entries(indptr, ids[present], np.ones(indptr[-1], dtype=np.float32))


def from_dicts(rows: Sequence[Any], name: str) -> Features:
    """A number is the value of the feature `name`; a string is the feature `name=string`; None is missing."""
    ids: list[int] = []
    values: list[float] = []
    indptr = np.zeros(len(rows) + 1, dtype=np.int64)
    known: dict[str, int] = {}
    for i, row in enumerate(rows):
        if not isinstance(row, dict):
            raise ValueError(f"{name}[{i}] must be a dict like the rows before it, got {type(row).__name__}")
        for key, value in row.items():
            if value is None:
                continue
            feature, number = (f"{key}={value}", 1.0) if isinstance(value, str) else (str(key), value)
            if not isinstance(number, (int, float, np.number, np.bool_)):
                raise ValueError(f"{name}[{i}][{key!r}] must be a number, a string or None, got {type(value).__name__}")
            if abs(float(number)) > FLOAT32_MAX:
                raise ValueError(f"{name}[{i}][{key!r}] is infinite or beyond float32: {number!r}; {MISSING}")
            ids.append(_id(feature, known))
            values.append(float(number))
        indptr[i + 1] = len(ids)
    return _entries(indptr, ids, values, name)


def from_tokens(rows: Sequence[Any], name: str) -> Features:
    """Each token is a feature, its value the number of times the row has it."""
    for i, row in enumerate(rows):
        if not (_is_tokens(row) or row == [] or row == ()):
            raise ValueError(f"{name}[{i}] must be a list of strings like the rows before it, got {type(row).__name__}")
    known: dict[str, int] = {}
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    ids = [_id(token, known) for token in chain.from_iterable(rows)]
    return _entries(indptr, ids, np.ones(len(ids)), name)


def _id(feature: str, known: dict[str, int]) -> int:
    # `known` spares hashing a name twice while one batch is read; it is dropped afterwards, not a vocabulary.
    found = known.get(feature)
    if found is None:
        found = known[feature] = hash_name(feature)
    return found


def _entries(indptr: NDArray[np.int64], ids: Sequence[int], values: Any, name: str) -> Features:
    data = _values(np.asarray(values, dtype=np.float64), name)
    return Features(len(indptr) - 1, sparse=_summed(Entries(indptr, np.array(ids, dtype=np.int64), data)))


def _summed(entries: Entries) -> Entries:
    """Sorted ids within each row, repeated ones added up."""
    row = entries.row_of_entry
    order = np.lexsort((entries.ids, row))
    row, ids, values = row[order], entries.ids[order], entries.values[order]
    new = np.ones(len(ids), dtype=bool)
    new[1:] = (ids[1:] != ids[:-1]) | (row[1:] != row[:-1])
    at = np.flatnonzero(new)
    totals = np.add.reduceat(values, at) if len(at) else values
    counts = np.bincount(row[at], minlength=len(entries.indptr) - 1)
    return Entries(np.concatenate([[0], np.cumsum(counts)]), ids[at], totals)


def _is_tokens(row: Any) -> bool:
    return isinstance(row, (list, tuple)) and len(row) > 0 and all(isinstance(token, str) for token in row)
