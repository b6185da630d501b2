"""`gbun train` on several workers: launched by itself, and by torchrun."""

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
jobs = pytest.importorskip("worker_jobs")
SMALL = ["--n-neurons", "32", "--n-estimators", "5", "--timeout", "20", "--quiet"]
GBUN = [sys.executable, "-m", "gbun"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "gbun"]


def call(command, *arguments, folder, code=0):
    done = subprocess.run(
        [*command, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode == 0) == (code == 0), f"{done.stdout}\n{done.stderr}"
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("workers")
    X, y = jobs.rows("sparse", 900)
    dump_svmlight_file(X, y, str(made / "rows.svm"))
    dump_svmlight_file(X[:400], y[:400], str(made / "own-0.svm"))
    dump_svmlight_file(X[400:], y[400:], str(made / "own-1.svm"))
    call(GBUN, "train", "rows.svm", "--model", "one.gbun", *SMALL, folder=made)
    return made


def same(folder, name):
    X = jobs.rows("sparse", 900)[0]
    one, found = (gbun.load_model(folder / file) for file in ("one.gbun", name))
    np.testing.assert_array_equal(found.classes, one.classes)
    np.testing.assert_allclose(found.decision_function(X), one.decision_function(X), atol=1e-9)


def test_one_command_starts_workers_that_share_a_file(folder):
    out, _ = call(GBUN, "train", "rows.svm", "--model", "a.gbun", *SMALL, "--workers", 3, folder=folder)
    assert out.split("\n")[-3].split() == ["workers", "3"]
    same(folder, "a.gbun")


def test_torchrun_starts_them_and_each_may_have_a_file_of_its_own(folder):
    more = ["--checkpoint", "c.gbun", "--resume", "--valid", "rows.svm", "--eval-metric", "auc"]
    out, _ = call(TORCHRUN, "train", "own-{rank}.svm", "--model", "b.gbun", *SMALL, *more, folder=folder)
    assert "valid auc" in out
    same(folder, "b.gbun")
    assert gbun.load_model(folder / "c.gbun").n_rounds == 5


def test_what_is_wrong_on_one_worker_is_told_and_nothing_is_written(folder):
    command = [*GBUN, "train", "--workers", "3", "own-{rank}.svm", "--model", "never.gbun"]
    _, err = call(command, *SMALL, folder=folder, code=1)
    assert "error: worker 2 of 3 failed" in err
    assert "no such file" in err.lower()
    assert not (folder / "never.gbun").exists()


@pytest.mark.parametrize("whom", ["all, as a terminal does", "the parent alone"])
def test_ctrl_c_ends_all_workers_and_leaves_a_checkpoint(whom, folder):
    path, asked = folder / f"{whom}.gbun", ["--checkpoint", f"{whom}.gbun", "--checkpoint-every", "7", "--workers", "2"]
    asked += ["--model", "never.gbun", "--n-neurons", "32", "--n-estimators", "100000", "--init", "constant", "--quiet"]
    # A session of its own: what a terminal sends to the whole process group does not reach the tests.
    command = [*GBUN, "train", "rows.svm", *asked]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, start_new_session=True)
    try:
        assert jobs.wait_for(path.exists, 60.0)
        (os.kill if "parent" in whom else os.killpg)(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 130
        # Words of the first worker: it ended by itself, and was not killed for want of an answer.
        held = re.search("interrupted: ([0-9]+) rounds are in the checkpoint", " ".join(err.decode().split()))
        assert int(held[1]) == gbun.load_model(path).n_rounds
        assert "Traceback" not in err.decode()
        assert jobs.wait_for(lambda: not members(process.pid), 5.0)
    finally:
        if members(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
    assert not (folder / "never.gbun").exists()
    n_left, (X, y) = gbun.load_model(path).n_rounds, jobs.rows("sparse", 900)
    assert 0 < n_left < 100_000
    params = {"n_neurons": 32, "init": "constant"}
    again, one = (gbun.train(params, (X, y), n_left + 2, task="classification", resume=r) for r in (path, None))
    wanted = one.decision_function(X)
    np.testing.assert_allclose(again.decision_function(X), wanted, atol=1e-6 * wanted.std())


def members(group):
    """Processes of a process group that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, own = stat.read_text().rsplit(")", 1)[1].split()[:3]
        except OSError:  # it has just ended
            continue
        if state != "Z" and int(own) == group:
            found.append(int(stat.parent.name))
    return found


def test_wrong_usage_is_told_before_anybody_starts(folder):
    for more, words in (
        (["--resume"], "--checkpoint"),
        (["--workers", "0"], "--workers"),
        (["--transport", "float8"], "--transport"),
    ):
        _, err = call(GBUN, "train", "rows.svm", "--model", "never.gbun", *more, folder=folder, code=2)
        assert words in err


def test_help_tells_of_workers():
    out, _ = call(GBUN, "train", "--help", folder=Path.cwd())
    assert "torchrun" in out
