"""Workers of one machine beside threads of one process: how much the exchange costs where there is no network.

    python -m benchmarks.network.local [--rows 400000] [--workers 2] [--neurons 64,256] [--rounds 8] [--repeats 3]

Both have the same rows and the same number of cores; they take turns. A round's time is the median of all rounds but
the first three, in which machine code is read and buffers are touched for the first time, and the last two, in which
workers have nothing left to forward.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch.distributed as dist
from rich.console import Console

from benchmarks import report
from benchmarks.data import clicks
from benchmarks.network.worker import Clock
from gbun import distributed, train

WARM_UP = 3


def of_rounds(clock: Clock) -> list[float]:
    return np.diff(clock.seconds)[WARM_UP - 1 : -2].tolist()


def parameters(K: int, n_jobs: int) -> dict[str, Any]:
    return {"objective": "logistic", "n_neurons": K, "init": "constant", "n_jobs": n_jobs}


def one_process(n_rows: int, K: int, rounds: int, cores: int) -> list[float]:
    clock = Clock()
    train(parameters(K, cores), clicks(n_rows).load(), rounds, callbacks=[clock], task="classification")
    return of_rounds(clock)


def one_worker(n_rows: int, K: int, rounds: int) -> list[float]:
    X, y = clicks(n_rows).load()
    shard, clock = slice(dist.get_rank(), None, dist.get_world_size()), Clock()
    distributed.train(parameters(K, 1), (X[shard], y[shard]), rounds, callbacks=[clock], task="classification")
    return of_rounds(clock)


def main() -> None:
    parser = report.make_parser("network.local", __doc__, "results/network", data=False)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--neurons", default="64,256")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    rows = []
    for K in map(int, args.neurons.split(",")):
        alone: list[float] = []
        several: list[float] = []
        for _ in range(args.repeats):
            alone += one_process(args.rows, K, args.rounds, args.workers)
            several += distributed.launch(one_worker, args.workers, (args.rows, K, args.rounds))[0]
        threads, workers = float(np.median(alone)), float(np.median(several))
        rows.append({
            "table": f"{args.workers} workers of one thread beside one process of {args.workers} threads",
            "rows": args.rows, "K": K, "threads s": threads, "workers s": workers, "ratio": workers / threads,
            "best threads s": min(alone), "best workers s": min(several),
        })  # fmt: skip
        rows.append(report.goal(f"K = {K}", "workers / threads", workers / threads, most=1.15))
    report.show(rows, Console(width=160))
    report.write(args.output / "local.json", {"local": {"about": report.about(args.workers, False), "rows": rows}})


if __name__ == "__main__":
    main()
