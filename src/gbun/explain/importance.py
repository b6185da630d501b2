"""Importances: one number for each column of a model, or for groups of columns.

gain           what the splits by a column gained in training, of trees; half to each column of a projection
contribution   the mean absolute contribution of a column to the scores of rows
permutation    how much worse a metric gets when a column, or a group of columns, is shuffled among rows
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from gbun.agreement import decide_at_root
from gbun.collectives import Collective
from gbun.data.features import Entries, Features, Schema
from gbun.data.scaling import Scaling
from gbun.dtypes import MEMBERSHIP, FloatArray
from gbun.ensemble import Ensemble
from gbun.explain.explanation import Explanation, check_top
from gbun.learners import TreePartition
from gbun.linear import LinearStart
from gbun.networks import hash_name

KINDS = ("gain", "contribution", "permutation")
STANDARD_ROWS = 256


@dataclass(frozen=True)
class Importance:
    """The importance of columns, of one kind.

    Attributes
    ----------
    values : ndarray of shape (m,)
    names : tuple of str
    kind : str
    errors : ndarray of shape (m,), optional
        Standard errors over repetitions, of permutations.
    shared_with : dict
        Where features are names, and a linear start keeps their weights by a hash: of features whose weight is that of
        others too, the names of those others, as far as rows have them.
    """

    values: FloatArray
    names: tuple[str, ...]
    kind: str
    errors: FloatArray | None = None
    shared_with: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def ranked(self, top: int | None = None) -> list[tuple[str, float]]:
        """Return names and values, the largest first.

        >>> Importance(np.array([1.0, 3.0]), ("age", "size"), "gain").ranked()
        [('size', 3.0), ('age', 1.0)]
        """
        order = np.argsort(-self.values, kind="stable")[:top]
        return [(self.names[j], float(self.values[j])) for j in order]

    def top(self, n: int) -> Importance:
        """Keep the n largest."""
        check_top(n)
        order = np.argsort(-self.values, kind="stable")[:n]
        errors = None if self.errors is None else self.errors[order]
        names = tuple(self.names[j] for j in order)
        shared = {name: self.shared_with[name] for name in names if name in self.shared_with}
        return Importance(self.values[order], names, self.kind, errors, shared)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {value:.3g}" for name, value in self.ranked(5))
        more = f", and {len(self.values) - 5:,} more" if len(self.values) > 5 else ""
        return f"<Importance by {self.kind}: {shown}{more}>"


@dataclass(frozen=True)
class LinearWeights:
    """Weights of the linear start, for scaled features: theta.

    Attributes
    ----------
    names : tuple of str
    values : ndarray of shape (m,), or (m, C) with several scores
    shared_with : dict
        The other names, of those that were asked for, whose features have the same place in the table of weights.
    """

    names: tuple[str, ...]
    values: FloatArray
    shared_with: Mapping[str, tuple[str, ...]]


def gain_of_columns(ensemble: Ensemble, schema: Schema) -> FloatArray:
    """Sum the gains of splits by column: (m,), those of dense columns and of categories in their places."""
    partitions = [step.partition for step in ensemble.steps if isinstance(step.partition, TreePartition)]
    if not partitions and not ensemble.learner.splits_columns:
        raise ValueError(
            f"kind='gain' needs trees, and this model has learner {ensemble.learner.kind!r}; pass rows and "
            "kind='contribution'"
        )
    dense, categories = schema.places()
    gains = np.zeros(int(schema.n_columns or 0))
    for partition in partitions:
        tree, m = partition.tree, len(partition.fill)
        pages = partition.categories.pages
        by_category = tree.column >= m
        np.add.at(gains, categories[pages[tree.column[by_category] - m, 0]], tree.gain[by_category])
        projected = ~by_category & (tree.other >= 0)
        plain = ~by_category & ~projected
        np.add.at(gains, dense[tree.column[plain]], tree.gain[plain])
        for column in (tree.column, tree.other):
            np.add.at(gains, dense[column[projected]], 0.5 * tree.gain[projected])
    return gains


def draw_standard_rows(scaling: Scaling, n_columns: int, seed: int) -> Features:
    """Return rows that stand for data nobody has any more: their columns, scaled, are independent standard normal."""
    rows = np.random.default_rng(seed).standard_normal((STANDARD_ROWS, n_columns))
    return Features(STANDARD_ROWS, scaling.unscale_dense(rows))


def make_single_features(n_columns: int, value: float = 1.0) -> Features:
    """Return scaled rows of one feature each."""
    ids, values = np.arange(n_columns, dtype=np.int64), np.full(n_columns, value, dtype=MEMBERSHIP)
    return Features(n_columns, sparse=Entries(np.arange(n_columns + 1), ids, values))


def mean_contributions(
    explained: Explanation | None, schema: Schema, linear: LinearStart | None, collective: Collective
) -> Importance:
    """Return the mean absolute contributions over the rows of all workers; None is a worker without rows."""
    shared: dict[str, tuple[str, ...]] = {}
    if schema.n_columns is None:  # each worker knows the features of its own rows
        known = [] if explained is None or explained.ids is None else [int(i) for i in explained.ids]
        named = [] if explained is None or explained.names is None else list(explained.names)
        ids, found = decide_at_root(collective, (known, named), merge_names)
        names, columns = tuple(found), np.searchsorted(np.array(ids, np.uint64), np.array(known, np.uint64))
        if linear is not None and linear.buckets is not None:
            shared = find_shared(names, linear.buckets.place(np.array(ids, np.uint64))[0].tolist())
    else:
        names = schema.column_names
        columns = np.arange(schema.n_columns)
    sums = np.zeros(len(names) + 1)  # the last one counts rows
    if explained is not None:
        sums[columns], sums[-1] = explained.sum_abs(), explained.n_rows
    sums = collective.sum(sums)
    if not sums[-1]:
        raise ValueError("X has no rows")
    return Importance(sums[:-1] / sums[-1], names, "contribution", shared_with=shared)


def merge_names(parts: Sequence[tuple[Sequence[int], Sequence[str]]]) -> tuple[list[int], list[str]]:
    """Return the ids of all features, ascending, and their names.

    A worker that has a feature in its background rows alone knows its id only.

    >>> merge_names([([1, 7], ["b", "id 7"]), ([3, 7], ["c", "a"])])
    ([1, 3, 7], ['b', 'c', 'a'])
    """
    names: dict[int, str] = {}
    for ids, own in parts:
        for i, name in zip(ids, own, strict=True):
            if i not in names or names[i] == f"id {i}":
                names[i] = name
    return sorted(names), [names[i] for i in sorted(names)]


def linear_weights(linear: LinearStart, schema: Schema, names: Sequence[str] | None) -> LinearWeights:
    """Look up the weights of columns, or of features by name."""
    n_dense = linear.n_dense
    if names is None and linear.buckets is not None and linear.buckets.hashed:
        raise ValueError(
            "names must say which weights: this model keeps those of sparse features by a hash, and does not know names"
        )
    columns = schema.dense_names
    if isinstance(names, (str, bytes)) or (names is not None and not all(isinstance(name, str) for name in names)):
        raise ValueError(f"names must be a sequence of str, got {names!r}")
    wanted = columns if names is None else tuple(names)
    places = [_place(name, columns if n_dense else (), linear, schema) for name in wanted]
    values = np.array([sign * linear.weights[place] for place, sign in places]).reshape(len(wanted), -1)
    shared = find_shared(wanted, [place for place, _ in places])
    return LinearWeights(wanted, values[:, 0] if values.shape[1] == 1 else values, shared)


def find_shared(names: Sequence[str], places: Sequence[int]) -> dict[str, tuple[str, ...]]:
    """Return the other names in the place of each name that is not alone in it.

    >>> find_shared(["a", "b", "c"], [7, 2, 7])
    {'a': ('c',), 'c': ('a',)}
    """
    by_place: dict[int, list[str]] = {}
    for name, place in zip(names, places, strict=True):
        by_place.setdefault(place, []).append(name)
    of_name = dict(zip(names, places, strict=True))
    return {
        name: tuple(other for other in by_place[place] if other != name)
        for name, place in of_name.items()
        if len(set(by_place[place])) > 1
    }


@lru_cache(maxsize=4)
def columns_of_dense(schema: Schema) -> dict[str, int]:
    """Return the number of each dense column by its name."""
    return {name: j for j, name in enumerate(schema.dense_names)}


@lru_cache(maxsize=4)
def columns_of(schema: Schema) -> dict[str, int]:
    """Return the number of each column by its name."""
    return {name: j for j, name in enumerate(schema.column_names)}


def _place(name: str, columns: Sequence[str], linear: LinearStart, schema: Schema) -> tuple[int, float]:
    """Return where the weight of a feature is, and its sign."""
    if columns and name in columns_of_dense(schema):
        return columns_of_dense(schema)[name], 1.0
    n_dense = linear.n_dense
    if linear.buckets is None:
        raise ValueError(f"names must be columns of the model, got {name!r}; it has {list(columns[:10])}")
    if schema.kind == "array":
        if name not in columns_of(schema):
            raise ValueError(f"names must be columns of the model, got {name!r}")
        feature = columns_of(schema)[name]
    else:
        if schema.categorical and not name.startswith(tuple(f"{column}=" for column in schema.categorical)):
            raise ValueError(f"names must be columns, or such as '{schema.categorical[0]}=value', got {name!r}")
        feature = hash_name(name)
    places, signs = linear.buckets.place(np.array([feature]))
    return n_dense + int(places[0]), 1.0 if signs is None else float(signs[0])
