"""How workers that each hold a share of the rows come to read them as one would that held them all.

Before the first round they tell each other what their rows look like: kinds, numbers and names of columns, the labels
there are, who failed and why. What each says goes to the first worker, which decides for all. No row and no value of a
row is told.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from gbun.collectives import Collective, Solo, WorkerError
from gbun.data import frames
from gbun.data.features import Features, Schema
from gbun.data.ingest import NO_COLUMNS, conform, ingest, is_empty, no_rows
from gbun.data.tensors import matrix

ALONE = Solo()
LONGEST = 1000  # characters of an error that other workers are told
MOST_RANKS = 8  # that a message names
LOOKS = {
    "array": "an array",
    "sparse": "a sparse matrix",
    "frame": "a data frame",
    "names": "a list of dicts",
    "tokens": "a list of token lists",
}

Found = TypeVar("Found")


# One answer for all


def together(collective: Collective, work: Callable[[], Found]) -> Found:
    """What `work` gives on this worker, once it has succeeded on all; it must send no messages itself.

    Where it fails, that worker raises its own error and the others a `WorkerError`, so nobody waits for who has gone.

    >>> together(ALONE, lambda: 1 + 1)
    2
    """
    if collective.size == 1:
        return work()
    found: list[Found] = []
    failure: Exception | None = None
    try:
        found.append(work())
    except Exception as error:
        failure = error
    if not collective.sum(np.array([float(failure is not None)]))[0]:
        return found[0]
    told = None if failure is None else f"{type(failure).__name__}: {failure}"[:LONGEST]
    rank, text = decided(collective, told, lambda all_told: next((r, t) for r, t in enumerate(all_told) if t))
    if failure is not None:
        raise failure
    raise WorkerError(f"worker {rank} of {collective.size} failed: {text}", rank)


def decided(collective: Collective, said: Any, decide: Callable[[list[Any]], Any]) -> Any:
    """What `decide` makes of what all workers say, in rank order, the same on all of them; or its ValueError.

    What is said and what comes of it must be what JSON can write.
    """
    if collective.size == 1:
        return decide([said])
    heard, answer = collective.gather(_written(said)), None
    if heard is not None:
        try:
            answer = {"found": decide([_read(one) for one in heard])}
        except Exception as error:
            answer = {"error": str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"}
    answer = _told(collective, answer)
    if "error" in answer:
        raise ValueError(answer["error"])
    return answer["found"]


def _told(collective: Collective, answer: Any) -> Any:
    """The first worker's answer on all."""
    text = _written(answer)
    length = int(collective.broadcast(np.array([len(text)], dtype=np.int64))[0])
    return _read(collective.broadcast(text if collective.rank == 0 else np.zeros(length, dtype=np.uint8)))


def _written(value: Any) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(value).encode(), dtype=np.uint8)


def _read(text: NDArray[np.uint8]) -> Any:
    return json.loads(text.tobytes())


def check_alike(told: list[Any], where: str) -> None:
    """Whether all workers say the same, name by name."""
    for name in told[0]:
        values = by_value({rank: repr(one[name]) for rank, one in enumerate(told)})
        if len(values) > 1:
            raise ValueError(f"{name} must be the same {where}, got {listed(values)}")


def ranks(some: Iterable[int]) -> str:
    """
    >>> ranks([1]), ranks([0, 2]), ranks(range(64))
    ('rank 1', 'ranks 0, 2', 'ranks 0, 1, 2, 3, 4, 5, 6, 7 and 56 more')
    """
    named = list(some)
    more = f" and {len(named) - MOST_RANKS} more" if len(named) > MOST_RANKS else ""
    return f"rank{'s' if len(named) > 1 else ''} {', '.join(map(str, named[:MOST_RANKS]))}{more}"


def by_value(values: Mapping[int, Found]) -> dict[Found, list[int]]:
    """Which ranks have which value.

    >>> by_value({0: "a", 1: "b", 2: "a"})
    {'a': [0, 2], 'b': [1]}
    """
    groups: dict[Found, list[int]] = {}
    for rank, value in values.items():
        groups.setdefault(value, []).append(rank)
    return groups


def listed(groups: Mapping[Any, list[int]]) -> str:
    """
    >>> listed({3: [0, 2], 4: [1]})
    '3 on ranks 0, 2, 4 on rank 1'
    """
    return ", ".join(f"{value} on {ranks(own)}" for value, own in groups.items())


# Features


@dataclass(frozen=True)
class Form:
    """What a share of the rows looks like; `looks` is empty where it has no row that tells.

    `categorical` and `missing` say of each column of a frame whether it is read as categories, and whether it is
    missing in all rows of the share: then others tell what it is.
    """

    rows: int = 0
    looks: str = ""
    columns: int = 0
    names: list[str] | None = None
    categorical: list[bool] = field(default_factory=list)
    missing: list[bool] = field(default_factory=list)


def ingest_share(X: Any, collective: Collective = ALONE, tensors: bool = False) -> tuple[Features, Schema]:
    """Features of this worker's rows, and the schema that one worker with all rows would have found."""
    if collective.size == 1:
        return ingest(X, tensors=tensors)
    X, own, form = together(collective, lambda: _own_reading(X, tensors))
    agreed = decided(collective, asdict(form), _agreed_form)
    if agreed is None:  # rows that tell nothing anywhere: whoever has some says what is wrong with them
        together(collective, lambda: None if is_empty(X) else ingest(X, tensors=tensors))
        raise ValueError(f"X has no columns{NO_COLUMNS}")
    names = None if agreed["names"] is None else tuple(agreed["names"])
    schema = Schema(agreed["kind"], agreed["n_columns"], names, tuple(agreed["categorical"]))
    return together(collective, lambda: _as_agreed(X, own, schema, agreed["dense"], tensors)), schema


