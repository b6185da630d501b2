"""How a training run uses memory: decided once, before the first round, and printable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from gbun.devices import Device
from gbun.kernels import costs
from gbun.kernels.chunks import cut_chunks, rows_in_chunk
from gbun.kernels.costs import Workload
from gbun.kernels.linear import linear_bytes
from gbun.kernels.passes import IN_FLIGHT
from gbun.kernels.placement import MIN_BATCH_ROWS, Placement, placements, smallest_placement
from gbun.kernels.unfused import BLOCK
from gbun.memory import FRACTION_OF_FREE, format_megabytes

GOOD_BATCH_ROWS = 2**12  # of a batch that keeps a device busy

# What a device tries, one after the other: features stay there, outputs are held, rows of a batch at least.
DEVICE_CANDIDATES = (
    (True, True, GOOD_BATCH_ROWS),
    (True, False, GOOD_BATCH_ROWS),
    (False, False, GOOD_BATCH_ROWS),
    (True, False, MIN_BATCH_ROWS),
    (False, False, 1),
)


class BudgetTooSmallError(ValueError):
    """A budget that no plan keeps; the smallest plan needs `n_bytes`."""

    def __init__(self, message: str, n_bytes: int) -> None:
        super().__init__(message)
        self.n_bytes = n_bytes


@dataclass(frozen=True)
class Plan:
    """What a training run keeps in memory, within `budget` bytes beside the data."""

    device: str
    n_rows: int
    n_outputs: int
    n_scores: int
    n_threads: int
    gram_share: float
    budget: int
    pipelined: bool = False  # rounds are forwarded while the sums of others travel, each with its buffer
    hold: bool = True  # n x K buffers keep Z and then P; otherwise each pass computes them again, part by part
    form: str = "auto"  # chunks may keep the order of their features; "hashed" computes every weight on the fly
    n_chunks: int = 0
    parts: tuple[tuple[str, int], ...] = ()  # what takes how many bytes
    linear_bytes: int = 0  # of the linear start, free again when the first round begins
    n_in_step: int = 1  # trainings that share the budget, each with a plan like this
    trial_bytes: int = 0  # of the trial that comes before, with copies of the rows
    placement: Placement | None = None  # where a device has the rows
    fused: bool = True  # the learner is a network
    exact: bool = False  # the normal equations are float64 throughout, on a device that has float64

    @property
    def n_buffers(self) -> int:
        """n x K buffers: one for each round that may be in flight."""
        return (IN_FLIGHT if self.pipelined else 1) if self.hold else 0

    @property
    def gram_rows(self) -> int:
        """Rows, on average and at most, that the Hessian sums are made of."""
        return round(self.gram_share * self.n_rows)

    @property
    def n_bytes(self) -> int:
        """Bytes that are taken at most, by all trainings that share the budget."""
        kept = sum(size for _, size in self.parts)
        return max(self.trial_bytes, (self.n_in_step - 1) * kept + max(self.linear_bytes, kept))

    @property
    def left(self) -> int:
        """Bytes that evaluation sets may still take on a device; a plan of the host counts them already."""
        return 0 if self.placement is None else max(0, self.budget - self.n_bytes) // self.n_in_step

    def __str__(self) -> str:
        size = f"K = {self.n_outputs}, {self.n_scores} score(s) a row"
        kept = f"network outputs are {'kept in a buffer' if self.hold else 'made again in each pass'}"
        if not self.fused:
            kept = "memberships or leaves are kept"
        if self.placement is None:
            lines = [f"{self.n_rows:,} rows in {self.n_chunks:,} chunk(s), {size}, {self.n_threads} thread(s): {kept}"]
        else:
            where = "stay there" if self.placement.resident else "are sent there in each pass"
            lines = [
                f"{self.n_rows:,} rows on {self.device}, {size}: {kept}",
                f"  features {where}, in batches of up to {self.placement.capacity.rows:,} rows",
            ]
        lines.append(f"  P'HP is made of {self.gram_rows:,} rows a round, P'G of all")
        start = [("or, before the first round, linear start", self.linear_bytes)] if self.linear_bytes else []
        start += [("or, in the trial on part of the rows", self.trial_bytes)] if self.trial_bytes else []
        total = f"together, of {format_megabytes(self.budget)} to use", self.n_bytes
        if self.n_in_step > 1:
            lines.append(f"  {self.n_in_step} trainings at the same time, one for each fold; each has")
        lines += [f"  {name:<42}{format_megabytes(size):>12}" for name, size in [*self.parts, *start, total]]
        return "\n".join(lines)


def make_plan(
    work: Workload, device: Device, n_threads: int, memory_budget: int | None = None, form: str = "auto"
) -> Plan:
    """Choose the fastest plan that fits.

    The host gives up the buffer first, then the order of features, then threads. A device gives up the buffer, then
    sends features, then makes batches small.

    `memory_budget` is how many bytes to use beside the data, by all trainings that share it. If it is None they are
    half of what is free, and the host takes the smallest plan where none fits; otherwise no plan that fits is a
    `BudgetTooSmallError`. `form` ("auto", "dense", "hashed") is how the host's kernels make weights.

    >>> from gbun.data.features import Features
    >>> print(make_plan(Workload(Features(1_000_000), 64, 1), Device(), 2, memory_budget=10**9))
    1,000,000 rows in 62 chunk(s), K = 64, 1 score(s) a row, 2 thread(s): network outputs are kept in a buffer
      P'HP is made of 1,000,000 rows a round, P'G of all
      scores                                          8.0 MB
      targets and weights                            16.0 MB
      network outputs, then memberships             256.0 MB
      each thread's chunk                            11.4 MB
      sums of the normal equations                    0.2 MB
      together, of 1000.0 MB to use                 291.6 MB
    """
    if not (work.fused or device.compiled):
        raise ValueError(
            f"a learner that is not a network trains on device='cpu' only, got device={device.name!r}; leave it out"
        )
    budget = int(FRACTION_OF_FREE * device.free_bytes()) if memory_budget is None else memory_budget
    n, K, C = work.n_rows, work.n_outputs, work.n_scores
    plan = Plan(
        device.name, n, K, C, n_threads, work.gram_share, budget, work.pipelined, fused=work.fused, exact=work.exact
    )
    plan = replace(plan, n_in_step=work.n_in_step)
    tried = []
    for candidate in _host_plans(plan, work, device, form) if device.compiled else _device_plans(plan, work, device):
        if candidate.n_bytes <= budget:
            return candidate
        tried.append(candidate)
    least = min(tried, key=lambda plan: plan.n_bytes)
    if device.compiled and memory_budget is None:
        return tried[-1]
    where = "" if device.compiled else f" of {device.name!r}"
    besides = f" and {work.n_watched:,} evaluation rows" if work.n_watched and device.compiled else ""
    half = ", half of what is free" if memory_budget is None else ""
    if work.n_in_step > 1:  # of a trial on few rows, or of `gbun.cv`
        besides += f" in {work.n_in_step} folds, whose trainings run at the same time"
    besides += (
        ", with copies of the rows that are held out and of the others" if work.copied and device.compiled else ""
    )
    smaller = "a smaller n_neurons" if work.fused else "a smaller n_leaves"
    smaller = "init='constant'" if least.n_bytes == least.linear_bytes else smaller
    raise BudgetTooSmallError(
        f"memory_budget must be at least {least.n_bytes} bytes{where} for {n:,} rows{besides}, "
        f"K = {K} and {C} score(s) a row, got {budget} bytes{half}; {smaller} needs less",
        least.n_bytes,
    )


def _host_plans(plan: Plan, work: Workload, device: Device, form: str) -> Iterator[Plan]:
    n, C, n_threads = work.n_rows, work.n_scores, plan.n_threads
    if work.fused:
        chunks = cut_chunks(work.features, rows_in_chunk(n, work.n_outputs, C))
        working, table = costs.thread_bytes(work, chunks, form)
        # hold outputs, keep the order of features, threads
        candidates = [(True, form != "hashed", n_threads), (False, form != "hashed", n_threads)]
        candidates += [(False, False, threads) for threads in range(n_threads, 0, -1)]
    else:
        chunks = [slice(first, first + BLOCK) for first in range(0, n, BLOCK)]
        working, table = costs.unfused_thread_bytes(work, BLOCK), 0
        candidates = [(True, False, threads) for threads in range(n_threads, 0, -1)]
    n_entries = sum(map(costs.count_entries, [work.features, *work.watched]))
    targets = costs.target_bytes(n + work.n_watched, work.target_columns)
    scaled = sum(map(costs.scaled_bytes, [work.features, *work.watched]))
    start = linear_bytes(work.features, work.n_linear_weights, work.n_used_weights, C, work.n_fits)
    start += targets + scaled + work.copied if start else 0
    plan = replace(plan, n_chunks=len(chunks), linear_bytes=start)
    for hold, ordered, threads in candidates:
        parts = {
            "copies of rows": work.copied,
            "scores": costs.stored_score_bytes(n + work.n_watched, C, device) + costs.directions(work),
            "targets and weights": targets,
            "scaled features": scaled,
            "metrics of an evaluation set": work.metric_bytes,
            "keys of the sample of rows": costs.KEY_BYTES * n if work.gram_share < 1.0 else 0,
            "weights of dense columns": costs.kept_table(work) if work.fused else 0,
            "network outputs, then memberships": costs.buffers(work) if work.fused and hold else 0,
            "bins of columns and gradients of trees": work.kept,
            "memberships or leaves of a round": 0 if work.fused else work.row_bytes * n,
            "the order of each chunk's features": costs.ORDER_BYTES * n_entries if ordered else 0,
            "each thread's chunk": min(threads, max(1, len(chunks))) * (working + (table if ordered else 0)),
            "sums of the normal equations": costs.equations(work, 8 * (2 * threads + 3)),
        }
        used = form if ordered or not work.fused else "hashed"
        yield replace(plan, hold=hold, form=used, n_threads=threads, parts=_list_parts(parts))


def _device_plans(plan: Plan, work: Workload, device: Device) -> Iterator[Plan]:
    n, K, C = work.n_rows, work.n_outputs, work.n_scores
    needed = {
        "copies of rows": work.copied,
        "scores, targets and weights": costs.stored_score_bytes(n, 2 * C + 2, device) + costs.directions(work),
        "sums of the normal equations": costs.device_equations(work, device),
        # their scores, and at least what one batch of theirs needs
        "evaluation sets": sum(smallest_placement(features, K, C, device).n_bytes for features in work.watched),
    }
    for resident, hold, least_rows in DEVICE_CANDIDATES:
        for placement in placements(work.features, K, C, resident, device, least_rows):
            parts = {
                "features": placement.n_bytes,
                "network outputs, then memberships": costs.buffers(work) if hold else 0,
                "a batch while it is computed": costs.training_batch_bytes(work, placement.capacity),
            }
            yield replace(plan, hold=hold, placement=placement, parts=_list_parts(needed | parts))


def _list_parts(sizes: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple((name, size) for name, size in sizes.items() if size)
