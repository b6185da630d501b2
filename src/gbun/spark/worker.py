"""What one worker of a training on Spark does: meet the others, read its rows, train with them, tell how it went.

`work` is all of it. It knows nothing of Spark but what a `Meeting` offers, so that it can be tried without.
"""

from __future__ import annotations

import hashlib
import json
import socket
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

from gbun.agreement import decided, together
from gbun.arrays import load_torch
from gbun.callbacks import Callback, Checkpoint, History
from gbun.collectives import Collective, Solo, WorkerError
from gbun.distributed import connected
from gbun.launcher import CONNECTING, TIMEOUT
from gbun.model import Model
from gbun.problem import A_WORKERS_OWN, Dataset
from gbun.spark.progress import Address, Progress
from gbun.spark.rows import Columns, Matrix, Share, read
from gbun.training import train

VALIDATION = "validation"
"""What the evaluation set is called that validationIndicatorCol sets aside."""
LAST_WORDS = timedelta(seconds=10)  # twice the time between two looks at the record of failures


@dataclass(frozen=True)
class Job:
    """What all workers of a training are told."""

    parameters: Mapping[str, Any]
    task: str
    columns: Columns
    timeout: float = TIMEOUT
    transport: str = "float32"
    checkpoints: str | None = None
    every: int = 10
    listener: Address | None = None
    n_workers: int | None = None
    """How many workers there are to be; None: as many as meet."""
    identity: str = ""
    """A digest of the parameters, made where they come from: a checkpoint is of one training only."""


class Meeting(Protocol):
    """Where workers meet before they have a network of their own: who they are, and one word to each other."""

    @property
    def rank(self) -> int: ...

    @property
    def hosts(self) -> Sequence[str]:
        """The machine of each worker, by which it can be reached."""

    def tell(self, text: str) -> list[str]:
        """What every worker says, in rank order."""


@dataclass(frozen=True)
class Outcome:
    """How it went for one worker. The first one has the model, if no worker failed."""

    rank: int
    rows: int = 0
    watched: int = 0
    seconds: float = 0.0
    resumed: int = 0
    """Rounds that were taken from a checkpoint."""
    checkpoint: str | None = None
    """The file of the first worker's checkpoints: it holds the whole model now, until the driver has it as well."""
    unheard: str = ""
    """Why the driver could not be told of the progress."""
    history: Mapping[str, Any] = field(default_factory=dict)
    error: Mapping[str, str] | None = None
    model: bytes | None = None


def work(batches: Iterable[Any], meeting: Meeting, job: Job) -> Outcome:
    """Train on this worker's rows, Arrow batches, together with all workers that come to the `meeting`.

    An error of this worker, or of another one, is told as its outcome: Spark has no reason to try again. Where a worker
    is lost, this one raises: Spark ends the others, and may try again.
    """
    began = perf_counter()
    try:
        with _together(meeting, job) as collective:
            outcome = _trained(batches, collective, job)
        return replace(outcome, seconds=perf_counter() - began)
    except Exception as error:
        if isinstance(error, WorkerError) and error.lost:
            raise _with_host(error, meeting.hosts).with_traceback(error.__traceback__) from None
        # Whoever only follows has nothing to tell but who it was.
        whose = error.rank if isinstance(error, WorkerError) and error.rank is not None else meeting.rank
        told = {"whose": str(whose), "kind": type(error).__name__, "text": str(error), "trace": traceback.format_exc()}
        return Outcome(meeting.rank, seconds=perf_counter() - began, error=told)


def _with_host(error: WorkerError, hosts: Sequence[str]) -> WorkerError:
    """The same error, which tells the machine of the worker that is lost."""
    if error.rank is None:
        return error
    return WorkerError(f"{error} (worker {error.rank} was on host {hosts[error.rank]})", error.rank, lost=True)


# Meeting


@contextmanager
def _together(meeting: Meeting, job: Job) -> Iterator[Collective]:
    """The network of the workers, while they train."""
    rank, size = meeting.rank, len(meeting.hosts)
    if job.checkpoints is not None and job.n_workers is not None and size < job.n_workers:
        # Where Spark hears that a worker is through after it heard that another was lost, it repeats the other's task
        # alone. A failure now makes it repeat all.
        raise WorkerError(f"Spark made {size} tasks for {job.n_workers} workers, one having been lost", lost=True)
    if job.n_workers not in (None, size):
        raise ValueError(
            f"numWorkers={job.n_workers} workers are to train, but Spark made {size} tasks of the rows; "
            f"leave repartition=True, or repartition({job.n_workers}) the data frame"
        )
    if size == 1:
        yield Solo()
        return
    wait = timedelta(seconds=job.timeout)
    host, store = _opened(meeting, wait)
    try:
        with connected(store, rank, size, job.timeout, job.transport, host=host) as courier:
            yield courier
    except WorkerError as error:
        if error.lost:  # who is lost will not come to read, and the others look there every now and then
            wait = min(wait, LAST_WORDS)
        raise
    finally:
        # The first worker keeps the store: it stays until all have read there why they fail.
        with suppress(RuntimeError):
            store.set(f"gone/{rank}", "")
            if rank == 0:
                store.wait([f"gone/{other}" for other in range(size)], wait)


