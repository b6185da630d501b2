"""What training and prediction take of memory: one table of costs, in bytes, for the host and for devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gbun.arrays import Array
from gbun.data.features import Features, Shard
from gbun.data.scaled_columns import SCALING_BLOCK
from gbun.devices import Device
from gbun.kernels.batches import BatchCapacity
from gbun.kernels.chunks import TABLE_FEATURES, gram_rows
from gbun.kernels.forward import TABLE_LIMIT
from gbun.kernels.hashed import TILE
from gbun.kernels.passes import IN_FLIGHT
from gbun.kernels.portable import FLOAT32_SUM_ROWS
from gbun.kernels.products import PANEL_OUTPUTS
from gbun.networks import Family

ORDER_BYTES = 24  # of an entry: its row and value or its place, and its feature's id, start and place, with copies
SCORE_BYTES = 80  # of a score while derivatives are computed
HASHED_WEIGHTS_AT_A_TIME = 2**20  # weights of sparse features that the portable kernels compute at a time
TABLE_WEIGHTS_AT_A_TIME = 2**23  # weights of dense columns that the portable kernels compute at a time
PENDING_BATCHES = 16  # batches whose moments may still be on the device
ALLOCATION_BYTES = 512  # the size of any array of a device is a multiple of it
ENTRY_BYTES, ROW_BYTES = 12, 8  # of a sparse entry: two words and a value; of a row: where its entries begin
WEIGHT_BYTES = 11  # of a weight that is computed: it, its hash, and whether it revives an output
PLACE_BYTES = 32  # of an entry while its weights are computed: which row it belongs to
SCALED_BYTES = 40  # of a number of a dense column while it is scaled
KEY_BYTES = 24  # of a row of the sample while keys are sorted
UNFUSED_COPIES = 7  # of what a row keeps: P, and in float64 P, its sample, and what scales them


@dataclass(frozen=True)
class Workload:
    """What is to be trained, as far as memory depends on it."""

    features: Features  # the n training rows of this worker
    n_outputs: int  # K
    n_scores: int  # C
    watched: Sequence[Features] = ()  # the evaluation sets
    n_grams: int = 1  # C where each score has its own Hessian
    line_search: bool = False  # the directions P W of all rows are kept
    exact: bool = False  # the normal equations are float64 throughout
    gram_share: float = 1.0  # of the rows, those that the Hessian sums are made of
    pipelined: bool = False  # rounds are forwarded while the sums of others travel
    n_linear_weights: int = 0  # of a linear start for each score
    n_used_weights: int = 0  # of these, at most, the weights of features that occur
    n_fits: int = 1  # linear starts that are fitted side by side
    score_bytes: int = SCORE_BYTES  # of a score of a device while derivatives are computed
    fused: bool = True  # the learner is a network
    row_bytes: int = 0  # of a row, what a round of another learner keeps
    kept: int = 0  # what the learner keeps from round to round, as bins of columns
    target_columns: int = 1  # of y
    metric_bytes: int = 0  # while metrics of an evaluation set are computed
    copied: int = 0  # bytes of copies of rows, where some are held out
    n_in_step: int = 1  # trainings that share the memory

    @property
    def n_rows(self) -> int:
        return self.features.n_rows

    @property
    def n_watched(self) -> int:
        return sum(features.n_rows for features in self.watched)


def count_columns(features: Features) -> int:
    return 0 if features.dense is None else int(features.dense.shape[1])


def count_entries(features: Features, rows: slice | None = None) -> int:
    if features.sparse is None:
        return 0
    indptr = features.sparse.indptr
    return len(features.sparse.ids) if rows is None else int(indptr[rows.stop] - indptr[rows.start])


def count_target_columns(rows: Shard) -> int:
    return 1 if rows.y.ndim == 1 else int(rows.y.shape[1])


def target_bytes(n_rows: int, n_columns: int) -> int:
    """Of y, and of the weights of rows."""
    return 8 * (n_columns + 1) * n_rows


def copied_bytes(rows: Shard, device: Device) -> int:
    """Of a copy of rows, and of the targets and weights they are copied from; on a device, of tensors it has."""
    features = rows.features
    dense, sparse = features.dense, features.sparse
    if not device.compiled:
        return 0 if dense is None or isinstance(dense, np.ndarray) else _dense_bytes(dense)
    parts = [] if sparse is None else [sparse.indptr, sparse.ids, sparse.values]
    more = [part for part in (features.categories, rows.base_margin) if part is not None]
    size = sum(part.nbytes for part in [*parts, *more])
    return size + (0 if dense is None else _dense_bytes(dense)) + target_bytes(rows.n_rows, count_target_columns(rows))


def _dense_bytes(dense: Array) -> int:
    return int(dense.shape[0] * dense.shape[1] * dense.dtype.itemsize)


# Host and devices


def stored_score_bytes(n_rows: int, n_scores: int, device: Device) -> int:
    return (8 if device.has_float64 else 4) * n_rows * n_scores


def directions(work: Workload) -> int:
    """Of the directions that a line search goes along."""
    return 4 * work.n_rows * work.n_scores if work.line_search else 0


def buffers(work: Workload) -> int:
    """Of the n x K buffers that keep Z and then P."""
    return 4 * work.n_rows * work.n_outputs * (IN_FLIGHT if work.pipelined else 1)


def equations(work: Workload, number_bytes: int) -> int:
    """Of A and B, all copies of a number taking `number_bytes`."""
    return number_bytes * (work.n_grams * work.n_outputs**2 + work.n_outputs * work.n_scores)


# The host


def scaled_bytes(features: Features) -> int:
    """Of the values that the learner sees, where they are scaled."""
    return 4 * (features.n_rows * count_columns(features) + count_entries(features))


def kept_table(work: Workload) -> int:
    """Of the weights of all dense columns, where they are kept."""
    n_table = count_columns(work.features) * (work.n_outputs + PANEL_OUTPUTS)
    return 16 * n_table if n_table <= TABLE_LIMIT else 0


def thread_bytes(work: Workload, chunks: Sequence[slice], form: str) -> tuple[int, int]:
    """Of a thread while it computes a chunk, and beside that for a table of the weights of the chunk's features."""
    K, features, n_columns = work.n_outputs, work.features, count_columns(work.features)
    rows = max((c.stop - c.start for c in chunks), default=0)
    # Z, in float64 with three copies; otherwise the scaled copy has rows enough for a Gram
    working = rows * ((28 if work.exact else 4) * K + SCORE_BYTES * work.n_scores)
    working += 8 * K * K if work.exact else 4 * gram_rows(K) * K + 4 * K * K
    working += 4 * TILE * (rows if features.sparse is not None else 0) + 4 * TILE * (n_columns + K if n_columns else 0)
    if n_columns * (K + PANEL_OUTPUTS) > TABLE_LIMIT:  # each thread computes the weights of dense columns for itself
        working += 12 * TABLE_LIMIT + 4 * rows * n_columns
    largest = max((count_entries(features, c) for c in chunks), default=0)
    return working, 4 * TILE * (largest if form == "dense" else min(TABLE_FEATURES, largest))


