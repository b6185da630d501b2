"""Processes of their own: memory that is one learner's alone, limits on it, and an end when time is up.

A worker keeps what it has built and does a unit of it whenever it is asked; meanwhile it sleeps and others work. So
learners take turns without sharing an address space, and one that dies takes none of the others with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from time import perf_counter
from typing import Any

from benchmarks.speed.timing import Absent, Failed, Unit

Facts = dict[str, Any]
"""What is known once the work has been set up, such as the seconds that took."""
Built = tuple[Mapping[str, Callable[[], Any]], Facts]
"""What a worker can do, by name, and the facts."""
Build = Callable[..., AbstractContextManager[Built]]


@dataclass(frozen=True)
class Limits:
    """Bytes of address space and seconds for each answer; None is no limit."""

    memory: int | None = None
    seconds: float | None = None


NONE = Limits()
PEERS = Limits(12 * 10**9, 600.0)


class Worker:
    """A child process that builds something and then does what it is asked to."""

    def __init__(self, build: Build, *args: Any, limits: Limits = NONE) -> None:
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, limits.memory, build, args), daemon=True)
        self._seconds = limits.seconds
        self._process.start()
        theirs.close()  # so that the end of the child is the end of the pipe
        try:
            self.facts: Facts = self._answer()
        except BaseException:
            self.close()
            raise

    def ask(self, name: str, within: float | None = None) -> tuple[float, Any]:
        """The seconds of one unit of work, and what it returned; `within` seconds instead of the usual limit."""
        with suppress(BrokenPipeError):  # then the answer says how it died
            self._connection.send(name)
        return self._answer(within)

    def unit(self, name: str) -> Unit:
        return lambda: self.ask(name)[0]

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._connection.close()

    def __enter__(self) -> Worker:
        return self

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

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who interrupts means the parent, whose end is the child's
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
                wanted = work[connection.recv()]
                began = perf_counter()
                value = wanted()
                connection.send((perf_counter() - began, value))
    except EOFError:  # the parent is gone
        return
    except Exception as error:
        absent = isinstance(error, FileNotFoundError) and not begun  # its rows, before anything was tried
        connection.send((Absent if absent else Failed)(in_words(error)))


def in_words(error: Exception) -> str:
    """A failure in a line: out of memory has many names."""
    told = " ".join(str(error).split())
    short_of_memory = ("bad_alloc", "bad_malloc", "out of memory", "cannot allocate", "unable to allocate")
    if isinstance(error, MemoryError) or any(name in told.lower() for name in short_of_memory):
        return "out of memory"
    return f"{type(error).__name__}: {told[:120]}"


@contextmanager
def together(workers: Mapping[str, Callable[[], Worker]]) -> Iterator[tuple[dict[str, Worker], dict[str, str]]]:
    """Start workers one after the other; those that fail are given by name with the reason, the others with their
    process. All of them end with the context."""
    alive: dict[str, Worker] = {}
    failed: dict[str, str] = {}
    try:
        for name, start in workers.items():
            try:
                alive[name] = start()
            except Failed as failure:
                failed[name] = str(failure)
        yield alive, failed
    finally:
        for worker in alive.values():
            worker.close()
