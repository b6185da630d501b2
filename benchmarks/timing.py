"""Units of work that take turns, in child processes with limits of memory and time.

A worker keeps what it has built and does a unit of work on request; meanwhile it sleeps and other workers compute. So
learners take turns without sharing an address space, and a worker that dies does not affect the others.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from multiprocessing import get_context
from time import perf_counter, sleep
from typing import Any

Unit = Callable[[], float]
"""Does one unit of work and says how many seconds it took."""

PAUSE = 0.02  # before each unit: idle OpenMP threads of the one before spin for a while


class Failed(Exception):
    """A learner could not do its work; the message is the reason, for the table."""


class Absent(Failed):
    """A package or a data set is missing: nothing was tried, and trying again would not help."""


@dataclass
class Times:
    """The seconds of some units of work, and why there are no more."""

    seconds: list[float] = field(default_factory=list)
    note: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def best(self) -> float | None:
        return min(self.seconds, default=None)

    @property
    def median(self) -> float | None:
        return statistics.median(self.seconds) if self.seconds else None

    def row(self) -> dict[str, Any]:
        return {"best": self.best, "median": self.median, "units": len(self.seconds), "note": self.note}


def make_unit(work: Callable[[], object]) -> Unit:
    def unit() -> float:
        began = perf_counter()
        work()
        return perf_counter() - began

    return unit


def interleave(units: Mapping[str, Unit], sweeps: int, most_seconds: float = inf, least: int = 1) -> dict[str, Times]:
    """`sweeps` units of each, taking turns. A unit that fails is left out from then on; so is one that has used up
    its seconds, but not before `least` units."""
    found = {name: Times() for name in units}
    for _ in range(sweeps):
        for name, unit in units.items():
            times = found[name]
            if times.note or (sum(times.seconds) > most_seconds and len(times.seconds) >= least):
                continue
            sleep(PAUSE)
            try:
                times.seconds.append(unit())
            except Failed as failure:
                times.note = str(failure)
    return found


def ratio(above: float | None, below: float | None) -> float | None:
    """above / below, where both are known."""
    return above / below if above is not None and below else None


Facts = dict[str, Any]
"""What is known once the work has been set up, such as the seconds that took."""
Built = tuple[Mapping[str, Callable[..., Any]], Facts]
"""What a worker can do, by name, and the facts."""
Build = Callable[..., AbstractContextManager[Built]]


@dataclass(frozen=True)
class Limits:
    """Bytes of address space and seconds for each answer; None is no limit."""

    memory: int | None = None
    seconds: float | None = None


NONE = Limits()
PEERS = Limits(12 * 10**9, 600.0)


class Worker(AbstractContextManager["Worker"]):
    """A child process that builds something and then does units of work on request."""

    def __init__(self, build: Build, *args: Any, limits: Limits = NONE) -> None:
        context = get_context("spawn")
        self._connection, child_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(child_end, limits.memory, build, args), daemon=True)
        self._seconds = limits.seconds
        self._process.start()
        child_end.close()  # so that the end of the child is the end of the pipe
        try:
            self.facts: Facts = self._answer()
        except BaseException:
            self.close()
            raise

    def ask(self, name: str, within: float | None = None, **arguments: Any) -> tuple[float, Any]:
        """The seconds of one unit of work, and what it returned; `within` seconds instead of the usual limit."""
        with suppress(BrokenPipeError):  # then the answer says how it died
            self._connection.send((name, arguments))
        return self._answer(within)

    def unit(self, name: str) -> Unit:
        return lambda: self.ask(name)[0]

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._connection.close()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _answer(self, within: float | None = None) -> Any:
        seconds = self._seconds if within is None else within
        if not self._connection.poll(seconds):
            self._process.kill()  # or it would go on beside the others
            raise Failed(f"no answer in {seconds:.0f} s")
        try:
            answer = self._connection.recv()
        except EOFError:
            self._process.join()
            raise Failed(f"died with exit code {self._process.exitcode}") from None
        if isinstance(answer, Failed):
            raise answer
        return answer


def _serve(connection: Any, memory: int | None, build: Build, args: tuple[Any, ...]) -> None:
    import signal
    import warnings

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt ends the parent, and its end ends the child
    warnings.simplefilter("ignore")
    if memory is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    begun = False
    try:
        with build(*args) as (work, facts):
            begun = True
            connection.send(facts)
            while True:
                name, arguments = connection.recv()
                began = perf_counter()
                value = work[name](**arguments)
                connection.send((perf_counter() - began, value))
    except EOFError:  # the parent is gone
        return
    except Exception as error:
        absent = isinstance(error, FileNotFoundError) and not begun  # its rows, before anything was tried
        connection.send((Absent if absent else Failed)(describe_error(error)))


def describe_error(error: Exception) -> str:
    """A failure in a line: out of memory has many names."""
    text = " ".join(str(error).split())
    short_of_memory = ("bad_alloc", "bad_malloc", "out of memory", "cannot allocate", "unable to allocate")
    if isinstance(error, MemoryError) or any(name in text.lower() for name in short_of_memory):
        return "out of memory"
    return f"{type(error).__name__}: {text[:120]}"


@contextmanager
def start_all(workers: Mapping[str, Callable[[], Worker]]) -> Iterator[tuple[dict[str, Worker], dict[str, str]]]:
    """Start workers one after the other; those that fail are returned by name with the reason, the others with
    their process. All of them end with the context."""
    alive: dict[str, Worker] = {}
    failed: dict[str, str] = {}
    with ExitStack() as stack:
        for name, start in workers.items():
            try:
                alive[name] = stack.enter_context(start())
            except Failed as failure:
                failed[name] = str(failure)
        yield alive, failed


def take_turns(
    starters: Mapping[str, Callable[[], Worker]], unit: str, sweeps: int, most_seconds: float = inf, least: int = 1
) -> dict[str, Times]:
    """`interleave` a unit of workers that are started here; the times of one that fails have the reason as a note."""
    with start_all(starters) as (workers, failed):
        found = interleave({name: worker.unit(unit) for name, worker in workers.items()}, sweeps, most_seconds, least)
    for name, worker in workers.items():
        found[name].facts = worker.facts
    return {name: found[name] if name in found else Times(note=failed[name]) for name in starters}
