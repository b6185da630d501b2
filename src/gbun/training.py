"""The native API: `train`, and how data and parameters become a `Training`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbun.boosting import Evaluation, Training, boost, evaluate
from gbun.callbacks import Callback, EarlyStopping, callbacks_for_verbosity
from gbun.collectives import Collective, Solo
from gbun.config import Parameters, check, parameter_fields, parameters_from, size_in_bytes
from gbun.data.buckets import Buckets, buckets_for
from gbun.data.features import Features, Schema, Shard
from gbun.data.ingest import conform, ingest
from gbun.data.scaling import fit_scaling
from gbun.defaults import (
    EXACT_ROWS,
    FEW_ROWS_TO_JUDGE_BY,
    FOLDS,
    LEAST_GAIN,
    LEAST_ROWS_TO_HOLD_OUT,
    MOST_ROUNDS,
    PATIENCE,
    UNJUDGED_L2,
    UNJUDGED_ROUNDS,
    family_for,
    gram_share,
    seed_of,
    starts_linear,
)
from gbun.description import Description
from gbun.dtypes import FloatArray
from gbun.ensemble import Rows, TrainingRows
from gbun.kernels import Plan, make_plan
from gbun.kernels.linear import weight_count
from gbun.kernels.sampling import gram_sample
from gbun.kernels.threads import Threads, thread_count, threads
from gbun.linear import Fitting, LinearStart
from gbun.metrics import get_metric
from gbun.metrics.base import Metric
from gbun.model import Model, load_model, margin_array
from gbun.networks import Family
from gbun.objectives import Objective
from gbun.solve import Normaliser
from gbun.splits import folds, held_out
from gbun.targets import Target, make_target, weight_array


@dataclass
class Dataset:
    """Rows to train or evaluate on: features in any accepted form, targets, weights, scores to start from."""

    X: Any
    y: Any
    weight: Any = None
    base_margin: Any = None


Data = Dataset | tuple[Any, ...]


def train(
    params: Mapping[str, Any] | Parameters | None,
    data: Data,
    num_boost_round: int | None = None,
    *,
    evals: Mapping[str, Data] | Iterable[tuple[Data, str]] = (),
    callbacks: Sequence[Callback] = (),
    init_model: Model | str | Path | None = None,
    task: str | None = None,
) -> Model:
    """Train a model.

    `params` are the names of `gbun.Parameters`; `num_boost_round` is another way to say n_estimators. `data` is a
    `Dataset` or a tuple (X, y[, weight[, base_margin]]). `evals` are further sets to watch, {name: data} or
    [(data, name)]. `init_model` is a model, or its file, to which rounds are added. `task` is "classification" or
    "regression"; None lets the objective decide, and y's type where the objective is "auto".

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 5))
    >>> y = X[:, 0] + X[:, 1] > 0
    >>> model = train({"objective": "logistic", "n_neurons": 32}, (X, y), 10)
    >>> model
    <gbun.Model: classification, objective logistic, 10 rounds of 32 neurons, 1 score a row>
    >>> float((model.predict(X) == y).mean()) > 0.9
    True
    """
    parameters = with_rounds(parameters_from(params), num_boost_round)
    check_callbacks(callbacks)
    initial = (
        load_model(init_model) if isinstance(init_model, (str, Path)) else getattr(init_model, "model_", init_model)
    )
    if not (initial is None or isinstance(initial, Model)):
        raise ValueError(f"init_model must be a gbun.Model or the path of one, got {type(initial).__name__}")
    if task not in (None, "classification", "regression"):
        raise ValueError(f"task must be 'classification', 'regression' or None, got {task!r}")
    with threads(parameters.n_jobs) as pool:
        problem = read(parameters, as_dataset(data), _named(evals), initial, task)
        return run(problem, pool, callbacks).model()


@dataclass
class Problem:
    """What a training works on, read and checked: rows, evaluation sets, and what the model must remember of them."""

    parameters: Parameters
    target: Target
    schema: Schema
    shard: Shard
    shards: dict[str, Shard]
    initial: Model | None = None

    @property
    def seed(self) -> int:
        return seed_of(self.parameters.random_state)

    def parts(self, few: bool, rows: Shard, collective: Collective) -> list[tuple[Shard, Shard]]:
        """`rows`, which are this problem's in whatever scaling, as those to fit and those to judge by.

        Where they are few, several divisions, so that each row judges once. None at all where rows cannot be divided:
        equal ones stay together.
        """
        own = self.shard
        if few:
            fold = folds(own.features, own.y, self.seed, FOLDS)
            weights = collective.sum(np.bincount(fold, own.weight, FOLDS))
            filled = np.flatnonzero(weights > 0.0)
            return [_parted(rows, fold == k) for k in filled] if len(filled) > 1 else []
        fraction, by_class = self.parameters.validation_fraction, self.target.task == "classification"
        held = held_out(own.features, own.y, own.weight, fraction, self.seed, by_class, collective)
        return [] if held is None else [_parted(rows, held)]


def _parted(rows: Shard, held: NDArray[np.bool_]) -> tuple[Shard, Shard]:
    return rows.take(np.flatnonzero(~held)), rows.take(np.flatnonzero(held))


def read(
    parameters: Parameters,
    dataset: Dataset,
    evals: Mapping[str, Dataset],
    initial: Model | None = None,
    task: str | None = None,
) -> Problem:
    """Rows in any accepted form, as a `Problem`."""
    check(parameters)
    if initial is None:
        features, schema = ingest(dataset.X)
        target = make_target(parameters, dataset.y, task)
    else:
        schema = initial.description.schema
        features = conform(dataset.X, schema, initial.ensemble.scaling.dense is not None)
        target = make_target(parameters, dataset.y, task or _plain(initial.description.task), initial.classes)
    shard = make_shard(features, target.y, dataset, target)
    shards = {}
    for name, d in evals.items():
        watched = conform(d.X, schema, features.dense is not None, f"X of {name!r}")
        shards[name] = make_shard(watched, target.encode(d.y, f"y of {name!r}"), d, target, f" of {name!r}")
    return Problem(parameters, target, schema, shard, shards, initial)


def run(problem: Problem, pool: Threads, callbacks: Sequence[Callback] = ()) -> Training:
    """Train. Where nobody says how many rounds help, a trial on part of the rows finds out."""
    parameters, rows = problem.parameters, problem.shard
    n_rounds, patience = parameters.n_estimators, parameters.early_stopping_rounds
    own_stopper = any(isinstance(callback, EarlyStopping) for callback in callbacks)
    nothing_said = n_rounds is None and patience is None and problem.initial is None and not own_stopper
    n_rows = counting_rows(rows, Solo())
    if nothing_said and n_rows >= LEAST_ROWS_TO_HOLD_OUT:
        patience = PATIENCE
    if n_rounds is None:
        n_rounds = UNJUDGED_ROUNDS if patience is None and not own_stopper else MOST_ROUNDS
    if patience is None or (problem.shards and not nothing_said):
        return trained(problem, n_rounds, patience, pool, callbacks)
    if problem.initial is not None:
        raise ValueError(
            "early_stopping_rounds with init_model needs an evaluation set: rows held out now may be rows that the "
            "model has learnt from"
        )
    parts = problem.parts(nothing_said and parameters.refit and n_rows < FEW_ROWS_TO_JUDGE_BY, rows, Solo())
    if not parts:
        if nothing_said:
            return trained(problem, UNJUDGED_ROUNDS, None, pool, callbacks)
        raise ValueError(
            f"validation_fraction={parameters.validation_fraction} of {rows.n_rows} rows leaves a side empty (equal "
            "rows stay together); pass an evaluation set, or train without early stopping"
        )
    if not parameters.refit:
        fit, judge = parts[0]
        problem = replace(problem, shard=fit, shards={**problem.shards, judges_name(problem): judge})
        return trained(problem, n_rounds, patience, pool, callbacks)
    tried = trial(problem, parts, n_rounds, patience, pool, [c for c in callbacks if c.during_trial])
    del parts  # copies of the rows
    return trained(problem, tried.n_rounds, None, pool, callbacks, tried.settled, tried)


def counting_rows(rows: Shard, collective: Collective) -> int:
    """How many rows of all workers have a weight."""
    return int(collective.sum(np.array([float(np.count_nonzero(rows.weight))]))[0])


@dataclass(frozen=True)
class Settled:
    """What is no longer to be chosen: the networks, the kind of start and its penalty."""

    family: Family | None = None
    init: str | None = None
    l2: float | None = None

    @classmethod
    def by(cls, training: Training) -> Settled:
        linear = training.linear
        return cls(training.family, *(("constant", None) if linear is None else ("linear", linear.l2)))


@dataclass(frozen=True)
class Tried:
    """What a trial found out."""

    n_rounds: int
    best_round: int | None
    best_score: float | None
    settled: Settled


def trial(
    problem: Problem,
    parts: Sequence[tuple[Shard, Shard]],
    n_rounds: int,
    patience: int,
    pool: Threads,
    callbacks: Sequence[Callback],
) -> Tried:
    """Find out on parts of the rows what is best for all of them: the number of rounds, the start and its penalty."""
    n_rows = counting_rows(problem.shard, Solo())
    family = family_for(problem.parameters, problem.shard.features, problem.schema, n_rows)
    settled, name = Settled(family), judges_name(problem)
    if len(parts) > 1:  # one start for all, chosen by all of them
        settled = Settled.by(assemble(problem, pool, None, settled))
    runs = [
        assemble(replace(problem, shard=fit, shards={name: judge}), pool, name, settled, side_by_side=len(parts))
        for fit, judge in parts
    ]
    for each in runs:
        each.trial = True
    judge_by_a_number(runs, name)
    watchers = [*callbacks, *callbacks_for_verbosity(problem.parameters.verbose, "finding the number of rounds")]
    boost(runs[0], n_rounds, [*watchers, stopper(problem.parameters, patience)], runs[1:])
    return Tried(runs[0].n_rounds, runs[0].best_round, runs[0].best_score, Settled.by(runs[0]))


def judge_by_a_number(runs: Sequence[Training], name: str) -> None:
    """Judging rows that lack a class may have no AUC; what the objective minimises can still be seen of them."""
    if any(np.isnan(evaluate(run)[name][run.metrics[-1].name]) for run in runs):
        for run in runs:
            run.metrics = [*run.metrics, get_metric(run.objective.default_metric())]


def judges_name(problem: Problem) -> str:
    """What held-out rows are called among the user's own evaluation sets."""
    return "validation" if "validation" not in problem.shards else "held out"


