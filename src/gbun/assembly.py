"""From a problem to a `Training` before its first round: networks, scaling, the start, memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from gbun.boosting import Evaluation, Training, take_rounds
from gbun.collectives import Collective, Courier
from gbun.config import Parameters, parameter_fields
from gbun.data.buckets import Buckets, buckets_for
from gbun.data.columns import ScaledColumns
from gbun.data.features import Features, Schema, Shard
from gbun.data.scaling import Scaling, fit_scaling
from gbun.defaults import (
    EXACT_ROWS,
    FEW_ROWS_TO_JUDGE_BY,
    FOLDS,
    LEAST_ROWS_TO_HOLD_OUT,
    UNJUDGED_L2,
    family_for,
    gram_share,
    seed_of,
    starts_linear,
)
from gbun.description import Description
from gbun.devices import Device, TorchDevice, device_of
from gbun.dtypes import SUM, FloatArray
from gbun.ensemble import Ensemble, Rows, TrainingRows, scaled
from gbun.kernels import DevicePlan, Plan, TooLittle, make_device_plan, make_plan
from gbun.kernels.device_plan import HEADS, round_bytes, stored_scores
from gbun.kernels.linear import weight_count
from gbun.kernels.sampling import gram_sample
from gbun.kernels.threads import Threads
from gbun.linear import Fitting, LinearStart
from gbun.metrics import get_metric
from gbun.metrics.base import Metric
from gbun.model import Model
from gbun.networks import Family
from gbun.objectives import Custom, Objective
from gbun.problem import Problem
from gbun.ranges import size_in_bytes
from gbun.targets import Target

Made = TypeVar("Made")
Placed = tuple[TrainingRows, list[Evaluation]]


@dataclass(frozen=True)
class Settled:
    """What is no longer to be chosen: the networks, the kind of start and its penalty."""

    family: Family | None = None
    init: str | None = None
    l2: float | None = None

    @classmethod
    def by(cls, of: Training | Ensemble) -> Settled:
        linear = of.linear
        return cls(of.family, *(("constant", None) if linear is None else ("linear", linear.l2)))


def assemble(
    problem: Problem,
    pool: Threads,
    decides: str | None = None,
    settled: Settled | None = None,
    side_by_side: int = 1,
    known: Model | None = None,
) -> Training:
    """A `Training` before its first round, or after the last one of the initial model.

    `decides` names the evaluation set that chooses what is not settled. As many as `side_by_side` share the memory.
    `known` has the start and some rounds of this very training, from a run that was cut short.
    """
    parameters, shard, initial = problem.parameters, problem.shard, known or problem.initial
    collective, settled = problem.collective, settled or Settled()
    n_rows, n_counting, total_weight = of_all_rows(shard, collective)
    family, scaling, objective, start, linear = beginning(problem, initial, settled, collective, n_counting)
    device, exact = device_of(parameters.device, parameters.tf32, pool.count), n_rows <= EXACT_ROWS
    features = scaled(shard.features, scaling, device)
    watched = {name: scaled(s.features, scaling, device) for name, s in problem.shards.items()}
    metrics = metrics_for(parameters, objective)
    begins_linear = initial is None and starts_linear(settled.init or parameters.init, parameters, features)
    n_weights, buckets = 0, None
    if begins_linear:
        buckets = buckets_of(parameters, features, shard.weight, problem.schema, len(start), collective)
        n_weights = weight_count(features, buckets)

    def planned(budget: int | None = None) -> Plan | DevicePlan:
        return plan_for(
            parameters, features, family, objective, len(start), n_rows, pool.count, list(watched.values()), n_weights,
            side_by_side, device, budget, isinstance(collective, Courier),
        )  # fmt: skip

    memory = planned()
    pool.limit(memory.n_threads)
    if begins_linear:
        # Penalties are judged by the objective's own metric, which sees every change; derivatives alone have none.
        metric = metrics[-1] if isinstance(objective, Custom) else get_metric(objective.default_metric())
        fitting = Fitting(buckets, objective, start, metric, collective, pool)
        on_host = partial(rows_on_host, device, memory.n_bytes)
        judge = None if decides is None else replace(problem.shards[decides], features=on_host(watched[decides]))
        learnt_from = replace(shard, features=on_host(features))
        start, linear = linear_start(problem, learnt_from, judge, fitting, settled, n_counting)

    def placed(plan: Plan | DevicePlan) -> Placed:
        rows = TrainingRows(features, family, start, shard, pool, plan, exact, linear, device)
        evaluations = []
        for name, s in problem.shards.items():
            # Of an evaluation set the plan has the scores already.
            budget = plan.left // len(watched) + stored_scores(s.n_rows, len(start), device)
            own = Rows(watched[name], family, start, s.base_margin, pool, plan.form, linear, device, budget)
            evaluations.append(Evaluation(name, s, own))
        return rows, evaluations

    if isinstance(device, TorchDevice):
        rows, evaluations = placed_in_time(memory, planned, placed, objective, device)
    else:
        rows, evaluations = placed(memory)
    sample = gram_sample(family.seed, memory.gram_share, shard.features, shard.y)
    training = Training(
        parameters, family, scaling, objective, start, linear, described(problem), shard, rows, sample, evaluations,
        metrics, collective, total_weight, n_counting, parameters.learning_rate,
    )  # fmt: skip
    if problem.initial is None:
        return training
    if not isinstance(device, TorchDevice):
        return replay(training, problem.initial)
    own = problem.initial.n_rounds * round_bytes(family, len(start))
    return in_memory(device, partial(replay, training, problem.initial), rows.plan.n_bytes + min(own, HEADS))


def beginning(
    problem: Problem, initial: Model | None, settled: Settled, collective: Collective, n_counting: int
) -> tuple[Family, Scaling, Objective, FloatArray, LinearStart | None]:
    """Networks, scaling, loss and start: those of the initial model, or new ones."""
    parameters, target, shard = problem.parameters, problem.target, problem.shard
    if initial is None:
        family = settled.family or family_for(parameters, shard.features, problem.schema, n_counting)
        scaling = fit_scaling(parameters.scale, shard.features, shard.weight, collective, problem.schema)
        objective = target.objective.prepared(shard.y, shard.weight, collective)
        start = collective.broadcast(objective.start(shard.y, shard.weight, collective))  # logarithms: the root's
        return family, scaling, objective, start, None
    check_continuation(parameters, target, initial)
    e = initial.ensemble
    objective = target.objective if e.objective.name == "custom" else e.objective
    return e.family, e.scaling, objective, e.start, e.linear


def placed_in_time(
    plan: Plan | DevicePlan,
    planned: Callable[[int], Plan | DevicePlan],
    placed: Callable[[Plan | DevicePlan], Placed],
    objective: Objective,
    device: Device,
) -> Placed:
    """Rows on a device, by a plan for half the memory where the device turns out to have less than it said."""

    def rehearsed() -> Placed:
        rows, evaluations = placed(plan)
        rows.rehearse(objective)
        for evaluation in evaluations:
            evaluation.rows.rehearse()
        return rows, evaluations

    while True:
        found = device.unless_out_of_memory(rehearsed)
        if found is not None:
            return found
        tried = plan.n_bytes
        try:
            plan = planned(tried // 2)
        except TooLittle as least:
            if least.n_bytes >= tried:
                raise MemoryError(
                    f"device={device.name!r} ran out of memory with a plan for {tried} bytes, and none needs less: "
                    f"that many must be free there, or n_neurons smaller"
                ) from None
            plan = planned(least.n_bytes)


def in_memory(device: Device, make: Callable[[], Made], n_bytes: int) -> Made:
    """What `make` gives; where a device's memory is too small for it, an error tells how much must be free."""
    made = device.unless_out_of_memory(make)
    if made is None:
        raise MemoryError(
            f"device={device.name!r} ran out of memory with a plan for {n_bytes} bytes: that many must be free there"
        )
    return made


