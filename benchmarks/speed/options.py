"""What the command line says, and how a quick run shrinks it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rich.console import Console

T = TypeVar("T")
QUICK = 20  # a quick run has this part of the rows


@dataclass(frozen=True)
class Options:
    """`data` is the folder of real sets; without it only generated rows are used."""

    data: Path | None
    threads: int
    quick: bool
    console: Console
    device: str = "cpu"

    def rows(self, n: int) -> int:
        return n // QUICK if self.quick else n

    def sweeps(self, n: int) -> int:
        return min(n, 2) if self.quick else n

    def pick(self, whole: T, quick: T) -> T:
        return quick if self.quick else whole
