"""Training on many workers, each with its share of the rows: the model of one worker, up to rounding.

`train` runs in a process group of torch.distributed, which the user or torchrun has made. `gbun.launcher` starts a
group of processes on this machine.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbun.agreement import check_same, decide_at_root
from gbun.arrays import load_torch
from gbun.callbacks import Callback
from gbun.collectives import AsyncCollective
from gbun.collectives.async_collective import run_in_thread, wait_with_checks
from gbun.collectives.channels import make_secret, read_secret
from gbun.collectives.health import Health, clone_store
from gbun.collectives.links import Links, find_local_address
from gbun.collectives.store import Store, close_store, wait_for_keys
from gbun.collectives.tree import TreeCollective
from gbun.collectives.wire import FORMATS
from gbun.config import Parameters
from gbun.launcher import SECRET_VARIABLE, STORE_OWNER_VARIABLE, TIMEOUT, launch
from gbun.learners import AnyLearner
from gbun.model import Model
from gbun.problem import Data
from gbun.training import train as train_rows

__all__ = ["TrafficReport", "launch", "train", "workers"]

_job_counts: Counter[str] = Counter()
"""The number of trainings of each group: all workers count alike, so each training has its own name in the store."""


@dataclass
class TrafficReport:
    """Bytes that each worker sent and received in each round.

    The first column counts what came before the first round: scaling, the start, a trial.

    Attributes
    ----------
    sent, received : ndarray of shape (n_workers, 1 + n_rounds), dtype int64
        Empty until training has ended.
    """

    sent: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    received: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))

    def __str__(self) -> str:
        if self.sent.shape[1] < 2:
            return "no round was made"
        mean = [values[:, 1:].mean() for values in (self.sent, self.received)]
        most = [values[:, 1:].mean(axis=1).max() for values in (self.sent, self.received)]
        return (
            f"{len(self.sent)} workers, {self.sent.shape[1] - 1} rounds; bytes a worker and round: {mean[0]:,.0f} "
            f"sent (at most {most[0]:,.0f}), {mean[1]:,.0f} received (at most {most[1]:,.0f})"
        )


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
    learner: AnyLearner | None = None,
    group: Any = None,
    timeout: float = TIMEOUT,
    transport: str = "float32",
    report: TrafficReport | None = None,
) -> Model:
    """Train one model on all workers of a process group, each with its own share of the rows.

    All workers call it with the same arguments except for their rows, and all return the same model. The first nine
    arguments are those of `gbun.train`. Callbacks run on rank 0, and their decisions hold for all workers.

    Parameters
    ----------
    data, evals
        This worker's share of the training rows and of each evaluation set; a share may be empty.
    group : torch.distributed.ProcessGroup, optional
        The workers; the default group if None.
    timeout : float, default=300.0
        Seconds of silence after which a worker counts as failed. A worker that fails ends the job on all workers.
    transport : {"float32", "float64", "int16"}, default="float32"
        The format in which sums of K x K numbers are sent; "int16" is for slow links. Learners that are not
        data-independent send float64.
    report : TrafficReport, optional
        Filled with the bytes that workers sent and received.

    Returns
    -------
    Model
        The model of one worker with all rows, up to rounding, with the same bits on all workers.

    Raises
    ------
    WorkerError
        If another worker failed.
    """
    with workers(group, timeout, transport) as collective:
        arguments = {
            "transport": transport, "resume": resume is not None, "init_model": init_model is not None, "task": task,
        }  # fmt: skip
        decide_at_root(collective, arguments, lambda messages: check_same(messages, "on all workers"))
        model = train_rows(
            params, data, num_boost_round, evals=evals, callbacks=callbacks, init_model=init_model, task=task,
            resume=resume, collective=collective, learner=learner,
        )  # fmt: skip
        _fill_report(report or TrafficReport(), collective)  # on all workers, whichever asked for it
        return model


@contextmanager
def workers(group: Any = None, timeout: float = TIMEOUT, transport: str = "float32") -> Iterator[AsyncCollective]:
    """Connect the workers of a process group for one training; the arguments are those of `train`.

    If a worker raises within the context, all others raise a `WorkerError` with its rank and its error.
    """
    dist = load_torch("training on several workers").distributed
    if not dist.is_available() or not dist.is_initialized():
        raise ValueError(
            "gbun.distributed.train needs a process group: call torch.distributed.init_process_group first, start with "
            "torchrun, or use gbun.distributed.launch"
        )
    group = dist.group.WORLD if group is None else group
    ranks = dist.get_process_group_ranks(group)
    job = _make_job_name(ranks, group.group_name)
    store = dist.PrefixStore(job, dist.distributed_c10d._get_default_store())
    by_torchrun = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store_owner = "torchrun" if by_torchrun else os.environ.get(STORE_OWNER_VARIABLE, "worker 0")
    rank, size = ranks.index(dist.get_rank()), len(ranks)
    secret = read_secret(os.environ.get(SECRET_VARIABLE))
    with connect_workers(store, rank, size, timeout, transport, store_owner, secret=secret, job=job) as collective:
        yield collective


@contextmanager
def connect_workers(
    store: Store,
    rank: int,
    size: int,
    timeout: float = TIMEOUT,
    transport: str = "float32",
    store_owner: str = "worker 0",
    *,
    host: str | None = None,
    secret: bytes | None = None,
    job: str = "",
) -> Iterator[AsyncCollective]:
    """Connect workers that share a key-value store, kept by `store_owner`, for one training.

    `host` is the address at which the others reach this worker, found out if it is None. `secret` is that of the job;
    if it is None, whoever can read the store knows it. `job` distinguishes trainings with the same secret.
    """
    is_time = isinstance(timeout, Real) and timeout > 0
    # Clones have connections of their own: a client that waits blocks all other calls.
    health = Health(clone_store(store, store_owner), rank, size, timeout if is_time else TIMEOUT, store_owner)
    links, collective, meeting_place = Links(rank, size, job), None, None
    try:  # the other workers learn of wrong arguments, too
        if not is_time:
            raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}")
        if transport not in FORMATS:
            raise ValueError(f"transport must be one of {', '.join(FORMATS)}, got {transport!r}")
        host = find_local_address(os.environ.get("MASTER_ADDR") or _store_host(store)) if host is None else host
        meeting_place = clone_store(store, store_owner)

        def connect() -> None:
            links.connect(meeting_place, host, secret or _share_secret(meeting_place, links), timeout)

        try:
            wait_with_checks(run_in_thread(connect), health.check)
        except (RuntimeError, OSError) as error:  # a worker that failed before has closed its connections
            raise health.explain_connection_error(error) from error
        collective = AsyncCollective(TreeCollective(links, health.explain_lost_peer), transport, health.check)
        yield collective
        collective.sum(np.zeros(1))  # no worker leaves before all are done
    except BaseException as error:
        health.report_failure(error)
        raise
    finally:
        if collective is not None:
            collective.close()
        links.close()
        if meeting_place is not None:
            close_store(meeting_place)
        health.end()


def _store_host(store: Any) -> str | None:
    """Return the host of a store of torch that is on a network, which this worker reaches by its own address."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return getattr(store, "host", None)


