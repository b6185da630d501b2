"""Where the rows of a device are: there for good, or sent batch by batch; and how large a batch is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gbun.data.features import Features
from gbun.devices import Device
from gbun.kernels import costs
from gbun.kernels.batches import BatchCapacity, choose_capacity, device_entries, is_dense_on_device
from gbun.networks import Family

BATCH_OUTPUTS = 2**23  # outputs of a batch: 32 MB, enough to keep any device busy
MIN_BATCH_ROWS = 2**8  # of a batch that is still of use
HEAD_BYTES = 2**22  # bytes of rounds, heads and all, that are on a device at a time: too little to plan for


@dataclass(frozen=True)
class Placement:
    """Whether rows are on the device for good, what a batch has room for, and the bytes that their features take."""

    resident: bool
    capacity: BatchCapacity
    n_bytes: int


def placements(
    features: Features, K: int, C: int, resident: bool, device: Device, least_rows: int = 1
) -> Iterator[Placement]:
    """Yield smaller and smaller batches, of features that stay on the device, or of which it holds two batches.

    Features that are there already cost what is computed from them; columns are then never sent.
    """
    n, most_rows = features.n_rows, max(MIN_BATCH_ROWS, BATCH_OUTPUTS // max(K, 10 * C))
    in_place = resident and device_entries(features, device) is not None
    if features.dense is not None and is_dense_on_device(features, device):
        if not resident:
            return
        # a batch must not be a copy of all columns
        in_place, at_most = True, max(MIN_BATCH_ROWS, BATCH_OUTPUTS // max(1, costs.count_columns(features)))
        most_rows = min(most_rows, at_most)
    n_batches = max(1 if resident else 2, -(-n // most_rows))
    whole = BatchCapacity(n, costs.count_entries(features))
    while True:
        capacity = choose_capacity(features, n_batches, most_rows)
        if in_place:
            n_bytes = costs.in_place_bytes(features, whole, capacity)
        else:
            n_bytes = costs.feature_bytes(features, whole) if resident else 2 * costs.feature_bytes(features, capacity)
        yield Placement(resident, capacity, n_bytes)
        if n_batches * least_rows >= n:
            return
        n_batches *= 2


# Rows that are only predicted


def place(features: Features, K: int, C: int, budget: int, device: Device) -> Placement:
    """Place rows with their scores within `budget` bytes; in the smallest batches where that is too little."""
    least, scores = smallest_placement(features, K, C, device), costs.stored_score_bytes(features.n_rows, C, device)
    for resident in (True, False):
        for placement in placements(features, K, C, resident, device):
            if placement.capacity.rows < least.capacity.rows:
                break
            if placement.n_bytes + costs.batch_bytes(features, placement.capacity, K, C, False) + scores <= budget:
                return placement
    return least


def smallest_placement(features: Features, K: int, C: int, device: Device) -> Placement:
    """Return batches as small as is still of use, with all the bytes that predictions in them need."""
    capacity = choose_capacity(features, max(1, -(-features.n_rows // MIN_BATCH_ROWS)), MIN_BATCH_ROWS)
    whole = BatchCapacity(features.n_rows, costs.count_entries(features))
    return Placement(
        is_dense_on_device(features, device), capacity, _prediction_bytes(features, whole, capacity, K, C, device)
    )


def max_prediction_bytes(features: Features, K: int, C: int, device: Device) -> int:
    """Return the bytes that predictions use at most, however much is free."""
    first = next(placements(features, K, C, True, device))
    scores = costs.stored_score_bytes(features.n_rows, C, device)
    return first.n_bytes + costs.batch_bytes(features, first.capacity, K, C, False) + scores


def min_prediction_bytes(features: Features, family: Family, C: int, n_rounds: int, device: Device) -> int:
    """Return the bytes that predictions of any `MIN_BATCH_ROWS` rows at a time need."""
    n, entries = min(features.n_rows, MIN_BATCH_ROWS), 0
    if features.sparse is not None:
        indptr = features.sparse.indptr
        entries = int((indptr[n:] - indptr[: len(indptr) - n]).max(initial=0))
    capacity, each_round = BatchCapacity(n, entries), costs.round_bytes(family, C)
    rounds = min(n_rounds * each_round, max(HEAD_BYTES, each_round))
    return _prediction_bytes(features, capacity, capacity, family.n_outputs, C, device) + rounds


def _prediction_bytes(
    features: Features, rows: BatchCapacity, capacity: BatchCapacity, K: int, C: int, device: Device
) -> int:
    in_place = is_dense_on_device(features, device)
    size = costs.in_place_bytes(features, rows, capacity) if in_place else 2 * costs.feature_bytes(features, capacity)
    return size + costs.batch_bytes(features, capacity, K, C, False) + costs.stored_score_bytes(rows.rows, C, device)
