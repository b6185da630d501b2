"""Checks of values that came from a file: each takes a name and a value, and returns the value or raises a ValueError.

Larger ones are put together from smaller ones, so that the format of a header reads like its documentation.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

Check = Callable[[str, Any], Any]

brief = reprlib.repr  # a hostile value may be large or deep


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


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, (str, bool)) or _is_number(value)


anything = rule("anything", lambda value: True)
text = rule("a string", lambda value: isinstance(value, str))
flag = rule("true or false", lambda value: isinstance(value, bool))
parameter_value = rule(
    "a string, a finite number of 64 bits, true, false, null, or a list of them",
    lambda value: all(map(_is_scalar, value if isinstance(value, list) else [value])),
)


def strings(name: str, value: Any) -> tuple[str, ...]:
    is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return tuple(rule("a list of strings", lambda _: is_list)(name, value))


def integer(low: int, high: int) -> Check:
    """An integer from `low` to `high`, both included."""
    return rule(f"an integer from {low} to {high}", lambda value: type(value) is int and low <= value <= high)


def number(wanted: str, admits: Callable[[float], bool]) -> Check:
    """A finite number for which `admits` holds, as a float."""
    check = rule(f"a number {wanted}", lambda value: _is_number(value) and admits(value))
    return lambda name, value: float(check(name, value))


def one_of(*names: str) -> Check:
    return rule(f"one of {', '.join(map(repr, names))}", lambda value: isinstance(value, str) and value in names)


def optional(inner: Check) -> Check:
    """None, or what `inner` accepts."""
    return lambda name, value: None if value is None else inner(name, value)


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
        rule(wanted, lambda value: isinstance(value, dict))(name, value)
        missing, unknown = [k for k in fields if k not in value], [k for k in value if k not in fields]
        if missing or unknown:
            raise ValueError(f"{name} must be {wanted}; missing {missing}, unknown {brief(unknown)}")
        return {key: inner(f"{name}.{key}", value[key]) for key, inner in fields.items()}

    return check


def parse_strict_json(source: str, what: str) -> Any:
    """Parse JSON in which no key is there twice. Python itself limits depth and the digits of an integer."""
    try:
        return json.loads(source, object_pairs_hook=_to_dict_without_duplicates)
    except RecursionError:
        raise ValueError(f"{what} is JSON nested too deeply to be ours") from None
    except ValueError as error:
        raise ValueError(f"{what} is not valid JSON: {error}") from None


def _to_dict_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"a key is there twice among {brief([key for key, _ in pairs])}")
    return found


def check_array(name: str, array: NDArray[Any], dtype: str, shape: tuple[int | None, ...]) -> NDArray[Any]:
    """Return an array of a file once it has this dtype and shape and, where it must be of floats, only finite ones.

    `dtype` is the name of a NumPy dtype, or "integers" or "numbers" for any such type of at most 64 bits. None in
    `shape` stands for any length. Nothing is converted: another dtype would predict other bits.
    """
    kinds = {"integers": "iu", "numbers": "biuf"}.get(dtype, "")
    is_of_dtype = array.dtype.name == dtype or (array.dtype.kind in kinds and array.dtype.itemsize <= 8)
    fits = array.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, array.shape, strict=True))
    if not is_of_dtype or not fits:
        wanted = str(shape).replace("None", "*")
        raise ValueError(f"{name} must be {dtype} of shape {wanted}, got {array.dtype.name} of {array.shape}")
    if dtype.startswith("float") and not np.isfinite(array).all():
        raise ValueError(f"{name} has NaN or infinite values")
    return array


def check_names(found: Collection[str], expected: Collection[str]) -> None:
    """Refuse arrays of a file whose names are not exactly those expected."""
    missing, extra = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
    if missing or extra:
        raise ValueError(f"tensors do not fit the header: missing {missing}, not expected {brief(extra)}")
