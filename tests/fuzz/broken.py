"""Targets with the faults that the fuzzer must find."""

from __future__ import annotations

import os
import threading

from tests.fuzz.runner import Target


def raise_undocumented(data: bytes) -> None:
    raise KeyError(data)


def wait_for_ever(data: bytes) -> None:
    if data == b"wait":
        threading.Event().wait()


def end_the_process(data: bytes) -> None:
    if data == b"end":
        os._exit(3)


def allocate_too_much(data: bytes) -> None:
    bytearray(2**32 if data == b"much" else 0)


def fail_in_a_thread(data: bytes) -> None:
    thread = threading.Thread(target=raise_undocumented, args=(data,))
    thread.start()
    thread.join()


def once(content: bytes):  # the first try of a child warms up: only later ones count
    return lambda random, data, other, tokens: random.choice((b"", content))


TARGETS = {
    "undocumented": Target(raise_undocumented),
    "stuck": Target(wait_for_ever, mutate=once(b"wait")),
    "ended": Target(end_the_process, mutate=once(b"end")),
    "hungry": Target(allocate_too_much, mutate=once(b"much")),
    "thread": Target(fail_in_a_thread),
    "sound": Target(lambda data: None),
}
