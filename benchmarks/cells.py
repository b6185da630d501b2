"""Cells: the smallest things an experiment measures. Results are kept, so that a run can be resumed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from multiprocessing.pool import ThreadPool
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console

from benchmarks import report
from benchmarks.timing import Absent, Failed

LATE = 240.0  # seconds; a failure after them is not tried again


@dataclass(frozen=True)
class Cell:
    """A measurement with a name.

    `settings` are all that its figures depend on, as JSON can write them: with others it is measured again. `run`
    returns the figures as JSON can write them. It raises Failed with a reason, which is a finding too (a learner that
    needs more memory or time than there is), or Absent where nothing could be tried.
    """

    name: str
    settings: Mapping[str, Any]
    run: Callable[[], Mapping[str, Any]]
    packages: Sequence[str] = ()  # of `report.PACKAGES`; with another version of one the cell is measured again
    modules: Sequence[str] = ()  # optional imports: without one of them it is not run
    seeds: Mapping[str, Any] = field(default_factory=dict)  # of rows and learners, for the record
    missing: str = ""  # why there are no rows for it, if there are none

    @property
    def absent(self) -> str:
        """Why it cannot be tried, if it cannot."""
        lacking = [name for name in self.modules if find_spec(name) is None]
        return self.missing or (f"not installed: {', '.join(lacking)}" if lacking else "")


@dataclass(frozen=True)
class Finding:
    """The result of a cell: figures in `found`, or a reason in `failed`; where and when in `about`."""

    name: str
    settings: Mapping[str, Any]
    seconds: float
    about: Mapping[str, Any]
    found: Mapping[str, Any] = field(default_factory=dict)
    failed: str = ""


class NotRun(Finding):
    """The result of a cell that was Absent. It is shown but not stored: it says nothing about the learner."""


def cell_key(item: Cell | Finding) -> str:
    """Identify a cell by name and settings: with other settings it is another cell."""
    return json.dumps([item.name, _as_json(item.settings)], sort_keys=True)


def dump(findings: Iterable[Finding]) -> str:
    """JSON with a line for each finding."""
    return "[\n" + ",\n".join(json.dumps(asdict(one), separators=(",", ":")) for one in findings) + "\n]\n"


class Store:
    """The findings of an experiment in a JSON file. The file is complete at any time; one process writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._findings = self._read()

    def of(self, cell: Cell) -> Finding | None:
        """The finding of this cell with its present settings and package versions."""
        finding = self._findings.get(cell_key(cell))
        before = finding.about.get("packages", {}) if finding else {}
        same = {name: before[name] for name in cell.packages if name in before} == report.versions(cell.packages)
        return finding if same else None

    def all(self) -> list[Finding]:
        """The latest of each name, with any settings."""
        return list({finding.name: finding for finding in self._findings.values()}.values())

    def put(self, finding: Finding) -> None:
        self._findings.pop(cell_key(finding), None)  # the latest is the last
        self._findings[cell_key(finding)] = finding
        self._write()

    def forget(self, findings: Collection[Finding]) -> None:
        """Remove findings that are to be measured again; the file as it was is kept with the ending .old.json."""
        if findings:
            shutil.copyfile(self.path, self.path.with_suffix(".old.json"))
            for finding in findings:
                del self._findings[cell_key(finding)]
            self._write()

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        part.write_text(dump(self._findings.values()))
        part.replace(self.path)

    def _read(self) -> dict[str, Finding]:
        try:
            findings = [Finding(**one) for one in json.loads(self.path.read_text())] if self.path.exists() else []
        except (ValueError, TypeError) as error:
            raise Failed(f"{self.path} has no findings that can be read, move it elsewhere: {error}") from None
        return {cell_key(finding): finding for finding in findings}


def run(
    cells: Sequence[Cell],
    store: Store,
    about: Callable[[], Mapping[str, Any]],
    console: Console,
    again: bool = False,
    jobs: int = 1,
) -> list[Finding]:
    """Return the findings of all cells in their order, and measure those that the store does not have.

    `again` forgets them first. `jobs` cells run side by side.
    """
    if again:
        store.forget([finding for cell in cells if (finding := store.of(cell)) is not None])
    found = {cell.name: finding for cell in cells if (finding := store.of(cell)) is not None}
    missing = [cell for cell in cells if cell.name not in found]
    if found:
        console.print(f"{len(found)} of {len(cells)} cells are known from {store.path}")

    def begin(number: int) -> Finding:
        console.print(f"[{number + 1}/{len(missing)}] {missing[number].name}", markup=False)
        return _measure(missing[number], about)

    numbers = range(len(missing))
    for finding in map(begin, numbers) if jobs == 1 else side_by_side(begin, numbers, jobs):
        found[finding.name] = finding
        if not isinstance(finding, NotRun):
            store.put(finding)
        title = "" if jobs == 1 else f"{finding.name}: "
        result = finding.failed or brief(finding.found)
        console.print(f"    {title}{result}; took {duration(finding.seconds)}", markup=False)
    return [found[cell.name] for cell in cells]


def _measure(cell: Cell, about: Callable[[], Mapping[str, Any]]) -> Finding:
    """A failure counts after two tries, as the machine may have been busy, or after LATE seconds."""
    before = {**about(), "seeds": _as_json(cell.seeds), "at start": report.load()}
    began, found, kind = perf_counter(), {}, Finding
    for _ in range(2):
        try:
            if cell.absent:
                raise Absent(cell.absent)
            found, failed = _as_json(cell.run()), ""
            break
        except Failed as failure:
            failed = str(failure)
            kind = NotRun if isinstance(failure, Absent) else Finding
            if kind is NotRun or perf_counter() - began > LATE:
                break
    seconds, after = perf_counter() - began, {"at end": report.load()}
    return kind(cell.name, _as_json(cell.settings), seconds, {**before, **after}, found, failed)


def side_by_side(work: Callable[[Any], Any], items: Iterable[Any], jobs: int) -> Iterator[Any]:
    """Yield the results of `work` as they end, in `jobs` threads; cells wait for child processes most of the time.

    After an error nothing more begins; what is running ends and is yielded before the error is raised. The threads are
    daemons, so an interrupt ends everything at once.
    """
    errors: list[BaseException] = []

    def attempt(item: Any) -> Any:
        try:
            return None if errors else (work(item),)
        except BaseException as error:
            errors.append(error)

    with ThreadPool(jobs) as pool:
        for result in pool.imap_unordered(attempt, items):
            if result is not None:
                yield result[0]
    if errors:
        raise errors[0]


def _as_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON returns it: tuples are lists, keys are text."""
    return dict(json.loads(json.dumps(value)))


def brief(found: Mapping[str, Any]) -> str:
    """
    >>> brief({"auc": 0.98765, "curve": [1, 2], "rounds": 12})
    'auc 0.9877, rounds 12'
    """
    parts = {k: v for k, v in found.items() if isinstance(v, (int, float, str)) and v != ""}
    return ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in parts.items())


def duration(seconds: float) -> str:
    """
    >>> [duration(s) for s in (3.2, 95, 4000)]
    ['3 s', '1 min 35 s', '1 h 6 min']
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
