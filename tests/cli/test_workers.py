"""`gbun train` on several workers, started by its own launcher or by torchrun."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

import gbun

pytest.importorskip("torch")
jobs = pytest.importorskip("tests.worker_jobs")
pytestmark = pytest.mark.slow
SMALL = ["--n-neurons", "32", "--n-estimators", "5", "--timeout", "60", "--quiet"]
GBUN = [sys.executable, "-m", "gbun"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "gbun"]


def call(command, *arguments, folder, code=0):
    done = subprocess.run(
        [*command, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode == 0) == (code == 0), f"{done.stdout}\n{done.stderr}"
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workers")
    X, y = jobs.rows("sparse", 900)
    for name, rows in (("rows", slice(None)), ("part-0", slice(400)), ("part-1", slice(400, None))):
        dump_svmlight_file(X[rows], y[rows], str(folder / f"{name}.svm"))
    call(GBUN, "train", "rows.svm", "--model", "one.gbun", *SMALL, folder=folder)
    return folder


def assert_model_of_one_process(folder, name):
    X = jobs.rows("sparse", 900)[0]
    one, found = (gbun.load_model(folder / file) for file in ("one.gbun", name))
    np.testing.assert_array_equal(found.classes, one.classes)
    np.testing.assert_allclose(found.decision_function(X), one.decision_function(X), atol=1e-9)


def test_one_command_starts_workers_that_share_a_file(folder):
    out, _ = call(GBUN, "train", "rows.svm", "--model", "a.gbun", *SMALL, "--workers", 3, folder=folder)
    assert out.split("\n")[-3].split() == ["workers", "3"]
    assert_model_of_one_process(folder, "a.gbun")


def test_torchrun_starts_workers_with_a_file_each(folder):
    more = ["--checkpoint", "c.gbun", "--resume", "--valid", "rows.svm", "--eval-metric", "auc"]
    out, _ = call(TORCHRUN, "train", "part-{rank}.svm", "--model", "b.gbun", *SMALL, *more, folder=folder)
    assert "valid auc" in out
    assert_model_of_one_process(folder, "b.gbun")
    assert gbun.load_model(folder / "c.gbun").n_rounds == 5


def test_an_error_of_one_worker_is_printed_and_nothing_is_written(folder):
    command = [*GBUN, "train", "--workers", "3", "part-{rank}.svm", "--model", "never.gbun"]
    _, err = call(command, *SMALL, folder=folder, code=1)
    assert "error: worker 2 of 3 failed" in err
    assert "no such file" in err.lower()
    assert not (folder / "never.gbun").exists()


@pytest.mark.parametrize("receiver", ["all, as from a terminal", "the parent alone"])
def test_ctrl_c_ends_all_workers_and_leaves_a_checkpoint(receiver, folder):
    path = folder / f"{receiver}.gbun"
    options = ["--checkpoint", path.name, "--checkpoint-every", "7", "--workers", "2", "--model", "never.gbun"]
    options += ["--n-neurons", "32", "--n-estimators", "100000", "--init", "constant", "--quiet"]
    # In a new session, so that a signal to the whole process group does not reach the tests.
    command = [*GBUN, "train", "rows.svm", *options]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, start_new_session=True)
    try:
        assert jobs.wait_for(path.exists, 120.0)
        (os.kill if "parent" in receiver else os.killpg)(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=120)
        assert process.returncode == 130
        # The message is from the first worker, so that it ended by itself and was not killed.
        message = re.search("interrupted: ([0-9]+) rounds are in the checkpoint", " ".join(err.decode().split()))
        assert int(message[1]) == gbun.load_model(path).n_rounds
        assert "Traceback" not in err.decode()
        assert jobs.wait_for(lambda: not members(process.pid), 60.0)
    finally:
        if members(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
    assert not (folder / "never.gbun").exists()
    n_rounds, (X, y) = gbun.load_model(path).n_rounds, jobs.rows("sparse", 900)
    assert 0 < n_rounds < 100_000
    params = {"n_neurons": 32, "init": "constant"}
    resumed, one = (gbun.train(params, (X, y), n_rounds + 2, task="classification", resume=r) for r in (path, None))
    wanted = one.decision_function(X)
    np.testing.assert_allclose(resumed.decision_function(X), wanted, atol=1e-6 * wanted.std())


def members(group):
    """Return the processes of a process group that still run."""
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, process_group = stat.read_text().rsplit(")", 1)[1].split()[:3]
        except OSError:  # it has just ended
            continue
        if state != "Z" and int(process_group) == group:
            pids.append(int(stat.parent.name))
    return pids
