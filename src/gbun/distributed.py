"""Training on many workers, each with its share of the rows: the same model, up to rounding, as on one.

`train` runs inside a process group of torch.distributed that the user has, or that torchrun made. `gbun.launcher` makes
one of processes on this machine.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbun.agreement import check_alike, decided
from gbun.arrays import load_torch
from gbun.callbacks import Callback
from gbun.collectives import Courier
from gbun.collectives.courier import watched
from gbun.collectives.health import Health
from gbun.collectives.process_group import ProcessGroupCollective
from gbun.collectives.wire import FORMATS
from gbun.config import Parameters
from gbun.launcher import KEEPER, TIMEOUT, launch
from gbun.model import Model
from gbun.problem import Data
from gbun.training import train as train_rows

__all__ = ["Report", "launch", "train", "workers"]

FOREVER = timedelta(days=7)  # a slow worker is waited for; that one is silent is told by its pulse, not by this
_jobs: Counter[str] = Counter()
"""How many trainings these workers have had: each has a name of its own in the store, and all count alike."""


@dataclass
class Report:
    """Bytes that workers sent and received: workers x rounds, when training is over.

    The first column is all that came before the first round: scaling, the start, a trial.
    """

    sent: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    received: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))

    def __str__(self) -> str:
        if self.sent.shape[1] < 2:
            return "no round was made"
        per_round = [values[:, 1:].mean() for values in (self.sent, self.received)]
        most = [values[:, 1:].mean(axis=1).max() for values in (self.sent, self.received)]
        return (
            f"{len(self.sent)} workers, {self.sent.shape[1] - 1} rounds; bytes a worker and round: {per_round[0]:,.0f} "
            f"sent (at most {most[0]:,.0f}), {per_round[1]:,.0f} received (at most {most[1]:,.0f})"
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
    group: Any = None,
    timeout: float = TIMEOUT,
    transport: str = "float32",
    report: Report | None = None,
) -> Model:
    """`gbun.train` on every worker of a process group, each with its own rows in `data` and `evals`.

    All workers call it with the same arguments but for their rows, and all get the same model. Callbacks run on rank 0,
    and what they decide holds for all. `group` is a group of torch.distributed; None is the default one. A worker that
    is silent for `timeout` seconds ends the job on all of them, as does one that raises. `transport` is how sums of
    K x K are written on the way: "float32", "float64", or "int16" for slow links. `report` is told what they sent.
    """
    with workers(group, timeout, transport) as courier:
        asked = {
            "transport": transport,
            "resume": resume is not None,
            "init_model": init_model is not None,
            "task": task,
        }
        decided(courier, asked, lambda told: check_alike(told, "on all workers"))
        model = train_rows(
            params, data, num_boost_round, evals=evals, callbacks=callbacks, init_model=init_model, task=task,
            resume=resume, collective=courier,
        )  # fmt: skip
        _fill(Report() if report is None else report, courier)  # on all, whoever asked
        return model


@contextmanager
def workers(group: Any = None, timeout: float = TIMEOUT, transport: str = "float32") -> Iterator[Courier]:
    """The workers of a process group, while they train together. An error of one ends all, with its rank and cause."""
    dist = load_torch("training on several workers").distributed
    if not dist.is_available() or not dist.is_initialized():
        raise ValueError(
            "gbun.distributed.train needs a process group: call torch.distributed.init_process_group first, start with "
            "torchrun, or use gbun.distributed.launch"
        )
    group = dist.group.WORLD if group is None else group
    ranks = dist.get_process_group_ranks(group)
    store = dist.PrefixStore(_name_of_job(ranks, group.group_name), dist.distributed_c10d._get_default_store())
    with connected(store, ranks.index(dist.get_rank()), len(ranks), timeout, transport, _keeper()) as courier:
        yield courier


@contextmanager
def connected(
    store: Any,
    rank: int,
    size: int,
    timeout: float = TIMEOUT,
    transport: str = "float32",
    keeper: str = "worker 0",
    host: str = "",
) -> Iterator[Courier]:
    """Workers that have nothing in common but a store of torch's, which `keeper` keeps, while they train together.

    `host` is the address by which the others reach this one; torch chooses where it is not said.
    """
    dist = load_torch("training on several workers").distributed
    is_time = isinstance(timeout, Real) and timeout > 0
    # Clients of their own: one that waits lets nobody else through.
    health = Health(store.clone(), rank, size, timeout if is_time else TIMEOUT, keeper)
    courier: Courier | None = None
    try:  # what is wrong with one worker's arguments is told to all
        if not is_time:
            raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}")
        if transport not in FORMATS:
            raise ValueError(f"transport must be one of {', '.join(FORMATS)}, got {transport!r}")
        # Connections of its own, whatever the user sends through his meanwhile: sums are small, and on the host.
        place = dist.PrefixStore("gloo", store.clone()), rank, size, _options(dist.ProcessGroupGloo, host)
        own = watched(lambda: dist.ProcessGroupGloo(*place), health.check)
        courier = Courier(ProcessGroupCollective(own, health.lost), transport, health.check)
        yield courier
        courier.sum(np.zeros(1))  # nobody leaves before all are through
    except BaseException as error:
        health.failed(error)
        raise
    finally:
        if courier is not None:
            courier.close()
        health.end()


def _options(gloo: Any, host: str) -> Any:
    """How gloo listens: at `host`, unless the user names an interface; with a timeout alone it asks him itself."""
    if not host or "GLOO_SOCKET_IFNAME" in os.environ:
        return FOREVER
    options = gloo._Options()
    options._timeout, options._devices = FOREVER, [gloo.create_device(hostname=host)]
    return options


def _name_of_job(ranks: Sequence[int], group: str) -> str:
    """Groups of the same ranks have other names, and each call on a group another number."""
    together = hashlib.sha256(f"{list(ranks)} {group}".encode()).hexdigest()[:16]
    _jobs[together] += 1
    return f"gbun/{together}/{_jobs[together]}"


def _keeper() -> str:
    """Who keeps the store in which failures are written down."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return "torchrun"
    return os.environ.get(KEEPER, "worker 0")


def _fill(report: Report, courier: Courier) -> None:
    own = np.array([(traffic.sent, traffic.received) for traffic in courier.traffic], dtype=np.int64).reshape(-1, 2)
    found = courier.gather(np.diff(own, axis=0, prepend=0).reshape(-1))
    of_workers = np.zeros((courier.size, *own.shape), dtype=np.int64)
    if found is not None:
        of_workers[:] = np.stack(found).reshape(of_workers.shape)
    of_workers = courier.broadcast(of_workers)
    report.sent, report.received = of_workers[..., 0], of_workers[..., 1]
