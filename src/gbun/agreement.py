"""How workers with a share of the rows each read them as a single worker with all rows would.

Before the first round, workers tell each other about their rows: kinds, numbers and names of columns, the labels, and
which worker failed and why. The messages go to the root, which decides for all. No row and no value of a row is sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from gbun.checks import brief, integer, one_of, optional, parse_strict_json, record, rule, strings
from gbun.collectives import Collective, Solo, WorkerError
from gbun.data import frames
from gbun.data.declared import resolve_declared
from gbun.data.features import Features, Schema
from gbun.data.ingest import NO_COLUMNS_REASON, conform, empty_features, ingest, is_empty
from gbun.data.tensors import to_matrix

SINGLE_WORKER = Solo()
MAX_ERROR_LENGTH = 1000  # characters of an error that are sent to other workers
MAX_RANKS_LISTED = 8
KIND_NAMES = {
    "array": "an array",
    "columns": "a dense array",
    "sparse": "a sparse matrix",
    "frame": "a data frame",
    "names": "a list of dicts",
    "tokens": "a list of token lists",
}

Result = TypeVar("Result")


# Decisions


def run_or_raise_everywhere(collective: Collective, work: Callable[[], Result]) -> Result:
    """Return this worker's result of `work` once it succeeded on all workers; `work` must not send messages.

    If it fails, the worker raises its own error and all others a `WorkerError`, so that none waits for a message.

    >>> run_or_raise_everywhere(SINGLE_WORKER, lambda: 1 + 1)
    2
    """
    results: list[Result] = []
    failure: Exception | None = None
    try:
        results.append(work())
    except Exception as error:
        failure = error
    if not collective.sum(np.array([float(failure is not None)]))[0]:
        return results[0]
    text = None if failure is None else f"{type(failure).__name__}: {failure}"[:MAX_ERROR_LENGTH]
    rank, text = decide_at_root(collective, text, lambda texts: next((r, t) for r, t in enumerate(texts) if t))
    if failure is not None:
        raise failure
    raise WorkerError(f"worker {rank} of {collective.size} failed: {text}", rank)


def decide_at_root(collective: Collective, message: Any, decide: Callable[[list[Any]], Any]) -> Any:
    """Return on all workers what `decide` returns at the root for the messages of all workers, in rank order.

    Messages and the result must be what JSON can hold. If `decide` raises, the root raises this error and all others a
    ValueError with its text.
    """
    gathered, answer, failure = collective.gather(_encode_json(message)), None, None
    if gathered is not None:
        try:
            answer = {"result": decide([_decode_json(text) for text in gathered])}
        except Exception as error:
            answer = {"error": str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"}
            failure = error
    text = _encode_json(answer)
    length = int(collective.broadcast(np.array([len(text)], dtype=np.int64))[0])
    answer = _decode_json(collective.broadcast(text if collective.rank == 0 else np.zeros(length, dtype=np.uint8)))
    if failure is not None:
        raise failure
    if not isinstance(answer, dict) or len({"error", "result"} & set(answer)) != 1:
        raise WorkerError(f"worker 0 of {collective.size} sent no decision: {brief(answer)}", 0)
    if "error" in answer:
        raise ValueError(answer["error"])
    return answer["result"]


def _encode_json(value: Any) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(value).encode(), dtype=np.uint8)


def _decode_json(text: NDArray[np.uint8]) -> Any:
    return parse_strict_json(text.tobytes().decode(), "the message of a worker")


def check_same(messages: list[Any], where: str) -> None:
    """Raise if a value differs among the dicts of the workers."""
    for name in messages[0]:
        values = group_ranks({rank: repr(message[name]) for rank, message in enumerate(messages)})
        if len(values) > 1:
            raise ValueError(f"{name} must be the same {where}, got {format_groups(values)}")


def format_ranks(ranks: Iterable[int]) -> str:
    """
    >>> format_ranks([1]), format_ranks([0, 2]), format_ranks(range(64))
    ('rank 1', 'ranks 0, 2', 'ranks 0, 1, 2, 3, 4, 5, 6, 7 and 56 more')
    """
    ranks = list(ranks)
    more = f" and {len(ranks) - MAX_RANKS_LISTED} more" if len(ranks) > MAX_RANKS_LISTED else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:MAX_RANKS_LISTED]))}{more}"


def group_ranks(values: Mapping[int, Result]) -> dict[Result, list[int]]:
    """Return the ranks that have each value.

    >>> group_ranks({0: "a", 1: "b", 2: "a"})
    {'a': [0, 2], 'b': [1]}
    """
    groups: dict[Result, list[int]] = {}
    for rank, value in values.items():
        groups.setdefault(value, []).append(rank)
    return groups


def format_groups(groups: Mapping[Any, list[int]]) -> str:
    """
    >>> format_groups({3: [0, 2], 4: [1]})
    '3 on ranks 0, 2, 4 on rank 1'
    """
    return ", ".join(f"{value} on {format_ranks(ranks)}" for value, ranks in groups.items())


# Features


_COUNT = integer(0, 2**63 - 1)
_FLAGS = rule(
    "a list of flags", lambda value: isinstance(value, list) and all(isinstance(item, bool) for item in value)
)
FORM = record(
    {
        "rows": _COUNT,
        "kind": one_of("", *KIND_NAMES),
        "columns": _COUNT,
        "names": optional(strings),
        "categorical": _FLAGS,
        "missing": _FLAGS,
    }
)


@dataclass(frozen=True)
class ShareForm:
    """The form of a worker's share of the rows; `kind` is empty if no row of the share tells.

    For each column of a frame, `categorical` says whether it is read as categories, and `missing` whether it is missing
    in all rows of the share: then the other shares decide what it is.
    """

    rows: int = 0
    kind: str = ""
    columns: int = 0
    names: Sequence[str] | None = None
    categorical: list[bool] = field(default_factory=list)
    missing: list[bool] = field(default_factory=list)


def ingest_share(
    X: Any, collective: Collective = SINGLE_WORKER, tensors: bool = False, declared: Any = None
) -> tuple[Features, Schema]:
    """Return the features of this worker's rows, and the schema of the rows of all workers.

    `declared` is the parameter categorical_features.
    """
    if collective.size == 1:  # a share may be empty where others are not; all rows are held to `ingest`'s rules
        return ingest(X, tensors=tensors, declared=declared)
    X, local, form = run_or_raise_everywhere(collective, lambda: _read_share(X, tensors, declared))
    merged = decide_at_root(collective, asdict(form), lambda messages: _merge_forms(messages, declared))
    if merged is None:  # no row of any worker tells its kind: a worker that has rows raises
        run_or_raise_everywhere(
            collective, lambda: None if is_empty(X) else ingest(X, tensors=tensors, declared=declared)
        )
        raise ValueError(f"X has no columns{NO_COLUMNS_REASON}")
    names = None if merged["names"] is None else tuple(merged["names"])
    schema = Schema(merged["kind"], merged["n_columns"], names, tuple(merged["categorical"]))
    if names is not None:
        chosen = resolve_declared(declared, len(names), names)
        schema = replace(schema, declared=tuple(names[j] for j in chosen))

    def conform_local() -> Features:
        if is_empty(X):
            return empty_features(schema, merged["dense"])
        if local is not None and (local[1].kind, local[1].categorical) == (schema.kind, schema.categorical):
            return local[0]
        return conform(X, schema, merged["dense"], tensors=tensors, is_shard=True)

    return run_or_raise_everywhere(collective, conform_local), schema


def conform_share(
    X: Any, schema: Schema, dense: bool, name: str = "X", tensors: bool = False, collective: Collective = SINGLE_WORKER
) -> Features:
    """Return `ingest.conform` of this worker's rows; all shares together must have rows and the schema's columns."""
    if collective.size == 1:  # a share may be narrow or missing a column where others are not; all rows may not
        return conform(X, schema, dense, name, tensors)

    def work() -> tuple[Features, int]:
        matrix = to_matrix(X, tensors, name)
        n_columns = _sparse_width(matrix) if schema.kind == "array" else None
        if is_empty(matrix):
            return empty_features(schema, dense), n_columns or 0
        features = conform(X, schema, dense, name, tensors, is_shard=True)
        return features, (schema.n_columns or 0) if n_columns is None else n_columns

    def check(messages: list[Any]) -> None:
        if not any(rows for rows, _ in messages):
            raise ValueError(f"{name} has no rows")
        columns = max(columns for _, columns in messages)
        if schema.kind == "array" and columns != schema.n_columns:
            raise ValueError(f"{name} has {columns} features, the model was trained on {schema.n_columns}")

    features, columns = run_or_raise_everywhere(collective, work)
    decide_at_root(collective, (features.n_rows, columns), check)
    return features


def _read_share(X: Any, tensors: bool, declared: Any) -> tuple[Any, tuple[Features, Schema] | None, ShareForm]:
    """Return X, its features and schema read without the other shares (None if no row tells its kind), its form."""
    given, X = X, to_matrix(X, tensors)
    silent = isinstance(X, (list, tuple)) and all(isinstance(row, (dict, list, tuple)) and not row for row in X)
    if silent or is_empty(X):
        return X, None, ShareForm(0 if is_empty(X) else len(X), columns=_sparse_width(X) or 0)
    features, schema = local = ingest(given, tensors=tensors, is_shard=True, declared=declared)
    if schema.kind in ("names", "tokens"):
        return X, local, ShareForm(features.n_rows, schema.kind)
    columns = int(schema.n_columns or 0)
    if schema.names is None:
        kind = "sparse" if schema.kind == "array" and features.dense is None else schema.kind
        return X, local, ShareForm(features.n_rows, kind, columns)
    categorical = [name in schema.categorical for name in schema.names]
    missing = frames.find_missing_columns(X)
    return X, local, ShareForm(features.n_rows, "frame", columns, list(schema.names), categorical, missing)


def _sparse_width(X: Any) -> int | None:
    """Return the number of columns of a sparse matrix, None for any other form."""
    shape: Any = getattr(X, "shape", None)
    return int(shape[1]) if issparse(X) else None


def _merge_forms(messages: list[Any], declared: Any = None) -> dict[str, Any] | None:
    """Return the schema of all shares, and whether they have dense columns; None if no row tells its kind."""
    forms = [ShareForm(**FORM(f"the form of rank {rank}", message)) for rank, message in enumerate(messages)]
    if any(not len(form.names or ()) == len(form.categorical) == len(form.missing) for form in forms):
        raise ValueError("the form of a share must say of each name whether it is categorical and missing")
    if not any(form.rows for form in forms):
        raise ValueError("X has no rows")
    telling = {rank: form for rank, form in enumerate(forms) if form.kind}
    if not telling:
        return None
    of_frames = {rank: form for rank, form in telling.items() if form.kind == "frame"}
    names = _merge_names(of_frames) if of_frames else None
    categorical = _merge_categories(of_frames)
    kinds = group_ranks({rank: form.kind for rank, form in telling.items()})
    if len(kinds) > 1 and (set(kinds) != {"array", "frame"} or categorical):
        groups = format_groups({KIND_NAMES[kind]: ranks for kind, ranks in kinds.items()})
        raise ValueError(f"X must be of one form, got {groups}")
    if {"names", "tokens"} & set(kinds):
        return {"kind": next(iter(kinds)), "n_columns": None, "names": None, "categorical": [], "dense": False}
    columns = group_ranks({rank: form.columns for rank, form in telling.items()})
    if len(columns) > 1 and "sparse" not in kinds:
        raise ValueError(f"X must have the same columns on all workers, got {format_groups(columns)}")
    n_columns = max(form.columns for form in forms) if "sparse" in kinds else next(iter(columns))
    if n_columns == 0:
        raise ValueError(f"X has no columns{NO_COLUMNS_REASON}")
    if "columns" in kinds:
        categorical = [str(j) for j in resolve_declared(declared, n_columns, None)]
    return {
        "kind": "columns" if "columns" in kinds else "frame" if categorical else "array",
        "n_columns": n_columns,
        "names": names,
        "categorical": categorical,
        "dense": "sparse" not in kinds and len(categorical) < n_columns,
    }


def _merge_names(forms: Mapping[int, ShareForm]) -> Sequence[str]:
    """Return the names of the columns, which must be the same on all workers that have frames."""
    first = next(iter(forms))
    names = forms[first].names or []
    different = {rank: form.names or [] for rank, form in forms.items() if form.names != names}
    if different:
        rank, names_there = next(iter(different.items()))
        missing, new = [n for n in names if n not in names_there], [n for n in names_there if n not in names]
        reason = f"missing {missing}, new {new}" if missing or new else "another order"
        raise ValueError(
            f"X must have the same columns on all workers, {format_ranks(different)} have others than rank {first}; "
            f"rank {rank}: {reason}"
        )
    return names


def _merge_categories(forms: Mapping[int, ShareForm]) -> list[str]:
    """Return the columns that hold categories, according to the shares that have values in them."""
    categorical = []
    for j, name in enumerate(next(iter(forms.values())).names or [] if forms else []):
        ranks = group_ranks({rank: form.categorical[j] for rank, form in forms.items() if not form.missing[j]})
        if len(ranks) > 1:
            raise ValueError(
                f"X[{name!r}] holds categories on {format_ranks(ranks[True])} and numbers on "
                f"{format_ranks(ranks[False])}; convert it with astype"
            )
        if ranks.get(True) or (not ranks and any(form.categorical[j] for form in forms.values())):
            categorical.append(name)
    return categorical
