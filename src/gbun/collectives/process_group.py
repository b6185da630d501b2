"""The collective of processes that torch.distributed has brought together, on one machine or many.

Sums go up to the root and answers come down. A large message is cut into segments that travel along a chain: each
worker adds its own to what it gets and passes it on while the next segment arrives, so that everybody sends the message
once and receives it once, whatever the number of workers. A small one goes along a tree, which is fewer steps deep. The
order of additions depends on the number of workers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbun.arrays import load_torch
from gbun.collectives.base import Wire
from gbun.collectives.wire import BLOCK, decode, encode, n_bytes
from gbun.dtypes import SUM, FloatArray

Bytes = NDArray[np.uint8]
Lost = Callable[[int, BaseException], BaseException]
"""(peer, what went wrong) -> the error that explains it."""

SMALL = 2**15  # bytes up to which a tree is quicker than a chain
SEGMENTS = 8  # for each worker of a chain: filling it takes an eighth of the time that the message takes
LEAST_SEGMENT, MOST_SEGMENT = 2**12, 2**20


@dataclass
class Traffic:
    """Bytes that this worker has sent and received."""

    sent: int = 0
    received: int = 0


class ProcessGroupCollective:
    """One worker of a process group."""

    def __init__(self, group: Any, lost: Lost = lambda peer, error: error) -> None:
        """`group` is one of torch's backends for processes, with arrays of the host: ProcessGroupGloo."""
        self._torch = load_torch("training on several workers")
        self._group, self._lost = group, lost
        self.rank: int = group.rank()
        self.size: int = group.size()
        self.traffic = Traffic()

    def sum(self, values: FloatArray, root: int | None = None, wire: Wire | None = None) -> FloatArray:
        flat = np.ascontiguousarray(values, dtype=SUM).reshape(-1)
        wire = [(flat.size, "float64")] if wire is None else wire
        total = self._reduced(flat, wire, root or 0)
        if root is None:
            total = self.broadcast(flat if total is None else total)
        return np.zeros(0) if total is None else total.reshape(np.shape(values))

    def broadcast(self, values: NDArray[Any], root: int = 0) -> NDArray[Any]:
        own = np.ascontiguousarray(values)
        data = own.reshape(-1).view(np.uint8).copy()
        place = (self.rank - root) % self.size
        if data.size <= SMALL or self.size == 2:
            self._down_the_tree(data, place, root)
        else:
            self._down_the_chain(data, place, root)
        found: NDArray[Any] = data.view(own.dtype).reshape(own.shape)
        return found

    def gather(self, values: NDArray[Any], root: int = 0) -> list[NDArray[Any]] | None:
        data = np.ascontiguousarray(values).view(np.uint8)
        if self.rank != root:
            self._send(np.array([data.size]).view(np.uint8), root)()
            self._send(data, root)()
            return None
        found = []
        for peer in range(self.size):
            length = data.size if peer == root else int(self._receive(8, peer)().view(np.int64)[0])
            found.append((data if peer == root else self._receive(length, peer)()).view(values.dtype))
        return found

    def _reduced(self, values: FloatArray, wire: Wire, root: int) -> FloatArray | None:
        """The sum at the root, None elsewhere."""
        place, size = (self.rank - root) % self.size, n_bytes(wire)
        if size <= SMALL or self.size == 2:
            return self._up_the_tree(values.copy(), wire, place, root)
        most = min(max(size // (SEGMENTS * self.size), LEAST_SEGMENT), MOST_SEGMENT)
        return self._up_the_chain(values.copy(), list(segments(wire, most)), place, root)

    def _up_the_tree(self, total: FloatArray, wire: Wire, place: int, root: int) -> FloatArray | None:
        step = 1
        while step < self.size:
            if place & step:
                self._send(encode(total, wire), self._at(place - step, root))()
                return None
            if place + step < self.size:
                total += decode(self._receive(n_bytes(wire), self._at(place + step, root))(), wire)
            step *= 2
        return total

    def _up_the_chain(
        self, total: FloatArray, parts: list[tuple[slice, Wire]], place: int, root: int
    ) -> FloatArray | None:
        has_more = place + 1 < self.size
        arriving = [self._receive(n_bytes(w), self._at(place + 1, root)) for _, w in parts] if has_more else []
        leaving = []
        for number, (at, wire) in enumerate(parts):
            if has_more:
                total[at] += decode(arriving[number](), wire)
            if place:
                leaving.append(self._send(encode(total[at], wire), self._at(place - 1, root)))
        for sent in leaving:
            sent()
        return None if place else total

    def _down_the_tree(self, data: Bytes, place: int, root: int) -> None:
        step = 1
        while step < self.size:
            step *= 2
        leaving = []
        while step > 1:
            step //= 2
            if place % (2 * step) == step:
                data[:] = self._receive(data.size, self._at(place - step, root))()
            elif place % (2 * step) == 0 and place + step < self.size:
                leaving.append(self._send(data.copy(), self._at(place + step, root)))
        for sent in leaving:
            sent()

    def _down_the_chain(self, data: Bytes, place: int, root: int) -> None:
        most = min(max(data.size // (SEGMENTS * self.size), LEAST_SEGMENT), MOST_SEGMENT)
        cuts = [slice(first, min(first + most, data.size)) for first in range(0, data.size, most)]
        arriving = [self._receive(at.stop - at.start, self._at(place - 1, root)) for at in cuts] if place else []
        leaving = []
        for number, at in enumerate(cuts):
            if place:
                data[at] = arriving[number]()
            if place + 1 < self.size:
                leaving.append(self._send(data[at], self._at(place + 1, root)))
        for sent in leaving:
            sent()

    def _at(self, place: int, root: int) -> int:
        """The rank of a place; the root's is 0."""
        return (place + root) % self.size

    def _send(self, data: Bytes, peer: int) -> Callable[[], None]:
        """Begin to send; the answer waits until that is done."""
        self.traffic.sent += data.size
        tensor = self._torch.from_numpy(data if data.flags.writeable else data.copy())
        work = self._watched(peer, lambda: self._group.send([tensor], peer, 0))

        def done() -> None:
            self._watched(peer, work.wait)
            tensor.numel()  # kept until here

        return done

    def _receive(self, size: int, peer: int) -> Callable[[], Bytes]:
        """Be ready to receive; the answer waits for the bytes."""
        self.traffic.received += size
        tensor = self._torch.empty(size, dtype=self._torch.uint8)
        work = self._watched(peer, lambda: self._group.recv([tensor], peer, 0))

        def received() -> Bytes:
            self._watched(peer, work.wait)
            return np.asarray(tensor.numpy())

        return received

    def _watched(self, peer: int, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except RuntimeError as error:  # a connection that is no more
            raise self._lost(peer, error) from error


def segments(wire: Wire, most: int) -> Iterator[tuple[slice, Wire]]:
    """Parts of a message of about `most` bytes: which numbers, and how they are written.

    >>> list(segments([(3000, "float32"), (2, "float64")], 8192))
    [(slice(0, 2048, None), [(2048, 'float32')]), (slice(2048, 3002, None), [(952, 'float32'), (2, 'float64')])]
    """
    first = last = 0
    own: list[tuple[int, str]] = []
    for count, form in wire:
        while count:
            room = most - n_bytes(own)
            each = n_bytes([(BLOCK, form)])
            taken = min(count, max(1, room // each) * BLOCK)
            own.append((taken, form))
            last, count = last + taken, count - taken
            if n_bytes(own) >= most:
                yield slice(first, last), own
                first, own = last, []
    if own:
        yield slice(first, last), own
