"""Cells run side by side give what they give in turn."""

from __future__ import annotations

import io
import threading
import time

import pytest
from benchmarks.paper.cells import Absent, Cell, Store, run
from benchmarks.paper.jobs import side_by_side
from rich.console import Console


class TestSideBySide:
    def cells(self, together):
        def work(i):
            if together is not None:
                together.wait(10)  # ends only where another cell runs at the same time
            if i == 2:
                raise Absent("not installed")
            return {"value": i}

        return [Cell(f"cell {i}", {"i": i}, lambda i=i: work(i), 1.0) for i in range(4)]

    def test_findings_are_those_of_cells_in_turn_and_are_kept(self, tmp_path):
        console, store = Console(file=io.StringIO()), Store(tmp_path / "kept.json")
        found = run(self.cells(threading.Barrier(2)), store, dict, console, jobs=2)
        assert [(one.name, one.found, one.failed) for one in found] == [
            ("cell 0", {"value": 0}, ""),
            ("cell 1", {"value": 1}, ""),
            ("cell 2", {}, "not installed"),
            ("cell 3", {"value": 3}, ""),
        ]
        again = run(self.cells(None), Store(store.path), dict, console, jobs=2)
        assert [one for one in again if not one.failed] == [one for one in found if not one.failed]
        assert [one.failed for one in again if one.failed] == ["not installed"]  # asked once more: it is not kept

    def test_after_an_error_what_is_under_way_ends_and_nothing_more_begins(self):
        both, begun = threading.Barrier(2), []

        def work(i):
            begun.append(i)
            both.wait(10)
            if i == 0:
                raise ZeroDivisionError
            time.sleep(0.2)  # the error is known long before
            return i

        made = side_by_side(work, range(20), 2)
        assert next(made) == 1
        with pytest.raises(ZeroDivisionError):
            next(made)
        assert set(begun) == {0, 1}
