"""Which learner a training has, and which ones a trial compares: by parameters, rows and what is settled already."""

from __future__ import annotations

from dataclasses import dataclass

from gbun.boosting import Training
from gbun.defaults import (
    MAX_MIXED_NEURONS,
    MAX_MIXED_NEURONS_OF_ONE_SCORE,
    MAX_NEURONS,
    choose_kinds,
    choose_n_leaves,
    make_family,
    resolve_seed,
)
from gbun.ensemble import Ensemble
from gbun.learners import AnyLearner, MixedLearner, NetworkLearner, TreeLearner
from gbun.problem import Problem, check_unused_parameters
from gbun.trees.categories import MAX_CATEGORIES


@dataclass(frozen=True)
class ResolvedSettings:
    """What is no longer to be chosen: the learner, the kind of start and its penalty.

    An `init` of "linear or constant" fits both kinds of start and takes the better one. `to_beat` is the loss of rounds
    without a linear start: one that is far from it is given up early.
    """

    learner: AnyLearner | None = None
    init: str | None = None
    l2: float | None = None
    to_beat: float | None = None

    @classmethod
    def of(cls, model: Training | Ensemble) -> ResolvedSettings:
        linear = model.start.linear
        return cls(model.learner, *(("constant", None) if linear is None else ("linear", linear.l2)))


def choose_learner(problem: Problem, settings: ResolvedSettings) -> AnyLearner:
    """Return the learner that was given, or the first one that parameters and rows ask for."""
    given = problem.learner or settings.learner
    return given if given is not None else candidate_learners(problem)[0]


def candidate_learners(problem: Problem) -> list[AnyLearner]:
    """Return the learners among which a trial decides; without one, the first of them is taken."""
    if problem.initial is not None:
        return [problem.initial.ensemble.learner]
    if problem.learner is not None:
        return [problem.learner]
    n_scores = problem.target.objective.n_outputs(problem.target.y)
    kinds = choose_kinds(problem.parameters, problem.shard.features, problem.schema, n_scores)
    learners = [make_learner(kind, problem) for kind in kinds]
    check_unused_parameters(problem.parameters, learners[0])
    return learners


def make_learner(kind: str, problem: Problem) -> AnyLearner:
    """Make the learner of this kind that parameters and rows ask for."""
    if kind == "tree":
        return make_tree_learner(problem)
    features, n_rows = problem.shard.features, problem.totals.n_weighted
    n_scores = problem.target.objective.n_outputs(problem.target.y)
    beside_trees = MAX_MIXED_NEURONS if n_scores > 1 else MAX_MIXED_NEURONS_OF_ONE_SCORE
    most = MAX_NEURONS if kind == "network" else beside_trees
    network = NetworkLearner(make_family(problem.parameters, features, problem.schema, n_rows, most))
    return network if kind == "network" else MixedLearner(network, make_tree_learner(problem))


def make_tree_learner(problem: Problem) -> TreeLearner:
    """Return the trees that parameters and rows ask for."""
    parameters, schema = problem.parameters, problem.schema
    if problem.shard.features.dense is None and not schema.categorical:
        raise ValueError(f"learner={parameters.learner!r} splits dense columns, X has none; use learner='network'")
    if len(schema.categorical) > MAX_CATEGORIES:
        raise ValueError(
            f"learner={parameters.learner!r} splits {MAX_CATEGORIES} columns of categories at most, X has "
            f"{len(schema.categorical)}; use learner='network'"
        )
    if parameters.device != "cpu":
        raise ValueError(f"learner={parameters.learner!r} is computed on device='cpu' only, got {parameters.device!r}")
    n_scores = problem.target.objective.n_outputs(problem.target.y)
    return TreeLearner(
        seed=resolve_seed(parameters.random_state),
        n_columns=int(schema.n_columns or 0) - len(schema.categorical),
        n_leaves=parameters.n_leaves or choose_n_leaves(problem.totals.n_weighted, n_scores),
        min_rows=parameters.min_leaf_rows,
        n_projections=parameters.n_projections,
        n_candidates=parameters.n_candidates,
        reg_lambda=float(parameters.reg_lambda),
        reg_form=parameters.reg_form,
        n_categories=len(schema.categorical),
    )


def may_begin_linear(problem: Problem, learner: AnyLearner | None) -> bool:
    """Whether a trial tries a linear start after rounds without one: beside trees, on dense columns only."""
    parameters, features = problem.parameters, problem.shard.features
    dense_only = features.sparse is None and features.dense is not None
    undecided = parameters.init == "auto" and parameters.linear_l2 is None and problem.initial is None
    return undecided and dense_only and learner is not None and learner.splits_columns