def trained(
    problem: Problem,
    n_rounds: int,
    patience: int | None,
    pool: Threads,
    callbacks: Sequence[Callback] = (),
    settled: Settled | None = None,
    tried: Tried | None = None,
) -> Training:
    """Boosted for `n_rounds`, or until the last evaluation set sees no improvement for `patience` rounds.

    `tried` is the trial that found `n_rounds`.
    """
    training = assemble(problem, pool, None if patience is None else list(problem.shards)[-1], settled)
    if tried is not None:
        training.best_round, training.best_score = tried.best_round, tried.best_score
    watchers = [*callbacks, *callbacks_for_verbosity(problem.parameters.verbose)]
    if patience is not None:
        if problem.parameters.early_stopping_rounds is None:
            judge_by_a_number([training], list(problem.shards)[-1])
        watchers.append(stopper(problem.parameters, patience))
    boost(training, n_rounds, watchers)
    if tried is not None and training.n_rounds < tried.n_rounds and training.best_round == tried.best_round:
        training.best_round = training.best_score = None  # a callback ended it before that round
    return training


def stopper(parameters: Parameters, patience: int) -> EarlyStopping:
    """Who names no patience is not asked to wait for gains that nobody would notice."""
    return EarlyStopping(patience, min_gain=LEAST_GAIN if parameters.early_stopping_rounds is None else 0.0)


