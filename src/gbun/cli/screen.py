"""What a command shows: results on the output stream, remarks on the error stream."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import typer


def remark(text: str) -> None:
    """Something worth knowing that is no result: it must not end up in a file of results."""
    typer.echo(text, err=True)


def show_table(rows: Iterable[tuple[str, str]], heads: tuple[str, str] | None = None) -> None:
    """Two columns, what and its value; class and column names are shown as they are, never as markup."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    first, second = heads or ("", "")
    box = SIMPLE_HEAD if heads else None
    table = Table(box=box, show_header=heads is not None, show_edge=False, pad_edge=False)
    table.add_column(first, style="bold", no_wrap=True)
    table.add_column(second, overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(markup=False, emoji=False, highlight=False).print(table)


def show_json(values: Mapping[str, Any]) -> None:
    typer.echo(json.dumps(_strict(values), indent=2, allow_nan=False))


def _strict(value: Any) -> Any:
    """JSON knows no NaN and no infinity: they become null."""
    if isinstance(value, Mapping):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def size_in_words(size: int) -> str:
    """
    >>> size_in_words(512), size_in_words(2_500_000)
    ('512 bytes', '2.5 MB')
    """
    if size < 1000:
        return f"{size} bytes"
    power = min(int(math.log10(size)) // 3, 4)
    return f"{size / 1000**power:.3g} {('', 'kB', 'MB', 'GB', 'TB')[power]}"


def shortened(values: Iterable[Any], most: int = 8) -> str:
    """
    >>> shortened(range(100), 3)
    '0, 1, 2, ... (100 in all)'
    """
    listed = [str(value) for value in values]
    more = f", ... ({len(listed)} in all)" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


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
