"""What the command line of an experiment says, and what holds where it says nothing."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.paper.experiment import Plan


def chosen(plan: Plan, whole: Mapping[str, Any], quick: Mapping[str, Any]) -> argparse.Namespace:
    """The plan's arguments; those that were not given are as in `whole`, or as in `quick` where the plan is."""
    given = {name: value for name, value in vars(plan.given).items() if value is not None}
    return argparse.Namespace(**{**vars(plan.given), **(quick if plan.quick else whole), **given})


def numbers(read: Callable[[str], float] = int, least: float = 1) -> Callable[[str], list[Any]]:
    """For argparse: numbers with commas between them."""

    def listed(told: str) -> list[Any]:
        try:
            found = [read(part.strip()) for part in told.split(",")]
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"must be numbers with commas between them, got {told!r}") from error
        if not all(least <= one < inf for one in found):
            raise argparse.ArgumentTypeError(f"must be at least {least:g}, got {told!r}")
        return found

    return listed


def number(read: Callable[[str], float] = int, least: float = 1) -> Callable[[str], Any]:
    """For argparse: one of them."""

    def one(told: str) -> Any:
        found = numbers(read, least)(told)
        if len(found) != 1:
            raise argparse.ArgumentTypeError(f"must be one number, got {told!r}")
        return found[0]

    return one
