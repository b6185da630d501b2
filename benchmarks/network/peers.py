"""LightGBM and XGBoost on the hosts of a crew: a booster on each, which talk through connections of their own.

What they are told is in parameters.py. XGBoost has a tracker on the first host. What is set up stays for the jobs that
follow; its seconds and bytes are in none of the rounds.
"""

from __future__ import annotations

import json
import os
import re
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from time import perf_counter
from typing import Any

import torch.distributed as dist

from benchmarks.network import parameters, shards
from benchmarks.speed.learners import plain

LIGHTGBM_PORT = 12400
SILENCE = 7200  # seconds for which a peer waits for its own; the program that asks has limits of its own
_kept: list[Any] = []  # connections end with the process, not when a booster or a tracker is forgotten

Answer = dict[str, Any]


@dataclass(frozen=True)
class Peer:
    """`update` makes a round; `grown` tells what the trees have become, as means of all so far."""

    update: Callable[[], Any]
    grown: Callable[[], Answer]


def lightgbm(folder: str, leaves: int, rounds: int) -> Answer:
    return _rounds(_lightgbm(folder, leaves), rounds)


def xgboost(folder: str, leaves: int, rounds: int) -> Answer:
    return _rounds(_xgboost(folder, leaves), rounds)


def trees(peer: str, folder: str, leaves: int) -> Answer:
    """A job of its own, so that its seconds are in none of the rounds."""
    return PEERS[peer](folder, leaves).grown() if dist.get_rank() == 0 else {}


def _rounds(peer: Peer, rounds: int) -> Answer:
    """Seconds since the start at the end of each round."""
    dist.barrier()
    began, seconds = perf_counter(), []
    for _ in range(rounds):
        peer.update()
        seconds.append(perf_counter() - began)
    return {"seconds": seconds}


@lru_cache(maxsize=1)
def _lightgbm(folder: str, leaves: int) -> Peer:
    import lightgbm

    X, y = shards.read(folder, dist.get_rank())
    settings = parameters.lightgbm(leaves, dist.get_world_size())
    if dist.get_world_size() > 1:
        machines = ",".join(f"{address}:{LIGHTGBM_PORT}" for address in _addresses())
        settings |= {"machines": machines, "num_machines": dist.get_world_size()}
        settings |= {"local_listen_port": LIGHTGBM_PORT, "time_out": SILENCE // 60}
    booster = lightgbm.Booster(settings, lightgbm.Dataset(plain(X), y, params=settings))
    _kept.append(booster)
    return Peer(booster.update, lambda: _lightgbm_trees(booster.model_to_string()))


def _lightgbm_trees(model: str) -> Answer:
    """Features that too few rows of a host have are left out before the first round; others are the used ones."""
    infos = re.search(r"^feature_infos=(.*)$", model, re.MULTILINE)
    assert infos is not None
    leaves = [int(told) for told in re.findall(r"^num_leaves=(\d+)$", model, re.MULTILINE)]
    return {"leaves": statistics.mean(leaves), "features used": sum(one != "none" for one in infos[1].split())}


@lru_cache(maxsize=1)
def _xgboost(folder: str, leaves: int) -> Peer:
    import xgboost

    X, y = shards.read(folder, dist.get_rank())
    if dist.get_world_size() > 1:
        xgboost.collective.init(**_tracked(), dmlc_task_id=f"{dist.get_rank():04d}", dmlc_timeout=SILENCE)
    data = xgboost.QuantileDMatrix(plain(X), y, nthread=1)
    settings = parameters.xgboost(leaves)
    booster, numbers = xgboost.Booster(settings, [data]), count()

    def grown() -> Answer:
        told = [_xgboost_tree(json.loads(tree), settings["max_depth"]) for tree in booster.get_dump(dump_format="json")]
        means = {key: statistics.mean(tree[key] for tree in told) for key in ("leaves", "histograms")}
        cuts = data.get_quantile_cut()[0][-1]  # those of bins, and a smallest value of each feature
        return {**means, "bins": int(cuts) - data.num_col()}

    return Peer(lambda: booster.update(data, next(numbers)), grown)


def _xgboost_tree(root: dict[str, Any], levels: int) -> dict[str, int]:
    """Of two siblings one histogram is summed, the other is what is left of their parent's; the last level has none."""
    depths = list(_splits(root))
    return {"leaves": len(depths) + 1, "histograms": 1 + sum(depth < levels - 1 for depth in depths)}


def _splits(node: dict[str, Any], depth: int = 0) -> Iterator[int]:
    """The depth of each split."""
    if "children" in node:
        yield depth
        for child in node["children"]:
            yield from _splits(child, depth + 1)


PEERS = {"lightgbm": _lightgbm, "xgboost": _xgboost}


def _tracked() -> dict[str, Any]:
    """How to reach the tracker, which the first worker starts."""
    from xgboost.tracker import RabitTracker

    told: list[Any] = [None]
    if dist.get_rank() == 0:
        tracker = RabitTracker(dist.get_world_size(), _addresses()[0], sortby="task")
        tracker.start()
        _kept.append(tracker)
        told = [tracker.worker_args()]
    dist.broadcast_object_list(told)
    return dict(told[0])


def _addresses() -> list[str]:
    return os.environ["HOST_ADDRESSES"].split(",")
