"""A learner that no file of the library knows trains, predicts, is saved, loaded and resumed, and runs on workers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse

import gbun
from gbun.callbacks import Checkpoint
from gbun.collectives import AsyncCollective
from gbun.collectives.threads import in_threads
from gbun.data.features import Features
from gbun.data.ingest import ingest
from gbun.devices import Device
from gbun.kernels.threads import ThreadPool, thread_pool
from gbun.kernels.unfused import UnfusedKernels
from gbun.learners import DataIndependentLearner, NetworkLearner, NetworkPartition, Partition, register_learner
from gbun.networks import Family
from gbun.scored_rows import Place, ScoredRows
from gbun.solve import make_normaliser
from tests.learners.random_cuts import Cuts, RandomCuts
from tests.trainings import assert_close_models, assert_same_model, train_rounds


def rows(n=600, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, 4))
    return X, np.where(X[:, 0] > 0.3, 1.0, -1.0) * (X[:, 1] < 0) + 0.1 * X[:, 2]


X, Y = rows()
LEARNER = RandomCuts(n_columns=4)
TASKS = {
    "regression": ({}, Y),
    "two classes": ({"objective": "logistic"}, (Y > 0).astype(int)),
    "three classes, one Hessian": ({"objective": "softmax"}, np.digitize(Y, [-0.5, 0.5])),
    "three classes, a Hessian each": ({"objective": "softmax", "hessian": "per_class"}, np.digitize(Y, [-0.5, 0.5])),
    "quantile, line search": ({"objective": "quantile", "quantile": 0.8}, Y),
}


def train(n_rounds=30, y=Y, params=(), **options):
    return gbun.train(dict(params), (X, y), n_rounds, learner=LEARNER, **options)


@pytest.mark.parametrize("name", TASKS)
def test_it_learns_with_every_kind_of_hessian(name):
    params, y = TASKS[name]
    history = gbun.callbacks.History()
    model = train(60, y, params, evals={"train": (X, y)}, callbacks=[history])
    (values,) = history.values["train"].values()
    (start,) = history.start["train"].values()
    assert values[-1] < 0.8 * start
    assert model.ensemble.objective.name == params.get("objective", "squared_error")
    assert model.ensemble.n_scores == (3 if "three" in name else 1)
    assert model.ensemble.steps[0].head.shape == (8, model.ensemble.n_scores)


def test_its_rounds_are_newton_steps_of_leaves():
    """head = -sum g / (sum h + lambda), leaf by leaf."""
    model = train(1, params={"reg_lambda": 0.5, "reg_form": "absolute", "learning_rate": 1.0})
    (step,) = model.ensemble.steps
    leaf = step.partition.leaves(model.ensemble.scaling.apply(ingest(X)[0]))[:, 0]
    n, g = np.bincount(leaf, minlength=8), np.bincount(leaf, Y.mean() - Y, 8)
    np.testing.assert_allclose(step.head[:, 0], -g / (n + 0.5), rtol=1e-5)
    np.testing.assert_allclose(model.predict(X), Y.mean() + step.head[leaf, 0], rtol=1e-6)


def test_threads_and_batches_do_not_change_a_bit():
    one, two = (train(params={"n_jobs": n}) for n in (1, 2))
    assert_same_model(one, two)
    np.testing.assert_array_equal(one.predict(X)[:7], np.concatenate([one.predict(x[None]) for x in X[:7]]))


def test_it_is_saved_and_loaded(tmp_path):
    model = train()
    model.save_model(tmp_path / "m.gbun")
    again = gbun.load_model(tmp_path / "m.gbun")
    assert again.ensemble.learner == LEARNER
    assert_same_model(model, again)
    np.testing.assert_array_equal(model.predict(X), again.predict(X))
    assert "random_cuts" in repr(again)


def test_it_is_continued_and_resumed(tmp_path):
    whole = train(20)
    first = train(8)
    assert_same_model(train(12, init_model=first), whole)

    class Stop(gbun.callbacks.Callback):
        def after_round(self, training, report):
            if report.round == 9:
                raise KeyboardInterrupt
            return False

    path = tmp_path / "c.gbun"
    with pytest.raises(KeyboardInterrupt):
        train(20, callbacks=[Checkpoint(path, every=4), Stop()])
    assert_same_model(train(20, resume=path), whole)


def test_the_number_of_rounds_is_found_by_a_trial():
    model = train(None)
    assert 1 < model.n_rounds <= 300
    assert model.ensemble.learner == LEARNER


@register_learner
@dataclass(frozen=True)
class FixedCuts(RandomCuts, DataIndependentLearner):
    """The same cuts through a sum of fixed size: rounds that may be pipelined."""

    kind = "fixed_cuts"

    def fit_round(self, t, rows, reduce):
        return DataIndependentLearner.fit_round(self, t, rows, reduce)

    def local_sums(self, t, rows):
        sums = []
        RandomCuts.fit_round(self, t, rows, lambda counts: sums.append(counts) or counts + 1.0)
        return sums[0]

    def no_sums(self):
        return np.zeros((self.depth, 16))

    def complete(self, t, sums, totals):
        nothing = SimpleNamespace(features=Features(0, dense=np.zeros((0, self.n_columns))))
        return RandomCuts.fit_round(self, t, nothing, lambda _: sums)

    def to_array(self, partition):
        zeros = np.zeros((2, self.depth))
        return zeros if partition is None else np.array([partition.columns, partition.thresholds])

    def from_array(self, t, array):
        return Cuts(array[0].astype(np.int64), array[1])


@pytest.mark.parametrize("learner", [LEARNER, FixedCuts(4)], ids=["data-dependent", "data-independent"])
@pytest.mark.parametrize("wrap", [lambda c: c, AsyncCollective], ids=["plain collective", "asynchronous"])
@pytest.mark.parametrize("name", TASKS)
def test_three_workers_make_the_model_of_one(name, wrap, learner):
    params, y = TASKS[name]
    alone = gbun.train(params, (X, y), 12, learner=learner, evals={"rows": (X, y)})
    parts = [slice(0, 0), slice(0, 250), slice(250, None)]

    def work(collective):
        share = X[parts[collective.rank]], y[parts[collective.rank]]
        return gbun.train(params, share, 12, learner=learner, collective=wrap(collective), evals={"rows": share})

    models = in_threads(3, work)
    for model in models:
        assert_same_model(model, models[0])
    assert_close_models(models[0], alone, rtol=1e-4, atol=1e-6)


def test_workers_with_different_learners_are_refused():
    def work(collective):
        return gbun.train({}, (X, Y), 2, learner=RandomCuts(4, seed=collective.rank), collective=collective)

    with pytest.raises(ValueError, match="learner must be the same on all workers"):
        in_threads(2, work)


def test_derivatives_may_be_asked_for_in_threads():
    """A learner of trees computes them block by block: the step before is complete by then."""
    seen = []

    @register_learner
    class Looking(RandomCuts):
        kind = "looking_cuts"

        def fit_round(self, t, rows, reduce):
            blocks = [slice(i, i + 50) for i in range(0, len(X), 50)]
            with ThreadPoolExecutor(8) as pool:
                g = np.concatenate([g for g, _ in pool.map(rows.derivatives, blocks)])
            seen.append((g[:, 0], rows.current_scores()[:, 0] - Y))
            return super().fit_round(t, rows, reduce)

    gbun.train({}, (X, Y), 5, learner=Looking(4))
    for found, wanted in seen:
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("budget", ["1GB", 700_000], ids=["buffer", "no buffer"])
@pytest.mark.parametrize("chosen", [0, 1])
def test_a_learner_may_forward_several_networks_and_choose_one(chosen, budget):
    @register_learner
    class Choosing(NetworkLearner):
        kind = "choosing"

        def fit_round(self, t, rows, reduce):
            drawn = [self.family.draw(2 * t + i) for i in range(2)]
            sums = [reduce(rows.forward(network)) for network in drawn]
            totals = rows.totals
            return NetworkPartition(drawn[chosen], make_normaliser(totals.weight, totals.n_weighted, sums[chosen]))

    params = {"memory_budget": budget}
    training = train_rounds((X, Y), 5, gbun.Parameters(**params), learner=Choosing(Family(0, 16, 0.5, n_columns=4)))
    rows = training.ensemble().scaling.apply(ingest(X)[0])
    with thread_pool(1) as pool:
        scored = ScoredRows(rows, training.start, None, Place(Device(), pool))
        np.testing.assert_array_equal(training.ensemble().add_scores(scored), training.rows.current_scores())


def test_several_trees_in_a_partition_are_solved_together():
    """A counts the rows that two leaves share; the sums are those of the dense memberships, ones at the leaves."""

    class Forest(Partition):
        n_outputs, n_trees = 16, 2

        def leaves(self, features):
            first = Cuts(np.array([0, 1, 2]), np.zeros(3)).leaves(features)
            return np.hstack([first, 8 + Cuts(np.array([1, 2, 3]), np.full(3, 0.4)).leaves(features)])

    class Dense(Partition):
        n_outputs = 16

        def memberships(self, features):
            return Forest().memberships(features)

    features, rng = Features(len(X), dense=X), np.random.default_rng(1)
    g, h = rng.normal(size=(len(X), 2)), rng.random((len(X), 2))
    picked = np.flatnonzero(rng.random(len(X)) < 0.5)
    for hessians in (h, h[:, 0]):
        for pick in (None, lambda at, h: (picked, h[picked])):
            sums = [
                UnfusedKernels(features, ThreadPool(1)).normal_equations(p, lambda at, h=hessians: (g[at], h[at]), pick)
                for p in (Forest(), Dense())
            ]
            for name in ("A", "B", "curvature"):
                np.testing.assert_allclose(*(getattr(s, name) for s in sums), rtol=1e-9, atol=1e-12)


class Wrong(Cuts):
    """Leaves that are none."""

    def leaves(self, features):
        return super().leaves(features) + 7


def test_what_does_not_fit_is_refused(tmp_path):
    with pytest.raises(ValueError, match="learner RandomCuts2 is not registered under its kind 'random_cuts'"):
        gbun.train({}, (X, Y), 2, learner=type("RandomCuts2", (RandomCuts,), {})(4))
    with pytest.raises(ValueError, match=r"learner 'random_cuts' does not fit: n_columns must be the schema's \(4\)"):
        gbun.train({}, (X, Y), 2, learner=RandomCuts(9))
    with pytest.raises(ValueError, match="n_neurons=16 is a parameter of networks, which learner 'random_cuts'"):
        train(2, params={"n_neurons": 16})
    with pytest.raises(ValueError, match="needs dense columns, got sparse rows only"):
        gbun.train({}, (scipy.sparse.csr_array(X), Y), 2, learner=LEARNER)
    kernels = UnfusedKernels(Features(len(X), dense=X), ThreadPool(1))
    with pytest.raises(ValueError, match=r"Wrong\.leaves must be from 0 to 7, got 7 to"):
        kernels.normal_equations(Wrong(np.array([0, 1, 2]), np.zeros(3)), lambda at: (Y[at, None], np.ones(len(Y[at]))))
    train(3).save_model(tmp_path / "m.gbun")
    with pytest.raises(ValueError, match="is a model, not the checkpoint of a training"):
        train(3, resume=tmp_path / "m.gbun")
    for use in (gbun.train, gbun.cv, lambda params, data, n, learner: gbun.plan(params, data, learner=learner)):
        with pytest.raises(ValueError, match=r"learner must be a gbun\.learners\.Learner or None, got str"):
            use({}, (X, Y), 2, learner="random cuts")
    with pytest.raises(ValueError, match=r"learner differs from init_model's: got 'random_cuts' .*expected 'mixed'"):
        train(2, init_model=gbun.train({}, (X, Y), 1))
    pytest.importorskip("torch")
    with pytest.raises(ValueError, match="device='cpu' only"):
        train(2, params={"device": "torch:cpu"})
    with pytest.raises(ValueError, match="predicts on device='cpu' only, got 'torch:cpu'"):
        train(2).predict(X, device="torch:cpu")


def test_cross_validation_takes_it():
    found = gbun.cv({}, (X, Y), 8, nfold=3, learner=LEARNER)["valid rmse-mean"]
    assert len(found) == 8
    assert found[-1] < found[0]
