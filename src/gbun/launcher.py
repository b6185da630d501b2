"""Workers on this machine: one process each, in a process group of their own. None of them outlives the job."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing import connection, get_all_start_methods, get_context, parent_process
from multiprocessing.reduction import ForkingPickler
from time import monotonic
from typing import Any

from gbun.arrays import load_torch
from gbun.collectives import WorkerError
from gbun.collectives.base import RemoteTraceback
from gbun.collectives.channels import make_secret
from gbun.kernels.threads import thread_count

TIMEOUT = 300.0  # seconds of silence after which a worker counts as failed
STORE_OWNER_VARIABLE = "GBUN_STORE_OWNER"
SECRET_VARIABLE = "GBUN_SECRET"
CONNECT_TIMEOUT = 60.0  # seconds, at least, for the first answer of a store on a busy machine
MAX_WORKERS_PER_CORE = 16  # more would only use up the memory
GRACE = 10.0  # seconds for workers to end by themselves after one of them failed


@dataclass(frozen=True)
class WorkerPlace:
    """The place of a worker in its process group, and the store by which it joins the group."""

    rank: int
    size: int
    port: int
    n_threads: int
    timeout: float
    secret: str = field(repr=False)


def launch(
    work: Callable[..., Any], n_workers: int, args: Sequence[Any] = (), *, timeout: float = TIMEOUT
) -> list[Any]:
    """Run `work(*args)` in new processes of this machine that form a process group.

    The processes share the cores of this machine.

    Parameters
    ----------
    work : callable
        A function of a module, as the processes import it.
    n_workers : int
        The number of processes.
    args : sequence
        The arguments of `work`.
    timeout : float, default=300.0
        Seconds that processes wait for each other when they form the group.

    Returns
    -------
    list
        What `work` returned in each process, in rank order.

    Raises
    ------
    WorkerError
        If a worker failed: with its rank and its error. All other workers are ended.
    """
    most = MAX_WORKERS_PER_CORE * thread_count(-1)
    if not 1 <= n_workers <= most:
        raise ValueError(
            f"n_workers must be from 1 to {most} on this machine ({MAX_WORKERS_PER_CORE} a core), got {n_workers!r}"
        )
    context = _make_context()  # starts to import torch while this process does
    dist = load_torch("training on several workers").distributed
    # The store lives here, as any worker may fail. The system chooses a free port.
    store = _open_store(dist, timedelta(seconds=timeout))
    pipes: list[Any] = []
    processes: list[Any] = []
    n_threads, secret = max(1, thread_count(None) // n_workers), os.environ.get(SECRET_VARIABLE) or make_secret().hex()
    try:
        for rank in range(n_workers):
            parent_end, worker_end = context.Pipe()
            place = WorkerPlace(rank, n_workers, store.port, n_threads, timeout, secret)
            job = work, tuple(args), place, worker_end
            process = context.Process(target=_run_worker, args=job, name=f"gbun-worker-{rank}", daemon=True)
            process.start()
            worker_end.close()
            pipes.append(parent_end)
            processes.append(process)
        return _collect_results(pipes, processes, timeout)
    except KeyboardInterrupt:
        for process in processes:  # a terminal interrupts the workers, too; a signal to this process does not
            if process.is_alive():
                os.kill(process.pid, signal.SIGINT)
        deadline = monotonic() + GRACE  # time to write checkpoints
        for process in processes:
            process.join(max(0.0, deadline - monotonic()))
        raise KeyboardInterrupt(*_read_interrupt_message(pipes[0])) from None
    finally:
        for process in processes:
            process.kill()
        for process, pipe in zip(processes, pipes, strict=True):
            process.join()
            pipe.close()


def _open_store(dist: Any, timeout: timedelta) -> Any:
    """Return a store that listens on the loopback interface only; by itself, torch's listens on all of them."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    port = listener.getsockname()[1]
    return dist.TCPStore(
        "127.0.0.1", port, is_master=True, wait_for_workers=False, timeout=timeout, master_listen_fd=listener.detach()
    )


def _make_context() -> Any:
    """Choose how processes start: as copies of one that has imported torch, or anew if the system cannot fork."""
    if "forkserver" not in get_all_start_methods():
        return get_context("spawn")
    from multiprocessing import forkserver  # not on every system

    context = get_context("forkserver")
    context.set_forkserver_preload(["torch", "gbun.distributed"])
    forkserver.ensure_running()
    return context


