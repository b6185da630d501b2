"""Workers that are processes with sockets: the model of one process, few bytes, and no hang when a worker fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gbun
from gbun import distributed
from gbun.callbacks import History
from gbun.collectives import WorkerError

torch = pytest.importorskip("torch")
jobs = pytest.importorskip("tests.worker_jobs")
pytestmark = pytest.mark.slow
TOLERANCE = 2e-5  # of the deviation: chunks are summed in float32, and workers cut them elsewhere
FROZEN = f"no sign of life for {jobs.TIMEOUT:g} s"


def launch(job, size, args=()):
    return distributed.launch(job, size, args, timeout=jobs.PATIENCE)


def start_launcher(job, size, *args):
    """Start a process that launches a job and prints its results."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from tests import worker_jobs; from gbun import distributed\n"
        f"if __name__ == '__main__': print(distributed.launch(worker_jobs.{job}, {size}, {args}, timeout=120.0))"
    )
    folder = str(Path(__file__).parents[1])
    return subprocess.Popen([sys.executable, "-c", code, folder], stdout=subprocess.PIPE)


def train_alone(kind, params, n_rounds, **options):
    X, y = jobs.rows(kind)
    model = gbun.train({"n_neurons": 32, **params}, (X, y), n_rounds, task=jobs.task_of(kind), **options)
    return model.decision_function(X[:100])


def assert_close(scores, expected, tolerance=TOLERANCE):
    np.testing.assert_allclose(scores, expected, atol=tolerance * expected.std())


