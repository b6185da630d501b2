"""Data frames, pandas' or polars', as columns of numbers or of categories. Neither package is imported here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Column:
    """One column: `values` when numeric, otherwise `codes` into `categories`, -1 where missing."""

    name: str
    values: NDArray[np.float64] | None = None
    codes: NDArray[np.int64] | None = None
    categories: tuple[str, ...] = ()


def is_frame(X: Any) -> bool:
    return type(X).__name__ == "DataFrame" and type(X).__module__.split(".")[0] in ("pandas", "polars")


def columns(X: Any, name: str, categorical: Sequence[str] | None = None) -> list[Column]:
    """The frame's columns. `categorical` names those that must be read as categories, whatever their type is now."""
    convert = _from_pandas if type(X).__module__.startswith("pandas") else _from_polars
    check_names(X, name)
    return [convert(X[column], str(column), name, categorical) for column in X.columns]


def missing(X: Any) -> list[bool]:
    """Of each column, whether it is missing in every row: then its type says little."""
    if type(X).__module__.startswith("pandas"):
        return [bool(X[column].isna().all()) for column in X.columns]
    return [X[column].null_count() == len(X) for column in X.columns]


def check_names(X: Any, name: str) -> None:
    names = [str(column) for column in X.columns]
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise ValueError(f"{name} has several columns named {twice!r}; column names must differ")


def _from_pandas(series: Any, column: str, name: str, categorical: Sequence[str] | None) -> Column:
    kind = getattr(series.dtype, "kind", "O")
    nominal = series.dtype.name == "category" or (kind in "OUST" and kind != "M") or series.dtype.name.startswith("str")
    if kind == "O" and series.dtype.name == "object":
        nominal = not _all_numbers(series.dropna(), column, name)
    nominal = _role(nominal, bool(series.isna().all()), column, name, categorical)
    if nominal:
        codes, categories = series.factorize()
        return Column(column, codes=codes.astype(np.int64), categories=tuple(_text(c) for c in categories))
    if kind not in "fiubO":
        raise ValueError(_not_supported(column, name, series.dtype))
    return Column(column, series.to_numpy(dtype=np.float64, na_value=np.nan))


def _all_numbers(values: Any, column: str, name: str) -> bool:
    """Whether a column of Python objects holds numbers; otherwise all must be words."""
    kinds = {type(value) for value in values}
    if kinds and all(issubclass(kind, (int, float, np.number, np.bool_)) for kind in kinds):
        return True
    other = next((kind for kind in kinds if not issubclass(kind, str)), None)
    if other is not None:
        raise ValueError(
            f"{name}[{column!r}] must hold numbers, or strings, or be of type category, got {other.__name__} in it"
        )
    return False


def _text(category: Any) -> str:
    """1 and 1.0 are the same category: a missing value beside it turns pandas' integers into floats."""
    return str(int(category)) if isinstance(category, float) and category.is_integer() else str(category)


def _from_polars(series: Any, column: str, name: str, categorical: Sequence[str] | None) -> Column:
    kind = str(series.dtype).split("(")[0]
    nominal = kind in ("String", "Utf8", "Categorical", "Enum")
    nominal = _role(nominal, series.null_count() == len(series), column, name, categorical)
    if nominal and kind == "Null":
        return Column(column, codes=np.full(len(series), -1, dtype=np.int64))
    if nominal:
        values = series.cast(str).to_list()
        places = {value: i for i, value in enumerate(dict.fromkeys(v for v in values if v is not None))}
        codes = np.array([-1 if v is None else places[v] for v in values], dtype=np.int64)
        return Column(column, codes=codes, categories=tuple(places))
    if not (series.dtype.is_numeric() or kind in ("Boolean", "Null")):
        raise ValueError(_not_supported(column, name, series.dtype))
    return Column(column, np.array(series.cast(float).to_numpy(), dtype=np.float64))


def _role(nominal: bool, missing: bool, column: str, name: str, categorical: Sequence[str] | None) -> bool:
    """Whether the column holds categories; one that is missing everywhere plays the part it had in training."""
    if categorical is None or nominal == (column in categorical):
        return nominal
    if missing:
        return not nominal
    was, now = ("categories", "numbers") if column in categorical else ("numbers", "categories")
    raise ValueError(f"{name}[{column!r}] held {was} in training and holds {now} now; convert it with astype")


def _not_supported(column: str, name: str, dtype: Any) -> str:
    return (
        f"{name}[{column!r}] has type {dtype}; columns must hold numbers, booleans, strings or categories "
        "(turn dates into numbers such as days since a date)"
    )
