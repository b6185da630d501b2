"""A training that goes on from a model: what it takes from it, and what contradicts it."""

from __future__ import annotations

from typing import Any

import numpy as np

from gbun.boosting import Training
from gbun.config import printable_parameters, to_printable
from gbun.data.declared import FROM_DTYPE, is_declaration
from gbun.data.ingest import describe_difference
from gbun.defaults import resolve_seed
from gbun.description import Description
from gbun.ensemble import Ensemble
from gbun.learner_choice import candidate_learners
from gbun.learners import MixedLearner, TreeLearner
from gbun.model import Model
from gbun.problem import DEFAULTS, Problem, check_unused_parameters

LEARNER_PARAMETERS = (
    "learner", "n_leaves", "min_leaf_rows", "n_projections", "n_candidates", "n_neurons", "temperature",
    "temperature_doublings", "group_size", "density", "scale", "random_state", "init", "linear_l2", "linear_bits",
    "categorical_features",
)  # fmt: skip


def describe(problem: Problem) -> Description:
    """Return what the model remembers besides its numbers."""
    target, initial, stored = problem.target, problem.initial, printable_parameters(problem.parameters)
    if initial is not None:  # its rounds are still those of its own parameters
        stored |= {name: initial.description.parameters.get(name, stored[name]) for name in LEARNER_PARAMETERS}
    return Description(target.task, problem.schema, target.classes, target.y.ndim == 1, stored)


def replay(training: Training, initial: Ensemble) -> Training:
    """Bring the scores of all rows to where the initial model left them."""
    for step in initial.steps:
        training.add_step(step)
    training.take_rounds(initial.steps)
    return training


def check_continuation(problem: Problem, initial: Model, source: str) -> None:
    """Refuse what contradicts the model that is continued; `source` is the argument that gave it."""
    parameters, asked, e = problem.parameters, problem.target.objective, initial.ensemble
    objective, n_scores = e.objective, asked.n_outputs(problem.target.y)
    if objective.name != asked.name or e.n_scores != n_scores:
        raise ValueError(
            f"{source} was trained with objective {objective.name!r} and {e.n_scores} score(s), "
            f"this training asks for {asked.name!r} and {n_scores}"
        )
    if source == "resume":
        check_checkpoint(problem, initial)
    check_unused_parameters(parameters, e.learner)
    stored = initial.description.parameters.get("categorical_features", FROM_DTYPE)
    if is_declaration(parameters.categorical_features) and stored != to_printable(parameters.categorical_features):
        raise ValueError(
            f"categorical_features={parameters.categorical_features!r} differs from {source}'s {stored!r}; leave it out"
        )
    given, known = ((each.kind, each.parameters()) for each in (problem.learner or e.learner, e.learner))
    if given != known:
        raise ValueError(
            f"learner differs from {source}'s: got {given[0]!r} with {given[1]}, "
            f"expected {known[0]!r} with {known[1]}; leave it out"
        )
    family = e.learner.family
    for name, value in settled_parameters(e).items():
        wanted = getattr(parameters, name)
        wanted = resolve_seed(wanted) if name == "random_state" and wanted is not None else wanted
        if wanted not in (None, value, "auto", getattr(DEFAULTS, name)):
            raise ValueError(f"{name}={wanted!r} differs from {source}'s {value!r}; leave it out")
    if family is not None and parameters.density not in (None, family.density, family.sparse_density):
        raise ValueError(f"density={parameters.density!r} differs from {source}'s {family.density!r}; leave it out")
    for name, value in asked.parameters().items():
        if value is not None and value != objective.parameters()[name]:
            raise ValueError(
                f"the objective's {name}={value!r} differs from {source}'s {objective.parameters()[name]!r}"
            )


def settled_parameters(e: Ensemble) -> dict[str, Any]:
    """Return the parameters that further rounds share with those that there are."""
    trained: dict[str, Any] = {
        "learner": e.learner.kind,
        "scale": e.scaling.name,
        "init": "constant" if e.linear is None else "linear",
    }
    family = e.learner.family
    if family is not None:
        trained |= {
            "n_neurons": family.n_outputs,
            "temperature": family.temperature,
            "temperature_doublings": family.temperature_doublings,
            "group_size": family.group_size,
            "random_state": family.seed,
        }
    trees = e.learner.tree if isinstance(e.learner, MixedLearner) else e.learner
    if isinstance(trees, TreeLearner):
        trained |= {
            "n_leaves": trees.n_leaves,
            "min_leaf_rows": trees.min_rows,
            "n_projections": trees.n_projections,
            "n_candidates": trees.n_candidates,
            "random_state": trees.seed,
        }
    if e.linear is not None:
        trained["linear_l2"] = e.linear.l2
        if e.linear.buckets is not None and e.linear.buckets.hashed:
            trained["linear_bits"] = e.linear.buckets.bits
    return trained


def check_checkpoint(problem: Problem, known: Model) -> None:
    """Refuse a checkpoint of another training: other columns, other classes, or another kind of learner."""
    stored, classes = known.description, problem.target.classes
    if stored.schema != problem.schema:
        raise ValueError(
            f"resume has a checkpoint of other columns: {describe_difference(stored.schema, problem.schema)}"
        )
    if not np.array_equal(np.asarray(stored.classes), np.asarray(classes)):
        raise ValueError(f"resume has a checkpoint of the classes {stored.classes}, got {classes}")
    kinds = [learner.kind for learner in candidate_learners(problem)]
    if problem.initial is None and known.ensemble.learner.kind not in kinds:
        raise ValueError(f"resume has a checkpoint of learner {known.ensemble.learner.kind!r}, got {kinds[0]!r}")
