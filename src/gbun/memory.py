"""Free memory."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path

FRACTION_OF_FREE = 0.5  # of free memory that is used if the user sets no limit
CGROUP_FILES = (  # limit, usage, statistics: version 2, version 1
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)


def format_megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def free_memory(groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes that this process may still allocate: those of the machine, or fewer in a limited container.

    A control group counts pages of files as used, but the system frees them when memory is needed.
    """
    limits = [_available_memory()]
    for limit, usage, statistics in CGROUP_FILES:
        try:
            cached = dict(line.split() for line in (groups / statistics).read_text().splitlines())
            used = int((groups / usage).read_text()) - int(cached.get("inactive_file", 0))
            limits.append(int((groups / limit).read_text()) - used)
        except (OSError, ValueError):
            continue  # no such control group, or "max": no limit
    return max(0, min(limits)) // count_local_workers()


def return_free_memory() -> None:
    """Give memory that arrays have left back to the system, where the C library would keep it for later."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # a C library that has no such function
            ctypes.CDLL(None).malloc_trim(0)


def count_local_workers() -> int:
    """Return the number of workers on this machine, as torchrun and gbun's launcher set it."""
    local_world_size = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, int(local_world_size)) if local_world_size.isdigit() else 1


def _available_memory() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass  # not Linux
    if hasattr(os, "sysconf"):  # elsewhere: half of the physical memory
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return 2**32
