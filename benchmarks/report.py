"""Results of all benchmarks as tables, JSON and pictures. A row is a dict; its "table" names its table."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from math import inf
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

Row = dict[str, Any]
PACKAGES = (
    *("gbun", "numpy", "scipy", "numba", "scikit-learn"),
    *("lightgbm", "xgboost", "xgboost-cpu", "catboost", "vowpalwabbit", "torch", "triton", "pyspark", "optuna"),
)
COLOURS = {
    "gbun": "#1b6ca8",
    "GBUN": "#1b6ca8",
    "LightGBM": "#8fb339",
    "XGBoost": "#e08e45",
    "unfused": "#999999",
    "gbun as the paper's": "#7a5ba8",
}
SERIES_COLOURS = ("#1b6ca8", "#e08e45", "#8fb339", "#9b5fa5", "#999999")
DPI = 100


def show(rows: list[Row], console: Console) -> None:
    """A table for each value of "table", with a column for each key its rows have."""
    for title, columns, members in tables(rows):
        table = Table(title=title, title_justify="left")
        for column in columns:
            numbers = any(isinstance(row.get(column), (int, float)) for row in members)
            table.add_column(column, justify="right" if numbers else "left")
        for row in members:
            table.add_row(*(cell(row.get(column)) for column in columns))
        console.print(table)


def tables(rows: list[Row]) -> Iterator[tuple[str, list[str], list[Row]]]:
    """For each value of "table" the columns in which its rows have anything, and these rows."""
    for title in dict.fromkeys(row["table"] for row in rows):
        members = [row for row in rows if row["table"] == title]
        columns = [key for key in dict.fromkeys(key for row in members for key in row) if key != "table"]
        yield title, [key for key in columns if any(row.get(key) not in (None, "") for row in members)], members


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


def make_parser(
    command: str, text: str | None, output: str, data: bool = True, quick: str | None = None
) -> argparse.ArgumentParser:
    """A command line with --output and, if the command reads data sets, --data. A command that has a `quick` form can
    do without data sets."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{command}", description=text, formatter_class=raw)
    if data:
        words = "folder of the data sets" + ("; without it only generated rows are used" if quick else "")
        parser.add_argument("--data", type=existing_folder, required=quick is None, help=words)
    parser.set_defaults(default_output=output)
    words = f"{output} by default" + (f", {output}_quick with --quick" if quick else "")
    parser.add_argument("--output", type=Path, default=None if quick else Path(output), help=words)
    if quick:
        parser.add_argument("--quick", action="store_true", help=quick)
    return parser


def existing_folder(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"must be a folder, got {text}")
    return Path(text)


def output_folder(args: argparse.Namespace) -> Path:
    """Make the folder that --output names, or its default."""
    folder: Path = args.output or Path(args.default_output + ("_quick" if args.quick else ""))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def names_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """An argparse type: some of the known names, with commas between them."""

    def parse(text: str) -> list[str]:
        given = [name for name in text.split(",") if name]
        if not given or set(given) - set(known):
            unknown = sorted(set(given) - set(known))
            raise argparse.ArgumentTypeError(f"unknown {unknown}; known are {', '.join(known)}")
        return given

    return parse


def number(read: Callable[[str], float] = int, least: float = 1, several: bool = False) -> Callable[[str], Any]:
    """An argparse type: one number, or several with commas between them."""

    def parse(text: str) -> Any:
        try:
            values = [read(part.strip()) for part in (text.split(",") if several else [text])]
        except ValueError as error:
            expected = "numbers with commas between them" if several else "one number"
            raise argparse.ArgumentTypeError(f"must be {expected}, got {text!r}") from error
        if not all(least <= value < inf for value in values):
            raise argparse.ArgumentTypeError(f"must be at least {least:g}, got {text!r}")
        return values if several else values[0]

    return parse


numbers = partial(number, several=True)


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
    found = {}
    for name in names:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def code() -> str | None:
    """Which commit the code is of, and whether it was changed since; None where that is not known."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def load() -> dict[str, Any]:
    """How busy the machine is: processes that want a core, over the last minute, and memory that could be had."""
    available = read_bytes("/proc/meminfo", "MemAvailable")
    return {"load": round(os.getloadavg()[0], 2), "memory available": available and f"{available / 2**30:.1f} GiB"}


def read_bytes(path: str, name: str) -> int | None:
    """A size in bytes that a file of /proc gives in kB, by name; None where it does not."""
    with suppress(OSError):
        for line in Path(path).read_text().splitlines():
            if line.startswith(f"{name}:"):
                return 1024 * int(line.split()[1])
    return None


def cpu_model() -> str:
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return platform.processor() or platform.machine()


def read(path: Path) -> dict[str, Any]:
    """The parts of an earlier report: those that are not run again are kept."""
    return dict(json.loads(path.read_text())["parts"]) if path.exists() else {}


def write(path: Path, parts: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"parts": parts}, indent=1))


def new_figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Any, path: Path, shades: int = 32) -> None:
    """Write a PNG file with a palette of so many shades: a fifth of the bytes, as figures have few colours."""
    import numpy as np
    from PIL import Image

    figure.set_dpi(DPI)
    figure.canvas.draw()
    pixels = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())[:, :, :3].copy())
    pixels.quantize(shades, dither=Image.Dither.NONE).save(path, optimize=True)


def bars(
    ax: Any, names: Sequence[str], values: Sequence[float], words: Sequence[str] = (), learners: Sequence[str] = ()
) -> None:
    """Horizontal bars with the value or a few words behind each, in the colour of the learner whose name it begins
    with."""
    colours = [COLOURS[name.split()[0]] for name in learners] or COLOURS["gbun"]
    words = words or [f"{value:.3g}" for value in values]
    ax.bar_label(ax.barh(names, values, color=colours), words, fontsize=7, padding=2)
    ax.margins(x=0.15)
    ax.invert_yaxis()


def plot_line(ax: Any, points: Sequence[tuple[Any, Any]], style: str, colour: str, label: str) -> None:
    """The points of a series that are known."""
    known = sorted(point for point in points if None not in point)
    if known:
        ax.plot(*zip(*known, strict=True), style, color=colour, label=label)
