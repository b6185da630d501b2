"""A training as one barrier stage of Spark: number of workers, distribution of rows, tasks and their results."""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from time import monotonic, sleep, time
from typing import Any

import pyarrow as pa
from pyspark import BarrierTaskContext, cloudpickle

from gbun.spark.columns import select_columns
from gbun.spark.failures import RETRY_ADVICE, explain_failure, host_of, raise_failure
from gbun.spark.progress import ProgressListener, RoundProgress
from gbun.spark.worker import Outcome, TrainingJob, digest_parameters, work

log = logging.getLogger("gbun.spark")

OUTCOME_SCHEMA = "rank int, details string, model binary"
STARTUP_SECONDS = 60.0  # after the start of an application, executors may still be starting
QUIET_SECONDS = 3.0  # without a new executor, no more are expected
POLL_SECONDS = 1.0
SKEW_WARNING_RATIO = 1.5  # times the mean number of rows: a worker with more is worth a warning


def train(
    dataset: Any, job: TrainingJob, n_workers: int | None, repartition: bool, on_report: Callable[[RoundProgress], None]
) -> tuple[Outcome, ...]:
    """Train on the rows of a Spark data frame and return the outcome of each worker; the first one has the model.

    `on_report` is called with a report of each round.
    """
    context = context_of(dataset)
    _check_no_dynamic_allocation(context)
    n_workers = _choose_n_workers(context, n_workers)
    if job.checkpoint_folder is not None:
        job = replace(job, parameters_digest=digest_parameters(job.parameters, cloudpickle.dumps))
    job = replace(job, n_workers=n_workers)
    rows = _distribute_rows(select_columns(dataset, job.columns), n_workers, repartition)
    listener = ProgressListener(context.getConf().get("spark.driver.host", "127.0.0.1"), job.secret, on_report)
    try:
        task = partial(run_task, job=replace(job, listener=listener.address))
        stage = rows.mapInArrow(task, OUTCOME_SCHEMA, barrier=True)
        if job.checkpoint_folder is not None:
            # Spark never repeats a barrier stage that is the last of its job, so another stage follows it.
            stage = stage.repartition(1)
        with _cancel_without_slots(context, n_workers, job.timeout) as reasons:
            try:
                results = stage.collect()
            except Exception as error:
                advice = "" if job.checkpoint_folder else RETRY_ADVICE
                reason = reasons[0] if reasons else None
                raise explain_failure(error, reason, advice, partial(host_of, context)) or error from None
    finally:
        listener.close()
    if not results:  # Spark makes no task if it knows that there are no rows
        raise ValueError(f"X has no rows ({job.columns})")
    outcomes = tuple(sorted(map(_decode_outcome, results), key=lambda outcome: outcome.rank))
    raise_failure(outcomes, job)
    _log_outcomes(outcomes, repartition)
    assert outcomes[0].model is not None
    _remove_checkpoint(outcomes[0])
    return outcomes


# Number of workers


def context_of(dataset: Any) -> Any:
    """Return the Spark context of a data frame."""
    if not hasattr(dataset, "_jdf"):
        raise ValueError("gbun.spark needs a session with a Spark driver of its own, got a data frame of Spark Connect")
    return dataset.sparkSession.sparkContext


def _check_no_dynamic_allocation(context: Any) -> None:
    dynamic = context.getConf().get("spark.dynamicAllocation.enabled", "false").lower() == "true"
    if dynamic and not _is_local(context):
        raise ValueError(
            "spark.dynamicAllocation.enabled is true: Spark runs no barrier stage, in which workers train together, "
            "while executors come and go. Start the session with spark.dynamicAllocation.enabled=false and "
            "spark.executor.instances (or spark.cores.max) as large as wanted"
        )


def count_task_slots(context: Any) -> int:
    """Return the number of tasks that can run at the same time, by which Spark itself admits barrier stages."""
    spark = context._jsc.sc()
    return int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile()))


def _choose_n_workers(context: Any, wanted: int | None) -> int:
    """Choose the number of workers, and check that there is a slot for each of them.

    Executors of a new application start one after another. Without a `wanted` number, wait until all have started that
    the settings promise, or until none has started for a while.
    """
    enough = wanted or _expected_slots(context.getConf())
    n_slots, since = count_task_slots(context), monotonic()
    # A local master runs tasks in the driver's process: there are no executors to wait for.
    while n_slots < enough and not _is_local(context) and time() - context.startTime / 1000 < STARTUP_SECONDS:
        if wanted is None and n_slots and monotonic() - since > QUIET_SECONDS:
            break
        sleep(0.2)
        before, n_slots = n_slots, count_task_slots(context)
        since = since if n_slots == before else monotonic()
    if n_slots < (wanted or 1):
        cpus = context.getConf().get("spark.task.cpus", "1")
        raise ValueError(
            f"numWorkers={wanted or 1} workers train at the same time, but there are {n_slots} task slots "
            f"(spark.task.cpus={cpus}); set numWorkers to at most {n_slots}, or give the application more executors"
            if n_slots
            else "there is no executor to train on; start one, or look at the cluster manager's log"
        )
    log.info("%d workers train, of %d task slots", wanted or n_slots, n_slots)
    return wanted or n_slots


