"""Errors of workers as the driver raises them: which worker failed, where, and why."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from gbun.collectives import WorkerError
from gbun.collectives.base import RemoteTraceback
from gbun.spark.worker import Outcome, TrainingJob, host_note

log = logging.getLogger("gbun.spark")

LOST_PATTERNS = (r"ExecutorLostFailure[^\n]*", r"Python worker exited unexpectedly[^\n]*", r"Could not recover[^\n]*")
"""Messages of Spark about a lost worker; causes come before their consequences."""
TASK_PATTERN = r"barrier task \w+\((\d+), (\d+)\)"
"""A task in messages of Spark: stage and partition, which is the rank."""
RETRY_ADVICE = "; with checkpointPath Spark tries again, and training goes on from the last checkpoint"


def explain_failure(
    error: Exception,
    reason: str | None,
    advice: str = RETRY_ADVICE,
    find_host: Callable[[int, int], str] = lambda stage, rank: "",
) -> Exception | None:
    """Make a short error with the cause from an error of Spark; return None if this package did not cause it.

    `reason` is why the driver cancelled the job, if it did. `find_host` returns the host of a stage's task.
    """
    text = str(error)
    log.debug("Spark says: %s", text)
    if reason is not None:
        return WorkerError(reason, lost=True)
    if "BarrierJobUnsupportedRDDChain" in text:
        return ValueError(
            "repartition=False: Spark runs no barrier stage on rows of coalesce, union or limit; "
            "end with repartition(n), write the rows and read them again, or leave repartition=True"
        )
    absent = re.search(r"ModuleNotFoundError: No module named ['\"]([^'\"]+)", text)
    if absent is not None:
        return RuntimeError(
            f"the Python of the executors has no module {absent[1]!r}: install it there, or begin the session with "
            "PYSPARK_PYTHON (spark.pyspark.python) set to a Python that has it; here it is " + sys.executable
        )
    message = re.search(r"WorkerError: (.*)", text)
    if message is not None:
        match = re.search(r"worker (\d+)", message[1])
        return WorkerError(message[1] + advice, None if match is None else int(match[1]), lost=True)
    lost = next(filter(None, (re.search(pattern, text) for pattern in LOST_PATTERNS)), None)
    if lost is None or "barrier" not in text or "Traceback" in text:
        return None
    task = re.search(TASK_PATTERN, text)
    if task is None:
        return WorkerError(f"a worker was lost: {lost[0]}{advice}", lost=True)
    stage, rank = int(task[1]), int(task[2])
    host = host_note(rank, find_host(stage, rank))
    return WorkerError(f"worker {rank} was lost: {lost[0]}{host}{advice}", rank, lost=True)


def host_of(context: Any, stage: int, rank: int) -> str:
    """Return the host of a stage's task, or "" if Spark does not remember it."""
    try:
        store = context._jsc.sc().statusStore()
        tasks = store.taskList(stage, store.lastStageAttempt(stage).attemptId(), 2**31 - 1)
        hosts = {tasks.apply(i).index(): str(tasks.apply(i).host()) for i in range(tasks.size())}
    except Exception as error:  # the error to report is another one
        log.debug("Spark does not say where stage %d ran: %s", stage, error)
        return ""
    return hosts.get(rank, "")


def raise_failure(outcomes: Sequence[Outcome], job: TrainingJob) -> None:
    """Raise the error of the worker that failed first, if any failed.

    An error that all workers report alike is about the data or the arguments, and names no worker.
    """
    failed = {outcome.rank: outcome.error for outcome in outcomes if outcome.error is not None}
    if not failed:
        return
    rank, error = next(((r, e) for r, e in failed.items() if int(e["failed_rank"]) == r), next(iter(failed.items())))
    log.debug("worker %d says: %s", rank, error["trace"])
    texts = {(e["kind"], e["text"]) for e in failed.values()}
    if len(texts) == 1 and len(failed) == len(outcomes) and error["kind"] == "ValueError":
        raise ValueError(f"{error['text']} ({job.columns})")
    if error["kind"] == "WorkerError":
        raise WorkerError(error["text"], int(error["failed_rank"]))
    worker = f"worker {rank} of {len(outcomes)} failed"
    failure: Exception = WorkerError(f"{worker}: {error['kind']}: {error['text']} ({job.columns})", rank)
    if error["kind"] == "ValueError":  # the same type as in a training on one worker
        failure = ValueError(f"{worker}: {error['text']} ({job.columns})")
    failure.__cause__ = RemoteTraceback(error["trace"])
    raise failure
