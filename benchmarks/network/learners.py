"""GBUN, LightGBM and XGBoost on hosts: the same shards, one thread on each, rounds of one job at any bandwidth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from benchmarks.data import Source, write_shards
from benchmarks.network.crew import LEAST_MEMORY, Crew
from benchmarks.network.hosts import Hosts
from benchmarks.network.measure import MOST, Found, Job, measure
from benchmarks.network.namespaces import Unavailable
from benchmarks.peers.hosts import parameters_of
from benchmarks.timing import Absent, Failed

KINDS = {"GBUN": "train", "LightGBM": "lightgbm", "XGBoost": "xgboost"}
FIRST_ROUND = 600.0  # most seconds of a set-up or a round, GBUN's compilation included
FEWEST = {"train": 5}  # rounds; of fewer, what comes before and after them makes GBUN's seconds and CPU noise
TRANSPORT = "float32"


@dataclass(frozen=True)
class Team:
    """A learner that has been set up on all hosts and has had its first rounds.

    `setup` are the seconds until the first round could begin, `round_seconds` about those of a round without a limit.
    """

    hosts: Hosts
    crew: Crew
    job: Job
    setup: float
    round_seconds: float

    def measure(self, bandwidth: float | None, expected: float, seconds: float) -> Found:
        """As many rounds as are expected to take `seconds`, at a bandwidth; one at least, of GBUN five."""
        self.hosts.limit(bandwidth)
        rounds = max(FEWEST.get(self.job["kind"], 1), min(MOST, int(seconds / expected)))
        return measure(self.hosts, self.crew, self.job, expected, rounds)

    def describe_trees(self) -> dict[str, Any]:
        """A peer's trees: leaves, and what their bytes depend on. Nothing for GBUN."""
        kind = self.job["kind"]
        if kind == "train":
            return {}
        answer = self.crew.ask({**self.job, "kind": "trees", "peer": kind}, FIRST_ROUND)
        return {key: value for key, value in answer.items() if key not in ("cpu", "peak MB")}


@contextmanager
def run_team(learner: str, source: Source, size: int, n_hosts: int, within: float = FIRST_ROUND) -> Iterator[Team]:
    """`size` is K or the leaves of a tree; set-up and each round must end `within` seconds."""
    try:
        with write_shards(source, n_hosts) as folder, Hosts(n_hosts) as hosts, Crew(hosts, n_hosts) as crew:
            yield set_up(hosts, crew, make_job(learner, str(folder), size), within)
    except Unavailable as error:
        raise Absent(str(error)) from None


def make_job(learner: str, folder: str, size: int) -> Job:
    model = {"neurons": size, "transport": TRANSPORT} if learner == "GBUN" else {"leaves": size}
    return {"kind": KINDS[learner], "folder": folder, **model}


def settings_of(learner: str, size: int, n_hosts: int) -> dict[str, Any]:
    """All that figures depend on, beside the rows: for a cell's settings."""
    parameters = parameters_of(learner, size, n_hosts, TRANSPORT)
    settings = {"learner": learner, "size": size, "parameters": parameters}
    return {**settings, "most seconds of a first round": FIRST_ROUND, "least free memory": LEAST_MEMORY}


def set_up(hosts: Hosts, crew: Crew, job: Job, within: float = FIRST_ROUND) -> Team:
    """GBUN reads compiled code in its first rounds, peers build structures; a failure says where it happened."""
    began = perf_counter()
    first, then = (2, 2) if job["kind"] == "train" else (0, 1)
    crew.ask({**job, "rounds": first}, within)
    setup = perf_counter() - began
    try:
        ends = crew.ask({**job, "rounds": then}, within)["seconds"]
    except Failed as failure:
        raise Failed(f"in the first round, after {setup:.0f} s of setting up: {failure}") from None
    return Team(hosts, crew, job, setup, ends[-1] / then)


def to_json(found: Found) -> dict[str, Any]:
    """Seconds, seconds of a core, and bytes of a host and round."""
    return {
        "seconds": found.seconds,
        "deviation": found.deviation,
        "rounds": found.rounds,
        "sent": sum(found.sent) / len(found.sent),
        "most": found.most,
        "busiest cpu": max(found.cpu),
        "mean cpu": sum(found.cpu) / len(found.cpu),
        "peak MB": found.answer["peak MB"],
    }
