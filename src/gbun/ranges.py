"""Ranges of parameters: which values are admitted, and the sentence that says so."""

from __future__ import annotations

import math
import numbers
import re
from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True)
class Interval:
    """A range of numbers; `optional` admits None, `integral` admits integers only."""

    low: float
    high: float
    closed: Literal["both", "right", "neither"] = "both"
    integral: bool = False
    optional: bool = False

    def __str__(self) -> str:
        kind = "an integer" if self.integral else "a number"
        left = "[" if self.closed == "both" else "("
        right = "]" if self.closed != "neither" and math.isfinite(self.high) else ")"
        suffix = " or None" if self.optional else ""
        return f"{kind} in {left}{self.low:g}, {self.high:g}{right}{suffix}"

    def admits(self, value: object) -> bool:
        if value is None:
            return self.optional
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
            return False
        if self.integral and not isinstance(value, numbers.Integral):
            return False
        number = float(value)
        above = number >= self.low if self.closed == "both" else number > self.low
        return above and (number < self.high if self.closed == "neither" else number <= self.high)


@dataclass(frozen=True)
class Choice:
    """One of a few names; `objects` also admits a function or an object of the user."""

    names: tuple[str, ...]
    objects: bool = False
    optional = False

    def __str__(self) -> str:
        return "one of " + ", ".join(map(repr, self.names)) + (" or an object of your own" if self.objects else "")

    def admits(self, value: object) -> bool:
        return value in self.names if isinstance(value, str) else self.objects and value is not None


UNITS = {"": 1, "B": 1} | {
    prefix + unit: base**power
    for power, prefix in enumerate("KMGT", start=1)
    for unit, base in (("B", 1000), ("IB", 1024))
}


class Size:
    """A number of bytes, a number or a string with a unit, or None."""

    optional = True

    def __str__(self) -> str:
        return "a positive number of bytes such as 2e9, '2GB' or '512MiB' (kB to TB, KiB to TiB), or None"

    def admits(self, value: object) -> bool:
        try:
            return value is None or parse_size(value) is not None
        except ValueError:
            return False


def parse_size(value: object) -> int | None:
    """Return the number of bytes of a size.

    >>> parse_size("1.5 GB"), parse_size(2e9), parse_size(None)
    (1500000000, 2000000000, None)
    """
    if value is None:
        return None
    number, unit = value, ""
    if isinstance(value, str):
        number = value.rstrip("BbGgKkMmTtIi ")
        unit = value[len(number) :].strip().upper()
    try:
        size = float(number) * UNITS[unit]  # type: ignore[arg-type]
    except (TypeError, ValueError, KeyError):
        raise ValueError(f"not a number of bytes: {value!r}") from None
    if isinstance(value, bool) or not 0 < size < math.inf:
        raise ValueError(f"not a number of bytes: {value!r}")
    return int(size)


SCALING_STEPS = ("log", "standard", "max_abs", "idf", "unit", "clip", "relevance")


class Scale:
    """'auto', 'none', or steps joined by '+'."""

    optional = False

    def __str__(self) -> str:
        return (
            "'auto', 'none', or some of 'log', one of 'standard', 'max_abs', 'idf', and 'unit', in this order and "
            "joined by '+', such as 'log+idf+unit' ('unit' does not go with 'standard'); after 'standard' also 'clip' "
            "and 'relevance'"
        )

    def admits(self, value: object) -> bool:
        try:
            parse_scaling_steps(str(value))
        except ValueError:
            return False
        return isinstance(value, str)


def parse_scaling_steps(name: str) -> tuple[str, ...] | None:
    """Return the steps of a scaling; None for "auto", which chooses them by the data.

    >>> parse_scaling_steps("log+idf+unit"), parse_scaling_steps("none"), parse_scaling_steps("auto")
    (('log', 'idf', 'unit'), (), None)
    """
    if name in ("auto", "none"):
        return None if name == "auto" else ()
    steps = tuple(name.split("+"))
    places = [SCALING_STEPS.index(step) for step in steps]  # a ValueError for an unknown step
    by_column = [step for step in steps if step in SCALING_STEPS[1:4]]
    if places != sorted(set(places)) or len(by_column) > 1 or {"standard", "unit"} <= set(steps):
        raise ValueError(f"not a sequence of scaling steps: {name!r}")
    if {"clip", "relevance"} & set(steps) and "standard" not in steps:
        raise ValueError(f"not a sequence of scaling steps: {name!r}")
    return steps


class Flag:
    """True or False."""

    optional = False

    def __str__(self) -> str:
        return "True or False"

    def admits(self, value: object) -> bool:
        return isinstance(value, (bool, np.bool_))


class DeviceName:
    """The name of a device."""

    pattern = re.compile(r"cpu|torch:cpu|mps|(cuda|xpu)(:(0|[1-9][0-9]{0,2}))?")

    def __str__(self) -> str:
        return "'cpu', 'cuda', 'cuda:1', 'mps', 'xpu' or 'torch:cpu'"

    def admits(self, value: object) -> bool:
        return isinstance(value, str) and self.pattern.fullmatch(value) is not None

    def hint(self, value: object) -> str:
        """Return the advice to write a `torch.device` as a string.

        >>> DeviceName().hint("cpu0"), DeviceName().hint(type("Device", (), {"__str__": lambda self: "cuda:1"})())
        ('', "; use 'cuda:1'")
        """
        return f"; use {str(value)!r}" if not self.admits(value) and self.admits(str(value)) else ""


class Columns:
    """Columns of X: their numbers, their names, or a flag for each."""

    optional = True

    def __str__(self) -> str:
        return "'from_dtype', a list of numbers or of names of columns, a flag for each column, or None"

    def admits(self, value: object) -> bool:
        if value is None or isinstance(value, str):
            return value in (None, "from_dtype")
        if not (isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim == 1)):
            return False
        kinds = {_kind_of_column(item) for item in value}
        return len(kinds) <= 1 and "" not in kinds


def _kind_of_column(item: object) -> str:
    """Return how an item names a column; an empty string where it does not."""
    if isinstance(item, (bool, np.bool_)):
        return "flag"
    if isinstance(item, numbers.Integral):
        return "number"
    return "name" if isinstance(item, str) else ""


@dataclass(frozen=True)
class Anything:
    """Any value; the code that uses it checks it."""

    def __str__(self) -> str:
        return "see its description"

    def admits(self, value: object) -> bool:
        return True


Range = Interval | Choice | Size | Scale | Flag | DeviceName | Columns | Anything
