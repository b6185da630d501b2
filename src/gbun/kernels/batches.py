"""Rows on a device, batch by batch: all of them there for good, or sent through two buffers that are allocated once.

Tensors that the device has already are read where they are. Dense columns that are not scaled yet become so in a buffer
for one batch.

Batches are cut so that their non-zeros are even. A batch has room for max(longest row, nnz / batches) entries, as in
the paper, and for some number of rows; it is full when either is, so no data can overflow it, however uneven rows are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gbun.arrays import Array
from gbun.data.columns import ScaledColumns
from gbun.data.features import Features, There
from gbun.devices import Device, TorchDevice
from gbun.dtypes import MEMBERSHIP, SUM, FloatArray
from gbun.kernels.portable import words, words_there


@dataclass(frozen=True)
class Room:
    """What a batch has room for."""

    rows: int
    entries: int


def there_of(features: Features, device: Device) -> There | None:
    """Sparse entries that the device has already."""
    there = None if features.sparse is None else features.sparse.there
    return there if there is not None and device.has(there.ids) else None


def has_columns(features: Features, device: Device) -> bool:
    """Whether the device has the dense columns already: they are scaled, or will be, when a batch is read."""
    return device.has(features.dense.X if isinstance(features.dense, ScaledColumns) else features.dense)


def room_for(features: Features, n_batches: int, most_rows: int) -> Room:
    """Room for a batch when rows are to be divided into about `n_batches`.

    >>> from gbun.data.features import Entries
    >>> indptr = np.array([0, 5, 6, 7, 8])
    >>> room_for(Features(4, sparse=Entries(indptr, np.arange(8), np.ones(8))), 4, most_rows=100)
    Room(rows=2, entries=5)
    """
    rows = max(1, min(most_rows, -(-features.n_rows // n_batches)))
    if features.sparse is None:
        return Room(rows, 0)
    lengths = np.diff(features.sparse.indptr)
    # Short rows come in larger numbers before their entries fill a batch: twice as many may.
    entries = max(int(lengths.max(initial=0)), -(-int(lengths.sum()) // n_batches))
    return Room(min(most_rows, features.n_rows, 2 * rows), entries)


def cut_evenly(features: Features, room: Room) -> list[slice]:
    """Rows of each batch: as many as there is room for.

    >>> cut_evenly(Features(5), Room(2, 0))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    n, first, batches = features.n_rows, 0, []
    indptr = None if features.sparse is None else features.sparse.indptr
    while first < n:
        last = min(first + room.rows, n)
        if indptr is not None:
            # no more than there are: a sum beyond the type of indptr would wrap around
            end = indptr.dtype.type(min(int(indptr[first]) + room.entries, int(indptr[-1])))
            last = min(last, int(np.searchsorted(indptr, end, side="right")) - 1)
        batches.append(slice(first, last))
        first = last
    return batches


@dataclass(frozen=True)
class Batch:
    """Some rows on a device, as the portable kernels want them: see `portable.forward_sparse`."""

    rows: slice
    total_weight: float = 0.0
    dense: Array | None = None
    indptr: Array | None = None  # counts entries from the batch's first
    low: Array | None = None
    high: Array | None = None
    values: Array | None = None

    def __len__(self) -> int:
        return int(self.rows.stop - self.rows.start)


class Batches:
    """The batches of some rows, one after the other; again in each pass.

    `resident`: everything is put on the device once, and batches are views of it. Otherwise two buffers with room for a
    batch each take turns: while one is computed with, the next batch is copied into the other, by the device itself
    where it can (pinned memory, a stream of its own). Columns that the device has already are never copied, but scaled
    batch by batch; sparse rows that it has are views of what it has, unless batches are to be sent.
    """

    def __init__(
        self, features: Features, device: Device, room: Room, resident: bool, weight: FloatArray | None = None
    ) -> None:
        self.cuts = cut_evenly(features, room)
        self.totals = [0.0 if weight is None else float(weight[at].sum(dtype=SUM)) for at in self.cuts]
        self._parts: Iterable[dict[str, Array]]
        if isinstance(features.dense, ScaledColumns):
            assert features.sparse is None, "a tensor is dense or sparse"
            self._parts = _Scaled(features.dense, self.cuts, device.empty(room.rows, features.dense.shape[1]))
        elif resident:
            source = _Source(features, there_of(features, device))
            whole = {name: device.put(values) for name, values in source.whole().items()}
            self._parts = [
                {name: device.put(part) for name, part in source.part(at, whole).items()} for at in self.cuts
            ]
        else:
            self._parts = _Sent(_Source(features), self.cuts, room, device)

    def __len__(self) -> int:
        return len(self.cuts)

    def __iter__(self) -> Iterator[Batch]:
        for at, total, arrays in zip(self.cuts, self.totals, self._parts, strict=True):
            yield Batch(at, total, **arrays)

    def rows(self) -> Iterator[Batch]:
        """Which rows they are, without features."""
        return map(Batch, self.cuts, self.totals)


