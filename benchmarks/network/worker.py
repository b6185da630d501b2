"""What runs on each host: a process that does the jobs it reads from stdin, one JSON object a line.

    {"kind": "train", "rows": 2000, "features": 100000, "nnz": 10, "neurons": 64, "rounds": 5, "transport": "float32"}
    {"kind": "train", "folder": "SHARDS", "neurons": 64, "rounds": 5, "transport": "float32"}
    {"kind": "lightgbm", "folder": "SHARDS", "leaves": 64, "rounds": 5}    or "xgboost"
    {"kind": "trees", "peer": "lightgbm", "folder": "SHARDS", "leaves": 64}
    {"kind": "exchange", "up": 10000, "down": 800, "rounds": 5}
    {"kind": "all_reduce", "neurons": 64, "rounds": 5}

All workers read the same lines, form a gloo group for each job, and answer with a line on stdout when they are done:
the results of the job, and the seconds of a core ("cpu") and the most memory ("peak MB") that this worker had.
RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and GLOO_SOCKET_IFNAME are as torch.distributed reads them. All use of
gbun.distributed by the hosts is in this file.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from functools import lru_cache, partial
from time import process_time
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.distributed as dist

from benchmarks.data import read_shard
from benchmarks.internals import peak_megabytes
from benchmarks.peers import hosts as peers
from gbun import distributed
from gbun.callbacks import Callback

SEED = 0
PATIENCE = timedelta(hours=1)  # the program that sends jobs has its own limits
Answer = dict[str, Any]
cached_shard = lru_cache(maxsize=1)(read_shard)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # other output goes to stderr
    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(address, port, size, is_master=rank == 0, timeout=PATIENCE)
    print(json.dumps({"ready": rank}), file=answers)
    for number, line in enumerate(sys.stdin):
        job = json.loads(line)
        if number:
            dist.destroy_process_group()  # all workers have finished the last job
        job_store = dist.PrefixStore(f"job {number}", store)
        dist.init_process_group("gloo", store=job_store, rank=rank, world_size=size, timeout=PATIENCE)
        began = process_time()
        answer = JOBS[job.pop("kind")](**job)
        answer |= {"cpu": process_time() - began, "peak MB": peak_megabytes()}
        print(json.dumps(answer), file=answers)


def train(neurons: int, rounds: int, transport: str, folder: str | None = None, **generated: int) -> Answer:
    """Seconds since the start at the end of each round, and the bytes of each worker and round that gbun itself has
    counted; both on rank 0."""
    X, y = make_shard(**generated, rank=dist.get_rank()) if folder is None else cached_shard(folder, dist.get_rank())
    clock, report = Clock(), distributed.TrafficReport()
    dist.barrier()
    options = {"callbacks": [clock], "transport": transport, "report": report}
    distributed.train(peers.gbun_parameters(neurons), (X, y), rounds, **options)
    if dist.get_rank():
        return {}
    sent, received = (values[:, 1:].mean(axis=1).tolist() for values in (report.sent, report.received))
    return {"seconds": clock.seconds, "sent": sent, "received": received}


def exchange(up: int, down: int, rounds: int) -> Answer:
    """Send what rounds send, without computing: numbers that are summed on rank 0, and bytes that are broadcast."""
    numbers, update = np.zeros(up // 4), np.zeros(down, dtype=np.uint8)
    with distributed.workers() as collective:

        def send() -> None:
            collective.sum(numbers, root=0, wire=[(len(numbers), "float32")])
            collective.broadcast(update)

        collective.broadcast(np.zeros(1))
        return peers.clock_rounds(send, rounds)


def all_reduce(neurons: int, rounds: int) -> Answer:
    """All-reduce a K x K matrix of float32 in each round."""
    A = torch.zeros(neurons * neurons)
    dist.barrier()
    return peers.clock_rounds(partial(dist.all_reduce, A), rounds)


JOBS = {
    "train": train,
    "lightgbm": partial(peers.run_rounds, "lightgbm"),
    "xgboost": partial(peers.run_rounds, "xgboost"),
    "trees": peers.describe_trees,
    "exchange": exchange,
    "all_reduce": all_reduce,
}


class Clock(Callback):
    """Seconds since the start of training, after each round. Callbacks run on rank 0."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def after_round(self, training: Any, report: Any) -> bool:
        self.seconds.append(report.seconds)
        return False


@lru_cache(maxsize=4)
def make_shard(rows: int, features: int, nnz: int, rank: int) -> tuple[Any, Any]:
    """This host's rows: `nnz` ones each, one in each of as many equal parts of the features; two classes."""
    width = features // nnz
    rng, effects = np.random.default_rng([SEED, 1, rank]), np.random.default_rng([SEED, 0]).normal(size=features)
    ids = rng.integers(width, size=(rows, nnz)) + width * np.arange(nnz)
    X = sp.csr_array(
        (np.ones(rows * nnz, dtype=np.float32), ids.astype(np.int32).ravel(), nnz * np.arange(rows + 1)),
        shape=(rows, features),
    )
    odds = effects[ids].sum(axis=1) / np.sqrt(nnz)
    return X, (rng.random(rows) < 1.0 / (1.0 + np.exp(-2.0 * odds))).astype(np.int64)


if __name__ == "__main__":
    main()
