"""What went wrong on the workers, told by the driver in a few words: who it was, where, and why."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from gbun.collectives import WorkerError
from gbun.collectives.base import Elsewhere
from gbun.spark.worker import Job, Outcome

log = logging.getLogger("gbun.spark")

LOST = (r"ExecutorLostFailure[^\n]*", r"Python worker exited unexpectedly[^\n]*", r"Could not recover[^\n]*")
"""How Spark says that a worker was lost: causes first, what comes of them last."""
TASK = r"barrier task \w+\((\d+), (\d+)\)"
"""How Spark calls a task: by its stage and its partition, which is the rank."""
RETRY = "; with checkpointPath Spark tries again, and training goes on from the last checkpoint"


def explained(
    error: Exception, why: Sequence[str], advice: str = RETRY, host: Callable[[int, int], str] = lambda stage, rank: ""
) -> Exception | None:
    """The cause in a few words where a worker was lost; None for errors that are not of our making.

    `host` tells the machine on which a stage had a task.
    """
    text = str(error)
    log.debug("Spark says: %s", text)
    if why:
        return WorkerError(why[0], lost=True)
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
    told = re.search(r"WorkerError: (.*)", text)
    if told is not None:
        rank = re.search(r"worker (\d+)", told[1])
        return WorkerError(told[1] + advice, None if rank is None else int(rank[1]), lost=True)
    lost = next(filter(None, (re.search(pattern, text) for pattern in LOST)), None)
    if lost is None or "barrier" not in text or "Traceback" in text:
        return None
    task = re.search(TASK, text)
    if task is None:
        return WorkerError(f"a worker was lost: {lost[0]}{advice}", lost=True)
    stage, own = int(task[1]), int(task[2])
    where = host(stage, own)
    place = f" (worker {own} was on host {where})" if where else ""
    return WorkerError(f"worker {own} was lost: {lost[0]}{place}{advice}", own, lost=True)


def host_of(context: Any, stage: int, rank: int) -> str:
    """The machine on which a stage had a task, as far as Spark remembers."""
    try:
        known = context._jsc.sc().statusStore()
        tasks = known.taskList(stage, known.lastStageAttempt(stage).attemptId(), 2**31 - 1)
        hosts = {tasks.apply(at).index(): str(tasks.apply(at).host()) for at in range(tasks.size())}
    except Exception as error:  # what is to be told is another error
        log.debug("Spark does not say where stage %d ran: %s", stage, error)
        return ""
    return hosts.get(rank, "")


def raise_failure(outcomes: Sequence[Outcome], job: Job) -> None:
    """The first cause: a worker that says of itself why it failed; what all say alike is about data or arguments."""
    failed = {outcome.rank: outcome.error for outcome in outcomes if outcome.error is not None}
    if not failed:
        return
    rank, error = next(((r, e) for r, e in failed.items() if int(e["whose"]) == r), next(iter(failed.items())))
    log.debug("worker %d says: %s", rank, error["trace"])
    texts = {(e["kind"], e["text"]) for e in failed.values()}
    if len(texts) == 1 and len(failed) == len(outcomes) and error["kind"] == "ValueError":
        raise ValueError(f"{error['text']} ({job.columns})")
    if error["kind"] == "WorkerError":
        raise WorkerError(error["text"], int(error["whose"]))
    whose, of = f"worker {rank} of {len(outcomes)} failed", f"({job.columns})"
    failure: Exception = WorkerError(f"{whose}: {error['kind']}: {error['text']} {of}", rank)
    if error["kind"] == "ValueError":  # the same kind as on one worker
        failure = ValueError(f"{whose}: {error['text']} {of}")
    failure.__cause__ = Elsewhere(error["trace"])
    raise failure
