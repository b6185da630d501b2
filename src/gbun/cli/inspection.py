"""`gbun inspect`: describe a model as a table or as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.filesize import decimal

from gbun.cli.prediction import MODEL_HELP
from gbun.cli.screen import format_list, show_json, show_table, sparkline

if TYPE_CHECKING:
    from gbun.model import Model

NETWORK_FIELDS = ("kind", "n_outputs", "temperature", "density", "sparse_density", "group_size", "seed")


def inspect(
    model: Annotated[Path, typer.Argument(help=MODEL_HELP)],
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table; nothing is shortened.")] = False,
) -> None:
    """Describe a model."""
    from gbun.model import load_model

    details = describe_model(load_model(model), model)
    if json:
        show_json(details)
    else:
        show_table(format_description(details))


def describe_model(model: Model, path: Path) -> dict[str, Any]:
    """Describe a model in plain types; rounds count from 0, and parameters are those that are not the defaults."""
    import numpy as np

    from gbun.config import parameter_fields

    ensemble, description = model.ensemble, model.description
    linear, kind, parameters = ensemble.linear, ensemble.learner.kind, ensemble.learner.parameters()
    buckets = None if linear is None else linear.buckets
    learner: dict[str, Any] = {"learner": {"kind": kind, "parameters": parameters}}
    if kind == "network":
        learner = {"network": {name: parameters[name] for name in NETWORK_FIELDS}}
    defaults = {field.name: field.default for field in parameter_fields()}
    stored = description.parameters.items()
    return {
        "file": str(path),
        "bytes": path.stat().st_size,
        "task": description.task,
        "objective": {"name": ensemble.objective.name, **ensemble.objective.parameters()},
        "rounds": ensemble.n_rounds,
        "best_round": description.best_round,
        "best_score": description.best_score,
        "scores": ensemble.n_scores,
        "classes": None if model.classes is None else model.classes.tolist(),
        **learner,
        "scaling": {
            "name": ensemble.scaling.name,
            "dense": ensemble.scaling.dense is not None,
            "sparse": ensemble.scaling.sparse is not None,
            "sparse_steps": list(ensemble.scaling.sparse_steps),
        },
        "start": {
            "kind": "constant" if linear is None else "linear",
            "l2": None if linear is None else linear.l2,
            "weights": None if linear is None else linear.n_weights,
            "buckets": None if buckets is None else buckets.n,
            "hashed": None if buckets is None else buckets.hashed,
        },
        "input": vars(description.schema),
        "parameters": {name: value for name, value in stored if name not in defaults or value != defaults[name]},
        # The Euclidean norm of the head: how much a round added to the scores.
        "head_norms": [float(np.linalg.norm(step.head)) for step in ensemble.steps],
    }


def format_description(details: dict[str, Any]) -> list[tuple[str, str]]:
    scaling, norms = details["scaling"], details["head_norms"]
    objective, n_columns = dict(details["objective"]), details["input"]["n_columns"]
    array = "dense rows" if scaling["dense"] else "sparse rows"
    kinds = {"array": array, "columns": "dense rows", "frame": "a data frame"}
    kinds |= {"names": "dicts", "tokens": "lists of words"}
    rows = [
        ("file", f"{details['file']}, {decimal(details['bytes'])}"),
        ("task", details["task"]),
        ("objective", _format_parameters(objective.pop("name"), objective)),
        ("rounds", str(details["rounds"])),
        ("best round", _format_best_round(details["best_round"], details["best_score"])),
        ("scores a row", str(details["scores"])),
        ("classes", "" if details["classes"] is None else format_list(map(repr, details["classes"]))),
        ("input", kinds[details["input"]["kind"]] + ("" if n_columns is None else f" of {n_columns} columns")),
        ("columns", format_list(details["input"]["names"] or ())),
        ("categorical", format_list(details["input"]["categorical"])),
        ("scaling", f"{scaling['name']}: {_format_scaling(scaling)}"),
        ("start", _format_start(details["start"])),
        *_format_learner(details),
        ("parameters", ", ".join(f"{k}={v}" for k, v in details["parameters"].items()) or "the defaults"),
        ("head norms", f"{sparkline(norms)} {norms[0]:.3g} to {norms[-1]:.3g}" if norms else ""),
    ]
    return [(name, value) for name, value in rows if value]


def _format_parameters(name: str, parameters: dict[str, Any]) -> str:
    values = ", ".join(f"{key} = {value}" for key, value in parameters.items())
    return f"{name} ({values})" if values else name


def _format_best_round(best_round: int | None, best_score: float | None) -> str:
    if best_round is None:
        return ""
    score = "" if best_score is None else f", with a score of {best_score:.6g}"
    return f"{best_round + 1 or 'none: the start is best'}{score}"


def _format_learner(details: dict[str, Any]) -> list[tuple[str, str]]:
    if "network" not in details:
        return [("learner", _format_parameters(details["learner"]["kind"], details["learner"]["parameters"]))]
    network = details["network"]
    groups = "over all of them" if network["group_size"] is None else f"in groups of {network['group_size']}"
    return [
        ("network", f"{network['kind']}, K = {network['n_outputs']} outputs, softmax {groups}"),
        ("temperature", f"{network['temperature']:g}"),
        ("density", f"{network['density']:g} of dense columns, {network['sparse_density']:g} of sparse ones"),
        ("seed", str(network["seed"])),
    ]


def _format_start(start: dict[str, Any]) -> str:
    if start["kind"] == "constant":
        return "constant"
    place = ""
    if start["buckets"] is not None:
        place = f" in {start['buckets']:,} hashed buckets" if start["hashed"] else f" of {start['buckets']:,} columns"
    return f"linear, {start['weights']:,} weights{place} that are not 0, l2 = {start['l2']:g}"


def _format_scaling(scaling: dict[str, Any]) -> str:
    if scaling["name"] == "none":
        return "columns are left as they are"
    parts = ["dense columns are scaled"] if scaling["dense"] else []
    if scaling["sparse_steps"] or not scaling["dense"]:
        steps = "+".join(scaling["sparse_steps"])
        parts.append(f"sparse columns by {steps}" if steps else "sparse columns are left as they are")
    return ", ".join(parts)
