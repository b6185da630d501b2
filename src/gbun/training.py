"""The native API: `train` and `plan`, and the stages of a training: read, prepare, trial, boost."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any, cast

import numpy as np

from gbun.agreement import check_same, decide_at_root, run_or_raise_everywhere
from gbun.boosting import PLANNED_ROUNDS, TRIAL, boost
from gbun.callbacks import Callback, callbacks_for_verbosity
from gbun.collectives import Collective, Solo
from gbun.config import Parameters, make_parameters
from gbun.defaults import DEFAULT_ROUNDS
from gbun.kernels import Plan
from gbun.kernels.announcement import compilation_announced
from gbun.kernels.threads import ThreadPool, thread_count, thread_pool
from gbun.learner_choice import ResolvedSettings
from gbun.learners import AnyLearner
from gbun.model import Model, model_from_bytes
from gbun.model_io import read_model_file
from gbun.preparation import plan_training, prepare
from gbun.problem import LOCAL_PARAMETERS, Data, Problem, as_dataset, divide_rows, named_sets, read_problem
from gbun.search import StoppingPolicy
from gbun.trial import JudgedTraining, Trial, TrialOutcome, choose_policy, count_divisions, hold_out


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
    learner: AnyLearner | None = None,
) -> Model:
    """Train a model.

    Parameters
    ----------
    params : dict, Parameters or None
        The names of `gbun.Parameters`.
    data : Dataset or tuple (X, y[, weight[, base_margin]])
    num_boost_round : int, optional
        Another name of n_estimators.
    evals : {name: data} or [(data, name)]
        Further sets to evaluate after each round.
    callbacks : sequence of Callback
    init_model : Model or path, optional
        A model to which rounds are added.
    task : {"classification", "regression"}, optional
        None lets the objective decide, and the type of y where the objective is "auto".
    resume : path, optional
        The file of a `Checkpoint` that this training wrote before it was cut short. If it exists, training goes on from
        it and ends with the model it would have had.
    collective : Collective, optional
        How sums are completed where `data` is a worker's share of the rows; `gbun.distributed.train` has one.
    learner : gbun.learners.Learner, optional
        Makes the partition of each round; None: the networks that `params` describe.

    Returns
    -------
    Model

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 5))
    >>> y = X[:, 0] + X[:, 1] > 0
    >>> model = train({"objective": "logistic", "n_neurons": 32}, (X, y), 10)
    >>> model
    <gbun.Model: classification, objective logistic, 10 rounds of 32 neurons, 1 score a row>
    >>> float((model.predict(X) == y).mean()) > 0.9
    True
    """
    collective = check_collective(Solo() if collective is None else collective)
    parameters = run_or_raise_everywhere(collective, lambda: with_rounds(make_parameters(params), num_boost_round))
    check_callbacks(callbacks)
    if task not in (None, "classification", "regression"):
        raise ValueError(f"task must be 'classification', 'regression' or None, got {task!r}")
    initial = initial_model(init_model, collective)
    known = None if resume is None else read_checkpoint(Path(resume), collective)
    with compilation_announced(), thread_pool(parameters.n_jobs) as pool:
        dataset, sets = run_or_raise_everywhere(collective, lambda: (as_dataset(data), named_sets(evals)))
        problem = read_problem(parameters, dataset, sets, initial, task, collective, learner)
        return run_training(problem, pool, callbacks, known)


def run_training(
    problem: Problem, pool: ThreadPool, callbacks: Sequence[Callback] = (), known: Model | None = None
) -> Model:
    """Prepare and boost; where nobody says how many rounds help, a trial on part of the rows comes first.

    `known` is what an earlier run of this training has left: the outcome of its trial, if it had one, and some rounds.
    """
    policy = choose_policy(problem, callbacks)
    if not policy.needs_held_out_rows:
        return boost_rounds(problem, policy, pool, callbacks, known=known)
    if known is None or not problem.parameters.refit:
        plan_training(problem, pool.count, count_divisions(problem, policy))  # refuses a budget before rows are copied
    parts = hold_out(problem, policy)
    if not parts:
        return boost_rounds(problem, StoppingPolicy(DEFAULT_ROUNDS), pool, callbacks, known=known)
    if not problem.parameters.refit:
        fit, judge = divide_rows(problem.shard, parts[0])
        problem = problem.with_rows(fit, {**problem.shards, problem.held_out_name: judge})
        return boost_rounds(problem, policy, pool, callbacks, known=known)
    if known is None:
        outcome = Trial(problem, policy, pool, callbacks, problem.held_out_name, parts).run()
    else:
        outcome = TrialOutcome.from_checkpoint(known)
    return boost_rounds(problem, StoppingPolicy(outcome.n_rounds), pool, callbacks, outcome, known)


def boost_rounds(
    problem: Problem,
    policy: StoppingPolicy,
    pool: ThreadPool,
    callbacks: Sequence[Callback] = (),
    outcome: TrialOutcome | None = None,
    known: Model | None = None,
) -> Model:
    """Prepare a training and boost it until the policy says stop; `outcome` is that of the trial before it."""
    if policy.patience is not None:
        judge = list(problem.shards)[-1]
        return JudgedTraining(problem, policy, pool, callbacks, judge, known).run()
    settings = ResolvedSettings() if outcome is None else outcome.settings
    training = prepare(problem, pool, known=known, settings=settings)
    if outcome is not None:
        training.best_round, training.best_score = outcome.best_round, outcome.best_score
    watchers = [*callbacks, *callbacks_for_verbosity(problem.parameters.verbose)]
    boost(training, policy.n_rounds, watchers, known=None if known is None else known.ensemble)
    if outcome is not None and training.n_rounds < outcome.n_rounds and training.best_round == outcome.best_round:
        training.best_round = training.best_score = None  # a callback ended it before that round
    return training.model()


def plan(
    params: Mapping[str, Any] | Parameters | None,
    data: Data,
    num_boost_round: int | None = None,
    *,
    evals: Mapping[str, Data] | Iterable[tuple[Data, str]] = (),
    task: str | None = None,
    learner: AnyLearner | None = None,
) -> Plan:
    """Plan how `train` would use memory for these rows and evaluation sets, without training: print the result.

    Without `n_estimators`, and with early stopping on held-out rows, copies of rows are counted too.

    Arguments are those of `train`; an estimator may take the place of the dict of parameters.

    >>> X, y = np.ones((10_000, 5)), np.arange(10_000.0)
    >>> print(plan({"n_neurons": 64, "n_jobs": 2, "memory_budget": "1GB"}, (X, y), 100))
    10,000 rows in 8 chunk(s), K = 64, 1 score(s) a row, 2 thread(s): network outputs are kept in a buffer
      P'HP is made of 10,000 rows a round, P'G of all
      scores                                          0.1 MB
      targets and weights                             0.2 MB
      scaled features                                 0.2 MB
      weights of dense columns                        0.0 MB
      network outputs, then memberships               2.6 MB
      each thread's chunk                             1.4 MB
      sums of the normal equations                    0.2 MB
      together, of 1000.0 MB to use                   4.7 MB
    """
    parameters = with_rounds(make_parameters(params), num_boost_round)
    sets = named_sets(evals)
    task = task or getattr(params, "_task", None)
    problem = read_problem(parameters, as_dataset(data), sets, task=task, learner=learner)
    divisions = count_divisions(problem, choose_policy(problem, ()))
    return plan_training(problem, thread_count(parameters.n_jobs), divisions)


def initial_model(given: Any, collective: Collective) -> Model | None:
    """Return the model to add rounds to; a file is the root's."""
    initial = run_or_raise_everywhere(collective, lambda: check_initial_model(given))
    if collective.size > 1:  # a model of one process need not be compared with itself
        form = run_or_raise_everywhere(collective, lambda: describe_initial_model(initial))
        decide_at_root(collective, {"init_model": form}, lambda values: check_same(values, "on all workers"))
    return read_shared_model(initial, collective) if isinstance(initial, Path) else initial


