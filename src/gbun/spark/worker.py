"""The work of one worker of a training on Spark: connect to the other workers, read rows, train, return an outcome.

`work` does all of this. It knows Spark only through a `Rendezvous`, so that tests can run it without Spark.
"""

from __future__ import annotations

import hashlib
import json
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, Protocol

from gbun.agreement import decide_at_root, run_or_raise_everywhere
from gbun.callbacks import Callback, Checkpoint, History
from gbun.collectives import Collective, Solo, WorkerError
from gbun.collectives.channels import Address, make_secret
from gbun.collectives.links import find_local_address
from gbun.collectives.store import StoreClient, StoreServer, wait_for_keys
from gbun.config import to_printable
from gbun.distributed import connect_workers
from gbun.launcher import CONNECT_TIMEOUT, TIMEOUT
from gbun.problem import LOCAL_PARAMETERS, Dataset
from gbun.spark.progress import ProgressSender
from gbun.spark.rows import InputColumns, VectorReader, WorkerRows, read_batches
from gbun.training import train

VALIDATION = "validation"
"""Name of the evaluation set that validationIndicatorCol selects."""
FAILURE_GRACE = 10.0  # twice the interval at which workers look for failures of others


@dataclass(frozen=True)
class TrainingJob:
    """A training as the driver sends it to all workers."""

    parameters: Mapping[str, Any]
    task: str
    columns: InputColumns
    timeout: float = TIMEOUT
    transport: str = "float32"
    checkpoint_folder: str | None = None
    checkpoint_every: int = 10
    listener: Address | None = None
    n_workers: int | None = None
    """The expected number of workers; None: any."""
    parameters_digest: str = ""
    """A digest of the parameters, made by the driver, by which a checkpoint belongs to one training only."""
    secret: bytes = field(default_factory=make_secret, repr=False)
    """By which the processes of this training recognise each other; it travels as Spark sends its tasks."""


class Rendezvous(Protocol):
    """Where workers exchange addresses before they have connections."""

    @property
    def rank(self) -> int: ...

    @property
    def hosts(self) -> Sequence[str]:
        """The host of each worker, in rank order."""

    def all_gather(self, text: str) -> list[str]:
        """Return the texts of all workers, in rank order."""


@dataclass(frozen=True)
class Outcome:
    """The result of one worker. Rank 0 has the model, if no worker failed."""

    rank: int
    rows: int = 0
    validation_rows: int = 0
    seconds: float = 0.0
    resumed_rounds: int = 0
    """Rounds that were taken from a checkpoint."""
    checkpoint: str | None = None
    """On rank 0, the checkpoint file. It now holds the whole model, until the driver has received the model."""
    progress_error: str = ""
    """Why progress could not be reported to the driver."""
    history: Mapping[str, Any] = field(default_factory=dict)
    error: Mapping[str, str] | None = None
    model: bytes | None = None


def work(batches: Iterable[Any], rendezvous: Rendezvous, job: TrainingJob) -> Outcome:
    """Train on the rows of this worker, Arrow batches, together with all workers of the `rendezvous`.

    An error of this worker or of another one is part of the outcome, so that Spark does not try again. A `WorkerError`
    is raised if a worker was lost: Spark then ends the others, and may try again.
    """
    began = perf_counter()
    try:
        with _connect_workers(rendezvous, job) as collective:
            outcome = _train_on_batches(batches, collective, job)
        return replace(outcome, seconds=perf_counter() - began)
    except Exception as error:
        failed_rank = error.rank if isinstance(error, WorkerError) else None
        if isinstance(error, WorkerError) and error.lost:
            host = "" if failed_rank is None else host_note(failed_rank, rendezvous.hosts[failed_rank])
            raise WorkerError(f"{error}{host}", failed_rank, lost=True).with_traceback(error.__traceback__) from None
        error_record = {
            "failed_rank": str(rendezvous.rank if failed_rank is None else failed_rank),
            "kind": type(error).__name__,
            "text": str(error),
            "trace": traceback.format_exc(),
        }
        return Outcome(rendezvous.rank, seconds=perf_counter() - began, error=error_record)


def host_note(rank: int, host: str) -> str:
    """Return the end of an error message that names the host of a worker, if it is known."""
    return f" (worker {rank} was on host {host})" if host else ""


# Connections


@contextmanager
def _connect_workers(rendezvous: Rendezvous, job: TrainingJob) -> Iterator[Collective]:
    """Connect the workers while they train."""
    rank, size = rendezvous.rank, len(rendezvous.hosts)
    if job.checkpoint_folder is not None and job.n_workers is not None and size < job.n_workers:
        # If one worker ends after another was lost, Spark repeats the task of the lost one alone. A failure here makes
        # Spark repeat all tasks.
        raise WorkerError(f"Spark made {size} tasks for {job.n_workers} workers, one having been lost", lost=True)
    if job.n_workers not in (None, size):
        raise ValueError(
            f"numWorkers={job.n_workers} workers are to train, but Spark made {size} tasks of the rows; "
            f"leave repartition=True, or repartition({job.n_workers}) the data frame"
        )
    if size == 1:
        yield Solo()
        return
    host, server, store = _open_store(rendezvous, job)
    patience = job.timeout
    try:
        with connect_workers(store, rank, size, job.timeout, job.transport, host=host, secret=job.secret) as collective:
            yield collective
    except WorkerError as error:
        if error.lost:  # the lost worker will not read the store, and the others look there regularly
            patience = min(patience, FAILURE_GRACE)
        raise
    finally:
        # The store lives on worker 0, which keeps it open until all have read the reason of a failure there.
        with suppress(OSError):
            store.set_timeout(patience)
            store.set(f"gone/{rank}", "")
            if server is not None:
                deadline = monotonic() + patience
                wait_for_keys(store, [f"gone/{peer}" for peer in range(size)], lambda: monotonic() > deadline)
        store.close()
        if server is not None:
            server.close()


