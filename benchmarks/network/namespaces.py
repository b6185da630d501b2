"""List, empty and remove network namespaces by name, also those of runs that have ended.

Names begin with the pid and the start time of the process that made them: two runs never share a name, and
leftovers of a killed run can be recognised.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

PREFIX = "gbun"
SECONDS = 20.0  # for a command such as ip
GRACE = 3.0  # from SIGTERM to SIGKILL
NEEDED = "needs Linux, root and iproute2 (apt-get install iproute2)"


class Unavailable(RuntimeError):
    """This machine cannot build hosts; the message says what is needed."""


def missing() -> str | None:
    """Why hosts cannot be built here; None where they can."""
    if sys.platform != "linux":
        return f"this is {sys.platform}: {NEEDED}"
    absent = [name for name in ("ip", "tc") if shutil.which(name) is None]
    if absent:
        return f"{' and '.join(absent)} not found: {NEEDED}"
    return None if os.geteuid() == 0 else f"not root: {NEEDED}"


def call(command: Sequence[str], lines: Sequence[str] = (), check: bool = True, seconds: float = SECONDS) -> str:
    """What a command prints; `lines` go to its stdin. In a session of its own: Ctrl-C must not end a clean-up."""
    done = subprocess.run(
        command, input="".join(f"{line}\n" for line in lines), capture_output=True, text=True, timeout=seconds,
        start_new_session=True,
    )  # fmt: skip
    if check and done.returncode:
        raise Unavailable(f"`{' '.join(command)}` failed: {done.stderr.strip()} ({NEEDED})")
    return done.stdout


def namespaces(prefix: str = PREFIX) -> list[str]:
    """Those of all runs of this harness, or of one."""
    names = (line.split()[0] for line in call(["ip", "netns", "list"]).splitlines() if line.strip())
    return [n for n in names if n.startswith(f"{prefix}-") and re.fullmatch(rf"{PREFIX}-\d+-\d+-\d+-(sw|h\d+)", n)]


def remove(names: Sequence[str]) -> None:
    """End what runs in these namespaces, then remove them."""
    end_processes(names)
    for name in names:
        call(["ip", "netns", "del", name], check=False)  # another run may remove the same leftovers


def end_processes(names: Sequence[str]) -> None:
    """SIGTERM to what runs in these namespaces, then SIGKILL."""

    def running() -> list[int]:
        return [int(pid) for name in names for pid in call(["ip", "netns", "pids", name], check=False).split()]

    for number in (signal.SIGTERM, signal.SIGKILL):
        found, deadline = running(), monotonic() + GRACE
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        while found and monotonic() < deadline:
            sleep(0.05)
            found = running()
        if not found:
            return


def remove_leftovers() -> list[str]:
    """Remove the namespaces of runs that have ended; return their names."""
    begun = {name: name.split("-")[1:3] for name in namespaces()}
    left = [name for name, (pid, began) in begun.items() if start_time(int(pid)) != int(began)]
    remove(left)
    return left


def start_time(pid: int) -> int:
    """When a process started, in ticks since boot; 0 where there is none. A pid comes again, both together do not."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError):
        return 0
