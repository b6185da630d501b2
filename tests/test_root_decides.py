"""What is made of sums is made by the root: workers whose processors round otherwise end with the same bits."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import scipy.sparse

import gbun
from gbun.collectives import Courier
from gbun.collectives.threads import in_threads
from gbun.solve import minimise_together
from gbun.training import train

N, FITTED = 500, 350
rng = np.random.default_rng(0)
X = rng.normal(size=(N, 6))
S = scipy.sparse.csr_array(scipy.sparse.random(N, 60, density=0.15, random_state=0))
SCORE = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + 0.3 * rng.normal(size=N)
WIDE = scipy.sparse.csr_array((S.data, S.indices * 1_000_003, S.indptr), shape=(N, 10**8))
WORDS = np.asarray(S[:, :20].sum(axis=1)).ravel() + 0.2 * SCORE
STOPS = {"learning_rate": 1.0, "early_stopping_rounds": 4}
CASES = {
    "line search": ({}, X, np.digitize(SCORE, [-0.8, 0.0, 0.8]), 8),
    "many labels": ({"hessian": "shared"}, X, np.column_stack([SCORE > 0, SCORE > 1]).astype(int), 8),
    "penalty chosen": ({**STOPS, "init": "linear", "scale": "idf"}, S, (WORDS - WORDS.mean() > 0).astype(int), 20),
    "sparse columns": ({"scale": "standard", "init": "constant"}, S, (WORDS - WORDS.mean() > 0).astype(int), 5),
    "hashed buckets": ({"linear_l2": 0.1}, WIDE, (WORDS - WORDS.mean() > 0).astype(int), 3),
    "early stopping": ({**STOPS, "eval_metric": "auc"}, X, (SCORE > 0).astype(int), 60),
    "rounds found": ({"learning_rate": 1.0, "temperature": 4.0}, X, (SCORE > 0).astype(int), None),
}


class Otherwise:
    """A worker of another kind: what it makes of sums is off, here and there. It counts its messages, too."""

    def __init__(self, collective, off):
        self.own, self.rank, self.size, self.off = collective, collective.rank, collective.size, off
        self.counted = Counter()

    def sum(self, values, root=None, wire=None):
        self.counted["sum"] += 1
        total = self.own.sum(values, root, wire)
        return total * (1.0 + self.off * self.rank * np.abs(np.sin(1.0 + np.arange(total.size)))).reshape(total.shape)

    def broadcast(self, values, root=0):
        self.counted["broadcast"] += 1
        return self.own.broadcast(values, root)

    def gather(self, values, root=0):
        return self.own.gather(values, root)


def trained(name, off):
    """What two workers have made of it; the second is another kind of processor."""
    params, rows, y, n_rounds = CASES[name]

    def work(collective):
        courier, own = Courier(Otherwise(collective, off)), np.arange(len(y)) % 2 == collective.rank
        fit, judge = own & (np.arange(len(y)) < FITTED), own & (np.arange(len(y)) >= FITTED)
        try:
            return train(
                {"n_neurons": 32, "n_jobs": 1, **params}, (rows[fit], y[fit]), n_rounds,
                evals={"v": (rows[judge], y[judge])}, task="classification", collective=courier,
            )  # fmt: skip
        finally:
            courier.close()

    return in_threads(2, work, timeout=30.0)  # seconds after which who waits in vain is told


def bits(model):
    e = model.ensemble
    parts = [e.start, e.centres, e.factors, e.heads, [model.description.best_score or 0.0]]
    if e.scaling.dense is not None:
        parts += [e.scaling.dense.centre, e.scaling.dense.factor]
    if e.scaling.sparse is not None:
        parts += [e.scaling.sparse.centre, e.scaling.sparse.factor]
    if e.scaling.shared is not None:
        parts += [e.scaling.shared.factor]
    if e.linear is not None:
        parts += [e.linear.weights, [e.linear.l2]]
    return [np.asarray(part).tobytes() for part in parts]


@pytest.mark.parametrize("off", [1e-12, 1e-3])
@pytest.mark.parametrize("name", CASES)
def test_workers_that_round_otherwise_end_with_the_same_bits(name, off):
    """1e-12 is about what processors may differ by; 1e-3 is enough for other decisions, too."""
    first, second = trained(name, off)
    assert bits(first) == bits(second)
    if off < 1e-6:
        params, rows, y, n_rounds = CASES[name]
        fit, judge = (rows[:FITTED], y[:FITTED]), (rows[FITTED:], y[FITTED:])
        one = gbun.train({"n_neurons": 32, **params}, fit, n_rounds, evals={"v": judge}, task="classification")
        wanted = one.decision_function(rows)
        np.testing.assert_allclose(first.decision_function(rows), wanted, atol=1e-6 * wanted.std())


@pytest.mark.parametrize("known", [False, True])
def test_a_search_takes_one_sum_and_one_answer_for_each_try(known):
    """As many messages as if each searched by itself; others are told the step, and which is the last."""
    wanted = gbun.solve.minimise_convex(lambda a: (np.exp(a) - 3.0, np.exp(a)), slope_at_zero=-2.0 if known else None)

    def work(collective):
        counting, asked = Otherwise(collective, 0.0), []

        def along(alpha):
            asked.append(alpha)
            return np.array([np.exp(alpha) - 3.0, np.exp(alpha)]) * (collective.rank == 1)

        slope = (-2.0 if collective.rank == 0 else 0.0) if known else None
        return minimise_together(counting, along, slope_at_zero=slope), asked, counting.counted

    found = in_threads(3, work, timeout=30.0)
    for alpha, asked, counted in found:
        assert alpha == wanted
        assert asked == found[0][1]
        assert counted == {"sum": len(asked), "broadcast": len(asked)}
