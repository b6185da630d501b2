"""Rows of results as tables and as JSON. A row is a dict; its "table" says which table it belongs to."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

Row = dict[str, Any]
PACKAGES = (
    *("gbun", "numpy", "scipy", "numba", "scikit-learn"),
    *("lightgbm", "xgboost", "xgboost-cpu", "catboost", "vowpalwabbit", "torch", "triton", "pyspark", "optuna"),
)


def show(rows: list[Row], console: Console) -> None:
    """A table for each value of "table", with a column for each key its rows have."""
    for title, columns, own in tables(rows):
        table = Table(title=title, title_justify="left")
        for column in columns:
            numbers = any(isinstance(row.get(column), (int, float)) for row in own)
            table.add_column(column, justify="right" if numbers else "left")
        for row in own:
            table.add_row(*(cell(row.get(column)) for column in columns))
        console.print(table)


def tables(rows: list[Row]) -> Iterator[tuple[str, list[str], list[Row]]]:
    """For each value of "table" the columns in which its rows have anything, and these rows."""
    for title in dict.fromkeys(row["table"] for row in rows):
        own = [row for row in rows if row["table"] == title]
        columns = [key for key in dict.fromkeys(key for row in own for key in row) if key != "table"]
        yield title, [key for key in columns if any(row.get(key) not in (None, "") for row in own)], own


def cell(value: Any) -> str:
    """
    >>> [cell(v) for v in (None, True, 1200000, 0.0123456, 1234.5)]
    ['', 'yes', '1,200,000', '0.01235', '1,234']
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)


def goal(data: str, what: str, measured: float | None, *, most: float | None = None, least: float | None = None) -> Row:
    """A row that says whether a goal the project set itself is met; not at all where nothing was measured."""
    limit = f"<= {most:,.4g}" if most is not None else f">= {least:,.4g}"
    met = None
    if measured is not None:
        met = bool(measured <= most if most is not None else measured >= (least or 0.0))
    return {"table": "goals", "data": data, "goal": what, "measured": measured, "limit": limit, "met": met}


def about(threads: int, quick: bool) -> dict[str, Any]:
    """Where and when a part was measured, and with what."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "quick": quick,
        "threads": threads,
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
        "kernel": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "python": platform.python_version(),
        "packages": versions(),
    }


def versions(names: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Of those that are installed."""
    return {name: found for name in names if (found := _version(name)) is not None}


def code() -> str | None:
    """Which commit the code is of, and whether it was changed since; None where that is not known."""
    command = ["git", "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def load() -> dict[str, Any]:
    """How busy the machine is: processes that want a core, over the last minute, and memory that could be had."""
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        available = f"{int(lines['MemAvailable'].split()[0]) / 2**20:.1f} GiB"
    except (OSError, KeyError):
        available = None
    return {"load": round(os.getloadavg()[0], 2), "memory available": available}


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def read(path: Path) -> dict[str, Any]:
    """The parts of an earlier report: those that are not run again are kept."""
    return dict(json.loads(path.read_text())["parts"]) if path.exists() else {}


def write(path: Path, parts: Mapping[str, Any]) -> None:
    path.write_text(json.dumps({"parts": parts}, indent=1))
