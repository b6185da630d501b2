"""Seconds of a boosting round: gbun, LightGBM, XGBoost and the plain prototype on the same rows.

Learners of one size are alive at a time, each in a process of its own, and take turns, a round each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.data import Options, Source, kdd12_sub, real
from benchmarks.peers import rounds as learners
from benchmarks.report import Row, bars, goal
from benchmarks.timing import PEERS, Facts, Times, Unit, Worker, interleave, ratio, start_all

TABLE = "rounds: seconds of a boosting round"
GRAM_ROWS = {"Gram of all rows": 1.0, "Gram of a quarter": 0.25, "Gram by default": None}
MOST_SECONDS = 120.0  # of a learner in its group: who is slow has fewer rounds
GBUN, LIGHTGBM, XGBOOST, UNFUSED = "gbun K={}", "LightGBM {} leaves", "XGBoost depth {}", "unfused K={}"


@dataclass(frozen=True)
class Group:
    """Learners that are compared: gbun's K is also LightGBM's number of leaves."""

    size: int
    sweeps: int
    depth: int | None = None
    unfused: bool = False


GROUPS = (Group(64, 10, 6, True), Group(256, 5, 10), Group(1024, 2, None, True))


def run(options: Options) -> list[Row]:
    rows: list[Row] = []
    for source in (real(options, "book_crossing"), kdd12_sub(options)):
        if source is not None:
            known = [row for group in options.pick(GROUPS, GROUPS[:1]) for row in compare(source, group, options)]
            rows += known + goals(source.name, {row["learner"]: row["median"] for row in known})
    return rows


def compare(source: Source, group: Group, options: Options) -> list[Row]:
    with start_all(starters(source, group, options.threads)) as (workers, failed):
        units: dict[str, Unit] = {}
        facts: dict[str, Facts] = {}
        for name, worker in workers.items():
            ways = {f"{name}, {way}": way for way in GRAM_ROWS} if "gbun" in name else {name: "round"}
            units |= {learner: worker.unit(way) for learner, way in ways.items()}
            facts |= dict.fromkeys(ways, worker.facts)
        times = interleave(units, options.sweeps(group.sweeps), MOST_SECONDS)
    reference = times.get(LIGHTGBM.format(group.size), Times()).median
    rows: list[Row] = []
    for learner, found in times.items():
        row = {"table": TABLE, "data": source.name, "learner": learner}
        row |= {key: facts[learner][key] for key in ("setup", "first round")} | found.row()
        row |= {"of LightGBM's": ratio(found.median, reference), "plan": facts[learner].get("plan", "")}
        rows.append(row)
    lost = {"table": TABLE, "data": source.name, "median": None}
    return rows + [{**lost, "learner": name, "note": note} for name, note in failed.items()]


def starters(source: Source, group: Group, threads: int) -> dict[str, Callable[[], Worker]]:
    K, depth = group.size, group.depth
    found: dict[str, Callable[[], Worker]] = {
        GBUN.format(K): partial(Worker, learners.gbun, source, {"n_neurons": K}, threads, GRAM_ROWS),
        LIGHTGBM.format(K): partial(Worker, learners.lightgbm, source, K, threads, limits=PEERS),
    }
    if depth is not None:
        found[XGBOOST.format(depth)] = partial(Worker, learners.xgboost, source, depth, threads, limits=PEERS)
    if group.unfused:
        found[UNFUSED.format(K)] = partial(Worker, learners.unfused, source, K, threads)
    return found


def goals(data: str, median: dict[str, float | None]) -> list[Row]:
    """What the project set itself, as ratios of medians."""

    def over(above: str, below: str) -> float | None:
        return ratio(median.get(above), median.get(below))

    found = []
    for way, share in GRAM_ROWS.items():
        small, large = f"gbun K=64, {way}", f"gbun K=1024, {way}"
        found += [
            goal(data, f"{small} / LightGBM 64 leaves", over(small, "LightGBM 64 leaves"), most=1.25),
            goal(data, f"XGBoost depth 6 / {small}", over("XGBoost depth 6", small), least=2.5),
            goal(data, f"{large} / unfused", over(large, "unfused K=1024"), most=1 / 3 if share == 1.0 else 1 / 5),
        ]
    return [row for row in found if row["measured"] is not None]


def draw(ax: Any, rows: list[Row]) -> None:
    known = [row for row in rows if row.get("learner") and row["median"] is not None]
    names = [f"{row['data']}: {row['learner']}" for row in known]
    bars(ax, names, [row["median"] for row in known], learners=[row["learner"] for row in known])
    ax.set_xscale("log")
    ax.set_title("seconds of a round, median")
