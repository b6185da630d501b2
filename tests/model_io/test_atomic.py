"""Where files are written: probed before training, complete or not at all, with the mode of the file they replace."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

import gbun
from gbun.callbacks import Checkpoint
from gbun.model_io import atomic
from gbun.model_io.atomic import probe_target, write_atomically

ROWS = np.random.default_rng(0).normal(size=(30, 2))


@pytest.mark.skipif(sys.platform == "win32", reason="has no such modes")
def test_a_file_keeps_its_mode(tmp_path):
    path = tmp_path / "model.gbun"
    path.write_bytes(b"old")
    path.chmod(0o640)
    write_atomically(path, [b"new"])
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o640)


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder in which even root cannot write")
def test_what_cannot_be_written_is_found_before_training():
    rounds = []
    with pytest.raises(OSError, match=r"/proc/self/model.gbun cannot be written: /proc/\d+ takes no new file"):
        gbun.train(
            {"n_neurons": 4, "objective": lambda y, s, w: rounds.append(1) or (w * (s - y), w)}, (ROWS, ROWS[:, 0]), 1,
            callbacks=[Checkpoint("/proc/self/model.gbun")],
        )  # fmt: skip
    assert len(rounds) < 5  # of the start, not of a round


def test_a_full_disk_is_found_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic.shutil, "disk_usage", lambda folder: SimpleNamespace(total=10**9, free=1000))
    with pytest.raises(OSError, match="has 1,000 bytes free, expected 1,048,576"):
        probe_target(tmp_path / "model.gbun")


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


@pytest.mark.skipif(sys.platform == "win32", reason="has no such files")
@pytest.mark.parametrize("make", [os.mkfifo, make_socket], ids=["pipe", "socket"])
def test_what_is_no_regular_file_is_not_replaced(tmp_path, monkeypatch, make):
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    make(Path("m.gbun"))
    Path("link.gbun").symlink_to("m.gbun")
    kind = stat.S_IFMT(Path("m.gbun").stat().st_mode)
    model = gbun.train({"n_neurons": 4}, (ROWS, ROWS[:, 0]), 1)
    rounds = []
    for name in ("m.gbun", "link.gbun"):
        with pytest.raises(ValueError, match=f"{name} is not a regular file"):
            model.save_model(name)
        with pytest.raises(ValueError, match=f"{name} is not a regular file"):
            gbun.train(
                {"n_neurons": 4, "objective": lambda y, s, w: rounds.append(1) or (w * (s - y), w)},
                (ROWS, ROWS[:, 0]), 9, callbacks=[Checkpoint(name)],
            )  # fmt: skip
        with pytest.raises(ValueError, match=f"{name} is not a regular file"):
            probe_target(name)
    assert len(rounds) < 10  # of the start, not of a round
    assert stat.S_IFMT(Path("m.gbun").stat().st_mode) == kind
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.gbun", "m.gbun"]


@pytest.mark.parametrize(
    "usage", [Mock(return_value=SimpleNamespace(total=0, free=0)), Mock(side_effect=OSError("not supported"))]
)
def test_a_disk_that_does_not_tell_its_size_is_written_to(tmp_path, monkeypatch, usage):
    monkeypatch.setattr(atomic.shutil, "disk_usage", usage)
    probe_target(tmp_path / "model.gbun")
    usage.assert_called_once()


def test_a_file_system_without_modes_is_written_to(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic.shutil, "copymode", Mock(side_effect=PermissionError(1, "not permitted")))
    path = tmp_path / "model.gbun"
    path.write_bytes(b"old")
    write_atomically(path, [b"new"])
    assert path.read_bytes() == b"new"


def test_an_error_of_what_is_to_be_written_is_raised_as_it_is(tmp_path):
    error = FileNotFoundError(2, "no such file", "rows.csv")

    def chunks():
        yield b"some"
        raise error

    with pytest.raises(FileNotFoundError) as raised:
        write_atomically(tmp_path / "model.gbun", chunks())
    assert raised.value is error
    assert not list(tmp_path.iterdir())


def test_an_error_while_the_new_file_is_removed_hides_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "unlink", Mock(side_effect=PermissionError(1, "not permitted")))
    monkeypatch.setattr(atomic.os, "fsync", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(OSError, match=r"model\.gbun cannot be written: No space left on device"):
        write_atomically(tmp_path / "model.gbun", [b"new"])


WRITE_HALF = """
import os, signal, sys
from gbun.model_io.atomic import write_atomically

def chunks():
    yield bytes(10**6)
    os.kill(os.getpid(), signal.SIGKILL)

write_atomically(sys.argv[1], chunks())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="has no such signal")
def test_process_killed_while_it_saves_leaves_the_model_of_before(tmp_path):
    path = tmp_path / "model.gbun"
    model = gbun.train({"n_neurons": 4}, (ROWS, ROWS[:, 0]), 2)
    model.save_model(path)
    before = path.read_bytes()
    done = subprocess.run([sys.executable, "-c", WRITE_HALF, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == before
    (left,) = (file for file in tmp_path.iterdir() if file != path)
    assert left.match(".gbun-*.tmp")
    model.save_model(path)  # what was left is in nobody's way
    assert gbun.load_model(path).n_rounds == 2


TRAIN_UNTIL_FULL = """
import resource, sys
import numpy as np
import gbun
from gbun.callbacks import Checkpoint

X = np.random.default_rng(0).normal(size=(30, 2))
gbun.train({"n_neurons": 4}, (X, X[:, 0]), 2).save_model(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000))
for use in sys.argv[1:]:
    try:
        model = gbun.train({"n_neurons": 64}, (X, X[:, 0]), 100, callbacks=[Checkpoint(use)] * use.endswith("c.gbun"))
        model.save_model(use)
    except OSError as error:
        print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="has no limit of this kind")
def test_disk_that_fills_up_leaves_the_files_of_before(tmp_path):
    """A limit of the system on the size of files stands for the disk: a write is refused after some bytes."""
    model, checkpoint = tmp_path / "m.gbun", tmp_path / "c.gbun"
    command = [sys.executable, "-c", TRAIN_UNTIL_FULL, str(model), str(checkpoint)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for path, line in zip((model, checkpoint), done.stdout.splitlines(), strict=True):
        assert f"{path} cannot be written: File too large" in line
    assert gbun.load_model(model).n_rounds == 2
    assert 10 <= gbun.load_model(checkpoint).n_rounds < 100
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.gbun", "m.gbun"]


def test_temporary_files_of_killed_processes_are_removed_after_a_day(tmp_path):
    old, young = tmp_path / ".gbun-old.tmp", tmp_path / ".gbun-young.tmp"
    for path in (old, young):
        path.touch()
    os.utime(old, (1.0, 1.0))
    probe_target(tmp_path / "model.gbun")
    assert [path.name for path in tmp_path.iterdir()] == [young.name]
