"""From a problem to a `Training` before its first round: settings, a plan for memory, the start, rows in place."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from gbun.boosting import Evaluation, Setup, Training
from gbun.collectives import can_overlap
from gbun.config import printable_parameters, to_printable
from gbun.data.buckets import Buckets, choose_buckets
from gbun.data.declared import FROM_DTYPE, is_declaration
from gbun.data.features import Shard
from gbun.data.ingest import describe_difference
from gbun.data.relevance import measure_relevance
from gbun.data.scaled_columns import ScaledColumns
from gbun.data.scaling import Scaling, fit_scaling, resolve_dense_steps, weigh_columns
from gbun.defaults import (
    DEFAULT_L2,
    FOLDS,
    MAX_MIXED_NEURONS,
    MAX_MIXED_NEURONS_OF_ONE_SCORE,
    MAX_NEURONS,
    MIN_ROWS_FOR_ONE_SPLIT,
    MIN_ROWS_TO_HOLD_OUT,
    choose_kinds,
    choose_n_leaves,
    gram_share,
    has_linear_start,
    make_family,
    resolve_seed,
)
from gbun.description import Description
from gbun.devices import Device, make_device
from gbun.ensemble import Ensemble
from gbun.kernels import BudgetTooSmallError, Plan, Workload, costs, make_plan
from gbun.kernels.costs import round_bytes, stored_score_bytes
from gbun.kernels.interface import MAX_EXACT_ROWS
from gbun.kernels.linear import count_weights
from gbun.kernels.placement import HEAD_BYTES
from gbun.kernels.sampling import make_gram_sample
from gbun.kernels.threads import ThreadPool
from gbun.learners import AnyLearner, MixedLearner, NetworkLearner, TreeLearner
from gbun.linear import LinearStartFitter
from gbun.memory import return_free_memory
from gbun.metrics import get_metric, metrics_for
from gbun.model import Model
from gbun.objectives import Custom, Objective
from gbun.problem import Problem, check_unused_parameters, divide_rows
from gbun.ranges import parse_size
from gbun.scored_rows import Place, ScoredRows, Start, TrainingRows, scale
from gbun.trees.categories import MAX_CATEGORIES

Made = TypeVar("Made")
Allocated = tuple[TrainingRows, list[Evaluation]]


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


def prepare(
    problem: Problem,
    pool: ThreadPool,
    *,
    judge: str | None = None,
    settings: ResolvedSettings = ResolvedSettings(),
    n_in_step: int = 1,
    known: Model | None = None,
    trial: bool = False,
) -> Training:
    """Make a training that is ready for its first round, or for the next after the last of the initial model.

    The evaluation set `judge` chooses what `settings` leave open, and `n_in_step` trainings share the memory. `known`
    has the start and some rounds of this very training, from a run that was cut short. A `trial` has part of the rows
    and finds out how many rounds help.
    """
    return_free_memory()
    parameters, collective = problem.parameters, problem.collective
    initial = known or problem.initial
    learner, scaling, objective, start = initial_state(problem, initial, settings)
    metrics = metrics_for(parameters.eval_metric, objective)
    device = make_device(parameters.device, parameters.tf32, pool.count)
    init = settings.init or parameters.init
    begins_linear = initial is None and has_linear_start(init, parameters, problem.shard.features)
    buckets = linear_buckets(problem, start.n_scores) if begins_linear else None
    workload = describe_workload(problem, learner, objective, start.n_scores, buckets, begins_linear, device)
    workload = replace(workload, n_in_step=n_in_step, n_fits=workload.n_fits if judge is None else 1)
    plan = plan_memory(problem, workload, device, pool.count)
    pool.limit(plan.n_threads)

    def scaled(shard: Shard) -> Shard:
        return replace(
            shard, features=scale(shard.features, scaling, device, learner, None if begins_linear else start)
        )

    shard, evaluated = scaled(problem.shard), {name: scaled(s) for name, s in problem.shards.items()}
    if begins_linear:
        # Penalties are judged by the objective's own metric, which sees every change; derivatives alone have none.
        metric = metrics[-1] if isinstance(objective, Custom) else get_metric(objective.default_metric())
        fitter = LinearStartFitter(buckets, objective, start.constant, metric, collective, pool)
        on_host = partial(copy_to_host, device, plan.n_bytes)
        judging = None if judge is None else on_host(evaluated[judge])
        start = fit_linear_start(problem, on_host(shard), judging, fitter, settings)
        return_free_memory()

    def allocate(plan: Plan) -> Allocated:
        place = Place(device, pool, form=plan.form)
        rows = TrainingRows(shard, learner, start, objective, plan, problem.totals, place)
        evaluations = []
        for name, s in evaluated.items():
            # The plan already has the scores of an evaluation set.
            budget = plan.left // len(evaluated) + stored_score_bytes(s.n_rows, start.n_scores, device)
            scored = ScoredRows(s.features, start, s.base_margin, replace(place, budget=budget))
            evaluations.append(Evaluation(name, s, scored))
        return rows, evaluations

    def plan_within(n_bytes: int) -> Plan:
        return make_plan(workload, device, pool.count, n_bytes, parameters.network)

    rows, evaluations = allocate_with_retry(plan, plan_within, allocate, device)
    return_free_memory()
    sample = make_gram_sample(
        sample_seed(problem, learner, initial), plan.gram_share, problem.shard.features, problem.shard.y
    )
    setup = Setup(parameters, learner, scaling, objective, start, describe(problem), sample, collective, trial)
    training = Training(setup, rows, evaluations, metrics, parameters.learning_rate)
    if problem.initial is not None:
        rounds = problem.initial.n_rounds * (round_bytes(learner.family, start.n_scores) if learner.family else 0)
        n_bytes = rows.plan.n_bytes + min(rounds, HEAD_BYTES)
        in_memory(device, partial(replay, training, problem.initial.ensemble), n_bytes)
    return training


def plan_training(problem: Problem, n_threads: int, n_divisions: int = 0, judged: bool = True) -> Plan:
    """Plan the memory of a training as `prepare` would, before anything is copied.

    Where rows are divided into those to fit and those to judge by, `n_divisions` trainings on copies go side by side;
    where these are a trial, a training on all rows follows. Without `judged`, they do not choose by the held-out rows.
    """
    device, work = make_device(problem.parameters.device), expected_workload(problem)
    works = []
    if not n_divisions or (judged and problem.parameters.refit):
        works.append(work)
    if n_divisions:  # as if each learnt from all rows
        copied, n_fits = costs.copied_bytes(problem.shard, device), 1 if judged else work.n_fits
        work = replace(work, copied=copied, n_in_step=n_divisions, n_fits=n_fits)
        held_out = problem.parameters.validation_fraction if n_divisions == 1 else 1.0 / n_divisions
        n_judging = math.ceil(held_out * problem.shard.n_rows)
        works.append(
            replace(work, metric_bytes=max(work.metric_bytes, metric_bytes(problem, work.n_scores, n_judging)))
        )
    plans, errors = [], []
    for work in works:
        try:
            plans.append(plan_memory(problem, work, device, n_threads))
        except BudgetTooSmallError as error:
            errors.append(error)
    if errors:
        raise max(errors, key=lambda error: error.n_bytes)
    return plans[0] if len(plans) == 1 else replace(plans[0], trial_bytes=plans[1].n_bytes)


def expected_workload(problem: Problem) -> Workload:
    """Describe what a training of this problem asks of memory before anything of it is fitted."""
    parameters, features = problem.parameters, problem.shard.features
    learner, objective = choose_learner(problem, ResolvedSettings()), problem.target.objective
    n_scores = objective.n_outputs(problem.target.y)
    begins_linear = has_linear_start(parameters.init, parameters, features) or may_begin_linear(problem, learner)
    buckets = linear_buckets(problem, n_scores) if begins_linear else None
    device = make_device(parameters.device)
    return describe_workload(problem, learner, objective, n_scores, buckets, begins_linear, device)


def may_begin_linear(problem: Problem, learner: AnyLearner | None) -> bool:
    """Whether a trial tries a linear start after rounds without one: beside trees, on dense columns only."""
    parameters, features = problem.parameters, problem.shard.features
    dense_only = features.sparse is None and features.dense is not None
    undecided = parameters.init == "auto" and parameters.linear_l2 is None
    return undecided and dense_only and learner is not None and learner.splits_columns


def plan_memory(problem: Problem, work: Workload, device: Device, n_threads: int) -> Plan:
    """Plan memory within the user's budget."""
    budget = parse_size(problem.parameters.memory_budget)
    return make_plan(work, device, n_threads, budget, problem.parameters.network)


