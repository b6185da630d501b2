"""The JSON header of a model file: everything of a model that is not an array of numbers.

`HEADER` is the format, key by key; docs/model_format.md says what each key means.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import is_dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbun.checks import (
    Check,
    anything,
    brief,
    check_array,
    flag,
    integer,
    number,
    one_of,
    optional,
    parameter_value,
    record,
    rule,
    strings,
    table,
    text,
)
from gbun.data.features import Schema
from gbun.description import Description
from gbun.ensemble import Ensemble
from gbun.model_io.upgrade import upgrade_header
from gbun.ranges import Scale, parse_scaling_steps

VERSION = 3
POSITIVE = number("above 0", lambda x: x > 0.0)
COUNT = integer(0, 2**63 - 1)
SCORE_COUNT = integer(1, 2**31 - 1)

# By name of the objective: what its parameters() holds. An objective that is not here cannot be stored.
OBJECTIVE_PARAMETERS: dict[str, dict[str, Check]] = {
    **{name: {} for name in ("squared_error", "multi_squared_error", "poisson", "gamma", "logistic")},
    "huber": {"delta": optional(POSITIVE)},
    "quantile": {"quantile": number("in (0, 1)", lambda x: 0.0 < x < 1.0), "epsilon": optional(POSITIVE)},
    "tweedie": {"power": number("in (1, 2)", lambda x: 1.0 < x < 2.0)},
    "multi_logistic": {"shared": flag},
    "softmax": {"n_classes": SCORE_COUNT, "shared": flag},
    "custom": {"outputs": SCORE_COUNT, "link": one_of("identity", "logistic", "softmax")},
}


def _are_steps(value: Any) -> bool:
    try:
        return isinstance(value, list) and (value == [] or parse_scaling_steps("+".join(value)) == tuple(value))
    except (TypeError, ValueError):
        return False


def _check_objective(name: str, value: Any) -> dict[str, Any]:
    which = record({"name": one_of(*OBJECTIVE_PARAMETERS), "parameters": anything})(name, value)
    parameters = record(OBJECTIVE_PARAMETERS[which["name"]])(f"{name}.parameters", which["parameters"])
    return {"name": which["name"], "parameters": parameters}


def _check_schema(name: str, value: Any) -> dict[str, Any]:
    keys = SCHEMA if isinstance(value, dict) and "declared" in value else SCHEMA_WITHOUT_DECLARED
    schema: dict[str, Any] = keys(name, value)
    is_frame, n_columns, names = schema["kind"] == "frame", schema["n_columns"], schema["names"]
    if (names is not None and len(names) != n_columns) or (is_frame and names is None):
        found = "none" if names is None else len(names)
        raise ValueError(f"{name}.names must be as many as n_columns ({n_columns}), got {found}")
    categorical = schema["categorical"]
    if schema["kind"] == "columns":
        _check_column_numbers(name, categorical, n_columns or 0)
    elif categorical and not (is_frame and len({*names} & {*categorical}) == len(categorical)):
        raise ValueError(f"{name}.categorical must be among the names of a frame, got {brief(list(categorical))}")
    declared = schema.get("declared", ())
    if declared and not (is_frame and len({*categorical} & {*declared}) == len(declared)):
        raise ValueError(f"{name}.declared must be among those of a frame that are categorical, got {brief(declared)}")
    return schema


def _check_column_numbers(name: str, categorical: tuple[str, ...], n_columns: int) -> None:
    """Check the categorical columns of an array: their numbers as text, in ascending order."""
    found = [int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else -1 for text in categorical]
    ascending = all(a < b for a, b in pairwise([-1, *found, n_columns]))
    if not found or not ascending or [str(j) for j in found] != list(categorical):
        raise ValueError(
            f"{name}.categorical must be numbers below {n_columns} that ascend, got {brief(list(categorical))}"
        )


SCALE = rule(str(Scale()), Scale().admits)
STEPS = rule("a list of scaling steps, in the order of their names", _are_steps)
BUCKETS = optional(record({"n": integer(1, 2**31 - 1), "hashed": flag}))
KIND = one_of("array", "frame", "columns", "names", "tokens")
SCHEMA_KEYS = {"kind": KIND, "n_columns": optional(COUNT), "names": optional(strings), "categorical": strings}
SCHEMA_WITHOUT_DECLARED, SCHEMA = record(SCHEMA_KEYS), record({**SCHEMA_KEYS, "declared": strings})
HEADER = record(
    {
        "version": integer(1, VERSION),
        "learner": record({"kind": text, "parameters": anything}),  # checked by the learner of this kind
        "n_rounds": COUNT,
        "objective": _check_objective,
        "scaling": record({"name": SCALE, "dense": flag, "sparse": flag, "steps": STEPS, "buckets": BUCKETS}),
        "linear": optional(record({"buckets": BUCKETS, "l2": number("of at least 0", lambda x: x >= 0.0)})),
        "description": record(
            {
                "task": one_of("classification", "multilabel", "regression"),
                "schema": _check_schema,
                "classes": lambda name, value: value if value in (None, "tensor") else strings(name, value),
                "single_column": flag,
                "parameters": table(parameter_value),
                "best_round": optional(integer(-1, 2**63 - 1)),  # -1: the start
                "best_score": optional(number("that is finite", lambda _: True)),
            }
        ),
    }
)


def make_header(ensemble: Ensemble, description: Description, classes: Any) -> Any:
    """Return the header of a model, unchecked; `classes` is what `encode_classes` made of its labels."""
    learner, objective, scaling, linear = ensemble.learner, ensemble.objective, ensemble.scaling, ensemble.linear
    return _to_plain_values(
        {
            "version": VERSION,
            "learner": {"kind": learner.kind, "parameters": learner.parameters()},
            "n_rounds": ensemble.n_rounds,
            "objective": {"name": objective.name, "parameters": objective.parameters()},
            "scaling": {
                "name": scaling.name,
                "dense": scaling.dense is not None,
                "sparse": scaling.sparse is not None,
                "steps": scaling.sparse_steps,
                "buckets": None if scaling.bucketed is None else scaling.bucketed.buckets,
            },
            "linear": None if linear is None else {"buckets": linear.buckets, "l2": linear.l2},
            "description": {**vars(description), "schema": _describe_schema(description.schema), "classes": classes},
        }
    )


def _describe_schema(schema: Schema) -> dict[str, Any]:
    """Return the schema without what older files do not have and this one does not need."""
    return {key: value for key, value in vars(schema).items() if key != "declared" or value}


def _to_plain_values(value: Any) -> Any:
    """Turn NumPy scalars into Python's, tuples into lists, records into dicts; checks name what is left."""
    if isinstance(value, np.generic):
        return value.item()
    if is_dataclass(value) and not isinstance(value, type):
        value = vars(value)
    if isinstance(value, Mapping):
        return {key: _to_plain_values(item) for key, item in value.items()}
    return [_to_plain_values(item) for item in value] if isinstance(value, (list, tuple)) else value


