"""A training as one barrier stage of Spark: who may work, how rows come to them, and what the driver hears of it."""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic, sleep, time
from typing import Any

import pyarrow as pa
from pyspark import BarrierTaskContext, cloudpickle

from gbun.spark.columns import selected
from gbun.spark.failures import RETRY, explained, host_of, raise_failure
from gbun.spark.progress import Listener, Report
from gbun.spark.worker import Job, Outcome, identity, work

log = logging.getLogger("gbun.spark")

SCHEMA = "rank int, told string, model binary"
STARTING = 60.0  # seconds after a context began in which executors may still be on their way
SETTLED = 3.0  # seconds without another executor after which no more are expected
LOOK_EVERY = 1.0
SKEWED = 1.5  # times the mean: a worker that has so many rows is worth a word


@dataclass(frozen=True)
class Trained:
    """What a training leaves: the model's bytes, and each worker's outcome, in rank order."""

    model: bytes
    outcomes: tuple[Outcome, ...]


def train(
    dataset: Any, job: Job, n_workers: int | None, repartition: bool = True, heard: Callable[[Report], None] = log.info
) -> Trained:
    """Train on the rows of a Spark data frame; `heard` is called with a report of each round."""
    context = context_of(dataset)
    _check_static(context)
    n_workers = _admitted(context, n_workers)
    if job.checkpoints is not None:
        job = replace(job, identity=identity(job.parameters, cloudpickle.dumps))
    job = replace(job, n_workers=n_workers)
    rows = _dealt_out(selected(dataset, job.columns), n_workers, repartition)
    listener = Listener(context.getConf().get("spark.driver.host", "127.0.0.1"), heard)
    try:
        stage = rows.mapInArrow(_task(replace(job, listener=listener.address)), SCHEMA, barrier=True)
        if job.checkpoints is not None:
            # Spark never repeats the last stage of a job if it is a barrier stage; one that others wait for, it does.
            stage = stage.repartition(1)
        with _watched(context, n_workers, job.timeout) as why:
            try:
                found = stage.collect()
            except Exception as error:
                advice = "" if job.checkpoints else RETRY
                raise explained(error, why, advice, partial(host_of, context)) or error from None
    finally:
        listener.close()
    if not found:  # of rows that cannot be, Spark makes no task
        raise ValueError(f"X has no rows ({job.columns})")
    outcomes = sorted((_outcome(row) for row in found), key=lambda outcome: outcome.rank)
    raise_failure(outcomes, job)
    _log_rows(outcomes, repartition)
    model = outcomes[0].model
    assert model is not None
    _remove_checkpoint(outcomes[0])
    return Trained(model, tuple(outcomes))


# Who may work


def context_of(dataset: Any) -> Any:
    """The Spark context of a data frame."""
    if not hasattr(dataset, "_jdf"):
        raise ValueError("gbun.spark needs a session with a Spark driver of its own, got a data frame of Spark Connect")
    return dataset.sparkSession.sparkContext


def _check_static(context: Any) -> None:
    conf = context.getConf()
    dynamic = conf.get("spark.dynamicAllocation.enabled", "false").lower() == "true"
    if dynamic and not _is_local(context):
        raise ValueError(
            "spark.dynamicAllocation.enabled is true: Spark runs no barrier stage, in which workers train together, "
            "while executors come and go. Start the session with spark.dynamicAllocation.enabled=false and "
            "spark.executor.instances (or spark.cores.max) as large as wanted"
        )


def slots(context: Any) -> int:
    """Tasks that can run at the same time: the number by which Spark itself admits barrier stages."""
    spark = context._jsc.sc()
    return int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile()))


def _admitted(context: Any, wanted: int | None) -> int:
    """The number of workers, if there is a slot for each of them.

    Executors of an application that has just begun come one after another: where nobody says how many workers there are
    to be, it is time when all have come that were promised, or when nobody has come for a while.
    """
    enough = wanted or _promised(context.getConf())
    found, since = slots(context), monotonic()
    while found < enough and not _is_local(context) and _has_just_begun(context):
        if wanted is None and found and monotonic() - since > SETTLED:
            break
        sleep(0.2)
        before, found = found, slots(context)
        since = since if found == before else monotonic()
    if found < (wanted or 1):
        cpus = context.getConf().get("spark.task.cpus", "1")
        raise ValueError(
            f"numWorkers={wanted or 1} workers train at the same time, but there are {found} task slots "
            f"(spark.task.cpus={cpus}); set numWorkers to at most {found}, or give the application more executors"
            if found
            else "there is no executor to train on; start one, or look at the cluster manager's log"
        )
    log.info("%d workers train, of %d task slots", wanted or found, found)
    return wanted or found


