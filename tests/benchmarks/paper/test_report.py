"""The report: it has what was run and what was not, and a real browser can show it on a phone."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from benchmarks.cells import Absent, Cell, Finding
from benchmarks.paper.experiment import Experiment, draw_panels
from benchmarks.paper.page import Section
from benchmarks.timing import Failed

from benchmarks import report
from benchmarks.paper import __main__ as command
from benchmarks.paper import browser, page

BROWSER = browser.find()


def needs_browser(test):
    return pytest.mark.slow(pytest.mark.skipif(BROWSER is None, reason=f"no browser: {', '.join(browser.NAMES)}")(test))


MANY = [f"a column with a name {number}" for number in range(30)]


def failing():
    raise Failed("no answer in 600 s")


def experiment(name, **more):
    """An experiment with a goal, a table wider than any screen, and a picture."""

    def cells(plan):
        found = {"score": 0.9, "where": f"{plan.given.data}/rows"}
        return [Cell("first <b>", {}, lambda: found), Cell("second", {}, failing)]

    def tables(findings):
        wide = {"table": f"{name}: wide", "cell": "w" * 300, **dict.fromkeys(MANY, 1234567)}
        wide["note"] = str([finding.found.get("where") for finding in findings])
        return [
            wide,
            report.goal(name, "score", 0.9 if findings else None, least=0.8),
            report.goal(name, "cost", 2, most=1),
        ]

    def draw(findings, folder):
        return draw_panels([lambda ax: ax.plot([1, 2, 3])], folder / f"{name}.png", "A picture & its caption", 3.0)

    parts = {"cells": cells, "tables": tables, "draw": draw} | more
    return Experiment(name=name, title=f"Of {name}", text="What was done <here>.", **parts)


def cannot(plan):
    raise Failed("network namespaces need root")


def breaks(findings):
    raise ZeroDivisionError(f"a bug of {Path.cwd()}/some")


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs the command with some experiments in a folder of its own; how it ended, what it printed, and its page."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(browser, "NAMES", ("no-such-browser",))
    (tmp_path / "data").mkdir()

    def run(*arguments, **experiments):
        monkeypatch.setattr(command, "NAMES", tuple(experiments))
        monkeypatch.setattr(command, "import_experiments", lambda: experiments)
        monkeypatch.setattr(sys, "argv", ["paper", "--data", str(tmp_path / "data"), *arguments])
        ended = ""
        try:
            command.main()
        except SystemExit as end:
            ended = str(end.code)
        printed, written = capsys.readouterr(), tmp_path / "docs/benchmarks/index.html"
        return ended, printed.out + printed.err, written.read_text() if written.exists() else ""

    return run


@pytest.mark.slow
def test_the_others_go_on_where_one_cannot_be_run_or_fails(run, tmp_path, monkeypatch):
    ended, shown, written = run(
        accuracy=experiment("accuracy"),
        bandwidth=experiment("bandwidth", cells=cannot),
        rounds=experiment("rounds", tables=breaks),
        scaling=ModuleNotFoundError("No module named 'optuna'"),
        classes=experiment("classes"),
    )
    assert ended == "failed: rounds, scaling"
    assert f"ZeroDivisionError: a bug of {tmp_path}/some" in shown
    for words in (
        "It cannot be run here: network namespaces need root",
        "It failed: ZeroDivisionError: a bug of ./some",
        "[&#x27;FOLDER/rows&#x27;, None]",
        "It failed: ModuleNotFoundError: No module named &#x27;optuna&#x27;",
        "no answer in 600 s",
        "What was done &lt;here&gt;.",
        "2 met, 3 not met, 1 not measured",
        "--data FOLDER",
    ):
        assert words in written
    assert str(tmp_path) not in written
    kept = json.loads((tmp_path / "docs/benchmarks/accuracy.json").read_text())
    assert [one["failed"] for one in kept] == ["", "no answer in 600 s"]
    assert kept[0]["found"]["where"] == "FOLDER/rows"
    assert not (tmp_path / "docs/benchmarks/bandwidth.json").exists()


@pytest.mark.slow
@needs_browser
def test_the_page_is_checked_in_a_browser(run, tmp_path, monkeypatch):
    monkeypatch.setattr(browser, "NAMES", (BROWSER,))
    ended, shown, _ = run("--screenshots", "shots", accuracy=experiment("accuracy"))
    assert ended == ""
    assert "px: in order" in shown
    for width in browser.WIDTHS:
        assert (tmp_path / f"shots/index_{width}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_report_names_cells_that_were_not_run(run):
    ended, shown, written = run("--only", "accuracy", accuracy=experiment("accuracy"), classes=experiment("classes"))
    assert ended == ""
    assert "NOT CHECKED in a browser: there is none of no-such-browser" in shown
    assert "2 of 2 planned cells were measured" in written
    assert "2 cells were not run" in written
    assert written.count("It was not run to its end") == 1
    assert "<li>first &lt;b&gt;</li>" in written
    _, shown, again = run("--no-run", accuracy=experiment("accuracy"), classes=experiment("classes"))
    assert "2 of 2 planned cells were measured" in again
    assert "[1/" not in shown


def test_an_absent_cell_is_not_among_those_that_were_measured(run, tmp_path):
    def missing():
        raise Absent(f"no folder letter in {tmp_path}/data")

    cells = [Cell("first", {}, lambda: {"score": 0.9}), Cell("letter", {}, missing)]
    _, _, written = run(accuracy=experiment("accuracy", cells=lambda plan: cells))
    assert "1 of 2 planned cells were measured" in written
    assert "It was not run to its end" in written
    assert "<li>letter: no folder letter in FOLDER</li>" in written
    kept = json.loads((tmp_path / "docs/benchmarks/accuracy.json").read_text())
    assert [one["name"] for one in kept] == ["first"]


def test_a_wrong_folder_ends_the_command_before_others_are_run(run):
    def wrong(plan):
        raise Absent("--data must have some of letter")

    experiments = {"accuracy": experiment("accuracy", cells=wrong), "classes": experiment("classes")}
    ended, shown, written = run(**experiments)
    assert (ended, written) == ("--data must have some of letter", "")
    assert "[1/" not in shown
    ended, _, written = run("--only", "classes", **experiments)  # it does not need the folder
    assert ended == ""
    assert "It cannot be run here: --data must have some of letter" in written


def test_a_damaged_file_is_an_error_before_anything_is_run(run, tmp_path):
    for damaged in ("results/paper/classes.json", "docs/benchmarks/classes.json"):
        path = tmp_path / damaged
        path.parent.mkdir(parents=True)
        path.write_text("[{")
        ended, shown, _ = run("--only", "accuracy", accuracy=experiment("accuracy"), classes=experiment("classes"))
        assert "classes.json has no findings that can be read, move it elsewhere" in ended
        assert "[1/" not in shown
        path.unlink()


def test_an_unknown_name_is_an_error(run):
    ended, printed, written = run("--only", "accuracy,speed", accuracy=experiment("accuracy"))
    assert (ended, written) == ("2", "")
    assert "--only: unknown ['speed']; known are accuracy" in printed


def test_the_page_has_all_machines_and_dates():
    here = report.about(2, False)
    abouts = [here | {"date": "2026-11-01T00:00:00+00:00", "python": "3.10.1"}, here]
    findings = [Finding("a", {}, 5.0, about, {"x": 1}) for about in abouts]
    written = page.html([Section("some", "Some", findings=findings)], "python", quick=True)
    assert f"Measured 2026-11-01 to {abouts[1]['date'][:10]}" in written
    assert f"3.10.1; {abouts[1]['python']}" in written
    assert "Not all parts were measured alike: python." in written
    assert "A quick run" in written
    assert "numpy" in written


BAD = """<!DOCTYPE html><html lang="en"><meta name="viewport" content="width=device-width"><title>Bad</title>
<section><div style="width: 400px">wider than a phone</div>
<img alt="gone" src="data:image/png;base64,AAAA"><img alt="small" style="width: 300px" src="data:image/svg+xml;utf8,
<svg xmlns='http://www.w3.org/2000/svg' width='1200' height='100'></svg>">
<table><caption>bare</caption><tr><td>1</td></tr></table></section>
<script>console.error("something is wrong")</script>"""


@pytest.mark.slow
@needs_browser
def test_the_check_fails_on_a_page_that_is_bad(tmp_path):
    (tmp_path / "bad.html").write_text(BAD)
    found = browser.check(tmp_path / "bad.html", 2)
    assert any("at 360 px the page is 4" in problem and "scrolls sideways" in problem for problem in found)
    assert not any("1280" in problem and "sideways" in problem for problem in found)
    for width in browser.WIDTHS:
        assert f"at {width} px a picture does not load: gone" in found
        assert f"at {width} px a table has no header cells or no caption: bare1" in [p.replace("\n", "") for p in found]
        assert f"at {width} px there are 1 sections, expected 2" in found
    assert "at 360 px a picture is shrunk 4.0 times, its text cannot be read: small" in found
    assert any(problem == "the console says: something is wrong" for problem in found)


@pytest.mark.slow
def test_a_report_with_more_findings_stays(run, tmp_path):
    run(accuracy=experiment("accuracy"), rounds=experiment("rounds"))
    for found in (tmp_path / "results/paper").glob("*.json"):
        found.unlink()
    # A new clone knows the findings of the report.
    _, _, before = run("--no-run", accuracy=experiment("accuracy"), rounds=experiment("rounds"))
    assert "2 of 2 planned cells were measured" in before
    others = {
        "fewer cells are known": (["--no-run"], [Cell("another", {}, dict)]),
        "other settings": ([], [Cell("first <b>", {"rows": 5}, lambda: {"score": 0.1})]),
        "a part failed": (["--again"], [Cell("first <b>", {}, lambda: {"learners": {"x": {"note": "no answer"}}})]),
        "a figure is missing": ([], [Cell("first <b>", {"other": 1}, failing), Cell("second", {}, failing)]),
    }
    for words, cells in others.values():
        rounds = experiment("rounds", cells=lambda plan, cells=cells: cells)
        _, shown, kept = run(*words, accuracy=experiment("accuracy"), rounds=rounds)
        assert "docs/benchmarks has figures that are missing here, of rounds (1 cells), and stays" in shown
        assert kept == before
        assert cells[0].name.split()[0] in (tmp_path / "results/paper/report/index.html").read_text()
    _, _, replaced = run("--no-run", "--report", "docs/benchmarks", accuracy=experiment("accuracy"), rounds=rounds)
    assert replaced != before


def test_all_of_it_needs_data_and_an_interrupt_says_what_is_kept(run, tmp_path, monkeypatch, capsys):
    def interrupted(plan):
        raise KeyboardInterrupt

    ended, _, _ = run(accuracy=experiment("accuracy", cells=interrupted))
    assert ended.startswith("interrupted: cells that were measured are kept")
    monkeypatch.setattr(sys, "argv", ["paper"])
    with pytest.raises(SystemExit):
        command.main()
    assert "--data FOLDER with the data sets is needed, or --quick" in capsys.readouterr().err
