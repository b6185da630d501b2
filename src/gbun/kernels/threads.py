"""Work on row chunks in threads, with the same bits for every number of threads.

Chunks are cut from the data and K alone, each is computed by one thread with single-threaded BLAS, and
sums over chunks are added in chunk order. So the number of threads decides when a chunk is computed, never how.
"""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from gbun.dtypes import MEMBERSHIP, FloatArray

Item = TypeVar("Item")
R = TypeVar("R")
LITTLE = 2**24  # operations, about a millisecond of them, that are done sooner than handed over to other threads


def thread_count(n_jobs: int | None) -> int:
    """-1 means all cores this process may use, -2 all but one, as in scikit-learn; None means all, but no more than
    OMP_NUM_THREADS, by which joblib tells its workers to share the cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    if n_jobs is None:
        limit = os.environ.get("OMP_NUM_THREADS", "")
        return min(cores, int(limit)) if limit.isdigit() and int(limit) else cores
    return n_jobs if n_jobs > 0 else max(1, cores + 1 + n_jobs)


class Threads:
    """A pool that maps a function over chunks and keeps their order, and each thread's working memory."""

    def __init__(self, n_jobs: int | None) -> None:
        self.count = thread_count(n_jobs)
        self.scratch = Scratch()
        self._pool = ThreadPoolExecutor(self.count) if self.count > 1 else None

    def map(self, work: Callable[[Item], R], items: Sequence[Item], amount: float = math.inf) -> Iterator[R]:
        """Results in the order of items; only a few are made ahead, so that they do not pile up in memory.

        `amount` is about how many operations all of it takes.
        """
        if self._pool is None or len(items) < 2 or amount < LITTLE:
            yield from map(work, items)
            return
        ahead: deque[Future[R]] = deque()
        for item in items:
            ahead.append(self._pool.submit(work, item))
            if len(ahead) > 2 * self.count:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()

    def run(self, work: Callable[[Item], object], items: Sequence[Item], amount: float = math.inf) -> None:
        for _ in self.map(work, items, amount):
            pass

    def limit(self, count: int) -> None:
        """Go on with fewer threads, where memory is short."""
        if count < self.count:
            self.close()
            self.count, self.scratch = count, Scratch()
            self._pool = ThreadPoolExecutor(count) if count > 1 else None

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()


class Scratch(threading.local):
    """Arrays a thread keeps from chunk to chunk and round to round, by name: allocated once, grown when too small."""

    def array(self, name: str, *shape: int, dtype: type = MEMBERSHIP) -> FloatArray:
        """An array of this shape with anything in it; the last one of the same name is given up."""
        size = math.prod(shape)
        held = self.__dict__.get(name)
        if held is None or len(held) < size:
            held = self.__dict__[name] = aligned(size, dtype)
        return held[:size].reshape(shape)


def aligned(size: int, dtype: type) -> FloatArray:
    """An array that begins at a multiple of 64 bytes, as vectors and BLAS like it, and the same in every run."""
    room = np.empty(size * np.dtype(dtype).itemsize + 64, dtype=np.uint8)
    shift = -room.ctypes.data % 64
    return room[shift : shift + size * np.dtype(dtype).itemsize].view(dtype)


_limit_lock = threading.Lock()
_limit_holders = 0
_limit: Any = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS keeps to one thread until the last of all holders, in whatever thread, is done.

    The limit is the process's: set by the first who asks, lifted by the last, so that trainings side by side do not
    lift it for each other or leave it behind.
    """
    global _limit_holders, _limit
    with _limit_lock:
        if _limit_holders == 0:
            _limit = _blas().limit(limits=1, user_api="blas")
        _limit_holders += 1
    try:
        yield
    finally:
        with _limit_lock:
            _limit_holders -= 1
            if _limit_holders == 0:
                _limit.restore_original_limits()


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()  # looks at all loaded libraries, once


@contextmanager
def threads(n_jobs: int | None) -> Iterator[Threads]:
    """A pool of `n_jobs` threads; BLAS keeps to one thread in each of them."""
    pool = Threads(n_jobs)
    try:
        with one_blas_thread():
            yield pool
    finally:
        pool.close()
