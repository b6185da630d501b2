"""Functions that workers run in tests; they are in a module, as new processes must import them."""

from __future__ import annotations

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import scipy.sparse
import torch.distributed as dist

import gbun
from gbun import distributed
from gbun.callbacks import Callback, Checkpoint, EarlyStopping, History
from gbun.collectives import channels
from gbun.collectives.health import PULSES_PER_TIMEOUT

TIMEOUT = 6.0  # seconds of silence after which a frozen worker is given up
PATIENCE = 120.0  # where no worker is frozen: guards against a test that hangs


def rows(kind="dense", n=2500, seed=0):
    """Return (X, y) of a kind of problem."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    signal_ = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + 0.3 * rng.normal(size=n)
    if kind == "sparse":
        S = scipy.sparse.random(n, 300, density=0.03, random_state=seed, format="csr")
        return S, (np.asarray(S[:, :40].sum(axis=1)).ravel() + 0.1 * signal_ > 0.6).astype(int)
    if kind == "classes":
        return X, np.digitize(signal_, [-0.8, 0.0, 0.8])
    return X, signal_ if kind == "dense" else (signal_ > 0).astype(int)


def wait_for(condition, seconds=PATIENCE):
    """Wait until a condition holds; return whether it does."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def task_of(kind):
    return "regression" if kind == "dense" else "classification"


def share(data, rank=None, size=None):
    """Return the part of the rows of a worker, this one by default, at random."""
    rank, size = (dist.get_rank(), dist.get_world_size()) if rank is None else (rank, size)
    local = np.random.default_rng(99).integers(0, size, size=data[0].shape[0]) == rank
    return data[0][local], data[1][local]


def train(kind, params, n_rounds, n=2500, with_evals=False, **options):
    """Return a model's scores, its number of rounds, the traffic and the history."""
    data, report, history = rows(kind, n), distributed.TrafficReport(), History()
    evals = {"valid": share(rows(kind, 600, seed=1))} if with_evals else {}
    model = distributed.train(
        {"n_neurons": 32, **params}, share(data), n_rounds, evals=evals, callbacks=[history], task=task_of(kind),
        timeout=PATIENCE, report=report, **options,
    )  # fmt: skip
    return model.decision_function(data[0][:100]), model.n_rounds, report, history.values


def train_with_evals(kind, params, n_rounds):
    return train(kind, params, n_rounds, with_evals=True)


def measure_traffic(kind, params, n_rounds, transport):
    return train(kind, params, n_rounds, n=4500, transport=transport)[2]


def stop_here(how):
    """End or freeze this process."""
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "frozen":
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "memory":
        raise MemoryError("no more of it")
    raise ZeroDivisionError("in the user's objective")


def train_forever(on_call, timeout=PATIENCE):
    """Train with an objective that first calls `on_call` with the number of the call."""
    calls = [0]

    def objective(y, scores, weight):
        calls[0] += 1
        on_call(calls[0])
        return weight * (scores - y), weight

    params = {"n_neurons": 16, "objective": objective, "init": "constant"}
    dist.barrier()  # from here on no worker is silent because it starts late
    distributed.train(params, share(rows(n=300)), 10**4, timeout=timeout)


def fail(how, rank):
    """Fail on one worker in the midst of a training."""
    is_failing = dist.get_rank() == rank
    on_call = lambda number: stop_here(how) if is_failing and number > 25 else None  # noqa: E731
    train_forever(on_call, TIMEOUT if how == "frozen" else PATIENCE)


def fail_in_own_group(folder, rank, how):
    """Form a process group of two without a launcher, as scripts do: its store is in rank 0, which fails."""
    address = Path(folder) / "port"
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        address.with_suffix(".new").write_text(str(store.port))
        address.with_suffix(".new").rename(address)
    else:
        assert wait_for(address.exists)
        store = dist.TCPStore("127.0.0.1", int(address.read_text()))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    sys.stdout.write(catch_error(lambda: fail(how, 0)))
    sys.stdout.flush()
    os._exit(0)  # without waiting for the group


def forge_messages():
    """Train until the messages of worker 1 do not carry the code of the job any more."""

    def on_call(number):
        if dist.get_rank() == 1 and number == 26:
            send = channels.Channel.send

            def send_with_another_key(channel, content):
                channel._send_key = bytes(64)
                send(channel, content)

            channels.Channel.send = send_with_another_key  # in this process, which ends with the job

    train_forever(on_call)


def fail_before_training(how):
    """Fail on worker 1 before it trains."""
    dist.barrier()
    if dist.get_rank() == 1:
        if how == "frozen":
            stop_here(how)
        raise ValueError("its data is gone")
    distributed.train({"n_neurons": 16}, share(rows(n=300)), 3, timeout=TIMEOUT)  # which it never joins


def train_and_tell(folder):
    """Train for ever; each worker leaves a file in the folder when it is in the midst of it."""
    path = Path(folder) / str(dist.get_rank())
    train_forever(lambda number: path.touch() if number == 10 else None)


