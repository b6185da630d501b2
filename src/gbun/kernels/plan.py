"""How a training run uses memory: decided once, before the first round, and printable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gbun.data.features import Features
from gbun.kernels.chunks import TABLE_FEATURES, cut, gram_rows, rows_in_chunk
from gbun.kernels.forward import TABLE_LIMIT
from gbun.kernels.hashed import TILE
from gbun.kernels.linear import linear_bytes
from gbun.kernels.products import PANEL
from gbun.kernels.underway import AHEAD
from gbun.memory import SHARE_OF_FREE, free_memory, megabytes

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
    gram_share: float
    budget: int
    parts: tuple[tuple[str, int], ...]
    ahead: bool = False  # rounds are forwarded while sums travel: several are under way, each with its buffer
    before: int = 0  # bytes of the linear start, which are free again when the first round begins

    @property
    def gram_rows(self) -> int:
        """Rows, on average and at most, that the Hessian sums are made of."""
        return round(self.gram_share * self.n_rows)

    @property
    def n_bytes(self) -> int:
        return max(self.before, sum(size for _, size in self.parts))

    @property
    def left(self) -> int:
        """Bytes for evaluation sets: they are in the plan already."""
        return 0

    def __str__(self) -> str:
        passes = "kept in a buffer" if self.hold else "made again in each pass"
        lines = [
            f"{self.n_rows:,} rows in {self.n_chunks:,} chunk(s), K = {self.n_outputs}, {self.n_scores} score(s) a row"
            f", {self.n_threads} thread(s): network outputs are {passes}",
            f"  P'HP is made of {self.gram_rows:,} rows a round, P'G of all",
            *(f"  {name:<42}{megabytes(size):>12}" for name, size in self.parts),
            *(
                [f"  {'or, before the first round, linear start':<42}{megabytes(self.before):>12}"]
                if self.before
                else []
            ),
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
    exact: bool = False,
    gram_share: float = 1.0,
    watched: Sequence[Features] = (),
    n_weights: int = 0,
    n_fits: int = 1,
    ahead: bool = False,
) -> Plan:
    """The fastest plan that fits: first the buffer is given up, then the order of features, then threads.

    `watched` are evaluation sets, `n_weights` the weights of a linear start for each score. With `ahead`, sums travel,
    and rounds are forwarded meanwhile. Without a budget, the plan that needs least is taken where half of what is free
    is less than that.

    >>> print(make_plan(Features(1_000_000), 64, 1, 2, memory_budget=10**9))
    1,000,000 rows in 62 chunk(s), K = 64, 1 score(s) a row, 2 thread(s): network outputs are kept in a buffer
      P'HP is made of 1,000,000 rows a round, P'G of all
      scores                                          8.0 MB
      network outputs, then memberships             256.0 MB
      each thread's chunk                            11.4 MB
      sums of the normal equations                    0.2 MB
      together, of 1000.0 MB to use                 275.6 MB
    """
    n, K, C = features.n_rows, n_outputs, n_scores
    budget = int(SHARE_OF_FREE * free_memory()) if memory_budget is None else memory_budget
    chunks = cut(features, rows_in_chunk(n, K, C))
    others = sum(s.n_rows for s in watched)
    n_entries = _entries(features) + sum(_entries(s) for s in watched)
    n_table = _columns(features) * (K + PANEL)
    before = n_fits * linear_bytes(features, n_weights, C)
    working, table = thread_bytes(features, chunks, K, C, form, exact)
    needed = {
        "scores": 8 * (n + others) * C + (4 * n * C if line_search else 0),
        "keys of the sample of rows": 8 * n if gram_share < 1.0 else 0,
        "weights of dense columns": 16 * n_table if n_table <= TABLE_LIMIT else 0,
    }

    def parts(hold: bool, ordered: bool, threads: int) -> tuple[tuple[str, int], ...]:
        own = {
            "network outputs, then memberships": 4 * n * K * (AHEAD if ahead else 1) if hold else 0,
            "the order of each chunk's features": ORDER_BYTES * n_entries if ordered else 0,
            "each thread's chunk": min(threads, max(1, len(chunks))) * (working + (table if ordered else 0)),
            "sums of the normal equations": (2 * threads + 3) * 8 * (n_grams * K * K + K * C),
        }
        return tuple((name, size) for name, size in (needed | own).items() if size)

    ways = [(True, form != "hashed", n_threads), (False, form != "hashed", n_threads)]
    ways += [(False, False, threads) for threads in range(n_threads, 0, -1)]
    for hold, ordered, threads in ways:
        listed = parts(hold, ordered, threads)
        least = max(before, sum(size for _, size in listed))
        if least <= budget or (memory_budget is None and (hold, ordered, threads) == ways[-1]):
            used = form if ordered else "hashed"
            return Plan(n, K, C, hold, used, threads, len(chunks), gram_share, budget, listed, ahead, before)
    besides = f" and {others:,} evaluation rows" if others else ""
    raise ValueError(
        f"memory_budget must be at least {least} bytes for {n:,} rows{besides}, K = {K} and {C} score(s) a row, "
        f"got {budget} bytes; " + ("init='constant'" if least == before else "a smaller n_neurons") + " needs less"
    )


def thread_bytes(features: Features, chunks: list[slice], K: int, C: int, form: str, exact: bool) -> tuple[int, int]:
    """What a thread needs for a chunk, and beside that for a table of the weights of its features."""
    rows = max((c.stop - c.start for c in chunks), default=0)
    n_columns = _columns(features)
    # Outputs and their scaled copy (in float64, three copies), a Gram, derivatives and what they need.
    copies = 24 * rows * K + 8 * K * K if exact else 4 * gram_rows(K) * K + 4 * K * K
    working = 4 * rows * K + copies + 80 * rows * C
    working += 4 * TILE * (rows if features.sparse is not None else 0) + 4 * TILE * (n_columns + K if n_columns else 0)
    if n_columns * (K + PANEL) > TABLE_LIMIT:  # then weights of dense columns are each thread's own
        working += 12 * TABLE_LIMIT + 4 * rows * n_columns
    largest = max((_entries(features, c) for c in chunks), default=0)
    return working, 4 * TILE * (largest if form == "dense" else min(TABLE_FEATURES, largest))


def _columns(features: Features) -> int:
    return 0 if features.dense is None else features.dense.shape[1]


def _entries(features: Features, rows: slice | None = None) -> int:
    if features.sparse is None:
        return 0
    indptr = features.sparse.indptr
    return len(features.sparse.ids) if rows is None else int(indptr[rows.stop] - indptr[rows.start])
