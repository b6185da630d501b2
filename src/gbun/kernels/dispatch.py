"""The kernels of one set of rows: which chunk is computed when, into which memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gbun.data.features import Features
from gbun.dtypes import MEMBERSHIP, SUM, FloatArray, IntArray
from gbun.kernels import products, rows
from gbun.kernels.chunks import Chunk, make_chunks, rows_in_chunk
from gbun.kernels.equations import NormalEquations, Picked, symmetric
from gbun.kernels.forward import forward, weights
from gbun.kernels.plan import Plan
from gbun.kernels.simd import LANES
from gbun.kernels.threads import Threads, aligned
from gbun.kernels.underway import AHEAD, Round, UnderWay
from gbun.networks import Family, Network

Derivatives = Callable[[slice], tuple[FloatArray, FloatArray]]
RowSums = Callable[[slice], FloatArray]
"""Sums over the rows of a chunk; over no rows for an empty slice, which tells their shape."""
Picker = Callable[[slice, FloatArray], Picked]
"""(chunk, its h) -> the rows, counted from its first and ascending, that the Hessian sums are made of, and their h."""

PER_LOG_2 = MEMBERSHIP(1.0 / np.log(2.0))  # e^v = 2^(v / log 2)
PER_OUTPUT = 16  # operations for each output of a row beside those of features: moments, a power of two, a product
RUNS = 64  # partial sums of the normal equations that are added up in the end


@dataclass(frozen=True)
class Step:
    """One round as rows meet it: P = softmax((X N - centre) x factor), scores += P head."""

    network: Network
    centre: FloatArray
    factor: FloatArray  # the temperature is part of it
    head: FloatArray


class Kernels:
    """Rounds applied to rows: outputs, memberships and scores of a chunk before the next; nothing of n x K is held."""

    def __init__(self, features: Features, family: Family, n_scores: int, threads: Threads, form: str = "auto") -> None:
        self.features, self.family, self.threads = features.contiguous(), family, threads
        self.n_scores, self.form = n_scores, form

    @cached_property
    def chunks(self) -> list[Chunk]:
        """Made when the first round comes: a start alone needs none."""
        rows_each = rows_in_chunk(self.features.n_rows, self.family.n_outputs, self.n_scores)
        return make_chunks(self.features, rows_each, self.threads, self.form)

    @cached_property
    def forwarding(self) -> float:
        """About the operations of Z = X N and P."""
        K, features = self.family.n_outputs, self.features
        numbers = 0 if features.sparse is None else len(features.sparse.ids)
        numbers += 0 if features.dense is None else features.dense.size
        return K * (float(numbers) + PER_OUTPUT * features.n_rows)

    def add_rounds(self, steps: Sequence[Step], scores: FloatArray) -> None:
        """scores += P W for one round after the other."""
        if not steps:
            return
        made = [weights(step.network, self.features, keep=len(steps) == 1) for step in steps]
        products_ = [product(step.head) for step in steps]

        def work(chunk: Chunk) -> None:
            z = self._scratch(chunk)
            for step, own, add in zip(steps, made, products_, strict=True):
                forward(own, self.features, chunk, z, self.threads.scratch)
                rows.memberships(z, step.centre, step.factor * PER_LOG_2, self.family.softmax_width)
                add(z, scores[chunk.rows])

        self.threads.run(work, self.chunks, len(steps) * self.forwarding)

    def _scratch(self, chunk: Chunk) -> FloatArray:
        return self.threads.scratch.array("z", len(chunk), self.family.n_outputs)


class TrainingKernels(Kernels):
    """The two passes of a round over training rows, and what a line search asks for between rounds.

    With buffers of n x K, Z and then P stay in one from pass to pass. Without, each pass makes them again, chunk by
    chunk in a thread's own memory; the bits are the same.
    """

    def __init__(
        self,
        features: Features,
        family: Family,
        n_scores: int,
        plan: Plan,
        threads: Threads,
        weight: FloatArray,
        exact: bool,
    ) -> None:
        super().__init__(features, family, n_scores, threads, plan.form)
        self.weight, self.exact = np.ascontiguousarray(weight), exact
        shape = features.n_rows, family.n_outputs
        n_buffers = (AHEAD if plan.ahead else 1) if plan.hold else 0
        self.rounds = UnderWay([aligned(math.prod(shape), MEMBERSHIP).reshape(shape) for _ in range(n_buffers)])

    @property
    def buffer(self) -> FloatArray | None:
        """Where Z, then P, of the newest round are kept."""
        return self.rounds.newest.buffer

    def first_pass(self, network: Network, head: FloatArray | None, scores: FloatArray) -> FloatArray:
        """scores += P W with the P of the round before, unless `head` is None; Z = X N; [sum w z ; sum w z^2]."""
        before, add = (None, None) if head is None else (self.rounds.split, product(head))
        begun = self.rounds.begin(weights(network, self.features, keep=True), before)
        K, scratch = self.family.n_outputs, self.threads.scratch
        past_caches = begun.buffer is not None and K % LANES == 0

        def work(chunk: Chunk) -> FloatArray:
            sums = np.zeros((2, K))
            if before is not None and add is not None:
                add(self._memberships(chunk, before), scores[chunk.rows])
            moments = self.weight[chunk.rows], sums
            forward(begun.made, self.features, chunk, self._place(chunk, begun), scratch, moments, past_caches)
            return sums

        return sum(self.threads.map(work, self.chunks, self.forwarding), np.zeros((2, K)))

    def second_pass(
        self,
        centre: FloatArray,
        factor: FloatArray,
        derivatives: Derivatives,
        pick: Picker | None = None,
        head: FloatArray | None = None,
        scores: FloatArray | None = None,
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """P = softmax((Z - centre) x factor) in the place of Z, then A = P'HP and B = P'G.

        Where `pick` chooses rows, A is made of those alone, and [sum h, sum h of A's rows] says what they stand for.
        With `head`, scores += P W of the round before comes first, where the first pass had to do without it.
        """
        current, split = self.rounds.forwarded, (centre, factor * PER_LOG_2, self.family.softmax_width)
        before, add = (None, None) if head is None else (self.rounds.split, product(head))
        runs = np.array_split(np.arange(len(self.chunks)), min(RUNS, len(self.chunks)) or 1)

        def work(run: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
            system: NormalEquations | None = None
            for number in run:
                chunk = self.chunks[number]
                if before is not None and add is not None and scores is not None:
                    add(self._memberships(chunk, before), scores[chunk.rows])
                g, h = derivatives(chunk.rows)
                z = self._outputs(chunk, current)
                system = system or NormalEquations(g, h, split, self.exact, self.threads.scratch)
                system.add(z, g, h, None if pick is None else pick(chunk.rows, h))
            if system is None:  # no rows at all: a worker whose share is empty
                g, h = derivatives(slice(0, 0))
                system = NormalEquations(g, h, split, self.exact, self.threads.scratch)
            return system.finished()

        gram = 0.5 * self.features.n_rows * self.family.n_outputs**2
        parts = self.threads.map(work, runs, self.forwarding + gram)
        A, B, curvature = next(parts)
        for a, b, c in parts:
            A += a
            B += b
            curvature += c
        current.split = split[:2]
        if before is not None:
            self.rounds.end(before)
        return symmetric(A), B, curvature

    def add_step(self, head: FloatArray, scores: FloatArray) -> None:
        """scores += P W"""
        add, current = product(head), self.rounds.split

        def work(chunk: Chunk) -> None:
            add(self._memberships(chunk, current), scores[chunk.rows])

        self.threads.run(work, self.chunks, self.forwarding)

    def sum_rows(self, values: RowSums) -> FloatArray:
        """The sum over chunks of what `values` gives for each, added in chunk order."""
        amount = PER_OUTPUT * self.features.n_rows * self.n_scores
        parts = self.threads.map(values, [chunk.rows for chunk in self.chunks], amount)
        return np.asarray(sum(parts, 0.0 * values(slice(0, 0))), dtype=SUM)

    def _place(self, chunk: Chunk, of: Round) -> FloatArray:
        """Where Z and P of a chunk live."""
        return self._scratch(chunk) if of.buffer is None else of.buffer[chunk.rows]

    def _outputs(self, chunk: Chunk, of: Round) -> FloatArray:
        """What the buffer keeps, Z or P; or Z made again."""
        z = self._place(chunk, of)
        if of.buffer is None:
            forward(of.made, self.features, chunk, z, self.threads.scratch)
        return z

    def _memberships(self, chunk: Chunk, of: Round) -> FloatArray:
        """P, after the second pass."""
        p = self._outputs(chunk, of)
        if of.buffer is None and of.split is not None:
            rows.memberships(p, *of.split, self.family.softmax_width)
        return p


def product(head: FloatArray) -> Callable[[FloatArray, FloatArray], None]:
    """(P, scores): scores += P W, the product in float32."""
    if head.shape[1] == 1:
        return lambda p, scores: rows.add_dots(p, head[:, 0], scores)
    panels = products.panels_of(head)

    def add(p: FloatArray, scores: FloatArray) -> None:
        step = np.zeros((len(p), head.shape[1]), dtype=MEMBERSHIP)
        products.multiply_add(p, panels, step)
        scores += step

    return add