def choose_learner(problem: Problem, settings: ResolvedSettings) -> AnyLearner:
    """Return the learner that was given, or the first one that parameters and rows ask for."""
    given = problem.learner or settings.learner
    return given if given is not None else candidate_learners(problem)[0]


def candidate_learners(problem: Problem) -> list[AnyLearner]:
    """Return the learners among which a trial decides; without one, the first of them is taken."""
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


def sample_seed(problem: Problem, learner: AnyLearner, initial: Model | None) -> int:
    """Return the seed of the Gram's sample: that of the networks, or of the model that is continued."""
    if learner.family is not None:
        return learner.family.seed
    stored = None if initial is None else initial.description.parameters.get("random_state")
    return problem.seed if stored is None else resolve_seed(stored)


def initial_state(
    problem: Problem, initial: Model | None, settings: ResolvedSettings
) -> tuple[AnyLearner, Scaling, Objective, Start]:
    """Return learner, scaling, loss and start: those of the initial model, or new ones with a constant start."""
    parameters, target, shard, collective = problem.parameters, problem.target, problem.shard, problem.collective
    if initial is None:
        learner = choose_learner(problem, settings)
        scaling = fit_scaling(parameters.scale, shard.features, shard.weight, collective, problem.schema)
        objective = target.objective.prepare(shard.y, shard.weight, collective)
        constant = collective.broadcast(objective.start(shard.y, shard.weight, collective))  # logarithms: the root's
        if scaling.dense is not None and "relevance" in resolve_dense_steps(scaling.name):
            g = objective.derivatives(shard.y, np.tile(constant, (shard.n_rows, 1)), shard.weight)[0]
            relevance = measure_relevance(shard.features.dense, scaling.dense, g, shard.weight, collective)
            scaling = weigh_columns(scaling, collective.broadcast(relevance))
        return learner, scaling, objective, Start(constant)
    check_continuation(problem, initial, "init_model" if initial is problem.initial else "resume")
    e = initial.ensemble
    objective = target.objective if e.objective.name == "custom" else e.objective
    return e.learner, e.scaling, objective, e.start


