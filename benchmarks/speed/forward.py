"""Z = X N on sparse rows: the form gbun chooses, its own row-order form, and the prototype's row-order loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.speed.data import Source, kdd12_sub, real
from benchmarks.speed.options import Options
from benchmarks.speed.report import Row
from benchmarks.speed.timing import interleave, timed
from benchmarks.speed.unfused import Unfused
from gbun.data.features import Features
from gbun.data.ingest import ingest
from gbun.dtypes import FloatArray
from gbun.kernels import Kernels
from gbun.kernels.chunks import Chunk, Columns, Table
from gbun.kernels.forward import forward, weights
from gbun.kernels.threads import Threads
from gbun.networks import Family

SWEEPS = 7
SETS = ("news20_binary", "book_crossing", "imdb", "rcv1_binary")
WIDE = 512  # K of a second measurement, on the first set alone


def forward_rows(options: Options, pool: Threads, hash_peak: float) -> list[Row]:
    sources = [source for name in SETS if (source := real(options, name)) is not None]
    found = [measure(source, 64, options, pool, hash_peak) for source in (*sources, kdd12_sub(options))]
    if sources and not options.quick:
        found.append(measure(sources[0], WIDE, options, pool, hash_peak))
    return found


def measure(source: Source, K: int, options: Options, pool: Threads, hash_peak: float) -> Row:
    """Wall-clock nanoseconds for each non-zero and 64 outputs, all threads together; each writes an n x K matrix."""
    X, y = source.load()
    features, _ = ingest(X)
    family = Family(0, K)
    Z = np.empty((X.shape[0], K), dtype=np.float32)
    prototype = Unfused(X, y, K, pool)
    chosen, chunks = in_form("auto", features, family, Z, pool)
    on_the_fly, _ = in_form("hashed", features, family, Z, pool)
    ways = {"chosen": chosen, "hashed": on_the_fly, "unfused": lambda: prototype.make_outputs(0)}
    for way in ways.values():
        way()
    np.testing.assert_allclose(Z[::101], prototype.Z[::101], rtol=1e-4, atol=1e-4 * np.abs(prototype.Z[::101]).max())
    times = interleave({name: timed(way) for name, way in ways.items()}, options.sweeps(SWEEPS))
    each = {name: found.median / (X.nnz * K / 64) * 1e9 for name, found in times.items()}
    return {
        "table": "kernels: forward, ns for a non-zero and 64 outputs",
        "data": source.name,
        "K": K,
        "rows": X.shape[0],
        "non-zeros": int(X.nnz),
        **each,
        "hashed / chosen": each["hashed"] / each["chosen"],
        "unfused / chosen": each["unfused"] / each["chosen"],
        "of hash peak": X.nnz * K / times["hashed"].median / hash_peak,
        **shares(chunks, X.nnz),
    }


def in_form(
    form: str, features: Features, family: Family, Z: FloatArray, pool: Threads
) -> tuple[Callable[[], None], list[Chunk]]:
    """gbun's forward pass of round 0 into Z, and the chunks it runs over."""
    kernels = Kernels(features, family, 1, pool, form)
    made = weights(family.draw(0), kernels.features, keep=True)

    def work(chunk: Chunk) -> None:
        forward(made, kernels.features, chunk, Z[chunk.rows], pool.scratch)

    return lambda: pool.run(work, kernels.chunks), kernels.chunks


def shares(chunks: list[Chunk], n_entries: int) -> dict[str, Any]:
    """How many of the chunks have which form, and how many weights are made for each entry and output."""
    orders = [chunk.order for chunk in chunks]
    made = sum(
        len(order.features) if order is not None else chunk.entries.stop - chunk.entries.start
        for order, chunk in zip(orders, chunks, strict=True)
    )
    return {
        "chunks": len(chunks),
        "from a table": sum(isinstance(order, Table) for order in orders) / len(orders),
        "by column": sum(isinstance(order, Columns) for order in orders) / len(orders),
        "on the fly": sum(order is None for order in orders) / len(orders),
        "made per entry": made / n_entries,
    }
