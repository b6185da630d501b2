"""Work in several threads at once, for cells that wait for child processes most of the time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import TypeVar

Given, Made = TypeVar("Given"), TypeVar("Made")


def side_by_side(work: Callable[[Given], Made], all_given: Iterable[Given], jobs: int) -> Iterator[Made]:
    """What `work` makes of each, as it ends, in `jobs` threads.

    After an error nothing more is begun; what is under way ends and is given before the error is raised. Threads are
    daemons, and results are taken by the caller's thread: an interrupt ends all at once, and what a child process that
    it killed has to say is not kept.
    """
    waiting: SimpleQueue[Given] = SimpleQueue()
    made: SimpleQueue[tuple[Made] | BaseException | None] = SimpleQueue()  # a result, an error, a thread's end
    broken = Event()
    for given in all_given:
        waiting.put(given)

    def serve() -> None:
        while not broken.is_set():
            try:
                given = waiting.get_nowait()
            except Empty:
                break
            try:
                made.put((work(given),))
            except BaseException as error:
                broken.set()
                made.put(error)
        made.put(None)

    for _ in range(jobs):
        Thread(target=serve, daemon=True).start()
    alive, errors = jobs, []
    while alive:
        one = made.get()
        if isinstance(one, tuple):
            yield one[0]
        elif one is None:
            alive -= 1
        else:
            errors.append(one)
    if errors:
        raise errors[0]
