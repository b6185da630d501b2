"""Cells: the smallest things an experiment measures. What one has found is kept, so that a run can be resumed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from time import perf_counter
from typing import Any, TypeVar, cast

from rich.console import Console

from benchmarks.speed.timing import Failed

Given, Made = TypeVar("Given"), TypeVar("Made")


@dataclass(frozen=True)
class Cell:
    """`settings`, as JSON can write them, are all that its figures depend on: when they change, it is run again.

    `run` gives what was found, as JSON can write it, or raises Failed with the reason, which is a finding too: a
    learner that needs more memory or time than there is.
    """

    name: str
    settings: Mapping[str, Any]
    run: Callable[[], Mapping[str, Any]]
    guess: float = 1.0
    """About how many seconds it takes; only the proportions matter, for the estimate of the time left."""
    packages: Sequence[str] = ()
    """Those of `report.PACKAGES` that its figures depend on: with another version of one, it is run again."""


@dataclass(frozen=True)
class Finding:
    """What came of a cell: `found`, or the reason why there is nothing in `failed`; where and when in `about`."""

    name: str
    settings: Mapping[str, Any]
    seconds: float
    about: Mapping[str, Any]
    found: Mapping[str, Any] = field(default_factory=dict)
    failed: str = ""


class Store:
    """The findings of an experiment in a JSON file, which is whole at any time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        told = json.loads(path.read_text()) if path.exists() else []
        self._findings = {finding.name: finding for finding in (Finding(**one) for one in told)}

    def of(self, cell: Cell) -> Finding | None:
        """What this cell has found with the settings it has now."""
        finding = self._findings.get(cell.name)
        return finding if finding is not None and finding.settings == _as_json(cell.settings) else None

    def all(self) -> list[Finding]:
        """Everything, whatever it was made with."""
        return list(self._findings.values())

    def put(self, finding: Finding) -> None:
        self._findings[finding.name] = finding
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_suffix(".part")
        beside.write_text(json.dumps([asdict(one) for one in self._findings.values()], indent=1) + "\n")
        beside.replace(self.path)


def run(
    cells: Sequence[Cell],
    store: Store,
    about: Callable[[], Mapping[str, Any]],
    console: Console,
    again: bool = False,
    jobs: int = 1,
) -> list[Finding]:
    """What all cells have found, in their order; those that the store does not know are run, and told of as they end.

    `jobs` of them run side by side. The time left is that of the cells run so far, in proportion to the guesses.
    """
    known = {} if again else {cell.name: finding for cell in cells if (finding := store.of(cell)) is not None}
    missing = [cell for cell in cells if cell.name not in known]
    if known:
        console.print(f"{len(known)} of {len(cells)} cells are known from {store.path}")
    spent = guessed = 0.0

    def begun(number: int) -> Finding:
        left = sum(one.guess for one in missing[number:]) * (spent / guessed if guessed else 1.0) / jobs
        console.print(f"[{number + 1}/{len(missing)}] {missing[number].name}, about {words(left)} left", markup=False)
        return _measured(missing[number], about())

    numbers = range(len(missing))
    for finding in map(begun, numbers) if jobs == 1 else side_by_side(begun, numbers, jobs):
        known[finding.name] = finding
        store.put(finding)
        spent += finding.seconds
        guessed += next(cell.guess for cell in missing if cell.name == finding.name)
        named = "" if jobs == 1 else f"{finding.name}: "
        told = finding.failed or brief(finding.found)
        console.print(f"    {named}{told}; took {words(finding.seconds)}", markup=False)
    return [known[cell.name] for cell in cells]


def side_by_side(work: Callable[[Given], Made], all_given: Iterable[Given], jobs: int) -> Iterator[Made]:
    """What `work` makes of each, as it ends, in `jobs` threads.

    They are daemons, and results are taken by the caller's thread: an interrupt ends all at once, and what a child
    process that it killed has to say is not kept.
    """
    waiting: SimpleQueue[Given] = SimpleQueue()
    made: SimpleQueue[tuple[Made | None, BaseException | None]] = SimpleQueue()
    for given in (listed := list(all_given)):
        waiting.put(given)

    def serve() -> None:
        while True:
            try:
                given = waiting.get_nowait()
            except Empty:
                return
            try:
                made.put((work(given), None))
            except BaseException as error:
                made.put((None, error))

    for _ in range(jobs):
        Thread(target=serve, daemon=True).start()
    for _ in listed:
        result, error = made.get()
        if error is not None:
            raise error
        yield cast("Made", result)


def _measured(cell: Cell, about: Mapping[str, Any]) -> Finding:
    began, settings = perf_counter(), _as_json(cell.settings)
    try:
        found, failed = _as_json(cell.run()), ""
    except Failed as failure:
        found, failed = {}, str(failure)
    return Finding(cell.name, settings, perf_counter() - began, about, found, failed)


def _as_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """As it will be read: tuples are lists, keys are text."""
    return dict(json.loads(json.dumps(value)))


def brief(found: Mapping[str, Any]) -> str:
    """
    >>> brief({"auc": 0.98765, "curve": [1, 2], "rounds": 12})
    'auc 0.9877, rounds 12'
    """
    parts = {k: v for k, v in found.items() if isinstance(v, (int, float, str))}
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
