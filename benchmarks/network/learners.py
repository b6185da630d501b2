"""GBUN, LightGBM and XGBoost on hosts: the same shards, one thread on each, rounds of one job at any bandwidth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from benchmarks.network import parameters, shards
from benchmarks.network.crew import LEAST_MEMORY, Crew
from benchmarks.network.hosts import Hosts
from benchmarks.network.measure import MOST, Found, Job, measure
from benchmarks.network.namespaces import Unavailable
from benchmarks.speed.data import Source
from benchmarks.speed.timing import Absent, Failed

KINDS = {"GBUN": "train", "LightGBM": "lightgbm", "XGBoost": "xgboost"}
A_ROUND = 600.0  # seconds after which nobody is waited for, GBUN's compilation among them
FEWEST = {"train": 5}  # rounds; of fewer, what comes before and after them makes GBUN's seconds and CPU noise
TRANSPORT = "float32"


@dataclass(frozen=True)
class Team:
    """A learner that has been set up on all hosts and has had its first rounds."""

    hosts: Hosts
    crew: Crew
    job: Job
    setup: float
    """Seconds until the first round could begin."""
    a_round: float
    """About the seconds of a round without a limit."""

    def measure(self, bandwidth: float | None, expected: float, seconds: float) -> Found:
        """As many rounds as are expected to take `seconds`, at a bandwidth; one at least, of GBUN five."""
        self.hosts.limit(bandwidth)
        rounds = max(FEWEST.get(self.job["kind"], 1), min(MOST, int(seconds / expected)))
        return measure(self.hosts, self.crew, self.job, expected, rounds)

    def grown(self) -> dict[str, Any]:
        """What a peer's trees have become: leaves, and what their bytes depend on. Nothing of GBUN."""
        kind = self.job["kind"]
        if kind == "train":
            return {}
        answer = self.crew.ask({**self.job, "kind": "trees", "peer": kind}, A_ROUND)
        return {key: value for key, value in answer.items() if key not in ("cpu", "peak MB")}


@contextmanager
def at_work(learner: str, source: Source, size: int, n_hosts: int, within: float = A_ROUND) -> Iterator[Team]:
    """`size` is K or the leaves of a tree; `within` so many seconds it must be set up, and must a round be over."""
    try:
        with shards.written(source, n_hosts) as folder, Hosts(n_hosts) as hosts, Crew(hosts, n_hosts) as crew:
            yield ready(hosts, crew, job_of(learner, str(folder), size), within)
    except Unavailable as error:
        raise Absent(str(error)) from None


def job_of(learner: str, folder: str, size: int) -> Job:
    own = {"neurons": size, "transport": TRANSPORT} if learner == "GBUN" else {"leaves": size}
    return {"kind": KINDS[learner], "folder": folder, **own}


def settings(learner: str, size: int, n_hosts: int) -> dict[str, Any]:
    """All that figures depend on, beside the rows: for a cell's settings."""
    told = {"learner": learner, "size": size, "parameters": parameters.of(learner, size, n_hosts, TRANSPORT)}
    return {**told, "most seconds of a first round": A_ROUND, "least free memory": LEAST_MEMORY}


def ready(hosts: Hosts, crew: Crew, job: Job, within: float = A_ROUND) -> Team:
    """GBUN reads compiled code in its first rounds, peers build structures; an untold failure says where it came."""
    began = perf_counter()
    first, then = (2, 2) if job["kind"] == "train" else (0, 1)
    crew.ask({**job, "rounds": first}, within)
    setup = perf_counter() - began
    try:
        ends = crew.ask({**job, "rounds": then}, within)["seconds"]
    except Failed as failure:
        raise Failed(f"in the first round, after {setup:.0f} s of setting up: {failure}") from None
    return Team(hosts, crew, job, setup, ends[-1] / then)


def told(found: Found) -> dict[str, Any]:
    """What was measured, as JSON: seconds and seconds of a core of a round, and bytes of a host and round."""
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
