"""Dividing rows at random: into folds, or into rows that train and rows that watch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gbun.collectives import Collective
from gbun.data.features import Features
from gbun.dtypes import SUM, FloatArray, IntArray
from gbun.kernels.sampling import content_keys, mixed


def shuffled(y: FloatArray, seed: int, by_class: bool) -> IntArray:
    """All rows in random order, class after class when asked for."""
    order = np.random.default_rng(seed).permutation(len(y))
    return order[np.argsort(y[order], kind="stable")] if by_class else order


def deal(y: FloatArray, n_parts: int, seed: int, by_class: bool) -> IntArray:
    """A part (0 .. n_parts-1) for each row, dealt like cards, class by class when asked for.

    >>> deal(np.array([0, 0, 1, 1]), n_parts=2, seed=0, by_class=True)
    array([0, 1, 0, 1])
    """
    part = np.empty(len(y), dtype=np.intp)
    part[shuffled(y, seed, by_class)] = np.arange(len(y)) % n_parts
    return part


def held_out(
    features: Features,
    y: FloatArray,
    weight: FloatArray,
    fraction: float,
    seed: int,
    by_class: bool,
    collective: Collective,
) -> NDArray[np.bool_] | None:
    """The rows to judge by: about `fraction` of the weight of all workers' rows, and of each class where asked for.

    None where that leaves a side empty.

    A row is held out by a hash of what it holds, so neither the order of rows nor their division among workers
    matters, equal rows stay together, and a weight of 2 is the row twice. The hash below which rows are held out is
    found by bisection, from sums of weights.
    """
    chance, all_rows = chances(features, y, seed), np.zeros(len(y), dtype=np.intp)
    held = chance < _threshold(chance, y.astype(np.intp) if by_class else all_rows, weight, fraction, collective)
    if by_class and not collective.sum(np.array([weight[held].sum()]))[0] > 0.0:  # classes of a few rows each
        held = chance < _threshold(chance, all_rows, weight, fraction, collective)
    n_held, n_rows = collective.sum(np.array([weight[held].sum(), weight.sum()]))
    return np.asarray(held) if 0.0 < n_held < n_rows else None


def folds(features: Features, y: FloatArray, seed: int, n_folds: int) -> IntArray:
    """A fold (0 .. n_folds-1) for each row by a hash of what it holds, so that equal rows are in the same one."""
    return np.asarray(chances(features, y, seed) * n_folds, dtype=np.intp)


def chances(features: Features, y: FloatArray, seed: int) -> FloatArray:
    """A number in [0, 1) for each row, the same for rows with the same features and target."""
    keys = content_keys(features, y) ^ mixed(np.array([seed], dtype=np.uint64))
    return np.asarray((mixed(keys) >> np.uint64(11)) * 2.0**-53)


def weights_of(part: IntArray, weight: FloatArray, n_parts: int) -> FloatArray:
    """The weight of each part; in float64 also where there is no row, of which NumPy makes integers."""
    return np.bincount(part, weight, n_parts).astype(SUM, copy=False)


def _threshold(
    chance: FloatArray, part: IntArray, weight: FloatArray, fraction: float, collective: Collective
) -> FloatArray:
    """For each row, the largest threshold by which no more than `fraction` of its part's weight is below."""
    n_parts = int(_largest(part, collective)) + 1
    wanted = collective.sum(weights_of(part, weight, n_parts)) * fraction * (1.0 + 1e-9)
    low, high = np.zeros(n_parts), np.ones(n_parts)
    for _ in range(53):
        middle = 0.5 * (low + high)
        fits = collective.sum(weights_of(part, weight * (chance < middle[part]), n_parts)) <= wanted
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return low[part]


def _largest(part: IntArray, collective: Collective) -> float:
    parts = collective.gather(np.array([float(part.max(initial=0))]))
    return float(collective.broadcast(np.zeros(1) if parts is None else np.max(parts, axis=0))[0])
