"""What a user should know of the text in a file before it is trained on: each value becomes a category."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

ALMOST_ALL = 0.9  # of the values are numbers: the others are mistakes, or mark missing values
MANY = 100  # different values, and more than half as many as rows: an identifier, or a date


def describe_text_columns(X: Any) -> Iterator[str]:
    """Yield a line that names the columns of text of a data frame, and a note on each that looks like a mistake."""
    if not hasattr(X, "columns"):
        return
    import pandas as pd

    text = [column for column in X.columns if not pd.api.types.is_numeric_dtype(X[column])]
    if text:
        yield f"columns of categories: {', '.join(map(str, text))}"
    for column in text:
        values = X[column].dropna()
        numbers = pd.to_numeric(values, errors="coerce")
        n_distinct = values.nunique()
        if len(values) and ALMOST_ALL <= numbers.notna().mean() < 1.0:
            other = values[numbers.isna()].iloc[0]
            yield f"note: column {column!r} holds categories instead of numbers because of {other!r}; empty such cells"
        elif n_distinct > max(MANY, len(X) / 2):
            yield f"note: column {column!r} has {n_distinct:,} different texts in {len(X):,} rows, each a category"
