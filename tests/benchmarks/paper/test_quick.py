"""The paper's experiments as anyone runs them, all of them at their smallest, and the report that comes of it."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("optuna")
pytest.importorskip("torch")
pytest.importorskip("lightgbm")
pytest.importorskip("xgboost")

from benchmarks.cells import Store
from benchmarks.network.namespaces import missing
from benchmarks.paper.__main__ import EXPERIMENTS
from benchmarks.paper.accuracy.judging import decode_rows
from benchmarks.paper.accuracy.tables import MAIN

from benchmarks.paper import accuracy, classes, rounds, uniformity

pytestmark = [pytest.mark.xdist_group("hosts"), pytest.mark.slow]  # two of them are on several hosts


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Findings in "found", and the report."""
    folder = tmp_path_factory.mktemp("quick")
    command = [sys.executable, "-m", "benchmarks.paper", "--quick", "--threads", "1", "--output", folder / "found"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(
        [*command, "--report", folder / "report"], cwd=Path(__file__).parents[3], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert used < 300, f"it is to end within five minutes, and used {used:.0f} s of a core"
    return folder


def test_the_report_has_all_experiments(folder):
    written = (folder / "report/README.md").read_text()
    assert "A quick run" in written
    assert "Not run" not in written
    for name, experiment in EXPERIMENTS.items():
        assert f"\n## {experiment.title}\n" in written
        if name in ("bandwidth", "scaling") and missing():
            continue
        findings = Store(folder / f"report/{name}.json").all()
        assert [one.name for one in findings] == [one.name for one in Store(folder / f"found/{name}.json").all()]
        assert not {one.name: one.failed for one in findings if one.failed}
        assert all(one.about["seeds"] or "seed" in one.settings for one in findings)
        assert all({"packages", "cpu", "code", "seeds"} <= one.about.keys() for one in findings)


def test_accuracy(folder):
    findings = {one.name: one for one in Store(folder / "found/accuracy.json").all()}
    ours, theirs, protocol = (findings[f"classes / {who}"].found for who in ("gbun", "lightgbm", "paper's protocol"))
    for found in (ours, theirs):
        assert found["trials"] >= 1
        assert found["mean"] == pytest.approx(np.mean([one["score"] for one in found["refits"]]))
        assert 0.5 < found["mean"] < 1.0
        assert len(found["refits"]) == 2
        assert len(decode_rows(found["answers"])[1]) == found["test rows"] == 1000
        assert found["curve"]["seconds"] == sorted(found["curve"]["seconds"])
        assert found["curve"]["best"] == pytest.approx(max(found["curve"]["scores"]), abs=0.05)
    assert ours["refits"][0]["papers"] != ours["refits"][1]["papers"]
    assert (ours["curve"]["rounds"][0], theirs["curve"]["rounds"][0]) == (0, 1)
    assert protocol["metric"] == "macro_precision"
    assert 0.4 < protocol["best"] < 1.0
    rows = accuracy.EXPERIMENT.tables([*findings.values()])
    assert {"clicks", "classes"} == {row["data"] for row in rows if row["table"] == MAIN}
    assert (folder / "report/accuracy_convergence.png").stat().st_size > 0


def test_rounds(folder):
    findings = Store(folder / "found/rounds.json").all()
    assert [one.name for one in findings] == ["clicks", "classes"]
    for one in (learner for finding in findings for learner in finding.found["learners"].values()):
        assert one["note"] == ""
        assert 3 <= one["rounds"] <= 10
        assert 0 < one["median"] < 10
        assert one["deviation"] > 0
        assert one["first round"] > 0
    table = [row for row in rounds.EXPERIMENT.tables(findings) if row["table"] == rounds.TABLE]
    assert all(row["in words"].startswith("gbun ") and {"gbun", "XGBoost", "LightGBM"} <= row.keys() for row in table)
    assert (folder / "report/rounds.png").stat().st_size > 0


def test_classes(folder):
    sent, seconds = Store(folder / "found/classes.json").all()
    titles = {row["table"] for row in classes.EXPERIMENT.tables([sent, seconds])}
    assert titles == {classes.SECONDS.format("dense", 64), classes.BYTES.format(64)}
    # In float32, a worker sends a Gram matrix for all classes and a column of K for each, and little else; the root's
    # answer is a column for each.
    n_classes, most = sent.settings["classes"], sent.found["most"]
    assert most == pytest.approx(4 * (64 * 65 / 2 + 64 * n_classes), rel=0.15)
    assert 2 * sent.found["bytes"] == pytest.approx(most + 4 * 64 * n_classes, rel=0.15)
    assert all(seconds.found[f"{name} s"] > 0 for name in classes.LEARNERS)
    assert (folder / "report/classes.png").exists()


def test_uniformity(folder):
    findings = Store(folder / "found/uniformity.json").all()
    assert len(findings) == 15
    assert uniformity.tables(findings)[-1]["met"] is True
    pictures = {path.name for path in (folder / "report").glob("uniformity_*.png")}
    assert pictures == {"uniformity_histogram.png", "uniformity_blocks.png"}
