"""How a training run uses memory: decided once, before the first round, and printable."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from gbun.data.features import Features
from gbun.kernels.chunks import TABLE_FEATURES, cut, rows_in_chunk
from gbun.kernels.forward import TABLE_LIMIT
from gbun.kernels.hashed import TILE

SHARE_OF_FREE = 0.5
ORDER_BYTES = 24  # of an entry: its row and value or its place, and its feature's id, start and place, with copies


@dataclass(frozen=True)
class Plan:
    """What is held from pass to pass and how many threads fit, within `budget` bytes beside the data.

    `hold`: an n x K buffer keeps Z and P. Otherwise each pass makes them again, a chunk at a time.
    `form`: "auto" lets chunks keep the order of their features, "hashed" makes every weight on the fly.
    """

    n_rows: int
    n_outputs: int
    n_scores: int
    hold: bool
    form: str
    n_threads: int
    n_chunks: int
    budget: int
    parts: tuple[tuple[str, int], ...]

    @property
    def n_bytes(self) -> int:
        return sum(size for _, size in self.parts)

    def __str__(self) -> str:
        passes = "kept in a buffer" if self.hold else "made again in each pass"
        lines = [
            f"{self.n_rows:,} rows in {self.n_chunks:,} chunk(s), K = {self.n_outputs}, {self.n_scores} score(s) a row"
            f", {self.n_threads} thread(s): network outputs are {passes}",
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
    """The fastest plan that fits: first the buffer is given up, then the order of features, then threads.

    >>> print(make_plan(Features(1_000_000), 64, 1, 2, memory_budget=10**9))
    1,000,000 rows in 62 chunk(s), K = 64, 1 score(s) a row, 2 thread(s): network outputs are kept in a buffer
      scores                                          8.0 MB
      network outputs, then memberships             256.0 MB
      each thread's chunk                            10.9 MB
      sums of the normal equations                    0.2 MB
      together, of 1000.0 MB to use                 275.1 MB
    """
    n, K, C = features.n_rows, n_outputs, n_scores
    budget = int(SHARE_OF_FREE * free_memory()) if memory_budget is None else memory_budget
    chunks = cut(features, rows_in_chunk(n, K, C))
    rows = max((c.stop - c.start for c in chunks), default=0)
    n_entries = 0 if features.sparse is None else len(features.sparse.ids)
    n_columns = 0 if features.dense is None else features.dense.shape[1]
    # Of a thread: the chunk's scaled copy, its Gram, derivatives and what they need; a tile and a table of weights.
    working = 4 * rows * K + 4 * K * K + 80 * rows * C
    working += 4 * TILE * (min(TABLE_FEATURES, n_entries) + (rows if n_entries else 0))
    scores = 8 * n * C + (4 * n * C if line_search else 0)

    def parts(hold: bool, ordered: bool, threads: int) -> tuple[tuple[str, int], ...]:
        each = working + (0 if hold else 4 * rows * K)
        needed = {
            "scores": scores,
            "network outputs, then memberships": 4 * n * K if hold else 0,
            "the order of each chunk's features": ORDER_BYTES * n_entries if ordered else 0,
            "weights of dense columns": 8 * min(n_columns * K, TABLE_LIMIT),
            "each thread's chunk": threads * each,
            "sums of the normal equations": (2 * threads + 2) * 8 * (n_grams * K * K + K * C),
        }
        return tuple((name, size) for name, size in needed.items() if size)

    ways = [(True, form != "hashed", n_threads), (False, form != "hashed", n_threads)]
    ways += [(False, False, threads) for threads in range(n_threads, 0, -1)]
    for hold, ordered, threads in ways:
        needed = parts(hold, ordered, threads)
        if sum(size for _, size in needed) <= budget:
            return Plan(n, K, C, hold, form if ordered else "hashed", threads, len(chunks), budget, needed)
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
        pass  # no control groups: no limit from them
    return max(0, min(limits))


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
