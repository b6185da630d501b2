"""Explanations of an ensemble: each part of a score by the method that suits it, and their sum.

    score = constant + phi(x) theta + sum_t P_t(x) W_t

Contributions are linear in the parts: those of the linear start are theta_j (x_j - b_j), those of trees exact Shapley
values, those of networks integrated gradients, and any learner's can be sampled. Each adds up to the difference of its
part between row and baseline, so their sum adds up to that of the scores.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gbun.data.features import Entries, Features, Schema
from gbun.devices import Device
from gbun.dtypes import MEMBERSHIP, FloatArray, IntArray
from gbun.ensemble import Ensemble
from gbun.explain.explanation import Explanation
from gbun.explain.gradients import NetworkRounds
from gbun.explain.layout import Layout, make_layout, subtract
from gbun.explain.sampling import Players, sample_values
from gbun.explain.tree_values import add_tree_values
from gbun.kernels.threads import ThreadPool
from gbun.learners import NetworkPartition, Step, TreePartition, group_steps
from gbun.scored_rows import Place, ScoredRows, Start, scale
from gbun.trees.forest import Forest

METHODS = ("auto", "linear", "gradients", "shapley")
MOST_LEFT = 0.01  # of the differences of scores, which integrals may leave without a warning
TOLERANCE = 1e-4  # of the deviation of what rounds of networks add, which their integrals may leave
ROWS_AT_A_TIME = 64  # that a thread explains by trees


@dataclass(frozen=True)
class Parts:
    """Contributions of dense columns, entries and columns of categories: (n, m, C), (entries, C), (n, c, C)."""

    dense: FloatArray
    entries: FloatArray
    categories: FloatArray


@dataclass(frozen=True)
class PackedTrees:
    """Trees that were grown on the same rows: one of their partitions, and all of them packed, with their heads."""

    first: TreePartition
    forest: Forest
    heads: FloatArray

    @classmethod
    def of(cls, steps: Sequence[Step]) -> PackedTrees:
        ((first, forest, heads),) = TreePartition.pack_steps(steps)
        return cls(first, forest, heads.astype(float))


@dataclass(frozen=True)
class Explainer:
    """Explains rows by an ensemble.

    `n_permutations` and `seed` are those of sampled values.
    """

    ensemble: Ensemble
    schema: Schema
    method: str
    n_permutations: int
    seed: int
    pool: ThreadPool

    def __post_init__(self) -> None:
        check_method(self.method, self.ensemble)
        if self.n_permutations < 2 or self.n_permutations % 2:
            raise ValueError(f"n_permutations must be an even number of at least 2, got {self.n_permutations}")

    @property
    def steps(self) -> tuple[Step, ...]:
        return () if self.method == "linear" else self.ensemble.steps

    def explain(self, X: Any, features: Features, background: Features | None) -> Explanation:
        """Explain rows X, whose features are not scaled yet, against the baseline or the mean over background rows."""
        x, C = self._scale(features), self.ensemble.n_scores
        layout = make_layout(self.schema, X, features, background)
        scores = self._score(x)
        values: Any = None
        squares: Any = None
        n_baselines, base, start = 0, np.zeros(C), np.zeros((x.n_rows, C))
        for row in self._baselines(x, background):
            base_score = self._score(row)[0]
            found, errors, linear = self._explain_against(x, row, scores - base_score, layout)
            values, squares = _add(values, found), _add(squares, errors)
            base, start, n_baselines = base + base_score, start + linear, n_baselines + 1
        values, base, start = _divide(values, n_baselines), base / n_baselines, start / n_baselines
        errors = None if squares is None else _root(_divide(squares, n_baselines**2))
        total = _sum_columns(values)
        left = np.abs(scores - base - total).mean(axis=0)
        if self.method != "linear" and np.any(left > MOST_LEFT * np.abs(scores - base).mean(axis=0) + 1e-6):
            warnings.warn(
                "contributions do not add up to the scores: see the residual; method='shapley' adds up", stacklevel=2
            )
        shares = {"scores": scores, "residual": scores - base - total, "start": start, "rounds": total - start}
        shares["base"] = np.broadcast_to(base, (x.n_rows, C)).copy()
        if C == 1:
            values, errors = _only(values), _only(errors)
            shares = {name: share[:, 0] for name, share in shares.items()}
        return Explanation(
            values=values, errors=errors, names=layout.names, data=X, method=self.method, ids=layout.ids, **shares
        )  # fmt: skip

    def _scale(self, features: Features) -> Features:
        e = self.ensemble
        scaled = scale(features, e.scaling, Device(), e.learner, e.start)
        dense = None if scaled.dense is None else np.ascontiguousarray(scaled.dense, dtype=MEMBERSHIP)
        raw = None if scaled.raw is None else np.asarray(scaled.raw, dtype=float)
        return replace(scaled, dense=dense, raw=raw)

    def _score(self, x: Features) -> FloatArray:
        """Compute the scores that are explained."""
        e = replace(self.ensemble, steps=self.steps)
        return e.add_scores(ScoredRows(x, e.start, None, Place(Device(), self.pool)))

    def _baselines(self, x: Features, background: Features | None) -> Iterator[Features]:
        """Yield the baselines, each a scaled row: absent features and means, or rows of the background."""
        if background is not None:
            rows = self._scale(background)
            yield from (rows.block(i, i + 1) for i in range(rows.n_rows))
            return
        empty = Entries(np.zeros(2, np.int64), np.zeros(0, np.int64), np.zeros(0, MEMBERSHIP))
        empty = empty if x.sparse is None else Entries(empty.indptr, x.sparse.ids[:0], empty.values)
        sparse = None if x.sparse is None else empty
        categories = None if x.categories is None else np.zeros((1, x.categories.shape[1]), x.categories.dtype)
        trees = [step.partition for step in self.ensemble.steps if isinstance(step.partition, TreePartition)]
        if trees:  # the means that stand for missing values
            means = np.asarray(trees[0].fill, dtype=float)[None, :] if len(trees[0].fill) else None
            yield self._scale(Features(1, means, sparse, categories=categories))
            return
        dense = None if x.dense is None else np.zeros((1, x.dense.shape[1]), dtype=MEMBERSHIP)
        raw = None if x.raw is None else np.zeros((1, x.raw.shape[1]))
        yield Features(1, dense, sparse, raw, categories)

    def _explain_against(
        self, x: Features, base: Features, added: FloatArray, layout: Layout
    ) -> tuple[Any, Any, FloatArray]:
        """Return contributions and squared errors in the user's columns, and the sums of the linear start's.

        `added` are the scores of the rows, less that of the baseline.
        """
        n, C = x.n_rows, self.ensemble.n_scores
        difference, of_base = subtract(x, base)
        m = next((part.shape[1] for part in (x.raw, x.dense) if part is not None), 0)
        n_entries = 0 if difference.sparse is None else len(difference.sparse.ids)
        c = 0 if x.categories is None else x.categories.shape[1]

        def zeros() -> Parts:
            return Parts(np.zeros((n, m, C)), np.zeros((n_entries, C)), np.zeros((n, c, C)))

        at = np.zeros(0, dtype=np.int64)
        if difference.sparse is not None and base.sparse is not None:
            at = np.empty(n_entries, dtype=np.int64)
            at[of_base == 0], at[of_base == 1] = layout.of_entries(x), np.tile(layout.of_entries(base), n)
        parts = zeros()
        self._add_linear(difference, parts)
        of_entries = _sum_entries(difference, parts.entries)
        linear = parts.dense.sum(axis=1) + of_entries
        trees, networks, others = self.runs
        for packed in trees:
            self._add_trees(packed, x, base, parts)
        rest = added - parts.dense.sum(axis=1) - parts.categories.sum(axis=1) - of_entries
        tolerance = TOLERANCE * np.sqrt(np.square(rest).sum(axis=0) / max(1, x.n_rows))
        for run in networks:
            NetworkRounds(run, tolerance / np.sqrt(len(run))).add_contributions(
                x, difference, base if is_anything(base) else base.block(0, 0), parts.dense, parts.entries, self.pool
            )
        squares = None
        if others:
            spread = zeros()
            self._add_sampled(others, x, base, difference, of_base, at, parts, spread)
            squares = layout.assemble(difference, spread.dense, spread.entries, spread.categories, at)
        return layout.assemble(difference, parts.dense, parts.entries, parts.categories, at), squares, linear

    @cached_property
    def runs(self) -> tuple[list[PackedTrees], list[list[Step]], list[Step]]:
        """Return the rounds of trees that were grown on the same rows, of networks of one family, and all others."""
        trees, networks, others = dict[Any, list[Step]](), dict[Any, list[Step]](), list[Step]()
        for step in self.steps:
            partition = step.partition
            if isinstance(partition, TreePartition):
                trees.setdefault((id(partition.fill), id(partition.categories)), []).append(step)
            elif isinstance(partition, NetworkPartition) and self.method != "shapley":
                networks.setdefault(partition.network.family, []).append(step)
            else:
                others.append(step)
        return [PackedTrees.of(run) for run in trees.values()], list(networks.values()), others

    def _add_linear(self, difference: Features, parts: Parts) -> None:
        """phi_j = theta_j (x_j - b_j)."""
        linear = self.ensemble.linear
        if linear is None:
            return
        n_dense = 0 if difference.dense is None else difference.dense.shape[1]
        if difference.dense is not None:
            parts.dense[:] += difference.dense[:, :, None] * linear.weights[None, :n_dense]
        if difference.sparse is not None and linear.buckets is not None:
            places, signs = linear.buckets.place(difference.sparse.ids)
            values = difference.sparse.values if signs is None else difference.sparse.values * signs
            parts.entries[:] += values[:, None] * linear.weights[n_dense + places]

    def _add_trees(self, trees: PackedTrees, x: Features, base: Features, parts: Parts) -> None:
        first, forest, heads = trees.first, trees.forest, trees.heads
        X, b = first.columns_of(x), first.columns_of(base)
        buckets, base_buckets = first.buckets_of(x), first.buckets_of(base)
        m = X.shape[1]

        def work(at: int) -> None:
            rows = slice(at, min(at + ROWS_AT_A_TIME, x.n_rows))
            out = np.zeros((rows.stop - rows.start, m + parts.categories.shape[1], heads.shape[1]))
            own = buckets[rows] if len(first.categories.ranks) else buckets
            add_tree_values(forest, heads, X[rows], b, first.fill, first.categories, own, base_buckets, out)
            parts.dense[rows, :m] += out[:, :m]
            parts.categories[rows] += out[:, m:]

        self.pool.run(work, range(0, x.n_rows, ROWS_AT_A_TIME))

    def _add_sampled(
        self, steps: list[Step], x: Features, base: Features, difference: Features, of_base: IntArray, at: IntArray,
        parts: Parts, squares: Parts,
    ) -> None:  # fmt: skip
        e = self.ensemble
        start, runs = Start(np.zeros(e.n_scores)), group_steps(steps)
        place = Place(Device(), self.pool)

        def score(rows: Features) -> FloatArray:
            scored = ScoredRows(rows, start, None, place)
            scored.add_runs(runs)
            return np.asarray(scored.scores)

        for i in range(x.n_rows):
            row = x.block(i, i + 1)
            entries = slice(0, 0) if difference.sparse is None else slice(*difference.sparse.indptr[i : i + 2].tolist())
            players, owners = find_players(row, base, of_base[entries], at[entries])
            if not players.n:
                continue
            rng = np.random.default_rng(self.seed)  # the same for each row, whatever rows are beside it
            values, errors = sample_values(row, base, players, score, self.n_permutations // 2, rng)
            for out, found in ((parts, values), (squares, errors**2)):
                for (kind, j), value in zip(owners, found, strict=True):
                    if kind == "entries":
                        out.entries[entries.start + j] += value
                    else:
                        getattr(out, kind)[i, j] += value


def find_players(
    row: Features, base: Features, of_base: IntArray, at: IntArray
) -> tuple[Players, list[tuple[str, int]]]:
    """Return who takes part in a row: what differs from the baseline. Owners say where a player's value belongs.

    `of_base` and `at` say of each entry, those of the row and of the baseline, whose it is, and its column.
    """
    owners = list[tuple[str, int]]()
    dense = categories = np.zeros(0, dtype=np.int64)
    columns = [(a, b) for a, b in ((row.dense, base.dense), (row.raw, base.raw)) if a is not None and b is not None]
    if columns:
        differs = np.any([~((a == b) | (np.isnan(a) & np.isnan(b)))[0] for a, b in columns], axis=0)
        dense = np.where(differs, np.cumsum(differs) - 1, -1)
        owners += [("dense", int(j)) for j in np.flatnonzero(differs)]
    own, other = np.flatnonzero(of_base == 0), np.flatnonzero(of_base == 1)
    if row.categories is not None and base.categories is not None:
        differs = (row.categories != base.categories)[0]
        categories = np.where(differs, len(owners) + np.cumsum(differs) - 1, -1)
        owners += [("categories", int(j)) for j in np.flatnonzero(differs)]
        present = np.flatnonzero(row.categories[0]), np.flatnonzero(base.categories[0])  # in the order of entries
        return Players(len(owners), dense, categories[present[0]], categories[present[1]], categories), owners
    numbers = dict[int, int]()
    for e in (*own, *other):
        if int(at[e]) not in numbers:
            numbers[int(at[e])] = len(owners)
            owners.append(("entries", int(e)))
    of_own, of_other = (np.array([numbers[int(at[e])] for e in some], dtype=np.int64) for some in (own, other))
    return Players(len(owners), dense, of_own, of_other, categories), owners


def is_anything(base: Features) -> bool:
    """Whether a baseline differs from the row whose outputs are all 0."""
    has_columns = base.dense is not None and bool(np.any(base.dense))
    return has_columns or (base.sparse is not None and len(base.sparse.ids) > 0)


def check_method(method: str, ensemble: Ensemble) -> None:
    if method not in METHODS:
        raise ValueError(f"method must be one of {METHODS}, got {method!r}")
    if method == "linear" and ensemble.linear is None:
        raise ValueError("method='linear' explains a linear start, and this model begins with a constant; use 'auto'")
    if method == "gradients":
        other = next((s.partition for s in ensemble.steps if not isinstance(s.partition, NetworkPartition)), None)
        if other is not None:
            raise ValueError(
                f"method='gradients' needs networks alone, and this model has learner {ensemble.learner.kind!r}, whose "
                "scores have steps; use 'auto' or 'shapley'"
            )


def _add(total: Any, more: Any) -> Any:
    if total is None or more is None:
        return more if total is None else total
    return [a + b for a, b in zip(total, more, strict=True)] if isinstance(more, list) else total + more


def _divide(values: Any, n: int) -> Any:
    return [v / n for v in values] if isinstance(values, list) else values / n


def _root(values: Any) -> Any:
    return [v.sqrt() for v in values] if isinstance(values, list) else np.sqrt(values)


def _only(values: Any) -> Any:
    """The values of the only score."""
    if values is None:
        return None
    return values[0] if isinstance(values, list) else values[:, :, 0]


def _sum_columns(values: Any) -> FloatArray:
    if isinstance(values, list):
        return np.column_stack([np.asarray(v.sum(axis=1)).ravel() for v in values])
    return np.asarray(values.sum(axis=1))


def _sum_entries(difference: Features, entries: FloatArray) -> FloatArray:
    total = np.zeros((difference.n_rows, entries.shape[1]))
    if difference.sparse is not None:
        np.add.at(total, difference.sparse.row_of_entry, entries)
    return total
