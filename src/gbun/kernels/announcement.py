"""Says that kernels are being compiled: the first training after installation takes seconds longer than all others.

The message goes to the logger "gbun", level INFO, and to a terminal where nobody has set up logging.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from numba.core import event

LOGGER = logging.getLogger("gbun")
MESSAGE = "gbun compiles its kernels, some 15 seconds; it keeps them, so this is once after installation"
PATIENCE = 1.0  # seconds of compilation before it is worth a line


class CompilationListener(event.Listener):
    """Adds up the time that Numba compiles, and says so once it is longer than `PATIENCE`."""

    def __init__(self) -> None:
        self.seconds, self._depth, self._began, self._said = 0.0, 0, 0.0, False

    def on_start(self, event: Any) -> None:
        if self._depth == 0:
            self._began = perf_counter()
        elif not self._said and self.seconds + perf_counter() - self._began > PATIENCE:
            self._said = True
            announce(MESSAGE)
        self._depth += 1  # what a kernel calls is compiled within; Numba compiles in one thread at a time

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += perf_counter() - self._began


def announce(message: str) -> None:
    LOGGER.info(message)
    if not LOGGER.hasHandlers() and sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(f"{message}\n")


@contextmanager
def compilation_announced() -> Iterator[None]:
    """Within, a compilation that takes long is announced."""
    with event.install_listener("numba:compile", CompilationListener()):
        yield
