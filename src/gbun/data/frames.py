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
    names = [str(column) for column in X.columns]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise ValueError(f"{name} has several columns named {twice[0]!r}; column names must differ")
    return [convert(X[column], str(column), name, categorical) for column in X.columns]


def _from_pandas(series: Any, column: str, name: str, categorical: Sequence[str] | None) -> Column:
    kind = getattr(series.dtype, "kind", "O")
    nominal = series.dtype.name == "category" or (kind in "OUST" and kind != "M") or series.dtype.name.startswith("str")
    _check_role(nominal, column, name, categorical)
    if nominal:
        codes, categories = series.factorize()
        return Column(column, codes=codes.astype(np.int64), categories=tuple(str(c) for c in categories))
    if kind not in "fiub":
        raise ValueError(_not_supported(column, name, series.dtype))
    return Column(column, series.to_numpy(dtype=np.float64, na_value=np.nan))


def _from_polars(series: Any, column: str, name: str, categorical: Sequence[str] | None) -> Column:
    kind = str(series.dtype).split("(")[0]
    nominal = kind in ("String", "Utf8", "Categorical", "Enum")
    _check_role(nominal, column, name, categorical)
    if nominal:
        text = series.cast(type(series.cast(str).dtype)) if kind not in ("String", "Utf8") else series
        values = text.to_list()
        places = {value: i for i, value in enumerate(dict.fromkeys(v for v in values if v is not None))}
        codes = np.array([-1 if v is None else places[v] for v in values], dtype=np.int64)
        return Column(column, codes=codes, categories=tuple(places))
    if not (series.dtype.is_numeric() or kind == "Boolean"):
        raise ValueError(_not_supported(column, name, series.dtype))
    return Column(column, np.array(series.cast(float).to_numpy(), dtype=np.float64))


def _check_role(nominal: bool, column: str, name: str, categorical: Sequence[str] | None) -> None:
    if categorical is None or nominal == (column in categorical):
        return
    was, now = ("categories", "numbers") if column in categorical else ("numbers", "categories")
    raise ValueError(f"{name}[{column!r}] held {was} in training and holds {now} now; convert it with astype")


def _not_supported(column: str, name: str, dtype: Any) -> str:
    return (
        f"{name}[{column!r}] has type {dtype}; columns must hold numbers, booleans, strings or categories "
        "(turn dates into numbers such as days since a date)"
    )
