"""`gbun inspect`: what a model is, in words or as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gbun.cli.prediction import MODEL_HELP
from gbun.cli.screen import shortened, show_json, show_table, size_in_words, sparkline

if TYPE_CHECKING:
    from gbun.model import Model


def inspect(
    model: Annotated[Path, typer.Argument(help=MODEL_HELP)],
    json: Annotated[bool, typer.Option("--json", help="JSON in place of words; nothing is shortened.")] = False,
) -> None:
    """Say what a model is."""
    from gbun.model import load_model

    found = facts(load_model(model), model)
    if json:
        show_json(found)
    else:
        show_table(in_words(found))


def facts(model: Model, path: Path) -> dict[str, Any]:
    """Everything worth knowing of a model, in plain types; rounds count from 0, as they do in Python."""
    ensemble, description = model.ensemble, model.description
    family, schema, linear = ensemble.family, description.schema, ensemble.linear
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
        "network": {
            "kind": family.kind,
            "n_outputs": family.n_outputs,
            "temperature": family.temperature,
            "density": family.density,
            "sparse_density": family.sparse_density,
            "group_size": family.group_size,
            "seed": family.seed,
        },
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
            "buckets": None if linear is None or linear.buckets is None else linear.buckets.n,
            "hashed": None if linear is None or linear.buckets is None else linear.buckets.hashed,
        },
        "input": {
            "kind": schema.kind,
            "n_columns": schema.n_columns,
            "names": schema.names,
            "categorical": schema.categorical,
        },
        "parameters": changed_parameters(model),
        "head_norms": head_norms(model),
    }


def changed_parameters(model: Model) -> dict[str, Any]:
    """The training parameters that differ from the defaults."""
    from gbun.config import parameter_fields

    defaults = {f.name: f.default for f in parameter_fields()}
    stored = model.description.parameters
    return {name: value for name, value in stored.items() if name not in defaults or value != defaults[name]}


def head_norms(model: Model) -> list[float]:
    """The Euclidean norm of each round's head: how much the round added."""
    import numpy as np

    return [float(np.linalg.norm(head)) for head in model.ensemble.heads]


def in_words(found: dict[str, Any]) -> list[tuple[str, str]]:
    network, scaling = found["network"], found["scaling"]
    groups = "over all of them" if network["group_size"] is None else f"in groups of {network['group_size']}"
    rows = [
        ("file", f"{found['file']}, {size_in_words(found['bytes'])}"),
        ("task", found["task"]),
        ("objective", _named_values(found["objective"])),
        ("rounds", str(found["rounds"])),
        ("best round", _best(found)),
        ("scores a row", str(found["scores"])),
        ("classes", "" if found["classes"] is None else shortened(map(repr, found["classes"]))),
        ("input", _input(found["input"], scaling["dense"])),
        ("columns", shortened(found["input"]["names"] or ())),
        ("categorical", shortened(found["input"]["categorical"])),
        ("scaling", f"{scaling['name']}: {_scaled(scaling)}"),
        ("start", _start(found["start"])),
        ("network", f"{network['kind']}, K = {network['n_outputs']} outputs, softmax {groups}"),
        ("temperature", f"{network['temperature']:g}"),
        ("density", f"{network['density']:g} of dense columns, {network['sparse_density']:g} of sparse ones"),
        ("seed", str(network["seed"])),
        ("parameters", ", ".join(f"{k}={v}" for k, v in found["parameters"].items()) or "the defaults"),
        ("head norms", _norms(found["head_norms"])),
    ]
    return [(what, value) for what, value in rows if value]


def _named_values(objective: dict[str, Any]) -> str:
    values = ", ".join(f"{name} = {value}" for name, value in objective.items() if name != "name")
    return f"{objective['name']} ({values})" if values else str(objective["name"])


def _best(found: dict[str, Any]) -> str:
    if found["best_round"] is None:
        return ""
    best = found["best_round"] + 1
    score = "" if found["best_score"] is None else f", with a score of {found['best_score']:.6g}"
    return f"{best or 'none: the start is best'}{score}"


def _start(start: dict[str, Any]) -> str:
    if start["kind"] == "constant":
        return "constant"
    kept = ""
    if start["buckets"] is not None:
        kept = f" in {start['buckets']:,} hashed buckets" if start["hashed"] else f" of {start['buckets']:,} columns"
    return f"linear, {start['weights']:,} weights{kept} that are not 0, l2 = {start['l2']:g}"


def _input(expected: dict[str, Any], dense: bool) -> str:
    kinds = {
        "array": "dense rows" if dense else "sparse rows",
        "frame": "a data frame",
        "names": "dicts",
        "tokens": "lists of words",
    }
    columns = "" if expected["n_columns"] is None else f" of {expected['n_columns']} columns"
    return kinds.get(expected["kind"], str(expected["kind"])) + columns


def _scaled(scaling: dict[str, Any]) -> str:
    if scaling["name"] == "none":
        return "columns are left as they are"
    told = []
    if scaling["dense"]:
        told.append("dense columns are scaled")
    if scaling["sparse_steps"] or not scaling["dense"]:
        steps = "+".join(scaling["sparse_steps"])
        told.append(f"sparse columns by {steps}" if steps else "sparse columns are left as they are")
    return ", ".join(told)


def _norms(norms: list[float]) -> str:
    return f"{sparkline(norms)} {norms[0]:.3g} to {norms[-1]:.3g}" if norms else ""