class _Scaled:
    """Each batch of columns in one buffer; a single one stays there from pass to pass."""

    def __init__(self, columns: ScaledColumns, cuts: list[slice], buffer: Array) -> None:
        self.columns, self.cuts, self.buffer, self.written = columns, cuts, buffer, slice(0, 0)

    def __iter__(self) -> Iterator[dict[str, Array]]:
        for at in self.cuts:
            dense = self.buffer[: at.stop - at.start]
            if at != self.written:
                self.written = slice(0, 0)  # whatever happens on the way
                self.columns[at].into(dense)
                self.written = at
            yield {"dense": dense}


class _Sent:
    """Each batch in one of two buffers; the next one is on its way by then."""

    def __init__(self, source: _Source, cuts: list[slice], room: Room, device: Device) -> None:
        self.source, self.cuts = source, cuts
        self.slots = [_slot(source, room, device) for _ in range(min(2, len(cuts)))]

    def __iter__(self) -> Iterator[dict[str, Array]]:
        if self.cuts:
            self._send(0)
        for number in range(len(self.cuts)):
            slot = self.slots[number % 2]
            arrays = slot.received()
            if number + 1 < len(self.cuts):
                self._send(number + 1)
            try:
                yield arrays
            finally:  # also when the pass is given up
                slot.release()

    def _send(self, number: int) -> None:
        self.slots[number % 2].send(self.source.part(self.cuts[number]))


class _Source:
    """Features in the arrays that travel, by the names `Batch` has for them."""

    def __init__(self, features: Features, there: There | None = None) -> None:
        self.arrays: dict[str, Any] = {}
        self.sparse = features.sparse
        if features.dense is not None:
            self.arrays["dense"] = features.dense
        if features.sparse is not None:
            low, high = words(features.sparse.ids) if there is None else words_there(there.ids)
            values = features.sparse.values if there is None or there.values is None else there.values
            self.arrays |= {"low": low, "high": high, "values": values}

    def whole(self) -> dict[str, Any]:
        return self.arrays

    def part(self, at: slice, arrays: dict[str, Any] | None = None) -> dict[str, Any]:
        """Views of some rows, here or in `arrays` on a device; where a row's entries begin is counted anew."""
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

    def shapes(self, room: Room) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Name -> shape and dtype of what a batch may need at most."""
        shapes: dict[str, tuple[tuple[int, ...], Any]] = {}
        if "dense" in self.arrays:
            shapes["dense"] = (room.rows, self.arrays["dense"].shape[1]), MEMBERSHIP
        if self.sparse is not None:
            shapes["indptr"] = (room.rows + 1,), np.int64
            shapes |= dict.fromkeys(("low", "high"), ((room.entries,), np.int32))
            shapes["values"] = (room.entries,), MEMBERSHIP
        return shapes


class _Slot:
    """Buffers for one batch on the device; what is sent is there when the call returns."""

    def __init__(self, source: _Source, room: Room, device: Device) -> None:
        self.device, self.arrays = device, {}
        for name, (shape, dtype) in source.shapes(room).items():
            self.arrays[name] = device.empty(*shape, dtype=dtype)
        self.filled: dict[str, Array] = {}

    def send(self, part: dict[str, Any]) -> None:
        self.filled = {}
        for name, values in part.items():
            self.filled[name] = self.arrays[name][: len(values)]
            self.device.fill(self.filled[name], values)

    def received(self) -> dict[str, Array]:
        return self.filled

    def release(self) -> None:
        """The batch has been computed with: the buffers may be filled again."""


class _StreamedSlot(_Slot):
    """Buffers that a stream of their own fills from pinned memory, while the device computes with others."""

    def __init__(self, source: _Source, room: Room, device: TorchDevice) -> None:
        super().__init__(source, room, device)
        self.pinned = {name: device.pinned(*shape, dtype=d) for name, (shape, d) in source.shapes(room).items()}
        self.tensor, self.api, self.where = device.tensor, device.stream_api, device.device
        self.stream = self.api.Stream(device=self.where)
        self.copied, self.computed = self.api.Event(), self.api.Event()
        for array in self.arrays.values():
            array.record_stream(self.stream)  # it is not given to others while a copy is under way
        self.release()  # who had this memory before may still compute with it

    def send(self, part: dict[str, Any]) -> None:
        self.copied.synchronize()  # what was pinned has left: it may be overwritten,
        self.stream.wait_event(self.computed)  # and so may the buffers, when the device is through with them
        self.filled = {}
        with self.api.stream(self.stream):
            for name, values in part.items():
                staged, self.filled[name] = self.pinned[name][: len(values)], self.arrays[name][: len(values)]
                staged.copy_(self.tensor(values))
                self.filled[name].copy_(staged, non_blocking=True)
            self.copied.record(self.stream)

    def received(self) -> dict[str, Array]:
        self.api.current_stream(self.where).wait_event(self.copied)
        return self.filled

    def release(self) -> None:
        self.computed.record(self.api.current_stream(self.where))


def _slot(source: _Source, room: Room, device: Device) -> _Slot:
    if isinstance(device, TorchDevice) and device.stream_api is not None:
        return _StreamedSlot(source, room, device)
    return _Slot(source, room, device)
