"""The kernels of a round beside what this machine can do at best, measured in the same run.

Two peaks: BLAS's product of large float32 matrices, and weights hashed into a table that stays in the cache. The Gram
is taken within the pass it belongs to: `second_pass` over real rows, once with all of them in the Gram and once with
none, taking turns; the difference is what the Gram costs there, with the scaled copy of P and the sums in float64 that
it needs. Calling it alone on one chunk would leave out just these.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numba
import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.speed.data import KDD12_FEATURES
from benchmarks.speed.forward import forward_rows
from benchmarks.speed.options import Options
from benchmarks.speed.picture import bars
from benchmarks.speed.report import Row
from benchmarks.speed.timing import Unit, interleave, ratio, timed
from gbun.boosting import Training
from gbun.config import Parameters
from gbun.datasets import make_clicks
from gbun.kernels import hashed, portable, products, rows
from gbun.kernels.threads import Threads, threads
from gbun.networks.simhash import HALF
from gbun.problem import Dataset
from gbun.solve import normaliser
from gbun.training import prepare

GRAM_SIZES = (64, 128, 256, 512, 1024)
IN_CACHE = 256  # features of a table of 64 KB
REPEATS = 9


@dataclass(frozen=True)
class Peaks:
    """Of all threads together, in a second."""

    flops: float
    weights: float


def run(options: Options) -> list[Row]:
    with threads(options.threads) as pool:
        peaks = measure_peaks(pool)
        found = [
            {"table": "kernels: peaks of this machine", "peak": "float32 product", "per second": peaks.flops},
            {"table": "kernels: peaks of this machine", "peak": "hashed weights", "per second": peaks.weights},
        ]
        for K in options.pick(GRAM_SIZES, GRAM_SIZES[:1]):
            found.append(gram_row(K, options, pool, peaks))
        found += product_rows(options, pool, peaks)
        found += forward_rows(options, pool, peaks.weights)
        for K in options.pick((64, 256, 1024), (64,)):
            found.append(softmax_row(K, options, pool))
    return found


def measure_peaks(pool: Threads) -> Peaks:
    A = np.random.default_rng(0).random((2048, 2048), dtype=np.float32)
    B, C = A.copy(), np.empty_like(A)
    states, features = np.arange(hashed.TILE, dtype=np.uint32), np.arange(IN_CACHE, dtype=np.uint64)
    often = 4000

    def hash_often(_: int) -> None:
        table = np.empty((IN_CACHE, hashed.TILE), dtype=np.float32)
        fill_often(states, features, np.uint32(HALF), np.float32(1.0 / HALF), table, often)

    def hash_all() -> None:
        pool.run(hash_often, range(pool.count))

    hash_all()  # compiles
    # Not in turns: BLAS threads spin for a while after a product, and would take time from the hashes.
    times = interleave({"hash": timed(hash_all)}, REPEATS)
    times |= interleave({"product": _with_all_blas_threads(lambda: np.matmul(A, B, out=C), pool)}, REPEATS)
    return Peaks(
        2.0 * 2048**3 / times["product"].best,
        pool.count * often * IN_CACHE * hashed.TILE / times["hash"].best,
    )


@numba.njit(nogil=True)
def fill_often(states: Any, features: Any, half: Any, inverse: Any, table: Any, times: int) -> None:
    """The same table again and again: what a call from Python costs does not count."""
    for _ in range(times):
        hashed.fill_table(states, features, half, inverse, table)


def _with_all_blas_threads(work: Any, pool: Threads) -> Unit:
    """gbun's pool keeps BLAS to one thread; what BLAS does at best it does with all."""
    unit = timed(work)

    def alone() -> float:
        with threadpool_limits(limits=pool.count, user_api="blas"):
            return unit()

    return alone


