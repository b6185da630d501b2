"""Rows in every accepted form, shares of them, and workers that read these shares."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import scipy.sparse

from gbun.collectives.threads import in_threads
from gbun.config import Parameters
from gbun.problem import Dataset, named_sets, read_problem

SIZES = [1, 2, 3, 7]
N = 60
RNG = np.random.default_rng(0)
NUMBERS = np.round(RNG.normal(scale=5.0, size=(N, 5)), 2) * (RNG.random((N, 5)) < 0.5)
NUMBERS[:, 3] = 2.0
NUMBERS[5, 1] = np.nan
Y = np.sin(np.arange(N))
CITY = [None if i % 6 == 4 else ["Paris", "Rome", "Köln"][i % 3] for i in range(N)]
FRAME = pd.DataFrame({"age": NUMBERS[:, 0], "city": CITY, "size": np.arange(N), "member": Y > 0})
FORMS = {
    "array": NUMBERS,
    "float32": NUMBERS.astype(np.float32),
    "integers": np.arange(4 * N).reshape(N, 4),
    "lists": np.nan_to_num(NUMBERS).tolist(),
    "csr": scipy.sparse.csr_array(np.nan_to_num(NUMBERS)),
    "csc": scipy.sparse.csc_array(NUMBERS),
    "wide": scipy.sparse.csr_array((np.ones(N), (range(N), 10**12 + np.arange(N) % 9)), shape=(N, 2**62)),
    "numbers by name": FRAME[["age", "size"]],
    "pandas": FRAME,
    "categories": FRAME[["city"]].astype("category"),
    "polars": pl.DataFrame(FRAME),
    "dicts": [{"age": i % 7, "city": c} if c else {} for i, c in enumerate(CITY)],
    "tokens": [["a", "b", "a"][: i % 4] + [f"w{i % 5}"] * (i % 3) for i in range(N)],
}


def take(X, rows):
    """Return some rows of X in any form."""
    if isinstance(X, list):
        return [X[i] for i in rows]
    return X.iloc[rows] if isinstance(X, (pd.DataFrame, pd.Series)) else X[rows]


def divide(data, size, seed=0):
    """Divide rows at random among workers; of three or more the first has none, of four or more the last has one."""
    rng, n = np.random.default_rng(seed), len(data[1])
    owner = rng.integers(int(size > 2), size - int(size > 3), size=n)
    if size > 3:
        owner[rng.integers(n)] = size - 1
    rows = [np.flatnonzero(owner == rank) for rank in range(size)]
    return rows, [tuple(None if part is None else take(part, indices) for part in data) for indices in rows]


def run_everywhere(size, work):
    """Return the result of `work` on each worker, or the error it raised there."""

    def run(collective):
        try:
            return work(collective)
        except Exception as error:
            return error

    return in_threads(size, run)


def read_shares(shares, evals=None, task=None, initial=None, **parameters):
    """Return the problem, or the error, of each worker, given its (X, y[, weight[, margin]])."""
    of_workers = [Parameters(**parameters) for _ in shares]

    def work(collective):
        rank = collective.rank
        sets = named_sets({} if evals is None else evals[rank])
        return read_problem(of_workers[rank], Dataset(*shares[rank]), sets, initial, task, collective)

    return run_everywhere(len(shares), work)


def assert_same_features(features, expected):
    assert features.n_rows == expected.n_rows
    assert (features.dense is None, features.sparse is None) == (expected.dense is None, expected.sparse is None)
    if features.dense is not None:
        np.testing.assert_array_equal(features.dense, expected.dense)
    if features.sparse is not None:
        for part in ("indptr", "ids", "values"):
            np.testing.assert_array_equal(getattr(features.sparse, part), getattr(expected.sparse, part))


def assert_same_classes(classes, expected):
    if expected is None:
        assert classes is None
    else:
        assert classes.dtype == expected.dtype
        np.testing.assert_array_equal(classes, expected)


def assert_errors(errors, *texts, kind=ValueError):
    """Check that every worker raised an error of this kind with all of the texts."""
    for error in errors:
        assert isinstance(error, kind), repr(error)
        missing = [text for text in texts if text not in str(error)]
        assert not missing, f"{missing} not in: {error}"