def check_initial_model(given: Any) -> Model | Path | None:
    if isinstance(given, (str, Path)):
        return Path(given)
    initial: Model | None = getattr(given, "model_", given)
    if not (initial is None or isinstance(initial, Model)):
        raise ValueError(f"init_model must be a gbun.Model or the path of one, got {type(initial).__name__}")
    return initial


def describe_initial_model(initial: Model | Path | None) -> str | None:
    """Return what must be the same on all workers: a file need not, as the root's is read."""
    if not isinstance(initial, Model):
        return None if initial is None else "a path"
    # Parameters in which workers may differ remain in their models; the seed is the same, and matters.
    local = set(LOCAL_PARAMETERS) - {"random_state"}
    parameters = {n: v for n, v in initial.description.parameters.items() if n not in local}
    model = Model(initial.ensemble, replace(initial.description, parameters=parameters))
    return f"the model {hashlib.sha256(model.to_bytes()).hexdigest()[:16]}"


def read_shared_model(path: Path, collective: Collective) -> Model:
    """Read the model in a file of the root; the other workers need not have it."""
    is_root = collective.rank == 0
    data = run_or_raise_everywhere(collective, lambda: read_model_file(path) if is_root else b"")
    length = int(collective.broadcast(np.array([len(data)]))[0])
    received = collective.broadcast(
        np.frombuffer(data, dtype=np.uint8) if is_root else np.zeros(length, dtype=np.uint8)
    )
    return run_or_raise_everywhere(collective, lambda: model_from_bytes(received.tobytes(), path))


def read_checkpoint(path: Path, collective: Collective) -> Model | None:
    """Return what a run that was cut short has left; None if it wrote no file, or one of its trial only."""
    if not collective.broadcast(np.array([path.exists()]))[0]:
        return None
    found = read_shared_model(path, collective)
    stored = found.description.parameters
    if TRIAL in stored:
        return None
    if PLANNED_ROUNDS not in stored:
        raise ValueError(
            f"resume: {path} is a model, not the checkpoint of a training; init_model adds rounds to a model"
        )
    return found


def check_collective(collective: Any) -> Collective:
    missing = [name for name in ("rank", "size", "sum", "broadcast", "gather") if not hasattr(collective, name)]
    if missing or isinstance(collective, type):
        raise ValueError(
            f"collective must be an object with rank, size, sum, broadcast and gather, got {collective!r}"
            + (f", which lacks {', '.join(missing)}" if missing else ", a class")
        )
    return cast(Collective, collective)


def with_rounds(parameters: Parameters, num_boost_round: int | None) -> Parameters:
    if num_boost_round is None:
        return parameters
    if isinstance(num_boost_round, bool) or not isinstance(num_boost_round, Integral) or num_boost_round < 0:
        raise ValueError(f"num_boost_round must be an integer of at least 0, got {num_boost_round!r}")
    return replace(parameters, n_estimators=int(num_boost_round))


def check_callbacks(callbacks: Sequence[Callback]) -> None:
    given = callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]
    for callback in given:
        if not isinstance(callback, Callback) or given is not callbacks:
            raise ValueError(f"callbacks must be a list of gbun.callbacks.Callback objects, got {callback!r}")
