"""The native API: `train`, and how data and parameters become a `Training`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from gbun.agreement import together
from gbun.assembly import Settled, assemble, buckets_of, of_all_rows, plan_for
from gbun.boosting import PLANNED, Training, boost
from gbun.callbacks import Callback, EarlyStopping, callbacks_for_verbosity
from gbun.collectives import Collective, Solo
from gbun.config import Parameters, parameter_fields, parameters_from
from gbun.data.features import Shard
from gbun.data.ingest import conform, ingest
from gbun.defaults import (
    FEW_ROWS_TO_JUDGE_BY,
    LEAST_GAIN,
    LEAST_ROWS_TO_HOLD_OUT,
    MOST_ROUNDS,
    PATIENCE,
    UNJUDGED_ROUNDS,
    family_for,
    starts_linear,
)
from gbun.devices import device_of
from gbun.kernels import DevicePlan, Plan
from gbun.kernels.linear import weight_count
from gbun.kernels.threads import Threads, thread_count, threads
from gbun.metrics import get_metric
from gbun.model import Model, load_model
from gbun.problem import Data, Dataset, Problem, as_dataset, named_sets, read
from gbun.rounds import evaluate
from gbun.targets import make_target, weight_array


def train(
    params: Mapping[str, Any] | Parameters | None,
    data: Data,
    num_boost_round: int | None = None,
    *,
    evals: Mapping[str, Data] | Iterable[tuple[Data, str]] = (),
    callbacks: Sequence[Callback] = (),
    init_model: Model | str | Path | None = None,
    task: str | None = None,
    resume: str | Path | None = None,
    collective: Collective | None = None,
) -> Model:
    """Train a model.

    `params` are the names of `gbun.Parameters`; `num_boost_round` is another way to say n_estimators. `data` is a
    `Dataset` or a tuple (X, y[, weight[, base_margin]]). `evals` are further sets to watch, {name: data} or
    [(data, name)]. `init_model` is a model, or its file, to which rounds are added. `task` is "classification" or
    "regression"; None lets the objective decide, and y's type where the objective is "auto". `resume` is the file of a
    `Checkpoint` that this training wrote before it was cut short: if it is there, training goes on from it and ends
    with the model it would have had. `collective` is how sums are completed where `data` is a worker's share of the
    rows; `gbun.distributed.train` has one.

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
    collective = collective or Solo()
    initial = initial_model(init_model, collective)
    known = None if resume is None else checkpointed(Path(resume), collective)
    if task not in (None, "classification", "regression"):
        raise ValueError(f"task must be 'classification', 'regression' or None, got {task!r}")
    with threads(parameters.n_jobs) as pool:
        dataset, sets = together(collective, lambda: (as_dataset(data), named_sets(evals)))
        problem = read(parameters, dataset, sets, initial, task, collective)
        return run(problem, pool, callbacks, known).model()


def initial_model(given: Any, collective: Collective) -> Model | None:
    """The model to add rounds to; of a file, the first worker's."""
    initial = (
        shared_model(Path(given), collective) if isinstance(given, (str, Path)) else getattr(given, "model_", given)
    )
    if not (initial is None or isinstance(initial, Model)):
        raise ValueError(f"init_model must be a gbun.Model or the path of one, got {type(initial).__name__}")
    return initial


def shared_model(path: Path, collective: Collective) -> Model:
    """The model in a file; among workers, in the first one's file: the others need not have it."""
    if collective.size == 1:
        return load_model(path)
    first = collective.rank == 0
    data = together(collective, lambda: path.read_bytes() if first else b"")
    length = int(collective.broadcast(np.array([len(data)]))[0])
    told = collective.broadcast(np.frombuffer(data, dtype=np.uint8) if first else np.zeros(length, dtype=np.uint8))

    def read_again() -> Model:
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / path.name
            copy.write_bytes(told.tobytes())
            return load_model(path if first else copy)

    return together(collective, read_again)


def checkpointed(path: Path, collective: Collective) -> Model | None:
    """What a run that was cut short has left; nothing, if it wrote no file, or one of its trial only."""
    if not collective.broadcast(np.array([path.exists()]))[0]:
        return None
    found = shared_model(path, collective)
    return found if PLANNED in found.description.parameters else None


def run(problem: Problem, pool: Threads, callbacks: Sequence[Callback] = (), known: Model | None = None) -> Training:
    """Train. Where nobody says how many rounds help, a trial on part of the rows finds out.

    `known` is what an earlier run of this training has left: its trial, if it had one, and some rounds.
    """
    parameters, rows = problem.parameters, problem.shard
    n_rounds, patience = parameters.n_estimators, parameters.early_stopping_rounds
    own_stopper = any(isinstance(callback, EarlyStopping) for callback in callbacks)
    own_stopper = bool(problem.collective.broadcast(np.array([own_stopper]))[0])  # callbacks are those of the root
    nothing_said = n_rounds is None and patience is None and problem.initial is None and not own_stopper
    n_rows = of_all_rows(rows, problem.collective)[1]
    if nothing_said and n_rows >= LEAST_ROWS_TO_HOLD_OUT:
        patience = PATIENCE
    if n_rounds is None:
        n_rounds = UNJUDGED_ROUNDS if patience is None and not own_stopper else MOST_ROUNDS
    if patience is None or (problem.shards and not nothing_said):
        return trained(problem, n_rounds, patience, pool, callbacks, known=known)
    if problem.initial is not None:
        raise ValueError(
            "early_stopping_rounds with init_model needs an evaluation set: rows held out now may be rows that the "
            "model has learnt from"
        )
    parts = problem.parts(nothing_said and parameters.refit and n_rows < FEW_ROWS_TO_JUDGE_BY, rows, problem.collective)
    if not parts:
        if nothing_said:
            return trained(problem, UNJUDGED_ROUNDS, None, pool, callbacks, known=known)
        raise ValueError(
            f"validation_fraction={parameters.validation_fraction} of {rows.n_rows} rows leaves a side empty (equal "
            "rows stay together); pass an evaluation set, or train without early stopping"
        )
    if not parameters.refit:
        fit, judge = parts[0]
        problem = replace(problem, shard=fit, shards={**problem.shards, judges_name(problem): judge})
        return trained(problem, n_rounds, patience, pool, callbacks, known=known)
    if known is None:
        tried = trial(problem, parts, n_rounds, patience, pool, [c for c in callbacks if c.during_trial])
    else:
        tried = Tried.by(known)
    del parts  # copies of the rows
    return trained(problem, tried.n_rounds, None, pool, callbacks, tried.settled, tried, known)


