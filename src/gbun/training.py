"""The native API: `train`, `cv`, and how data and parameters become a `Training`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gbun.boosting import Evaluation, Training, add_round, boost, evaluate
from gbun.callbacks import Callback, EarlyStopping, callbacks_for_verbosity
from gbun.collectives import Collective, Solo
from gbun.config import Parameters, check, parameter_fields, parameters_from
from gbun.data.features import Features, Schema, Shard
from gbun.data.ingest import conform, ingest
from gbun.data.scaling import fit_scaling
from gbun.description import Description
from gbun.dtypes import FloatArray, IntArray
from gbun.ensemble import Rows
from gbun.kernels.threads import Threads, threads
from gbun.metrics import get_metric
from gbun.metrics.base import Metric
from gbun.model import Model, load_model, margin_array
from gbun.networks import Family
from gbun.solve import Normaliser
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
    parameters = parameters_from(params)
    if num_boost_round is not None:
        parameters = _with(parameters, n_estimators=num_boost_round)
    initial = load_model(init_model) if isinstance(init_model, (str, Path)) else init_model
    with threads(parameters.n_jobs) as pool:
        training = prepare(parameters, _dataset(data), _named(evals), pool, initial, task)
        watchers = [*callbacks, *callbacks_for_verbosity(parameters.verbose)]
        if parameters.early_stopping_rounds is not None:
            watchers.append(EarlyStopping(parameters.early_stopping_rounds))
        boost(training, parameters.n_estimators, watchers)
        return training.model()


def cv(
    params: Mapping[str, Any] | Parameters | None,
    data: Data,
    num_boost_round: int | None = None,
    *,
    nfold: int = 5,
    stratified: bool = True,
    seed: int = 0,
    task: str | None = None,
) -> dict[str, list[float]]:
    """Cross-validation, all folds in step: {"valid rmse-mean": [one a round], "valid rmse-std": [...]}.

    With `early_stopping_rounds` the mean of the last metric over the folds decides, and the lists end at the best
    round. Rows are dealt to folds at random, class by class when `stratified`.
    """
    parameters = parameters_from(params)
    n_rounds = num_boost_round or parameters.n_estimators
    dataset = _dataset(data)
    features, schema = ingest(dataset.X)
    target = make_target(parameters, dataset.y, task)
    shard = make_shard(features, target.y, dataset, target)
    if not 2 <= nfold <= shard.n_rows:
        raise ValueError(f"nfold must be from 2 to the number of rows ({shard.n_rows}), got {nfold}")
    by_class = stratified and target.task == "classification"
    fold = deal(target.y, nfold, seed, by_class)
    stopper = EarlyStopping(parameters.early_stopping_rounds or n_rounds)
    results: dict[str, list[float]] = {}
    with threads(parameters.n_jobs) as pool:
        runs = [
            assemble(
                parameters,
                target,
                schema,
                shard.take(np.flatnonzero(fold != k)),
                {"valid": shard.take(np.flatnonzero(fold == k))},
                pool,
            )
            for k in range(nfold)
        ]
        stopper.before_training(runs[0], n_rounds)
        for t in range(n_rounds):
            for run in runs:
                add_round(run, t)
            values = [evaluate(run)["valid"] for run in runs]
            for metric in values[0]:
                per_fold = [v[metric] for v in values]
                results.setdefault(f"valid {metric}-mean", []).append(float(np.mean(per_fold)))
                results.setdefault(f"valid {metric}-std", []).append(float(np.std(per_fold)))
            means = {metric: results[f"valid {metric}-mean"][-1] for metric in values[0]}
            if stopper.improves_no_more(means[stopper.watched_metric], t):
                break
    if parameters.early_stopping_rounds is not None:
        results = {name: series[: stopper.best_round + 1] for name, series in results.items()}
    return results


def prepare(
    parameters: Parameters,
    dataset: Dataset,
    evals: Mapping[str, Dataset],
    pool: Threads,
    initial: Model | None = None,
    task: str | None = None,
) -> Training:
    """Everything that happens before the first round: reading, checking, coding, scaling, start values."""
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
        shards[name] = make_shard(watched, target.encode(d.y, f"y of {name!r}"), d, target)
    if parameters.early_stopping_rounds is not None and not shards:
        shard, shards["validation"] = hold_out(shard, parameters, target)
    return assemble(parameters, target, schema, shard, shards, pool, initial)


def assemble(
    parameters: Parameters,
    target: Target,
    schema: Schema,
    shard: Shard,
    shards: Mapping[str, Shard],
    pool: Threads,
    initial: Model | None = None,
    collective: Collective | None = None,
) -> Training:
    """A `Training` at its first round, or after the last one of `initial`."""
    collective = collective or Solo()
    if initial is None:
        family = family_for(parameters, shard.features, schema)
        scaling = fit_scaling(parameters.scale, shard.features, shard.weight, collective)
        objective = target.objective.prepared(shard.y, shard.weight, collective)
        start = objective.start(shard.y, shard.weight, collective)
    else:
        e = initial.ensemble
        family, scaling, objective, start = e.family, e.scaling, e.objective, e.start
        check_continuation(parameters, target, initial)
        if objective.name == "custom":
            objective = target.objective

    def rows_of(s: Shard) -> Rows:
        return Rows(scaling.apply(s.features), family, start, s.base_margin, pool, parameters.network)

    evaluations = [Evaluation(name, s, rows_of(s)) for name, s in shards.items()]
    description = Description(target.task, schema, target.classes, target.y.ndim == 1, written_parameters(parameters))
    training = Training(
        parameters,
        family,
        scaling,
        objective,
        start,
        description,
        shard,
        rows_of(shard),
        evaluations,
        metrics_for(parameters, objective),
        collective,
        parameters.learning_rate,
    )
    if initial is not None:
        replay(training, initial)
    return training


def replay(training: Training, initial: Model) -> None:
    """Bring the scores of all rows to where `initial` left them."""
    e = initial.ensemble
    for rows in (training.rows, *(evaluation.rows for evaluation in training.evaluations)):
        e.scores(rows)
    training.normalisers = [Normaliser(c, f) for c, f in zip(e.centres, e.factors, strict=True)]
    training.heads = list(e.heads)


NETWORK_PARAMETERS = ("n_neurons", "temperature", "group_size", "density", "scale", "random_state")


def check_continuation(parameters: Parameters, target: Target, initial: Model) -> None:
    """Networks of added rounds come from the family of the first ones: parameters may not contradict it."""
    family, objective = initial.ensemble.family, initial.ensemble.objective
    if objective.name != target.objective.name or len(initial.ensemble.start) != target.objective.n_outputs(target.y):
        raise ValueError(
            f"init_model was trained with objective {objective.name!r} and {len(initial.ensemble.start)} score(s), "
            f"this training asks for {target.objective.name!r} and {target.objective.n_outputs(target.y)}"
        )
    defaults = {f.name: f.default for f in parameter_fields()}
    trained = initial.description.parameters
    for name in NETWORK_PARAMETERS:
        value = getattr(parameters, name)
        if value != defaults[name] and name in trained and value != trained[name]:
            raise ValueError(
                f"{name}={value!r} differs from init_model's {trained[name]!r}; leave it out, networks of added "
                f"rounds are drawn like the first (K={family.n_outputs}, seed={family.seed})"
            )


def family_for(parameters: Parameters, features: Features, schema: Schema) -> Family:
    """The networks these parameters and this input ask for."""
    dense, K = features.dense is not None, parameters.n_neurons
    temperature = DENSE_TEMPERATURE if dense else SPARSE_TEMPERATURE
    group_size = DENSE_GROUP if dense and K % DENSE_GROUP == 0 else K
    return Family(
        seed=seed_of(parameters.random_state),
        n_outputs=parameters.n_neurons,
        density=DENSE_DENSITY if parameters.density is None else parameters.density,
        sparse_density=1.0 if parameters.density is None else parameters.density,
        temperature=temperature if parameters.temperature is None else parameters.temperature,
        group_size=group_size if parameters.group_size is None else parameters.group_size,
        n_columns=schema.n_columns if schema.kind == "array" else None,
    )


DENSE_DENSITY = 0.1  # the paper's: nine weights of ten are zero
DENSE_GROUP = 16  # docs/parameters.md has the evidence for these three
DENSE_TEMPERATURE = 2.0
SPARSE_TEMPERATURE = 1.0


def seed_of(random_state: Any) -> int:
    if random_state is None:
        return 0
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        if not 0 <= random_state < 2**63:
            raise ValueError(f"random_state must be from 0 to 2^63 - 1, got {random_state}")
        return int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    raise ValueError(f"random_state must be an integer, a Generator, a RandomState or None, got {random_state!r}")


def make_shard(features: Features, y: FloatArray, dataset: Dataset, target: Target) -> Shard:
    n = features.n_rows
    if n == 0:
        raise ValueError("X has no rows")
    if len(y) != n:
        raise ValueError(f"X has {n} rows, y has {len(y)}: one target for each row is needed")
    margin = None
    if dataset.base_margin is not None:
        margin = margin_array(dataset.base_margin, n, target.objective.n_outputs(y))
    return Shard(features, y, weight_array(dataset.weight, n), margin)


def hold_out(shard: Shard, parameters: Parameters, target: Target) -> tuple[Shard, Shard]:
    """A random share of the rows for early stopping, class by class when there are classes."""
    n_parts = max(2, round(1.0 / parameters.validation_fraction))
    part = deal(shard.y, n_parts, seed_of(parameters.random_state), target.task == "classification")
    held = part == 0
    if parameters.validation_fraction > 0.5:
        held = ~held
    if held.all() or not held.any():
        raise ValueError(
            f"validation_fraction={parameters.validation_fraction} of {shard.n_rows} rows leaves a side empty; "
            "pass an evaluation set, or train without early stopping"
        )
    return shard.take(np.flatnonzero(~held)), shard.take(np.flatnonzero(held))


def deal(y: FloatArray, n_parts: int, seed: int, by_class: bool) -> IntArray:
    """A part (0 .. n_parts-1) for each row, dealt like cards after a shuffle, class by class when asked for."""
    order = np.random.default_rng(seed).permutation(len(y))
    if by_class:
        order = order[np.argsort(y[order], kind="stable")]
    part = np.empty(len(y), dtype=np.intp)
    part[order] = np.arange(len(y)) % n_parts
    return part


def metrics_for(parameters: Parameters, objective: Any) -> list[Metric]:
    given = parameters.eval_metric
    if given is None:
        given = objective.default_metric()
    several = isinstance(given, list) or (isinstance(given, tuple) and not _is_function_tuple(given))
    return [get_metric(m) for m in (given if several else [given])]


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


def _dataset(data: Data) -> Dataset:
    if isinstance(data, Dataset):
        return data
    if isinstance(data, tuple) and 2 <= len(data) <= 4:
        return Dataset(*data)
    raise ValueError(
        f"data must be a gbun.Dataset or a tuple (X, y[, weight[, base_margin]]), got {type(data).__name__}"
    )


def _named(evals: Mapping[str, Data] | Iterable[tuple[Data, str]]) -> dict[str, Dataset]:
    if isinstance(evals, Mapping):
        return {str(name): _dataset(data) for name, data in evals.items()}
    named: dict[str, Dataset] = {}
    for item in evals:
        if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], str)):
            raise ValueError("evals must be {name: data} or a list of pairs (data, name)")
        named[item[1]] = _dataset(item[0])
    return named


def _with(parameters: Parameters, **changes: Any) -> Parameters:
    values = {f.name: getattr(parameters, f.name) for f in parameter_fields()}
    changed = Parameters(**{**values, **changes})
    check(changed)
    return changed
