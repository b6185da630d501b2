"""Generated problems whose relevant features are known: few of 1,000 dense columns, or of a million sparse features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

COLUMNS, FEATURES, ENTRIES = 1000, 10**6, 30  # ENTRIES of a sparse row
MOST_FREQUENT, LEAST_FREQUENT = 0.3, 0.01  # the shares of rows between which relevant features are present
DENSE_NOISE, SPARSE_NOISE = 2.0, 0.5  # deviations of the noise, of the signal's

Signal = Callable[[Any, Any], Any]
"""(values of the relevant features, (n, r), and random numbers) -> the signal of each row, or of each row and class."""


@dataclass(frozen=True)
class Problem:
    """A signal of `n_relevant` features; `task` is regression, or classification with as many classes as signals, or
    with two."""

    name: str
    n_rows: int
    n_relevant: int
    signal: Signal
    task: str = "regression"
    is_sparse: bool = False
    n_features: int = COLUMNS

    def draw(self, n_rows: int, seed: int) -> tuple[Any, Any, Any]:
        """X, y and the numbers of the relevant columns. The first four fifths of the rows are for training."""
        rng = np.random.default_rng(seed)
        if self.is_sparse:
            X = draw_sparse(n_rows, self.n_features, ENTRIES, rng)
            X.data[:] = np.where(self.name == "values", rng.lognormal(size=X.nnz), 1.0)
            ids, counts = np.unique(X.indices, return_counts=True)
            frequent = ids[(counts >= LEAST_FREQUENT * n_rows) & (counts <= MOST_FREQUENT * n_rows)]
            relevant = rng.choice(frequent, self.n_relevant, replace=False)
            signal = self.signal(X[:, relevant].toarray(), rng)
        else:
            X = rng.normal(size=(n_rows, self.n_features)).astype(np.float32)
            relevant = rng.choice(self.n_features, self.n_relevant, replace=False)
            signal = self.signal(X[:, relevant], rng)
        noise = SPARSE_NOISE if self.is_sparse else DENSE_NOISE
        signal = signal / signal.std(axis=0) + noise * rng.normal(size=signal.shape)
        if self.task == "regression":
            return X, signal, relevant
        return X, signal > np.median(signal) if signal.ndim == 1 else signal.argmax(axis=1), relevant


def draw_sparse(n_rows: int, n_features: int, n_entries: int, rng: np.random.Generator) -> Any:
    """Rows of about so many ones. The frequencies of features follow Zipf's law; frequent ones have any number."""
    ranks = np.floor(n_features ** rng.random((n_rows, n_entries))).astype(np.int64) - 1
    ids = rng.permutation(n_features).astype(np.int32)[ranks]
    indptr = np.arange(n_rows + 1) * n_entries
    X = sp.csr_array((np.ones(ids.size, dtype=np.float32), ids.ravel(), indptr), shape=(n_rows, n_features))
    X.sum_duplicates()
    X.data[:] = 1.0
    return X


def effects(n: int, rng: np.random.Generator) -> Any:
    """Sizes from 0.5 to 1, of either sign."""
    return rng.uniform(0.5, 1.0, n) * rng.choice([-1.0, 1.0], n)


def linear(x: Any, rng: np.random.Generator) -> Any:
    return x @ effects(x.shape[1], rng)


def additive(x: Any, rng: np.random.Generator) -> Any:
    """A curve for each column: a sine, an absolute value, a square, a saturation, a hinge, and again."""
    curves = (lambda v: np.sin(2 * v), np.abs, np.square, np.tanh, lambda v: np.maximum(v, 0.0))
    columns = [curves[j % len(curves)](x[:, j]) for j in range(x.shape[1])]
    return np.column_stack([column / column.std() for column in columns]) @ effects(x.shape[1], rng)


def products(x: Any, rng: np.random.Generator) -> Any:
    """Products of two, and half of each alone: a product without them shows in no column by itself."""
    a, b = x[:, ::2], x[:, 1::2]
    return (a * b + 0.5 * (a + b)) @ effects(a.shape[1], rng)


def steps(x: Any, rng: np.random.Generator) -> Any:
    return (x > rng.uniform(-0.7, 0.7, x.shape[1])) @ effects(x.shape[1], rng)


def roots(x: Any, rng: np.random.Generator) -> Any:
    return np.sqrt(x) @ effects(x.shape[1], rng)


def saturated(x: Any, rng: np.random.Generator) -> Any:
    total = x @ effects(x.shape[1], rng)
    return np.tanh(2.0 * total / total.std())


def three_classes(x: Any, rng: np.random.Generator) -> Any:
    """Each feature speaks for one class and against another."""
    signs = rng.permuted(np.tile([1.0, 0.0, -1.0], (x.shape[1], 1)), axis=1)
    return x @ (signs * rng.uniform(0.5, 1.0, (x.shape[1], 1)))


DENSE = (
    Problem("linear", 3000, 10, linear),
    Problem("additive", 3000, 10, additive),
    Problem("products", 4000, 10, products),
    Problem("steps", 3000, 10, steps),
    Problem("three classes", 4000, 10, three_classes, "classification"),
)
SPARSE = (
    Problem("linear", 10_000, 40, linear, is_sparse=True, n_features=FEATURES),
    Problem("values", 10_000, 30, roots, is_sparse=True, n_features=FEATURES),
    Problem("products", 20_000, 20, products, is_sparse=True, n_features=FEATURES),
    Problem("two classes", 10_000, 30, saturated, "classification", is_sparse=True, n_features=FEATURES),
    Problem("three classes", 20_000, 30, three_classes, "classification", is_sparse=True, n_features=FEATURES),
)
