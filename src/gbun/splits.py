"""Random division of rows: folds, and held-out rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gbun.collectives import Collective
from gbun.data.features import Features
from gbun.dtypes import SUM, FloatArray, IntArray
from gbun.kernels.sampling import content_keys, mix_bits


def assign_folds(y: FloatArray, n_parts: int, seed: int, by_class: bool) -> IntArray:
    """Deal rows to folds 0 .. n_parts-1 in random order, class after class if `by_class`.

    >>> assign_folds(np.array([0, 0, 1, 1]), n_parts=2, seed=0, by_class=True)
    array([0, 1, 0, 1])
    """
    order = np.random.default_rng(seed).permutation(len(y))
    if by_class:
        order = order[np.argsort(y[order], kind="stable")]
    part = np.empty(len(y), dtype=np.intp)
    part[order] = np.arange(len(y)) % n_parts
    return part


def choose_held_out(
    features: Features,
    y: FloatArray,
    weight: FloatArray,
    fraction: float,
    seed: int,
    by_class: bool,
    collective: Collective,
) -> NDArray[np.bool_] | None:
    """Choose the held-out rows: about `fraction` of the weight of all workers' rows, or of each class if `by_class`.

    A row is held out by a hash of its content. So neither the order of rows nor their division among workers matters,
    equal rows stay together, and a weight of 2 is the row twice. The hash below which rows are held out is found by
    bisection, from sums of weights. The result is None if no rows, or all of them, would be held out.
    """
    chance, one_part = hash_rows_to_unit(features, y, seed), np.zeros(len(y), dtype=np.intp)
    held = chance < _find_threshold(chance, y.astype(np.intp) if by_class else one_part, weight, fraction, collective)
    if by_class and not collective.sum(np.array([weight[held].sum()]))[0] > 0.0:  # classes of a few rows each
        held = chance < _find_threshold(chance, one_part, weight, fraction, collective)
    n_held, n_rows = collective.sum(np.array([weight[held].sum(), weight.sum()]))
    return np.asarray(held) if 0.0 < n_held < n_rows else None


def hash_folds(features: Features, y: FloatArray, seed: int, n_folds: int) -> IntArray:
    """Assign each row to a fold 0 .. n_folds-1 by a hash of its content, so that equal rows are in the same fold."""
    return np.asarray(hash_rows_to_unit(features, y, seed) * n_folds, dtype=np.intp)


def hash_rows_to_unit(features: Features, y: FloatArray, seed: int) -> FloatArray:
    """Return a number in [0, 1) for each row, equal for rows with equal features and target."""
    keys = content_keys(features, y) ^ mix_bits(np.array([seed], dtype=np.uint64))
    return np.asarray((mix_bits(keys) >> np.uint64(11)) * 2.0**-53)


def sum_weights_by_part(part: IntArray, weight: FloatArray, n_parts: int) -> FloatArray:
    """Return the weight of each part, in float64 also without rows, of which np.bincount would return integers."""
    return np.bincount(part, weight, n_parts).astype(SUM, copy=False)


def _find_threshold(
    chance: FloatArray, part: IntArray, weight: FloatArray, fraction: float, collective: Collective
) -> FloatArray:
    """Return for each row the largest threshold with at most `fraction` of the weight of its part below it."""
    largest = collective.gather(np.array([float(part.max(initial=0))]))
    n_parts = int(collective.broadcast(np.zeros(1) if largest is None else np.max(largest, axis=0))[0]) + 1
    wanted = collective.sum(sum_weights_by_part(part, weight, n_parts)) * fraction * (1.0 + 1e-9)
    low, high = np.zeros(n_parts), np.ones(n_parts)
    for _ in range(53):
        middle = 0.5 * (low + high)
        fits = collective.sum(sum_weights_by_part(part, weight * (chance < middle[part]), n_parts)) <= wanted
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return low[part]
