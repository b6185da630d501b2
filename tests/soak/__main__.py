"""Train and predict for an hour in one process, and see whether it grows: python -m tests.soak --seconds 3600.

After each cycle of jobs it counts memory, Python's blocks of memory, open files, threads and child processes. Exit code
1 says that one of them grew, or that a job did not repeat its bits.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.stats import theilslopes

from benchmarks import report
from tests.soak.jobs import JOBS, RARE_JOBS, Job, Turn

SEEDS = 3
RARE = 4  # workers are started in every fourth cycle
PERIOD = 12  # cycles: every job, with every seed and number of threads
WARM_UP = 0.15  # of the cycles, and at least two periods
SETTLING_TIME = 5.0  # seconds in which threads and processes that were told to end do so
COUNTS = ("handles", "threads", "native threads", "processes")  # must not exceed their maximum of the warm-up
BOUNDS = {"memory": (0.05, 20e6), "blocks": (0.02, 5000.0)}  # growth: a fraction of the warm-up's median, or a number
Sample = dict[str, Any]


def read_memory() -> int | None:
    """Return the bytes of memory in use; on other systems than Linux, the most there have been."""
    with suppress(ImportError):
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return report.read_bytes("/proc/self/status", "VmRSS") or most
    return None


def count_entries(*folders: str) -> int | None:
    """Return the number of entries of the first folder that this system has."""
    return next((len(list(Path(folder).iterdir())) for folder in folders if Path(folder).is_dir()), None)


def count_processes() -> int | None:
    """Return the number of descendants of this process."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    family = {os.getpid()}
    while grown := {child for child, parent in parents.items() if parent in family} - family:
        family |= grown
    return len(family) - 1 if parents else None


def measure(last: dict[str, int]) -> Sample:
    """Count what is in use. What is more than the last time gets some time to end."""
    gc.collect()
    readers: dict[str, Callable[[], int | None]] = {
        "processes": count_processes,
        "threads": threading.active_count,
        "native threads": lambda: count_entries("/proc/self/task"),
        "handles": lambda: count_entries("/proc/self/fd", "/dev/fd"),
    }
    sample: Sample = {}
    deadline = time.monotonic() + SETTLING_TIME
    for name, read in readers.items():
        value = read()
        while value is not None and value > last.get(name, value) and time.monotonic() < deadline:
            time.sleep(0.02)
            value = read()
        sample[name] = value
        if value is not None:
            last[name] = value
    return sample | {"memory": read_memory(), "blocks": sys.getallocatedblocks()}


def soak(jobs: Sequence[Job], rare_jobs: Sequence[Job], folder: Path) -> Iterator[Sample]:
    """Do all jobs again and again; yield what is in use after each cycle, and what was done in it."""
    digests: dict[tuple[str, int], str] = {}
    last: dict[str, int] = {}
    began = time.monotonic()
    for cycle in count():
        turn = Turn(cycle % SEEDS, 1 + cycle // SEEDS % 2, folder)
        changed = []
        for job in (*jobs, *(rare_jobs if cycle % RARE == 0 else ())):
            digest = hashlib.sha256(job(turn).tobytes()).hexdigest()
            if digests.setdefault((job.__name__, turn.seed), digest) != digest:
                changed.append(job.__name__)
        done = {"cycle": cycle, "seconds": round(time.monotonic() - began, 1), **turn.counts, "changed": changed}
        yield done | measure(last)


def growth(values: Sequence[float]) -> float:
    """Return by how much values grow from first to last: by their median slope, or by the medians of their thirds."""
    third = len(values) // 3
    slope = theilslopes(values).slope * (len(values) - 1)
    return float(max(slope, np.median(values[-third:]) - np.median(values[:third])))


def judge(samples: Sequence[Sample]) -> list[str]:
    """Return what is wrong: nothing, if all that is in use stays what it was in the warm-up."""
    warm_up = max(2 * PERIOD, int(WARM_UP * len(samples)))
    if len(samples) < 2 * warm_up:
        return [f"{len(samples)} cycles are too few to judge: at least {4 * PERIOD} are needed"]
    findings = [
        f"cycle {s['cycle']}: other bits than before in {', '.join(s['changed'])}" for s in samples if s["changed"]
    ]
    series = {name: [s[name] for s in samples] for name in (*COUNTS, *BOUNDS) if samples[0][name] is not None}
    for name in series.keys() & set(COUNTS):
        before, after = max(series[name][:warm_up]), max(series[name][warm_up:])
        if after > before:
            findings.append(f"{name}: {after}, at most {before} in the warm-up of {warm_up} cycles")
    for name in series.keys() & BOUNDS.keys():
        fraction, least = BOUNDS[name]
        bound = max(fraction * float(np.median(series[name][:warm_up])), least)
        if (grown := growth(series[name][warm_up:])) > bound:
            a_cycle = grown / (len(samples) - warm_up)
            findings.append(f"{name}: grew by {grown:,.0f}, {a_cycle:,.0f} a cycle; allowed are {bound:,.0f} in all")
    return sorted(findings)


def draw(samples: Sequence[Sample], path: Path) -> None:
    figure = report.new_figure(8.0, 7.0)
    minutes = [s["seconds"] / 60 for s in samples]
    panels = {"memory, MB": ("memory",), "blocks of Python, thousands": ("blocks",), "number": COUNTS}
    for ax, (label, names) in zip(figure.subplots(len(panels), sharex=True), panels.items(), strict=True):
        for name, colour in zip(names, report.SERIES_COLOURS, strict=False):
            unit = {"memory": 1e6, "blocks": 1e3}.get(name, 1)
            points = [(m, s[name] and s[name] / unit) for m, s in zip(minutes, samples, strict=True)]
            report.plot_line(ax, points, "-", colour, name)
        ax.set_ylabel(label)
        ax.set_ylim(0, 1.15 * ax.get_ylim()[1])
        ax.legend(loc="lower right")
    ax.set_xlabel("minutes")
    report.save(figure, path)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--cycles", type=int, help="so many instead of a time")
    parser.add_argument("--output", type=Path, default=Path("results/soak"))
    given = parser.parse_args(arguments)
    given.output.mkdir(parents=True, exist_ok=True)
    samples: list[Sample] = []
    try:
        with TemporaryDirectory() as folder:
            for sample in soak(JOBS, RARE_JOBS, Path(folder)):
                samples.append(sample)
                if sample["cycle"] % PERIOD == 0:
                    print({name: sample[name] for name in ("cycle", "seconds", *BOUNDS, *COUNTS)}, flush=True)
                if sample["cycle"] + 1 == given.cycles or (not given.cycles and sample["seconds"] >= given.seconds):
                    break
    finally:  # also if a job raised
        findings = write(samples, given.output) if samples else []
    return int(bool(findings))


def write(samples: Sequence[Sample], output: Path) -> list[str]:
    """Write and print the result; return what is wrong."""
    findings = judge(samples)
    names = ("trainings", "predictions", "errors")
    done = {name: sum(sample.get(name, 0) for sample in samples) for name in names}
    result = {"about": report.about(2, False), "done": done, "findings": findings, "samples": samples}
    (output / "soak.json").write_text(json.dumps(result, indent=1))
    draw(samples, output / "soak.png")
    print(f"{len(samples)} cycles, {done}", *(findings or ["nothing grew"]), sep="\n", flush=True)
    return findings


if __name__ == "__main__":
    sys.exit(main())
