"""Workers on this machine: one process each, in a process group of their own, none of which outlives the job."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing import connection, get_all_start_methods, get_context, parent_process
from multiprocessing.reduction import ForkingPickler
from time import monotonic
from typing import Any

from gbun.arrays import load_torch
from gbun.collectives import WorkerError
from gbun.collectives.base import Elsewhere
from gbun.kernels.threads import thread_count

TIMEOUT = 300.0  # seconds of silence after which a worker is given up
KEEPER = "GBUN_STORE_KEEPER"
CONNECTING = timedelta(seconds=60)  # at least, for the first word of a store: a busy machine may be slow to answer
GRACE = 10.0  # seconds that workers have to end by themselves after one of them failed


def launch(
    work: Callable[..., Any], n_workers: int, args: Sequence[Any] = (), *, timeout: float = TIMEOUT
) -> list[Any]:
    """`work(*args)` in `n_workers` new processes that form a process group; what each returned, in rank order.

    They share the cores of this machine. Where one fails, all are ended, and the error names it and its cause. `work`
    must be a function of a module, as processes import it.
    """
    if n_workers < 1:
        raise ValueError(f"n_workers must be at least 1, got {n_workers!r}")
    context = _context()  # which imports torch side by side with this process
    dist = load_torch("training on several workers").distributed
    # The store lives here, not with a worker that may be lost; the system chooses a port that is free.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=timeout))
    pipes: list[Any] = []
    processes: list[Any] = []
    threads = max(1, thread_count(None) // n_workers)
    try:
        for rank in range(n_workers):
            here, there = context.Pipe()
            job = work, tuple(args), rank, n_workers, store.port, threads, timeout, there
            process = context.Process(target=_worker, args=job, name=f"gbun-worker-{rank}", daemon=True)
            process.start()
            there.close()
            pipes.append(here)
            processes.append(process)
        return _answers(pipes, processes, timeout)
    except KeyboardInterrupt:
        for process in processes:  # from a terminal it is theirs, too; otherwise it was this process's alone
            if process.is_alive():
                os.kill(process.pid, signal.SIGINT)
        until = monotonic() + GRACE  # for them to write what they have
        for process in processes:
            process.join(max(0.0, until - monotonic()))
        raise KeyboardInterrupt(*_last_words(pipes[0])) from None
    finally:
        for process in processes:
            process.kill()
        for process, pipe in zip(processes, pipes, strict=True):
            process.join()
            pipe.close()


def _context() -> Any:
    """How processes begin: anew, or, where the system can, as copies of one that has imported what all need."""
    if "forkserver" not in get_all_start_methods():
        return get_context("spawn")
    from multiprocessing import forkserver  # which not every system has

    context = get_context("forkserver")
    context.set_forkserver_preload(["torch", "gbun.distributed"])
    forkserver.ensure_running()
    return context


def _answers(pipes: list[Any], processes: list[Any], timeout: float) -> list[Any]:
    """What workers return; where one fails, its error, after a while for the others to end."""
    answers: dict[int, Any] = {}
    errors: dict[int, WorkerError] = {}
    until: float | None = None
    while len(answers) + len(errors) < len(processes):
        waiting = {pipes[r]: r for r in range(len(processes)) if r not in answers and r not in errors}
        left = None if until is None else until - monotonic()
        ready = connection.wait(list(waiting), left)
        if not ready:
            break
        for pipe in ready:
            rank = waiting[pipe]
            try:
                kind, *found = pipes[rank].recv()
            except EOFError:
                kind, found = "lost", [_end_of(processes[rank])]
            if kind == "returned":
                answers[rank] = found[0]
                continue
            errors[rank] = WorkerError(f"worker {rank} of {len(processes)} failed: {found[0]}", rank)
            if kind == "followed":
                errors[rank] = WorkerError(found[0], found[1])
            errors[rank].__cause__ = Elsewhere(found[-1]) if kind == "raised" else None
            until = until or monotonic() + timeout + GRACE
        left_over = set(range(len(processes))) - answers.keys() - errors.keys()
        if left_over <= {error.rank for error in errors.values()}:
            break  # whoever is not back is known to be lost
    if errors:
        # The first cause: a worker that says of itself why it failed, then one that another tells of.
        raise next((e for r, e in errors.items() if e.rank == r), next(iter(errors.values())))
    return [answers[rank] for rank in range(len(processes))]


def _last_words(pipe: Any) -> list[str]:
    """What an interrupted worker has to say."""
    try:
        kind, *found = pipe.recv() if pipe.poll() else ("",)
    except EOFError:
        return []
    name, _, words = found[0].partition(": ") if kind == "raised" else ("", "", "")
    return [words] if name == "KeyboardInterrupt" and words else []


def _end_of(process: Any) -> str:
    process.join(GRACE)
    code = process.exitcode
    if code is not None and code < 0:
        return f"it was killed by {signal.Signals(-code).name}"
    return f"it ended with exit code {code} before it returned"


def _worker(
    work: Callable[..., Any],
    args: tuple[Any, ...],
    rank: int,
    size: int,
    port: int,
    n_threads: int,
    timeout: float,
    pipe: Any,
) -> None:
    """What a new process does."""
    signal.signal(signal.SIGINT, _interrupted)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ |= {"OMP_NUM_THREADS": str(n_threads), "LOCAL_WORLD_SIZE": str(size), KEEPER: "the launcher"}
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    answer: tuple[Any, ...]
    try:
        torch = load_torch("training on several workers")
        torch.set_num_threads(n_threads)
        wait = timedelta(seconds=timeout)
        store = torch.distributed.TCPStore("127.0.0.1", port, timeout=max(wait, CONNECTING))
        store.set_timeout(wait)
        torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=wait)
        answer = "returned", work(*args)
        ForkingPickler.dumps(answer)  # what cannot be sent is told as an error of this worker
    except WorkerError as error:
        answer = "followed", str(error), error.rank
    except BaseException as error:
        answer = "raised", f"{type(error).__name__}: {error}".rstrip(": "), traceback.format_exc()
    pipe.send(answer)
    pipe.close()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # without waiting for messages that will not come


def _interrupted(*_: Any) -> None:
    """Once is enough: a second interrupt would meet this worker while it writes what it has."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _end_with_parent() -> None:
    """Whoever launched this process is gone: nobody waits for it any more."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)
