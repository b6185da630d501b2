"""What workers do in tests: functions of a module, as new processes must import them."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import scipy.sparse
import torch.distributed as dist

import gbun
from gbun import distributed
from gbun.callbacks import Callback, Checkpoint, EarlyStopping, History

TIMEOUT = 3.0  # seconds of silence after which a worker is given up, where one is lost
PATIENCE = 60.0  # where none is: a busy machine may keep one waiting


def rows(kind="dense", n=2500, seed=0):
    """(X, y) of some kind of problem."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    signal_ = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + 0.3 * rng.normal(size=n)
    if kind == "sparse":
        S = scipy.sparse.random(n, 300, density=0.03, random_state=seed, format="csr")
        return S, (np.asarray(S[:, :40].sum(axis=1)).ravel() + 0.1 * signal_ > 0.6).astype(int)
    if kind == "classes":
        return X, np.digitize(signal_, [-0.8, 0.0, 0.8])
    return X, signal_ if kind == "dense" else (signal_ > 0).astype(int)


def wait_for(condition, seconds):
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    return condition()


def task_of(kind):
    return "regression" if kind == "dense" else "classification"


def share(data, rank, size):
    """A part of the rows that has nothing to do with their order."""
    own = np.random.default_rng(99).integers(0, size, size=data[0].shape[0]) == rank
    return data[0][own], data[1][own]


def mine(data):
    return share(data, dist.get_rank(), dist.get_world_size())


def train(kind, params, n_rounds, n=2500, **more):
    """A model's scores, and what was sent."""
    data, report, history = rows(kind, n), distributed.Report(), History()
    evals = {"valid": mine(rows(kind, 600, seed=1))} if more.pop("watched", False) else {}
    model = distributed.train(
        {"n_neurons": 32, **params}, mine(data), n_rounds, evals=evals, callbacks=[history, *more.pop("callbacks", [])],
        task=task_of(kind), timeout=PATIENCE, report=report, **more,
    )  # fmt: skip
    return model.decision_function(data[0][:100]), model.n_rounds, report, history.values


class Until(Callback):
    """Does something in a round."""

    def __init__(self, round_, action):
        self.round, self.action = round_, action

    def before_round(self, training, round_):
        if round_ == self.round:
            self.action()


def stop_here(how, rank, where):
    """An objective that ends this worker, or freezes it, when it is called for the `where`-th time."""
    calls = [0]

    def objective(y, scores, weight):
        calls[0] += 1
        if dist.get_rank() == rank and calls[0] > where:
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "frozen":
                os.kill(os.getpid(), signal.SIGSTOP)
            if how == "memory":
                raise MemoryError("no more of it")
            raise ZeroDivisionError("in the user's objective")
        return weight * (scores - y), weight

    return objective


def fail(how, rank, where=25, n_rounds=10**4):
    """Train for ever, if nothing happened."""
    params = {"n_neurons": 16, "objective": stop_here(how, rank, where), "init": "constant"}
    distributed.train(params, mine(rows(n=300)), n_rounds, timeout=TIMEOUT if how in ("killed", "frozen") else PATIENCE)


def slow(seconds):
    """A worker that takes longer than others are silent, but lives."""

    def objective(y, scores, weight):
        if dist.get_rank() == 1 and len(y):
            time.sleep(seconds)
        return weight * (scores - y), weight

    params = {"n_neurons": 16, "objective": objective, "init": "constant", "n_jobs": 1}
    return distributed.train(params, mine(rows(n=100)), 1, timeout=1.0).n_rounds


def checkpointed(path, n_rounds, resume, patience, dies_in=None):
    """A training that writes checkpoints, and may be killed; with patience, AUC judges it."""
    kind = "two classes" if patience else "dense"
    data, (X, y) = mine(rows(kind, 300 if patience else 2500)), rows(kind, 800, seed=1)
    callbacks = [Checkpoint(path, every=3)]
    if patience:
        callbacks.append(EarlyStopping(patience))
    if dies_in is not None:
        callbacks.append(Until(dies_in, lambda: os.kill(os.getpid(), signal.SIGKILL)))
    params = {"n_neurons": 32, "learning_rate": 1.0, "gram_rows": 0.5, "eval_metric": "auc" if patience else None}
    model = distributed.train(
        params, data, n_rounds, evals={"valid": mine((X, y))} if patience else {}, callbacks=callbacks,
        task=task_of(kind), resume=path if resume else None, timeout=PATIENCE if dies_in is None else TIMEOUT,
    )  # fmt: skip
    return model.decision_function(X[:100]), model.n_rounds, model.description.best_round


