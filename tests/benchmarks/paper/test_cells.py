"""Cells of the paper's experiments: findings are kept, whatever happens, and measured again only if they must be."""

from __future__ import annotations

import doctest
import io
import json
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
from benchmarks.cells import Absent, Cell, NotRun, Store, run, side_by_side
from benchmarks.paper.experiment import Experiment, Picture, main
from benchmarks.report import number, numbers
from benchmarks.timing import Failed
from rich.console import Console

from benchmarks import cells as module
from benchmarks import report


class Bench:
    """Cells that count how often they are run."""

    def __init__(self, folder):
        self.path, self.runs, self.printed = folder / "some" / "bench.json", [], io.StringIO()

    def cell(self, name, value=None, packages=(), **settings):
        def measure():
            self.runs.append(name)
            result = value.pop(0) if isinstance(value, list) else value
            if isinstance(result, BaseException):
                raise result
            return result if isinstance(result, dict) else {"value": result}

        return Cell(name, settings, measure, packages)

    def run(self, *cells, again=False, **about):
        """The findings; `runs` are those of this call."""
        self.runs.clear()
        console = Console(file=self.printed, width=200)
        return run(cells, Store(self.path), lambda: {"date": "today", **about}, console, again)

    def values(self, *cells, **options):
        return [finding.found.get("value") for finding in self.run(*cells, **options)]


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def test_a_known_cell_is_not_measured_again(bench):
    cells = bench.cell("a", 1), bench.cell("b", 2)
    first = bench.run(*cells)
    assert ([f.found["value"] for f in first], bench.runs) == ([1, 2], ["a", "b"])
    assert first[0].about["date"] == "today"
    assert first[0].about["at start"]["load"] >= 0
    assert first[0].about.keys() == {"date", "seeds", "at start", "at end"}
    assert (bench.run(*cells), bench.runs) == (first, [])
    assert "2 of 2 cells are known" in bench.printed.getvalue()
    bench.run(*cells, bench.cell("c", 3))
    assert bench.runs == ["c"]
    bench.run(*cells, again=True)
    assert bench.runs == ["a", "b"]


def test_all_again_goes_on_where_it_was_interrupted(bench):
    bench.run(bench.cell("a", 1), bench.cell("b", 2), bench.cell("other", 3))
    with pytest.raises(KeyboardInterrupt):
        bench.run(bench.cell("a", 10), bench.cell("b", KeyboardInterrupt()), again=True)
    old = json.loads(bench.path.with_suffix(".old.json").read_text())
    assert [one["found"] for one in old] == [{"value": 1}, {"value": 2}, {"value": 3}]
    assert bench.values(bench.cell("a", 0), bench.cell("b", 20), bench.cell("other", 0)) == [10, 20, 3]


def test_another_version_of_a_package_is_measured_again(bench):
    here = report.versions(["numpy", "scipy"])
    for packages, about, runs in (
        (["numpy"], {**here, "scipy": "0.1"}, ["a", "b"]),
        (["numpy"], {}, []),
        (["numpy", "scipy"], here, ["a"]),
        (["numpy", "scipy", "no_such_package"], {}, []),
    ):
        bench.run(bench.cell("a", 1, packages), bench.cell("b", 1), packages=about)
        assert bench.runs == runs


def test_changed_settings_are_measured_again(bench):
    bench.run(bench.cell("a", 1, rows=(1, 2)))
    assert bench.values(bench.cell("a", 2, rows=[1, 2])) == [1]  # JSON knows no tuples
    assert bench.values(bench.cell("a", 5, rows=(1, 3))) == [5]
    assert [f.settings for f in Store(bench.path).all()] == [{"rows": [1, 3]}]
    assert bench.values(bench.cell("a", 0, rows=(1, 2))) == [1]  # the former finding is still known