def _collect_results(pipes: list[Any], processes: list[Any], timeout: float) -> list[Any]:
    """Return the results of all workers; if one failed, raise its error after a while for the others to end."""
    results: dict[int, Any] = {}
    errors: dict[int, WorkerError] = {}
    deadline: float | None = None
    while len(results) + len(errors) < len(processes):
        waiting = {pipes[r]: r for r in range(len(processes)) if r not in results and r not in errors}
        ready = connection.wait(list(waiting), None if deadline is None else deadline - monotonic())
        if not ready:
            break
        for pipe in ready:
            rank = waiting[pipe]
            outcome, *values = _receive_outcome(pipes[rank], processes[rank])
            if outcome == "returned":
                results[rank] = values[0]
                continue
            if outcome == "followed":  # a WorkerError, because another worker failed
                errors[rank] = WorkerError(*values)
            else:
                errors[rank] = WorkerError(f"worker {rank} of {len(processes)} failed: {values[0]}", rank)
                errors[rank].__cause__ = RemoteTraceback(values[1]) if outcome == "raised" else None
            deadline = deadline or monotonic() + timeout + GRACE
        remaining = set(range(len(processes))) - results.keys() - errors.keys()
        if remaining <= {error.rank for error in errors.values()}:
            break  # all remaining workers are known to have failed
    if errors:
        # The first cause: a worker that reports its own failure, then one that reports another's.
        raise next((e for r, e in errors.items() if e.rank == r), next(iter(errors.values())))
    return [results[rank] for rank in range(len(processes))]


def _receive_outcome(pipe: Any, process: Any) -> tuple[Any, ...]:
    """Return what a worker sent: how it ended, and the values that go with that."""
    try:
        outcome: tuple[Any, ...] = pipe.recv()
    except EOFError:
        process.join(GRACE)
        code = process.exitcode
        if code is not None and code < 0:
            return "lost", f"it was killed by {signal.Signals(-code).name}"
        return "lost", f"it ended with exit code {code} before it returned"
    return outcome


def _read_interrupt_message(pipe: Any) -> list[str]:
    """Return the message of an interrupted worker, if it has one."""
    try:
        outcome, *values = pipe.recv() if pipe.poll() else ("",)
    except EOFError:
        return []
    name, _, message = values[0].partition(": ") if outcome == "raised" else ("", "", "")
    return [message] if name == "KeyboardInterrupt" and message else []


def _run_worker(work: Callable[..., Any], args: tuple[Any, ...], place: WorkerPlace, pipe: Any) -> None:
    """Run the work in a new process, and send its outcome to the parent."""
    signal.signal(signal.SIGINT, _handle_interrupt)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    os.environ |= {
        "OMP_NUM_THREADS": str(place.n_threads),
        "LOCAL_WORLD_SIZE": str(place.size),
        STORE_OWNER_VARIABLE: "the launcher",
        SECRET_VARIABLE: place.secret,
    }
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    if sys.platform != "win32":  # which has no names for it
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    outcome: tuple[Any, ...]
    try:
        torch = load_torch("training on several workers")
        torch.set_num_threads(place.n_threads)
        timeout = timedelta(seconds=place.timeout)
        patience = timedelta(seconds=max(place.timeout, CONNECT_TIMEOUT))
        store = torch.distributed.TCPStore("127.0.0.1", place.port, timeout=patience)
        torch.distributed.init_process_group(
            "gloo", store=store, rank=place.rank, world_size=place.size, timeout=timeout
        )
        outcome = "returned", work(*args)
        ForkingPickler.dumps(outcome)  # a result that cannot be sent is an error of this worker
    except WorkerError as error:
        outcome = "followed", str(error), error.rank
    except BaseException as error:
        outcome = "raised", f"{type(error).__name__}: {error}".rstrip(": "), traceback.format_exc()
    pipe.send(outcome)
    pipe.close()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # without waiting for messages that never arrive


def _handle_interrupt(*_: Any) -> None:
    """Raise at the first interrupt only: a second one must not interrupt the writing of a checkpoint."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _exit_with_parent() -> None:
    """End this process when its parent has ended."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)
