"""Tries in child processes. The parent watches: a child that ends or stands still leaves its input in a shared file."""

from __future__ import annotations

import faulthandler
import json
import mmap
import re
import shutil
import struct
import sys
import tempfile
import threading
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing import connection, get_context
from pathlib import Path
from random import Random
from time import monotonic, time
from typing import Any, NamedTuple

TESTS = Path(__file__).resolve().parents[1]
SLOT = struct.Struct("<QII")  # number of the try, target, length of the input; the input follows
SLOT_SIZE = 2**20
SLICE_SECONDS = 0.25  # that one target gets in turn
# What a message repeats of the input, and the folder of this process.
QUOTED = re.compile(r"""\S*gbun-fuzz-\w+/|b?'(?:[^'\\]|\\.)*'|b?"(?:[^"\\]|\\.)*"|\d+""")
MAX_SEEDS = 300  # inputs of one target with outcomes of their own
MAX_RESTARTS = 20  # of children that ended or stood still


def always(random: Random, data: bytes, other: bytes, tokens: Sequence[bytes]) -> bytes:
    return data


@dataclass(frozen=True)
class Target:
    """Something that reads bytes. `expected` says which exceptions it documents; `seeds` is a pattern below tests/."""

    attempt: Callable[[bytes], Any]
    expected: Callable[[BaseException], bool] = lambda error: False
    mutate: Callable[[Random, bytes, bytes, Sequence[bytes]], bytes] = always
    tokens: Sequence[bytes] = ()
    seeds: str = ""


class Limits(NamedTuple):
    tries: int | None  # of each target in each child; None: until the time is over
    until: float  # by the clock of `time`
    stuck: float  # seconds that a try may take
    growth: int  # bytes by which a child may grow


class Finding(NamedTuple):
    target: str
    kind: str
    data: bytes
    text: str

    def write(self, folder: Path) -> Path:
        path = folder / self.target / f"{self.kind}-{zlib.crc32(self.data):08x}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.data)
        path.with_name(f"{path.name}.txt").write_text(self.text, errors="backslashreplace")
        return path


@dataclass
class Statistics:
    """What happened to one target."""

    tries: int = 0
    accepted: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    growth: int = 0  # bytes that its tries added to the peak memory of a process
    outcomes: set[str] = field(default_factory=set)

    def add(self, other: Statistics) -> None:
        self.tries, self.accepted = self.tries + other.tries, self.accepted + other.accepted
        self.seconds, self.slowest = self.seconds + other.seconds, max(self.slowest, other.slowest)
        self.growth, self.outcomes = max(self.growth, other.growth), self.outcomes | other.outcomes

    def to_json(self) -> dict[str, Any]:
        rate = self.tries / self.seconds if self.seconds else 0.0
        return {**vars(self), "outcomes": len(self.outcomes), "per_second": round(rate, 1)}


def load_targets(module: str) -> dict[str, Target]:
    targets: dict[str, Target] = import_module(module).TARGETS
    return targets


def corpus_of(name: str, target: Target) -> dict[str, bytes]:
    """Return the seeds of a target by their paths."""
    paths = [*(TESTS / "fuzz" / "corpus" / name).glob("*"), *(TESTS.glob(target.seeds) if target.seeds else ())]
    return {str(path): path.read_bytes() for path in sorted(paths)} or {"": b""}


def attempt(target: Target, data: bytes) -> tuple[str, str | None, str]:
    """Feed an input to a target; return the outcome, and the kind and traceback of a finding or (None, "")."""
    failures: list[Any] = []
    hook, threading.excepthook = threading.excepthook, failures.append  # an exception that ends a thread
    try:
        target.attempt(data)
        if not failures:
            return "accepted", None, ""
        error = failures[0].exc_value
    except Exception as raised:
        error = raised
        if target.expected(error):
            text = QUOTED.sub("_", str(error))[:200]
            return f"{type(error).__name__}: {text}", None, ""
    finally:
        threading.excepthook = hook
    frame = traceback.extract_tb(error.__traceback__)[-1]
    kind = f"{type(error).__name__}-{Path(frame.filename).stem}-{frame.lineno}"
    return kind, kind, "".join(traceback.format_exception(error))


