"""The report: it has what was run and what was not, and no folder of this machine."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("optuna")
pytest.importorskip("matplotlib")

from benchmarks.cells import Absent, Cell, Finding
from benchmarks.paper.experiment import Experiment, draw_panels
from benchmarks.paper.page import Section, make_page
from benchmarks.timing import Failed

from benchmarks import report
from benchmarks.paper import __main__ as command


def failing():
    raise Failed("no answer in 600 s")


def raising(error):
    def cells(plan):
        raise error

    return cells


def experiment(name, **more):
    """An experiment with a goal, a table and a picture."""

    def cells(plan):
        found = {"score": 0.9, "where": f"{plan.given.data}/rows"}
        return [Cell("first | <b>", {}, lambda: found), Cell("second", {}, failing)]

    def tables(findings):
        return [
            *({"table": name, "cell": one.name, "where": one.found.get("where"), "n": 1} for one in findings),
            report.goal(name, "score", 0.9 if findings else None, least=0.8),
            report.goal(name, "cost", 2, most=1),
        ]

    def draw(findings, folder):
        return draw_panels([lambda ax: ax.plot([1, 2, 3])], folder / f"{name}.png", "A picture and its caption.", 3.0)

    parts = {"cells": cells, "tables": tables, "draw": draw} | more
    return Experiment(name=name, title=f"Of {name}", text="What was\ndone <here>.", **parts)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs the command with some experiments in a folder of its own; how it ended, what it printed, and its page."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()

    def run(*arguments, data=("--data", str(tmp_path / "data")), **changes):
        monkeypatch.setattr(command, "EXPERIMENTS", {name: experiment(name, **more) for name, more in changes.items()})
        monkeypatch.setattr(sys, "argv", ["paper", *data, *arguments])
        ended = ""
        try:
            command.main()
        except SystemExit as end:
            ended = str(end.code)
        printed, written = capsys.readouterr(), tmp_path / "docs/benchmarks/README.md"
        return ended, printed.out + printed.err, written.read_text() if written.exists() else ""

    return run


def test_the_report_has_what_was_run_and_what_was_not(run, tmp_path):
    def missing():
        raise Absent(f"no folder letter in {tmp_path}/data")

    some = [Cell("first", {}, lambda: {"score": 0.9}), Cell("letter", {}, missing)]
    ended, _, written = run(
        accuracy={}, bandwidth={"cells": raising(Failed("namespaces need root"))}, rounds={"cells": lambda plan: some}
    )
    assert ended == ""
    for words in (
        "What was done \\<here>.",
        "| cell | where | n |\n|---|---|---:|\n| first \\| \\<b> | FOLDER/rows | 1 |\n| second |  | 1 |",
        "![Of accuracy](accuracy.png)\n\n*A picture and its caption.*",
        "| second | no answer in 600 s |",
        "It cannot be run here: namespaces need root",
        "0 of 0 planned cells were measured (never",
        "1 of 2 planned cells were measured",
        "Not run:\n\n- letter: no folder letter in FOLDER\n",
        "2 met, 3 not met, 1 not measured",
        "python -m benchmarks.paper --data FOLDER\n",
    ):
        assert words in written
    folder = tmp_path / "docs/benchmarks"
    for link in re.findall(r"\]\(([^)]+)\)", written):
        assert (folder / link).stat().st_size > 0
    assert not any(str(tmp_path) in path.read_text() for path in folder.glob("*.[mj]*"))
    kept = {name: json.loads((folder / f"{name}.json").read_text()) for name in ("accuracy", "bandwidth", "rounds")}
    assert [one["failed"] for one in kept["accuracy"]] == ["", "no answer in 600 s"]
    assert [len(kept[name]) for name in ("bandwidth", "rounds")] == [0, 1]


def test_what_is_not_measured_now_is_reported_all_the_same(run, tmp_path):
    ended, _, written = run("--only", "accuracy", accuracy={}, classes={})
    assert ended == ""
    assert "2 of 2 planned cells were measured" in written
    assert "0 of 2 planned cells were measured" in written
    for found in (tmp_path / "results/paper").glob("*.json"):
        found.unlink()  # a new clone knows the findings of the report
    wanted = {"cells": raising(Absent("--data FOLDER is needed"))}
    for more in ({}, wanted):
        _, shown, again = run("--no-run", accuracy=more)
        assert "2 of 2 planned cells were measured" in again
        assert "[1/" not in shown


def test_after_an_error_the_others_are_run_and_the_report_stays(run, tmp_path):
    _, _, before = run("--no-run", accuracy={}, rounds={})
    broken = {"tables": raising(ZeroDivisionError("a bug"))}
    ended, shown, after = run(accuracy=broken, rounds={})
    assert ended == "failed: accuracy; there is no report, what was measured is kept"
    assert "ZeroDivisionError: a bug" in shown
    assert before == after
    assert len(json.loads((tmp_path / "results/paper/rounds.json").read_text())) == 2


def test_what_cannot_work_ends_the_command_before_anything_is_run(run, tmp_path):
    wrong = {"cells": raising(Absent("--data must have some of letter"))}
    ended, shown, written = run(accuracy=wrong, classes={})
    assert (ended, written) == ("--data must have some of letter", "")
    assert "[1/" not in shown
    assert run("--only", "classes", accuracy=wrong, classes={})[0] == ""  # it does not need the folder
    ended, printed, _ = run("--only", "accuracy,speed", accuracy={})
    assert "--only: unknown ['speed']; known are accuracy" in printed
    (tmp_path / "results/paper/classes.json").write_text("[{")
    ended, shown, _ = run("--only", "accuracy", accuracy={}, classes={})
    assert "classes.json has no findings that can be read, move it elsewhere" in ended
    assert "[1/" not in shown
    interrupted = {"cells": raising(KeyboardInterrupt)}
    assert run(rounds=interrupted)[0].startswith("interrupted: cells that were measured are kept")


def test_the_page_has_all_machines_and_dates():
    here = report.about(2, False)
    abouts = [here | {"date": "2026-11-01T00:00:00+00:00", "python": "3.10.1"}, here]
    findings = [Finding("a", {}, 5.0, about, {"x": 1}) for about in abouts]
    written = make_page([Section(experiment("some"), findings, [], [], [])], "python", quick=True)
    assert f"Measured 2026-11-01 to {abouts[1]['date'][:10]}" in written
    assert f"| python | 3.10.1; {abouts[1]['python']} |" in written
    assert "Not all parts were measured alike: python." in written
    assert "A quick run" in written
    assert f"| numpy | {here['packages']['numpy']} |" in written


def test_the_published_report_is_small_and_its_links_are_good():
    folder = Path(__file__).parents[3] / "docs/benchmarks"
    assert sum(path.stat().st_size for path in folder.iterdir()) < 10**6
    for link in re.findall(r"\]\(([^)]+)\)", (folder / "README.md").read_text()):
        assert (folder / link).exists()