@pytest.mark.parametrize("text", ["[{", '["a"]', '[{"no": 1}]'])
def test_a_damaged_file_is_named_and_stays(bench, text):
    bench.path.parent.mkdir()
    bench.path.write_text(text)
    with pytest.raises(Failed, match=r"bench\.json has no findings that can be read, move it elsewhere"):
        bench.run(bench.cell("a", 1))
    assert bench.path.read_text() == text


def test_a_reason_is_a_finding_after_two_tries_or_if_it_is_late(bench, monkeypatch):
    for runs in (["a", "a", "b", "b"], []):
        found = bench.run(bench.cell("a", Failed("out of memory")), bench.cell("b", [Failed("busy"), 2]))
        assert [(f.failed, f.found) for f in found] == [("out of memory", {}), ("", {"value": 2})]
        assert bench.runs == runs
    assert "out of memory; took" in bench.printed.getvalue()
    monkeypatch.setattr(module, "LATE", 0.0)
    (found,) = bench.run(bench.cell("c", [Failed("no answer in 600 s"), 1]))
    assert (found.failed, bench.runs) == ("no answer in 600 s", ["c"])


def test_what_cannot_be_tried_is_not_run_and_removes_no_finding(bench):
    cell = replace(bench.cell("a", 1), modules=("json", "no_such_module"), seeds={"rows": (1, 2)})
    (found,) = bench.run(cell)
    assert (type(found), found.failed, bench.runs) == (NotRun, "not installed: no_such_module", [])
    known = bench.run(replace(cell, modules=("json",)))
    assert (known[0].found, known[0].about["seeds"]) == ({"value": 1}, {"rows": [1, 2]})
    (found,) = bench.run(bench.cell("a", Absent("no folder"), size=0))
    assert (type(found), found.failed, bench.runs) == (NotRun, "no folder", ["a"])  # one try
    assert (bench.run(replace(cell, modules=())), bench.runs) == (known, [])


@pytest.mark.parametrize("end", [KeyboardInterrupt(), ValueError("a bug")], ids=["interrupted", "bug"])
def test_findings_before_an_interrupt_or_a_bug_are_kept(bench, end):
    with pytest.raises(type(end)):
        bench.run(bench.cell("a", 1), bench.cell("b", end), bench.cell("c", 3))
    assert [f.name for f in Store(bench.path).all()] == ["a"]
    bench.run(bench.cell("a", 1), bench.cell("b", 2), bench.cell("c", 3))
    assert bench.runs == ["b", "c"]