def prepare(
    parameters: Parameters,
    dataset: Dataset,
    evals: Mapping[str, Dataset],
    pool: Threads,
    initial: Model | None = None,
    task: str | None = None,
) -> Training:
    """A `Training` before its first round: everything read, checked, coded, scaled, and the start fitted."""
    return assemble(read(parameters, dataset, evals, initial, task), pool)


def assemble(
    problem: Problem,
    pool: Threads,
    decides: str | None = None,
    settled: Settled | None = None,
    collective: Collective | None = None,
    side_by_side: int = 1,
) -> Training:
    """A `Training` before its first round, or after the last one of the initial model.

    `decides` names the evaluation set that chooses what is not settled. As many as `side_by_side` share the memory.
    """
    parameters, target, shard, initial = problem.parameters, problem.target, problem.shard, problem.initial
    collective, settled = collective or Solo(), settled or Settled()
    n_rows, n_counting = int(collective.sum(np.array([float(shard.n_rows)]))[0]), counting_rows(shard, collective)
    if initial is None:
        family = settled.family or family_for(parameters, shard.features, problem.schema, n_counting)
        scaling = fit_scaling(parameters.scale, shard.features, shard.weight, collective, problem.schema)
        objective = target.objective.prepared(shard.y, shard.weight, collective)
        start, linear = objective.start(shard.y, shard.weight, collective), None
    else:
        e = initial.ensemble
        family, scaling, objective, start, linear = e.family, e.scaling, e.objective, e.start, e.linear
        check_continuation(parameters, target, initial)
        if objective.name == "custom":
            objective = target.objective

    features, exact = scaling.apply(shard.features), n_rows <= EXACT_ROWS
    watched = {name: scaling.apply(s.features) for name, s in problem.shards.items()}
    metrics = metrics_for(parameters, objective)
    begins_linear = initial is None and starts_linear(settled.init or parameters.init, parameters, features)
    n_weights, buckets = 0, None
    if begins_linear:
        buckets = buckets_of(parameters, features, shard.weight, problem.schema, len(start), collective)
        n_weights = weight_count(features, buckets)
    memory = plan_for(
        parameters, features, family, objective, len(start), n_rows, pool.count, list(watched.values()), n_weights,
        side_by_side,
    )  # fmt: skip
    pool.limit(memory.n_threads)
    if begins_linear:
        scaled = replace(shard, features=features)
        judge = None if decides is None else replace(problem.shards[decides], features=watched[decides])
        # Penalties are judged by the objective's own metric, which sees every change; a user's function has none.
        metric = metrics[-1] if objective.name == "custom" else get_metric(objective.default_metric())
        fitting = Fitting(buckets, objective, start, metric, collective, pool)
        start, linear = linear_start(problem, scaled, judge, fitting, settled, n_counting)

    sample = gram_sample(
        family.seed, gram_share(parameters.gram_rows, n_rows, family.n_outputs), shard.features, shard.y
    )
    evaluations = [
        Evaluation(name, s, Rows(watched[name], family, start, s.base_margin, pool, memory.form, linear))
        for name, s in problem.shards.items()
    ]
    written = written_parameters(parameters)
    if initial is not None:  # its networks are still those of its own parameters
        written |= {name: initial.description.parameters.get(name, written[name]) for name in NETWORK_PARAMETERS}
    description = Description(target.task, problem.schema, target.classes, target.y.ndim == 1, written)
    training = Training(
        parameters,
        family,
        scaling,
        objective,
        start,
        linear,
        description,
        shard,
        TrainingRows(features, family, start, shard.base_margin, pool, shard.weight, memory, exact, linear),
        sample,
        evaluations,
        metrics,
        collective,
        parameters.learning_rate,
    )
    if initial is not None:
        replay(training, initial)
    return training


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