def be_slow():
    """Let worker 0 wait until worker 1 has had more pulses than there are in `timeout`; return how many."""
    rank, store = dist.get_rank(), dist.PrefixStore("slow", dist.distributed_c10d._get_default_store())
    dist.barrier()
    with distributed.connect_workers(store, rank, 2, timeout=TIMEOUT) as collective:
        if rank == 1:
            assert wait_for(lambda: int(store.get("pulse/1")) > PULSES_PER_TIMEOUT + 1)
        return int(collective.sum(np.array([float(store.get("pulse/1")) * rank]))[0])


def train_with_checkpoints(path, n_rounds, resume, patience, dies_in=None):
    """Train with checkpoints, perhaps until worker 0 is killed; with patience, AUC is watched."""

    class Die(Callback):
        def before_round(self, training, round_):
            if round_ == dies_in:
                stop_here("killed")

    kind = "two classes" if patience else "dense"
    data, (X, y) = share(rows(kind, 300 if patience else 2500)), rows(kind, 800, seed=1)
    callbacks = [Checkpoint(path, every=3), *([EarlyStopping(patience)] if patience else []), Die()]
    params = {"n_neurons": 32, "learning_rate": 1.0, "gram_rows": 0.5, "eval_metric": "auc" if patience else None}
    params |= {"temperature": 2.0, "temperature_doublings": 0}  # soon overfits
    model = distributed.train(
        params, data, n_rounds, evals={"valid": share((X, y))} if patience else {}, callbacks=callbacks,
        task=task_of(kind), resume=path if resume else None, timeout=PATIENCE,
    )  # fmt: skip
    return model.decision_function(X[:100]), model.n_rounds, model.description.best_round


def train_with_differences(what):
    """Train with arguments or columns that differ among workers."""
    rank = dist.get_rank()
    X, y = share(rows(n=200))
    params, options = {"n_neurons": 16}, {}
    if what == "columns" and rank == 1:
        X = X[:, :5]
    if what == "parameters":
        params["n_neurons"] = 16 + 16 * (rank == 1)
    if what == "sets":
        options["evals"] = {f"valid-{rank}": (X, y)}
    if what == "target" and rank == 2:
        y = y.copy()
        y[3] = np.nan
    distributed.train(params, (X, y), 3, timeout=PATIENCE, **options)


def train_in_group_of_two():
    """Train on workers 0 and 2; worker 1 does something else meanwhile."""
    group = dist.new_group([0, 2])
    if dist.get_rank() == 1:
        return None
    X, y = share(rows(n=500), [0, 2].index(dist.get_rank()), 2)
    return distributed.train({"n_neurons": 16}, (X, y), 4, group=group, timeout=PATIENCE).decision_function(X[:5])


def train_twice():
    """Train twice, one after the other, in one process group."""
    data = share(rows(n=400))
    return [distributed.train({"n_neurons": 16}, data, n, timeout=PATIENCE).n_rounds for n in (2, 3)]


def catch_error(work):
    """Return the text of the error on this worker; its process goes on."""
    try:
        work()
    except Exception as error:
        return str(error) if isinstance(error, gbun.WorkerError) else f"{type(error).__name__}: {error}"
    return "no error"


def fail_and_train_again():
    """Return the errors of failures on worker 1, in a round and by wrong arguments; then the scores of a training."""
    data, errors = share(rows(n=300)), [catch_error(lambda: fail("raised", 1))]
    for name, value in (("transport", "float8"), ("timeout", 0), ("transport", "int16")):
        options = {"timeout": PATIENCE, **({name: value} if dist.get_rank() == 1 else {})}
        errors.append(catch_error(lambda options=options: distributed.train({"n_neurons": 16}, data, 2, **options)))
    model = distributed.train({"n_neurons": 16}, data, 3, timeout=PATIENCE)
    return errors, model.decision_function(rows(n=300)[0])


def train_in_two_groups():
    """Train at the same time in two groups of the same processes."""
    groups = [dist.new_group([0, 1]) for _ in range(2)]

    def work(kind, group):
        data = rows(kind, 300)
        params = {"n_neurons": 16, "n_jobs": 1}
        model = distributed.train(params, share(data), 20, task=task_of(kind), group=group, timeout=PATIENCE)
        return model.decision_function(data[0][:50])

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(work, ("dense", "classes"), groups))


def divide_unusually(what):
    """Return a kind of problem, its rows, and the worker of each row, of three workers."""
    kind = {"one class": "classes", "columns": "sparse"}.get(what, "dense")
    data = rows(kind, 300)
    part = np.arange(300) % 3
    if what == "empty":
        part[part == 1] = 2
    if what == "one row":
        part = np.where(np.arange(300) == 7, 1, 2 * (part > 0))
    if what == "one class":
        part = np.minimum(data[1], 2)
    if what == "columns":  # rows with entries in the last columns are the last worker's
        part = np.digitize([max(row.indices, default=0) for row in data[0]], [270, 285])
    return kind, data, part


def train_on_unusual_shares(*whats):
    """Return the shape of each share, its number of classes, and the scores of the model."""
    found = []
    for what in whats:
        kind, (X, y), part = divide_unusually(what)
        local, y = X[part == dist.get_rank()], y[part == dist.get_rank()]
        if what == "columns":
            local = local[:, : local.indices.max() + 1]
        model = distributed.train({"n_neurons": 32}, (local, y), 4, task=task_of(kind), timeout=PATIENCE)
        found.append((local.shape, len(np.unique(y)), model.decision_function(X)))
    return found
