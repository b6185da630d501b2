"""Workers that are processes and talk through sockets: the same model, few bytes, and no hangs when one is lost."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import gbun
from gbun import distributed
from gbun.callbacks import History
from gbun.collectives import WorkerError

torch = pytest.importorskip("torch")
jobs = pytest.importorskip("worker_jobs")
AGREE = 2e-5  # of a deviation: chunks are summed in float32, and workers cut them elsewhere


def alone(kind, params, n_rounds, **more):
    data = jobs.rows(kind)
    model = gbun.train({"n_neurons": 32, **params}, data, n_rounds, task=jobs.task_of(kind), **more)
    return model.decision_function(data[0][:100])


def close(found, wanted, tolerance=AGREE):
    np.testing.assert_allclose(found, wanted, atol=tolerance * wanted.std())


def workers_of(pid):
    """Processes that are there and descend from this one; who only starts others is none of them."""
    parents, found = {}, []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rsplit(")", 1)[1].split()[:2]
        except OSError:  # it has just ended
            continue
        if state != "Z":
            parents[int(stat.parent.name)] = int(parent)
    children = [p for p, parent in parents.items() if parent == pid]
    for child in children:
        found += [p for p, parent in parents.items() if parent == child]
    return found


@pytest.fixture(autouse=True)
def _nobody_is_left():
    yield
    assert jobs.wait_for(lambda: not workers_of(os.getpid()), 5.0)


@pytest.mark.parametrize(("size", "kind"), [(2, "sparse"), (3, "classes")])
def test_processes_train_the_model_of_one_with_metrics_of_all_rows(size, kind):
    params = {"gram_rows": 0.5, "n_neurons": 64, "eval_metric": "auc" if kind == "sparse" else "log_loss"}
    found = distributed.launch(jobs.train_watched, size, (kind, params, 6), timeout=jobs.PATIENCE)
    history = History()
    wanted = alone(kind, params, 6, evals={"valid": jobs.rows(kind, 600, seed=1)}, callbacks=[history])
    for metric, values in history.values["valid"].items():
        np.testing.assert_allclose(found[0][3]["valid"][metric], values, atol=5e-4 if metric == "auc" else 1e-6)
    for scores, n_rounds, _, _ in found:
        assert n_rounds == 6
        close(scores, wanted)
        np.testing.assert_array_equal(scores, found[0][0])  # the same bits on all


@pytest.mark.parametrize("transport", ["float32", "int16"])
def test_bytes_are_those_of_the_formula_and_do_not_go_with_rows_or_features(transport):
    K, T, size = 128, 5, 3
    params = {"n_neurons": K, "init": "constant"}
    reports = {}
    for kind in ("dense", "sparse"):
        found = distributed.launch(jobs.train_with, size, (kind, params, T, transport), timeout=jobs.PATIENCE)
        reports[kind] = found[0]
    sent, received = reports["dense"].sent[:, 2:], reports["dense"].received[:, 2:]  # past the first round
    np.testing.assert_array_equal(sent, reports["sparse"].sent[:, 2:])
    np.testing.assert_array_equal(received, reports["sparse"].received[:, 2:])
    large = K * (K + 1) // 2 + K
    up = (4 * large if transport == "float32" else 2 * large + 4 * -(-K * (K + 1) // 512) + 4) + 8 * (2 * K + 2)
    down = 4 * (K + 2 * K) + 3 * 8
    np.testing.assert_array_equal(sent, [[(size - 1) * down], [up], [up]] * np.ones(T - 1, dtype=int))
    np.testing.assert_array_equal(sent.sum(axis=0), received.sum(axis=0))
    assert sent.max() < 0.6 * (2 * (size - 1) / size) * 4 * K * K  # a ring's all-reduce of the whole square
    assert re.match(r"3 workers, 5 rounds; bytes a worker and round: [\d,]+ sent", str(reports["dense"]))


@pytest.mark.parametrize(
    ("how", "rank", "words"),
    [
        ("raised", 1, "worker 1 of 3 failed: ZeroDivisionError: in the user's objective"),
        ("memory", 2, "worker 2 of 3 failed: MemoryError: no more of it"),
        ("killed", 2, "worker 2 of 3 failed: .*killed"),
        ("killed", 0, "worker 0 of 3 failed: .*killed"),
        ("frozen", 1, "worker 1 of 3 failed: no sign of life for 3 s"),
        ("frozen", 0, "worker 0 of 3 failed: no sign of life for 3 s"),
    ],
)
def test_a_worker_that_is_lost_ends_the_job_on_all_with_its_cause(how, rank, words):
    began = time.monotonic()
    with pytest.raises(WorkerError, match=words) as raised:
        distributed.launch(jobs.fail, 3, (how, rank), timeout=jobs.TIMEOUT)
    assert raised.value.rank == rank
    assert time.monotonic() - began < 60.0  # most of which new processes take to begin


def test_each_worker_that_is_left_knows_the_cause_and_they_can_train_again():
    """As users see it who have their own process group: nobody is ended from outside."""
    found = distributed.launch(jobs.fail_and_go_on, 3, timeout=jobs.PATIENCE)
    causes = [
        "ZeroDivisionError: in the user's objective",
        "ValueError: transport must be one of float64, float32, int16, got 'float8'",
        "ValueError: timeout must be a positive number of seconds, got 0",
    ]
    differs = "ValueError: transport must be the same on all workers, got 'float32' on ranks 0, 2, 'int16' on rank 1"
    assert found[1][0] == [*causes, differs]
    for told, _ in (found[0], found[2]):
        assert told == [*(f"worker 1 of 3 failed: {cause}" for cause in causes), differs]
    X, y = jobs.rows(n=300)
    for _, scores in found:
        close(scores, gbun.train({"n_neurons": 16}, (X, y), 3).decision_function(X), 1e-9)


def test_who_is_slow_but_alive_is_waited_for():
    assert distributed.launch(jobs.slow, 2, (2.0,), timeout=20.0) == [1, 1]


@pytest.mark.parametrize(("patience", "cut", "n_left"), [(None, 8, 6), (4, 10, 9)])
def test_a_run_that_was_cut_short_goes_on_with_another_number_of_workers(patience, cut, n_left, tmp_path):
    """With patience, the best round was before the cut, and what came after it counts."""
    n_rounds, path = 16, tmp_path / "c.gbun"
    args = str(path), n_rounds, True, patience
    with pytest.raises(WorkerError, match=r"worker 0 of 3 failed: .*SIGKILL"):
        distributed.launch(jobs.checkpointed, 3, (*args, cut), timeout=jobs.TIMEOUT)
    assert gbun.load_model(path).n_rounds == n_left
    assert path.stat().st_size < 50_000
    scores, n_kept, best = distributed.launch(jobs.checkpointed, 2, args, timeout=jobs.PATIENCE)[0]
    wanted = distributed.launch(jobs.checkpointed, 2, (str(tmp_path / "d.gbun"), *args[1:]), timeout=jobs.PATIENCE)[0]
    assert (n_kept, best) == wanted[1:]
    assert n_kept == 7 if patience else n_kept == n_rounds
    close(scores, wanted[0])


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("columns", "must have the same columns on all workers, got 6 on ranks 0, 2, 5 on rank 1"),
        ("sets", "evals must name the same sets"),
        ("parameters", "n_neurons must be the same on all workers, got 16 on ranks 0, 2, 32 on rank 1"),
        ("target", "worker 2 of 3 failed: ValueError: y has NaN"),
    ],
)
def test_workers_that_were_told_different_things_all_end(what, words):
    with pytest.raises(WorkerError, match=words):
        distributed.launch(jobs.differing, 3, (what,), timeout=jobs.PATIENCE)


def test_groups_and_trainings_one_after_the_other():
    found = distributed.launch(jobs.group_of_two, 3, timeout=jobs.PATIENCE)
    assert found[1] is None
    assert found[0].shape == found[2].shape == (5,)
    assert distributed.launch(jobs.twice, 2, timeout=jobs.PATIENCE) == [[2, 3], [2, 3]]


def test_trainings_at_once_in_groups_of_the_same_processes():
    found = distributed.launch(jobs.two_groups, 2, timeout=jobs.PATIENCE)
    for kind, *scores in zip(("dense", "classes"), *found, strict=True):
        X, y = jobs.rows(kind, 300)
        one = gbun.train({"n_neurons": 16}, (X, y), 20, task=jobs.task_of(kind))
        for own in scores:
            close(own, one.decision_function(X[:50]), 1e-9)


def test_shares_that_are_empty_of_one_row_of_one_class_or_of_few_columns():
    """Through sockets as among threads."""
    whats = ("empty", "one row", "one class", "columns")
    found = distributed.launch(jobs.shares, 3, whats, timeout=jobs.PATIENCE)
    (empty, one_row, one_class, columns) = zip(*found, strict=True)
    assert empty[1][0] == (0, 6)
    assert one_row[1][0] == (1, 6)
    assert [classes for _, classes, _ in one_class] == [1, 1, 2]
    assert len({shape[1] for shape, _, _ in columns}) == 3
    for what, scores in zip(whats, (empty, one_row, one_class, columns), strict=True):
        kind, (X, y), _ = jobs.parts_of(what)
        one = gbun.train({"n_neurons": 32}, (X, y), 4, task=jobs.task_of(kind))
        for _, _, own in scores:
            close(own, one.decision_function(X), 1e-9)


@pytest.mark.parametrize("how", ["raised", "frozen"])
def test_a_worker_that_is_lost_before_it_trains_ends_the_job_too(how):
    began = time.monotonic()
    with pytest.raises(WorkerError, match="worker 1 of 3 failed"):
        distributed.launch(jobs.lost_before, 3, (how,), timeout=5 * jobs.TIMEOUT)  # others connect meanwhile
    assert time.monotonic() - began < 60.0


def test_two_jobs_at_once_do_not_disturb_each_other():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import worker_jobs; from gbun import distributed\n"
        "if __name__ == '__main__': print(distributed.launch(worker_jobs.twice, 2, timeout=30.0))"
    )
    folder = str(Path(__file__).parent)
    both = [subprocess.Popen([sys.executable, "-c", code, folder], stdout=subprocess.PIPE) for _ in range(2)]
    for process in both:
        assert process.communicate(timeout=120)[0].decode().split("\n")[0] == "[[2, 3], [2, 3]]"
        assert process.returncode == 0


def test_workers_end_with_whoever_launched_them():
    code = (
        "import sys, os; sys.path.insert(0, sys.argv[1]); import worker_jobs; from gbun import distributed\n"
        "if __name__ == '__main__': distributed.launch(worker_jobs.fail, 2, ('raised', 5), timeout=30.0)"
    )
    folder = str(Path(__file__).parent)
    parent = subprocess.Popen([sys.executable, "-c", code, folder])
    try:
        assert jobs.wait_for(lambda: len(workers_of(parent.pid)) == 2, 60.0)
        time.sleep(2.0)  # until they are in the middle of it
        own = workers_of(parent.pid)
    finally:
        parent.kill()
        parent.wait()
    assert len(own) == 2
    assert jobs.wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in own), 10.0)


def test_who_has_no_workers_is_told_so():
    X, y = jobs.rows(n=60)
    with pytest.raises(ValueError, match=r"needs a process group: call torch\.distributed\.init_process_group"):
        distributed.train({}, (X, y), 2)
    with pytest.raises(ValueError, match="n_workers must be at least 1, got 0"):
        distributed.launch(jobs.twice, 0)
