"""The normal equations of a round, part by part: Z becomes P, and A = P'HP, B = P'G are summed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gbun.arrays import Array, to_host
from gbun.devices import Device
from gbun.dtypes import MEMBERSHIP, SUM, FloatArray
from gbun.kernels import portable, rows
from gbun.kernels.chunks import gram_rows
from gbun.kernels.interface import NormalEquations, SampledRows
from gbun.kernels.threads import Scratch

Softmax = tuple[Array, Array, int]
"""Centre and slope of each output, as the kernels take them, and how many outputs share a softmax."""
PickRows = Callable[[FloatArray], SampledRows]
"""h of a part -> the rows that A is made of, and their h."""

LARGEST_OWN_GRAM = 128  # up to this K our own kernel computes the Gram, without a copy of P; BLAS is for larger ones


class EquationSums:
    """A = P'HP, B = P'G and sum h over some chunks, by the compiled kernels.

    Sums are float32 within a chunk and float64 across chunks; where `exact`, float64 throughout. The slope of `softmax`
    is that of powers of two.
    """

    def __init__(self, g: FloatArray, h: FloatArray, softmax: Softmax, exact: bool, scratch: Scratch) -> None:
        K = len(softmax[0])
        self.A, self.B = np.zeros((*h.shape[1:], K, K), dtype=SUM), np.zeros((K, g.shape[1]), dtype=SUM)
        self.curvature = np.zeros((2, *h.shape[1:]), dtype=SUM)
        self.exact, self.softmax, self.scratch = exact, softmax, scratch
        self.fuses_gram = K <= LARGEST_OWN_GRAM and K % 16 == 0
        self.n_outputs, self.capacity, self.waiting = K, gram_rows(K), 0

    def add(self, z: FloatArray, g: FloatArray, h: FloatArray, pick: PickRows | None) -> None:
        """Turn Z of a chunk into P and add its sums; A from the picked rows, if rows are picked."""
        picked = np.arange(len(z))
        if pick is not None:
            self.curvature[0] += h.sum(axis=0)
            picked, h = pick(h)
            self.curvature[1] += h.sum(axis=0)
        if self.exact:
            rows.to_memberships(z, *self.softmax)
            p = z.astype(SUM)
            self.A += portable.grams(p[picked], h)
            self.B += p.T @ g
        elif g.shape[1] == 1 and h.ndim == 1:
            self._add_single(z, g[:, 0].astype(MEMBERSHIP), picked, np.sqrt(h).astype(MEMBERSHIP))
        else:
            rows.to_memberships(z, *self.softmax)
            self.B += z.T @ g.astype(MEMBERSHIP)
            for c, A in enumerate(self.A if h.ndim == 2 else [self.A]):
                root = np.sqrt(h if h.ndim == 1 else h[:, c]).astype(MEMBERSHIP)
                for first in range(0, len(picked), self.capacity):
                    at = slice(first, first + self.capacity)
                    rows.scale_rows(z, picked[at], root[at], self._reserve_rows(len(picked[at]), A))
                if h.ndim == 2:
                    self._flush(A)

    def _add_single(self, z: FloatArray, g: FloatArray, picked: Array, root: FloatArray) -> None:
        """Add a chunk with one score and one Hessian, each few rows of which are read once."""
        sums = self.B[:, 0]
        if self.fuses_gram:
            rows.to_memberships_and_gram(z, self.softmax, g, sums, picked, root, self.A)
            return
        for first in range(0, len(z), self.capacity):
            at = slice(first, first + self.capacity)
            inside = slice(*np.searchsorted(picked, [at.start, at.stop]))
            q = self._reserve_rows(inside.stop - inside.start)
            rows.split(z[at], self.softmax, g[at], sums, picked[inside] - first, root[inside], q)

    def _reserve_rows(self, n_rows: int, A: FloatArray | None = None) -> FloatArray:
        """Return room for the next rows of Q = sqrt(H) P. Rows are collected until a Gram of them pays."""
        q = self.scratch.array("q", self.capacity, self.n_outputs)
        if self.waiting + n_rows > self.capacity:
            self._flush(self.A if A is None else A)
        self.waiting += n_rows
        return q[self.waiting - n_rows : self.waiting]

    def _flush(self, A: FloatArray) -> None:
        """A += Q'Q: BLAS computes one triangle and mirrors it."""
        q = self.scratch.array("q", self.capacity, self.n_outputs)[: self.waiting]
        gram = self.scratch.array("gram", self.n_outputs, self.n_outputs)
        np.matmul(q.T, q, out=gram)
        A += gram
        self.waiting = 0

    def finish(self) -> NormalEquations:
        """Return the sums; of A the lower triangle is right."""
        if self.waiting:
            self._flush(self.A)
        return NormalEquations(self.A, self.B, self.curvature)


@dataclass(frozen=True)
class EquationBuffers:
    """Working memory for the normal equations of batches of up to b rows, allocated once."""

    scaled: Array  # b x K: sqrt(H) P
    gradient: Array  # b x C: G in the dtype of P
    sampled: Array | None  # b x K: the picked rows of P
    exact: Array | None  # b x K, float64: P, where sums are exact


class DeviceEquationSums:
    """A = P'HP, B = P'G and sum h over batches, by the portable kernels; totals are float64.

    A device without float64 leaves the totals to the host.
    """

    def __init__(self, g: Array, h: Array, softmax: Softmax, buffers: EquationBuffers, device: Device) -> None:
        K = len(softmax[0])
        self.softmax, self.buffers, self.device = softmax, buffers, device
        totals = np.zeros((*h.shape[1:], K, K), dtype=SUM), np.zeros((K, g.shape[1]), dtype=SUM)
        self.A, self.B = (device.put(total) if device.has_float64 else total for total in totals)
        self.curvature = np.zeros((2, *h.shape[1:]))

    def add(self, z: Array, g: Array, h: Array, pick: PickRows | None) -> None:
        """Turn Z of a batch into P and add its sums; A from the picked rows, if rows are picked."""
        p, buffers, device = z, self.buffers, self.device
        portable.to_memberships(p, *self.softmax)
        if buffers.exact is not None:
            p = buffers.exact[: len(z)]
            p[...] = z
        self._add(self.B, portable.multiply_transposed(p, g, buffers.gradient))
        if pick is not None:
            whole = to_host(h)  # rows are picked by a hash that the host computes
            picked, picked_h = pick(whole)
            self.curvature += np.array([whole.sum(axis=0, dtype=SUM), picked_h.sum(axis=0, dtype=SUM)])
            p = portable.take_rows_into(p, device.put(picked, np.int64), buffers.sampled)
            h = device.put(picked_h, device.score_dtype)
        self._add(self.A, portable.grams(p, h, buffers.scaled[: len(z)]))

    def _add(self, total: Array, part: Array) -> None:
        total += part if self.device.has_float64 else to_host(part)

    def finish(self) -> NormalEquations:
        return NormalEquations(to_host(self.A).astype(SUM), to_host(self.B).astype(SUM), self.curvature)
