"""A tree as the partition of a round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from gbun.data.features import Features
from gbun.dtypes import FloatArray, IntArray
from gbun.learners.base import Partition, Step, StepRun
from gbun.trees.categories import (
    NO_BUCKETS,
    NO_CATEGORIES,
    Categories,
)
from gbun.trees.forest import Forest, add_trees, find_leaves, pack_forest
from gbun.trees.tree import Tree


@dataclass(frozen=True)
class TreePartition(Partition):
    """A tree; `fill` has what stands for a missing value of each column in a projection, (m,).

    `categories` says how the columns of categories are binned.
    """

    tree: Tree
    fill: FloatArray
    categories: Categories = NO_CATEGORIES
    n_trees = 1

    @property
    def n_outputs(self) -> int:
        return self.tree.n_leaves

    def leaves(self, features: Features) -> IntArray:
        X, buckets = self.columns_of(features), self.buckets_of(features)
        return find_leaves(self.tree, X, self.fill, self.categories, buckets)[:, None]

    @classmethod
    def pack_steps(cls, steps: Sequence[Step]) -> list[tuple[TreePartition, Forest, FloatArray]]:
        """Trees that were grown on the same rows share what stands for missing values, and the bins of categories."""
        pairs = [(step.partition, step.head) for step in steps if isinstance(step.partition, TreePartition)]
        packed = []
        for _, alike in groupby(pairs, key=lambda pair: (id(pair[0].fill), id(pair[0].categories))):
            partitions, heads = zip(*alike, strict=True)
            forest = pack_forest([partition.tree for partition in partitions])
            packed.append((partitions[0], forest, np.concatenate(heads)))
        return packed

    @classmethod
    def add_steps(cls, steps: StepRun, features: Features, scores: FloatArray) -> bool:
        for first, forest, heads in steps.packed:
            X, buckets = first.columns_of(features), first.buckets_of(features)
            add_trees(forest, X, first.fill, heads, scores, first.categories, buckets)
        return True

    def buckets_of(self, features: Features) -> IntArray:
        wanted, buckets = len(self.categories.ranks), features.categories
        if not wanted:
            return NO_BUCKETS
        if buckets is None or buckets.shape[1] != wanted:
            found = 0 if buckets is None else buckets.shape[1]
            raise ValueError(f"trees of this model split {wanted} columns of categories, X has {found}")
        return np.ascontiguousarray(buckets)

    def columns_of(self, features: Features) -> FloatArray:
        if not len(self.fill):
            return np.zeros((features.n_rows, 0), dtype=np.float32)
        if features.raw is None or features.raw.shape[1] != len(self.fill):
            shape = "no dense columns" if features.raw is None else f"{features.raw.shape[1]} dense columns"
            raise ValueError(f"trees of this model split {len(self.fill)} dense columns, X has {shape}")
        X = np.asarray(features.raw)  # kernels are compiled for two dtypes and one layout
        return np.ascontiguousarray(X, dtype=X.dtype if X.dtype in (np.float32, np.float64) else np.float32)
