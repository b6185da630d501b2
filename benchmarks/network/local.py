"""Workers of one machine beside threads of one process: how much the exchange costs where there is no network.

    python -m benchmarks.network.local [--rows 400000] [--workers 2] [--neurons 64,256] [--rounds 8] [--repeats 3]

Both have the same rows and the same number of cores; they take turns. A round's time is the median of all rounds but
the first three, in which machine code is read and buffers are touched for the first time, and the last two, in which
workers have nothing left to forward.
"""

from __future__ import annotations

import numpy as np
import torch.distributed as dist
from rich.console import Console

from benchmarks import report
from benchmarks.data import clicks
from benchmarks.network.worker import Clock
from gbun import distributed, train

WARM_UP = 3


def time_rounds(n_rows: int, K: int, rounds: int, n_jobs: int = 1) -> list[float]:
    """Seconds of rounds: of one worker, with its share of the rows, or of one process with all rows."""
    (X, y), clock = clicks(n_rows).load(), Clock()
    parameters = {"objective": "logistic", "n_neurons": K, "init": "constant", "n_jobs": n_jobs}
    if dist.is_initialized():
        shard = slice(dist.get_rank(), None, dist.get_world_size())
        distributed.train(parameters, (X[shard], y[shard]), rounds, callbacks=[clock], task="classification")
    else:
        train(parameters, (X, y), rounds, callbacks=[clock], task="classification")
    return np.diff(clock.seconds)[WARM_UP - 1 : -2].tolist()


def main() -> None:
    parser = report.make_parser("network.local", __doc__, "results/network", data=False)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--neurons", type=report.numbers(), default=[64, 256])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    rows = []
    for K in args.neurons:
        alone: list[float] = []
        several: list[float] = []
        for _ in range(args.repeats):
            alone += time_rounds(args.rows, K, args.rounds, args.workers)
            several += distributed.launch(time_rounds, args.workers, (args.rows, K, args.rounds))[0]
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