def find_workers(pid):
    """Return the running grandchildren of a process: its child is the server that forks workers."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rsplit(")", 1)[1].split()[:2]
        except OSError:  # it has just ended
            continue
        if state != "Z":
            parents[int(stat.parent.name)] = int(parent)
    return [p for p, parent in parents.items() if parents.get(parent) == pid]


@pytest.fixture(autouse=True)
def _no_worker_is_left():
    yield
    assert jobs.wait_for(lambda: not find_workers(os.getpid()))


@pytest.mark.parametrize(("size", "kind"), [(2, "sparse"), (3, "classes")])
def test_processes_train_the_model_of_one_with_metrics_of_all_rows(size, kind):
    params = {"gram_rows": 0.5, "n_neurons": 64, "eval_metric": "auc" if kind == "sparse" else "log_loss"}
    found = launch(jobs.train_with_evals, size, (kind, params, 6))
    history = History()
    expected = train_alone(kind, params, 6, evals={"valid": jobs.rows(kind, 600, seed=1)}, callbacks=[history])
    for metric, values in history.values["valid"].items():
        np.testing.assert_allclose(found[0][3]["valid"][metric], values, atol=5e-4 if metric == "auc" else 1e-6)
    for scores, n_rounds, _, _ in found:
        assert n_rounds == 6
        assert_close(scores, expected)
        np.testing.assert_array_equal(scores, found[0][0])  # the same bits on all workers


@pytest.mark.parametrize("transport", ["float32", "int16"])
def test_traffic_is_that_of_the_formula_and_independent_of_rows_and_features(transport):
    K, T, size = 128, 5, 3
    params = {"n_neurons": K, "init": "constant"}
    dense, sparse = (
        launch(jobs.measure_traffic, size, (kind, params, T, transport))[0] for kind in ("dense", "sparse")
    )
    sent, received = dense.sent[:, 2:], dense.received[:, 2:]  # after the first round
    np.testing.assert_array_equal(sent, sparse.sent[:, 2:])
    np.testing.assert_array_equal(received, sparse.received[:, 2:])
    large = K * (K + 1) // 2 + K
    up = (4 * large if transport == "float32" else 2 * large + 4 * -(-K * (K + 1) // 512) + 4) + 8 * (2 * K + 2)
    down = 4 * (K + 2 * K) + 2 * 8 + 1  # head and partition; learning rate and curvature; whether it is over
    np.testing.assert_array_equal(sent, [[(size - 1) * down], [up], [up]] * np.ones(T - 1, dtype=int))
    np.testing.assert_array_equal(sent.sum(axis=0), received.sum(axis=0))
    assert sent.max() < 0.6 * (2 * (size - 1) / size) * 4 * K * K  # a ring all-reduce of the full square
    assert re.match(r"3 workers, 5 rounds; bytes a worker and round: [\d,]+ sent", str(dense))


@pytest.mark.parametrize(
    ("how", "rank", "cause"),
    [
        ("raised", 1, "ZeroDivisionError: in the user's objective"),
        ("memory", 2, "MemoryError: no more of it"),
        ("killed", 2, ".*killed"),
        ("killed", 0, ".*killed"),
        ("frozen", 1, FROZEN),
        ("frozen", 0, FROZEN),
    ],
)
def test_worker_that_fails_ends_the_job_on_all_with_its_cause(how, rank, cause):
    with pytest.raises(WorkerError, match=f"worker {rank} of 3 failed: {cause}") as raised:
        launch(jobs.fail, 3, (how, rank))
    assert raised.value.rank == rank


@pytest.mark.parametrize(("how", "cause"), [("raised", "ValueError: its data is gone"), ("frozen", FROZEN)])
def test_worker_that_fails_before_it_trains_ends_the_job_too(how, cause):
    with pytest.raises(WorkerError, match=f"worker 1 of 3 failed: {cause}"):
        launch(jobs.fail_before_training, 3, (how,))


@pytest.mark.parametrize(
    ("how", "cause"),
    [("killed", "cannot be reached|its connection broke"), ("frozen", "has not answered for 6 s")],
)
def test_loss_of_the_worker_that_keeps_the_store_is_named(how, cause, tmp_path):
    code = "import sys; sys.path.insert(0, sys.argv[1]); from tests import worker_jobs\n"
    code += "worker_jobs.fail_in_own_group(sys.argv[2], int(sys.argv[3]), sys.argv[4])"
    given = [sys.executable, "-c", code, str(Path(__file__).parents[1]), str(tmp_path)]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo"}
    workers = [subprocess.Popen([*given, str(r), how], stdout=subprocess.PIPE, env=environment) for r in range(2)]
    try:
        error = workers[1].communicate(timeout=2 * jobs.PATIENCE)[0].decode()
        assert re.match(f"worker 0.*({cause})", error), error
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def test_message_that_is_not_authentic_ends_the_job():
    cause = "its connection broke: a message is not from a worker of this job, or was changed on its way"
    with pytest.raises(WorkerError, match=f"worker 1 of 3 failed: {cause}"):
        launch(jobs.forge_messages, 3)


def test_every_remaining_worker_knows_the_cause_and_they_can_train_again():
    """As in a process group of the user: the processes go on."""
    found = launch(jobs.fail_and_train_again, 3)
    causes = [
        "ZeroDivisionError: in the user's objective",
        "ValueError: transport must be one of float64, float32, int16, got 'float8'",
        "ValueError: timeout must be a positive number of seconds, got 0",
    ]
    differs = "ValueError: transport must be the same on all workers, got 'float32' on ranks 0, 2, 'int16' on rank 1"
    assert found[1][0] == [*causes, differs]
    for errors, _ in (found[0], found[2]):
        assert errors == [*(f"worker 1 of 3 failed: {cause}" for cause in causes), differs]
    X, y = jobs.rows(n=300)
    expected = gbun.train({"n_neurons": 16}, (X, y), 3).decision_function(X)
    for _, scores in found:
        assert_close(scores, expected, 1e-9)


def test_slow_worker_that_is_alive_is_waited_for():
    """For more pulses than are sent in the timeout, after which a worker without pulses has failed."""
    first, second = launch(jobs.be_slow, 2)
    assert first == second > jobs.PULSES_PER_TIMEOUT


@pytest.mark.parametrize(("patience", "cut", "n_left"), [(None, 8, 6), (4, 10, 9)])
def test_interrupted_training_goes_on_with_another_number_of_workers(patience, cut, n_left, tmp_path):
    """With patience, the best round was before the cut, and the rounds after it count."""
    n_rounds, path = 16, tmp_path / "c.gbun"
    args = str(path), n_rounds, True, patience
    with pytest.raises(WorkerError, match=r"worker 0 of 3 failed: .*SIGKILL"):
        launch(jobs.train_with_checkpoints, 3, (*args, cut))
    assert gbun.load_model(path).n_rounds == n_left
    assert path.stat().st_size < 50_000
    scores, n_kept, best = launch(jobs.train_with_checkpoints, 2, args)[0]
    expected = launch(jobs.train_with_checkpoints, 2, (str(tmp_path / "d.gbun"), *args[1:]))[0]
    assert (n_kept, best) == expected[1:]
    assert n_kept == (7 if patience else n_rounds)
    assert_close(scores, expected[0])


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("columns", "must have the same columns on all workers, got 6 on ranks 0, 2, 5 on rank 1"),
        ("sets", "evals must name the same sets"),
        ("parameters", "n_neurons must be the same on all workers, got 16 on ranks 0, 2, 32 on rank 1"),
        ("target", "worker 2 of 3 failed: ValueError: y has NaN"),
    ],
)
def test_workers_with_different_arguments_all_end(what, text):
    with pytest.raises(WorkerError, match=text):
        launch(jobs.train_with_differences, 3, (what,))


def test_groups_and_consecutive_trainings():
    found = launch(jobs.train_in_group_of_two, 3)
    assert found[1] is None
    assert found[0].shape == found[2].shape == (5,)
    assert launch(jobs.train_twice, 2) == [[2, 3], [2, 3]]


def test_simultaneous_trainings_in_groups_of_the_same_processes():
    found = launch(jobs.train_in_two_groups, 2)
    for kind, *of_workers in zip(("dense", "classes"), *found, strict=True):
        X, y = jobs.rows(kind, 300)
        single = gbun.train({"n_neurons": 16}, (X, y), 20, task=jobs.task_of(kind))
        for scores in of_workers:
            assert_close(scores, single.decision_function(X[:50]), 1e-9)


def test_shares_that_are_empty_of_one_row_of_one_class_or_of_few_columns():
    """With sockets as with threads."""
    whats = ("empty", "one row", "one class", "columns")
    by_share = list(zip(*launch(jobs.train_on_unusual_shares, 3, whats), strict=True))
    empty, one_row, one_class, columns = by_share
    assert empty[1][0] == (0, 6)
    assert one_row[1][0] == (1, 6)
    assert [n_classes for _, n_classes, _ in one_class] == [1, 1, 2]
    assert len({shape[1] for shape, _, _ in columns}) == 3
    for what, of_workers in zip(whats, by_share, strict=True):
        kind, (X, y), _ = jobs.divide_unusually(what)
        single = gbun.train({"n_neurons": 32}, (X, y), 4, task=jobs.task_of(kind))
        for _, _, scores in of_workers:
            assert_close(scores, single.decision_function(X), 1e-9)


def test_simultaneous_jobs_do_not_disturb_each_other():
    for process in [start_launcher("train_twice", 2) for _ in range(2)]:
        assert process.communicate(timeout=300)[0].decode().split("\n")[0] == "[[2, 3], [2, 3]]"
        assert process.returncode == 0


def test_workers_end_with_the_process_that_launched_them(tmp_path):
    parent = start_launcher("train_and_tell", 2, str(tmp_path))
    try:
        assert jobs.wait_for(lambda: len(list(tmp_path.iterdir())) == 2)  # both are in the midst of a training
        workers = find_workers(parent.pid)
    finally:
        parent.kill()
        parent.communicate()
    assert len(workers) == 2
    assert jobs.wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))


def test_missing_workers_are_named():
    X, y = jobs.rows(n=60)
    with pytest.raises(ValueError, match=r"needs a process group: call torch\.distributed\.init_process_group"):
        distributed.train({}, (X, y), 2)


@pytest.mark.parametrize("n_workers", [0, 10**6])
def test_number_of_workers_is_checked_before_any_is_started(n_workers):
    with pytest.raises(ValueError, match=rf"n_workers must be from 1 to \d+ on this machine .*, got {n_workers}"):
        distributed.launch(print, n_workers)
