"""The peer learners and the demo."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from rich.console import Console

from gbun import demo, peers
from gbun.datasets import make_clicks

PNG = b"\x89PNG\r\n\x1a\n"


# Peers


@pytest.mark.parametrize("learner", peers.LEARNERS, ids=lambda learner: learner.name)
@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_learners_fit_every_task_behind_one_signature(learner, task):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    signal = X[:, 0] + X[:, 1]
    y = {"binary": (signal > 0) * 1, "multiclass": np.digitize(signal, [-1, 1]), "regression": signal}[task]
    split = peers.Split(task, X[:200], y[:200], X[200:], y[200:])
    losses: list[float] = []
    # One thread: spinning threads wait long for each other when tests run in parallel.
    predict = learner.fit(split, 10, losses.append, n_jobs=1)
    assert len(losses) == 10
    assert losses[-1] < losses[0]
    assert np.shape(predict(X[200:])) == ((100, 3) if task == "multiclass" else (100,))
    if task != "multiclass":
        assert np.corrcoef(predict(X[200:]), y[200:])[0, 1] > 0.7


# The demo


@pytest.mark.slow
def test_demo_prints_all_rows_and_writes_the_picture(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    demo.run(tmp_path / "results", quick=True)
    out, err = capsys.readouterr()
    for problem in demo.make_problems(quick=True):
        assert problem.name in out
        for learner in peers.LEARNERS:
            assert f"{problem.name}, {learner.name}: AUC 0." in err
    for learner in peers.LEARNERS:
        assert out.count(f" {learner.name} ") >= 2
    assert out.count("AUC 0.") == 6
    assert "failed" not in out
    assert f"Learning curves: {tmp_path / 'results' / demo.PICTURE}" in out
    assert (tmp_path / "results" / demo.PICTURE).read_bytes().startswith(PNG)


class Endless:
    """Reports one round, takes memory and does not return."""

    name = "endless"

    def is_available(self):
        return True

    def fit(self, split, n_rounds, on_round):
        if n_rounds > 2:  # not in the warm-up
            self.ballast = np.ones(8_000_000)
            on_round(0.5)
            threading.Event().wait()


class Broken(Endless):
    name = "broken"

    def fit(self, split, n_rounds, on_round):
        raise RuntimeError("out of [order]")


class Dying(Endless):
    name = "dying"

    def fit(self, split, n_rounds, on_round):
        os._exit(7)


class Absent(Endless):
    name = "absent"

    def is_available(self):
        return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("learner", "score", "seconds"),
    [
        (Endless(), "-", "> 1 s, stopped"),
        (Broken(), "failed: RuntimeError: out of [order]", ""),
        (Dying(), "died with exit code 7", ""),
        (Absent(), "not installed: pip install 'gbun[peers]'", ""),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_learner_without_a_result_has_a_row_with_the_reason(learner, score, seconds, monkeypatch):
    problem = demo.DemoProblem("clicks", "binary", make_small_clicks, 5, 1.0)
    clock = [0.0]  # time passes when the first round is reported
    monkeypatch.setattr(demo, "perf_counter", lambda: clock[-1])
    with demo._make_progress() as progress:
        monkeypatch.setattr(progress, "update", lambda *_, **__: clock.append(2.0))
        result = demo.run_learner(problem, learner, progress)
    assert demo.format_cells(problem, result)[:2] == (score, seconds)
    if learner.name == "endless":
        assert result.curve == (0.5,)
        assert result.megabytes is None or 60 < result.megabytes < 200
        assert demo.curve_note(result) == "stopped after 1 s"


def make_small_clicks():
    return make_clicks(300, 10_000)


def test_notes_with_brackets_reach_the_table(capsys):
    problem = demo.make_problems(quick=True)[0]
    note = demo.DemoResult(note=f"not installed: {peers.INSTALL}")
    scored = demo.DemoResult(score=0.9, seconds=1.0, megabytes=0.2)
    results = {learner.name: scored if learner.name == "gbun" else note for learner in peers.LEARNERS}
    Console(width=120).print(demo.make_table([demo.Comparison(problem, (569, 30), results)]))
    out = capsys.readouterr().out
    assert out.count("not installed: pip install 'gbun[peers]'") == 2
    assert "AUC 0.9000" in out
    assert "< 1 MB" in out


def test_demo_without_matplotlib_still_ends_well(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo, "run_learner", lambda problem, learner, progress: demo.DemoResult(0.9, 1.0, 5.0))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    demo.run(tmp_path, quick=True)
    assert "No learning curves: plotting needs matplotlib: pip install 'gbun[plots]'" in " ".join(
        capsys.readouterr().out.split()
    )


@pytest.mark.slow
def test_peak_memory_is_measured_from_the_reset():
    """In a new process: this one may be freeing memory of other tests."""
    code = (
        "import numpy as np; from gbun import demo; before = demo.peak_megabytes(reset=True);"
        "ballast = None if before is None else np.ones(16_000_000); del ballast;"  # 122 MB
        "print(before is None or 100 < demo.peak_megabytes() - before < 200)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "True"
