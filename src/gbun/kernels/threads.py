"""Work on row chunks in threads, with the same bits for every number of threads.

Chunks are cut from the number of rows and K alone, each is computed by one thread with single-threaded BLAS, and
sums over chunks are added in chunk order. So the number of threads decides when a chunk is computed, never how.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from threadpoolctl import threadpool_limits

R = TypeVar("R")


def thread_count(n_jobs: int | None) -> int:
    """None and -1 mean all cores this process may use, -2 all but one, as in scikit-learn."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    if n_jobs is None:
        return cores
    return n_jobs if n_jobs > 0 else max(1, cores + 1 + n_jobs)


def row_chunks(n_rows: int, width: int) -> list[slice]:
    """Chunks of rows with `width` numbers each (K, or C if that is more) that stay within a core's cache."""
    rows = min(4096, max(256, 2**18 // width))
    return [slice(first, min(first + rows, n_rows)) for first in range(0, n_rows, rows)]


class Threads:
    """A pool that maps a function over chunks and keeps their order."""

    def __init__(self, n_jobs: int | None) -> None:
        self.count = thread_count(n_jobs)
        self._pool = ThreadPoolExecutor(self.count) if self.count > 1 else None

    def map(self, work: Callable[[slice], R], chunks: list[slice]) -> Iterator[R]:
        if self._pool is None or len(chunks) < 2:
            return map(work, chunks)
        return self._pool.map(work, chunks)

    def run(self, work: Callable[[slice], object], chunks: list[slice]) -> None:
        for _ in self.map(work, chunks):
            pass

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()


@contextmanager
def threads(n_jobs: int | None) -> Iterator[Threads]:
    """A pool of `n_jobs` threads; BLAS keeps to one thread in each of them."""
    pool = Threads(n_jobs)
    try:
        with threadpool_limits(limits=1, user_api="blas"):
            yield pool
    finally:
        pool.close()