def test_the_file_is_complete_whenever_the_process_ends(bench, monkeypatch):
    def write_half(path, text):
        with path.open("w") as file:
            file.write(text[: len(text) // 2])
        raise KeyboardInterrupt

    known = bench.run(bench.cell("a", 1))
    monkeypatch.setattr(Path, "write_text", write_half)
    with pytest.raises(KeyboardInterrupt):
        bench.run(bench.cell("b", 2))
    assert Store(bench.path).all() == known


@pytest.mark.parametrize("name", ["cells", "report", "paper.page", "paper.rounds", "paper.scaling"])
def test_examples(name):
    assert doctest.testmod(import_module(f"benchmarks.{name}")).failed == 0


@pytest.fixture
def tiny(bench, tmp_path, monkeypatch):
    """Runs an experiment of two cells, of which one fails, with the given command line."""
    monkeypatch.chdir(tmp_path)

    def add_options(parser):
        parser.add_argument("--seconds", type=number(float, 0.1), default=1.0)
        parser.add_argument("--sizes", type=numbers(least=2), default=[64])

    def draw(findings, folder):
        (folder / "tiny.png").write_text("a picture")
        return [Picture(folder / "tiny.png", "nothing")]

    experiment = Experiment(
        name="tiny",
        title="Tiny",
        text="A tiny experiment.",
        cells=lambda plan: [
            bench.cell("a", plan.pick(plan.given.seconds, 8), data=str(plan.data), quick=plan.quick),
            bench.cell("b", Failed("no luck")),
        ],
        tables=lambda findings: [{"table": "tiny", "cell": f.name, **f.found, "note": f.failed} for f in findings],
        draw=draw,
        add_options=add_options,
    )

    def run_main(*words, **changes):
        monkeypatch.setattr(sys, "argv", ["tiny", *map(str, words)])
        main(replace(experiment, **changes))

    return run_main


def test_the_command_line_of_an_experiment(tiny, tmp_path, capsys):
    tiny("--data", tmp_path, "--seconds", 11)
    kept = json.loads((tmp_path / "results/paper/tiny.json").read_text())
    assert [(one["found"], one["failed"]) for one in kept] == [({"value": 11}, ""), ({}, "no luck")]
    assert kept[0]["settings"] == {"data": str(tmp_path), "quick": False}
    about = {"date", "cpu", "cores", "memory", "kernel", "python", "packages", "threads", "code"}
    assert about <= kept[0]["about"].keys()
    shown = capsys.readouterr().out
    assert "no luck" in shown
    assert "results/paper/tiny.png" in shown
    tiny("--quick", "--data", tmp_path)
    kept = json.loads((tmp_path / "results/paper_quick/tiny.json").read_text())
    assert (kept[0]["settings"], kept[0]["found"]) == ({"data": "None", "quick": True}, {"value": 8})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--data nowhere", "--data must be a folder, got 'nowhere'"),
        (f"--output {__file__}", f"--output must be a folder, got {__file__!r}"),
        ("--threads 0", "--threads: must be at least 1, got '0'"),
        ("--jobs 0", "--jobs: must be at least 1, got '0'"),
        ("--threads 2 --jobs 3", "--jobs must be at most --threads, 2, got 3"),
        ("--seconds 0", "--seconds: must be at least 0.1, got '0'"),
        ("--seconds nan", "--seconds: must be at least 0.1, got 'nan'"),
        ("--seconds inf", "--seconds: must be at least 0.1, got 'inf'"),
        ("--sizes 64,many", "--sizes: must be numbers with commas between them, got '64,many'"),
        ("--sizes 64,1", "--sizes: must be at least 2, got '64,1'"),
    ],
)
def test_errors_name_the_bad_argument(bench, tiny, capsys, words, message):
    with pytest.raises(SystemExit):
        tiny(*words.split())
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
def test_the_command_fails_where_nothing_could_be_run(tiny, tmp_path, cells, message):
    with pytest.raises(SystemExit, match=message):
        tiny("--quick", "--output", tmp_path, cells=cells)
    assert not (tmp_path / "tiny.json").exists()


def test_cells_whose_seconds_count_are_never_side_by_side(tiny, tmp_path):
    for alone, jobs in ((True, 1), (False, 2)):
        tiny(*["--threads", "6", "--jobs", "2", "--again", "--output"], tmp_path, alone=alone)
        abouts = [finding.about for finding in Store(tmp_path / "tiny.json").all()]
        assert {(about["jobs"], about["threads"]) for about in abouts} == {(jobs, 6 // jobs)}


def test_code_without_git_is_unknown(monkeypatch):
    assert report.code()
    monkeypatch.setenv("PATH", "")
    assert report.code() is None


def test_cells_side_by_side_have_the_findings_of_cells_in_turn(tmp_path):
    both, path = threading.Barrier(2), tmp_path / "kept.json"

    def measure(i):
        both.wait(10)  # ends only where another cell runs at the same time
        return {"value": i}

    cells = [Cell(f"cell {i}", {"i": i}, partial(measure, i)) for i in range(4)]
    found = run(cells, Store(path), dict, Console(file=io.StringIO()), jobs=2)
    assert [one.found for one in found] == [{"value": i} for i in range(4)]
    assert sorted(Store(path).all(), key=lambda one: one.name) == found


def test_after_an_error_what_is_running_ends_and_nothing_more_begins():
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