class Child:
    """The loop of one child: each target in turn gets some tries."""

    def __init__(self, names: Sequence[str], module: str, seed: str, slot: str, send: Callable[..., None]) -> None:
        targets = load_targets(module)
        self.targets = {name: targets[name] for name in names}
        self.random = {name: Random(f"{seed}/{name}") for name in names}
        self.seeds = {name: list(corpus_of(name, target).values()) for name, target in self.targets.items()}
        self.outcomes: dict[str, set[str]] = {name: set() for name in names}
        with Path(slot).open("r+b") as file:
            self.slot, self.n_tries, self.send = mmap.mmap(file.fileno(), SLOT_SIZE), 0, send

    def run(self, limits: Limits, with_corpus: bool) -> None:
        warnings.simplefilter("ignore")
        for name, target in self.targets.items():  # what is compiled and imported at first use is no growth
            self.record(name, self.seeds[name][0])
            attempt(target, self.seeds[name][0])
        limit_growth(limits.growth)
        inputs = {name: iter(seeds[:] if with_corpus else ()) for name, seeds in self.seeds.items()}
        left = dict.fromkeys(self.targets, limits.tries or sys.maxsize)
        while any(left.values()) and time() < limits.until:
            for name in filter(left.get, left):
                left[name] -= self.run_slice(name, inputs[name], left[name], limits.until)

    def run_slice(self, name: str, inputs: Iterable[bytes], n_tries: int, until: float) -> int:
        target, found, peak = self.targets[name], Statistics(), peak_memory()
        inputs = iter(inputs)
        while found.tries < n_tries and found.seconds < SLICE_SECONDS and time() < until:
            started = monotonic()
            data = next(inputs, None)
            data = self.mutate(name) if data is None else data
            self.record(name, data)
            outcome, kind, text = attempt(target, data)
            seconds = monotonic() - started
            found.add(Statistics(1, outcome == "accepted", seconds, seconds, 0, {outcome}))
            if outcome not in self.outcomes[name]:
                self.outcomes[name].add(outcome)
                if kind is not None:
                    self.send(Finding(name, kind, data, text))
                elif len(self.seeds[name]) < MAX_SEEDS:
                    self.seeds[name].append(data)
        found.growth = peak_memory() - peak
        self.send((name, found))
        return found.tries

    def mutate(self, name: str) -> bytes:
        target, random = self.targets[name], self.random[name]
        data, other = random.choices(self.seeds[name], k=2)
        return target.mutate(random, data, other, target.tokens)

    def record(self, name: str, data: bytes) -> None:
        """Keep the input where the parent finds it if this process ends."""
        self.n_tries += 1
        data = data[: SLOT_SIZE - SLOT.size]
        self.slot[: SLOT.size] = SLOT.pack(self.n_tries, list(self.targets).index(name), len(data))
        self.slot[SLOT.size : SLOT.size + len(data)] = data


def limit_growth(growth: int) -> None:
    """Let allocations beyond this growth of the process fail; where the system has no such limit, do nothing."""
    if sys.platform == "linux":
        import resource

        now = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData"))
        limit = 1024 * int(now.split()[1]) + growth
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def peak_memory() -> int:
    if sys.platform == "win32":
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def run_child(
    names: Sequence[str], module: str, seed: str, slot: str, pipe: Any, limits: Limits, with_corpus: bool
) -> None:
    with Path(f"{slot}.txt").open("w") as text:
        faulthandler.enable(text)
        Child(names, module, seed, slot, pipe.send).run(limits, with_corpus)
        faulthandler.disable()


@dataclass
class Watch:
    """What the parent knows of a child."""

    process: Any
    pipe: Any
    slot: Path
    number: int
    with_corpus: bool
    seen: tuple[int, float] = (0, 0.0)  # the last try, and since when it runs

    def last_input(self, names: Sequence[str]) -> tuple[str, bytes]:
        content = self.slot.read_bytes()
        _, target, length = SLOT.unpack_from(content)
        return names[target], content[SLOT.size : SLOT.size + length]

    def is_stuck(self, seconds: float) -> bool:
        number, now = SLOT.unpack_from(self.slot.read_bytes())[0], monotonic()
        if number != self.seen[0] or not number:
            self.seen = number, now
        return now - self.seen[1] > seconds