@dataclass(frozen=True)
class Tried:
    """What a trial found out: `best_round` of its own, `n_rounds` for a training on all rows."""

    n_rounds: int
    best_round: int | None
    best_score: float | None
    settled: Settled

    @classmethod
    def by(cls, known: Model) -> Tried:
        """As a checkpoint remembers it."""
        found = known.description
        return cls(found.parameters[PLANNED], found.best_round, found.best_score, Settled.by(known.ensemble))


def trial(
    problem: Problem,
    parts: Sequence[tuple[Shard, Shard]],
    n_rounds: int,
    patience: int,
    pool: Threads,
    callbacks: Sequence[Callback],
) -> Tried:
    """Find out on parts of the rows what is best for all of them: the number of rounds, the start and its penalty.

    Rounds help the longer the more rows there are to learn from: all rows get as many more as they are more.
    """
    _, n_rows, total_weight = of_all_rows(problem.shard, problem.collective)
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
    boost(runs[0], n_rounds, [*watchers, stopper(problem, runs, patience)], runs[1:])
    share = np.mean([run.total_weight for run in runs]) / total_weight
    for_all = min(n_rounds, round(runs[0].n_rounds / share))
    return Tried(for_all, runs[0].best_round, runs[0].best_score, Settled.by(runs[0]))


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
    known: Model | None = None,
) -> Training:
    """Boosted for `n_rounds`, or until the last evaluation set sees no improvement for `patience` rounds.

    `tried` is the trial that found `n_rounds`.
    """
    decides = None if patience is None else list(problem.shards)[-1]
    training = assemble(problem, pool, decides, settled, known=known)
    if tried is not None:
        training.best_round, training.best_score = tried.best_round, tried.best_score
    watchers = [*callbacks, *callbacks_for_verbosity(problem.parameters.verbose)]
    if patience is not None:
        if problem.parameters.early_stopping_rounds is None:
            judge_by_a_number([training], list(problem.shards)[-1])
        watchers.append(stopper(problem, [training], patience))
    boost(training, n_rounds, watchers, known=None if known is None else known.ensemble)
    if tried is not None and training.n_rounds < tried.n_rounds and training.best_round == tried.best_round:
        training.best_round = training.best_score = None  # a callback ended it before that round
    return training


def stopper(problem: Problem, runs: Sequence[Training], patience: int) -> EarlyStopping:
    """Who names no patience is not asked to wait for gains that nobody would notice.

    Who names no metric either has classes of few rows judged by accuracy too: it may still rise when the log loss has
    begun to pay for single rows that are wrong and sure of it.
    """
    parameters, target, metrics = problem.parameters, problem.target, [runs[0].metrics[-1].name]
    if parameters.early_stopping_rounds is not None:
        return EarlyStopping(patience)
    n_classes = 0 if target.classes is None or parameters.eval_metric is not None else len(target.classes)
    if of_all_rows(problem.shard, problem.collective)[1] < FEW_ROWS_TO_JUDGE_BY * n_classes:
        metrics.append("accuracy")
        for run in runs:
            run.metrics = [*run.metrics, get_metric("accuracy")]
    return EarlyStopping(patience, metric=metrics, min_gain=LEAST_GAIN)


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


def plan(
    params: Mapping[str, Any] | Parameters | None,
    data: Data,
    *,
    evals: Mapping[str, Data] | Iterable[tuple[Data, str]] = (),
    task: str | None = None,
) -> Plan | DevicePlan:
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
    features, schema = ingest(dataset.X, tensors=parameters.device != "cpu")
    target = make_target(parameters, dataset.y, task or getattr(params, "_task", None))
    weight = weight_array(dataset.weight, features.n_rows)
    family = family_for(parameters, features, schema, int(np.count_nonzero(weight)))
    dense, tensors = features.dense is not None, parameters.device != "cpu"
    watched = [conform(d.X, schema, dense, f"X of {name!r}", tensors=tensors) for name, d in named_sets(evals).items()]
    n_scores, n_threads = target.objective.n_outputs(target.y), thread_count(parameters.n_jobs)
    n_weights = 0
    if starts_linear(parameters.init, parameters, features):
        n_weights = weight_count(features, buckets_of(parameters, features, weight, schema, n_scores, Solo()))
    return plan_for(
        parameters, features, family, target.objective, n_scores, features.n_rows, n_threads, watched, n_weights,
        device=device_of(parameters.device),
    )  # fmt: skip


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
