"""How a training run uses memory: decided once, before the first round, and printable."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from gbun.data.features import Features
from gbun.kernels.blocks import row_chunks

SHARE_OF_FREE = 0.5
TILE_BYTES = 2**24 + 2**23  # a block's table of weights, at its largest


@dataclass(frozen=True)
class Plan:
    """What is held from pass to pass and how many threads fit, within `budget` bytes beside the data.

    `hold`: an n x K buffer keeps Z and P. Otherwise each pass makes them again, a chunk at a time.
    `form`: "auto" lets blocks of rows keep dictionaries of their features, "hashed" makes every weight on the fly.
    """

    n_rows: int
    n_outputs: int
    n_scores: int
    hold: bool
    form: str
    n_threads: int
    chunk_rows: int
    budget: int
    parts: tuple[tuple[str, int], ...]

    @property
    def n_bytes(self) -> int:
        return sum(size for _, size in self.parts)

    def __str__(self) -> str:
        passes = "kept in one buffer" if self.hold else "made again in each pass"
        lines = [
            f"{self.n_rows:,} rows, K = {self.n_outputs}, {self.n_scores} score(s) a row: "
            f"network outputs are {passes}, {self.chunk_rows:,} rows at a time, {self.n_threads} thread(s)",
            *(f"  {name:<42}{megabytes(size):>12}" for name, size in self.parts),
            f"  {'together, of ' + megabytes(self.budget) + ' to use':<42}{megabytes(self.n_bytes):>12}",
        ]
        return "\n".join(lines)


def make_plan(
    features: Features,
    n_outputs: int,
    n_scores: int,
    n_threads: int,
    *,
    memory_budget: int | None = None,
    form: str = "auto",
    line_search: bool = False,
    n_grams: int = 1,
) -> Plan:
    """The fastest plan that fits: first the buffer is given up, then dictionaries, then threads.

    >>> print(make_plan(Features(1_000_000), 64, 1, 2, memory_budget=10**9))
    1,000,000 rows, K = 64, 1 score(s) a row: network outputs are kept in one buffer, 16,384 rows at a time, 2 thread(s)
      scores                                          8.0 MB
      network outputs, then memberships             256.0 MB
      each thread's chunk                             9.5 MB
      sums of the normal equations                    0.2 MB
      together, of 1000.0 MB to use                 273.6 MB
    """
    n, K, C = features.n_rows, n_outputs, n_scores
    budget = int(SHARE_OF_FREE * free_memory()) if memory_budget is None else memory_budget
    chunks = row_chunks(n, K, C)
    chunk_rows = max((c.stop - c.start for c in chunks), default=0)
    n_entries = 0 if features.sparse is None else len(features.sparse.ids)
    n_columns = 0 if features.dense is None else features.dense.shape[1]
    table = min(TILE_BYTES, 256 * n_entries) + min(4 * n_columns * K, 2**25)
    working = 4 * chunk_rows * K + 4 * K * K + 32 * chunk_rows * C  # the chunk's scaled copy, its Gram, derivatives
    scores = 8 * n * C + (4 * n * C if line_search else 0)
    sums = 8 * n_grams * K * K

    def parts(hold: bool, with_dictionaries: bool, threads: int) -> tuple[tuple[str, int], ...]:
        each = working + table + (0 if hold else 4 * chunk_rows * K)
        listed = [("scores", scores)]
        if hold:
            listed.append(("network outputs, then memberships", 4 * n * K))
        if with_dictionaries and n_entries:
            listed.append(("which features each block of rows holds", 12 * n_entries))
        listed.append(("each thread's chunk", threads * each))
        listed.append(("sums of the normal equations", (2 * threads + 1) * sums))
        return tuple(listed)

    ways = [(True, form != "hashed", n_threads), (False, form != "hashed", n_threads)]
    ways += [(False, False, threads) for threads in range(n_threads, 0, -1)]
    for hold, dictionaries, threads in ways:
        needed = parts(hold, dictionaries, threads)
        if sum(size for _, size in needed) <= budget:
            used = form if dictionaries else "hashed"
            return Plan(n, K, C, hold, used, threads, chunk_rows, budget, needed)
    least = sum(size for _, size in parts(False, False, 1))
    given = f"got {megabytes(budget)}" if memory_budget is not None else f"half of what is free is {megabytes(budget)}"
    raise ValueError(
        f"memory_budget must be at least {least} bytes ({megabytes(least)}) for {n:,} rows, K = {K} and {C} score(s) "
        f"a row, {given}; a smaller n_neurons needs less"
    )


def megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def free_memory() -> int:
    """Bytes this process may still take: what the machine has available, or less where a container is limited."""
    limits = [_available()]
    try:  # control groups, version 2
        most = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        if most != "max":
            limits.append(int(most) - int(Path("/sys/fs/cgroup/memory.current").read_text()))
    except (OSError, ValueError):
        pass
    return max(0, min(limits))


def _available() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass
    if hasattr(os, "sysconf"):  # elsewhere: half of what is built in
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return 2**32
