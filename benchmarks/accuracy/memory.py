"""Peak memory and time of training on the same rows with ten thousand to fifty-four million feature ids."""

from __future__ import annotations

import multiprocessing
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.table import Table

from gbun.datasets import make_clicks
from gbun.demo import peak_megabytes

ROWS, ROUNDS, K = 100_000, 5, 64
SIZES = (10_000, 1_000_000, 10_000_000, 54_000_000)


def _child(n_features: int, connection: Any) -> None:
    from gbun import GBUNClassifier

    X, y = make_clicks(ROWS, n_features)
    model = GBUNClassifier(n_estimators=ROUNDS, n_neurons=K)
    model.fit(X[:1000], y[:1000])  # compile and import before the clock runs
    peak_megabytes(forget=True)
    began = perf_counter()
    model.fit(X, y)
    seconds = perf_counter() - began
    connection.send((peak_megabytes(), seconds))


def memory_table(console: Console) -> list[dict[str, float]]:
    context = multiprocessing.get_context("spawn")
    rows = []
    for n_features in SIZES:
        receive, send = context.Pipe(duplex=False)
        process = context.Process(target=_child, args=(n_features, send))
        process.start()
        send.close()
        megabytes, seconds = receive.recv()
        process.join()
        rows.append({"features": n_features, "megabytes": round(megabytes, 1), "seconds": round(seconds, 2)})
    table = Table(title=f"{ROWS} rows of 11 non-zeros, K = {K}, {ROUNDS} rounds: peak memory of the whole process")
    for column in ("features", "megabytes", "ratio", "seconds"):
        table.add_column(column, justify="right")
    for row in rows:
        ratio = row["megabytes"] / rows[0]["megabytes"]
        table.add_row(f"{row['features']:,}", f"{row['megabytes']:.0f}", f"{ratio:.3f}", f"{row['seconds']:.2f}")
    console.print(table)
    return rows
