"""The JSON header of a model file: everything of a model that is not an array of numbers.

`HEADER` is the format, key by key; docs/model_format.md says what each key means.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from gbun.description import Description
from gbun.ensemble import Ensemble
from gbun.model_io.checks import (
    Check,
    anything,
    brief,
    flag,
    number,
    one_of,
    optional,
    parameter,
    record,
    strings,
    table,
    text,
    whole,
)
from gbun.ranges import Scale

VERSION = 2

POSITIVE = number("above 0", lambda x: x > 0.0)
DENSITY = number("from 0.001 to 1", lambda x: 0.001 <= x <= 1.0)
COUNT = whole(0, 2**63 - 1)
OUTPUTS = whole(1, 2**31 - 1)

FAMILY = record(
    {
        "kind": one_of("simhash++"),
        "seed": COUNT,
        "n_outputs": whole(2, 16384),
        "group_size": optional(whole(2, 16384)),
        "density": DENSITY,
        "sparse_density": DENSITY,
        "temperature": POSITIVE,
        "n_columns": optional(COUNT),
    }
)

# By name of the objective: what its parameters() holds. An objective that is not here cannot be stored.
OBJECTIVE_PARAMETERS: dict[str, dict[str, Check]] = {
    "squared_error": {},
    "multi_squared_error": {},
    "huber": {"delta": optional(POSITIVE)},
    "quantile": {"quantile": number("in (0, 1)", lambda x: 0.0 < x < 1.0), "epsilon": optional(POSITIVE)},
    "poisson": {},
    "gamma": {},
    "tweedie": {"power": number("in (1, 2)", lambda x: 1.0 < x < 2.0)},
    "logistic": {},
    "multi_logistic": {"shared": flag},
    "softmax": {"n_classes": OUTPUTS, "shared": flag},
    "custom": {"outputs": OUTPUTS, "link": one_of("identity", "logistic", "softmax")},
}


def _scale(name: str, value: Any) -> Any:
    if not Scale().admits(value):
        raise ValueError(f"{name} must be {Scale()}, got {brief(value)}")
    return value


def _steps(name: str, value: Any) -> Any:
    steps = strings(name, value)
    if steps:
        _scale(name, "+".join(steps))
    if set(steps) & {"auto", "none"}:
        raise ValueError(f"{name} must be a list of scaling steps, got {brief(value)}")
    return tuple(steps)


def _objective(name: str, value: Any) -> dict[str, Any]:
    which = record({"name": one_of(*OBJECTIVE_PARAMETERS), "parameters": anything})(name, value)
    parameters = record(OBJECTIVE_PARAMETERS[which["name"]])(f"{name}.parameters", which["parameters"])
    return {"name": which["name"], "parameters": parameters}


BUCKETS = optional(record({"n": whole(1, 2**31 - 1), "hashed": flag}))
SCALING = record({"name": _scale, "dense": flag, "sparse": flag, "steps": _steps, "buckets": BUCKETS})
LINEAR = optional(record({"buckets": BUCKETS, "l2": number("of at least 0", lambda x: x >= 0.0)}))
SCHEMA = record({"kind": text, "n_columns": optional(COUNT), "names": optional(strings), "categorical": strings})
DESCRIPTION = record(
    {
        "task": one_of("classification", "multilabel", "regression"),
        "schema": SCHEMA,
        "classes": lambda name, value: value if value in (None, "tensor") else strings(name, value),
        "single_column": flag,
        "parameters": table(parameter),
        "best_round": optional(whole(-1, 2**63 - 1)),  # -1: the start
        "best_score": optional(number("that is finite", lambda _: True)),
    }
)
HEADER = record(
    {
        "version": whole(1, VERSION),
        "family": FAMILY,
        "objective": _objective,
        "scaling": SCALING,
        "linear": LINEAR,
        "description": DESCRIPTION,
    }
)


def header_of(ensemble: Ensemble, description: Description, classes: Any) -> Any:
    """The header of a model, unchecked; `classes` is what `stored_classes` made of its labels."""
    objective, scaling, linear = ensemble.objective, ensemble.scaling, ensemble.linear
    shared = scaling.shared
    return _plain(
        {
            "version": VERSION,
            "family": asdict(ensemble.family),
            "objective": {"name": objective.name, "parameters": objective.parameters()},
            "scaling": {
                "name": scaling.name,
                "dense": scaling.dense is not None,
                "sparse": scaling.sparse is not None,
                "steps": scaling.sparse_steps,
                "buckets": None if shared is None else asdict(shared.buckets),
            },
            "linear": None
            if linear is None
            else {"buckets": None if linear.buckets is None else asdict(linear.buckets), "l2": linear.l2},
            "description": {**vars(description), "schema": asdict(description.schema), "classes": classes},
        }
    )


def _plain(value: Any) -> Any:
    """NumPy scalars as Python's, tuples as lists; all else is left for the checks to name."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def checked(values: Any) -> dict[str, Any]:
    """The header, its values of the right types and within their ranges."""
    version = values.get("version", VERSION) if isinstance(values, dict) else VERSION
    if isinstance(version, int) and version > VERSION:  # said before its new keys are complained of
        raise ValueError(f"the file was written by a newer gbun, in format version {brief(version)}; upgrade gbun")
    header: dict[str, Any] = HEADER("header", _upgraded(values))
    family, schema = header["family"], header["description"]["schema"]
    outputs, group = family["n_outputs"], family["group_size"]
    if group is not None and outputs % group:
        raise ValueError(f"header.family.group_size must divide n_outputs ({outputs}), got {group}")
    columns, schema_columns = family["n_columns"], schema["n_columns"] if schema["kind"] == "array" else None
    # Kernels keep a table of n_columns rows and read it without looking: ids beyond must be impossible.
    if columns not in (None, schema_columns):
        raise ValueError(f"header.family.n_columns must be null or the schema's ({schema_columns}), got {columns}")
    return header


def _upgraded(values: Any) -> Any:
    """A header of version 1 with the keys that version 2 added; one that is none is left for the checks to name."""
    scaling = values.get("scaling") if isinstance(values, dict) else None
    if not isinstance(scaling, dict) or type(values.get("version")) is not int or values["version"] != 1:
        return values
    for name, new in (
        ("header", {"linear"} & values.keys()),
        ("header.scaling", {"steps", "buckets"} & scaling.keys()),
    ):
        if new:
            raise ValueError(f"{name} has keys that version 1 does not know: {sorted(new)}")
    steps = ["standard"] if scaling.get("name") == "standard" and scaling.get("sparse") else []
    return {**values, "linear": None, "scaling": {**scaling, "steps": steps, "buckets": None}}


def canonical(header: Mapping[str, Any]) -> str:
    """JSON with keys in order, no spaces, ASCII only: the same header gives the same text."""
    return json.dumps(header, sort_keys=True, separators=(",", ":"), allow_nan=False)
