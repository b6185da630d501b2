"""The kernels of one set of rows: which chunk is computed when, into which memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gbun.data.features import Features
from gbun.dtypes import MEMBERSHIP, SUM, FloatArray, IntArray
from gbun.kernels import portable, products, rows
from gbun.kernels.blocks import Block, cut, make_dictionaries, row_chunks
from gbun.kernels.forward import Weights, forward, weights
from gbun.kernels.plan import Plan
from gbun.kernels.threads import Threads
from gbun.networks import Family, Network

Derivatives = Callable[[slice], tuple[FloatArray, FloatArray]]
Picker = Callable[[slice], IntArray]
"""The rows of a chunk, counted from its first, that the Hessian sums are made of."""

PER_LOG_2 = MEMBERSHIP(1.0 / np.log(2.0))  # e^v = 2^(v / log 2)
RUNS = 64  # partial sums of the normal equations that are added up in the end
FEW_ROWS = 2**12  # up to here the normal equations are in float64 throughout: rounding has no rows to average over


@dataclass(frozen=True)
class Step:
    """One round as rows meet it: P = softmax((X N - centre) x factor), scores += P head."""

    network: Network
    centre: FloatArray
    factor: FloatArray  # the temperature is part of it
    head: FloatArray


class Kernels:
    """Rounds applied to rows: outputs, memberships and scores of a block before the next; nothing of n x K is held."""

    def __init__(self, features: Features, family: Family, n_scores: int, threads: Threads, form: str = "auto") -> None:
        self.features, self.family, self.threads = features.contiguous(), family, threads
        self.chunks = [cut(features, chunk) for chunk in row_chunks(features.n_rows, family.n_outputs, n_scores)]
        self.blocks = [block for chunk in self.chunks for block in chunk]
        if features.sparse is not None and form != "hashed":
            make_dictionaries(features.sparse, self.blocks, threads, always=form == "dense")

    def add_rounds(self, steps: Sequence[Step], scores: FloatArray) -> None:
        """scores += P W for one round after the other."""
        made = [weights(step.network, self.features, keep=len(steps) == 1) for step in steps]

        def work(block: Block) -> None:
            z = self.threads.scratch.array("z", block.rows.stop - block.rows.start, self.family.n_outputs)
            for step, weights_ in zip(steps, made, strict=True):
                self._outputs(weights_, [block], z)
                self._split(step.centre, step.factor, z)
                _add_product(z, step.head, scores[block.rows])

        self.threads.run(work, self.blocks)

    def _outputs(self, made: Weights, blocks: Sequence[Block], z: FloatArray) -> None:
        """Z of neighbouring blocks."""
        for block in blocks:
            own = z[block.rows.start - blocks[0].rows.start : block.rows.stop - blocks[0].rows.start]
            for _ in forward(made, self.features, block, own, self.threads.scratch):
                pass

    def _split(self, centre: FloatArray, factor: FloatArray, z: FloatArray) -> None:
        rows.memberships(z, centre, factor * PER_LOG_2, self.family.softmax_width)


class TrainingKernels(Kernels):
    """The two passes of a round over training rows, and what a line search asks for between rounds.

    With a buffer of n x K, Z and then P stay in it from pass to pass. Without, each pass makes them again, chunk by
    chunk in a thread's own memory; the bits are the same.
    """

    def __init__(
        self, features: Features, family: Family, n_scores: int, plan: Plan, threads: Threads, weight: FloatArray
    ) -> None:
        super().__init__(features, family, n_scores, threads, plan.form)
        self.plan, self.weight = plan, np.ascontiguousarray(weight)
        self.buffer = np.empty((features.n_rows, family.n_outputs), dtype=MEMBERSHIP) if plan.hold else None
        self._made: Weights | None = None
        self._normalisation: tuple[FloatArray, FloatArray] | None = None

    def first_pass(self, network: Network, head: FloatArray | None, scores: FloatArray) -> FloatArray:
        """scores += P W with the P of the round before, unless `head` is None; Z = X N; [sum w z ; sum w z^2]."""
        before, made = self._made, weights(network, self.features, keep=True)
        K = self.family.n_outputs

        def work(block: Block) -> FloatArray:
            z, sums = self._rows_of([block]), np.zeros((2, K))
            if head is not None:
                self._memberships_again(before, [block], z)
                _add_product(z, head, scores[block.rows])
            for done in forward(made, self.features, block, z, self.threads.scratch):
                rows.add_moments(z, done.start, done.stop, self.weight[block.rows], sums)
            return sums

        sums = sum(self.threads.map(work, self.blocks), np.zeros((2, K)))
        self._made, self._normalisation = made, None
        return sums

    def second_pass(
        self, centre: FloatArray, factor: FloatArray, derivatives: Derivatives, pick: Picker | None = None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """P = softmax((Z - centre) x factor) in the place of Z, then A = P'HP and B = P'G.

        Where `pick` chooses rows, A is made of those alone, and [sum h, sum h of A's rows] says what share that is.
        """
        self._normalisation = centre, factor
        runs = np.array_split(np.arange(len(self.chunks)), min(RUNS, len(self.chunks)) or 1)
        exact = self.features.n_rows <= FEW_ROWS

        def work(run: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
            system: NormalEquations | None = None
            for number in run:
                blocks = self.chunks[number]
                at = slice(blocks[0].rows.start, blocks[-1].rows.stop)
                g, h = derivatives(at)
                p = self._rows_of(blocks)
                if self.buffer is None:
                    self._outputs(self._weights(), blocks, p)
                self._split(centre, factor, p)
                system = system or NormalEquations(self.family.n_outputs, h, g, exact, self.threads)
                system.add(p, g, h, None if pick is None else pick(at))
            if system is None:  # no rows at all: a worker whose share is empty
                g, h = derivatives(slice(0, 0))
                system = NormalEquations(self.family.n_outputs, h, g, exact, self.threads)
            return system.A, system.B, system.curvature

        parts = self.threads.map(work, runs)
        A, B, curvature = next(parts)
        for a, b, c in parts:
            A += a
            B += b
            curvature += c
        return A, B, curvature

    def add_step(self, head: FloatArray, scores: FloatArray) -> None:
        """scores += P W"""

        def work(block: Block) -> None:
            z = self._rows_of([block])
            self._memberships_again(self._made, [block], z)
            _add_product(z, head, scores[block.rows])

        self.threads.run(work, self.blocks)

    def sum_rows(self, values: Callable[[slice], FloatArray]) -> FloatArray:
        """The sum over chunks of what `values` gives for each, added in chunk order."""
        chunks = [slice(blocks[0].rows.start, blocks[-1].rows.stop) for blocks in self.chunks]
        return np.asarray(sum(self.threads.map(values, chunks), np.zeros(())), dtype=SUM)

    def _rows_of(self, blocks: Sequence[Block]) -> FloatArray:
        """Where Z and P of these neighbouring blocks live."""
        first, last = blocks[0].rows.start, blocks[-1].rows.stop
        if self.buffer is not None:
            return self.buffer[first:last]
        return self.threads.scratch.array("z", last - first, self.family.n_outputs)

    def _memberships_again(self, made: Weights | None, blocks: Sequence[Block], z: FloatArray) -> None:
        """P of the last round, where no buffer kept it."""
        if self.buffer is None:
            assert made is not None
            assert self._normalisation is not None
            self._outputs(made, blocks, z)
            self._split(*self._normalisation, z)

    def _weights(self) -> Weights:
        assert self._made is not None, "the first pass comes first"
        return self._made


class NormalEquations:
    """A = P'HP, B = P'G and sum h over some chunks. float32 within a chunk and float64 across, or `exact`: float64.

    With one Hessian for all scores A is K x K; with one for each, C x K x K.
    """

    def __init__(self, n_outputs: int, h: FloatArray, g: FloatArray, exact: bool, threads: Threads) -> None:
        K, C = n_outputs, g.shape[1]
        self.A = np.zeros((K, K) if h.ndim == 1 else (C, K, K), dtype=SUM)
        self.B = np.zeros((K, C), dtype=SUM)
        self.curvature = np.zeros((2,) if h.ndim == 1 else (2, C), dtype=SUM)
        self.exact, self.scratch = exact, threads.scratch

    def add(self, p: FloatArray, g: FloatArray, h: FloatArray, picked: IntArray | None) -> None:
        if picked is not None:
            self.curvature[0] += h.sum(axis=0)
            h = h[picked]
            self.curvature[1] += h.sum(axis=0)
        if self.exact:
            A, _ = portable.normal_equations(p if picked is None else p[picked], np.zeros((len(h), 0)), h)
            self.A += A
            self.B += p.T.astype(SUM) @ g
            return
        if picked is None:
            picked = np.arange(len(p))
        if g.shape[1] == 1:
            rows.add_gradient_sums(p, g[:, 0].astype(MEMBERSHIP), self.B[:, 0])
        else:
            self.B += p.T @ g.astype(MEMBERSHIP)
        for c, target in enumerate(self.A if h.ndim == 2 else [self.A]):
            root = np.sqrt(h if h.ndim == 1 else h[:, c]).astype(MEMBERSHIP)
            target += self._gram(p, picked, root)

    def _gram(self, p: FloatArray, picked: IntArray, root: FloatArray) -> FloatArray:
        """Q'Q with Q = sqrt(H) P: BLAS makes one triangle of it and mirrors that."""
        K = p.shape[1]
        q, gram = self.scratch.array("q", len(picked), K), self.scratch.array("gram", K, K)
        rows.scaled_rows(p, picked, root, q)
        np.matmul(q.T, q, out=gram)
        return gram


def _add_product(p: FloatArray, head: FloatArray, scores: FloatArray) -> None:
    """scores += P W, the product in float32."""
    if head.shape[1] == 1:
        rows.add_dots(p, head[:, 0], scores)
    else:
        step = np.zeros((len(p), head.shape[1]), dtype=MEMBERSHIP)
        products.multiply_add(p, products.panels_of(head), step)
        scores += step
