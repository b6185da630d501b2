"""The kernels of a round beside what this machine can do at best, measured in the same run.

Two peaks: BLAS's product of large float32 matrices, and weights hashed into a table that stays in the cache. The Gram
is taken within the pass it belongs to: `normal_equations` of real rows, once with all of them in the Gram and once with
none, taking turns; the difference is what the Gram costs there, with the scaled copy of P and the sums in float64 that
it needs. Calling it alone on one chunk would leave out just these.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numba
import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.data import KDD12_FEATURES, Options, Source, kdd12_sub, real
from benchmarks.internals import (
    Chunk,
    Family,
    FeatureColumns,
    Features,
    FeatureTable,
    HostKernels,
    ThreadPool,
    Training,
    forward,
    hashed,
    ingest,
    make_weights,
    portable,
    prepare_training,
    products,
    rows,
    simhash,
    thread_pool,
)
from benchmarks.report import Row, bars
from benchmarks.speed.unfused import Unfused
from benchmarks.timing import Unit, interleave, make_unit, ratio
from gbun import Dataset, Parameters
from gbun.datasets import make_clicks

GRAM_SIZES = (64, 128, 256, 512, 1024)
IN_CACHE = 256  # features of a table of 64 KB
REPEATS = 9
SWEEPS = 7
SETS = ("news20_binary", "book_crossing", "imdb", "rcv1_binary")
WIDE = 512  # K of a second measurement, on the first set alone


def run(options: Options) -> list[Row]:
    with thread_pool(options.threads) as pool:
        flops, weights = measure_peaks(pool)
        peaks = {"float32 product": flops, "hashed weights": weights}
        table = {"table": "kernels: peaks of this machine"}
        found = [{**table, "peak": name, "per second": rate} for name, rate in peaks.items()]
        for K in options.pick(GRAM_SIZES, GRAM_SIZES[:1]):
            found.append(gram_row(K, options, pool, flops))
        found += product_rows(options, pool, flops)
        found += forward_rows(options, pool, weights)
        for K in options.pick((64, 256, 1024), (64,)):
            found.append(softmax_row(K, options, pool))
    return found


def measure_peaks(pool: ThreadPool) -> tuple[float, float]:
    """Operations of a product, and hashed weights, of all threads together in a second."""
    A = np.random.default_rng(0).random((2048, 2048), dtype=np.float32)
    B, C = A.copy(), np.empty_like(A)
    states, features = np.arange(hashed.TILE, dtype=np.uint32), np.arange(IN_CACHE, dtype=np.uint64)
    often = 4000

    def hash_often(_: int) -> None:
        table = np.empty((IN_CACHE, hashed.TILE), dtype=np.float32)
        fill_often(states, features, np.uint32(simhash.HALF), np.float32(1.0 / simhash.HALF), table, often)

    def hash_all() -> None:
        pool.run(hash_often, range(pool.count))

    hash_all()  # compiles
    # Not in turns: BLAS threads spin for a while after a product, and would take time from the hashes.
    times = interleave({"hash": make_unit(hash_all)}, REPEATS)
    times |= interleave({"product": _with_all_blas_threads(lambda: np.matmul(A, B, out=C), pool)}, REPEATS)
    weights = pool.count * often * IN_CACHE * hashed.TILE
    return 2.0 * 2048**3 / times["product"].best, weights / times["hash"].best


@numba.njit(nogil=True)
def fill_often(states: Any, features: Any, half: Any, inverse: Any, table: Any, times: int) -> None:
    """The same table again and again: what a call from Python costs does not count."""
    for _ in range(times):
        hashed.fill_table(states, features, half, inverse, table)


def _with_all_blas_threads(work: Any, pool: ThreadPool) -> Unit:
    """gbun's pool keeps BLAS to one thread; what BLAS does at best it does with all."""
    unit = make_unit(work)

    def alone() -> float:
        with threadpool_limits(limits=pool.count, user_api="blas"):
            return unit()

    return alone