def check_header(values: Any) -> dict[str, Any]:
    """Return a header of any version with the keys of this one, values of the right types and within their ranges."""
    version = values.get("version") if isinstance(values, dict) else None
    if isinstance(version, int) and version > VERSION:  # said before its new keys are refused
        raise ValueError(f"the file was written by a newer gbun, in format version {brief(version)}; upgrade gbun")
    is_old = type(version) is int and 1 <= version < VERSION
    return dict(HEADER("header", upgrade_header(values) if is_old else values))


def to_canonical_json(header: Mapping[str, Any]) -> str:
    """Return JSON with sorted keys, no spaces and only ASCII: the same header gives the same text."""
    try:
        return json.dumps(header, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except RecursionError:
        raise ValueError("header is nested too deeply to be ours") from None


def encode_classes(classes: Any) -> tuple[Any, dict[str, NDArray[Any]]]:
    """Return what the header says of the labels, and their tensor where they are numbers.

    >>> encode_classes(np.array(["no", "yes"]))
    (['no', 'yes'], {})
    >>> encode_classes(np.array([2, 3], dtype=np.int8))
    ('tensor', {'classes': array([2, 3], dtype=int8)})
    """
    if classes is None:
        return None, {}
    labels = np.asarray(classes)
    # Fixed-width strings, objects, NumPy 2's strings of any length; all else must be numbers.
    if labels.dtype.kind not in "UOT" or labels.ndim != 1:
        return "tensor", {"classes": labels}
    for value in labels.tolist():
        if not isinstance(value, str):
            raise ValueError(
                f"classes must be all strings or all numbers of one dtype, got {brief(value)} of type "
                f"{type(value).__name__}; convert y before training, for instance with astype(str)"
            )
    return [str(value) for value in labels.tolist()], {}


def decode_classes(stored: Any, tensor: NDArray[Any] | None) -> NDArray[Any] | None:
    """Return the labels from what the header says of them and from their tensor."""
    if stored is None:
        return None
    if tensor is None:
        # Each string of an array takes the memory of the longest: one long label among many short ones would take far
        # more than the file that names them.
        n_bytes = 4 * len(stored) * max(map(len, stored), default=0)
        if n_bytes > 2**24 + 64 * sum(map(len, stored)):
            raise ValueError(
                f"classes would take {n_bytes} bytes as an array of strings; use shorter or integer labels"
            )
        if any(label.endswith("\0") for label in stored):  # NumPy drops them: two labels could become one
            raise ValueError("classes must not end in a NUL character")
    labels = np.array(stored, np.str_) if tensor is None else check_array("classes", tensor, "numbers", (None,))
    if labels.dtype.kind == "b" and (labels.view(np.uint8) > 1).any():
        raise ValueError("classes have truth values besides 0 and 1")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError("classes must be finite, got NaN or infinity")
    if len(np.unique(labels)) < len(labels):
        raise ValueError("classes must differ from each other, some label is there twice")
    return labels