def _promised(conf: Any) -> float:
    """The slots there are when all executors have come, as far as settings tell."""
    names = ("cores.max", "executor.instances", "executor.cores", "task.cpus")
    cores, instances, each, cpus = (int(conf.get(f"spark.{name}", "0")) for name in names)
    cpus = cpus or 1
    return min((number for number in (cores // cpus, instances * (each // cpus)) if number), default=math.inf)


def _is_local(context: Any) -> bool:
    """Whether tasks are threads of the driver's process: there is nobody to wait for."""
    return str(context.master).split("[")[0] == "local"


def _has_just_begun(context: Any) -> bool:
    return bool(time() - context.startTime / 1000 < STARTING)


# How rows come to them


def _dealt_out(rows: Any, n_workers: int, repartition: bool) -> Any:
    if repartition:
        log.info(
            "rows are dealt out evenly to %d workers, in a shuffle: a worker reads exactly one partition "
            "(repartition=False leaves them where they are)",
            n_workers,
        )
        return rows.repartition(n_workers)
    found = rows.rdd.getNumPartitions()
    if found != n_workers:
        raise ValueError(
            f"repartition=False needs a partition for each of {n_workers} workers, the data frame has {found}; "
            f"repartition({n_workers}) it, or leave repartition=True"
        )
    return rows


def _log_rows(outcomes: Sequence[Outcome], repartition: bool) -> None:
    rows = [outcome.rows for outcome in outcomes]
    log.info("rows of each worker: %s", ", ".join(map(str, rows)))
    if not repartition and max(rows) > SKEWED * sum(rows) / len(rows):
        log.warning(
            "worker %d has %d of %d rows: the others wait for it; repartition=True deals them out evenly",
            rows.index(max(rows)), max(rows), sum(rows),
        )  # fmt: skip
    first = outcomes[0]
    if first.resumed and first.resumed == len(first.history["seconds"]):
        text = "nothing was left to train: all %d rounds are those of checkpoint %s"
        log.warning(text, first.resumed, first.checkpoint)
    elif first.resumed:
        log.info("training went on from %d rounds of checkpoint %s", first.resumed, first.checkpoint)
    if first.unheard:
        log.warning("worker 0 could not tell the driver of its progress: %s", first.unheard)


def _remove_checkpoint(first: Outcome) -> None:
    """Only now: had an executor died before the model was here, a second attempt would have found it in the file."""
    if first.checkpoint is None:
        return
    try:
        Path(first.checkpoint).unlink()
    except OSError as error:
        log.warning(
            "checkpoint %s is not needed any more, but the driver cannot remove it (%s): remove it where worker 0 ran, "
            "or a fit with the same parameters and rows takes the model from it",
            first.checkpoint, error.strerror,
        )  # fmt: skip


# In a task


class _Barrier:
    """The tasks of a barrier stage as a `Meeting`."""

    def __init__(self, context: BarrierTaskContext) -> None:
        self._context, self.rank = context, context.partitionId()
        self.hosts = [info.address.rsplit(":", 1)[0] for info in context.getTaskInfos()]

    def tell(self, text: str) -> list[str]:
        return self._context.allGather(text)


def _task(job: Job) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def task(batches: Iterator[Any]) -> Iterator[Any]:
        yield in_task(batches, job)

    return task


def in_task(batches: Iterator[Any], job: Job) -> Any:
    """What a task of the barrier stage does: `work`, with what Spark has given it."""
    context = BarrierTaskContext.get()
    assert isinstance(context, BarrierTaskContext)
    parameters = {**job.parameters, "verbose": 0}  # the driver shows progress
    if parameters["n_jobs"] is None:
        parameters["n_jobs"] = context.cpus()
    gpu = context.resources().get("gpu")
    if parameters["device"] == "cuda" and gpu is not None:
        parameters["device"] = f"cuda:{gpu.addresses[0]}"
    barrier = _Barrier(context)
    with _sharing(barrier.hosts.count(barrier.hosts[barrier.rank])):
        outcome = work(batches, barrier, replace(job, parameters=parameters))
    told = {name: value for name, value in asdict(outcome).items() if name != "model"}
    columns = [
        pa.array([outcome.rank], pa.int32()),
        pa.array([json.dumps(told)]),
        pa.array([outcome.model], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["rank", "told", "model"])


@contextmanager
def _sharing(n_workers: int) -> Iterator[None]:
    """Workers of one machine share its memory; Spark may use this process for something else afterwards."""
    before = os.environ.get("LOCAL_WORLD_SIZE")
    os.environ["LOCAL_WORLD_SIZE"] = str(n_workers)
    try:
        yield
    finally:
        os.environ.pop("LOCAL_WORLD_SIZE")
        if before is not None:
            os.environ["LOCAL_WORLD_SIZE"] = before


def _outcome(row: Any) -> Outcome:
    return Outcome(**json.loads(row.told), model=None if row.model is None else bytes(row.model))


# While it runs


@contextmanager
def _watched(context: Any, n_workers: int, timeout: float) -> Iterator[list[str]]:
    """While a job runs: where slots are too few for too long, executors having been lost, it is ended.

    Spark itself would wait for them without end. What is yielded says why it was ended.
    """
    tag, over, why = f"gbun-{uuid.uuid4()}", threading.Event(), list[str]()

    def watch() -> None:
        since: float | None = None
        while not over.wait(LOOK_EVERY):
            try:
                found = slots(context)
            except Exception:
                return  # the context was stopped, which ends the job as well
            since = None if found >= n_workers else since or monotonic()
            if since is not None and monotonic() - since > timeout:
                why.append(
                    f"executors were lost: for {timeout:g} s there have been {found} task slots for {n_workers} workers"
                )
                context.cancelJobsWithTag(tag)
                return

    thread = threading.Thread(target=watch, name="gbun-watch", daemon=True)
    context.addJobTag(tag)
    thread.start()
    try:
        yield why
    except KeyboardInterrupt:
        context.cancelJobsWithTag(tag)
        raise
    finally:
        over.set()
        thread.join()
        context.removeJobTag(tag)