def conform_share(
    X: Any, schema: Schema, dense: bool, name: str = "X", tensors: bool = False, collective: Collective = ALONE
) -> Features:
    """`ingest.conform` of this worker's rows; how many rows and columns there must be is asked of all shares."""
    if collective.size == 1:
        return conform(X, schema, dense, name, tensors)

    def work() -> tuple[Features, int]:
        given = matrix(X, tensors, name)
        sparse = schema.kind == "array" and _is_sparse(given)
        if is_empty(given):
            return no_rows(schema, dense), int(given.shape[1]) if sparse else 0
        features = conform(X, schema, dense, name, tensors, share=True)
        return features, int(given.shape[1]) if sparse else schema.n_columns or 0

    def enough(said: list[Any]) -> None:
        if not any(rows for rows, _ in said):
            raise ValueError(f"{name} has no rows")
        columns = max(columns for _, columns in said)
        if schema.kind == "array" and columns != schema.n_columns:
            raise ValueError(f"{name} has {columns} features, the model was trained on {schema.n_columns}")

    features, columns = together(collective, work)
    decided(collective, (features.n_rows, columns), enough)
    return features


def _own_reading(X: Any, tensors: bool) -> tuple[Any, tuple[Features, Schema] | None, Form]:
    """X, what it is by itself, None where it has no row that tells, and what it looks like."""
    given, X = X, matrix(X, tensors)
    silent = isinstance(X, (list, tuple)) and all(isinstance(row, (dict, list, tuple)) and not row for row in X)
    own = None if silent or is_empty(X) else ingest(given, tensors=tensors, share=True)
    return X, own, _form(X, own)


def _is_sparse(X: Any) -> bool:
    return bool(scipy.sparse.issparse(X))


def _form(X: Any, own: tuple[Features, Schema] | None) -> Form:
    if own is None:
        columns = int(X.shape[1]) if _is_sparse(X) else 0
        return Form(0 if is_empty(X) else len(X), columns=columns)
    features, schema = own
    if schema.kind in ("names", "tokens"):
        return Form(features.n_rows, schema.kind)
    columns = int(schema.n_columns or 0)
    if schema.names is None:
        return Form(features.n_rows, "sparse" if features.dense is None else "array", columns)
    categorical = [name in schema.categorical for name in schema.names]
    return Form(features.n_rows, "frame", columns, list(schema.names), categorical, frames.missing(X))


def _agreed_form(said: list[Any]) -> dict[str, Any] | None:
    """The schema of all shares, and whether they have dense columns. None where no row of any tells."""
    forms = [Form(**one) for one in said]
    telling = {rank: form for rank, form in enumerate(forms) if form.looks}
    if not any(form.rows for form in forms):
        raise ValueError("X has no rows")
    if not telling:
        return None
    own_frames = {rank: form for rank, form in telling.items() if form.looks == "frame"}
    names = _agreed_names(own_frames) if own_frames else None
    categorical = _agreed_categories(own_frames)
    looks = by_value({rank: form.looks for rank, form in telling.items()})
    if len(looks) > 1 and (set(looks) != {"array", "frame"} or categorical):
        raise ValueError(f"X must be of one form, got {listed({LOOKS[look]: own for look, own in looks.items()})}")
    if {"names", "tokens"} & set(looks):
        return {"kind": next(iter(looks)), "n_columns": None, "names": None, "categorical": [], "dense": False}
    columns = by_value({rank: form.columns for rank, form in telling.items()})
    if len(columns) > 1 and "sparse" not in looks:
        raise ValueError(f"X must have the same columns on all workers, got {listed(columns)}")
    n_columns = max(form.columns for form in forms) if "sparse" in looks else next(iter(columns))
    if n_columns == 0:
        raise ValueError(f"X has no columns{NO_COLUMNS}")
    return {
        "kind": "frame" if categorical else "array",
        "n_columns": n_columns,
        "names": names,
        "categorical": categorical,
        "dense": "sparse" not in looks and len(categorical) < n_columns,
    }


def _agreed_names(forms: Mapping[int, Form]) -> list[str]:
    """The names of the columns, which must be the same on all workers that have frames."""
    first = next(iter(forms))
    names = forms[first].names or []
    others = {rank: form.names or [] for rank, form in forms.items() if form.names != names}
    if others:
        rank, own = next(iter(others.items()))
        missing, new = [n for n in names if n not in own], [n for n in own if n not in names]
        how = f"missing {missing}, new {new}" if missing or new else "another order"
        raise ValueError(
            f"X must have the same columns on all workers, {ranks(others)} have others than rank {first}; rank {rank}: "
            f"{how}"
        )
    return names


def _agreed_categories(forms: Mapping[int, Form]) -> list[str]:
    """The columns that hold categories, told by shares that have values in them."""
    found = []
    for j, name in enumerate(next(iter(forms.values())).names or [] if forms else []):
        told = by_value({rank: form.categorical[j] for rank, form in forms.items() if not form.missing[j]})
        if len(told) > 1:
            raise ValueError(
                f"X[{name!r}] holds categories on {ranks(told[True])} and numbers on {ranks(told[False])}; convert it "
                "with astype"
            )
        if told.get(True) or (not told and any(form.categorical[j] for form in forms.values())):
            found.append(name)
    return found


def _as_agreed(X: Any, own: tuple[Features, Schema] | None, schema: Schema, dense: bool, tensors: bool) -> Features:
    """The share as all agreed to read it: mostly as it was read already."""
    if is_empty(X):
        return no_rows(schema, dense)
    if own is not None and (own[1].kind, own[1].categorical) == (schema.kind, schema.categorical):
        return own[0]
    return conform(X, schema, dense, tensors=tensors, share=True)
