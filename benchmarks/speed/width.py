"""What a whole training costs as ids grow: seconds and peak memory, with the linear start and without.

Rows have a one of each of 11 fields. Values of a field follow Zipf's law, so wider fields have more distinct features
in as many rows. "the same rows" have the ids of the narrowest, multiplied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.data import SEED, Options, Source, spread_clicks
from benchmarks.internals import peak_megabytes, resident_megabytes
from benchmarks.report import Row
from benchmarks.timing import Built, Times, Worker, interleave, ratio, start_all
from gbun import train

ROWS, FIELDS, ROUNDS, K = 100_000, 11, 10, 64
ZIPF = 1.1
IDS = (10_000, 1_000_000, 54_000_000)
STARTS = {"linear": "linear start", "constant": "networks alone"}
FEW = 3000  # rows that are enough to read compiled code
SWEEPS = 5


def run(options: Options) -> list[Row]:
    n = options.rows(ROWS)
    drawn = {
        "drawn anew": [Source(f"{m:,} ids", partial(zipf_rows, n, m)) for m in IDS],
        "the same rows": [spread_clicks(n, m, IDS[0]) for m in IDS],
    }
    return [row for how, sources in drawn.items() for row in by_ids(how, sources, options)]


def zipf_rows(n_rows: int, n_ids: int) -> tuple[Any, Any]:
    rng, size = np.random.default_rng(SEED), n_ids // FIELDS
    ranks = np.minimum(rng.zipf(ZIPF, (n_rows, FIELDS)) - 1, 2**40) % size
    effects = np.random.default_rng([SEED, 1]).normal(size=(FIELDS, 50))  # of the frequent values
    effect = np.where(ranks < 50, effects[np.arange(FIELDS), np.minimum(ranks, 49)], 0.0).sum(axis=1)
    y = (rng.random(n_rows) < 1.0 / (1.0 + np.exp(1.0 - effect))).astype(np.int64)
    ids = (ranks + np.arange(FIELDS) * size).ravel().astype(np.int32)
    indptr = np.arange(0, ids.size + 1, FIELDS, dtype=np.int32)
    X = sp.csr_array((np.ones(ids.size, dtype=np.float32), ids, indptr), shape=(n_rows, n_ids))
    X.has_canonical_format = True
    return X, y


@contextmanager
def build(source: Source, settings: Mapping[str, Any]) -> Iterator[Built]:
    X, y = source.load()

    def fit(n_rows: int = X.shape[0]) -> None:
        train(settings, (X[:n_rows], y[:n_rows]) if n_rows < X.shape[0] else (X, y), ROUNDS, task="classification")

    def measure_memory() -> tuple[float | None, float | None]:
        before = resident_megabytes()
        peak_megabytes(reset=True)
        fit()
        peak = peak_megabytes()
        return None if peak is None or before is None else peak - before, peak

    fit(FEW)
    yield {"fit": fit, "memory": measure_memory}, {"distinct": len(np.unique(X.indices))}


def by_ids(how: str, sources: list[Source], options: Options) -> list[Row]:
    starters = {
        (start, m): partial(Worker, build, source, {"n_neurons": K, "init": start, "n_jobs": options.threads})
        for start in STARTS
        for m, source in zip(IDS, sources, strict=True)
    }
    names = {f"{start}, {m}": (start, m) for start, m in starters}
    rows: list[Row] = []
    first: dict[str, tuple[Times, Any, Any]] = {}
    with start_all({name: starters[key] for name, key in names.items()}) as (workers, failed):
        if failed:
            raise RuntimeError(f"gbun failed: {failed}")
        memory = {name: worker.ask("memory")[1] for name, worker in workers.items()}
        times = interleave({name: worker.unit("fit") for name, worker in workers.items()}, options.sweeps(SWEEPS))
        for name, (start, m) in names.items():
            beside, whole = memory[name]
            reference = first.setdefault(start, (times[name], beside, whole))
            row = {"table": f"width: {options.rows(ROWS):,} rows, {how}, {ROUNDS} rounds of K = {K}", "ids": m}
            row |= {"start": STARTS[start], "distinct ids": workers[name].facts["distinct"], **times[name].row()}
            row |= {"seconds ratio": ratio(times[name].best, reference[0].best), "training MB": beside}
            row |= {"training ratio": ratio(beside, reference[1]), "process MB": whole}
            rows.append({**row, "process ratio": ratio(whole, reference[2])})
    return rows


def draw(ax: Any, rows: list[Row]) -> None:
    """Seconds and peak memory in units of those of the fewest ids."""
    for table in dict.fromkeys(row["table"] for row in rows):
        for start in STARTS.values():
            some = [row for row in rows if (row["table"], row["start"]) == (table, start)]
            how = table.split(", ")[1]
            for what, style in (("seconds ratio", "o-"), ("process ratio", "s--")):
                known = [row for row in some if row[what] is not None]
                label = f"{start}, {how}: {what.split()[0]}"
                ax.plot([row["ids"] for row in known], [row[what] for row in known], style, label=label)
    ax.set_xscale("log")
    ax.set_ylim(bottom=0.0)
    ax.axhline(1.0, color="#999999", linewidth=0.5)
    ax.set_xlabel("ids", fontsize=8)
    ax.legend(fontsize=6)
    ax.set_title("width: seconds and peak memory relative to the fewest ids")
