"""The law of workers, with threads in place of processes: the model does not depend on their number or their rows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import gbun
from gbun.callbacks import Callback, Checkpoint, EarlyStopping, History, LearningRateSchedule
from gbun.collectives import AsyncCollective, WorkerError
from gbun.collectives.threads import in_threads

N = 2600
rng = np.random.default_rng(0)
X = rng.normal(size=(N, 6))
Y = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + 0.3 * rng.normal(size=N)
S = scipy.sparse.csr_array(scipy.sparse.random(N, 200, density=0.05, random_state=0))
DATA = {
    "regression": (X, Y),
    "two classes": (X, (Y > 0).astype(int)),
    "classes": (X, np.digitize(Y, [-0.8, 0.0, 0.8])),
    "labels": (X, np.column_stack([Y > 0, Y > 1]).astype(int)),
    "sparse": (S, np.asarray(S[:, :30].sum(axis=1)) + 0.1 * Y),
    "words": (X, np.array(["low", "middle", "high"])[np.digitize(Y, [-0.5, 0.5])]),
}


def train(data, n_rounds=None, params=(), callbacks=(), **options):
    """Train in one process."""
    made = [make() for make in callbacks]
    return gbun.train({"n_neurons": 32, **dict(params)}, data, n_rounds, callbacks=made, **options)


def train_on_workers(
    size, data, n_rounds=None, params=(), part=None, evals=(), callbacks=(), wrap=AsyncCollective, **options
):
    """Return model and callbacks of each worker; `part` is the worker of each row."""
    part = np.random.default_rng(1).integers(0, size, len(data[1])) if part is None else part
    sets = {name: (d, np.random.default_rng(2).integers(0, size, len(d[1]))) for name, d in dict(evals).items()}

    def work(collective):
        wrapped, made, rank = wrap(collective), [make() for make in callbacks], collective.rank
        rows = data[0][part == rank], data[1][part == rank]
        local = {name: (d[0][p == rank], d[1][p == rank]) for name, (d, p) in sets.items()}
        try:
            model = gbun.train(
                {"n_neurons": 32, "n_jobs": 1, **dict(params)}, rows, n_rounds, evals=local, callbacks=made,
                collective=wrapped, **options,
            )  # fmt: skip
            return model, made
        finally:
            if isinstance(wrapped, AsyncCollective):
                wrapped.close()

    return in_threads(size, work)


def assert_same(found, single, rows, tolerance=1e-9):
    """Check that all workers have the same heads, and the scores of a single process."""
    expected = single.decision_function(rows)
    for model, _ in found:
        assert model.n_rounds == single.n_rounds
        np.testing.assert_allclose(model.decision_function(rows), expected, atol=tolerance * expected.std())
        np.testing.assert_array_equal(model.ensemble.heads, found[0][0].ensemble.heads)


def task_of(name):
    return "regression" if name in ("regression", "sparse") else "classification"


@pytest.mark.slow
@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize(("size", "rounds"), [(1, "pipelined"), (2, "pipelined"), (3, "pipelined"), (7, "pipelined"),
                                              (3, "sequential")])  # fmt: skip
def test_model_is_that_of_one_process(name, size, rounds):
    wrap = AsyncCollective if rounds == "pipelined" else lambda collective: collective
    single = train(DATA[name], 6, task=task_of(name))
    found = train_on_workers(size, DATA[name], 6, wrap=wrap, task=task_of(name))
    assert_same(found, single, DATA[name][0])
    if single.classes is not None:
        np.testing.assert_array_equal(found[-1][0].classes, single.classes)


@pytest.mark.slow
def test_64_workers_with_few_rows_or_none():
    part = np.minimum(np.random.default_rng(3).geometric(0.2, N), 63)
    part[part == 2] = 1  # worker 2 has none
    part[0] = 62
    data = DATA["classes"]
    single = train(data, 5, task="classification")
    assert_same(train_on_workers(64, data, 5, part=part, task="classification"), single, X)


@pytest.mark.parametrize("name", ["two classes", "words"])
def test_each_worker_may_have_one_class_only(name):
    codes = np.unique(DATA[name][1], return_inverse=True)[1]
    single = train(DATA[name], 5, task="classification")
    assert_same(train_on_workers(codes.max() + 2, DATA[name], 5, part=codes, task="classification"), single, X)


@pytest.mark.parametrize("params", [
    {"objective": "quantile"}, {"objective": "huber"}, {"objective": "poisson"},
    {"reg_form": "absolute", "reg_lambda": 1.0}, {"group_size": 8, "density": 0.3}, {"gram_rows": 0.5},
    {"memory_budget": "1MB"}, {"device": "torch:cpu"},
])  # fmt: skip
def test_model_is_that_of_one_process_for_any_parameters(params):
    data = (X, np.abs(Y)) if params.get("objective") == "poisson" else DATA["regression"]
    single = train(data, 5, {k: v for k, v in params.items() if k != "memory_budget"})
    assert_same(train_on_workers(3, data, 5, params), single, X, 1e-5 if "device" in params else 1e-9)


def test_loss_by_automatic_differentiation():
    torch = pytest.importorskip("torch")

    def focal(y, scores):
        p = torch.where(y > 0.5, torch.sigmoid(scores), torch.sigmoid(-scores))
        return -((1 - p) ** 2) * torch.log(p)

    args = DATA["two classes"], 5, {"objective": gbun.TorchLoss(focal), "init": "constant"}
    single = train(*args, task="classification")
    assert_same(train_on_workers(3, *args, task="classification"), single, X)


@pytest.mark.parametrize(("transport", "tolerance"), [("float64", 2e-5), ("float32", 2e-5), ("int16", 5e-3)])
def test_many_rows_agree_up_to_the_rounding_of_messages(transport, tolerance):
    rows = np.random.default_rng(5).normal(size=(6000, 6))
    args = (rows, rows[:, 0] * rows[:, 1] + np.sin(2 * rows[:, 2])), 8, {"n_neurons": 64}
    single = train(*args)
    found = train_on_workers(3, *args, wrap=lambda collective: AsyncCollective(collective, transport))
    assert_same(found, single, rows, tolerance)
    if transport == "int16":
        loss = [np.mean((m.predict(rows) - args[0][1]) ** 2) for m in (single, found[0][0])]
        assert loss[1] < 1.01 * loss[0]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size"), [("regression", 2), ("sparse", 3)])
def test_number_of_rounds_is_found_by_all_workers(name, size):
    """A trial by folds, then a training on all rows; also the start and its penalty."""
    args = tuple(part[:300] for part in DATA[name]), None, {"learning_rate": 1.0}
    single = train(*args)
    found = train_on_workers(size, *args)
    assert_same(found, single, DATA[name][0], 1e-7)
    assert found[1][0].description.best_round == single.description.best_round
    assert found[1][0].description.best_score == pytest.approx(single.description.best_score, rel=1e-9)


@pytest.mark.parametrize("metric", ["auc", "log_loss", "error"])
def test_early_stopping_is_decided_by_all_rows_and_history_is_that_of_one_process(metric):
    y, history = DATA["two classes"][1], History()
    params = {"eval_metric": metric, "learning_rate": 1.0, "early_stopping_rounds": 4}
    args = (X[:1800], y[:1800]), 60, params
    options = {"evals": {"v": (X[1800:], y[1800:])}, "task": "classification"}
    single = train(*args, callbacks=[lambda: history], **options)
    found = train_on_workers(3, *args, callbacks=[History], **options)
    assert single.n_rounds < 60
    assert_same(found, single, X)
    (local,) = found[0][1]
    tolerance = 5e-4 if metric == "auc" else 1e-12  # AUC is from a histogram of few rows
    np.testing.assert_allclose(local.values["v"][metric], history.values["v"][metric], rtol=0, atol=tolerance)
    assert local.start["v"][metric] == pytest.approx(history.start["v"][metric], abs=tolerance)
    assert not found[1][1][0].values  # callbacks are called at the root


def test_callbacks_decide_for_all_workers():
    class StopAfterFour(Callback):
        def after_round(self, training, report):
            return report.round == 3

    callbacks = [StopAfterFour, lambda: LearningRateSchedule(lambda t: 0.5 / (t + 1))]
    single = train(DATA["regression"], 20, callbacks=callbacks)
    assert single.n_rounds == 4
    assert_same(train_on_workers(3, DATA["regression"], 20, callbacks=callbacks), single, X)


def test_rounds_are_added_to_a_model_and_to_a_file(tmp_path):
    initial = train(DATA["regression"], 4, {"gram_rows": 0.5})
    initial.save_model(tmp_path / "m.gbun")
    args = DATA["regression"], 3, {"n_neurons": None, "gram_rows": 0.5}
    single = train(*args, init_model=initial)
    for model in (initial, tmp_path / "m.gbun"):
        assert_same(train_on_workers(3, *args, init_model=model), single, X)


def interrupt_before(number):
    class Interrupt(Callback):
        def before_round(self, training, round_):
            if round_ == number:
                raise InterruptedError

    return Interrupt


@pytest.mark.parametrize("patience", [None, 5])
@pytest.mark.parametrize("cut", [1, 7])
def test_interrupted_training_ends_as_if_it_had_not_been_interrupted(cut, patience, tmp_path):
    """In one process and on other numbers of workers; early stopping remembers."""
    path = tmp_path / "c.gbun"
    args = (X[:2000], Y[:2000]), 15, {"learning_rate": 1.0, "gram_rows": 0.5}
    evals = {"v": (X[2000:], Y[2000:])} if patience else {}
    stoppers = [lambda: EarlyStopping(patience)] if patience else []
    single = train(*args, evals=evals, callbacks=stoppers)
    callbacks = [*stoppers, lambda: Checkpoint(path)]
    with pytest.raises((InterruptedError, WorkerError)):
        train_on_workers(2, *args, evals=evals, callbacks=[*callbacks, interrupt_before(cut)])
    assert gbun.load_model(path).n_rounds == cut
    checkpoint = path.read_bytes()
    for size in (1, 3):
        path.write_bytes(checkpoint)
        found = train_on_workers(size, *args, evals=evals, callbacks=callbacks, resume=path)
        assert_same(found, single, X)
        assert found[0][0].description.best_round == single.description.best_round
    assert_same([(train(*args, evals=evals, callbacks=stoppers, resume=path), [])], single, X)


@pytest.mark.slow
def test_complete_trial_is_not_repeated(tmp_path, monkeypatch):
    path, args = tmp_path / "c.gbun", ((X[:600], Y[:600]), None, {"learning_rate": 1.0})
    single = train(*args)
    assert single.n_rounds > 6
    with pytest.raises(InterruptedError):
        train(*args, callbacks=[lambda: Checkpoint(path), interrupt_before(6)])
    monkeypatch.setattr("gbun.training.Trial", lambda *args: pytest.fail("the trial was repeated"))
    resumed = train(*args, resume=path)
    assert_same([(resumed, [])], single, X)
    assert resumed.description.best_round == single.description.best_round
    assert train(DATA["regression"], 3, resume=tmp_path / "absent.gbun").n_rounds == 3


def test_error_of_one_worker_ends_all():
    def objective(y, scores, weight):
        if len(y) and y[0] == Y[2]:  # the first row of worker 2
            raise ArithmeticError("of one")
        return weight * (scores - y), weight

    params = {"objective": objective, "init": "constant"}
    with pytest.raises(ArithmeticError, match="of one"):
        train_on_workers(3, DATA["regression"], 5, params, part=np.arange(N) % 3)
