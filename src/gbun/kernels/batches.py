"""Rows on a device, batch by batch: all of them there for good, or sent through two buffers that are allocated once.

Tensors that the device has already are read in place. Dense columns that are not scaled yet are scaled in a buffer for
one batch.

Batches have about the same number of non-zeros. A batch has room for max(longest row, nnz / batches) entries, as in the
paper, and for some number of rows. It is full when either is, so no rows overflow it, however uneven they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gbun.arrays import Array
from gbun.data.features import DeviceEntries, Features
from gbun.data.scaled_columns import ScaledColumns
from gbun.devices import Device, TorchDevice
from gbun.dtypes import MEMBERSHIP, SUM, FloatArray
from gbun.kernels.portable import device_id_words, id_words


@dataclass(frozen=True)
class BatchCapacity:
    """What a batch has room for."""

    rows: int
    entries: int


def device_entries(features: Features, device: Device) -> DeviceEntries | None:
    """Return the sparse entries that the device has already."""
    on_device = None if features.sparse is None else features.sparse.on_device
    return on_device if on_device is not None and device.is_resident(on_device.ids) else None


def is_dense_on_device(features: Features, device: Device) -> bool:
    """Return whether the device has the dense columns already; they are scaled when a batch is read."""
    return device.is_resident(features.dense.X if isinstance(features.dense, ScaledColumns) else features.dense)


def choose_capacity(features: Features, n_batches: int, most_rows: int) -> BatchCapacity:
    """Return the room of a batch where rows are divided into about `n_batches`.

    >>> from gbun.data.features import Entries
    >>> indptr = np.array([0, 5, 6, 7, 8])
    >>> choose_capacity(Features(4, sparse=Entries(indptr, np.arange(8), np.ones(8))), 4, most_rows=100)
    BatchCapacity(rows=2, entries=5)
    """
    rows = max(1, min(most_rows, -(-features.n_rows // n_batches)))
    if features.sparse is None:
        return BatchCapacity(rows, 0)
    lengths = np.diff(features.sparse.indptr)
    # More short rows than long ones fit in a batch: up to twice as many.
    entries = max(int(lengths.max(initial=0)), -(-int(lengths.sum()) // n_batches))
    return BatchCapacity(min(most_rows, features.n_rows, 2 * rows), entries)


def cut_batches(features: Features, capacity: BatchCapacity) -> list[slice]:
    """Cut rows into batches, each with as many rows as there is room for.

    >>> cut_batches(Features(5), BatchCapacity(2, 0))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    n, first, batches = features.n_rows, 0, []
    indptr = None if features.sparse is None else features.sparse.indptr
    while first < n:
        last = min(first + capacity.rows, n)
        if indptr is not None:
            # at most the last entry: a larger number would wrap around in the type of indptr
            end = indptr.dtype.type(min(int(indptr[first]) + capacity.entries, int(indptr[-1])))
            last = min(last, int(np.searchsorted(indptr, end, side="right")) - 1)
        batches.append(slice(first, last))
        first = last
    return batches


@dataclass(frozen=True)
class Batch:
    """Some rows on a device, as `portable.forward_sparse` takes them."""

    rows: slice
    total_weight: float = 0.0
    dense: Array | None = None
    indptr: Array | None = None  # counted from the first entry of the batch
    low: Array | None = None
    high: Array | None = None
    values: Array | None = None

    def __len__(self) -> int:
        return int(self.rows.stop - self.rows.start)


class Batches:
    """The batches of some rows, one after the other; iterated again in each pass.

    `resident`: all rows are put on the device once, and batches are views of them. Otherwise two buffers with room for
    one batch each take turns: while the device computes with one, the next batch is copied into the other, by the
    device itself where it can (pinned memory and a separate stream). Columns that the device has already are never
    copied, but scaled batch by batch. Sparse rows that it has are read in place, unless batches are sent.
    """

    def __init__(
        self,
        features: Features,
        device: Device,
        capacity: BatchCapacity,
        resident: bool,
        weight: FloatArray | None = None,
    ) -> None:
        self.cuts = cut_batches(features, capacity)
        self.totals = [0.0 if weight is None else float(weight[at].sum(dtype=SUM)) for at in self.cuts]
        self._parts: Iterable[dict[str, Array]]
        if isinstance(features.dense, ScaledColumns):
            assert features.sparse is None, "a tensor is dense or sparse"
            self._parts = _ScaledBatches(
                features.dense, self.cuts, device.empty(capacity.rows, features.dense.shape[1])
            )
        elif resident:
            source = _BatchArrays(features, device_entries(features, device))
            whole = {name: device.put(values) for name, values in source.arrays.items()}
            self._parts = [
                {name: device.put(part) for name, part in source.slice_rows(at, whole).items()} for at in self.cuts
            ]
        else:
            self._parts = _SentBatches(_BatchArrays(features), self.cuts, capacity, device)

    def __len__(self) -> int:
        return len(self.cuts)

    def __iter__(self) -> Iterator[Batch]:
        for at, total, arrays in zip(self.cuts, self.totals, self._parts, strict=True):
            yield Batch(at, total, **arrays)

    def rows(self) -> Iterator[Batch]:
        """Yield the batches without their features."""
        return map(Batch, self.cuts, self.totals)


