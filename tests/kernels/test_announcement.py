import io
import logging

import pytest
from numba.core import event

from gbun.kernels import announcement
from gbun.kernels.announcement import MESSAGE, compilation_announced


class Terminal(io.StringIO):
    def isatty(self):
        return True


def compile_kernels(monkeypatch, seconds):
    """A kernel that calls two others, each of which takes so long, by a clock that only they move."""
    now = [0.0]
    monkeypatch.setattr(announcement, "perf_counter", lambda: now[0])
    with compilation_announced(), event.trigger_event("numba:compile"):
        for _ in range(2):
            with event.trigger_event("numba:compile"):
                now[0] += seconds


@pytest.mark.parametrize(("seconds", "said"), [(0.1, 0), (1.5, 1)])
def test_a_long_compilation_is_announced_once(monkeypatch, caplog, seconds, said):
    with caplog.at_level(logging.INFO, logger="gbun"):
        compile_kernels(monkeypatch, seconds)
    assert [record.message for record in caplog.records] == [MESSAGE] * said


@pytest.mark.parametrize(("stream", "has_handlers", "said"), [(Terminal, 0, 1), (Terminal, 1, 0), (io.StringIO, 0, 0)])
def test_a_terminal_shows_it_where_nobody_logs(monkeypatch, stream, has_handlers, said):
    monkeypatch.setattr(announcement.LOGGER, "propagate", False)
    monkeypatch.setattr(announcement.LOGGER, "handlers", [logging.NullHandler()] * has_handlers)
    monkeypatch.setattr(announcement.sys, "stderr", stream())
    compile_kernels(monkeypatch, 1.5)
    assert announcement.sys.stderr.getvalue() == f"{MESSAGE}\n" * said
