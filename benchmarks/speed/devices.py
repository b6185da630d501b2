"""Seconds of a boosting round on a device beside the compiled kernels of the processor, and what that device is.

The same rows, sparse and dense, with all the memory that is wanted, with half of it, and with so little that features
are sent in batches. Each way is a process of its own; they take turns, a round each, and a device's queue is empty when
the clock is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from benchmarks.data import Options, Source, clicks, real
from benchmarks.internals import Plan, add_round, format_megabytes, make_device, prepare_training, thread_pool
from benchmarks.report import Row, bars
from benchmarks.timing import Built, Worker, ratio, take_turns
from gbun import Dataset, Parameters, plan

TABLE = "devices: seconds of a boosting round"
SIZES, SWEEPS, MOST_SECONDS = (64, 256), 5, 60.0
WARM_UP = 2  # rounds
ALL, HALF, SENT = "all the memory", "half the memory", "batches sent"


def run(options: Options) -> list[Row]:
    rows: list[Row] = []
    sources = [clicks(options.rows(400_000)), dense(options.rows(400_000)), real(options, "news20_binary")]
    for source in sources:
        for K in options.pick(SIZES, SIZES[:1]):
            if source is not None:
                rows += compare(source, K, options)
    return rows


def compare(source: Source, K: int, options: Options) -> list[Row]:
    ways = {"cpu": ("cpu", ALL), options.device: (options.device, ALL)}
    if options.device != "cpu":
        ways |= {f"{options.device}, {memory}": (options.device, memory) for memory in (HALF, SENT)}
    start = {n: partial(Worker, on_device, source, K, options.threads, *way) for n, way in ways.items()}
    times = take_turns(start, "round", options.sweeps(SWEEPS), MOST_SECONDS)
    rows = []
    for name, found in times.items():
        row = {"table": TABLE, "data": source.name, "K": K, "device": name, **found.row()}
        compiled = {"of the compiled kernels'": ratio(found.median, times["cpu"].median)}
        rows.append({**row, **compiled, **found.facts})
    return rows


@contextmanager
def on_device(source: Source, K: int, n_threads: int, name: str, memory: str = ALL) -> Iterator[Built]:
    """`memory`: all that is wanted, half of what that is, or too little for features to stay on the device."""
    X, y = source.load()
    device = make_device(name)
    settings: dict[str, Any] = {"objective": "logistic", "n_neurons": K, "device": name, "init": "constant"}
    if memory == HALF:
        settings["memory_budget"] = plan(settings, (X, y)).n_bytes // 2
    elif memory == SENT:
        settings["memory_budget"] = budget_to_send(settings, X, y)
    with thread_pool(n_threads) as pool:
        training, numbers = prepare_training(Parameters(**settings), Dataset(X, y), pool), count()

        def add() -> None:
            add_round(training, next(numbers))
            device.synchronize()

        for _ in range(WARM_UP):
            add()
        kernel = getattr(training.rows.kernels, "sparse_kernel_name", "compiled")
        yield {"round": add}, {"what": str(device), "plan": in_words(training.rows.plan), "sparse kernel": kernel}


def budget_to_send(settings: dict[str, Any], X: Any, y: Any) -> int:
    """The largest budget with which features do not stay on the device."""
    found = plan(settings, (X, y))
    while found.placement is not None and found.placement.resident:
        budget = found.n_bytes - 1
        found = plan({**settings, "memory_budget": budget}, (X, y))
    return budget


def in_words(used: Plan) -> str:
    kept = "outputs kept" if used.hold else "outputs made again"
    if used.placement is None:
        return kept
    there = "features stay" if used.placement.resident else f"batches of {used.placement.capacity.rows:,} rows are sent"
    return f"{there}, {kept}, {format_megabytes(used.n_bytes)}"


def dense(n_rows: int, n_columns: int = 100) -> Source:
    return Source(f"{n_rows:,} x {n_columns} dense", partial(_dense, n_rows, n_columns))


def _dense(n_rows: int, n_columns: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, n_columns), dtype=np.float32)
    return X, (X[:, 0] * X[:, 1] + X[:, 2] > 0).astype(int)


def draw(ax: Any, rows: list[Row]) -> None:
    known = [row for row in rows if row["median"] is not None]
    names = [f"{row['data']}, K = {row['K']}: {row['device']}" for row in known]
    bars(ax, names, [row["median"] for row in known])
    ax.set_xscale("log")
    ax.set_title("seconds of a round on a device, median")
