"""GBUN, LightGBM and XGBoost on several hosts: their parameters, and the peers' boosters, one on each host.

All have one thread on each host. XGBoost grows trees level by level, as it does by default: a level's histograms are
then summed at once. LightGBM shares histograms by rows (tree_learner=data) and bundles features, by default. Peers talk
through their own connections; XGBoost has a tracker on the first host. What is set up stays for the jobs that follow;
its seconds and bytes are in none of the rounds.
"""

from __future__ import annotations

import json
import math
import os
import re
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from time import perf_counter
from typing import Any

from benchmarks.data import read_shard
from benchmarks.peers.base import as_csr

PACKAGES = {
    "GBUN": ("gbun", "numpy", "scipy", "numba", "torch"),
    "LightGBM": ("lightgbm",),
    "XGBoost": ("xgboost", "xgboost-cpu"),
}
MODULES = {"GBUN": "torch", "LightGBM": "lightgbm", "XGBoost": "xgboost"}  # optional imports
SEEDS = {"GBUN": 0, "LightGBM": "its defaults", "XGBoost": 0}  # the defaults of each
LIGHTGBM_PORT = 12400
SILENCE = 7200  # seconds that a peer waits for the others; the program that starts the job has limits of its own
_kept: list[Any] = []  # connections end with the process, not when a booster or a tracker is garbage

Answer = dict[str, Any]


def gbun_parameters(neurons: int) -> dict[str, Any]:
    return {"objective": "logistic", "n_neurons": neurons, "n_jobs": 1, "init": "constant", "scale": "none"}


def lightgbm_parameters(leaves: int, n_hosts: int) -> dict[str, Any]:
    alone = {"objective": "binary", "num_leaves": leaves, "num_threads": 1, "verbosity": 1}
    return alone if n_hosts == 1 else {**alone, "tree_learner": "data", "pre_partition": True}


def xgboost_parameters(leaves: int) -> dict[str, Any]:
    """Levels of a tree that has about so many leaves: 6 for 64, 10 for 1024."""
    levels = max(1, round(math.log2(leaves)))
    objective = {"objective": "binary:logistic", "tree_method": "hist", "nthread": 1}
    return {**objective, "grow_policy": "depthwise", "max_depth": levels}


def parameters_of(learner: str, size: int, n_hosts: int, transport: str) -> dict[str, Any]:
    """`size` is K or the leaves of a tree."""
    if learner == "GBUN":
        return {**gbun_parameters(size), "transport": transport}
    return lightgbm_parameters(size, n_hosts) if learner == "LightGBM" else xgboost_parameters(size)


@dataclass(frozen=True)
class Booster:
    """`update` makes a round; `describe_trees` gives means over all trees so far."""

    update: Callable[[], Any]
    describe_trees: Callable[[], Answer]


def run_rounds(peer: str, folder: str, leaves: int, rounds: int) -> Answer:
    import torch.distributed as dist

    booster = BOOSTERS[peer](folder, leaves)
    dist.barrier()
    return clock_rounds(booster.update, rounds)


def clock_rounds(update: Callable[[], Any], rounds: int) -> Answer:
    """Seconds since the start at the end of each round."""
    began, seconds = perf_counter(), []
    for _ in range(rounds):
        update()
        seconds.append(perf_counter() - began)
    return {"seconds": seconds}


def describe_trees(peer: str, folder: str, leaves: int) -> Answer:
    """A separate job, so that its seconds are in none of the rounds."""
    import torch.distributed as dist

    return BOOSTERS[peer](folder, leaves).describe_trees() if dist.get_rank() == 0 else {}


@lru_cache(maxsize=1)
def _lightgbm(folder: str, leaves: int) -> Booster:
    import lightgbm
    import torch.distributed as dist

    X, y = read_shard(folder, dist.get_rank())
    settings = lightgbm_parameters(leaves, dist.get_world_size())
    if dist.get_world_size() > 1:
        machines = ",".join(f"{address}:{LIGHTGBM_PORT}" for address in os.environ["HOST_ADDRESSES"].split(","))
        settings |= {"machines": machines, "num_machines": dist.get_world_size()}
        settings |= {"local_listen_port": LIGHTGBM_PORT, "time_out": SILENCE // 60}
    booster = lightgbm.Booster(settings, lightgbm.Dataset(as_csr(X), y, params=settings))
    _kept.append(booster)

    def trees() -> Answer:
        """Features that too few rows of a host have are left out before the first round; the others are used."""
        model = booster.model_to_string()
        infos = re.search(r"^feature_infos=(.*)$", model, re.MULTILINE)
        assert infos is not None
        n_leaves = [int(n) for n in re.findall(r"^num_leaves=(\d+)$", model, re.MULTILINE)]
        return {"leaves": statistics.mean(n_leaves), "features used": sum(info != "none" for info in infos[1].split())}

    return Booster(booster.update, trees)


@lru_cache(maxsize=1)
def _xgboost(folder: str, leaves: int) -> Booster:
    import torch.distributed as dist
    import xgboost

    X, y = read_shard(folder, dist.get_rank())
    if dist.get_world_size() > 1:
        xgboost.collective.init(**_tracker_arguments(), dmlc_task_id=f"{dist.get_rank():04d}", dmlc_timeout=SILENCE)
    data = xgboost.QuantileDMatrix(as_csr(X), y, nthread=1)
    settings = xgboost_parameters(leaves)
    booster, numbers = xgboost.Booster(settings, [data]), count()

    def trees() -> Answer:
        """Of two siblings one histogram is summed, the other is the rest of their parent's; the last level has none."""
        depths = [list(_split_depths(json.loads(tree))) for tree in booster.get_dump(dump_format="json")]
        summed = [1 + sum(depth < settings["max_depth"] - 1 for depth in tree) for tree in depths]
        cuts = data.get_quantile_cut()[0][-1]  # the cuts of bins, and a smallest value of each feature
        means = {"leaves": statistics.mean(len(tree) + 1 for tree in depths), "histograms": statistics.mean(summed)}
        return {**means, "bins": int(cuts) - data.num_col()}

    return Booster(lambda: booster.update(data, next(numbers)), trees)


BOOSTERS = {"lightgbm": _lightgbm, "xgboost": _xgboost}


def _split_depths(node: dict[str, Any], depth: int = 0) -> Iterator[int]:
    if "children" in node:
        yield depth
        for child in node["children"]:
            yield from _split_depths(child, depth + 1)


def _tracker_arguments() -> dict[str, Any]:
    """How to reach the tracker, which the first worker starts."""
    import torch.distributed as dist
    from xgboost.tracker import RabitTracker

    message: list[Any] = [None]
    if dist.get_rank() == 0:
        tracker = RabitTracker(dist.get_world_size(), os.environ["MASTER_ADDR"], sortby="task")
        tracker.start()
        _kept.append(tracker)
        message = [tracker.worker_args()]
    dist.broadcast_object_list(message)
    return dict(message[0])
