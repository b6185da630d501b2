"""Some hosts, each bandwidth: seconds and bytes of a round, beside an all-reduce of a K x K matrix.

Bytes are differences of the interfaces' counters between a job of few rounds and one of more, divided by the rounds
that make the difference: what a job sends before its first round is in both.

The overlap is the share of the transfer that happens while the hosts compute. Let T be the seconds of a round with a
limit, E those of an exchange of the same bytes without computation, and C those of a round without a limit minus those
of an exchange without one. One after the other they take C + E, at the same time max(C, E). So

    overlap = (C + E - T) / min(C, E)
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import sleep
from typing import Any

from benchmarks.network.crew import Crew
from benchmarks.network.hosts import Hosts, token_bucket
from benchmarks.report import Row
from benchmarks.timing import Failed, ratio

TABLE = "network: a round on several hosts; bytes are of a host and round, at its interface"
FEWEST, MOST = 3, 50  # rounds, where nobody says how many
COMPILE = 600.0  # seconds for the first round of all
SETTLE = 0.1  # seconds for the last acknowledgements
LEAST_OVERLAP = 0.2  # of T: where less can overlap, the figure would be noise

Job = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """Rows of each host, and rounds: so many, or (None) as many as are expected to take `seconds`."""

    rows: int
    features: int
    nnz: int
    rounds: int | None
    seconds: float
    transport: str

    def train(self, K: int) -> Job:
        training = {"rows": self.rows, "features": self.features, "nnz": self.nnz, "transport": self.transport}
        return {"kind": "train", "neurons": K, **training}

    def rounds_of(self, expected: float) -> int:
        """Where each takes the expected seconds."""
        return self.rounds or max(FEWEST, min(MOST, int(self.seconds / expected)))


@dataclass(frozen=True)
class Found:
    """Seconds by which one more round makes a job longer; bytes and seconds of a core of each host and round.

    Training reports rounds late, and in groups where there are few of them: the seconds between two reports would be
    too small. `deviation` is that of the reported seconds of single rounds; None for less than three.
    `answer` is that of rank 0.
    """

    seconds: float
    rounds: int
    sent: list[float]
    received: list[float]
    cpu: list[float]
    answer: dict[str, Any]
    deviation: float | None = None

    @property
    def most(self) -> float:
        """Bytes of the busiest host, one way."""
        return max(*self.sent, *self.received)


def sweep(hosts: Hosts, crew: Crew, K: int, bandwidths: Sequence[float], plan: Plan) -> Iterator[Row]:
    """A row for no limit, then one for each bandwidth; once one has failed, the workers are gone and no more come.

    A limit is compared with rounds without it just before, as other programs may use this machine too.
    """
    hosts.limit(None)
    jobs: dict[str, Job] = {"round": plan.train(K), "all_reduce": {"kind": "all_reduce", "neurons": K}}
    free: dict[str, Found] = {}

    def run_job(job: Job, expected: float) -> Found:
        return measure(hosts, crew, job, expected, plan.rounds_of(expected))

    for bandwidth in (None, *bandwidths):
        found: dict[str, Found] = {}
        note = ""
        try:
            hosts.limit(None)
            if not free:
                crew.ask({**jobs["round"], "rounds": 2}, COMPILE)
                free["round"] = run_job(jobs["round"], probe_round(crew, jobs["round"]))
                # Bytes that go up to rank 0, and those that come down: the last rank sends and receives just these.
                up, down = (round(free["round"].answer[way][-1]) for way in ("sent", "received"))
                jobs["exchange"] = {"kind": "exchange", "up": up, "down": down}
            for name, job in jobs.items():
                free[name] = run_job(job, probe_round(crew, job))
            hosts.limit(bandwidth)
            if bandwidth is not None:
                for name, job in jobs.items():  # expected where nothing overlaps
                    found[name] = run_job(job, free[name].seconds + free[name].most / bandwidth)
        except Failed as failure:
            note = str(failure)
        place = {"table": TABLE, "hosts": crew.size, "K": K, "bandwidth": show_bandwidth(bandwidth)}
        yield {**place, **make_row(crew.size, K, found if bandwidth else free, free, note)}
        if note:
            return


def probe_round(crew: Crew, job: Job) -> float:
    """Seconds that a round is expected to take, from a few."""
    return max(of_rounds(job, crew.ask({**job, "rounds": 4}, COMPILE)["seconds"]))


def of_rounds(job: Job, ends: list[float]) -> list[float]:
    """Seconds of each round. Training reports a round when the sums of the next have come: the last is reported at
    once, and the beginning of the first is not known."""
    return [b - a for a, b in pairwise(ends[:-1] if job["kind"] == "train" else [0.0, *ends])]


def measure(hosts: Hosts, crew: Crew, job: Job, expected: float, rounds: int) -> Found:
    """Some rounds, counted against a job of fewer."""
    first = 1 if job["kind"] == "train" else 0
    counted, answers = [hosts.counters()], []
    for n in (first, first + rounds):
        answers.append(crew.ask_all({**job, "rounds": n}, 120.0 + 5.0 * n * expected))
        sleep(SETTLE)
        counted.append(hosts.counters())
    before, middle, after = (counters[: crew.size] for counters in counted)
    pairs = [(c.since(b), b.since(a)) for a, b, c in zip(before, middle, after, strict=True)]
    single = of_rounds(job, answers[1][0]["seconds"])
    few, many = ([0.0, *of[0]["seconds"]][-1] for of in answers)  # seconds of all rounds of a job
    return Found(
        (many - few) / rounds,
        rounds,
        [(more.sent - few.sent) / rounds for more, few in pairs],
        [(more.received - few.received) / rounds for more, few in pairs],
        [(more["cpu"] - few["cpu"]) / rounds for few, more in zip(*answers, strict=True)],
        answers[1][0],
        statistics.stdev(single) if len(single) > 2 else None,
    )


def make_row(size: int, K: int, found: dict[str, Found], free: dict[str, Found], note: str) -> Row:
    ring = 2.0 * (size - 1) / size * 4.0 * K * K
    training, all_reduce = found.get("round"), found.get("all_reduce")
    sent, all_sent = (statistics.mean(f.sent) if f else None for f in (training, all_reduce))
    return {
        "rounds": training and training.rounds,
        "round s": training and training.seconds,
        "no limit s": free["round"].seconds if "round" in free else None,
        "sent": sent,
        "received": training and statistics.mean(training.received),
        "most": training and training.most,
        "gbun counts": training and statistics.mean(training.answer["sent"]),
        "of a ring": ratio(sent, ring),
        "all_reduce s": all_reduce and all_reduce.seconds,
        "all_reduce sent": all_sent,
        "of all_reduce": ratio(sent, all_sent),
        "exchange s": found["exchange"].seconds if "exchange" in found else None,
        "exchange no limit s": free["exchange"].seconds if "exchange" in free else None,
        "overlap": overlap(found, free),
        "note": note,
    }


def overlap(found: dict[str, Found], free: dict[str, Found]) -> float | None:
    """From 0, one after the other, to 1; None where so little can overlap that noise would decide."""
    if found is free or not {"round", "exchange"} <= found.keys() & free.keys():
        return None
    C, E, T = free["round"].seconds - free["exchange"].seconds, found["exchange"].seconds, found["round"].seconds
    return (C + E - T) / min(C, E) if min(C, E) > LEAST_OVERLAP * T else None


def show_bandwidth(bandwidth: float | None) -> str:
    """
    >>> show_bandwidth(None), show_bandwidth(1e5), show_bandwidth(2.5e7)
    ('no limit', '100KB', '25MB')
    """
    if bandwidth is None:
        return "no limit"
    return next(f"{bandwidth / scale:g}{unit}" for unit, scale in UNITS.items() if bandwidth >= scale)


def parse_bandwidth(text: str) -> float | None:
    """
    >>> parse_bandwidth("100KB"), parse_bandwidth("1.5GB"), parse_bandwidth("no limit")
    (100000.0, 1500000000.0, None)
    """
    if text == show_bandwidth(None):
        return None
    unit = next((unit for unit in UNITS if text.upper().endswith(unit)), "")
    try:
        return float(text[: len(text) - len(unit)]) * UNITS.get(unit, 1.0)
    except ValueError:
        raise ValueError(f"a bandwidth is bytes a second, such as 10MB or 100KB, got {text!r}") from None


def parse_limit(text: str) -> float:
    """A bandwidth to which hosts can be limited."""
    value = parse_bandwidth(text)
    if value is None:
        raise ValueError("no limit is always measured")
    token_bucket(value)  # or an error
    return value


UNITS = {"GB": 1e9, "MB": 1e6, "KB": 1e3, "B": 1.0}