def rows_on_host(device: Device, n_bytes: int, features: Features) -> Features:
    """Scaled rows where a linear start is computed; `n_bytes` are those of the plan for the device."""
    if not isinstance(features.dense, ScaledColumns):
        return features
    dense = in_memory(device, lambda: np.asarray(features.dense), n_bytes)
    return replace(features, dense=dense)


def described(problem: Problem) -> Description:
    """What the model remembers besides its numbers."""
    target, initial, written = problem.target, problem.initial, written_parameters(problem.parameters)
    if initial is not None:  # its networks are still those of its own parameters
        written |= {name: initial.description.parameters.get(name, written[name]) for name in NETWORK_PARAMETERS}
    return Description(target.task, problem.schema, target.classes, target.y.ndim == 1, written)


def linear_start(
    problem: Problem, rows: Shard, judge: Shard | None, fitting: Fitting, settled: Settled, n_rows: int
) -> tuple[FloatArray, LinearStart | None]:
    """The linear start of these rows (scaled), its penalty chosen by `judge` or, without one, by rows held out.

    `n_rows` are those of all workers that have a weight.

    Where nobody insists on it, the constant is kept if the judging rows prefer it.
    """
    parameters = problem.parameters
    l2 = settled.l2 if parameters.linear_l2 is None else parameters.linear_l2
    if l2 is not None:
        return fitting.fit(rows, l2)
    parts = [(rows, judge)] if judge is not None else []
    if not parts and n_rows >= LEAST_ROWS_TO_HOLD_OUT:
        parts = problem.parts(n_rows < FEW_ROWS_TO_JUDGE_BY, rows, fitting.collective)
    if not parts:
        return fitting.fit(rows, UNJUDGED_L2)
    start, linear, is_better = fitting.choose(parts)
    if parameters.init == "auto" and not is_better:
        return fitting.start, None
    return (start, linear) if judge is not None else fitting.fit(rows, linear.l2)


