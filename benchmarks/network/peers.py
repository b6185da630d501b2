"""LightGBM and XGBoost on the hosts of a crew: a booster on each, which talk through connections of their own.

Both have one thread on each host and grow trees leaf by leaf. LightGBM shares histograms by rows (tree_learner=data),
with its bundles of features and all else as it comes. XGBoost has a tracker on the first host. What is set up stays
for the jobs that follow; its seconds and bytes are in none of the rounds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from itertools import count
from time import perf_counter
from typing import Any

import torch.distributed as dist

from benchmarks.network import shards
from benchmarks.speed.learners import plain

LIGHTGBM_PORT = 12400
SILENCE = 7200  # seconds for which a peer waits for its own; the program that asks has limits of its own
_boosters: list[Any] = []  # connections end with the process, not when a booster is forgotten

Update = Callable[[], Any]
Answer = dict[str, Any]


def lightgbm(folder: str, leaves: int, rounds: int) -> Answer:
    return _rounds(_lightgbm(folder, leaves), rounds)


def xgboost(folder: str, leaves: int, rounds: int) -> Answer:
    return _rounds(_xgboost(folder, leaves), rounds)


def _rounds(update: Update, rounds: int) -> Answer:
    """Seconds since the start at the end of each round."""
    dist.barrier()
    began, seconds = perf_counter(), []
    for _ in range(rounds):
        update()
        seconds.append(perf_counter() - began)
    return {"seconds": seconds}


@lru_cache(maxsize=1)
def _lightgbm(folder: str, leaves: int) -> Update:
    import lightgbm

    X, y = shards.read(folder, dist.get_rank())
    settings = {"objective": "binary", "num_leaves": leaves, "num_threads": 1, "verbosity": 1}
    if dist.get_world_size() > 1:
        machines = ",".join(f"{address}:{LIGHTGBM_PORT}" for address in _addresses())
        settings |= {"tree_learner": "data", "pre_partition": True, "machines": machines}
        settings |= {"num_machines": dist.get_world_size(), "local_listen_port": LIGHTGBM_PORT}
        settings |= {"time_out": SILENCE // 60}
    booster = lightgbm.Booster(settings, lightgbm.Dataset(plain(X), y, params=settings))
    _boosters.append(booster)
    return booster.update


@lru_cache(maxsize=1)
def _xgboost(folder: str, leaves: int) -> Update:
    import xgboost

    X, y = shards.read(folder, dist.get_rank())
    if dist.get_world_size() > 1:
        xgboost.collective.init(**_tracked(), dmlc_task_id=f"{dist.get_rank():04d}", dmlc_timeout=SILENCE)
    data = xgboost.QuantileDMatrix(plain(X), y, nthread=1)
    settings = {"objective": "binary:logistic", "tree_method": "hist", "nthread": 1}
    settings |= {"grow_policy": "lossguide", "max_leaves": leaves, "max_depth": 0}
    booster, numbers = xgboost.Booster(settings, [data]), count()
    return lambda: booster.update(data, next(numbers))


def _tracked() -> dict[str, Any]:
    """How to reach the tracker, which the first worker starts."""
    from xgboost.tracker import RabitTracker

    told: list[Any] = [None]
    if dist.get_rank() == 0:
        tracker = RabitTracker(dist.get_world_size(), _addresses()[0], sortby="task")
        tracker.start()
        _boosters.append(tracker)
        told = [tracker.worker_args()]
    dist.broadcast_object_list(told)
    return dict(told[0])


def _addresses() -> list[str]:
    return os.environ["HOST_ADDRESSES"].split(",")
