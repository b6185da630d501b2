"""Only the root computes from sums: workers whose processors round differently end with the same bits."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import scipy.sparse

import gbun
from gbun.collectives import AsyncCollective
from gbun.collectives.threads import in_threads
from gbun.solve import minimise_convex, minimise_over_workers
from tests.trainings import arrays_of

N, N_TRAIN = 500, 350
rng = np.random.default_rng(0)
X = rng.normal(size=(N, 6))
S = scipy.sparse.csr_array(scipy.sparse.random(N, 60, density=0.15, random_state=0))
SCORE = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + 0.3 * rng.normal(size=N)
WIDE = scipy.sparse.csr_array((S.data, S.indices * 1_000_003, S.indptr), shape=(N, 10**8))
WORDS = np.asarray(S[:, :20].sum(axis=1)).ravel() + 0.2 * SCORE
STOPPING = {"learning_rate": 1.0, "early_stopping_rounds": 4}
CASES = {
    "line search": ({}, X, np.digitize(SCORE, [-0.8, 0.0, 0.8]), 8),
    "many labels": ({"hessian": "shared"}, X, np.column_stack([SCORE > 0, SCORE > 1]).astype(int), 8),
    "penalty chosen": ({**STOPPING, "init": "linear", "scale": "idf"}, S, (WORDS - WORDS.mean() > 0).astype(int), 20),
    "sparse columns": ({"scale": "standard", "init": "constant"}, S, (WORDS - WORDS.mean() > 0).astype(int), 5),
    "hashed buckets": ({"linear_l2": 0.1}, WIDE, (WORDS - WORDS.mean() > 0).astype(int), 3),
    "early stopping": ({**STOPPING, "eval_metric": "auc"}, X, (SCORE > 0).astype(int), 60),
    "rounds found": ({"learning_rate": 1.0, "temperature": 4.0}, X, (SCORE > 0).astype(int), None),
}


class InexactCollective:
    """A collective whose sums have a relative error on all workers but the root. It counts its messages."""

    def __init__(self, collective, error):
        self.collective, self.rank, self.size, self.error = collective, collective.rank, collective.size, error
        self.counts = Counter()

    def sum(self, values, root=None, wire=None):
        self.counts["sum"] += 1
        total = self.collective.sum(values, root, wire)
        return total * (1.0 + self.error * self.rank * np.abs(np.sin(1.0 + np.arange(total.size)))).reshape(total.shape)

    def broadcast(self, values, root=0):
        self.counts["broadcast"] += 1
        return self.collective.broadcast(values, root)

    def gather(self, values, root=0):
        return self.collective.gather(values, root)


def train_with_errors(name, error):
    """Return the models of two workers; the second one rounds differently."""
    params, rows, y, n_rounds = CASES[name]

    def work(collective):
        async_collective = AsyncCollective(InexactCollective(collective, error))
        local = np.arange(len(y)) % 2 == collective.rank
        fit, judge = local & (np.arange(len(y)) < N_TRAIN), local & (np.arange(len(y)) >= N_TRAIN)
        try:
            return gbun.train(
                {"n_neurons": 32, "n_jobs": 1, **params}, (rows[fit], y[fit]), n_rounds,
                evals={"v": (rows[judge], y[judge])}, task="classification", collective=async_collective,
            )  # fmt: skip
        finally:
            async_collective.close()

    return in_threads(2, work)


def model_bytes(model):
    e = model.ensemble
    parts = [*arrays_of(model).values(), [model.description.best_score or 0.0]]
    for columns in (e.scaling.dense, e.scaling.sparse):
        parts += [] if columns is None else [columns.centre, columns.factor]
    parts += [] if e.scaling.bucketed is None else [e.scaling.bucketed.factor]
    parts += [] if e.linear is None else [e.linear.weights, [e.linear.l2]]
    return [np.asarray(part).tobytes() for part in parts]


@pytest.mark.slow
@pytest.mark.parametrize("error", [1e-12, 1e-3])
@pytest.mark.parametrize("name", CASES)
def test_workers_that_round_differently_end_with_the_same_bits(name, error):
    """1e-12 is about how much processors differ; 1e-3 is enough for other decisions."""
    first, second = train_with_errors(name, error)
    assert model_bytes(first) == model_bytes(second)
    if error < 1e-6:
        params, rows, y, n_rounds = CASES[name]
        fit, judge = (rows[:N_TRAIN], y[:N_TRAIN]), (rows[N_TRAIN:], y[N_TRAIN:])
        single = gbun.train({"n_neurons": 32, **params}, fit, n_rounds, evals={"v": judge}, task="classification")
        expected = single.decision_function(rows)
        np.testing.assert_allclose(first.decision_function(rows), expected, atol=1e-6 * expected.std())


@pytest.mark.parametrize("known", [False, True])
def test_line_search_takes_one_sum_and_one_broadcast_for_each_try(known):
    """All workers try the steps of the root, with as many messages as if each searched by itself."""
    slope = -2.0 if known else None
    expected = minimise_convex(lambda a: (np.exp(a) - 3.0, np.exp(a)), slope_at_zero=slope)

    def work(collective):
        counting, tries = InexactCollective(collective, 0.0), []

        def derivatives(alpha):
            tries.append(alpha)
            return np.array([np.exp(alpha) - 3.0, np.exp(alpha)]) * (collective.rank == 1)

        local_slope = (slope if collective.rank == 0 else 0.0) if known else None
        return minimise_over_workers(counting, derivatives, slope_at_zero=local_slope), tries, counting.counts

    found = in_threads(3, work)
    for alpha, tries, counts in found:
        assert alpha == expected
        assert tries == found[0][1]
        assert counts == {"sum": len(tries), "broadcast": len(tries)}