class _ScaledBatches:
    """Columns scaled in one buffer, batch by batch; a single batch stays there from pass to pass."""

    def __init__(self, columns: ScaledColumns, cuts: list[slice], buffer: Array) -> None:
        self.columns, self.cuts, self.buffer, self.written = columns, cuts, buffer, slice(0, 0)

    def __iter__(self) -> Iterator[dict[str, Array]]:
        for at in self.cuts:
            dense = self.buffer[: at.stop - at.start]
            if at != self.written:
                self.written = slice(0, 0)  # in case scaling fails
                self.columns[at].write_to(dense)
                self.written = at
            yield {"dense": dense}


class _SentBatches:
    """Batches in two buffers that take turns: the next one is sent while the device computes with one."""

    def __init__(self, source: _BatchArrays, cuts: list[slice], capacity: BatchCapacity, device: Device) -> None:
        self.source, self.cuts = source, cuts
        has_streams = isinstance(device, TorchDevice) and device.stream_api is not None
        make_slot: Any = _StreamedSlot if has_streams else _Slot
        self.slots = [make_slot(source, capacity, device) for _ in range(min(2, len(cuts)))]

    def __iter__(self) -> Iterator[dict[str, Array]]:
        if self.cuts:
            self._send(0)
        for number in range(len(self.cuts)):
            slot = self.slots[number % 2]
            arrays = slot.receive()
            if number + 1 < len(self.cuts):
                self._send(number + 1)
            try:
                yield arrays
            finally:  # also when the pass is abandoned
                slot.release()

    def _send(self, number: int) -> None:
        self.slots[number % 2].send(self.source.slice_rows(self.cuts[number]))


class _BatchArrays:
    """Features as arrays that can be sent, by the names of `Batch`."""

    def __init__(self, features: Features, on_device: DeviceEntries | None = None) -> None:
        self.arrays: dict[str, Any] = {}
        self.sparse = features.sparse
        if features.dense is not None:
            self.arrays["dense"] = features.dense
        if features.sparse is not None:
            low, high = id_words(features.sparse.ids) if on_device is None else device_id_words(on_device.ids)
            values = features.sparse.values if on_device is None or on_device.values is None else on_device.values
            self.arrays |= {"low": low, "high": high, "values": values}

    def slice_rows(self, at: slice, arrays: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return views of some rows of `arrays`, which are those of the source or the same on a device."""
        arrays = self.arrays if arrays is None else arrays
        part = {}
        if "dense" in arrays:
            part["dense"] = arrays["dense"][at]
        if self.sparse is not None:
            indptr = self.sparse.indptr[at.start : at.stop + 1]
            entries = slice(int(indptr[0]), int(indptr[-1]))
            part["indptr"] = (indptr - indptr[0]).astype(np.int64, copy=False)
            part |= {name: arrays[name][entries] for name in ("low", "high", "values")}
        return part

    def shapes(self, capacity: BatchCapacity) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Return the largest shape and the dtype of each array of a batch."""
        shapes: dict[str, tuple[tuple[int, ...], Any]] = {}
        if "dense" in self.arrays:
            shapes["dense"] = (capacity.rows, self.arrays["dense"].shape[1]), MEMBERSHIP
        if self.sparse is not None:
            shapes["indptr"] = (capacity.rows + 1,), np.int64
            shapes |= dict.fromkeys(("low", "high"), ((capacity.entries,), np.int32))
            shapes["values"] = (capacity.entries,), MEMBERSHIP
        return shapes


class _Slot:
    """Buffers for one batch on the device; `send` returns when the batch is there."""

    def __init__(self, source: _BatchArrays, capacity: BatchCapacity, device: Device) -> None:
        self.device, self.arrays = device, {}
        for name, (shape, dtype) in source.shapes(capacity).items():
            self.arrays[name] = device.empty(*shape, dtype=dtype)
        self.filled: dict[str, Array] = {}

    def send(self, part: dict[str, Any]) -> None:
        self.filled = {}
        for name, values in part.items():
            self.filled[name] = self.arrays[name][: len(values)]
            self.device.fill(self.filled[name], values)

    def receive(self) -> dict[str, Array]:
        return self.filled

    def release(self) -> None:
        """Allow the buffers to be filled again: the batch has been used."""


class _StreamedSlot(_Slot):
    """Buffers that a separate stream fills from pinned memory, while the device computes with the other batch."""

    def __init__(self, source: _BatchArrays, capacity: BatchCapacity, device: TorchDevice) -> None:
        super().__init__(source, capacity, device)
        self.pinned = {key: device.empty_pinned(*shape, dtype=d) for key, (shape, d) in source.shapes(capacity).items()}
        self.to_host_tensor, self.api, self.where = device.to_host_tensor, device.stream_api, device.device
        self.stream = self.api.Stream(device=self.where)
        self.copied, self.computed = self.api.Event(), self.api.Event()
        for array in self.arrays.values():
            array.record_stream(self.stream)  # torch must not reuse it during a copy
        self.release()  # the device may still compute with what was in this memory before

    def send(self, part: dict[str, Any]) -> None:
        self.copied.synchronize()  # pinned memory may be overwritten now,
        self.stream.wait_event(self.computed)  # and the buffers when the device has used them
        self.filled = {}
        with self.api.stream(self.stream):
            for name, values in part.items():
                staged, self.filled[name] = self.pinned[name][: len(values)], self.arrays[name][: len(values)]
                staged.copy_(self.to_host_tensor(values))
                self.filled[name].copy_(staged, non_blocking=True)
            self.copied.record(self.stream)

    def receive(self) -> dict[str, Array]:
        self.api.current_stream(self.where).wait_event(self.copied)
        return self.filled

    def release(self) -> None:
        self.computed.record(self.api.current_stream(self.where))
