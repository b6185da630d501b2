"""The collective of processes that torch.distributed has brought together, on one machine or many.

Sums go up to the root of a tree of workers and answers come down. Messages are cut into segments: each worker adds its
own to what it gets and passes it on while the next segment arrives. A large message goes along a chain, a tree of one
branch, where everybody sends it once and receives it once, whatever the number of workers. Filling a chain takes a
segment's time for each worker, more than a small message takes: that one goes along a tree of two branches, where
nobody receives it more than twice. The order of additions depends on the number of workers and the size alone.
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

SEGMENTS = 8  # for each worker that passes them on: filling the tree takes an eighth of the time of the message
LEAST_SEGMENT, MOST_SEGMENT = 2**10, 2**20  # bytes: smaller ones cost more work than they save time
CHAINED = 2**12  # bytes for each worker: messages of more take a chain


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
        self._down(data, tree_of(data.size, self.rank, self.size, root))
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
        total, tree = values.copy(), tree_of(n_bytes(wire), self.rank, self.size, root)
        parts = list(segments(wire, tree.segment))
        arriving = [[self._receive(n_bytes(part), child) for child in tree.children] for _, part in parts]
        leaving = []
        for (at, part), received in zip(parts, arriving, strict=True):
            for words in received:
                total[at] += decode(words(), part)
            if tree.parent is not None:
                leaving.append(self._send(encode(total[at], part), tree.parent))
        for sent in leaving:
            sent()
        return total if tree.parent is None else None

    def _down(self, data: Bytes, tree: Tree) -> None:
        """The root's bytes, in everybody's array."""
        cuts = [slice(first, min(first + tree.segment, data.size)) for first in range(0, data.size, tree.segment)]
        arriving = [self._receive(at.stop - at.start, tree.parent) for at in cuts if tree.parent is not None]
        leaving = []
        for number, at in enumerate(cuts):
            if arriving:
                data[at] = arriving[number]()
            leaving += [self._send(data[at], child) for child in tree.children]
        for sent in leaving:
            sent()

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


@dataclass(frozen=True)
class Tree:
    """A worker's neighbours on a message's way, by rank, and the bytes of a segment."""

    parent: int | None
    children: list[int]
    segment: int


def tree_of(length: int, rank: int, size: int, root: int) -> Tree:
    """Along which a message of so many bytes travels.

    >>> [tree_of(9000, rank, 7, 0).parent for rank in range(7)]
    [None, 0, 0, 1, 1, 2, 2]
    >>> [tree_of(10**6, rank, 7, 5).parent for rank in range(7)]
    [6, 0, 1, 2, 3, None, 5]
    """
    arity, _, segment = shape(length, size)
    place = (rank - root) % size
    children = range(arity * place + 1, min(arity * place + arity, size - 1) + 1)
    parent = ((place - 1) // arity + root) % size if place else None
    return Tree(parent, [(child + root) % size for child in children], segment)


def shape(length: int, size: int, arity: int | None = None) -> tuple[int, int, int]:
    """Of a message's tree: branches, steps of the longest way to the root, bytes of a segment.

    >>> shape(9000, 16), shape(135_000, 16), shape(135_000, 1000)
    ((2, 4, 1024), (1, 15, 1205), (2, 9, 2109))
    """
    arity = arity or (1 if length > CHAINED * size else 2)
    steps = size - 1 if arity == 1 else size.bit_length() - 1
    if steps < 2:  # nobody passes anything on
        return arity, steps, max(length, 1)
    return arity, steps, min(max(length // (SEGMENTS * (steps - 1)), LEAST_SEGMENT), MOST_SEGMENT)


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
