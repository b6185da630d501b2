"""Rows in all their forms, shares of them, and workers that read them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import scipy.sparse

from gbun.collectives.threads import in_threads
from gbun.config import Parameters
from gbun.problem import Dataset, named_sets, read

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
    """Some rows, in whatever form they are."""
    if isinstance(X, list):
        return [X[i] for i in rows]
    return X.iloc[rows] if isinstance(X, (pd.DataFrame, pd.Series)) else X[rows]


def division(size, seed=0, n=N):
    """Rows at random among workers: from three on the first has none, from four on the last a single one."""
    rng = np.random.default_rng(seed)
    owner = rng.integers(int(size > 2), size - int(size > 3), size=n)
    if size > 3:
        owner[rng.integers(n)] = size - 1
    return [np.flatnonzero(owner == rank) for rank in range(size)]


def everywhere(size, work):
    """What `work` gives on each worker, or the error it raises there. Who waits for ever is found out."""

    def caught(collective):
        try:
            return work(collective)
        except Exception as error:
            return error

    return in_threads(size, caught, timeout=20.0)


def problems(shares, evals=None, task=None, initial=None, **parameters):
    """What `read` makes of a tuple (X, y[, weight[, margin]]) of each worker."""
    given = [Parameters(**parameters) for _ in shares]

    def work(collective):
        rank = collective.rank
        sets = named_sets({} if evals is None else evals[rank])
        return read(given[rank], Dataset(*shares[rank]), sets, initial, task, collective)

    return everywhere(len(shares), work)


def divided(data, size, seed=0):
    rows = division(size, seed, len(data[1]))
    return rows, [tuple(None if part is None else take(part, own) for part in data) for own in rows]


def same_features(found, wanted):
    assert found.n_rows == wanted.n_rows
    assert (found.dense is None, found.sparse is None) == (wanted.dense is None, wanted.sparse is None)
    if found.dense is not None:
        np.testing.assert_array_equal(found.dense, wanted.dense)
    if found.sparse is not None:
        for part in ("indptr", "ids", "values"):
            np.testing.assert_array_equal(getattr(found.sparse, part), getattr(wanted.sparse, part))


def same_classes(found, wanted):
    if wanted is None:
        assert found is None
    else:
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


def told(errors, *words, kind=ValueError):
    """All workers say the same."""
    for error in errors:
        assert isinstance(error, kind), repr(error)
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"{missing} not in: {error}"
