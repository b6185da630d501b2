"""Arrow batches as Spark makes them of its columns, and workers that are threads, for tests without Spark."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import scipy.sparse

from gbun.spark.rows import InputColumns
from gbun.spark.worker import Outcome, TrainingJob, work

TIMEOUT = 60.0
VECTOR = pa.struct(
    [("type", pa.int8()), ("size", pa.int32()), ("indices", pa.list_(pa.int32())), ("values", pa.list_(pa.float64()))]
)
rng = np.random.default_rng(0)
X = rng.normal(size=(900, 5))
Y = X[:, 0] * X[:, 1] + 0.2 * rng.normal(size=900)
S = scipy.sparse.csr_array(scipy.sparse.random(900, 80, 0.06, "csr", random_state=rng))


def dense(row):
    return {"type": 1, "size": None, "indices": None, "values": list(row)}


def sparse(row, size=None):
    row = np.asarray(row)
    at = np.flatnonzero(row)
    return {"type": 0, "size": size or len(row), "indices": at.tolist(), "values": row[at].tolist()}


def vectors(rows):
    return pa.array(rows, VECTOR)


def batch(features, y, **more):
    columns = {"features": features, "label": pa.array(y), **{name: pa.array(values) for name, values in more.items()}}
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def in_batches(rows, y, size=100, **more):
    """Make batches of `size` vectors."""
    return [
        batch(vectors(rows[i : i + size]), y[i : i + size], **{k: v[i : i + size] for k, v in more.items()})
        for i in range(0, len(rows), size)
    ]


def dense_batches(y=Y, **more):
    return in_batches([dense(r) for r in X], y, **more)


def job(columns=None, task="regression", parameters=(), **more):
    parameters = {"n_neurons": 16, "n_estimators": 4, "n_jobs": 1, "device": "cpu", **dict(parameters)}
    columns = columns or InputColumns("vector", ("features",), label="label")
    return TrainingJob(parameters, task, columns, TIMEOUT, **more)


class InThreads:
    """Workers that are threads, and exchange addresses at a barrier."""

    def __init__(self, size):
        self.barrier, self.texts, self.size = threading.Barrier(size), [""] * size, size

    def rendezvous(self, rank):
        rendezvous = type("Rendezvous", (), {"rank": rank, "hosts": ["127.0.0.1"] * self.size})()

        def all_gather(text):
            self.texts[rank] = text
            self.barrier.wait(TIMEOUT)
            return list(self.texts)

        rendezvous.all_gather = all_gather
        return rendezvous

    def work(self, shares, job) -> list[Outcome]:
        with ThreadPoolExecutor(self.size) as pool:
            futures = [pool.submit(work, shares[rank], self.rendezvous(rank), job) for rank in range(self.size)]
            return [future.result(2 * TIMEOUT) for future in futures]