def gram_row(K: int, options: Options, pool: ThreadPool, peak: float) -> Row:
    n = options.rows(min(1_000_000, 2**28 // K))
    X, y = make_clicks(n, KDD12_FEATURES)
    training = prepare_training(Parameters(n_neurons=K, objective="logistic", gram_rows=1.0), Dataset(X, y), pool)
    nothing = np.empty(0, dtype=np.int64)
    units = {
        "all": lambda: normal_equations_seconds(training, None),
        "none": lambda: normal_equations_seconds(training, lambda at, h: (nothing, h[nothing])),
    }
    interleave(units, 1)
    times = interleave(units, options.sweeps(REPEATS))
    seconds = times["all"].best - times["none"].best  # a difference of medians would be noise of both
    rate = n * K * (K + 1) / seconds if seconds > 0 else None
    row = {"table": "kernels: Gram, one triangle, as the difference of second passes with and without it", "K": K}
    row |= {"rows": n, "pass with": times["all"].best, "pass without": times["none"].best}
    return {**row, "Gflop/s": rate and rate / 1e9, "of peak": ratio(rate, peak)}


def normal_equations_seconds(training: Training, pick: Any) -> float:
    """The seconds of normal equations over fresh outputs; computing those is not timed."""
    partition = training.learner.fit_round(0, training.rows, training.collective.sum)
    began = perf_counter()
    training.rows.normal_equations(partition, pick)
    return perf_counter() - began


def product_rows(options: Options, pool: ThreadPool, peak: float) -> list[Row]:
    """Dense columns: gbun's product, which gives a row the same bits anywhere, beside BLAS's; and with few weights."""
    n, m, K, density = options.rows(64 * 4096), 256, 256, 0.1
    rng = np.random.default_rng(0)
    X, W = rng.random((n, m), dtype=np.float32), rng.random((m, K), dtype=np.float32)
    few = np.where(rng.random((m, K)) < density, W, np.float32(0.0))
    panels, sparse, Z = products.make_panels(W), products.non_zeros_by_output(few), np.zeros((n, K), dtype=np.float32)
    parts = [slice(first, min(first + 4096, n)) for first in range(0, n, 4096)]
    ours = make_unit(lambda: pool.run(lambda at: products.multiply_add(X[at], panels, Z[at]), parts))
    ours_sparse = make_unit(lambda: pool.run(lambda at: products.multiply_add_sparse(X[at], *sparse, Z[at]), parts))
    blas = _with_all_blas_threads(lambda: np.matmul(X, W, out=Z), pool)
    units = {"gbun": ours, "NumPy matmul": blas, "gbun, density .1": ours_sparse}
    interleave(units, 1)
    times = interleave(units, options.sweeps(REPEATS))
    done = {"gbun": 2.0 * n * m * K, "NumPy matmul": 2.0 * n * m * K, "gbun, density .1": 2.0 * n * len(sparse[1])}
    found = []
    for name, of in times.items():
        rate, speed = done[name] / of.median, ratio(times["NumPy matmul"].median, of.median)
        row = {"table": f"kernels: dense product, {n:,} x {m} by {m} x {K}; products with zero are not counted"}
        row |= {"product": name, **of.row(), "Gflop/s": rate / 1e9, "of peak": rate / peak}
        found.append({**row, "speed of NumPy's": speed})
    return found


def softmax_row(K: int, options: Options, pool: ThreadPool) -> Row:
    """gbun's softmax beside NumPy's, both chunk by chunk in threads, over fresh outputs each time."""
    n_chunks, each = 8, 2**20 // K
    outputs = np.random.default_rng(0).standard_normal((n_chunks, each, K), dtype=np.float32)
    centre, factor = np.zeros(K, dtype=np.float32), np.ones(K, dtype=np.float32)
    held = np.empty_like(outputs)

    def unit(softmax: Any) -> Unit:
        clock = make_unit(lambda: pool.run(lambda i: softmax(held[i], centre, factor, K), range(n_chunks)))

        def fresh() -> float:
            held[:] = outputs
            return clock()

        return fresh

    units = {"gbun": unit(rows.to_memberships), "numpy": unit(portable.to_memberships)}
    interleave(units, 1)
    times = interleave(units, options.sweeps(REPEATS))
    ours, theirs = (times[name].median / outputs.size * 1e9 for name in units)
    row = {"table": "kernels: softmax, ns an output", "K": K, "gbun": ours, "NumPy": theirs}
    return {**row, "NumPy / gbun": theirs / ours}


def draw(ax: Any, found: list[Row]) -> None:
    shares = [(f"Gram K={row['K']}", row["of peak"]) for row in found if "pass with" in row]
    shares += [(f"product, {row['product']}", row["of peak"]) for row in found if "product" in row]
    shares += [(f"hashed forward, {row['data']} K={row['K']}", row["of hash peak"]) for row in found if "chosen" in row]
    values = [share or 0.0 for _, share in shares]
    bars(ax, [name for name, _ in shares], values, [f"{share:.0%}" for share in values])
    ax.set_title("kernels: share of this machine's peak")


def forward_rows(options: Options, pool: ThreadPool, hash_peak: float) -> list[Row]:
    sources = [source for name in SETS if (source := real(options, name)) is not None]
    found = [measure(source, 64, options, pool, hash_peak) for source in (*sources, kdd12_sub(options))]
    if sources and not options.quick:
        found.append(measure(sources[0], WIDE, options, pool, hash_peak))
    return found


def measure(source: Source, K: int, options: Options, pool: ThreadPool, hash_peak: float) -> Row:
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
    times = interleave({name: make_unit(way) for name, way in ways.items()}, options.sweeps(SWEEPS))
    each = {name: found.median / (X.nnz * K / 64) * 1e9 for name, found in times.items()}
    row = {"table": "kernels: forward, ns for a non-zero and 64 outputs", "data": source.name, "K": K}
    row |= {"rows": X.shape[0], "non-zeros": int(X.nnz), **each}
    row |= {f"{name} / chosen": each[name] / each["chosen"] for name in ("hashed", "unfused")}
    return {**row, "of hash peak": X.nnz * K / times["hashed"].median / hash_peak, **form_shares(chunks, X.nnz)}


def in_form(
    form: str, features: Features, family: Family, Z: Any, pool: ThreadPool
) -> tuple[Callable[[], None], list[Chunk]]:
    """gbun's forward pass of round 0 into Z, and the chunks it runs over."""
    kernels = HostKernels(features, family, 1, pool, form)
    made = make_weights(family.draw(0), kernels.features, keep=True)

    def work(chunk: Chunk) -> None:
        forward(made, kernels.features, chunk, Z[chunk.rows], pool.scratch)

    return lambda: pool.run(work, kernels.cut_chunks()), kernels.cut_chunks()


def form_shares(chunks: list[Chunk], n_entries: int) -> dict[str, Any]:
    """How many of the chunks have which form, and how many weights are made for each entry and output."""
    orders = [chunk.order for chunk in chunks]
    made = sum(
        len(order.features) if order is not None else chunk.entries.stop - chunk.entries.start
        for order, chunk in zip(orders, chunks, strict=True)
    )
    return {
        "chunks": len(chunks),
        "from a table": sum(isinstance(order, FeatureTable) for order in orders) / len(orders),
        "by column": sum(isinstance(order, FeatureColumns) for order in orders) / len(orders),
        "on the fly": sum(order is None for order in orders) / len(orders),
        "made per entry": made / n_entries,
    }