def _expected_slots(conf: Any) -> float:
    """Return the number of slots when all executors have started, infinity if settings do not tell."""
    names = ("cores.max", "executor.instances", "executor.cores", "task.cpus")
    max_cores, instances, cores, cpus = (int(conf.get(f"spark.{name}", "0")) for name in names)
    cpus = cpus or 1
    return min((number for number in (max_cores // cpus, instances * (cores // cpus)) if number), default=math.inf)


def _is_local(context: Any) -> bool:
    return str(context.master).split("[")[0] == "local"


# Rows and results


def _distribute_rows(rows: Any, n_workers: int, repartition: bool) -> Any:
    if repartition:
        log.info(
            "rows are distributed evenly to %d workers, in a shuffle: a worker reads exactly one partition "
            "(repartition=False leaves them where they are)",
            n_workers,
        )
        return rows.repartition(n_workers)
    n_partitions = rows.rdd.getNumPartitions()
    if n_partitions != n_workers:
        raise ValueError(
            f"repartition=False needs a partition for each of {n_workers} workers, the data frame has {n_partitions}; "
            f"repartition({n_workers}) it, or leave repartition=True"
        )
    return rows


def _log_outcomes(outcomes: Sequence[Outcome], repartition: bool) -> None:
    rows = [outcome.rows for outcome in outcomes]
    log.info("rows of each worker: %s", ", ".join(map(str, rows)))
    if not repartition and max(rows) > SKEW_WARNING_RATIO * sum(rows) / len(rows):
        log.warning(
            "worker %d has %d of %d rows: the others wait for it; repartition=True distributes them evenly",
            rows.index(max(rows)), max(rows), sum(rows),
        )  # fmt: skip
    first = outcomes[0]
    if first.resumed_rounds and first.resumed_rounds == len(first.history["seconds"]):
        text = "nothing was left to train: all %d rounds are those of checkpoint %s"
        log.warning(text, first.resumed_rounds, first.checkpoint)
    elif first.resumed_rounds:
        log.info("training continued from %d rounds of checkpoint %s", first.resumed_rounds, first.checkpoint)
    if first.progress_error:
        log.warning("worker 0 could not report its progress to the driver: %s", first.progress_error)


def _remove_checkpoint(first: Outcome) -> None:
    """Remove the checkpoint when the driver has the model; until then a second attempt may need it."""
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


def _encode_outcome(outcome: Outcome) -> Any:
    details = json.dumps(asdict(replace(outcome, model=None)))
    types = {"rank": pa.int32(), "details": pa.string(), "model": pa.binary()}
    row = {"rank": outcome.rank, "details": details, "model": outcome.model}
    return pa.RecordBatch.from_pylist([row], schema=pa.schema(types))


def _decode_outcome(row: Any) -> Outcome:
    return Outcome(**{**json.loads(row.details), "model": None if row.model is None else bytes(row.model)})


# In a task


class _Barrier:
    """The tasks of a barrier stage as a `Rendezvous`."""

    def __init__(self, context: BarrierTaskContext) -> None:
        self._context, self.rank = context, context.partitionId()
        self.hosts = [info.address.rsplit(":", 1)[0] for info in context.getTaskInfos()]

    def all_gather(self, text: str) -> list[str]:
        return self._context.allGather(text)


def run_task(batches: Iterator[Any], job: TrainingJob) -> Iterator[Any]:
    """Run one task of the barrier stage: `work` with the resources that Spark has given to the task."""
    context = BarrierTaskContext.get()
    assert isinstance(context, BarrierTaskContext)
    parameters = {**job.parameters, "verbose": 0}  # the driver shows progress
    if parameters["n_jobs"] is None:
        parameters["n_jobs"] = context.cpus()
    gpu = context.resources().get("gpu")
    if parameters["device"] == "cuda" and gpu is not None:
        parameters["device"] = f"cuda:{gpu.addresses[0]}"
    barrier = _Barrier(context)
    with _set_local_world_size(barrier.hosts.count(barrier.hosts[barrier.rank])):
        outcome = work(batches, barrier, replace(job, parameters=parameters))
    yield _encode_outcome(outcome)


@contextmanager
def _set_local_world_size(n_workers: int) -> Iterator[None]:
    """Set the number of workers that share the memory of this machine; Spark may use the process again afterwards."""
    before = os.environ.get("LOCAL_WORLD_SIZE")
    os.environ["LOCAL_WORLD_SIZE"] = str(n_workers)
    try:
        yield
    finally:
        os.environ.pop("LOCAL_WORLD_SIZE")
        if before is not None:
            os.environ["LOCAL_WORLD_SIZE"] = before


# While the job runs


@contextmanager
def _cancel_without_slots(context: Any, n_workers: int, timeout: float) -> Iterator[list[str]]:
    """Cancel the job if executors were lost and there have been too few slots for `timeout` seconds.

    Spark itself would wait for them without end. Yields a list that then holds the reason.
    """
    tag, done, reasons = f"gbun-{uuid.uuid4()}", threading.Event(), list[str]()

    def watch() -> None:
        since: float | None = None
        while not done.wait(POLL_SECONDS):
            try:
                n_slots = count_task_slots(context)
            except Exception:
                return  # the context was stopped, which ends the job as well
            since = None if n_slots >= n_workers else since or monotonic()
            if since is not None and monotonic() - since > timeout:
                slots = f"{n_slots} task slots for {n_workers} workers"
                reasons.append(f"executors were lost: for {timeout:g} s there have been {slots}")
                context.cancelJobsWithTag(tag)
                return

    thread = threading.Thread(target=watch, name="gbun-watch", daemon=True)
    context.addJobTag(tag)
    thread.start()
    try:
        yield reasons
    except KeyboardInterrupt:
        context.cancelJobsWithTag(tag)
        raise
    finally:
        done.set()
        thread.join()
        context.removeJobTag(tag)
