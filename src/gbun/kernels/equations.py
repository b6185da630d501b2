"""The normal equations of a round, chunk by chunk: Z becomes P, and A = P'HP, B = P'G are summed."""

from __future__ import annotations

import numpy as np

from gbun.dtypes import MEMBERSHIP, SUM, FloatArray, IntArray
from gbun.kernels import portable, rows
from gbun.kernels.chunks import gram_rows
from gbun.kernels.threads import Scratch

Split = tuple[FloatArray, FloatArray, int]
"""Centre and factor of each output, in powers of two, and how many outputs share a softmax."""
Picked = tuple[IntArray, FloatArray]
"""Rows of a chunk, counted from its first and ascending, and their h."""

OWN_GRAM = 128  # up to this K the Gram is made by our own kernel, which needs no copy of P; BLAS is for large ones


class NormalEquations:
    """A = P'HP, B = P'G and sum h over some chunks. float32 within a chunk and float64 across, or `exact`: float64.

    With one Hessian for all scores A is K x K; with one for each, C x K x K.
    """

    def __init__(self, g: FloatArray, h: FloatArray, split: Split, exact: bool, scratch: Scratch) -> None:
        """g and h tell the number of scores and of Hessians, `split` how Z becomes P."""
        K, C = len(split[0]), g.shape[1]
        self.A = np.zeros((K, K) if h.ndim == 1 else (C, K, K), dtype=SUM)
        self.B = np.zeros((K, C), dtype=SUM)
        self.curvature = np.zeros((2,) if h.ndim == 1 else (2, C), dtype=SUM)
        self.exact, self.split, self.scratch = exact, split, scratch
        self.own_gram = K <= OWN_GRAM and K % 16 == 0
        self.n_outputs, self.capacity, self.waiting = K, gram_rows(K), 0

    def add(self, z: FloatArray, g: FloatArray, h: FloatArray, sample: Picked | None) -> None:
        """Turn a chunk's Z into P and add what it has to say; A from the sample's rows, if there is one."""
        picked = np.arange(len(z))
        if sample is not None:
            self.curvature[0] += h.sum(axis=0)
            picked, h = sample
            self.curvature[1] += h.sum(axis=0)
        if self.exact:
            rows.memberships(z, *self.split)
            p = z.astype(SUM)
            self.A += portable.grams(p[picked], h)
            self.B += p.T @ g
        elif g.shape[1] == 1 and h.ndim == 1 and self.own_gram:
            root = np.sqrt(h).astype(MEMBERSHIP)
            rows.split_and_gram(z, *self.split, g[:, 0].astype(MEMBERSHIP), self.B[:, 0], picked, root, self.A)
        elif g.shape[1] == 1 and h.ndim == 1:
            g32, root = g[:, 0].astype(MEMBERSHIP), np.sqrt(h).astype(MEMBERSHIP)
            for first in range(0, len(z), self.capacity):
                at = slice(first, first + self.capacity)
                own = slice(*np.searchsorted(picked, [at.start, at.stop]))
                q = self._room_for(own.stop - own.start)
                rows.split(z[at], *self.split, g32[at], self.B[:, 0], picked[own] - first, root[own], q)
        else:
            rows.memberships(z, *self.split)
            self.B += z.T @ g.astype(MEMBERSHIP)
            for c, A in enumerate(self.A if h.ndim == 2 else [self.A]):
                root = np.sqrt(h if h.ndim == 1 else h[:, c]).astype(MEMBERSHIP)
                for first in range(0, len(picked), self.capacity):
                    own = slice(first, first + self.capacity)
                    rows.scaled_rows(z, picked[own], root[own], self._room_for(len(picked[own]), A))
                if h.ndim == 2:
                    self._flush(A)

    def _room_for(self, n_rows: int, A: FloatArray | None = None) -> FloatArray:
        """Where the next rows of Q = sqrt(H) P go. A few rows wait until there are enough to make a Gram pay."""
        q = self.scratch.array("q", self.capacity, self.n_outputs)
        if self.waiting + n_rows > self.capacity:
            self._flush(self.A if A is None else A)
        self.waiting += n_rows
        return q[self.waiting - n_rows : self.waiting]

    def _flush(self, A: FloatArray) -> None:
        """A += Q'Q: BLAS makes one triangle of it and mirrors that."""
        q = self.scratch.array("q", self.capacity, self.n_outputs)[: self.waiting]
        gram = self.scratch.array("gram", self.n_outputs, self.n_outputs)
        np.matmul(q.T, q, out=gram)
        A += gram
        self.waiting = 0

    def finished(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        if self.waiting:
            self._flush(self.A)
        return self.A, self.B, self.curvature


def symmetric(A: FloatArray) -> FloatArray:
    """The lower triangle, mirrored."""
    lower = np.tril(A)
    return lower + np.swapaxes(np.tril(A, -1), -1, -2)
