"""Work on chunks of rows in threads, with the same bits for every number of threads.

Chunks depend on the data and K alone, one thread computes each with single-threaded BLAS, and sums over chunks are
added in the order of chunks. So the number of threads decides when a chunk is computed, never how.
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
MIN_PARALLEL_OPERATIONS = 2**24  # operations, about a millisecond, that are done sooner than other threads get them


def thread_count(n_jobs: int | None) -> int:
    """Return the number of threads that `n_jobs` means, as in scikit-learn.

    -1 means all cores this process may use, -2 all but one. None means all, but no more than OMP_NUM_THREADS, which
    joblib sets in its workers.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    if n_jobs is None:
        limit = os.environ.get("OMP_NUM_THREADS", "")
        return min(cores, int(limit)) if limit.isdigit() and int(limit) else cores
    return n_jobs if n_jobs > 0 else max(1, cores + 1 + n_jobs)


class ThreadPool:
    """A pool of threads that maps a function over chunks in their order, and the working memory of each thread."""

    def __init__(self, n_jobs: int | None) -> None:
        self.count = thread_count(n_jobs)
        self.scratch = Scratch()
        self._pool = ThreadPoolExecutor(self.count) if self.count > 1 else None

    def map(self, work: Callable[[Item], R], items: Sequence[Item], amount: float = math.inf) -> Iterator[R]:
        """Yield results in the order of items; only a few are computed ahead, so that memory does not fill up.

        `amount` is about the number of operations of all items together.
        """

        def work_with_one_blas_thread(item: Item) -> R:
            blas_limit.apply()
            return work(item)

        if self._pool is None or len(items) < 2 or amount < MIN_PARALLEL_OPERATIONS:
            yield from map(work_with_one_blas_thread, items)
            return
        ahead: deque[Future[R]] = deque()
        for item in items:
            ahead.append(self._pool.submit(work_with_one_blas_thread, item))
            if len(ahead) > 2 * self.count:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()

    def run(self, work: Callable[[Item], object], items: Sequence[Item]) -> None:
        for _ in self.map(work, items):
            pass

    def run_compiled(self, work: Callable[[Item], object], items: Sequence[Item]) -> None:
        """Call `work` for all items; it calls no BLAS, so that no limit has to be looked at.

        The calling thread only waits: a thread that it wakes often begins on its processor, once that is free.
        """
        if self._pool is None or len(items) < 2:
            for item in items:
                work(item)
            return
        for _ in self._pool.map(work, items):
            pass

    def limit(self, count: int) -> None:
        """Continue with fewer threads, where memory is short."""
        if count < self.count:
            self.close()
            self.count, self.scratch = count, Scratch()
            self._pool = ThreadPoolExecutor(count) if count > 1 else None

    def close(self) -> None:
        """Wait until threads are done with what they have begun; what still waits for one is dropped."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


class Scratch(threading.local):
    """Arrays that a thread keeps from chunk to chunk and round to round, by name; they grow when they are too small."""

    def array(self, name: str, *shape: int) -> FloatArray:
        """Return a float32 array, not initialised; the last one of the same name must not be used any more.

        Room to grow takes no memory until it is used.
        """
        size = math.prod(shape)
        held = self.__dict__.get(name)
        if held is None or len(held) < size:
            held = self.__dict__[name] = None  # free before a larger one takes its place
            held = self.__dict__[name] = allocate_aligned(1 << (size - 1).bit_length(), MEMBERSHIP)
        return held[:size].reshape(shape)


def allocate_aligned(size: int, dtype: type) -> FloatArray:
    """Return an array that begins at a multiple of 64 bytes, which vectors and BLAS prefer; so each run is the same."""
    room = np.empty(size * np.dtype(dtype).itemsize + 64, dtype=np.uint8)
    shift = -room.ctypes.data % 64
    return room[shift : shift + size * np.dtype(dtype).itemsize].view(dtype)


class BlasLimit:
    """Limits BLAS to one thread while somebody computes here.

    Some builds of BLAS have one number of threads for the whole process: the first holder limits it, and the last one
    lifts the limit. Others have one for each thread: each thread restores its own, when it holds no longer. In both,
    every piece of work applies the limit in its own thread: another library may have lifted one of its own meanwhile.
    """

    def __init__(self) -> None:
        self._before: list[tuple[Any, int]] = []  # libraries with one number, and that without the limit
        self._by_thread: list[Any] = []  # libraries with a number for each thread
        self._own = _OwnNumbers()
        self.forget_holders()

    def forget_holders(self) -> None:
        """Begin anew in a process that was forked: threads that held are not in it, and one may have had the lock.

        Numbers without the limit are kept, so that the next holder restores them.
        """
        self._lock, self._holders = threading.RLock(), 0
        before, self._own = self._own.before, _OwnNumbers()
        self._own.before = before

    @contextmanager
    def hold(self) -> Iterator[None]:
        with self._lock:
            if self._holders == 0:
                self._look_for_libraries()
            own = self._own
            if not own.before:
                own.before = [(library, library.get_num_threads()) for library in self._by_thread]
            self._holders += 1
            own.holders += 1
        try:
            self.apply()
            yield
        finally:
            with self._lock:
                if own is self._own:  # otherwise the process was forked meanwhile, and nobody counts this holder
                    self._leave()

    def _look_for_libraries(self) -> None:
        libraries = _blas_libraries()
        self._by_thread = [library for library in libraries if _counts_by_thread(library)]
        known = {id(library) for library, _ in self._before}  # in a process that was forked
        for library in libraries:
            if id(library) not in known and library not in self._by_thread:
                self._before.append((library, library.get_num_threads()))

    def _leave(self) -> None:
        own = self._own
        self._holders -= 1
        own.holders = max(0, own.holders - 1)  # a generator may end in a thread that never held
        if own.holders == 0:
            for library, n_threads in own.before:
                _set_blas_threads(library, n_threads)
            own.before = []
        if self._holders == 0:
            for library, n_threads in self._before:
                _set_blas_threads(library, n_threads)
            self._before = []

    def apply(self) -> None:
        with self._lock:  # or the last holder could lift the limit between the question and the answer
            if self._holders:
                for library in [*self._by_thread, *(library for library, _ in self._before)]:
                    if library.get_num_threads() != 1:
                        _set_blas_threads(library, 1)


class _OwnNumbers(threading.local):
    """How often a thread holds the limit, and its numbers of threads without it, of libraries that count by thread."""

    def __init__(self) -> None:
        self.holders = 0
        self.before: list[tuple[Any, int]] = []


@cache
def _blas_libraries() -> list[Any]:
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)  # those of NumPy and SciPy, which gbun
    # has imported; looking for them takes a millisecond


@cache
def _counts_by_thread(library: Any) -> bool:
    """Find out whether a BLAS has a number of threads for each thread: one thread sets it, another one reads it.

    The name of the build does not tell.
    """
    before, found = library.get_num_threads(), []

    def change() -> None:
        _set_blas_threads(library, 2 if before == 1 else 1)
        found.append(library.get_num_threads())

    thread = threading.Thread(target=change, name="gbun-probe")
    thread.start()
    thread.join()
    here = library.get_num_threads()
    if here != before:
        _set_blas_threads(library, before)
    return here == before and found != [before]  # the same in both: a BLAS that has but one thread


def _set_blas_threads(library: Any, n_threads: int) -> None:
    """Set the number of threads of a BLAS, whichever thread set it last.

    Newer versions of threadpoolctl ignore all threads but the first one that sets a limit, until it gives up control.
    Control is taken, and given up at once: the other thread can restore its own number later.
    """
    take_control = getattr(library, "clear_controlling_thread", lambda force: None)
    take_control(force=True)
    library.set_num_threads(n_threads)
    take_control(force=True)


blas_limit = BlasLimit()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=blas_limit.forget_holders)


@contextmanager
def thread_pool(n_jobs: int | None) -> Iterator[ThreadPool]:
    """Make a pool of `n_jobs` threads; BLAS uses one thread in each of them."""
    with blas_limit.hold():
        pool = ThreadPool(n_jobs)
        try:
            yield pool
        finally:
            pool.close()  # while BLAS is limited: after an error, threads still compute what they have begun
