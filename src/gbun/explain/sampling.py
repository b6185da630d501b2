"""Sampled Shapley values, for every learner: features are added one after the other, in random orders.

In an order of the features that are present, each feature gets the change of the score when its value replaces that of
the baseline. The changes of one order add up to the difference of the scores. Orders come in pairs, one the reverse of
the other, so that a feature that comes early in one comes late in the other; a value is the mean over pairs, and its
standard error follows from their spread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gbun.data.features import Entries, Features
from gbun.dtypes import FloatArray, IntArray

MOST_ROWS = 2**12  # hybrids that are scored at a time

Score = Callable[[Features], FloatArray]


@dataclass(frozen=True)
class Players:
    """Which features of one row take part together: the number of each dense column's player, of each entry's, ...

    `dense`, `entries` and `categories` name the player of each column, entry of the row and of the baseline, and column
    of categories; -1 for those that are alike in both.
    """

    n: int
    dense: IntArray
    entries: IntArray
    base_entries: IntArray
    categories: IntArray


def sample_values(
    row: Features, base: Features, players: Players, score: Score, n_pairs: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Return Shapley values of the players of one row, (n, C), and their standard errors."""
    totals: FloatArray | None = None
    squares: FloatArray | None = None
    for _ in range(n_pairs):
        order = rng.permutation(players.n)
        changes = 0.5 * (
            changes_along(row, base, players, score, order) + changes_along(row, base, players, score, order[::-1])
        )
        totals = changes if totals is None else totals + changes
        squares = changes**2 if squares is None else squares + changes**2
    assert totals is not None
    assert squares is not None
    mean = totals / n_pairs
    variance = np.maximum(squares / n_pairs - mean**2, 0.0) * (n_pairs / max(1, n_pairs - 1))
    return mean, np.sqrt(variance / n_pairs) if n_pairs > 1 else np.full_like(mean, np.nan)


def changes_along(row: Features, base: Features, players: Players, score: Score, order: IntArray) -> FloatArray:
    """Return the change of the score as each player joins, in the numbers of players."""
    rank = np.empty(players.n, dtype=np.int64)
    rank[order] = np.arange(players.n)
    scores = []
    for first in range(0, players.n + 1, MOST_ROWS):
        joined = np.arange(first, min(first + MOST_ROWS, players.n + 1))  # how many have
        scores.append(score(mix_rows(row, base, players, rank, joined)))
    steps = np.diff(np.concatenate(scores), axis=0)
    return np.asarray(steps[rank])


def mix_rows(row: Features, base: Features, players: Players, rank: IntArray, joined: IntArray) -> Features:
    """Return rows in which the first players by rank have the row's values, and all others the baseline's."""
    n = len(joined)

    def of_row(numbers: IntArray) -> FloatArray:
        return (rank[numbers][None, :] < joined[:, None]) | (numbers < 0)[None, :]

    dense = raw = categories = sparse = None
    if row.dense is not None and base.dense is not None:
        dense = np.where(of_row(players.dense), row.dense, base.dense)
    if row.raw is not None and base.raw is not None:
        raw = np.where(of_row(players.dense), row.raw, base.raw)
    if row.categories is not None and base.categories is not None:
        categories = np.where(of_row(players.categories), row.categories, base.categories)
    if row.sparse is not None and base.sparse is not None:
        taken = np.concatenate([of_row(players.entries), ~of_row(players.base_entries)], axis=1)
        ids = np.concatenate([row.sparse.ids, base.sparse.ids])
        values = np.concatenate([row.sparse.values, base.sparse.values])
        where, entry = np.nonzero(taken)
        indptr = np.concatenate([[0], np.cumsum(np.bincount(where, minlength=n))]).astype(np.int64)
        sparse = Entries(indptr, ids[entry], values[entry])
    return Features(n, dense, sparse, raw, categories)
