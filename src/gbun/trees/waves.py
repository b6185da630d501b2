"""The steps of growing a tree, compiled: they are driven by compiled threads on one machine, by Python on several.

A tree grows in waves. Each wave splits the better half of the leaves that can be split, so that few waves, and few
exchanges among workers, make a whole tree. A step is done by each thread for its own rows (a shard), or for its own
columns; the leaves are known to all threads, each of which keeps its own copy of the records.

    begin   quantise the rows, histogram of the root                            own rows
    move    divide the rows of the leaves that are split, sum histograms of the smaller children     own rows
    (all threads, all workers: their histograms are summed)
    search  histograms of siblings by subtraction, best splits of the new leaves                     own columns
    settle  take the best split of each new leaf
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from gbun.trees.compiled import inlined, kernel
from gbun.trees.histogram import N_BINS, add_histogram, count_items, sum_items
from gbun.trees.quantise import MOST_FINE, MOST_FINE_SUM, find_exponent, make_items, sum_exactly, sum_of_g, sum_of_h
from gbun.trees.splitter import ROOM, SPLIT, find_split
from gbun.trees.subsets import sum_squares

ROWS_AT_A_TIME = 1024  # quantised, and added to the root's histogram while they are in the cache
MOST_GAIN = 3e38  # it is stored as float32
LEAF = np.dtype(
    [("first", "i8"), ("last", "i8")]  # its items in this thread's shard
    + [("G", "i8"), ("H", "i8"), ("n", "i8")]  # sums, and rows of weight > 0 of all workers
    + [("slot", "i8"), ("parent", "i8"), ("side", "i8")]  # its histogram; the node it hangs on, 0 left and 1 right
    + [(name, SPLIT[name].str) for name in SPLIT.names or ()],  # its best split
    align=True,
)
NODE = np.dtype(
    [
        *[("column", "i4"), ("bin", "i4"), ("missing_right", "i4"), ("left", "i4"), ("right", "i4"), ("gain", "f4")],
        ("mask", "u8"),  # as in a split
    ],
    align=True,
)


class Rule(NamedTuple):
    """When a leaf is split, and how many are."""

    n_leaves: int
    penalty: float
    relative: bool  # to sum h / n_leaves
    min_rows: float


class Block(NamedTuple):
    """Binned columns, twice."""

    words: Any  # uint64, row by row, eight columns a word
    stride: Any  # words of a row
    columns: Any  # uint8 (c, n), column by column


class Memory(NamedTuple):
    """What the steps read and write; c columns in all, and as many parts as threads."""

    base: Block
    projections: Block
    is_bundle: Any  # bool, of the base's columns
    n_plain: Any  # the base's columns from here on hold categories
    items: Any  # int64 (n,), those of a shard by leaf
    spare: Any  # int64 (n,)
    histograms: Any  # int64 (leaves, 64 c)
    parts: Any  # int64 (parts, leaves of a wave, 64 c): what each thread has summed in this wave; none with one thread
    counts: Any  # int64 (parts, leaves of a wave): rows of weight > 0
    totals: Any  # int64 (parts,): the root's sums
    squares: Any  # int64 (parts,): sum g^2 of the root, where there are categories
    variance: Any  # float64 (parts,): sum g^2 / sum h, each thread's copy
    fine_totals: Any  # float64 (parts,): sums of h on a finer scale, whole numbers; of which the penalty is a share
    leaves: Any  # LEAF (parts, leaves)
    splits: Any  # SPLIT (parts, 2 leaves of a wave)
    order: Any  # int64 (parts, leaves): the leaves that a wave splits
    nodes: Any  # NODE (leaves - 1,)
    leaf_of_row: Any


@kernel()
def begin(
    memory: Any, g: Any, h: Any, scale_g: Any, scale_h: Any, fine: float, part: int, first: int, last: int
) -> None:
    """Quantise the rows of a shard and sum the root's histogram; h also on a `fine` scale, unless that is 0."""
    root = memory.leaves[part, 0]
    root.first, root.last, root.slot, root.parent, root.side = first, last, 0, -1, 0
    sums = _own_sums(memory, part, 0, 0)
    sums[:] = 0
    total, n, fine_total = np.int64(0), np.int64(0), 0.0
    for row in range(first, last, ROWS_AT_A_TIME):
        end = min(last, row + ROWS_AT_A_TIME)
        make_items(g, h, scale_g, scale_h, row, end, memory.items)
        _add_histograms(memory, row, end, sums)
        total += sum_items(memory.items, row, end)
        n += count_items(memory.items, row, end)
        if fine > 0.0:
            fine_total += sum_exactly(h, fine, row, end)
    memory.totals[part], memory.fine_totals[part], memory.counts[part, 0] = total, fine_total, n
    has_categories = memory.n_plain < len(memory.base.columns)
    memory.squares[part] = sum_squares(memory.items, first, last) if has_categories else np.int64(0)