def unfused_thread_bytes(work: Workload, block: int) -> int:
    """Of a thread while a learner that is no network computes up to `block` rows."""
    K, rows = work.n_outputs, min(work.n_rows, block)
    return rows * (UNFUSED_COPIES * work.row_bytes + SCORE_BYTES * work.n_scores) + 16 * K * K


# Devices


def batch_bytes(
    features: Features, capacity: BatchCapacity, K: int, C: int, exact: bool, score_bytes: int = SCORE_BYTES
) -> int:
    """Of a batch: its outputs, a copy of them and what a softmax needs, derivatives, weights that are computed."""
    size = capacity.rows * ((26 if exact else 10) * K + score_bytes * C)
    if features.dense is not None:
        size += WEIGHT_BYTES * min(count_columns(features) * K, TABLE_WEIGHTS_AT_A_TIME)
    if features.sparse is not None:
        size += (WEIGHT_BYTES * K + PLACE_BYTES) * max(1, min(capacity.entries, HASHED_WEIGHTS_AT_A_TIME // K))
    return size


def training_batch_bytes(work: Workload, capacity: BatchCapacity) -> int:
    """Of a batch of training rows: also the sampled rows of P, and the moments of batches that are not added yet."""
    K = work.n_outputs
    size = batch_bytes(work.features, capacity, K, work.n_scores, work.exact, work.score_bytes)
    sampled = 8 * capacity.rows * K if work.gram_share < 1.0 else 0
    return size + sampled + 4 * K * (PENDING_BATCHES + 1) * (2 * (capacity.rows // FLOAT32_SUM_ROWS + 1) + 1)


def device_equations(work: Workload, device: Device) -> int:
    """Of A and B: the total, the part of a batch, which several Hessians compute one by one, and it as a total."""
    part = (8 if work.exact else 4) * (2 if work.n_grams > 1 else 1)
    return equations(work, 2 * (8 if device.has_float64 else 4) + part)


def feature_bytes(features: Features, capacity: BatchCapacity) -> int:
    dense = 4 * count_columns(features) * capacity.rows
    return dense + (0 if features.sparse is None else ENTRY_BYTES * capacity.entries + ROW_BYTES * (capacity.rows + 1))


def in_place_bytes(features: Features, rows: BatchCapacity, capacity: BatchCapacity) -> int:
    """Of rows that the device has already: a batch of scaled columns; or where rows begin, and scaled values."""
    if features.dense is None:
        return 4 * rows.entries + ROW_BYTES * (rows.rows + 1)
    columns = count_columns(features)
    return feature_bytes(features, capacity) + SCALED_BYTES * min(capacity.rows * columns, max(SCALING_BLOCK, columns))


def round_bytes(family: Family, C: int) -> int:
    """Of a round that is applied to rows: head, centre, slope, where hashes begin, and what revives outputs."""
    K = family.n_outputs
    sizes = [4 * K * C, 4 * K, 4 * K]
    for density in (family.density, family.sparse_density):
        sizes += [4 * K] if density == 1.0 else [4 * K, 8 * K, *6 * [4 * K]]
    return sum(-(-size // ALLOCATION_BYTES) * ALLOCATION_BYTES for size in sizes)