class Fuzzer:
    """Runs children until the limits are reached; findings and statistics are its results."""

    def __init__(
        self,
        module: str,
        names: Sequence[str],
        seed: int,
        n_children: int,
        limits: Limits,
        max_restarts: int = MAX_RESTARTS,
    ) -> None:
        self.module, self.names, self.seed, self.n_children, self.limits = module, names, seed, n_children, limits
        self.max_restarts = max_restarts
        self.statistics = {name: Statistics() for name in names}
        self.findings: dict[tuple[str, str], Finding] = {}
        self.n_restarts = 0

    def run(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="gbun-fuzz-"))
        children = [self._start(folder / f"{number}", number, True) for number in range(self.n_children)]
        try:
            while children:
                connection.wait([child.process.sentinel for child in children], timeout=0.1)
                for child in children[:]:
                    ended, stuck = not child.process.is_alive(), child.is_stuck(self.limits.stuck)
                    self._receive(child)
                    if not ended and not stuck:
                        continue
                    children.remove(child)
                    child.process.kill()
                    child.process.join()
                    if stuck or child.process.exitcode:
                        self._record_lost(child, "stuck" if not ended else f"ended-{child.process.exitcode}")
                        if self.n_restarts < self.max_restarts and time() < self.limits.until:
                            self.n_restarts += 1
                            children.append(self._start(child.slot, child.number, False))
        finally:
            for child in children:
                child.process.kill()
            shutil.rmtree(folder)

    def _start(self, slot: Path, number: int, with_corpus: bool) -> Watch:
        slot.write_bytes(bytes(SLOT_SIZE))
        context = get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        seed = f"{self.seed}/{number}/{self.n_restarts}"
        arguments = (self.names, self.module, seed, str(slot), theirs, self.limits, with_corpus)
        process = context.Process(target=run_child, args=arguments, daemon=True)
        process.start()
        theirs.close()
        return Watch(process, ours, slot, number, with_corpus)

    def _receive(self, child: Watch) -> None:
        while child.pipe.poll():
            try:
                received = child.pipe.recv()
            except (EOFError, OSError):
                return
            if isinstance(received, Finding):
                self.findings.setdefault((received.target, received.kind), received)
            else:
                self.statistics[received[0]].add(received[1])

    def _record_lost(self, child: Watch, kind: str) -> None:
        target, data = child.last_input(self.names)
        self.statistics[target].add(Statistics(1, outcomes={kind}))
        text = f"The process was lost while it read this input: {kind}\n" + Path(f"{child.slot}.txt").read_text()
        self.findings[target, f"{kind}-{zlib.crc32(data):08x}"] = Finding(target, kind, data, text)


def report(fuzzer: Fuzzer, folder: Path) -> str:
    """Write findings and figures into a folder; return them as text."""
    rows = {name: found.to_json() for name, found in fuzzer.statistics.items()}
    paths = [finding.write(folder) for finding in fuzzer.findings.values()]
    folder.mkdir(parents=True, exist_ok=True)
    content = {"seed": fuzzer.seed, "targets": rows, "findings": [str(path) for path in paths]}
    (folder / "report.json").write_text(json.dumps(content, indent=1) + "\n")
    lines = [f"{'target':18}{'tries':>9}{'per s':>9}{'accepted':>10}{'outcomes':>10}{'slowest s':>11}{'growth MB':>11}"]
    for name, row in rows.items():
        share = row["accepted"] / max(1, row["tries"])
        lines.append(
            f"{name:18}{row['tries']:9}{row['per_second']:9.0f}{share:10.1%}{row['outcomes']:10}{row['slowest']:11.3f}"
            f"{row['growth'] / 1e6:11.1f}"
        )
    lines.append(f"{'in all':18}{sum(row['tries'] for row in rows.values()):9}")
    lines.append(f"{len(paths)} findings" + "".join(f"\n  --replay {path}" for path in paths))
    return "\n".join(lines)
