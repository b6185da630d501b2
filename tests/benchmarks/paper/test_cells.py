"""Cells of the paper's experiments: what was found is kept, whatever happens, and measured again only if it must be."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.cells import Absent, Cell, Finding, NotRun, Store, brief, duration, run, side_by_side
from benchmarks.paper.experiment import Experiment, Picture, main
from benchmarks.timing import Failed
from rich.console import Console

from benchmarks import cells as module
from benchmarks import report

ROOT = Path(__file__).parents[3]


class Bench:
    """Cells that count how often they are run."""

    def __init__(self, folder):
        self.path, self.runs, self.printed = folder / "some" / "bench.json", [], io.StringIO()

    def cell(self, name, value=None, packages=(), **settings):
        def measure():
            self.runs.append(name)
            told = value.pop(0) if isinstance(value, list) else value
            if isinstance(told, BaseException):
                raise told
            return told if isinstance(told, dict) else {"value": told}

        return Cell(name, settings, measure, packages)

    def run(self, *cells, again=None, **about):
        console = Console(file=self.printed, width=200)
        return run(cells, Store(self.path), lambda: {"date": "today", **about}, console, again)


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def test_what_is_known_is_not_measured_again(bench):
    cells = bench.cell("a", 1), bench.cell("b", 2)
    first = bench.run(*cells)
    assert bench.runs == ["a", "b"]
    assert [f.found["value"] for f in first] == [1, 2]
    assert first[0].about["date"] == "today"
    assert first[0].about["at start"]["load"] >= 0
    assert first[0].about.keys() == {"date", "seeds", "at start", "at end"}
    assert bench.run(*cells) == first
    assert bench.runs == ["a", "b"]
    assert "2 of 2 cells are known" in bench.printed.getvalue()
    bench.run(*cells, bench.cell("c", 3))
    assert bench.runs == ["a", "b", "c"]
    bench.run(*cells, again="all")
    assert bench.runs == ["a", "b", "c", "a", "b"]


def test_all_again_goes_on_where_it_was_cut_short(bench):
    bench.run(bench.cell("a", 1), bench.cell("b", 2), bench.cell("other", 3))
    with pytest.raises(KeyboardInterrupt):
        bench.run(bench.cell("a", 10), bench.cell("b", KeyboardInterrupt()), again="all")
    old = json.loads(bench.path.with_suffix(".old.json").read_text())
    assert [one["found"] for one in old] == [{"value": 1}, {"value": 2}, {"value": 3}]
    found = bench.run(bench.cell("a", 0), bench.cell("b", 20), bench.cell("other", 0))
    assert [f.found["value"] for f in found] == [10, 20, 3]


def test_what_failed_in_a_part_can_be_measured_again_alone(bench):
    noted = {"learners": {"x": {"note": ""}, "y": {"note": "no answer"}}}
    cells = [bench.cell("a", 1), bench.cell("b", noted), bench.cell("c", Failed("no luck")), bench.cell("d", {"n": ""})]
    bench.run(*cells)
    bench.runs.clear()
    found = bench.run(bench.cell("a", 0), bench.cell("b", 2), bench.cell("c", 3), bench.cell("d", 0), again="failed")
    assert bench.runs == ["b", "c"]
    assert [f.found for f in found] == [{"value": 1}, {"value": 2}, {"value": 3}, {"n": ""}]


def test_another_version_of_a_package_is_measured_again(bench):
    here = report.versions(["numpy", "scipy"])
    bench.run(bench.cell("a", 1, packages=("numpy",)), bench.cell("b", 1), packages={**here, "scipy": "0.1"})
    bench.run(bench.cell("a", 1, packages=("numpy",)), bench.cell("b", 1))
    assert bench.runs == ["a", "b"]
    bench.run(bench.cell("a", 1, packages=("numpy", "scipy")), bench.cell("b", 1), packages=here)
    assert bench.runs == ["a", "b", "a"]
    bench.run(bench.cell("a", 1, packages=("numpy", "scipy", "no_such_package")), bench.cell("b", 1))
    assert bench.runs == ["a", "b", "a"]


def test_changed_settings_are_measured_again(bench):
    bench.run(bench.cell("a", 1, rows=(1, 2)))
    bench.run(bench.cell("a", 1, rows=[1, 2]))  # JSON knows no tuples
    assert bench.runs == ["a"]
    found = bench.run(bench.cell("a", 5, rows=(1, 3)))
    assert bench.runs == ["a", "a"]
    assert found[0].found == {"value": 5}
    assert [f.settings for f in Store(bench.path).all()] == [{"rows": [1, 3]}]
    found = bench.run(bench.cell("a", 0, rows=(1, 2)))  # what it found before is known still
    assert (found[0].found, bench.runs) == ({"value": 1}, ["a", "a"])


def test_a_damaged_file_is_named(bench):
    bench.run(bench.cell("a", 1))
    for text in ("[{", '["a"]', '[{"no": 1}]'):
        bench.path.write_text(text)
        with pytest.raises(Failed, match=r"bench\.json has no findings that can be read, move it elsewhere"):
            bench.run(bench.cell("a", 1))
        assert bench.path.read_text() == text


def test_a_reason_is_a_finding(bench):
    for _ in range(2):
        found = bench.run(bench.cell("a", Failed("out of memory")), bench.cell("b", 2))
        assert [(f.failed, f.found) for f in found] == [("out of memory", {}), ("", {"value": 2})]
    assert bench.runs == ["a", "a", "b"]
    assert "out of memory; took" in bench.printed.getvalue()


def test_a_failure_is_tried_once_more_unless_it_is_late_or_nothing_could_be_tried(bench, monkeypatch):
    found = bench.run(bench.cell("a", [Failed("busy"), 1]), bench.cell("b", Absent("not installed")))
    assert [(f.failed, f.found) for f in found] == [("", {"value": 1}), ("not installed", {})]
    assert [isinstance(f, NotRun) for f in found] == [False, True]
    monkeypatch.setattr(module, "LATE", 0.0)
    (found,) = bench.run(bench.cell("c", [Failed("no answer in 600 s"), 1]))
    assert found.failed == "no answer in 600 s"
    assert bench.runs == ["a", "a", "b", "c"]


def test_a_learner_that_is_not_installed_is_not_run(bench):
    cell = replace(bench.cell("a", 1), modules=("json", "no_such_module"), seeds={"rows": (1, 2)})
    (found,) = bench.run(cell)
    assert (type(found), found.failed, bench.runs) == (NotRun, "not installed: no_such_module", [])
    (found,) = bench.run(replace(cell, modules=("json",)))
    assert (found.found, found.about["seeds"]) == ({"value": 1}, {"rows": [1, 2]})


def test_a_cell_that_is_not_run_takes_nothing_from_what_is_known(bench):
    known = bench.run(bench.cell("a", 1, size=100))
    bench.run(bench.cell("a", Absent("no folder"), size=0))
    assert bench.run(bench.cell("a", 2, size=100)) == known
    assert bench.runs == ["a", "a"]


@pytest.mark.parametrize("end", [KeyboardInterrupt(), ValueError("a bug")], ids=["interrupted", "bug"])
def test_what_was_found_before_an_end_is_kept(bench, end):
    with pytest.raises(type(end)):
        bench.run(bench.cell("a", 1), bench.cell("b", end), bench.cell("c", 3))
    assert [f.name for f in Store(bench.path).all()] == ["a"]
    bench.run(bench.cell("a", 1), bench.cell("b", 2), bench.cell("c", 3))
    assert bench.runs == ["a", "b", "b", "c"]


WRITER = """
import sys
from pathlib import Path
from benchmarks.cells import Finding, Store
store = Store(Path(sys.argv[1]))
for number in range(10**6):
    store.put(Finding("large", {}, 0.0, {}, {"numbers": [number] * 200_000}))
