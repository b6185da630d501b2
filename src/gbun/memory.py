"""How much memory there is."""

from __future__ import annotations

import os
from pathlib import Path

SHARE_OF_FREE = 0.5  # of free memory, what is taken where nobody says how much


def megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


CONTROL_GROUPS = (  # most, used, statistics: version 2, version 1
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)


def free_memory(groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes this process may still take: what the machine has available, or less where a container is limited.

    Pages of files that were read count as used there, but are given back when they are wanted.
    """
    limits = [_available()]
    for most, used, statistics in CONTROL_GROUPS:
        try:
            cached = dict(line.split() for line in (groups / statistics).read_text().splitlines())
            taken = int((groups / used).read_text()) - int(cached.get("inactive_file", 0))
            limits.append(int((groups / most).read_text()) - taken)
        except (OSError, ValueError):
            continue  # no such control group, or "max": no limit from it
    return max(0, min(limits)) // workers_here()


def workers_here() -> int:
    """Workers that share this machine, as torchrun and our launcher tell them."""
    told = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, int(told)) if told.isdigit() else 1


def _available() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass  # not Linux
    if hasattr(os, "sysconf"):  # elsewhere: half of what is built in
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return 2**32
