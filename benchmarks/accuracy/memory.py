"""Peak memory and time of training on the same rows with ten thousand to fifty-four million feature ids."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from benchmarks import report
from benchmarks.internals import peak_megabytes
from benchmarks.timing import Built, Worker
from gbun.datasets import make_clicks

ROWS, ROUNDS, K = 100_000, 5, 64
SIZES = (10_000, 1_000_000, 10_000_000, 54_000_000)
TABLE = f"{ROWS} rows of 11 non-zeros, K = {K}, {ROUNDS} rounds: peak memory of the whole process"


@contextmanager
def _build(n_features: int) -> Iterator[Built]:
    from gbun import GBUNClassifier

    X, y = make_clicks(ROWS, n_features)
    model = GBUNClassifier(n_estimators=ROUNDS, n_neurons=K)
    model.fit(X[:1000], y[:1000])  # compile and import before the clock runs
    peak_megabytes(reset=True)
    yield {"fit": lambda: model.fit(X, y) and None, "memory": peak_megabytes}, {}


def measure_memory(console: Console) -> list[dict[str, float]]:
    rows = []
    for n_features in SIZES:
        with Worker(_build, n_features) as worker:
            seconds, _ = worker.ask("fit")
            _, megabytes = worker.ask("memory")
        rows.append({"features": n_features, "megabytes": round(megabytes, 1), "seconds": round(seconds, 2)})
    first = rows[0]["megabytes"]
    report.show([{"table": TABLE, **row, "ratio": row["megabytes"] / first} for row in rows], console)
    return rows