def _opened(meeting: Meeting, wait: timedelta) -> tuple[str, Any]:
    """This worker's address, and the store of the first worker. Whatever happens, all are told of it: nobody waits."""
    first, failure, said = meeting.rank == 0, None, dict[str, Any]()
    try:
        dist = load_torch("training on several workers").distributed
        host = own_address(meeting.hosts, meeting.rank)
        patience = max(wait, CONNECTING)
        store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=patience) if first else None
        said = {"host": host, "port": store.port if store else 0}
    except Exception as error:
        failure, said = error, {"error": f"{type(error).__name__}: {error}"}
    try:
        told = [json.loads(text) for text in meeting.tell(json.dumps(said))]
    except Exception as error:
        why = f"worker {meeting.rank} of {len(meeting.hosts)} did not meet the others: {error}"
        raise WorkerError(why, meeting.rank, lost=True) from error
    if failure is not None:
        raise failure
    for rank, one in enumerate(told):
        if "error" in one:
            raise WorkerError(f"worker {rank} of {len(told)} failed: {one['error']}", rank)
    if store is None:
        try:
            store = dist.TCPStore(told[0]["host"], told[0]["port"], timeout=patience)
        except RuntimeError as error:
            why = f"cannot reach worker 0 at {told[0]['host']} port {told[0]['port']}: {str(error).splitlines()[0]}"
            raise WorkerError(f"worker {meeting.rank} of {len(told)} {why}", meeting.rank, lost=True) from error
    store.set_timeout(wait)
    return host, store


def own_address(hosts: Sequence[str], rank: int) -> str:
    """The address by which the other workers reach this one.

    >>> own_address(["127.0.0.1", "127.0.0.1"], 1)
    '127.0.0.1'
    """
    own, other = hosts[rank], next((host for host in hosts if host != hosts[rank]), None)
    try:
        if other is None:
            return socket.gethostbyname(own)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:  # nothing is sent
            asked.connect((other, 9))
            return str(asked.getsockname()[0])
    except OSError:
        return own


# Training


def _trained(batches: Iterable[Any], collective: Collective, job: Job) -> Outcome:
    own, watched = together(collective, lambda: read(batches, job.columns))
    if watched is not None:
        decided(collective, [own.n_rows, watched.n_rows], lambda said: _check_divided(said, job.columns.indicator))
    dense = True
    if isinstance(own.features, Matrix):
        dense = decided(collective, own.features.said(), Matrix.is_dense)
    path = _checkpoint_path([own, *([] if watched is None else [watched])], collective, job)
    first = collective.rank == 0
    history, callbacks = History(), list[Callback]()
    progress = Progress(job.listener if first else None)
    if path is not None:
        callbacks.append(Checkpoint(path, job.every))
    data = _dataset(own, dense)
    evals = {} if watched is None else {VALIDATION: _dataset(watched, dense)}
    try:
        model = train(
            job.parameters, data, evals=evals, callbacks=[history, progress, *callbacks], task=job.task, resume=path,
            collective=collective,
        )  # fmt: skip
    finally:
        progress.close()
    return Outcome(
        collective.rank,
        own.n_rows,
        0 if watched is None else watched.n_rows,
        resumed=history.n_known,
        checkpoint=str(path) if first and path is not None else None,
        unheard=progress.unheard,
        history={"evals_result": history.values, "start": history.start, "seconds": history.seconds},
        model=_written(model) if first else None,
    )


def _check_divided(said: Sequence[Any], indicator: str | None) -> None:
    """Some rows of all workers are to train on, and some to evaluate on."""
    learnt_from, watched = (sum(counts) for counts in zip(*said, strict=True))
    if watched and not learnt_from:
        raise ValueError(f"validationIndicatorCol={indicator!r} is true in every row: none is left to train on")
    if learnt_from and not watched:
        raise ValueError(f"validationIndicatorCol={indicator!r} is true in no row: none is left to evaluate on")


def _dataset(share: Share, dense: bool) -> Dataset:
    return Dataset(share.features.rows(dense), share.target(), share.weight())


def _written(model: Model) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gbun"
        model.save_model(path)
        return path.read_bytes()


# Checkpoints


def _checkpoint_path(sets: Sequence[Share], collective: Collective, job: Job) -> Path | None:
    """The file that goes with what is trained, parameters and rows: no other training goes on from it."""
    if job.checkpoints is None:
        return None
    own = [share.fingerprint() for share in sets]
    fingerprint = decided(collective, own, lambda said: [sum(each) % 2**64 for each in zip(*said, strict=True)])
    text = json.dumps([job.identity, job.task, asdict(job.columns), fingerprint], sort_keys=True)
    folder = Path(job.checkpoints)
    if collective.rank == 0:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(
                f"checkpointPath must be a folder that executors write to, got {str(folder)!r}: {error}"
            ) from None
    return folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.gbun"


def identity(parameters: Mapping[str, Any], pickled: Callable[[Any], bytes]) -> str:
    """A digest of parameters that changes with what functions among them do; at worst it changes without need."""
    told = {n: _of(v, pickled) for n, v in parameters.items() if n not in A_WORKERS_OWN or n == "random_state"}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _of(value: Any, pickled: Callable[[Any], bytes]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_of(one, pickled) for one in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    digest = hashlib.sha256(pickled(value))
    code = getattr(getattr(value, "function", value), "__code__", None)
    if code is not None:  # of a module's function, what is pickled is the name
        constants = [one for one in code.co_consts if one is None or isinstance(one, (int, float, str))]
        digest.update(code.co_code + repr((constants, code.co_names)).encode())
    return [words(value), digest.hexdigest()]


def words(value: Any) -> Any:
    """A parameter's value as JSON can write it; of a function, and of others' objects, what they are called.

    >>> words([0.5, None, words])
    [0.5, None, '<words>']
    """
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return [words(one) for one in value]
    return f"<{getattr(value, '__name__', type(value).__name__)}>"
