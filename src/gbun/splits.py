"""Dividing rows at random: into folds, or into rows that train and rows that watch."""

from __future__ import annotations

import numpy as np

from gbun.data.features import Shard
from gbun.dtypes import FloatArray, IntArray


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


def hold_out(shard: Shard, fraction: float, seed: int, by_class: bool) -> tuple[Shard, Shard]:
    """The rows to train on, and a random share of them held out to watch."""
    n_held = round(fraction * shard.n_rows)
    if not 0 < n_held < shard.n_rows:
        raise ValueError(
            f"validation_fraction={fraction} of {shard.n_rows} rows leaves a side empty; pass an evaluation set, or "
            "train without early stopping"
        )
    # Every n-th row of the shuffled (and, with classes, sorted) rows, n = 1 / fraction
    order = shuffled(shard.y, seed, by_class)
    at = np.floor(np.arange(n_held) * (shard.n_rows / n_held)).astype(np.intp)
    held = np.zeros(shard.n_rows, dtype=bool)
    held[order[at]] = True
    return shard.take(np.flatnonzero(~held)), shard.take(np.flatnonzero(held))