def gram_row(K: int, options: Options, pool: Threads, peaks: Peaks) -> Row:
    n = options.rows(min(1_000_000, 2**28 // K))
    X, y = make_clicks(n, KDD12_FEATURES)
    training = prepare(Parameters(n_neurons=K, objective="logistic", gram_rows=1.0), Dataset(X, y), {}, pool)
    nothing = np.empty(0, dtype=np.int64)
    units = {
        "all": lambda: second_pass_seconds(training, None),
        "none": lambda: second_pass_seconds(training, lambda at, h: (nothing, h[nothing])),
    }
    interleave(units, 1)
    times = interleave(units, options.sweeps(REPEATS))
    seconds = times["all"].best - times["none"].best  # a difference of medians would be noise of both
    rate = n * K * (K + 1) / seconds if seconds > 0 else None
    return {
        "table": "kernels: Gram, one triangle, as the difference of second passes with and without it",
        "K": K,
        "rows": n,
        "pass with": times["all"].best,
        "pass without": times["none"].best,
        "Gflop/s": rate and rate / 1e9,
        "of peak": ratio(rate, peaks.flops),
    }


def second_pass_seconds(training: Training, pick: Any) -> float:
    """A second pass over fresh outputs; making those is not timed."""
    shard, own = training.shard, training.rows
    norm = normaliser(shard.n_rows, shard.n_rows, own.first_pass(training.family.draw(0)))

    def derivatives(at: slice) -> Any:
        return training.objective.derivatives(shard.y[at], own.scores[at], shard.weight[at])

    began = perf_counter()
    own.second_pass(norm, derivatives, pick)
    return perf_counter() - began


def product_rows(options: Options, pool: Threads, peaks: Peaks) -> list[Row]:
    """Dense columns: gbun's product, which gives a row the same bits anywhere, beside BLAS's; and with few weights."""
    n, m, K, density = options.rows(64 * 4096), 256, 256, 0.1
    rng = np.random.default_rng(0)
    X, W = rng.random((n, m), dtype=np.float32), rng.random((m, K), dtype=np.float32)
    few = np.where(rng.random((m, K)) < density, W, np.float32(0.0))
    panels, sparse, Z = products.panels_of(W), products.non_zeros_by_output(few), np.zeros((n, K), dtype=np.float32)
    parts = [slice(first, min(first + 4096, n)) for first in range(0, n, 4096)]
    ours = timed(lambda: pool.run(lambda at: products.multiply_add(X[at], panels, Z[at]), parts))
    ours_sparse = timed(lambda: pool.run(lambda at: products.multiply_add_sparse(X[at], *sparse, Z[at]), parts))
    blas = _with_all_blas_threads(lambda: np.matmul(X, W, out=Z), pool)
    units = {"gbun": ours, "NumPy matmul": blas, "gbun, density .1": ours_sparse}
    interleave(units, 1)
    times = interleave(units, options.sweeps(REPEATS))
    done = {"gbun": 2.0 * n * m * K, "NumPy matmul": 2.0 * n * m * K, "gbun, density .1": 2.0 * n * len(sparse[1])}
    return [
        {
            "table": f"kernels: dense product, {n:,} x {m} by {m} x {K}; products with zero are not counted",
            "product": name,
            **found.row(),
            "Gflop/s": done[name] / found.median / 1e9,
            "of peak": done[name] / found.median / peaks.flops,
            "speed of NumPy's": ratio(times["NumPy matmul"].median, found.median),
        }
        for name, found in times.items()
    ]


def softmax_row(K: int, options: Options, pool: Threads) -> Row:
    """gbun's softmax beside NumPy's, both chunk by chunk in threads, over fresh outputs each time."""
    n_chunks, each = 8, 2**20 // K
    outputs = np.random.default_rng(0).standard_normal((n_chunks, each, K), dtype=np.float32)
    centre, factor = np.zeros(K, dtype=np.float32), np.ones(K, dtype=np.float32)
    held = np.empty_like(outputs)

    def unit(softmax: Any) -> Unit:
        clock = timed(lambda: pool.run(lambda i: softmax(held[i], centre, factor, K), range(n_chunks)))

        def fresh() -> float:
            held[:] = outputs
            return clock()

        return fresh

    units = {"gbun": unit(rows.memberships), "numpy": unit(portable.memberships)}
    interleave(units, 1)
    times = interleave(units, options.sweeps(REPEATS))
    ours, theirs = (times[name].median / outputs.size * 1e9 for name in units)
    return {
        "table": "kernels: softmax, ns an output",
        "K": K,
        "gbun": ours,
        "NumPy": theirs,
        "NumPy / gbun": theirs / ours,
    }


def draw(ax: Any, found: list[Row]) -> None:
    shares = [(f"Gram K={row['K']}", row["of peak"]) for row in found if "pass with" in row]
    shares += [(f"product, {row['product']}", row["of peak"]) for row in found if "product" in row]
    shares += [(f"hashed forward, {row['data']} K={row['K']}", row["of hash peak"]) for row in found if "chosen" in row]
    values = [share or 0.0 for _, share in shares]
    bars(ax, [name for name, _ in shares], values, [f"{share:.0%}" for share in values])
    ax.set_title("kernels: share of this machine's peak")
