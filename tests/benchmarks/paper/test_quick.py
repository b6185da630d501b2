"""The paper's experiments as anyone runs them, all of them at their smallest, and the report that comes of it."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("optuna")
pytest.importorskip("torch")

from benchmarks.network.namespaces import missing
from benchmarks.paper.__main__ import NAMES

pytestmark = [pytest.mark.xdist_group("hosts"), pytest.mark.slow]  # two of them are on several hosts


@pytest.mark.slow
def test_the_whole_quick_form(tmp_path):
    command = [sys.executable, "-m", "benchmarks.paper", "--quick", "--threads", "1", "--output", tmp_path / "found"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(
        [*command, "--report", tmp_path / "report"], cwd=Path(__file__).parents[3], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert used < 300, f"it is to end within five minutes, and used {used:.0f} s of a core"
    written = (tmp_path / "report/index.html").read_text()
    assert "A quick run" in written
    assert "cells were not run" not in written
    for name in NAMES:
        assert f'<section id="{name}"' in written
        if name in ("bandwidth", "scaling") and missing():
            continue
        findings = json.loads((tmp_path / f"report/{name}.json").read_text())
        failed = {one["name"]: one["failed"] for one in findings if one["failed"]}
        assert not failed
        assert (tmp_path / f"found/{name}.json").exists()
        assert all(one["about"]["seeds"] or "seed" in one["settings"] for one in findings)
        assert all({"packages", "cpu", "code", "seeds"} <= one["about"].keys() for one in findings)
