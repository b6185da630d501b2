"""From a problem to a `Training` before its first round: settings, a plan for memory, the start, rows in place."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from gbun.boosting import Evaluation, Setup, Training
from gbun.collectives import can_overlap
from gbun.continuation import check_continuation, describe, replay
from gbun.data.buckets import Buckets, choose_buckets
from gbun.data.features import Shard
from gbun.data.relevance import measure_relevance
from gbun.data.scaled_columns import ScaledColumns
from gbun.data.scaling import Scaling, fit_scaling, resolve_dense_steps, weigh_columns
from gbun.data.seen_categories import find_seen_categories
from gbun.defaults import (
    DEFAULT_L2,
    FOLDS,
    MIN_ROWS_FOR_ONE_SPLIT,
    MIN_ROWS_TO_HOLD_OUT,
    gram_share,
    has_linear_start,
    resolve_seed,
)
from gbun.devices import Device, make_device
from gbun.kernels import BudgetTooSmallError, Plan, Workload, costs, make_plan
from gbun.kernels.costs import round_bytes, stored_score_bytes
from gbun.kernels.interface import MAX_EXACT_ROWS
from gbun.kernels.linear import count_weights
from gbun.kernels.placement import HEAD_BYTES
from gbun.kernels.sampling import make_gram_sample
from gbun.kernels.threads import ThreadPool
from gbun.learner_choice import ResolvedSettings, choose_learner, may_begin_linear
from gbun.learners import AnyLearner
from gbun.linear import LinearStartFitter
from gbun.memory import return_free_memory
from gbun.metrics import get_metric, metrics_for
from gbun.model import Model
from gbun.objectives import Custom, Objective
from gbun.problem import Problem, divide_rows
from gbun.ranges import parse_size
from gbun.scored_rows import Place, ScoredRows, Start, TrainingRows, scale

Made = TypeVar("Made")
UNSETTLED = ResolvedSettings()
FEWEST_STEPS = 256  # of float32 within the range of a column
Allocated = tuple[TrainingRows, list[Evaluation]]


def prepare(
    problem: Problem,
    pool: ThreadPool,
    *,
    judge: str | None = None,
    settings: ResolvedSettings = UNSETTLED,
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
    if learner.splits_columns and not trial:
        warn_of_rounding(problem)
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


def plan_memory(problem: Problem, work: Workload, device: Device, n_threads: int) -> Plan:
    """Plan memory within the user's budget."""
    budget = parse_size(problem.parameters.memory_budget)
    return make_plan(work, device, n_threads, budget, problem.parameters.network)


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
    scaling = e.scaling
    if scaling.seen is not None:  # what further rounds learn of
        more = find_seen_categories(shard.features, len(problem.schema.categorical), shard.weight, collective)
        scaling = replace(scaling, seen=scaling.seen.join(more))
    objective = target.objective if e.objective.name == "custom" else e.objective
    return e.learner, scaling, objective, e.start


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


def warn_of_rounding(problem: Problem) -> None:
    """Warn of columns whose values trees, which see float32, cannot tell apart."""
    X = problem.shard.features.dense
    if not isinstance(X, np.ndarray) or X.dtype.itemsize < np.dtype(np.float64).itemsize or not len(X):
        return
    low, high = np.fmin.reduce(X, axis=0).astype(float), np.fmax.reduce(X, axis=0).astype(float)
    coarse = np.flatnonzero((high > low) & (high - low < FEWEST_STEPS * np.spacing(np.float32(np.abs(high)))))
    if len(coarse):
        j = int(coarse[0])
        between = f"{float(low[j])!r} to {float(high[j])!r} in column {problem.schema.dense_names[j]!r}"
        warnings.warn(
            f"X has values from {between}: trees see float32, which cannot tell many of them apart; subtract an offset",
            stacklevel=2,
        )


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
