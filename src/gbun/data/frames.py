"""Read data frames of pandas or polars as columns of numbers or categories, without importing either package."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbun.data.declared import name_numbers

INFINITY_ADVICE = "NaN means missing, infinity is an error"


@dataclass(frozen=True)
class FrameColumn:
    """A column: `values` if it is numeric, otherwise `codes` into `categories`, -1 for a missing value."""

    name: str
    values: NDArray[np.float64] | None = None
    codes: NDArray[np.int64] | None = None
    categories: tuple[str, ...] = ()


def is_frame(X: Any) -> bool:
    return type(X).__name__ == "DataFrame" and type(X).__module__.split(".")[0] in ("pandas", "polars")


def _is_pandas(X: Any) -> bool:
    return type(X).__module__.startswith("pandas")


def read_columns(
    X: Any, name: str, categorical: Sequence[str] | None = None, declared: Sequence[str] = ()
) -> list[FrameColumn]:
    """Read the columns of a frame; those named in `categorical`, and no others, must hold categories.

    Numbers in `declared` columns are categories.
    """
    convert = _from_pandas if _is_pandas(X) else _from_polars
    check_column_names(X, name)
    read = []
    for column in X.columns:
        is_declared = str(column) in declared
        found = convert(X[column], str(column), name, None if is_declared else categorical)
        if is_declared and found.values is not None:
            codes, categories = name_numbers(_finite_numbers(X[column], found.values, str(column), name))
            found = FrameColumn(str(column), codes=codes, categories=categories)
        read.append(found)
    return read


def _finite_numbers(series: Any, values: NDArray[np.float64], column: str, name: str) -> NDArray[Any]:
    """Return the numbers of a column as they are, and not as float64 if they are integers."""
    check_finite(values, column, name)
    numbers = series.to_numpy()
    return np.asarray(numbers if numbers.dtype.kind in "biu" else values)


def check_finite(values: NDArray[np.float64], column: str, name: str) -> None:
    if np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values))[0])
        raise ValueError(f"{name}[{column!r}] has an infinite value in row {row}; {INFINITY_ADVICE}")


def find_missing_columns(X: Any) -> list[bool]:
    """Return for each column whether all of its values are missing: then its type says little."""
    if _is_pandas(X):
        return [bool(X[column].isna().all()) for column in X.columns]
    return [X[column].null_count() == len(X) for column in X.columns]


def check_column_names(X: Any, name: str) -> None:
    names = [str(column) for column in X.columns]
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise ValueError(f"{name} has several columns named {twice!r}; column names must differ")


def _from_pandas(series: Any, column: str, name: str, categorical: Sequence[str] | None) -> FrameColumn:
    kind = getattr(series.dtype, "kind", "O")
    is_categorical = series.dtype.name == "category" or kind in "OUST" or series.dtype.name.startswith("str")
    if kind == "O" and series.dtype.name == "object":
        is_categorical = not _all_numbers(series.dropna(), column, name)
    is_categorical = _is_categorical(is_categorical, bool(series.isna().all()), column, name, categorical)
    if is_categorical:
        codes, categories = series.factorize()
        # 1 and 1.0 are the same category, as a missing value turns integers of pandas into floats.
        whole = (int(c) if isinstance(c, float) and c.is_integer() else c for c in categories)
        names = tuple(map(str, whole))
        return FrameColumn(column, codes=codes.astype(np.int64), categories=names)
    if kind not in "fiubO":
        raise ValueError(_unsupported_message(column, name, series.dtype))
    return FrameColumn(column, series.to_numpy(dtype=np.float64, na_value=np.nan))


def _all_numbers(values: Any, column: str, name: str) -> bool:
    """Return whether a column of Python objects holds numbers; if not, all must be strings."""
    of_kind = {type(value): value for value in values}
    numbers = [v for kind, v in of_kind.items() if issubclass(kind, (int, float, np.number, np.bool_))]
    strings = [v for kind, v in of_kind.items() if issubclass(kind, str)]
    for kind, value in of_kind.items():
        if not any(value is known for known in (*numbers, *strings)):
            raise ValueError(
                f"{name}[{column!r}] must hold numbers, or strings, or be of type category, got {kind.__name__} in it"
            )
    if numbers and strings:
        raise ValueError(
            f"{name}[{column!r}] must hold numbers only, or strings only, got both: {numbers[0]!r} and {strings[0]!r}"
        )
    return bool(numbers)


def _from_polars(series: Any, column: str, name: str, categorical: Sequence[str] | None) -> FrameColumn:
    kind = str(series.dtype).split("(")[0]
    is_categorical = kind in ("String", "Utf8", "Categorical", "Enum")
    is_categorical = _is_categorical(is_categorical, series.null_count() == len(series), column, name, categorical)
    if is_categorical and kind == "Null":
        return FrameColumn(column, codes=np.full(len(series), -1, dtype=np.int64))
    if is_categorical:
        values = series.cast(str).to_list()
        places = {value: i for i, value in enumerate(dict.fromkeys(v for v in values if v is not None))}
        codes = np.array([-1 if v is None else places[v] for v in values], dtype=np.int64)
        return FrameColumn(column, codes=codes, categories=tuple(places))
    if not (series.dtype.is_numeric() or kind in ("Boolean", "Null")):
        raise ValueError(_unsupported_message(column, name, series.dtype))
    return FrameColumn(column, np.array(series.cast(float).to_numpy(), dtype=np.float64))


def _is_categorical(
    is_categorical: bool, missing: bool, column: str, name: str, categorical: Sequence[str] | None
) -> bool:
    """Decide whether a column holds categories; one with only missing values keeps its kind of training."""
    if categorical is None or is_categorical == (column in categorical):
        return is_categorical
    if missing:
        return not is_categorical
    was, now = ("categories", "numbers") if column in categorical else ("numbers", "categories")
    raise ValueError(f"{name}[{column!r}] held {was} in training and holds {now} now; convert it with astype")


def _unsupported_message(column: str, name: str, dtype: Any) -> str:
    return (
        f"{name}[{column!r}] has type {dtype}; columns must hold numbers, booleans, strings or categories "
        "(turn dates into numbers such as days since a date)"
    )
