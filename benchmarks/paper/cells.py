"""Cells: the smallest things an experiment measures. What one has found is kept, so that a run can be resumed."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console

from benchmarks.paper.jobs import side_by_side
from benchmarks.speed import report
from benchmarks.speed.timing import Absent, Failed

LATE = 240.0  # seconds: what fails after them was given its chance


@dataclass(frozen=True)
class Cell:
    """`settings`, as JSON can write them, are all that its figures depend on: with others it is run again.

    `run` gives what was found, as JSON can write it, or raises Failed with the reason, which is a finding too: a
    learner that needs more memory or time than there is. It raises Absent where nothing could be tried.
    """

    name: str
    settings: Mapping[str, Any]
    run: Callable[[], Mapping[str, Any]]
    guess: float = 1.0
    """About how many seconds it takes; only the proportions matter, for the estimate of the time left."""
    packages: Sequence[str] = ()
    """Those of `report.PACKAGES` that its figures depend on: with another version of one, it is run again."""
    modules: Sequence[str] = ()
    """What is imported and not everybody has: without one of them it is not run."""
    seeds: Mapping[str, Any] = field(default_factory=dict)
    """Of rows and learners, for who makes the same again; those that may be chosen are among the settings."""

    missing: str = ""
    """Why there are no rows for it, where there are none."""

    @property
    def absent(self) -> str:
        """Why it cannot be tried, if it cannot."""
        lacking = [name for name in self.modules if find_spec(name) is None]
        return self.missing or (f"not installed: {', '.join(lacking)}" if lacking else "")


@dataclass(frozen=True)
class Finding:
    """What came of a cell: `found`, or the reason why there is nothing in `failed`; where and when in `about`."""

    name: str
    settings: Mapping[str, Any]
    seconds: float
    about: Mapping[str, Any]
    found: Mapping[str, Any] = field(default_factory=dict)
    failed: str = ""


class NotRun(Finding):
    """Of a cell that was Absent. It is told of, but says nothing of the learner, and is not kept: what the same cell
    found where everything was there stays known."""


def key(one: Cell | Finding) -> str:
    """What tells findings apart: with other settings a cell is another one, and both are known."""
    return json.dumps([one.name, _as_json(one.settings)], sort_keys=True)


class Store:
    """The findings of an experiment in a JSON file, which is whole at any time; several processes may write to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._findings = self._read()

    def of(self, cell: Cell) -> Finding | None:
        """What this cell has found with the settings and the versions of packages it has now."""
        finding = self._findings.get(key(cell))
        if finding is None:
            return None
        had = finding.about.get("packages", {})
        with_these = {name: had[name] for name in cell.packages if name in had}
        return finding if with_these == report.versions(cell.packages) else None

    def all(self) -> list[Finding]:
        """The latest of each name, whatever it was made with."""
        return list({finding.name: finding for finding in self._findings.values()}.values())

    def put(self, finding: Finding) -> None:
        with self._locked():
            known = self._read()
            known.pop(key(finding), None)
            self._write({**known, key(finding): finding})

    def forget(self, findings: Collection[Finding]) -> None:
        """Findings that are to be measured again go; the file as it was is kept beside, with .old.json at its end."""
        with self._locked():
            known, gone = self._read(), set(map(key, findings))
            if known.keys() & gone:
                shutil.copyfile(self.path, self.path.with_suffix(".old.json"))
                self._write({own: finding for own, finding in known.items() if own not in gone})

    def _read(self) -> dict[str, Finding]:
        try:
            told = json.loads(self.path.read_text()) if self.path.exists() else []
            findings = [Finding(**one) for one in told]
        except (ValueError, TypeError) as error:
            raise Failed(f"{self.path} has no findings that can be read, move it elsewhere: {error}") from None
        return {key(finding): finding for finding in findings}

    def _write(self, findings: dict[str, Finding]) -> None:
        self._findings = findings
        beside = self.path.with_suffix(".part")
        beside.write_text(json.dumps([asdict(one) for one in findings.values()], indent=1) + "\n")
        beside.replace(self.path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """What another process has written since is read again before this one writes."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def run(
    cells: Sequence[Cell],
    store: Store,
    about: Callable[[], Mapping[str, Any]],
    console: Console,
    again: str | None = None,
    jobs: int = 1,
) -> list[Finding]:
    """What all cells have found, in their order; those that the store does not know are run, and told of as they end.

    `again` forgets "all" of them first, or those that "failed" as a whole or in part; a run that is cut short then goes
    on where it was. `jobs` of them run side by side. The time left is that of the cells run so far, in proportion to
    the guesses.
    """
    if again is not None:
        known = [finding for cell in cells if (finding := store.of(cell)) is not None]
        store.forget([finding for finding in known if again == "all" or flawed(finding)])
    kept = {cell.name: finding for cell in cells if (finding := store.of(cell)) is not None}
    missing = [cell for cell in cells if cell.name not in kept]
    if kept:
        console.print(f"{len(kept)} of {len(cells)} cells are known from {store.path}")
    spent = guessed = 0.0

    def begun(number: int) -> Finding:
        ahead = sum(one.guess for one in missing[number:] if not one.absent)
        left = ahead * (spent / guessed if guessed else 1.0) / jobs
        console.print(f"[{number + 1}/{len(missing)}] {missing[number].name}, about {words(left)} left", markup=False)
        return _measured(missing[number], about)

    numbers = range(len(missing))
    for finding in map(begun, numbers) if jobs == 1 else side_by_side(begun, numbers, jobs):
        kept[finding.name] = finding
        if not isinstance(finding, NotRun):
            store.put(finding)
        spent += finding.seconds
        guessed += next(cell.guess for cell in missing if cell.name == finding.name)
        named = "" if jobs == 1 else f"{finding.name}: "
        told = finding.failed or brief(finding.found)
        console.print(f"    {named}{told}; took {words(finding.seconds)}", markup=False)
    return [kept[cell.name] for cell in cells]


def _measured(cell: Cell, about: Callable[[], Mapping[str, Any]]) -> Finding:
    """A failure is kept when it has happened twice, as the machine may have been busy, or has taken LATE seconds."""
    before = {**about(), "seeds": _as_json(cell.seeds), "at start": report.load()}
    began, settings = perf_counter(), _as_json(cell.settings)
    found: dict[str, Any] = {}
    kind = Finding
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
    seconds = perf_counter() - began
    return kind(cell.name, settings, seconds, {**before, "at end": report.load()}, found, failed)


def flawed(finding: Finding) -> bool:
    """Whether it failed, or has a note anywhere that says why something of it is missing.

    >>> flawed(Finding("a", {}, 1.0, {}, {"learners": {"x": {"note": ""}, "y": {"note": "out of memory"}}}))
    True
    """
    return bool(finding.failed) or _noted(finding.found)


def _noted(found: Any) -> bool:
    if isinstance(found, Mapping):
        return bool(found.get("note")) or any(map(_noted, found.values()))
    return isinstance(found, list) and any(map(_noted, found))


def _as_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """As it will be read: tuples are lists, keys are text."""
    return dict(json.loads(json.dumps(value)))


def brief(found: Mapping[str, Any]) -> str:
    """
    >>> brief({"auc": 0.98765, "curve": [1, 2], "rounds": 12})
    'auc 0.9877, rounds 12'
    """
    parts = {k: v for k, v in found.items() if isinstance(v, (int, float, str)) and v != ""}
    return ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in parts.items())


def words(seconds: float) -> str:
    """
    >>> [words(s) for s in (3.2, 95, 4000)]
    ['3 s', '1 min 35 s', '1 h 6 min']
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