def linear_buckets(problem: Problem, n_scores: int) -> Buckets | None:
    """Decide where the linear start keeps the weights of sparse features; None where there are none."""
    sparse, schema = problem.shard.features.sparse, problem.schema
    if sparse is None:
        return None
    n_columns = schema.n_columns if schema.kind == "array" else None
    ids = sparse.weighted_ids(problem.shard.weight)
    return choose_buckets(ids, n_columns, n_scores, problem.collective, problem.parameters.linear_bits)


def describe_workload(
    problem: Problem,
    learner: AnyLearner,
    objective: Objective,
    n_scores: int,
    buckets: Buckets | None,
    begins_linear: bool,
    device: Device,
) -> Workload:
    """Describe what a training asks of memory."""
    features, n_rows = problem.shard.features, problem.totals.n_rows
    n_weights = count_weights(features, buckets) if begins_linear else 0
    most_used = costs.count_columns(features) + costs.count_entries(features)
    return Workload(
        features,
        learner.n_outputs,
        n_scores,
        watched=[shard.features for shard in problem.shards.values()],
        n_grams=objective.n_grams(n_scores),
        line_search=objective.line_search,
        exact=n_rows <= MAX_EXACT_ROWS,
        gram_share=1.0 if learner.diagonal else gram_share(problem.parameters.gram_rows, n_rows, learner.n_outputs),
        pipelined=can_overlap(problem.collective) and learner.data_independent,
        n_linear_weights=n_weights,
        n_used_weights=n_weights if problem.collective.size > 1 else min(n_weights, most_used),
        n_fits=FOLDS if n_rows < MIN_ROWS_FOR_ONE_SPLIT else 1,
        score_bytes=objective.score_bytes,
        fused=learner.family is not None,
        row_bytes=learner.row_bytes,
        kept=learner.kept_bytes(features.n_rows, n_scores),
        target_columns=costs.count_target_columns(problem.shard),
        metric_bytes=metric_bytes(problem, n_scores, max((s.n_rows for s in problem.shards.values()), default=0)),
        copied=sum(costs.copied_bytes(shard, device) for shard in problem.copies),
    )


def metric_bytes(problem: Problem, n_scores: int, n_rows: int) -> int:
    """Return the memory for the metrics of an evaluation set of some rows, one after the other."""
    metrics = metrics_for(problem.parameters.eval_metric, problem.target.objective)
    return n_rows * max(metric.row_bytes(n_scores) for metric in metrics)


