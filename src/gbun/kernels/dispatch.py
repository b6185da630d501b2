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
from gbun.kernels.equations import NormalEquations, Picked, Split, symmetric
from gbun.kernels.forward import Weights, forward, weights
from gbun.kernels.plan import Plan
from gbun.kernels.simd import LANES
from gbun.kernels.threads import Threads, aligned
from gbun.networks import Family, Network

Derivatives = Callable[[slice], tuple[FloatArray, FloatArray]]
RowSums = Callable[[slice], FloatArray]
"""Sums over the rows of a chunk; over no rows for an empty slice, which tells their shape."""
Picker = Callable[[slice, FloatArray], Picked]
"""(chunk, its h) -> the rows, counted from its first and ascending, that the Hessian sums are made of, and their h."""

PER_LOG_2 = MEMBERSHIP(1.0 / np.log(2.0))  # e^v = 2^(v / log 2)
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

        self.threads.run(work, self.chunks)

    def _scratch(self, chunk: Chunk) -> FloatArray:
        return self.threads.scratch.array("z", len(chunk), self.family.n_outputs)


class TrainingKernels(Kernels):
    """The two passes of a round over training rows, and what a line search asks for between rounds.

    With a buffer of n x K, Z and then P stay in it from pass to pass. Without, each pass makes them again, chunk by
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
        self.buffer = aligned(math.prod(shape), MEMBERSHIP).reshape(shape) if plan.hold else None
        self._current: Weights | None = None
        self._normalisation: tuple[FloatArray, FloatArray] | None = None

    def first_pass(
        self, network: Network, head: FloatArray | None, scores: FloatArray, more: RowSums | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """scores += P W with the P of the round before, unless `head` is None; Z = X N; [sum w z ; sum w z^2].

        `more` may ask for further sums, of the new scores.
        """
        before, made = self._current, weights(network, self.features, keep=True)
        K, scratch = self.family.n_outputs, self.threads.scratch
        past_caches = self.buffer is not None and K % LANES == 0
        add = None if head is None else product(head)

        def work(chunk: Chunk) -> tuple[FloatArray, FloatArray]:
            sums = np.zeros((2, K))
            if add is not None:
                add(self._memberships(chunk, before), scores[chunk.rows])
            moments = self.weight[chunk.rows], sums
            forward(made, self.features, chunk, self._rows_of(chunk), scratch, moments, past_caches)
            return sums, np.zeros(0) if more is None else more(chunk.rows)

        sums, further = np.zeros((2, K)), np.zeros(0) if more is None else 0.0 * more(slice(0, 0))
        for own, own_further in self.threads.map(work, self.chunks):
            sums += own
            further = further + own_further
        self._current, self._normalisation = made, None
        return sums, further

    def second_pass(
        self, centre: FloatArray, factor: FloatArray, derivatives: Derivatives, pick: Picker | None = None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """P = softmax((Z - centre) x factor) in the place of Z, then A = P'HP and B = P'G.

        Where `pick` chooses rows, A is made of those alone, and [sum h, sum h of A's rows] says what they stand for.
        """
        self._normalisation = centre, factor * PER_LOG_2
        runs = np.array_split(np.arange(len(self.chunks)), min(RUNS, len(self.chunks)) or 1)

        def work(run: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
            system: NormalEquations | None = None
            for number in run:
                chunk = self.chunks[number]
                g, h = derivatives(chunk.rows)
                z = self._outputs(chunk, self._current)
                system = system or NormalEquations(g, h, self.split, self.exact, self.threads.scratch)
                system.add(z, g, h, None if pick is None else pick(chunk.rows, h))
            if system is None:  # no rows at all: a worker whose share is empty
                g, h = derivatives(slice(0, 0))
                system = NormalEquations(g, h, self.split, self.exact, self.threads.scratch)
            return system.finished()

        parts = self.threads.map(work, runs)
        A, B, curvature = next(parts)
        for a, b, c in parts:
            A += a
            B += b
            curvature += c
        return symmetric(A), B, curvature

    def add_step(self, head: FloatArray, scores: FloatArray) -> None:
        """scores += P W"""
        add = product(head)

        def work(chunk: Chunk) -> None:
            add(self._memberships(chunk, self._current), scores[chunk.rows])

        self.threads.run(work, self.chunks)

    def sum_rows(self, values: RowSums) -> FloatArray:
        """The sum over chunks of what `values` gives for each, added in chunk order."""
        parts = self.threads.map(values, [chunk.rows for chunk in self.chunks])
        return np.asarray(sum(parts, 0.0 * values(slice(0, 0))), dtype=SUM)

    def _rows_of(self, chunk: Chunk) -> FloatArray:
        """Where Z and P of a chunk live."""
        return self._scratch(chunk) if self.buffer is None else self.buffer[chunk.rows]

    def _outputs(self, chunk: Chunk, made: Weights | None) -> FloatArray:
        """What the buffer keeps, Z or P; or Z made again."""
        z = self._rows_of(chunk)
        if self.buffer is None:
            assert made is not None, "the first pass comes first"
            forward(made, self.features, chunk, z, self.threads.scratch)
        return z

    def _memberships(self, chunk: Chunk, made: Weights | None) -> FloatArray:
        """P, after the second pass."""
        p = self._outputs(chunk, made)
        if self.buffer is None:
            rows.memberships(p, *self.split)
        return p

    @property
    def split(self) -> Split:
        """Centre, factor and group size of the current round's memberships."""
        assert self._normalisation is not None, "the second pass comes second"
        return *self._normalisation, self.family.softmax_width


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