def buckets_of(
    parameters: Parameters,
    features: Features,
    weight: FloatArray,
    schema: Schema,
    n_scores: int,
    collective: Collective,
) -> Buckets | None:
    """Where the linear start keeps weights of sparse features."""
    if features.sparse is None:
        return None
    n_columns = schema.n_columns if schema.kind == "array" else None
    return buckets_for(features.sparse.counting(weight), n_columns, n_scores, collective, parameters.linear_bits)


def of_all_rows(rows: Shard, collective: Collective) -> tuple[int, int, float]:
    """How many rows all workers have, how many of them have a weight, and the sum of their weights."""
    own = np.array([rows.n_rows, np.count_nonzero(rows.weight), rows.weight.sum()], dtype=SUM)
    n_rows, n_counting, total_weight = collective.sum(own).tolist()
    return int(n_rows), int(n_counting), total_weight


def plan_for(
    parameters: Parameters,
    features: Features,
    family: Family,
    objective: Objective,
    n_scores: int,
    n_rows: int,
    n_threads: int,
    watched: Sequence[Features] = (),
    n_weights: int = 0,
    side_by_side: int = 1,
    device: Device | None = None,
    budget: int | None = None,
    ahead: bool = False,
) -> Plan | DevicePlan:
    """`n_rows` are those of all workers, `n_weights` those of a linear start for each score.

    `budget` takes the place of the one among the parameters; `ahead`: sums travel.
    """
    given = size_in_bytes(parameters.memory_budget)
    if budget is None and given is not None:
        budget = given // side_by_side
    wanted: dict[str, Any] = {
        "memory_budget": budget,
        "line_search": objective.line_search,
        "n_grams": objective.n_grams(n_scores),
        "exact": n_rows <= EXACT_ROWS,
        "gram_share": gram_share(parameters.gram_rows, n_rows, family.n_outputs),
        "watched": watched,
        "ahead": ahead,
    }
    if isinstance(device, TorchDevice):
        wanted["score_bytes"] = objective.score_bytes
        return make_device_plan(features, family.n_outputs, n_scores, n_threads, device, **wanted)
    n_fits = FOLDS if n_rows < FEW_ROWS_TO_JUDGE_BY else 1
    wanted |= {"form": parameters.network, "n_weights": n_weights, "n_fits": n_fits}
    return make_plan(features, family.n_outputs, n_scores, n_threads, **wanted)


