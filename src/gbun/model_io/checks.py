"""Checks of values that came from a file: each takes a name and a value, and returns the value or raises.

Larger ones are put together from smaller ones, so that the format of a header reads like its documentation.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from reprlib import repr as brief  # a hostile value may be large or deep
from typing import Any

Check = Callable[[str, Any], Any]

# Longer numbers are not ours (2^64 has 20 digits, a float64 at most 24 characters), and parsing a number of a
# million digits takes time that grows with their square.
LONGEST_NUMBER = 40


def rule(wanted: str, admits: Callable[[Any], bool]) -> Check:
    """A value for which `admits` holds; `wanted` says so in words.

    >>> rule("a string", lambda value: isinstance(value, str))("kind", 3)
    Traceback (most recent call last):
        ...
    ValueError: kind must be a string, got 3
    """

    def check(name: str, value: Any) -> Any:
        if not admits(value):
            raise ValueError(f"{name} must be {wanted}, got {brief(value)}")
        return value

    return check


def _is_number(value: Any) -> bool:
    # An int beyond float64 would overflow in math.isfinite; True is an int to Python, and none to us.
    small = type(value) is int and -(2**63) <= value < 2**64
    return small or (isinstance(value, float) and math.isfinite(value))


anything = rule("anything", lambda value: True)
text = rule("a string", lambda value: isinstance(value, str))
flag = rule("true or false", lambda value: isinstance(value, bool))
scalar = rule(
    "a string, a finite number of 64 bits, true, false or null",
    lambda value: value is None or isinstance(value, (str, bool)) or _is_number(value),
)


def whole(low: int, high: int) -> Check:
    """An integer from `low` to `high`, both included."""
    return rule(f"an integer from {low} to {high}", lambda value: type(value) is int and low <= value <= high)


def number(wanted: str, admits: Callable[[float], bool]) -> Check:
    """A finite number for which `admits` holds, as a float."""
    check = rule(f"a number {wanted}", lambda value: _is_number(value) and admits(value))
    return lambda name, value: float(check(name, value))


def one_of(*names: str) -> Check:
    wanted = f"one of {', '.join(map(repr, names))}"
    return rule(wanted, lambda value: isinstance(value, str) and value in names)


def optional(inner: Check) -> Check:
    """None, or what `inner` accepts."""
    return lambda name, value: None if value is None else inner(name, value)


def sequence(inner: Check) -> Check:
    """A list whose every item `inner` accepts, as a tuple."""
    check = rule("a list", lambda value: isinstance(value, list))
    return lambda name, value: tuple(inner(f"{name}[{i}]", item) for i, item in enumerate(check(name, value)))


def table(inner: Check) -> Check:
    """A dict from any strings to what `inner` accepts."""
    check = rule("an object", lambda value: isinstance(value, dict))
    return lambda name, value: {
        text(f"a key of {name}", key): inner(f"{name}[{brief(key)}]", item) for key, item in check(name, value).items()
    }


def record(fields: dict[str, Check]) -> Check:
    """A dict with exactly these keys: one that is not known could be one that changes predictions.

    >>> record({"name": text})("scaling", {"name": "auto", "speed": 3})
    Traceback (most recent call last):
        ...
    ValueError: scaling must be an object with the keys name; missing [], unknown ['speed']
    """
    wanted = f"an object with the keys {', '.join(fields)}"

    def check(name: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"{name} must be {wanted}, got {brief(value)}")
        missing, unknown = [k for k in fields if k not in value], [k for k in value if k not in fields]
        if missing or unknown:
            raise ValueError(f"{name} must be {wanted}; missing {missing}, unknown {brief(unknown)}")
        return {key: inner(f"{name}.{key}", value[key]) for key, inner in fields.items()}

    return check


def strict_json(source: bytes | str, what: str) -> Any:
    """JSON without what is ambiguous (a key twice, NaN) or made to exhaust us (depth, endless numbers).

    >>> strict_json('{"seed": 1, "seed": 2}', "header")
    Traceback (most recent call last):
        ...
    ValueError: header is not valid JSON: the key 'seed' is there twice
    """
    try:
        return json.loads(
            source if isinstance(source, str) else source.decode("utf-8"),
            object_pairs_hook=_distinct,
            parse_constant=_finite(float),
            parse_int=_finite(int),
            parse_float=_finite(float),
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


def _finite(kind: type[int] | type[float]) -> Callable[[str], float]:
    def parse(digits: str) -> float:
        if len(digits) > LONGEST_NUMBER or not math.isfinite(value := kind(digits)):
            raise ValueError(f"{brief(digits)} is no number of ours")
        return value

    return parse