def differing(what):
    """Workers that were not told the same."""
    rank = dist.get_rank()
    X, y = mine(rows(n=200))
    params, more = {"n_neurons": 16}, {}
    if what == "columns" and rank == 1:
        X = X[:, :5]
    if what == "parameters":
        params["n_neurons"] = 16 + 16 * (rank == 1)
    if what == "sets":
        more["evals"] = {f"valid-{rank}": (X, y)}
    if what == "target" and rank == 2:
        y = y.copy()
        y[3] = np.nan
    distributed.train(params, (X, y), 3, timeout=PATIENCE, **more)


def group_of_two():
    """Only some of the processes train; the others do something else meanwhile."""
    group = dist.new_group([0, 2])
    if dist.get_rank() == 1:
        return None
    X, y = share(rows(n=500), [0, 2].index(dist.get_rank()), 2)
    return distributed.train({"n_neurons": 16}, (X, y), 4, group=group, timeout=PATIENCE).decision_function(X[:5])


def twice():
    """Two trainings, one after the other, in one process group."""
    data = mine(rows(n=400))
    return [distributed.train({"n_neurons": 16}, data, n, timeout=PATIENCE).n_rounds for n in (2, 3)]


def train_with(kind, params, n_rounds, transport):
    return train(kind, params, n_rounds, n=4500, transport=transport)[2]


def heard(work):
    """What this worker hears of a failure, its own or another's; its process goes on."""
    try:
        work()
    except Exception as error:
        return str(error) if isinstance(error, gbun.WorkerError) else f"{type(error).__name__}: {error}"
    return "nothing"


def fail_and_go_on():
    """What each hears of failures on worker 1: in a round, and of arguments that only it has wrong; then a training."""
    data, wrong = mine(rows(n=300)), dist.get_rank() == 1
    told = [heard(lambda: fail("raised", 1))]
    for name, value in (("transport", "float8"), ("timeout", 0), ("transport", "int16")):
        asked = {"timeout": PATIENCE, **({name: value} if wrong else {})}
        told.append(heard(lambda asked=asked: distributed.train({"n_neurons": 16}, data, 2, **asked)))
    model = distributed.train({"n_neurons": 16}, data, 3, timeout=PATIENCE)
    return told, model.decision_function(rows(n=300)[0])


def two_groups():
    """Two trainings at once, in two groups of the same processes."""
    both = [dist.new_group([0, 1]) for _ in range(2)]

    def work(kind, group):
        data = rows(kind, 300)
        params = {"n_neurons": 16, "n_jobs": 1}
        model = distributed.train(params, mine(data), 20, task=task_of(kind), group=group, timeout=PATIENCE)
        return model.decision_function(data[0][:50])

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(work, ("dense", "classes"), both))


def parts_of(what):
    """Rows of some kind, and whose each is, of three workers."""
    kind = {"one class": "classes", "columns": "sparse"}.get(what, "dense")
    data = rows(kind, 300)
    part = np.arange(300) % 3
    if what == "empty":
        part[part == 1] = 2
    if what == "one row":
        part = np.where(np.arange(300) == 7, 1, 2 * (part > 0))
    if what == "one class":
        part = np.minimum(data[1], 2)
    if what == "columns":  # rows with the last columns are the last worker's
        part = np.digitize([max(row.indices, default=0) for row in data[0]], [270, 285])
    return kind, data, part


def shares(*whats):
    """Scores of models of unusual shares."""
    found = []
    for what in whats:
        kind, (X, y), part = parts_of(what)
        own = X[part == dist.get_rank()]
        if what == "columns":
            own = own[:, : own.indices.max() + 1]
        data = own, y[part == dist.get_rank()]
        model = distributed.train({"n_neurons": 32}, data, 4, task=task_of(kind), timeout=PATIENCE)
        found.append((data[0].shape, len(np.unique(data[1])), model.decision_function(X)))
    return found


def train_watched(kind, params, n_rounds):
    return train(kind, params, n_rounds, watched=True)


def lost_before(how):
    """A worker that never comes to the training."""
    if dist.get_rank() == 1:
        if how == "frozen":
            os.kill(os.getpid(), signal.SIGSTOP)
        raise ValueError("its data is gone")
    distributed.train({"n_neurons": 16}, mine(rows(n=300)), 3, timeout=5 * TIMEOUT)
