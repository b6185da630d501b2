"""Threads of a training, and BLAS, which keeps to one thread in each of them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

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
    """A BLAS that is built with OpenMP: each thread has a number of its own."""

    n_threads = 2

    def get_num_threads(self):
        return self.n_threads

    def set_num_threads(self, n_threads):
        self.n_threads = n_threads


def test_blas_with_a_number_for_each_thread_is_limited_in_each(monkeypatch):
    library, limit = BlasOfThreads(), BlasLimit()
    monkeypatch.setattr(threads, "_blas_libraries", lambda: [library])
    monkeypatch.setattr(threads, "blas_limit", limit)
    with thread_pool(2) as pool:
        both = threading.Barrier(2)

        def work(item):
            both.wait()
            return library.get_num_threads()

        assert list(pool.map(work, range(2))) == [1, 1]
        assert library.get_num_threads() == 1
    assert library.get_num_threads() == 2


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


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_process_forked_after_a_training_trains_the_same_model():
    """No thread and no lock of a training outlives it."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