@kernel()
def set_root(memory: Any, part: int, total: Any, squares: Any) -> None:
    root = memory.leaves[part, 0]
    root.G, root.H = sum_of_g(total), sum_of_h(total)
    memory.variance[part] = squares / max(1, root.H)


@inlined()
def _own_sums(memory: Any, part: Any, number: Any, slot: Any) -> Any:
    # One thread alone sums where the histogram will be.
    return memory.parts[part, number] if len(memory.parts) else memory.histograms[slot]


@kernel()
def _add_histograms(memory: Any, first: int, last: int, sums: Any) -> None:
    base, projections = memory.base, memory.projections
    n_base, n_projections = len(base.columns), len(projections.columns)
    if n_base > 0:
        add_histogram(memory.items, first, last, base.words, base.stride, n_base, sums)
    if n_projections > 0:
        own = sums[N_BINS * n_base :]
        add_histogram(memory.items, first, last, projections.words, projections.stride, n_projections, own)


@kernel()
def choose(memory: Any, part: int, n_leaves: int, most_leaves: int) -> int:
    """Write the leaves of the next wave to `order`, the best first; return how many there are."""
    leaves, order, able = memory.leaves[part], memory.order[part], 0
    for k in range(n_leaves):
        gain, at = leaves[k].gain, able
        if gain > 0.0:
            while at > 0 and leaves[order[at - 1]].gain < gain:  # of equal gains the first leaf
                order[at] = order[at - 1]
                at -= 1
            order[at] = k
            able += 1
    return min((able + 1) // 2, most_leaves - n_leaves)


@kernel()
def move(memory: Any, part: int, n_leaves: int, count: int, most_leaves: int, gain_unit: float) -> None:
    """Split the `count` leaves of a wave: rows of the shard, records of leaves, nodes, smaller children's histograms.

    The left child keeps its parent's number, the right one gets the next.
    """
    more = n_leaves + count < most_leaves  # otherwise the tree is complete
    for i in range(count):
        k, new = memory.order[part, i], n_leaves + i
        leaf, other = memory.leaves[part, k], memory.leaves[part, new]
        middle = _divide(memory, leaf.first, leaf.last, leaf)
        if part == 0:
            _add_node(memory.nodes, new - 1, leaf, k, new, gain_unit)
        other.first, other.last, leaf.last = middle, leaf.last, middle
        other.G, other.H = leaf.G - leaf.left_g, leaf.H - leaf.left_h
        leaf.G, leaf.H = leaf.left_g, leaf.left_h
        leaf.parent, leaf.side, other.parent, other.side = new - 1, 0, new - 1, 1
        other.slot = new
        if leaf.H < other.H:  # the smaller child has the new slot, the other one what is left of the parent's
            leaf.slot, other.slot = new, leaf.slot
        small = leaf if leaf.slot == new else other
        if more:
            sums = _own_sums(memory, part, i, new)
            sums[:] = 0
            _add_histograms(memory, small.first, small.last, sums)
            memory.counts[part, i] = count_items(memory.items, small.first, small.last)


@kernel()
def _add_node(nodes: Any, number: int, leaf: Any, left: int, right: int, gain_unit: float) -> None:
    node = nodes[number]
    node.column, node.bin, node.missing_right, node.mask = leaf.column, leaf.bin, leaf.missing_right, leaf.mask
    node.left, node.right, node.gain = ~left, ~right, min(leaf.gain * gain_unit, MOST_GAIN)
    if leaf.parent >= 0:
        if leaf.side == 0:
            nodes[leaf.parent].left = number
        else:
            nodes[leaf.parent].right = number


@kernel()
def _divide(memory: Any, first: int, last: int, split: Any) -> Any:
    """Move the items that go left before the others, both in their order; return where the others begin.

    Left ones move in place, right ones through the spare room. There is no branch that depends on a row.
    """
    n_base = len(memory.base.columns)
    goes_left = np.empty(N_BINS, dtype=np.uint64)
    projected = split.column >= n_base
    bundle = not projected and memory.is_bundle[split.column]
    for b in range(N_BINS):
        goes_left[b] = b != split.bin if bundle else b <= split.bin
    if not bundle and not projected:
        goes_left[0] = split.missing_right == 0
    if split.mask != 0:
        for b in range(N_BINS):
            goes_left[b] = split.mask >> np.uint64(b) & np.uint64(1)
    bins = memory.projections.columns[split.column - n_base] if projected else memory.base.columns[split.column]
    items, spare, one, half = memory.items, memory.spare, np.uint64(1), np.uint64(32)
    left, right, mask = np.uint64(first), np.uint64(first), np.uint8(N_BINS - 1)
    for i in range(np.uint64(first), np.uint64(last)):
        item = items[i]
        go = goes_left[bins[np.uint64(item) >> half] & mask]
        items[left], spare[right] = item, item
        left += go
        right += one - go
    middle = np.int64(left)
    items[middle:last] = spare[first : first + last - middle]
    return middle


@kernel()
def search(
    memory: Any, part: int, n_parts: int, n_leaves: int, count: int, first: int, last: int, penalty: Any, min_rows: Any
) -> None:
    """Complete histograms of columns first .. last-1 of a wave's new leaves, and find their best splits there.

    `n_parts` parts are summed, none where a single thread has summed in place. count = 0: of the root.
    """
    at, end = first * N_BINS, last * N_BINS
    room = np.empty(ROOM, dtype=np.int64)
    for i in range(max(1, count)):
        k, new = (memory.order[part, i], n_leaves + i) if count else (0, 0)
        leaf, other = memory.leaves[part, k], memory.leaves[part, new]
        sums = memory.histograms[new, at:end]
        for p in range(n_parts):
            _add(sums, memory.parts[p, i, at:end], np.int64(p > 0), np.int64(1))
        n = np.int64(0)
        for p in range(len(memory.counts)):
            n += memory.counts[p, i]
        if count:
            _add(
                memory.histograms[leaf.slot if leaf.slot != new else other.slot, at:end],
                sums,
                np.int64(1),
                np.int64(-1),
            )
            rest = leaf.n - n  # it still is the parent's
            leaf.n, other.n = (n, rest) if leaf.slot == new else (rest, n)
            _search_leaf(memory, part, other, first, last, penalty, min_rows, room, 2 * i + 1)
        else:
            leaf.n = n
        _search_leaf(memory, part, leaf, first, last, penalty, min_rows, room, 2 * i)


@inlined()
def _add(sums: Any, others: Any, own: Any, sign: Any) -> None:
    """sums = own sums + sign others: a loop, as expressions of arrays are computed number by number."""
    for k in range(np.uint64(len(sums))):
        sums[k] = own * sums[k] + sign * others[k]


@inlined()
def _search_leaf(
    memory: Any, part: Any, leaf: Any, first: Any, last: Any, penalty: Any, min_rows: Any, room: Any, number: Any
) -> None:
    sums, split, n_base = memory.histograms[leaf.slot], memory.splits[part, number], len(memory.base.columns)
    sizes, total = (memory.n_plain, n_base), (leaf.G, leaf.H, leaf.n)
    variance = memory.variance[part]
    find_split(sums, first, last, *sizes, memory.is_bundle, *total, penalty, min_rows, variance, room, split)


@kernel()
def settle(memory: Any, part: int, n_parts: int, n_leaves: int, count: int) -> None:
    """Give each new leaf the best of the splits that `n_parts` threads have found in their columns."""
    for i in range(max(1, count)):
        _take_best(memory, n_parts, 2 * i, memory.leaves[part, memory.order[part, i] if count else 0])
        if count:
            _take_best(memory, n_parts, 2 * i + 1, memory.leaves[part, n_leaves + i])


@kernel()
def _take_best(memory: Any, n_parts: int, number: int, leaf: Any) -> None:
    leaf.gain, leaf.column = 0.0, -1
    for p in range(n_parts):
        split = memory.splits[p, number]
        if split.gain > leaf.gain:  # of equal ones the first column's, which is the first thread's
            leaf.gain, leaf.column, leaf.bin = split.gain, split.column, split.bin
            leaf.missing_right, leaf.left_g, leaf.left_h = split.missing_right, split.left_g, split.left_h
            leaf.mask = split.mask


@kernel()
def mark_rows(memory: Any, part: int, n_leaves: int) -> None:
    """Write the leaf of each row of a shard."""
    half = np.uint64(32)
    for k in range(n_leaves):
        leaf = memory.leaves[part, k]
        for i in range(np.uint64(leaf.first), np.uint64(leaf.last)):
            memory.leaf_of_row[np.uint64(memory.items[i]) >> half] = k


@kernel()
def fine_scale(counts: Any, relative: Any) -> float:
    """The scale for the sum of all h, which a relative penalty needs; else 0."""
    return math.ldexp(1.0, find_exponent(counts, MOST_FINE, MOST_FINE_SUM)) if relative else 0.0


@kernel()
def leaf_penalty(rule: Any, fine_total: float, fine: float, e_h: int) -> float:
    """The penalty in the unit of the quantised h."""
    share = fine_total / fine / rule.n_leaves if rule.relative else 1.0
    penalty: float = rule.penalty * share * math.ldexp(1.0, e_h)
    return penalty
