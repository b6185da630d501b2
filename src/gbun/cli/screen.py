"""Output of the commands. Results go to the output stream; notes go to the error stream, not into a file of results."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import typer


def show_table(rows: Iterable[tuple[str, str]], heads: tuple[str, str] | None = None) -> None:
    """Print a table of two columns. Text is never read as markup: it may hold class and column names."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    first, second = heads or ("", "")
    table = Table(box=SIMPLE_HEAD if heads else None, show_header=bool(heads), show_edge=False, pad_edge=False)
    table.add_column(first, style="bold", no_wrap=True)
    table.add_column(second, overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(markup=False, emoji=False, highlight=False).print(table)


def show_bars(rows: Iterable[tuple[str, float]], title: str, width: int = 30) -> None:
    """Print a table of names, numbers and bars; negative bars have another sign and colour."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = list(rows)
    largest = max((abs(value) for _, value in rows), default=0.0) or 1.0
    table = Table(box=SIMPLE_HEAD, show_header=False, show_edge=False, pad_edge=False, title_justify="left")
    table.add_column(overflow="fold")
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for name, value in rows:
        bar = "█" * (max(1, round(width * abs(value) / largest)) if value else 0)
        table.add_row(
            Text(name),
            f"{value:+.4g}" if value < 0 or title.startswith("score") else f"{value:.4g}",
            Text(bar, style="red" if value < 0 else "blue"),
        )
    console = Console(markup=False, emoji=False, highlight=False)
    console.print(title)
    console.print(table)


def show_json(values: Mapping[str, Any]) -> None:
    typer.echo(json.dumps(_replace_non_finite(values), indent=2, allow_nan=False))


def _replace_non_finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None."""
    if isinstance(value, Mapping):
        return {key: _replace_non_finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replace_non_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def format_list(values: Iterable[Any], most: int = 8) -> str:
    """
    >>> format_list(range(100), 3)
    '0, 1, 2, ... (100 in all)'
    """
    texts = [str(value) for value in values]
    return ", ".join(texts[:most]) + (f", ... ({len(texts)} in all)" if len(texts) > most else "")


def sparkline(values: list[float], width: int = 60) -> str:
    """
    >>> sparkline([0.0, 1.0, 2.0, 7.0])
    '▁▂▃█'
    """
    n = len(values)
    cuts = [n * i // min(n, width) for i in range(min(n, width) + 1)] if n else [0]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(cuts)]
    high = max(means, default=0.0) or 1.0
    return "".join("▁▂▃▄▅▆▇█"[round(7 * mean / high)] for mean in means)