"""


@pytest.mark.slow
def test_the_file_is_complete_whenever_the_process_is_killed(tmp_path):
    path = tmp_path / "bench.json"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    for seconds in (0.0, 0.05, 0.13):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], env=environment) as process:
            try:
                until, begun = time.monotonic() + 60, path.stat().st_mtime_ns if path.exists() else 0
                while not path.exists() or path.stat().st_mtime_ns == begun:
                    assert time.monotonic() < until, "nothing was written in a minute"
                    time.sleep(0.01)
                time.sleep(seconds)
            finally:
                process.kill()
        assert len(json.loads(path.read_text())[0]["found"]["numbers"]) == 200_000


def test_two_processes_may_write_to_one_file(tmp_path):
    stores = [Store(tmp_path / "bench.json") for _ in range(2)]
    for number in range(20):
        stores[number % 2].put(Finding(f"cell {number}", {}, 1.0, {}))
    assert len(Store(tmp_path / "bench.json").all()) == 20


def test_durations_and_summaries():
    assert [duration(s) for s in (3.2, 95, 3600 + 300)] == ["3 s", "1 min 35 s", "1 h 5 min"]
    assert brief({"auc": 0.98765, "curve": [1, 2], "rounds": 12}) == "auc 0.9877, rounds 12"


def tiny(bench):
    """An experiment of two cells, of which one fails."""

    def draw(findings, folder):
        (folder / "tiny.svg").write_text("<svg/>")
        return [Picture(folder / "tiny.svg", "nothing")]

    return Experiment(
        name="tiny",
        title="Tiny",
        text="A tiny experiment.",
        cells=lambda plan: [
            bench.cell("a", plan.given.value, data=str(plan.data), quick=plan.quick),
            bench.cell("b", Failed("no luck")),
        ],
        tables=lambda findings: [{"table": "tiny", "cell": f.name, **f.found, "note": f.failed} for f in findings],
        draw=draw,
        options=lambda parser: parser.add_argument("--value", type=int, default=7),
    )


def test_the_command_line_of_an_experiment(bench, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["tiny", "--data", str(tmp_path), "--value", "11"])
    main(tiny(bench))
    told = json.loads((tmp_path / "results/paper/tiny.json").read_text())
    assert [(one["found"], one["failed"]) for one in told] == [({"value": 11}, ""), ({}, "no luck")]
    assert told[0]["settings"] == {"data": str(tmp_path), "quick": False}
    about = {"date", "cpu", "cores", "memory", "kernel", "python", "packages", "threads", "code"}
    assert about <= told[0]["about"].keys()
    shown = capsys.readouterr().out
    assert "no luck" in shown
    assert "results/paper/tiny.svg" in shown
    monkeypatch.setattr(sys, "argv", ["tiny", "--quick", "--data", str(tmp_path)])
    main(tiny(bench))
    told = json.loads((tmp_path / "results/paper_quick/tiny.json").read_text())
    assert told[0]["settings"] == {"data": "None", "quick": True}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nowhere"], "--data must be a folder, got 'nowhere'"),
        (["--output", __file__], f"--output must be a folder, got {__file__!r}"),
        (["--threads", "0"], "--threads: must be at least 1, got '0'"),
        (["--jobs", "0"], "--jobs: must be at least 1, got '0'"),
        (["--threads", "2", "--jobs", "3"], "--jobs must be at most --threads, 2, got 3"),
    ],
)
def test_bad_arguments_are_told(bench, monkeypatch, capsys, arguments, message):
    monkeypatch.setattr(sys, "argv", ["tiny", *arguments])
    with pytest.raises(SystemExit):
        main(tiny(bench))
    assert message in capsys.readouterr().err
    assert bench.runs == []


def fail(plan):
    raise Failed("network namespaces need root")


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (fail, "tiny cannot be run here: network namespaces need root"),
        (lambda plan: [Cell("a", {}, dict, missing="no such set")], "nothing could be run: no such set"),
    ],
)
def test_the_command_fails_where_nothing_could_be_run(bench, monkeypatch, tmp_path, cells, message):
    monkeypatch.setattr(sys, "argv", ["tiny", "--quick", "--output", str(tmp_path)])
    with pytest.raises(SystemExit, match=message):
        main(replace(tiny(bench), cells=cells))
    assert not (tmp_path / "tiny.json").exists()


def test_cells_whose_seconds_count_are_never_side_by_side(bench, monkeypatch, tmp_path):
    asked = f"--threads 6 --jobs 2 --again --output {tmp_path}"
    for alone, jobs in ((True, 1), (False, 2)):
        monkeypatch.setattr(sys, "argv", ["tiny", *asked.split()])
        main(replace(tiny(bench), alone=alone))
        abouts = [finding.about for finding in Store(tmp_path / "tiny.json").all()]
        assert {(about["jobs"], about["threads"]) for about in abouts} == {(jobs, 6 // jobs)}


def test_code_without_git_is_unknown(monkeypatch):
    assert report.code()
    monkeypatch.setenv("PATH", "")
    assert report.code() is None


class TestSideBySide:
    def cells(self, together):
        def work(i):
            if together is not None:
                together.wait(10)  # ends only where another cell runs at the same time
            if i == 2:
                raise Absent("not installed")
            return {"value": i}

        return [Cell(f"cell {i}", {"i": i}, lambda i=i: work(i)) for i in range(4)]

    def test_findings_are_those_of_cells_in_turn_and_are_kept(self, tmp_path):
        console, store = Console(file=io.StringIO()), Store(tmp_path / "kept.json")
        found = run(self.cells(threading.Barrier(2)), store, dict, console, jobs=2)
        wanted = [({"value": i}, "") if i != 2 else ({}, "not installed") for i in range(4)]
        assert [(one.found, one.failed) for one in found] == wanted
        again = run(self.cells(None), Store(store.path), dict, console, jobs=2)
        assert [one for one in again if not one.failed] == [one for one in found if not one.failed]
        assert [one.failed for one in again if one.failed] == ["not installed"]  # asked once more: it is not kept

    def test_after_an_error_what_is_running_ends_and_nothing_more_begins(self):
        both, begun = threading.Barrier(2), []

        def work(i):
            begun.append(i)
            both.wait(10)
            if i == 0:
                raise ZeroDivisionError
            time.sleep(0.2)  # the error is known long before
            return i

        results = side_by_side(work, range(20), 2)
        assert next(results) == 1
        with pytest.raises(ZeroDivisionError):
            next(results)
        assert set(begun) == {0, 1}
