"""Checkers of values that came from a file: each returns the value it accepts or raises a ValueError.

A checker takes the value's name and the value. Larger ones are put together from smaller ones, so that the
format of a header reads like its documentation.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections import Counter
from collections.abc import Callable
from typing import Any

Check = Callable[[str, Any], Any]

# Longer numbers are not ours (2^64 has 20 digits, a float64 at most 24 characters), and parsing a number of a
# million digits takes time that grows with their square.
LONGEST_NUMBER = 40


def brief(value: object) -> str:
    """The value's repr, shortened: a hostile one may be large or deep."""
    return reprlib.repr(value)


def text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string, got {brief(value)}")
    return value


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {brief(value)}")
    return value


def whole(low: int, high: int) -> Check:
    """An integer from `low` to `high`, both included."""

    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"{name} must be an integer from {low} to {high}, got {brief(value)}")
        return value

    return check


def number(wanted: str, admits: Callable[[float], bool]) -> Check:
    """A finite number for which `admits` holds; `wanted` says so in words.

    >>> number("in (0, 1]", lambda x: 0.0 < x <= 1.0)("density", 2)
    Traceback (most recent call last):
        ...
    ValueError: density must be a number in (0, 1], got 2
    """

    def check(name: str, value: Any) -> float:
        # An int beyond float64 would overflow in math.isfinite: no number of ours is that large.
        small = isinstance(value, float) or (type(value) is int and abs(value) < 2**64)
        if not small or not math.isfinite(value) or not admits(value):
            raise ValueError(f"{name} must be a number {wanted}, got {brief(value)}")
        return float(value)

    return check


def one_of(*names: str) -> Check:
    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in names:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, names))}, got {brief(value)}")
        return value

    return check


def optional(inner: Check) -> Check:
    """None, or what `inner` accepts."""
    return lambda name, value: None if value is None else inner(name, value)


def sequence(inner: Check) -> Check:
    """A list whose every item `inner` accepts, as a tuple."""

    def check(name: str, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise ValueError(f"{name} must be a list, got {brief(value)}")
        return tuple(inner(f"{name}[{i}]", item) for i, item in enumerate(value))

    return check


def scalar(name: str, value: Any) -> Any:
    """What a training parameter may be: a string, a finite number, true, false or None."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        return whole(-(2**63), 2**64 - 1)(name, value)
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise ValueError(f"{name} must be a string, a finite number, true, false or null, got {brief(value)}")


def record(fields: dict[str, Check]) -> Check:
    """A dict with exactly these keys: one that is not known could be one that changes predictions.

    >>> record({"name": text})("scaling", {"name": "auto", "speed": 3})
    Traceback (most recent call last):
        ...
    ValueError: scaling has the unknown key 'speed'; known are name
    """

    def check(name: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"{name} must be an object with the keys {', '.join(fields)}, got {brief(value)}")
        for key in value:
            if key not in fields:
                raise ValueError(f"{name} has the unknown key {brief(key)}; known are {', '.join(fields)}")
        for key in fields:
            if key not in value:
                raise ValueError(f"{name} lacks the key {key!r}")
        return {key: inner(f"{name}.{key}", value[key]) for key, inner in fields.items()}

    return check


def table(inner: Check) -> Check:
    """A dict from any strings to what `inner` accepts."""

    def check(name: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"{name} must be an object, got {brief(value)}")
        return {text(f"a key of {name}", key): inner(f"{name}[{brief(key)}]", item) for key, item in value.items()}

    return check


def strict_json(source: str, what: str) -> Any:
    """JSON without what is ambiguous (a key twice, NaN) or made to exhaust us (depth, endless numbers).

    >>> strict_json('{"seed": 1, "seed": 2}', "header")
    Traceback (most recent call last):
        ...
    ValueError: header is not valid JSON: the key 'seed' is there twice
    """
    try:
        return json.loads(
            source,
            object_pairs_hook=_distinct,
            parse_constant=_no_constant,
            parse_int=_integer,
            parse_float=_real,
        )
    except RecursionError:
        raise ValueError(f"{what} is JSON nested too deeply to be ours") from None
    except ValueError as error:
        raise ValueError(f"{what} is not valid JSON: {error}") from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {brief(twice)} is there twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number JSON knows")


def _integer(digits: str) -> int:
    return int(_short(digits))


def _real(digits: str) -> float:
    value = float(_short(digits))
    if not math.isfinite(value):
        raise ValueError(f"{digits} is beyond float64")
    return value


def _short(digits: str) -> str:
    if len(digits) > LONGEST_NUMBER:
        raise ValueError(f"a number of {len(digits)} characters")
    return digits
