"""The collective of processes on one machine or many.

Sums go up a tree of workers to the root, and results come down. Messages are cut into segments: each worker adds its
values to a segment and passes it on while the next one arrives. A large message takes a chain, a tree with one branch,
in which every worker sends and receives it once, whatever the number of workers. Filling a chain takes the time of one
segment per worker, which is more than a small message needs: small messages take a binary tree, in which no worker
receives a message more than twice. The order of additions depends on the number of workers and the message size alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbun.collectives.base import WireFormat
from gbun.collectives.links import Links
from gbun.collectives.wire import BLOCK, decode, encode, n_bytes
from gbun.dtypes import SUM, FloatArray

Bytes = NDArray[np.uint8]
ExplainError = Callable[[int, BaseException], BaseException]
"""(peer, error) -> the error that explains it."""

SEGMENTS = 8  # for each worker that passes them on: filling the tree takes an eighth of the message's time
MIN_SEGMENT, MAX_SEGMENT = 2**10, 2**20  # bytes; smaller segments cost more work than they save time
CHAIN_BYTES_PER_WORKER = 2**12  # larger messages take a chain


@dataclass
class Traffic:
    """Bytes that this worker has sent and received."""

    sent: int = 0
    received: int = 0


class TreeCollective:
    """One of several workers that are connected with each other."""

    def __init__(self, links: Links, explain_error: ExplainError = lambda peer, error: error) -> None:
        self._links, self._explain_error = links, explain_error
        self.rank, self.size = links.rank, links.size
        self.traffic = Traffic()

    def sum(self, values: FloatArray, root: int | None = None, wire: WireFormat | None = None) -> FloatArray:
        flat = np.ascontiguousarray(values, dtype=SUM).reshape(-1)
        wire = [(flat.size, "float64")] if wire is None else wire
        total = self._reduce(flat, wire, root or 0)
        if root is None:
            total = self.broadcast(flat if total is None else total)
        return np.zeros(0) if total is None else total.reshape(np.shape(values))

    def broadcast(self, values: NDArray[Any], root: int = 0) -> NDArray[Any]:
        local = np.ascontiguousarray(values)
        data = local.reshape(-1).view(np.uint8).copy()
        self._broadcast_bytes(data, make_tree(data.size, self.rank, self.size, root))
        received: NDArray[Any] = data.view(local.dtype).reshape(local.shape)
        return received

    def gather(self, values: NDArray[Any], root: int = 0) -> list[NDArray[Any]] | None:
        data = np.ascontiguousarray(values).view(np.uint8)
        if self.rank != root:
            self._send(np.array([data.size]).view(np.uint8), root)()
            self._send(data, root)()
            return None
        gathered = []
        for peer in range(self.size):
            part = data if peer == root else self._receive(self._receive_length(peer, values.dtype.itemsize), peer)()
            gathered.append(part.view(values.dtype))
        return gathered

    def _reduce(self, values: FloatArray, wire: WireFormat, root: int) -> FloatArray | None:
        """Return the sum at the root, None elsewhere."""
        total, tree = values.copy(), make_tree(n_bytes(wire), self.rank, self.size, root)
        parts = list(split_message(wire, tree.segment))
        receives = [[self._receive(n_bytes(part), child) for child in tree.children] for _, part in parts]
        sends = []
        for (at, part), from_children in zip(parts, receives, strict=True):
            for receive in from_children:
                total[at] += decode(receive(), part)
            if tree.parent is not None:
                sends.append(self._send(encode(total[at], part), tree.parent))
        for send in sends:
            send()
        return total if tree.parent is None else None

    def _broadcast_bytes(self, data: Bytes, tree: Tree) -> None:
        """Overwrite `data` with the root's bytes."""
        cuts = [slice(first, min(first + tree.segment, data.size)) for first in range(0, data.size, tree.segment)]
        receives = [self._receive(at.stop - at.start, tree.parent) for at in cuts if tree.parent is not None]
        sends = []
        for number, at in enumerate(cuts):
            if receives:
                data[at] = receives[number]()
            sends += [self._send(data[at], child) for child in tree.children]
        for send in sends:
            send()

    def _send(self, data: Bytes, peer: int) -> Callable[[], None]:
        """Start to send; the function returned waits for the end."""
        self.traffic.sent += data.size
        sent = self._links[peer].send(data.data)
        return lambda: self._run_or_explain(peer, sent)

    def _receive(self, size: int, peer: int) -> Callable[[], Bytes]:
        """Return a function that waits for the next message of a worker."""
        self.traffic.received += size
        return lambda: np.frombuffer(self._run_or_explain(peer, lambda: self._links[peer].receive(size)), np.uint8)

    def _receive_length(self, peer: int, itemsize: int) -> int:
        """Return the length of the message that a worker sends next, a multiple of `itemsize`."""
        length = int(self._receive(8, peer)().view(np.int64)[0])
        if length < 0 or length % itemsize:
            raise self._explain_error(peer, ConnectionError(f"a worker sends {length} bytes, expected whole numbers"))
        return length

    def _run_or_explain(self, peer: int, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except OSError as error:  # the connection is closed
            raise self._explain_error(peer, error) from error


@dataclass(frozen=True)
class Tree:
    """The neighbours of a worker in the tree of a message, by rank, and the bytes of a segment."""

    parent: int | None
    children: list[int]
    segment: int


def make_tree(length: int, rank: int, size: int, root: int) -> Tree:
    """Return a worker's place in the tree of a message of `length` bytes.

    >>> [make_tree(9000, rank, 7, 0).parent for rank in range(7)]
    [None, 0, 0, 1, 1, 2, 2]
    >>> [make_tree(10**6, rank, 7, 5).parent for rank in range(7)]
    [6, 0, 1, 2, 3, None, 5]
    """
    arity, _, segment = choose_tree(length, size)
    position = (rank - root) % size
    children = range(arity * position + 1, min(arity * position + arity, size - 1) + 1)
    parent = ((position - 1) // arity + root) % size if position else None
    return Tree(parent, [(child + root) % size for child in children], segment)


def choose_tree(length: int, size: int, arity: int | None = None) -> tuple[int, int, int]:
    """Choose the tree of a message: its number of branches, its depth, and the bytes of a segment.

    >>> choose_tree(9000, 16), choose_tree(135_000, 16), choose_tree(135_000, 1000)
    ((2, 4, 1024), (1, 15, 1205), (2, 9, 2109))
    """
    arity = arity or (1 if length > CHAIN_BYTES_PER_WORKER * size else 2)
    steps = size - 1 if arity == 1 else size.bit_length() - 1
    if steps < 2:  # no worker passes segments on
        return arity, steps, max(length, 1)
    return arity, steps, min(max(length // (SEGMENTS * (steps - 1)), MIN_SEGMENT), MAX_SEGMENT)


def split_message(wire: WireFormat, max_bytes: int) -> Iterator[tuple[slice, WireFormat]]:
    """Cut a message into segments of about `max_bytes` bytes: the values of each, and their format.

    >>> list(split_message([(3000, "float32"), (2, "float64")], 8192))
    [(slice(0, 2048, None), [(2048, 'float32')]), (slice(2048, 3002, None), [(952, 'float32'), (2, 'float64')])]
    """
    first = last = 0
    segment: list[tuple[int, str]] = []
    for count, form in wire:
        while count:
            room = max_bytes - n_bytes(segment)
            taken = min(count, max(1, room // n_bytes([(BLOCK, form)])) * BLOCK)
            segment.append((taken, form))
            last, count = last + taken, count - taken
            if n_bytes(segment) >= max_bytes:
                yield slice(first, last), segment
                first, segment = last, []
    if segment:
        yield slice(first, last), segment