def _open_store(rendezvous: Rendezvous, job: TrainingJob) -> tuple[str, StoreServer | None, StoreClient]:
    """Return the address of this worker, the store if this is worker 0, and a connection to it.

    A worker that fails here sends its error in the place of its address, so that no worker waits for it.
    """
    rank, size = rendezvous.rank, len(rendezvous.hosts)
    failure, message, server = None, dict[str, Any](), None
    try:
        other = next((host for host in rendezvous.hosts if host != rendezvous.hosts[rank]), rendezvous.hosts[rank])
        host = find_local_address(other)
        if rank == 0:
            server = StoreServer(host, job.secret)
            message = {"address": server.address}
    except Exception as error:
        failure, message = error, {"error": f"{type(error).__name__}: {error}"}
    with ExitStack() as on_failure:
        if server is not None:
            on_failure.callback(server.close)
        try:
            received = [json.loads(text) for text in rendezvous.all_gather(json.dumps(message))]
        except Exception as error:
            raise WorkerError(f"worker {rank} of {size} did not meet the others: {error}", rank, lost=True) from error
        if failure is not None:
            raise failure
        for peer, answer in enumerate(received):
            if "error" in answer:
                raise WorkerError(f"worker {peer} of {size} failed: {answer['error']}", peer)
        root_host, port = received[0]["address"]
        try:
            store = StoreClient((root_host, port), job.secret, max(job.timeout, CONNECT_TIMEOUT))
        except OSError as error:
            reason = f"cannot reach worker 0 at {root_host} port {port}: {error}"
            raise WorkerError(f"worker {rank} of {size} {reason}", rank, lost=True) from error
        on_failure.pop_all()
        return host, server, store


# Training


def _train_on_batches(batches: Iterable[Any], collective: Collective, job: TrainingJob) -> Outcome:
    train_rows, valid_rows = run_or_raise_everywhere(collective, lambda: read_batches(batches, job.columns))
    n_train, n_valid = train_rows.n_rows, 0 if valid_rows is None else valid_rows.n_rows
    if valid_rows is not None:
        indicator = job.columns.indicator
        decide_at_root(collective, [n_train, n_valid], lambda row_counts: _check_split(row_counts, indicator))
    dense = True
    if isinstance(train_rows.features, VectorReader):
        dense = decide_at_root(collective, train_rows.features.layout_stats(), VectorReader.is_dense)
    path = _checkpoint_path([train_rows] if valid_rows is None else [train_rows, valid_rows], collective, job)
    is_root = collective.rank == 0
    history, progress = History(), ProgressSender(job.listener if is_root else None, job.secret)
    callbacks: list[Callback] = [history, progress]
    if path is not None:
        callbacks.append(Checkpoint(path, job.checkpoint_every))
    data = Dataset(*train_rows.take(dense))
    evals = {} if valid_rows is None else {VALIDATION: Dataset(*valid_rows.take(dense))}
    try:
        model = train(
            job.parameters, data, evals=evals, callbacks=callbacks, task=job.task, resume=path, collective=collective
        )
    finally:
        progress.close()
    return Outcome(
        collective.rank,
        n_train,
        n_valid,
        resumed_rounds=history.n_resumed,
        checkpoint=str(path) if is_root and path is not None else None,
        progress_error=progress.progress_error,
        history={"evals_result": history.values, "start": history.start, "seconds": history.seconds},
        model=model.to_bytes() if is_root else None,
    )


def _check_split(row_counts: Sequence[Any], indicator: str | None) -> None:
    """Check that there are rows to train on and rows to evaluate on."""
    n_train, n_valid = (sum(counts) for counts in zip(*row_counts, strict=True))
    if n_valid and not n_train:
        raise ValueError(f"validationIndicatorCol={indicator!r} is true in every row: none is left to train on")
    if n_train and not n_valid:
        raise ValueError(f"validationIndicatorCol={indicator!r} is true in no row: none is left to evaluate on")


# Checkpoints


def _checkpoint_path(row_sets: Sequence[WorkerRows], collective: Collective, job: TrainingJob) -> Path | None:
    """Return the checkpoint file of this training; its name is a digest of the parameters and the rows."""
    if job.checkpoint_folder is None:
        return None
    fingerprints = decide_at_root(
        collective,
        [rows.fingerprint() for rows in row_sets],
        lambda gathered: [sum(column) % 2**64 for column in zip(*gathered, strict=True)],
    )
    text = json.dumps([job.parameters_digest, job.task, asdict(job.columns), fingerprints], sort_keys=True)
    folder = Path(job.checkpoint_folder)
    if collective.rank == 0:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(
                f"checkpointPath must be a folder that executors write to, got {str(folder)!r}: {error}"
            ) from None
    return folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.gbun"


def digest_parameters(parameters: Mapping[str, Any], dumps: Callable[[Any], bytes]) -> str:
    """Compute a digest of parameters, and of the code of functions among them; at worst it changes without need."""
    values = {
        n: _digest_value(v, dumps) for n, v in parameters.items() if n not in LOCAL_PARAMETERS or n == "random_state"
    }
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _digest_value(value: Any, dumps: Callable[[Any], bytes]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_digest_value(item, dumps) for item in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    digest = hashlib.sha256(dumps(value))
    code = getattr(getattr(value, "function", value), "__code__", None)
    if code is not None:  # functions of a module are pickled by name only
        constants = [const for const in code.co_consts if const is None or isinstance(const, (int, float, str))]
        digest.update(code.co_code + repr((constants, code.co_names)).encode())
    return [to_printable(value), digest.hexdigest()]
