"""Rounds on workers: every sum goes through the collective, and all forms of rounds make the model of one worker."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import gbun
from gbun.boosting import make_rounds
from gbun.callbacks import Callback
from gbun.collectives import AsyncCollective, Solo
from gbun.collectives.threads import in_threads
from gbun.pipelining import PipelinedRounds
from gbun.rounds import SequentialRounds
from tests.trainings import assert_close_models, assert_same_model, train_rounds

RNG = np.random.default_rng(0)
X = RNG.normal(size=(500, 6))
SIGNAL = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2])
CASES = {
    "regression": (X, SIGNAL, {}),
    "two classes": (X, (SIGNAL > 0).astype(int), {"objective": "logistic"}),
    "four classes, line search": (X, np.digitize(SIGNAL, [-1, 0, 1]), {"objective": "softmax"}),
    "a Hessian for each class": (X, np.digitize(SIGNAL, [-1, 0, 1]), {"objective": "softmax", "hessian": "per_class"}),
    "sparse, linear start": (scipy.sparse.csr_array(np.maximum(X, 0)), SIGNAL, {"init": "linear", "linear_l2": 1.0}),
    "a sample for the Gram": (X, SIGNAL, {"gram_rows": 0.5, "n_neurons": 8}),
    "no buffer": (X, SIGNAL, {"memory_budget": 600_000}),
}
PARTS = [slice(0, 0), slice(0, 1), slice(1, 200), slice(200, None)]  # an empty share, and one of a single row


class Members:
    """An object with the five members of a collective, and no other relation to the library."""

    def __init__(self, collective):
        self.rank, self.size = collective.rank, collective.size
        self.sum, self.broadcast, self.gather = collective.sum, collective.broadcast, collective.gather


def train(name, rows=slice(None), **options):
    data, y, params = CASES[name]
    share = data[rows], y[rows]
    return gbun.train({"n_neurons": 16, **params}, share, 6, evals={"e": share}, **options)


@pytest.mark.parametrize("wrap", [Members, AsyncCollective], ids=["sequential", "pipelined"])
@pytest.mark.parametrize("name", CASES)
def test_workers_make_the_model_of_one(name, wrap):
    models = in_threads(len(PARTS), lambda c: train(name, PARTS[c.rank], collective=wrap(c)))
    for model in models:
        assert_same_model(model, models[0])
    # float32 is how large sums travel when rounds are pipelined, unless rows are few
    assert_close_models(models[0], train(name), rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("name", CASES)
def test_one_worker_is_a_cluster_of_one(name):
    assert_same_model(train(name, collective=Members(Solo())), train(name))


def test_early_stopping_is_decided_at_the_root_in_both_forms():
    data, y, _ = CASES["regression"]

    def work(collective, wrap):
        rows = slice(collective.rank, None, 3)
        params = {"n_neurons": 16, "early_stopping_rounds": 3, "learning_rate": 0.9}
        return gbun.train(params, (data[rows], y[rows]), 60, collective=wrap(collective))

    sequential, pipelined = (in_threads(3, lambda c, w=w: work(c, w)) for w in (Members, AsyncCollective))
    assert {m.n_rounds for m in sequential} == {m.n_rounds for m in pipelined} == {sequential[0].n_rounds}
    assert 0 < sequential[0].n_rounds < 60
    assert sequential[0].description.best_round == pipelined[1].description.best_round


def test_rounds_are_pipelined_where_learner_and_collective_permit_it():
    training = train_rounds((X, SIGNAL), 0, gbun.Parameters(n_neurons=8))
    assert isinstance(make_rounds([training], 1), SequentialRounds)

    def kinds(collective):
        found = []

        class Look(Callback):
            def before_training(self, training, n_rounds):
                found.append(type(make_rounds([training], 0)))

        train("regression", collective=collective, callbacks=[Look()])
        return found

    assert kinds(AsyncCollective(Solo())) == [PipelinedRounds]
    assert kinds(Solo()) == [SequentialRounds]
