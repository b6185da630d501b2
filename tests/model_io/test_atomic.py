"""Where files are written: probed before training, complete or not at all, with the mode of the file they replace."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

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
    monkeypatch.setattr(atomic.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 1000}))
    with pytest.raises(OSError, match="has 1,000 bytes free, expected 1,048,576"):
        probe_target(tmp_path / "model.gbun")


def test_temporary_files_of_killed_processes_are_removed_after_a_day(tmp_path):
    old, young = tmp_path / ".gbun-old.tmp", tmp_path / ".gbun-young.tmp"
    for path in (old, young):
        path.touch()
    os.utime(old, (1.0, 1.0))
    probe_target(tmp_path / "model.gbun")
    assert [path.name for path in tmp_path.iterdir()] == [young.name]
