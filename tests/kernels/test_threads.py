"""Threads of a training, and BLAS, which keeps to one thread in each of them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import threadpoolctl

from gbun.kernels import threads
from gbun.kernels.threads import BlasLimit, thread_pool


def blas():
    return {lib["num_threads"] for lib in threadpoolctl.threadpool_info() if lib["user_api"] == "blas"}


def run_in_new_thread(work):
    found = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


@pytest.fixture
def two_blas_threads():
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        yield


def blas_while_training(n_jobs=1):
    with thread_pool(n_jobs) as pool:
        return list(pool.map(lambda item: blas(), range(3)))


def test_blas_keeps_to_one_thread_until_the_last_training_has_ended(two_blas_threads):
    """Bits do not depend on other trainings of the process, and afterwards BLAS has its threads again."""
    first, second = thread_pool(1), thread_pool(1)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    while_one_runs = blas()
    second.__exit__(None, None, None)
    assert (while_one_runs, blas()) == ({1}, {2})


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_blas_keeps_to_one_thread_in_every_thread_that_trains(two_blas_threads, n_jobs):
    """The main thread has a limit of its own, as scikit-learn sets it: it controls BLAS, and keeps its number."""
    assert blas_while_training(n_jobs) == [{1}] * 3
    for _ in range(2):
        assert run_in_new_thread(lambda: blas_while_training(n_jobs)) == [{1}] * 3
        assert blas() == {2}
    with threadpoolctl.threadpool_limits(3, user_api="blas"):
        assert run_in_new_thread(lambda: blas_while_training(n_jobs)) == [{1}] * 3
        assert blas() == {3}
    assert blas() == {2}


def test_limit_holds_although_another_library_lifts_its_own(two_blas_threads):
    with thread_pool(1) as pool:
        other = threadpoolctl.threadpool_limits(2, user_api="blas")
        assert list(pool.map(lambda item: blas(), range(1))) == [{1}]
        other.restore_original_limits()
    assert blas() == {2}


class BlasOfThreads(threading.local):
    """A BLAS in which each thread has a number of its own."""

    n_threads = 2

    def get_num_threads(self):
        return self.n_threads

    def set_num_threads(self, n_threads):
        self.n_threads = n_threads


class BlasOfProcess:
    """A BLAS with one number for all threads, whatever it is built with."""

    threading_layer = "openmp"

    def __init__(self):
        self.n_threads = 2

    get_num_threads, set_num_threads = BlasOfThreads.get_num_threads, BlasOfThreads.set_num_threads


KINDS = [BlasOfThreads, BlasOfProcess]


@pytest.fixture
def make_blas(monkeypatch):
    """Let gbun find one BLAS of this kind, and return it."""

    def make(kind):
        library = kind()
        monkeypatch.setattr(threads, "_blas_libraries", lambda: [library])
        monkeypatch.setattr(threads, "blas_limit", BlasLimit())
        return library

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_every_thread_of_a_training_is_limited_in_every_kind_of_blas(make_blas, kind):
    library = make_blas(kind)
    with thread_pool(2) as pool:
        both = threading.Barrier(2)

        def work(item):
            both.wait()
            return library.get_num_threads()

        assert list(pool.map(work, range(2))) == [1, 1]
        assert library.get_num_threads() == 1
    assert library.get_num_threads() == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_who_leaves_first_lifts_no_limit_of_another_and_who_leaves_last_restores_no_number_of_another(
    make_blas, kind, order
):
    library, leave, left, found = make_blas(kind), *([threading.Event() for _ in range(2)] for _ in range(2)), {}
    inside = threading.Barrier(3)

    def train(rank):
        if kind is BlasOfThreads:
            library.set_num_threads(2 + rank)
        with thread_pool(1):
            inside.wait()
            leave[rank].wait()
            found["inside", rank] = library.get_num_threads()
        found["after", rank] = library.get_num_threads()
        left[rank].set()

    trainers = [threading.Thread(target=train, args=(rank,)) for rank in range(2)]
    trainers[0].start()
    trainers[1].start()
    inside.wait()
    for rank in order:
        leave[rank].set()
        left[rank].wait()
    assert [found["inside", rank] for rank in range(2)] == [1, 1]
    after = [found["after", rank] for rank in order]
    assert after == ([2 + rank for rank in order] if kind is BlasOfThreads else [1, 2])


@pytest.mark.parametrize("kind", KINDS)
def test_holds_of_one_thread_may_end_in_any_order(make_blas, kind):
    library, first, second = make_blas(kind), thread_pool(1), thread_pool(1)
    for hold in (first, second):
        hold.__enter__()
    first.__exit__(None, None, None)
    assert library.get_num_threads() == 1
    second.__exit__(None, None, None)
    assert library.get_num_threads() == 2


@pytest.mark.parametrize("kind", KINDS)
def test_limit_holds_in_what_an_interrupted_training_has_begun_and_nothing_more_is_begun(make_blas, kind, monkeypatch):
    library, release, begun, ahead = make_blas(kind), threading.Event(), threading.Barrier(3), threading.Event()
    found, shutdown = [], threads.ThreadPoolExecutor.shutdown

    def end_of_pool(self, wait=True, cancel_futures=False):
        shutdown(self, wait=False, cancel_futures=cancel_futures)
        release.set()
        shutdown(self)

    def work(item):
        if item < 2:
            begun.wait()
        release.wait()
        found.append(library.get_num_threads())

    monkeypatch.setattr(threads.ThreadPoolExecutor, "shutdown", end_of_pool)

    class Items:
        def __len__(self):
            return 20

        def __iter__(self):
            yield from range(4)
            ahead.set()  # these have been submitted
            yield from range(4, 20)

    def interrupted():
        with thread_pool(2) as pool:
            waiting = pool.map(work, Items())
            threading.Thread(target=lambda: next(waiting)).start()  # it waits for the first result
            begun.wait()
            ahead.wait()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert found == [1, 1]
    assert library.get_num_threads() == 2


class LockThatTells:
    """A lock that says when a thread has to wait for it."""

    def __init__(self, contended):
        self.lock, self.contended = threading.RLock(), contended

    def __enter__(self):
        if not self.lock.acquire(blocking=False):
            self.contended.set()
            self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()


def test_limit_that_is_lifted_while_it_is_applied_is_lifted_afterwards(make_blas):
    library, on = make_blas(BlasOfProcess), threading.Event()
    limit, hold = threads.blas_limit, threads.blas_limit.hold()
    limit._lock = LockThatTells(on)

    def leave():
        hold.__exit__(None, None, None)
        on.set()

    leaver = threading.Thread(target=leave)
    hold.__enter__()
    library.n_threads = 2  # another library has lifted the limit

    class Asked(BlasOfProcess):
        def get_num_threads(self):
            found = self.n_threads
            if threading.current_thread() is not leaver and not leaver.ident:
                leaver.start()  # the last holder leaves when the question has been answered
                on.wait()
            return found

    library.__class__ = Asked
    limit.apply()
    leaver.join()
    assert library.n_threads == 2


FORK = """
import os, signal, sys
import numpy as np
import gbun

