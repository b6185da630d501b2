"""The plan of memory: what is given up when, that it holds what it says, and that it never changes the model."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse

import gbun
from gbun.callbacks import Callback
from gbun.config import Parameters
from gbun.data.features import Entries, Features
from gbun.devices import Device
from gbun.kernels import Workload, make_plan
from gbun.kernels.threads import thread_pool
from gbun.memory import free_memory
from gbun.problem import Dataset
from tests.kernels.kernel_cases import least_bytes
from tests.trainings import add_round, assert_same_model, prepare_training


def clicks(n=6000, m=5000, per_row=6, seed=0):
    rng = np.random.default_rng(seed)
    ids = np.sort(rng.zipf(1.3, size=(n, per_row)) % m, axis=1)
    indptr = np.arange(0, n * per_row + 1, per_row)
    X = scipy.sparse.csr_array((np.ones(n * per_row, np.float32), ids.ravel(), indptr), shape=(n, m))
    X.sum_duplicates()
    return X, (rng.random(n) < 1 / (1 + (ids[:, 0] % 7))).astype(int)


def features_of(X):
    return Features(X.shape[0], sparse=Entries(X.indptr, X.indices, X.data))


def host_plan(features, K, n_threads, budget=None, **more):
    return make_plan(Workload(features, K, 1, **more), Device(), n_threads, budget)


def test_the_buffer_is_given_up_first_then_the_order_of_features_then_threads():
    features, seen = features_of(clicks()[0]), []
    least = least_bytes(lambda: host_plan(features, 64, 2, 1))
    for budget in np.linspace(least, 12 * least, 400).astype(int).tolist():
        plan = host_plan(features, 64, 4, budget)
        assert plan.n_bytes <= plan.budget == budget
        seen.append((plan.hold, plan.form, plan.n_threads))
    wanted = [(False, "hashed", 1), (False, "hashed", 2), (False, "hashed", 3), (False, "hashed", 4)]
    wanted += [(False, "auto", 4), (True, "auto", 4)]
    assert list(dict.fromkeys(seen)) == wanted


def test_the_least_budget_works_and_one_byte_less_does_not():
    X, y = clicks()
    least = least_bytes(lambda: host_plan(features_of(X), 64, 1, 1))
    parameters = {"n_neurons": 64, "n_jobs": 1, "n_estimators": 2, "init": "constant"}
    gbun.GBUNClassifier(**parameters, memory_budget=least).fit(X, y)
    with pytest.raises(ValueError, match=rf"at least {least} bytes .*6,000 rows, K = 64.*got {least - 1} bytes"):
        gbun.GBUNClassifier(**parameters, memory_budget=least - 1).fit(X, y)


def test_an_error_about_the_budget_says_what_shares_it():
    X, y = np.random.default_rng(0).normal(size=(300, 3)), np.arange(300.0)
    words = r"for 300 rows in 5 folds, whose trainings run at the same time, with copies of the rows that are held out"
    with pytest.raises(ValueError, match=words):
        gbun.train({"memory_budget": 1000, "n_neurons": 8}, (X, y))
    with pytest.raises(ValueError, match="for 300 rows in 3 folds, whose trainings run at the same time"):
        gbun.cv({"memory_budget": 1000, "n_neurons": 8}, (X, y), 2, nfold=3)


def test_no_budget_means_half_of_what_is_free(monkeypatch):
    features = features_of(clicks()[0])
    assert host_plan(features, 64, 1).budget == pytest.approx(free_memory() / 2, rel=0.2)
    monkeypatch.setattr("gbun.devices.free_memory", lambda: 1000)
    plan = host_plan(features, 64, 4)  # not the user's fault: what needs least is tried
    assert (plan.hold, plan.form, plan.n_threads, plan.budget) == (False, "hashed", 1, 500)


@pytest.mark.parametrize("prefix", ["memory.", "memory/memory."])
def test_a_container_s_limit_counts_and_pages_of_files_do_not(tmp_path, prefix):
    names = ("max", "current") if prefix == "memory." else ("limit_in_bytes", "usage_in_bytes")
    (tmp_path / "memory").mkdir()
    (tmp_path / f"{prefix}{names[0]}").write_text("1000000\n")
    (tmp_path / f"{prefix}{names[1]}").write_text("900000\n")
    (tmp_path / f"{prefix}stat").write_text("anon 300000\ninactive_file 600000\n")
    assert free_memory(tmp_path) == 700_000
    (tmp_path / f"{prefix}{names[0]}").write_text("max\n")
    assert free_memory(tmp_path) > 10**7
    assert free_memory(tmp_path / "nothing") > 10**7


def test_evaluation_sets_and_dense_columns_are_counted():
    X, _ = clicks()
    plain, watched = (host_plan(features_of(X), 64, 2, 10**9, watched=w) for w in ([], [features_of(X)]))
    assert watched.n_bytes - plain.n_bytes == (24 + 4) * X.nnz + (8 + 16) * X.shape[0]
    columns = (Features(6000, dense=np.zeros((6000, m), dtype=np.float32)) for m in (10, 1000))
    narrow, wide = (host_plan(f, 64, 2, 10**9).n_bytes for f in columns)
    assert wide - narrow >= 990 * 16 * 64


def measure_rounds(parameters, data, n_rounds, **options):
    """A training, and the most bytes that NumPy held in its rounds, with the scores and orders made before."""
    with thread_pool(1) as pool:
        tracemalloc.start()
        try:
            training = prepare_training(parameters, data, pool, **options)
            tracemalloc.reset_peak()
            for t in range(n_rounds):
                add_round(training, t)
            return training, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("form", ["held", "made again"])
@pytest.mark.parametrize(
    ("n", "settings"),
    [
        (4000, {"n_neurons": 256}),
        (9000, {"n_neurons": 64, "objective": "softmax", "hessian": "per_class"}),
        (9000, {"n_neurons": 192, "objective": "softmax"}),
    ],
)
def test_dense_rows_of_several_classes_keep_to_their_plan_with_an_evaluation_set(n, settings, form):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, 70)).astype(np.float32), rng.integers(0, 4, size=n)
    with thread_pool(1) as pool:
        plan = prepare_training(Parameters(**settings, n_jobs=1), (X, y), pool).rows.plan
    budget = plan.n_bytes + 10**6 - (0 if form == "held" else 4 * n * settings["n_neurons"])
    parameters = Parameters(**settings, n_jobs=1, memory_budget=budget + n * (8 * 4 + 16 + 4 * 70))
    for _ in range(2):  # the first time compiles
        training, peak = measure_rounds(parameters, (X, y), 2, evals={"again": Dataset(X, y)})
    assert training.rows.plan.hold == (form == "held")
    assert peak <= training.rows.plan.n_bytes + 48 * n + 2**20  # labels of both sets


@pytest.mark.slow
@pytest.mark.usefixtures("handed_over")
@pytest.mark.parametrize("objective", ["logistic", "softmax", "squared_error"])
@pytest.mark.parametrize("dense", [False, True])
def test_every_budget_gives_the_same_model(objective, dense):
    X, y = clicks(n=5000, m=40 if dense else 5000)
    X = X.toarray() if dense else X
    if objective == "softmax":
        y = y + (X[:, [1]].sum(axis=1) > 0)
    estimator = gbun.GBUNRegressor if objective == "squared_error" else gbun.GBUNClassifier
    found = []
    for budget in ("3MB", "8MB", "20MB", "1GB"):
        for n_jobs in (1, 2):
            parameters = {"n_neurons": 32, "n_estimators": 4, "objective": objective, "memory_budget": budget}
            try:
                model = estimator(**parameters, n_jobs=n_jobs).fit(X, y).model_
            except ValueError as error:
                assert "memory_budget must be at least" in str(error)  # noqa: PT017 - most budgets fit
                continue
            found.append(model)
    assert len(found) >= 4
    for other in found[1:]:
        assert_same_model(other, found[0])


@pytest.mark.parametrize("kind", ["held", "made again", "least"])
@pytest.mark.parametrize("n_neurons", [64, 256])
def test_a_training_run_keeps_to_its_plan(kind, n_neurons):
    X, y = clicks(n=40_000)
    least = least_bytes(lambda: host_plan(features_of(X), n_neurons, 1, 1))
    held = host_plan(features_of(X), n_neurons, 1, 10**9).n_bytes
    budget = {"held": held, "made again": held - 4 * 40_000 * n_neurons, "least": least}[kind]
    given = {"n_neurons": n_neurons, "objective": "logistic", "gram_rows": 1.0, "init": "constant"}
    parameters = Parameters(**given, memory_budget=budget)
    measure_rounds(parameters, (X, y), 1)  # compile
    training, peak = measure_rounds(parameters, (X, y), 3)
    plan = training.rows.plan
    assert (plan.hold, plan.form) == {
        "held": (True, "auto"), "made again": (False, "auto"), "least": (False, "hashed")
    }[kind]  # fmt: skip
    data = 17 * 40_000 + 8 * X.nnz  # y, weights and their like; entries
    assert peak <= plan.n_bytes + data + 2**20
    if n_neurons == 256:
        assert peak <= 2 * 4 * 40_000 * n_neurons + data  # two buffers


@pytest.mark.usefixtures("handed_over")
def test_a_plan_is_what_training_then_does():
    (X, y), watch = clicks(), Watch()
    evals = {"valid": (X[:2000], y[:2000])}
    given = {"n_neurons": 64, "objective": "logistic", "n_estimators": 2, "init": "constant"}
    with pytest.raises(ValueError, match=r"6,000 rows and 2,000 evaluation rows") as raised:
        gbun.plan({**given, "memory_budget": 1}, (X, y), evals=evals)
    parameters = {**given, "memory_budget": raised.value.n_bytes, "n_jobs": 2}
    gbun.train(parameters, (X, y), evals=evals, callbacks=[watch])
    assert watch.plan == gbun.plan(parameters, (X, y), evals=evals)
    assert watch.plan.n_threads == 1
    classes = np.arange(6000) % 5
    assert gbun.plan({}, (X, classes), task="classification").n_scores == 5
    assert gbun.plan(gbun.GBUNClassifier(), (X, classes)).n_scores == 5
    assert "P'HP is made of 6,000 rows" in str(gbun.plan({"n_neurons": 64}, (X, y)))
    assert gbun.plan({"n_neurons": 64, "gram_rows": 0.25}, (X, y)).gram_rows == 1500


class Watch(Callback):
    def before_training(self, training, n_rounds):
        self.plan = training.rows.plan


def test_the_plan_is_printed_and_names_what_it_holds():
    features = features_of(clicks()[0])
    plan = host_plan(features, 64, 2, 10**9)
    for words in ("6,000 rows", "K = 64", "network outputs are kept in a buffer"):
        assert words in str(plan)
    assert f"{plan.n_bytes / 1e6:.1f} MB" in str(plan).splitlines()[-1]
    least = least_bytes(lambda: host_plan(features, 64, 1, 1))
    assert "made again in each pass" in str(host_plan(features, 64, 1, least))


# Learners that are not networks


def other_plan(device=None, n_threads=4, budget=None, **more):
    work = Workload(features_of(clicks()[0]), 32, 1, fused=False, row_bytes=8, **more)
    return make_plan(work, Device() if device is None else device, n_threads, budget)


def test_a_learner_that_is_no_network_keeps_its_rows_and_gives_up_threads():
    plan = other_plan(budget=10**9, watched=[Features(2000)], gram_share=0.5)
    parts = dict(plan.parts)
    assert parts["memberships or leaves of a round"] == 8 * 6000
    assert parts["scores"] == 8 * 8000
    assert set(parts) - {"memberships or leaves of a round"} == {
        "scores", "targets and weights", "scaled features", "keys of the sample of rows", "each thread's chunk",
        "sums of the normal equations",
    }  # fmt: skip
    assert "memberships or leaves are kept" in str(plan)
    n_bytes = least_bytes(lambda: other_plan(budget=1))
    least = other_plan(budget=n_bytes)
    assert (least.n_threads, least.n_bytes) == (1, n_bytes)
    assert other_plan(budget=plan.n_bytes).n_threads == 4


def test_a_learner_that_is_no_network_trains_on_the_host_only():
    class Elsewhere(Device):
        name, compiled = "cuda", False

    with pytest.raises(ValueError, match=r"trains on device='cpu' only, got device='cuda'"):
        other_plan(Elsewhere())


def test_a_plan_counts_the_copies_of_rows_that_are_held_out():
    X, y = clicks()
    params = {"n_neurons": 16, "objective": "logistic", "memory_budget": 10**9}
    all_rows, trial = gbun.plan(params, (X, y), 5), gbun.plan(params, (X, y))
    copied = X.data.nbytes + 8 * X.nnz
    assert not all_rows.trial_bytes
    assert trial.trial_bytes == trial.n_bytes > all_rows.n_bytes + 0.5 * copied
    first = gbun.plan({**params, "refit": False}, (X, y))
    assert dict(first.parts)["copies of rows"] > 0.5 * copied
    assert first.n_bytes == trial.trial_bytes