def copy_to_host(device: Device, n_bytes: int, rows: Shard) -> Shard:
    """Return scaled rows where the linear start is computed; `n_bytes` are those of the plan for the device."""
    features = rows.features
    if not isinstance(features.dense, ScaledColumns):
        return rows
    dense = in_memory(device, lambda: np.asarray(features.dense), n_bytes)
    return replace(rows, features=replace(features, dense=dense))


def fit_linear_start(
    problem: Problem, rows: Shard, judge: Shard | None, fitter: LinearStartFitter, settings: ResolvedSettings
) -> Start:
    """Fit the linear start to scaled rows, its penalty chosen on the rows of `judge` or, without any, on held-out rows.

    Where init is "auto", the constant is kept if the judging rows prefer it.
    """
    parameters, n_weighted = problem.parameters, problem.totals.n_weighted
    l2 = settings.l2 if parameters.linear_l2 is None else parameters.linear_l2
    if l2 is not None:
        return Start(*fitter.fit(rows, l2))
    parts: Iterable[tuple[Shard, Shard]] = [] if judge is None else [(rows, judge)]
    if judge is None and n_weighted >= MIN_ROWS_TO_HOLD_OUT:
        held_out = problem.choose_held_out(several=n_weighted < MIN_ROWS_FOR_ONE_SPLIT)
        parts = (divide_rows(rows, held) for held in held_out) if held_out else []
    if not parts:
        return Start(*fitter.fit(rows, DEFAULT_L2))
    constant, linear, is_better = fitter.choose(parts, settings.to_beat)
    if parameters.init == "auto" and not is_better:
        return Start(fitter.start)
    return Start(constant, linear) if judge is not None else Start(*fitter.fit(rows, linear.l2))


def allocate_with_retry(
    plan: Plan, plan_within: Callable[[int], Plan], allocate: Callable[[Plan], Allocated], device: Device
) -> Allocated:
    """Put rows in their place, by a plan for half the memory where a device turns out to have less than it said."""
    if device.compiled:
        return allocate(plan)

    def rehearse() -> Allocated:
        rows, evaluations = allocate(plan)
        rows.rehearse()
        for evaluation in evaluations:
            evaluation.rows.rehearse(rows.learner)
        return rows, evaluations

    while True:
        allocated = device.try_to_allocate(rehearse)
        if allocated is not None:
            return allocated
        n_bytes = plan.n_bytes
        try:
            plan = plan_within(n_bytes // 2)
        except BudgetTooSmallError as least:
            if least.n_bytes >= n_bytes:
                raise MemoryError(
                    f"device={device.name!r} ran out of memory with a plan for {n_bytes} bytes, and none needs less: "
                    f"that many must be free there, or n_neurons smaller"
                ) from None
            plan = plan_within(least.n_bytes)


def in_memory(device: Device, make: Callable[[], Made], n_bytes: int) -> Made:
    """Return what `make` gives; where a device has too little memory, raise an error that says how much it needs."""
    made = device.try_to_allocate(make) if not device.compiled else make()
    if made is None:
        raise MemoryError(
            f"device={device.name!r} ran out of memory with a plan for {n_bytes} bytes: that many must be free there"
        )
    return made


def replay(training: Training, initial: Ensemble) -> Training:
    """Bring the scores of all rows to where the initial model left them."""
    for step in initial.steps:
        training.add_step(step)
    training.take_rounds(initial.steps)
    return training


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
    if e.linear is not None:
        trained["linear_l2"] = e.linear.l2
        if e.linear.buckets is not None and e.linear.buckets.hashed:
            trained["linear_bits"] = e.linear.buckets.bits
    for name, value in trained.items():
        wanted = getattr(parameters, name)
        wanted = resolve_seed(wanted) if name == "random_state" and wanted is not None else wanted
        if wanted not in (None, value, "auto"):
            raise ValueError(f"{name}={wanted!r} differs from {source}'s {value!r}; leave it out")
    if family is not None and parameters.density not in (None, family.density, family.sparse_density):
        raise ValueError(f"density={parameters.density!r} differs from {source}'s {family.density!r}; leave it out")
    for name, value in asked.parameters().items():
        if value is not None and value != objective.parameters()[name]:
            raise ValueError(
                f"the objective's {name}={value!r} differs from {source}'s {objective.parameters()[name]!r}"
            )


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