def _share_secret(store: Store, links: Links) -> bytes:
    """Return a secret that rank 0 draws and leaves in the store."""
    if links.rank == 0:
        store.set("secret", make_secret().hex())
    wait_for_keys(store, ["secret"], lambda: links.closed)
    if links.closed:  # the secret may not be there, and nobody needs it any more
        raise ConnectionError("the connections were closed before rank 0 had left the secret of the job")
    return bytes.fromhex(store.get("secret").decode())


def _make_job_name(ranks: Sequence[int], group: str) -> str:
    """Return a name that differs among groups of the same ranks, and among the trainings of a group."""
    digest = hashlib.sha256(f"{list(ranks)} {group}".encode()).hexdigest()[:16]
    _job_counts[digest] += 1
    return f"gbun/{digest}/{_job_counts[digest]}"


def _fill_report(report: TrafficReport, collective: AsyncCollective) -> None:
    local = np.array([(t.sent, t.received) for t in collective.traffic], dtype=np.int64).reshape(-1, 2)
    gathered = collective.gather(np.diff(local, axis=0, prepend=0).reshape(-1))
    of_workers = np.zeros((collective.size, *local.shape), dtype=np.int64)
    if gathered is not None:
        of_workers[:] = np.stack(gathered).reshape(of_workers.shape)
    of_workers = collective.broadcast(of_workers)
    report.sent, report.received = of_workers[..., 0], of_workers[..., 1]
