"""Columns that the user declares to hold categories: which they are, and the names of categories that are numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

FROM_DTYPE = "from_dtype"
ARGUMENT = "categorical_features"


def is_declaration(declared: Any) -> bool:
    """Return whether anything is declared."""
    return not (declared is None or (isinstance(declared, str) and declared == FROM_DTYPE) or len(declared) == 0)


def resolve_declared(declared: Any, n_columns: int, names: Sequence[str] | None, name: str = "X") -> tuple[int, ...]:
    """Return the numbers of declared columns, in ascending order.

    >>> resolve_declared([True, False, True], 3, None), resolve_declared(["b"], 2, ["a", "b"])
    ((0, 2), (1,))
    """
    if not is_declaration(declared):
        return ()
    given = np.asarray(declared).tolist()
    if isinstance(given[0], bool):
        if len(given) != n_columns:
            raise ValueError(
                f"{ARGUMENT} must have a flag for each of the {n_columns} columns of {name}, got {len(given)}"
            )
        return tuple(j for j, flag in enumerate(given) if flag)
    if isinstance(given[0], str):
        if names is None:
            raise ValueError(f"{ARGUMENT} has the name {given[0]!r}, but columns of {name} have none; use numbers")
        unknown = [column for column in given if column not in names]
        if unknown:
            raise ValueError(f"{ARGUMENT} must be among the columns of {name}, {list(names)[:10]}, got {unknown[0]!r}")
        return tuple(sorted({list(names).index(column) for column in given}))
    outside = [j for j in given if not 0 <= j < n_columns]
    if outside:
        raise ValueError(f"{ARGUMENT} must be from 0 to {n_columns - 1}, the last column of {name}, got {outside[0]}")
    return tuple(sorted(set(given)))


def name_numbers(values: NDArray[Any]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return codes into the names of categories that are numbers, -1 for a missing one.

    1 and 1.0 are the same category, and so are .1 in float32 and in float64.

    >>> name_numbers(np.array([2.0, np.nan, 0.5, 2.0]))
    (array([ 1, -1,  0,  1]), ('0.5', '2'))
    """
    values = values.astype(np.int8) if values.dtype.kind == "b" else values
    found, codes = np.unique(values, return_inverse=True)
    codes = np.where(values == values, codes.reshape(values.shape), -1)
    names = tuple(_number_name(value) for value in found.tolist() if value == value)
    return codes.astype(np.int64), names


def _number_name(value: float) -> str:
    return str(int(value) if float(value).is_integer() else np.float32(value))
