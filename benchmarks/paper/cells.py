"""Cells: the smallest things an experiment measures. What one has found is kept, so that a run can be resumed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console

from benchmarks.speed.timing import Failed


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
    cells: Sequence[Cell], store: Store, about: Callable[[], Mapping[str, Any]], console: Console, again: bool = False
) -> list[Finding]:
    """What all cells have found, in their order; those that the store does not know are run, and told of as they end.

    The time left is that of the cells run so far, in proportion to the guesses.
    """
    known = {} if again else {cell.name: finding for cell in cells if (finding := store.of(cell)) is not None}
    missing = [cell for cell in cells if cell.name not in known]
    if known:
        console.print(f"{len(known)} of {len(cells)} cells are known from {store.path}")
    spent = guessed = 0.0
    for number, cell in enumerate(missing):
        left = sum(one.guess for one in missing[number:]) * (spent / guessed if guessed else 1.0)
        console.print(f"[{number + 1}/{len(missing)}] {cell.name}, about {words(left)} left", markup=False)
        known[cell.name] = finding = _measured(cell, about())
        store.put(finding)
        spent, guessed = spent + finding.seconds, guessed + cell.guess
        console.print(f"    {finding.failed or brief(finding.found)}; took {words(finding.seconds)}", markup=False)
    return [known[cell.name] for cell in cells]


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