X = np.random.default_rng(0).normal(size=(20_000, 10))

def scores():
    return gbun.train({"n_neurons": 64, "n_jobs": 2, "init": "constant"}, (X, X[:, 0]), 3).predict(X)

wanted = scores()
if os.fork() == 0:
    signal.alarm(120)  # a child that hangs ends
    os._exit(0 if np.array_equal(scores(), wanted) else 1)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


FORK_INSIDE = """
import os, signal, sys, threading
from gbun.kernels import threads
from tests.kernels.test_threads import BlasOfProcess, BlasOfThreads

library = {"threads": BlasOfThreads, "process": BlasOfProcess}[sys.argv[1]]()
threads._blas_libraries = lambda: [library]
limit, locked, done = threads.blas_limit, threading.Event(), threading.Event()

def keep_lock():
    with limit._lock:
        locked.set()
        done.wait()

with threads.thread_pool(1):
    threading.Thread(target=keep_lock).start()
    locked.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(120)  # a child that hangs ends
        with threads.thread_pool(1) as pool:
            inside = list(pool.map(lambda item: library.get_num_threads(), range(1)))
        os._exit(0 if (inside, library.get_num_threads()) == ([1], 2) else 1)
    done.set()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or (library.get_num_threads() != 2))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("kind", ["threads", "process"])
def test_process_forked_during_a_training_counts_no_holders_of_its_parent(kind):
    command = [sys.executable, "-W", "ignore", "-c", FORK_INSIDE, kind]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_process_forked_after_a_training_trains_the_same_model():
    """No thread and no lock of a training outlives it."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_compiled_work_is_done_and_its_errors_are_raised(n_jobs):
    done = []
    with thread_pool(n_jobs) as pool:
        pool.run_compiled(done.append, range(20))
        assert sorted(done) == list(range(20))
        with pytest.raises(ZeroDivisionError):
            pool.run_compiled(lambda k: 1 // k, range(3))
