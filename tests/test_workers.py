"""The law of workers, with threads in place of processes: the same model for any number of them and any division."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import gbun
from gbun.callbacks import Callback, Checkpoint, EarlyStopping, History, LearningRateSchedule
from gbun.collectives import Courier, WorkerError
from gbun.collectives.threads import in_threads
from gbun.training import train

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


def together(size, params, data, n_rounds=None, part=None, transport="float32", evals=(), **more):
    """What each worker has trained; `part` says which row is whose."""
    part = np.random.default_rng(1).integers(0, size, len(data[1])) if part is None else part
    watched = {name: (d, np.random.default_rng(2).integers(0, size, len(d[1]))) for name, d in dict(evals).items()}

    def work(collective):
        courier, own = Courier(collective, transport), collective.rank
        mine = {name: (d[0][p == own], d[1][p == own]) for name, (d, p) in watched.items()}
        callbacks = [make() for make in more.get("callbacks", ())]
        options = {k: v for k, v in more.items() if k != "callbacks"}
        try:
            rows = data[0][part == own], data[1][part == own]
            model = train(
                {"n_neurons": 32, "n_jobs": 1, **params}, rows, n_rounds, evals=mine, callbacks=callbacks,
                collective=courier, **options,
            )  # fmt: skip
            return model, callbacks
        finally:
            courier.close()

    return in_threads(size, work)


def same(models, one, rows, tolerance=1e-9):
    wanted = one.decision_function(rows)
    for model in models:
        assert model.n_rounds == one.n_rounds
        np.testing.assert_allclose(model.decision_function(rows), wanted, atol=tolerance * wanted.std())
        np.testing.assert_array_equal(model.ensemble.heads, models[0].ensemble.heads)


def task_of(name):
    return "classification" if name in ("two classes", "classes", "labels", "words") else "regression"


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_the_model_is_that_of_one(name, size):
    one = gbun.train({"n_neurons": 32}, DATA[name], 6, task=task_of(name))
    found = together(size, {}, DATA[name], 6, task=task_of(name))
    same([model for model, _ in found], one, DATA[name][0])
    if one.classes is not None:
        np.testing.assert_array_equal(found[-1][0].classes, one.classes)


def test_sixty_four_workers_most_of_whom_have_few_rows_or_none():
    part = np.minimum(np.random.default_rng(3).geometric(0.2, N), 63)
    part[part == 2] = 1  # worker 2 has none
    part[0] = 62
    one = gbun.train({"n_neurons": 32}, DATA["classes"], 5, task="classification")
    same([m for m, _ in together(64, {}, DATA["classes"], 5, part, task="classification")], one, X)


@pytest.mark.parametrize("name", ["two classes", "words"])
def test_each_worker_may_have_one_class_only(name):
    y = DATA[name][1]
    codes = np.unique(y, return_inverse=True)[1]
    one = gbun.train({"n_neurons": 32}, DATA[name], 5, task="classification")
    same([m for m, _ in together(codes.max() + 2, {}, DATA[name], 5, codes, task="classification")], one, X)


@pytest.mark.parametrize("params", [
    {"objective": "quantile"}, {"objective": "huber"}, {"objective": "poisson"},
    {"reg_form": "absolute", "reg_lambda": 1.0}, {"group_size": 8, "density": 0.3}, {"gram_rows": 0.5},
    {"memory_budget": "1MB"}, {"device": "torch:cpu"},
])  # fmt: skip
def test_whatever_the_parameters(params):
    data = (X, np.abs(Y)) if params.get("objective") == "poisson" else DATA["regression"]
    one = gbun.train({"n_neurons": 32, **{k: v for k, v in params.items() if k != "memory_budget"}}, data, 5)
    tolerance = 1e-5 if "device" in params else 1e-9
    same([m for m, _ in together(3, params, data, 5)], one, X, tolerance)


def test_a_loss_by_automatic_differentiation():
    torch = pytest.importorskip("torch")

    def focal(y, scores):
        p = torch.where(y > 0.5, torch.sigmoid(scores), torch.sigmoid(-scores))
        return -((1 - p) ** 2) * torch.log(p)

    params = {"objective": gbun.TorchLoss(focal), "init": "constant"}
    one = gbun.train({"n_neurons": 32, **params}, DATA["two classes"], 5, task="classification")
    same([m for m, _ in together(3, params, DATA["two classes"], 5, task="classification")], one, X)


@pytest.mark.parametrize(("transport", "tolerance"), [("float64", 2e-5), ("float32", 2e-5), ("int16", 5e-3)])
def test_many_rows_agree_as_far_as_numbers_on_the_wire_allow(transport, tolerance):
    many = np.random.default_rng(5).normal(size=(6000, 6))
    data = many, many[:, 0] * many[:, 1] + np.sin(2 * many[:, 2])
    one = gbun.train({"n_neurons": 64}, data, 8)
    found = together(3, {"n_neurons": 64}, data, 8, transport=transport)
    same([m for m, _ in found], one, many, tolerance)
    if transport == "int16":
        loss = [np.mean((m.predict(many) - data[1]) ** 2) for m in (one, found[0][0])]
        assert loss[1] < 1.01 * loss[0]


def test_the_number_of_rounds_is_found_together():
    """A trial by folds, then a training on all rows; the start and its penalty too."""
    for name, size in (("regression", 2), ("sparse", 3)):
        params = {"learning_rate": 1.0}
        data = tuple(part[:300] for part in DATA[name])
        one = gbun.train({"n_neurons": 32, **params}, data)
        found = together(size, params, data)
        same([m for m, _ in found], one, DATA[name][0], 1e-7)
        assert found[1][0].description.best_round == one.description.best_round
        assert found[1][0].description.best_score == pytest.approx(one.description.best_score, rel=1e-9)


@pytest.mark.parametrize("metric", ["auc", "log_loss", "error"])
def test_early_stopping_is_decided_by_all_rows_and_history_is_that_of_one(metric):
    data, other = ((X[a], DATA["two classes"][1][a]) for a in (slice(0, 1800), slice(1800, None)))
    params = {"n_neurons": 32, "eval_metric": metric, "learning_rate": 1.0, "early_stopping_rounds": 4}
    history = History()
    one = gbun.train(params, data, 60, evals={"v": other}, callbacks=[history], task="classification")
    found = together(3, params, data, 60, evals={"v": other}, callbacks=[History], task="classification")
    assert one.n_rounds < 60
    same([m for m, _ in found], one, X)
    (own,) = found[0][1]
    lost = 5e-4 if metric == "auc" else 1e-12  # a histogram of few rows
    np.testing.assert_allclose(own.values["v"][metric], history.values["v"][metric], rtol=0, atol=lost)
    assert own.start["v"][metric] == pytest.approx(history.start["v"][metric], abs=lost)
    assert not found[1][1][0].values  # callbacks watch where sums come together


def test_callbacks_decide_for_all():
    class Enough(Callback):
        def after_round(self, training, report):
            return report.round == 3

    rate = lambda: LearningRateSchedule(lambda t: 0.5 / (t + 1))  # noqa: E731
    one = gbun.train({"n_neurons": 32}, DATA["regression"], 20, callbacks=[Enough(), rate()])
    found = together(3, {}, DATA["regression"], 20, callbacks=[Enough, rate])
    assert one.n_rounds == 4
    same([m for m, _ in found], one, X)


def test_rounds_are_added_to_a_model_and_taken_from_a_file(tmp_path):
    begun = gbun.train({"n_neurons": 32, "gram_rows": 0.5}, DATA["regression"], 4)
    begun.save_model(tmp_path / "m.gbun")
    one = gbun.train({"gram_rows": 0.5}, DATA["regression"], 3, init_model=begun)
    for initial in (begun, tmp_path / "m.gbun"):
        found = together(3, {"n_neurons": None, "gram_rows": 0.5}, DATA["regression"], 3, init_model=initial)
        same([m for m, _ in found], one, X)


@pytest.mark.parametrize("patience", [None, 5])
@pytest.mark.parametrize("cut", [1, 7])
def test_a_training_that_was_cut_short_ends_as_if_it_had_not(cut, patience, tmp_path):
    """Alone, and on as many workers as there are then; early stopping remembers."""
    path, other = tmp_path / "c.gbun", (X[2000:], Y[2000:])
    data, evals = (X[:2000], Y[:2000]), {"v": other} if patience else {}
    params = {"n_neurons": 32, "learning_rate": 1.0, "gram_rows": 0.5}

    class Cut(Callback):
        def before_round(self, training, round_):
            if round_ == cut:
                raise InterruptedError

    stopper = [lambda: EarlyStopping(patience)] if patience else []
    one = gbun.train(params, data, 15, evals=evals, callbacks=[make() for make in stopper])
    with pytest.raises((InterruptedError, WorkerError)):
        together(2, params, data, 15, evals=evals, callbacks=[*stopper, lambda: Checkpoint(path), Cut])
    assert gbun.load_model(path).n_rounds == cut
    kept = path.read_bytes()
    for size in (1, 3):
        path.write_bytes(kept)
        callbacks = [*stopper, lambda: Checkpoint(path)]
        found = together(size, params, data, 15, evals=evals, callbacks=callbacks, resume=path)
        same([m for m, _ in found], one, X)
        assert found[0][0].description.best_round == one.description.best_round
    again = gbun.train(params, data, 15, evals=evals, callbacks=[make() for make in stopper], resume=path)
    same([again], one, X)


def test_a_trial_that_was_complete_is_not_repeated(tmp_path, monkeypatch):
    path, params = tmp_path / "c.gbun", {"n_neurons": 32, "learning_rate": 1.0}
    data = X[:600], Y[:600]
    one = gbun.train(params, data)
    assert one.n_rounds > 6

    class Cut(Callback):
        def before_round(self, training, round_):
            if round_ == 6:
                raise InterruptedError

    with pytest.raises(InterruptedError):
        gbun.train(params, data, callbacks=[Checkpoint(path), Cut()])
    monkeypatch.setattr("gbun.training.trial", lambda *args: pytest.fail("it was tried again"))
    again = gbun.train(params, data, resume=path)
    same([again], one, X)
    assert again.description.best_round == one.description.best_round
    assert gbun.train(params, DATA["regression"], 3, resume=tmp_path / "absent.gbun").n_rounds == 3


def test_what_one_worker_raises_ends_all_with_its_cause():
    def objective(y, scores, weight):
        if len(y) and y[0] == marked:
            raise ArithmeticError("of one")
        return weight * (scores - y), weight

    part = np.arange(N) % 3
    marked = Y[part == 2][0]
    with pytest.raises(ArithmeticError, match="of one"):
        together(3, {"objective": objective, "init": "constant"}, DATA["regression"], 5, part)
