"""The round's arithmetic on one chunk of rows, as the formulas have it."""

from __future__ import annotations

import numpy as np

from gbun.dtypes import SUM, FloatArray


def moments(z: FloatArray, weight: FloatArray) -> FloatArray:
    """[sum w z ; sum w z^2], 2 x K.

    z is float32 and the sums are float64: for outputs r deviations away from zero the variance loses 1e-16 r^2 of
    itself where z has already lost 6e-8 r, so these plain sums are never what limits accuracy.
    """
    z64 = z.astype(SUM)
    first = weight @ z64
    np.square(z64, out=z64)
    return np.stack([first, weight @ z64])


def memberships(z: FloatArray, centre: FloatArray, factor: FloatArray, width: int) -> FloatArray:
    """z <- softmax over groups of `width` outputs of (z - centre) x factor, in place. tau is part of the factor."""
    z -= centre
    z *= factor
    groups = z.reshape(len(z), z.shape[1] // width, width)
    groups -= groups.max(axis=2, keepdims=True)
    np.exp(groups, out=groups)
    groups /= groups.sum(axis=2, keepdims=True)
    return z


def gram(p: FloatArray, h: FloatArray) -> FloatArray:
    """P'HP for one Hessian value a row. (HP)'P is written as Q'Q, Q = sqrt(H) P: half the arithmetic."""
    q = p * np.sqrt(h)[:, None]
    return np.asarray(q.T @ q)


def grams(p: FloatArray, h: FloatArray) -> FloatArray:
    """P'HP: K x K, or C x K x K when h has a column per output."""
    return gram(p, h) if h.ndim == 1 else np.stack([gram(p, h[:, c]) for c in range(h.shape[1])])