def plan(
    params: Mapping[str, Any] | Parameters | None,
    data: Data,
    *,
    evals: Mapping[str, Data] | Iterable[tuple[Data, str]] = (),
    task: str | None = None,
) -> Plan:
    """How `train` would use memory for these rows and evaluation sets, without training: print it.

    Arguments are those of `train`; an estimator may take the place of the dict of parameters.

    >>> print(plan({"n_neurons": 64, "n_jobs": 2, "memory_budget": "1GB"}, (np.ones((10_000, 5)), np.arange(10_000.0))))
    10,000 rows in 8 chunk(s), K = 64, 1 score(s) a row, 2 thread(s): network outputs are kept in a buffer
      P'HP is made of 10,000 rows a round, P'G of all
      scores                                          0.1 MB
      weights of dense columns                        0.0 MB
      network outputs, then memberships               2.6 MB
      each thread's chunk                             1.4 MB
      sums of the normal equations                    0.2 MB
      together, of 1000.0 MB to use                   4.3 MB
    """
    parameters, dataset = parameters_from(params), as_dataset(data)
    features, schema = ingest(dataset.X)
    target = make_target(parameters, dataset.y, task or getattr(params, "_task", None))
    weight = weight_array(dataset.weight, features.n_rows)
    family = family_for(parameters, features, schema, int(np.count_nonzero(weight)))
    watched = [conform(d.X, schema, features.dense is not None, f"X of {name!r}") for name, d in _named(evals).items()]
    n_scores, n_threads = target.objective.n_outputs(target.y), thread_count(parameters.n_jobs)
    n_weights = 0
    if starts_linear(parameters.init, parameters, features):
        n_weights = weight_count(features, buckets_of(parameters, features, weight, schema, n_scores, Solo()))
    return plan_for(
        parameters, features, family, target.objective, n_scores, features.n_rows, n_threads, watched, n_weights
    )


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
) -> Plan:
    """`n_rows` are those of all workers, `n_weights` those of a linear start for each score."""
    budget = size_in_bytes(parameters.memory_budget)
    return make_plan(
        features,
        family.n_outputs,
        n_scores,
        n_threads,
        memory_budget=None if budget is None else budget // side_by_side,
        form=parameters.network,
        line_search=objective.line_search,
        n_grams=n_scores if parameters.hessian == "per_class" else 1,
        exact=n_rows <= EXACT_ROWS,
        gram_share=gram_share(parameters.gram_rows, n_rows, family.n_outputs),
        watched=watched,
        n_weights=n_weights,
        n_fits=FOLDS if n_rows < FEW_ROWS_TO_JUDGE_BY else 1,
    )