def replay(training: Training, initial: Model) -> Training:
    """Bring the scores of all rows to where `initial` left them."""
    for t in range(initial.n_rounds):
        training.take(initial.ensemble, t)
    take_rounds(training, initial.ensemble.steps)
    return training


NETWORK_PARAMETERS = (
    "n_neurons", "temperature", "group_size", "density", "scale", "random_state", "init", "linear_l2", "linear_bits"
)  # fmt: skip


def check_continuation(parameters: Parameters, target: Target, initial: Model) -> None:
    """Networks of added rounds come from the family of the first ones: what is asked for may not contradict it."""
    family, objective, linear = initial.ensemble.family, initial.ensemble.objective, initial.ensemble.linear
    asked = target.objective
    if objective.name != asked.name or len(initial.ensemble.start) != asked.n_outputs(target.y):
        raise ValueError(
            f"init_model was trained with objective {objective.name!r} and {len(initial.ensemble.start)} score(s), "
            f"this training asks for {asked.name!r} and {asked.n_outputs(target.y)}"
        )
    trained: dict[str, Any] = {
        "n_neurons": family.n_outputs,
        "temperature": family.temperature,
        "group_size": family.group_size,
        "scale": initial.ensemble.scaling.name,
        "init": "constant" if linear is None else "linear",
        "random_state": family.seed,
    }
    if linear is not None:
        trained["linear_l2"] = linear.l2
        if linear.buckets is not None and linear.buckets.hashed:
            trained["linear_bits"] = linear.buckets.bits
    for name, value in trained.items():
        given = getattr(parameters, name)
        given = seed_of(given) if name == "random_state" and given is not None else given
        if given not in (None, value, "auto"):
            raise ValueError(f"{name}={given!r} differs from init_model's {value!r}; leave it out")
    if parameters.density not in (None, family.density, family.sparse_density):
        raise ValueError(f"density={parameters.density!r} differs from init_model's {family.density!r}; leave it out")
    for name, value in asked.parameters().items():
        if value is not None and value != objective.parameters()[name]:
            raise ValueError(
                f"the objective's {name}={value!r} differs from init_model's {objective.parameters()[name]!r}"
            )


def metrics_for(parameters: Parameters, objective: Any) -> list[Metric]:
    given = parameters.eval_metric
    if given is None:
        given = objective.default_metric()
    if isinstance(given, (list, tuple)) and not given:
        raise ValueError("eval_metric must name at least one metric, got an empty list")
    several = isinstance(given, list) or (isinstance(given, tuple) and not _is_function_tuple(given))
    try:
        return [get_metric(m) for m in (given if several else [given])]
    except ValueError as error:
        raise ValueError(f"eval_metric: {error}") from None


def _is_function_tuple(given: tuple[Any, ...]) -> bool:
    return len(given) == 3 and isinstance(given[0], str) and callable(given[1])


def written_parameters(parameters: Parameters) -> dict[str, Any]:
    """The parameters that can be written into a file; functions and generators leave their name only."""
    return {f.name: _written(getattr(parameters, f.name)) for f in parameter_fields()}


def _written(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_written(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    plain = value is None or isinstance(value, (str, int, float, bool))
    return value if plain else f"<{getattr(value, '__name__', type(value).__name__)}>"
