"""A second base learner, complete in this file: random cuts of random columns, hard leaves.

Each round draws `depth` columns and a quantile for each. One sum over all workers' rows, of a histogram of each column,
turns the quantiles into thresholds. The leaf of a row is the binary number of its answers to x > threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbun.checks import check_array, check_names, integer, record
from gbun.data.features import Features
from gbun.dtypes import FloatArray, IntArray
from gbun.learners import Arrays, Learner, LearnerRows, Partition, Reduce, register_learner

EDGES = np.linspace(-3.0, 3.0, 17)  # dense columns are standardised


@dataclass(frozen=True)
class Cuts(Partition):
    """A leaf for each combination of answers to x[column] > threshold."""

    columns: IntArray
    thresholds: FloatArray
    n_trees = 1

    @property
    def n_outputs(self) -> int:
        return 2 ** len(self.columns)

    def leaves(self, features: Features) -> IntArray:
        answers = np.asarray(features.dense)[:, self.columns] > self.thresholds
        return (answers @ (1 << np.arange(len(self.columns))))[:, None]


@register_learner
@dataclass(frozen=True)
class RandomCuts(Learner[Cuts]):
    n_columns: int
    depth: int = 3
    seed: int = 0
    kind = "random_cuts"
    diagonal = True

    @property
    def n_outputs(self) -> int:
        return 2**self.depth

    @property
    def row_bytes(self) -> int:
        return 8

    def fit_round(self, t: int, rows: LearnerRows, reduce: Reduce) -> Cuts:
        if rows.features.dense is None:
            raise ValueError("learner 'random_cuts' needs dense columns, got sparse rows only")
        rng = np.random.default_rng((self.seed, t))
        columns = rng.integers(self.n_columns, size=self.depth)
        X = np.asarray(rows.features.dense)[:, columns]
        counts = reduce(np.array([np.histogram(x.clip(-2.9, 2.9), EDGES)[0] for x in X.T], dtype=float))
        shares = np.cumsum(counts, axis=1) / counts.sum(axis=1, keepdims=True)
        wanted = rng.uniform(0.1, 0.9, size=self.depth)
        bins = [int(np.searchsorted(share, q)) for share, q in zip(shares, wanted, strict=True)]
        return Cuts(columns, EDGES[1:][np.minimum(bins, len(EDGES) - 2)])

    def parameters(self) -> dict[str, Any]:
        return {"n_columns": self.n_columns, "depth": self.depth, "seed": self.seed}

    @classmethod
    def from_parameters(cls, parameters: Any, n_columns: int | None) -> RandomCuts:
        names = {"n_columns": integer(1, 2**31), "depth": integer(1, 16), "seed": integer(0, 2**63 - 1)}
        found = record(names)("header.learner.parameters", parameters)
        if found["n_columns"] != n_columns:
            raise ValueError(f"n_columns must be the schema's ({n_columns}), got {found['n_columns']}")
        return cls(**found)

    def pack(self, partitions: Sequence[Cuts]) -> dict[str, NDArray[Any]]:
        shape = (len(partitions), self.depth)
        return {
            "columns": np.array([p.columns for p in partitions], dtype=np.int64).reshape(shape),
            "thresholds": np.array([p.thresholds for p in partitions], dtype=np.float64).reshape(shape),
        }

    def unpack(self, arrays: Arrays, rounds: Sequence[int]) -> list[Cuts]:
        check_names(arrays, ("columns", "thresholds"))
        columns = check_array("columns", arrays["columns"], "int64", (len(rounds), self.depth))
        thresholds = check_array("thresholds", arrays["thresholds"], "float64", columns.shape)
        if columns.size and not (columns.min() >= 0 and columns.max() < self.n_columns):
            raise ValueError(f"columns must be from 0 to {self.n_columns - 1}")
        return [Cuts(*pair) for pair in zip(columns, thresholds, strict=True)]