def replay(training: Training, initial: Model) -> None:
    """Bring the scores of all rows to where `initial` left them."""
    e = initial.ensemble
    training.rows.add_rounds(e.steps)
    for evaluation in training.evaluations:
        evaluation.rows.add_rounds(e.steps)
    training.normalisers = [Normaliser(c, f) for c, f in zip(e.centres, e.factors, strict=True)]
    training.heads = list(e.heads)


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


def make_shard(features: Features, y: FloatArray, dataset: Dataset, target: Target, of: str = "") -> Shard:
    n = features.n_rows
    if n == 0:
        raise ValueError(f"X{of} has no rows")
    if len(y) != n:
        raise ValueError(f"X{of} has {n} rows, y{of} has {len(y)}: one target for each row is needed")
    margin = None
    if dataset.base_margin is not None:
        margin = margin_array(dataset.base_margin, n, target.objective.n_outputs(y))
    return Shard(features, y, weight_array(dataset.weight, n), margin)


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


def _plain(task: str) -> str:
    return "classification" if task == "multilabel" else task


def as_dataset(data: Data, name: str = "data") -> Dataset:
    if isinstance(data, Dataset):
        return data
    if isinstance(data, tuple) and 2 <= len(data) <= 4:
        return Dataset(*data)
    raise ValueError(
        f"{name} must be a gbun.Dataset or a tuple (X, y[, weight[, base_margin]]), got {type(data).__name__}"
    )


def _named(evals: Mapping[str, Data] | Iterable[tuple[Data, str]]) -> dict[str, Dataset]:
    if isinstance(evals, Mapping):
        return {str(name): as_dataset(data, f"evals[{name!r}]") for name, data in evals.items()}
    named: dict[str, Dataset] = {}
    for item in evals if isinstance(evals, (list, tuple)) else [evals]:
        if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], str)):
            raise ValueError(f"evals must be {{name: data}} or a list of pairs (data, name), got {type(item).__name__}")
        if item[1] in named:
            raise ValueError(f"evals has two sets named {item[1]!r}; names must differ")
        named[item[1]] = as_dataset(item[0], f"evals[{item[1]!r}]")
    return named


def with_rounds(parameters: Parameters, num_boost_round: int | None) -> Parameters:
    if num_boost_round is None:
        return parameters
    if isinstance(num_boost_round, bool) or not isinstance(num_boost_round, Integral) or num_boost_round < 0:
        raise ValueError(f"num_boost_round must be an integer of at least 0, got {num_boost_round!r}")
    values = {f.name: getattr(parameters, f.name) for f in parameter_fields()}
    return Parameters(**{**values, "n_estimators": int(num_boost_round)})


def check_callbacks(callbacks: Sequence[Callback]) -> None:
    given = callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]
    for callback in given:
        if not isinstance(callback, Callback) or given is not callbacks:
            raise ValueError(f"callbacks must be a list of gbun.callbacks.Callback objects, got {callback!r}")
