"""`TorchLoss` in training: its metric, errors, estimators, files and devices."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone

import gbun
from gbun import GBUNClassifier, GBUNRegressor, TorchLoss, load_model, train
from gbun.collectives import Solo
from gbun.metrics import RowMetric, get_metric

torch = pytest.importorskip("torch")
from tests.objectives.torch_losses import (  # noqa: E402
    cauchy,
    classes,
    cross_entropy,
    focal,
    focal_classes,
    labels,
    normal,
    numbers,
    pinball,
    squared,
)

F = torch.nn.functional
SOLO = Solo()


def targets(y):
    """Targets of each kind from numbers."""
    return {"numbers": y, "binary": y > 0, "classes": classes(y), "labels": np.column_stack([y > 0, y > 1]) * 1}


# The metric


class Once(torch.autograd.Function):
    """A square whose derivative torch cannot differentiate."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, given):
        return 2 * ctx.saved_tensors[0] * given


def test_a_loss_that_torch_can_differentiate_only_once():
    X = np.random.default_rng(0).normal(size=(200, 3))
    with pytest.raises(ValueError, match=r"torch finds no second derivative.*use hessian='gauss_newton'"):
        gbun.train({"objective": gbun.TorchLoss(lambda y, s: Once.apply(s - y)), "n_neurons": 16}, (X, X[:, 0]), 2)
    loss = gbun.TorchLoss(lambda y, s: Once.apply(s - y), hessian="gauss_newton")
    assert gbun.train({"objective": loss, "n_neurons": 16}, (X, X[:, 0]), 2).n_rounds == 2


@pytest.mark.parametrize(
    ("function", "kind"), [(cauchy, "numbers"), (focal, "binary"), (focal_classes, "classes"), (labels, "labels")]
)
def test_the_default_metric_is_the_loss(function, kind):
    X, y, weight = numbers()
    loss, y, history = TorchLoss(function), targets(y)[kind], gbun.callbacks.History()
    task, params = "regression" if kind == "numbers" else "classification", {"objective": loss, "n_neurons": 16}
    model = train(params, (X, y, weight), 8, evals={"all": (X, y, weight)}, callbacks=[history], task=task)
    scores = np.reshape(model.decision_function(X), (len(y), -1))
    assert list(history.values["all"]) == ["loss"]
    expected = np.average(loss.loss(y.astype(float), scores), weights=weight)
    assert history.values["all"]["loss"][-1] == pytest.approx(expected, rel=1e-9)


def test_the_metric_is_made_of_sums():
    X, y, weight = numbers(40)
    metric, response = get_metric(TorchLoss(squared).default_metric()), X[:, :1]

    class Workers:
        rank, size = 0, 2

        def sum(self, values, root):
            return values + metric.sums(y[25:], response[25:], weight[25:])

        def broadcast(self, values):
            return values

    both = metric.evaluate(y[:25], response[:25], weight[:25], Workers())
    assert both == pytest.approx(metric.evaluate(y, response, weight, SOLO))
    assert both == pytest.approx(np.average((response[:, 0] - y) ** 2 / 2, weights=weight))
    with pytest.raises(ValueError, match=r"'mean' returned shape \(\), expected \(40,\)"):
        RowMetric("mean", lambda y, response: y.mean()).evaluate(y, response, weight, SOLO)


@pytest.mark.slow
def test_early_stopping_and_the_linear_start_look_at_the_loss():
    X, y, _ = numbers(200)
    model = GBUNRegressor(objective=TorchLoss(normal, outputs=2), n_neurons=8, early_stopping_rounds=3).fit(X, y)
    assert 0 <= model.best_iteration_ < 300
    assert model.predict(X).shape == (200, 2)
    columns = scipy.sparse.random(600, 40, density=0.2, random_state=0, format="csr")
    target = columns @ np.random.default_rng(0).normal(size=40)
    start = GBUNRegressor(objective=TorchLoss(squared), n_neurons=16, n_estimators=2).fit(columns, target)
    named = GBUNRegressor(objective="squared_error", n_neurons=16, n_estimators=2).fit(columns, target)
    assert start.linear_l2_ == named.linear_l2_ is not None
    np.testing.assert_allclose(start.predict(columns), named.predict(columns), atol=1e-4)


# Errors name the argument, what came and what was expected


WRONG = {
    "a mean": (lambda y, s: squared(y, s).mean(), r"shape \(30,\), got torch.float64 of shape \(\); .*'none'"),
    "a column": (lambda y, s: squared(y, s)[:, None], r"shape \(30,\), got torch.float64 of shape \(30, 1\)"),
    "a short one": (lambda y, s: squared(y, s)[1:], r"got torch.float64 of shape \(29,\)"),
    "integers": (lambda y, s: (s > y).long(), r"tensor of floats .* got torch.int64 of shape \(30,\)"),
    "an array": (lambda y, s: np.zeros(30), "got ndarray"),
    "nothing": (lambda y, s: None, "got NoneType"),
    "detached": (lambda y, s: squared(y, s.detach()), "follow back to the scores.*does not depend on them"),
    "without a graph": (torch.no_grad()(squared), "follow back to the scores.*does not depend on them"),
    "another graph": (
        lambda y, s: squared(y, torch.ones(30, dtype=y.dtype, requires_grad=True)),
        "follow back to the scores",
    ),
    "by NumPy": (lambda y, s: torch.from_numpy(np.square(s - y)), "follow back to the scores, got an array of NumPy"),
    "an infinite slope": (
        lambda y, s: (s - s.detach()).sqrt() + 0 * y,
        r"gradient that is not finite for y = .*, scores = \[0.\]; check it for .*torch.where",
    ),
    "an infinite curvature": (lambda y, s: abs(s - s.detach()) ** 1.5, "Hessian that is not finite"),
    "a nan gradient": (lambda y, s: torch.where(s > 5, torch.sqrt(s - 5), s**2), "gradient that is not finite"),
    "a nan": (lambda y, s: torch.log(s - y - 100), "objective returned a gradient that is not finite"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_losses_are_errors_that_say_what_is_wrong(case):
    function, message = WRONG[case]
    X, y, _ = numbers(30)
    with pytest.raises(ValueError, match="objective") as error:
        train({"objective": TorchLoss(function), "n_neurons": 8}, (X, y), 2)
    error.match(message)


def test_other_errors_of_the_function_are_not_changed():
    def broken(y, scores):
        raise KeyError("in the loss")

    X, y, _ = numbers(30)
    with pytest.raises(KeyError, match="in the loss"):
        train({"objective": TorchLoss(broken), "n_neurons": 8}, (X, y), 2)
    message = r"objective: the loss failed with y of shape \(30,\) and scores of shape \(30,\): The size.*outputs="
    with pytest.raises(ValueError, match=message):
        train({"objective": TorchLoss(lambda y, s: s + y[:-1]), "n_neurons": 8}, (X, y), 2)


OUTPUTS, FLOATS = "; outputs=... says how many scores a row has", "; y and scores are floats, also of classes"


@pytest.mark.parametrize(
    ("function", "message", "advice"),
    [
        (lambda y, s: s[:, 1], "too many indices", OUTPUTS),
        (lambda y, s: F.cross_entropy(s, y.long(), reduction="none"), "", OUTPUTS),
        (lambda y, s: s @ torch.ones(7, dtype=s.dtype), "", OUTPUTS),
        (lambda y, s: F.one_hot(y, 3) * s, "one_hot", FLOATS),
        (lambda y, s: s[y], "tensors used as indices", FLOATS),
        (lambda y, s: s / (1 // 0), "integer division or modulo by zero|division by zero", ""),
        (lambda y, s: s.nothing(), "no attribute 'nothing'", ""),
        (lambda y, s: float("x"), "could not convert", ""),
    ],
)
def test_errors_of_the_loss_name_it_and_give_advice(function, message, advice):
    X, y, _ = numbers(30)
    with pytest.raises(ValueError, match=r"^objective: the loss failed with y of shape \(30,\)") as error:
        train({"objective": TorchLoss(function), "n_neurons": 8}, (X, y), 2)
    error.match(message)
    assert (advice or ": ") in str(error.value)
    assert [words for words in (OUTPUTS, FLOATS) if words in str(error.value)] == [advice] * bool(advice)


@pytest.mark.parametrize("hessian", ["exact", "gauss_newton"])
@pytest.mark.parametrize(
    ("function", "C"),
    [
        (lambda y, s: s, 1),
        (lambda y, s: -((s - y) ** 2), 1),
        (lambda y, s: y - 2 * s, 1),
        (lambda y, s: -torch.log1p((s - 1) ** 2 + y**2), 1),
        (lambda y, s: (s[:, 0] - y) ** 2 - s[:, 1], 2),
    ],
)
def test_a_loss_that_falls_for_ever_is_refused(function, C, hessian):
    X, y, _ = numbers(60)
    message = "objective seems to have no minimum: the search for a constant to start from ran off .* bounded below"
    params = {"objective": TorchLoss(function, outputs=C, hessian=hessian), "n_neurons": 8}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for scale in (1.0, 1e6):
            with pytest.raises(ValueError, match=message):
                train(params, (X, scale * y), 2)


@pytest.mark.parametrize("device", ["cpu", "torch:cpu"])
@pytest.mark.parametrize(
    "write", [lambda y: y.clamp_(min=0), lambda y: y.__setitem__(y < 0, 0), lambda y: y.view(-1).add_(1)]
)
def test_a_loss_must_not_write_to_its_targets(write, device):
    def writes(y, scores):
        write(y)
        return squared(y, scores)

    X, y, _ = numbers(60)
    before = y.copy()
    with pytest.raises(ValueError, match=r"objective must not write to y, .* use y.clone\(\)"):
        train({"objective": TorchLoss(writes), "n_neurons": 8, "device": device}, (X, y), 2)
    np.testing.assert_array_equal(y, before)
    train({"objective": TorchLoss(lambda y, s: squared(y.clone().clamp_(min=0), s)), "device": device}, (X, y), 2)


@pytest.mark.parametrize("device", ["cpu", "torch:cpu"])
@pytest.mark.parametrize("function", [squared, normal])
def test_what_torch_is_told_outside_changes_no_bit(function, device):
    X, y, weight = numbers(60)
    loss = TorchLoss(function, outputs=2 if function is normal else 1)
    params = {"objective": loss, "n_neurons": 8, "device": device}
    wanted = train(params, (X, y, weight), 3)
    for outside in (torch.inference_mode(), torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16)):
        with outside:
            found = train(params, (X, y, weight), 3)
            given = [torch.from_numpy(a) + 0 for a in (y, X[:, :1].repeat(loss.outputs, 1), weight)]
            g, h = loss.derivatives(*given)
        np.testing.assert_array_equal(found.ensemble.heads, wanted.ensemble.heads)
        for a, b in zip((g, h), loss.derivatives(*given), strict=True):
            assert a.dtype == torch.float64
            np.testing.assert_array_equal(a, b)


def test_the_loss_beside_another_metric():
    X, y, _ = numbers(200)
    loss = TorchLoss(focal, link="logistic")
    model = GBUNClassifier(objective=loss, n_estimators=5, n_neurons=16, eval_metric=["auc", loss.default_metric()])
    model.fit(X, y > 0, eval_set=(X, y > 0))
    assert list(model.evals_result_["eval_0"]) == ["auc", "loss"]
    alone = clone(model).set_params(eval_metric=None).fit(X, y > 0, eval_set=(X, y > 0))
    assert model.evals_result_["eval_0"]["loss"] == alone.evals_result_["eval_0"]["loss"]


def test_a_loaded_estimator_refuses_to_fit_by_another_loss(tmp_path):
    X, y, _ = numbers(60)
    model = GBUNRegressor(objective=TorchLoss(squared), n_estimators=2, n_neurons=8).fit(X, y)
    model.save_model(tmp_path / "m.gbun")
    loaded = gbun.GBUNRegressor.load_model(tmp_path / "m.gbun")
    assert np.isfinite(loaded.predict(X)).all()
    with pytest.raises(ValueError, match=r"objective <TorchLoss> is a function, which the file .* does not hold"):
        loaded.fit(X, y)
    loaded.set_params(objective=TorchLoss(squared)).fit(X, y)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"function": 3}, "function must take"),
        ({"outputs": 0}, "outputs must be a positive integer or None, got 0"),
        ({"outputs": 1.5}, "outputs must be"),
        ({"outputs": True}, "outputs must be"),
        ({"link": "log"}, "link must be one of 'identity', 'logistic', 'softmax' or None, got 'log'"),
        ({"hessian": "shared"}, "hessian must be one of 'exact', 'gauss_newton', got 'shared'"),
    ],
)
def test_arguments_are_checked(given, message):
    with pytest.raises(ValueError, match=message):
        TorchLoss(**{"function": squared, **given})


@pytest.mark.parametrize(
    ("loss", "kind", "message"),
    [
        (TorchLoss(cross_entropy, outputs=5), "classes", r"must have 3 output\(s\) here.*got outputs=5"),
        (TorchLoss(focal, outputs=3), "binary", r"must have 1 output\(s\) here.*got outputs=3"),
        (TorchLoss(labels, outputs=3), "labels", r"must have 2 output\(s\) here"),
        (TorchLoss(focal, link="identity"), "binary", "must have link='logistic', which makes probabilities"),
        (TorchLoss(focal, link="softmax"), "binary", "must have link='logistic'"),
        (TorchLoss(cross_entropy, link="identity"), "classes", "must have link='softmax'"),
    ],
)
def test_scores_of_a_classifier_become_probabilities(loss, kind, message):
    X, values, _ = numbers(60)
    with pytest.raises(ValueError, match=message):
        GBUNClassifier(objective=loss, n_estimators=2, n_neurons=8).fit(X, targets(values)[kind])


def test_torch_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"TorchLoss needs torch.*pip install 'gbun\[torch\]'"):
        TorchLoss(squared)


@pytest.mark.slow
def test_torch_is_imported_when_it_is_used():
    code = "import sys, gbun; gbun.TorchLoss; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# The library around it


@pytest.mark.parametrize(
    ("loss", "kind", "link", "C"),
    [
        (TorchLoss(focal), "binary", "logistic", 1),
        (TorchLoss(cross_entropy, outputs=2), "binary", "softmax", 2),
        (TorchLoss(focal_classes), "classes", "softmax", 3),
        (TorchLoss(lambda y, s: labels(F.one_hot(y.long(), 3) * 1.0, s), link="logistic"), "classes", "logistic", 3),
        (TorchLoss(labels), "labels", "logistic", 2),
    ],
)
def test_classifiers(loss, kind, link, C, tmp_path):
    X, y, weight = numbers()
    y = np.where(y > 0, "b", "a") if kind == "binary" else targets(y)[kind]
    model = GBUNClassifier(objective=loss, n_neurons=16, n_estimators=20, learning_rate=0.5).fit(X, y, weight)
    objective = model.model_.ensemble.objective
    assert (objective.outputs, objective.link) == (C, link)
    q = model.predict_proba(X)
    assert q.shape == (len(y), max(C, 2))
    assert ((q >= 0) & (q <= 1)).all()
    if kind != "labels" and link != "logistic":
        np.testing.assert_allclose(q.sum(axis=1), 1.0)
    assert (model.predict(X) == y).mean() > 0.6
    model.save_model(tmp_path / "m.gbun")
    again = GBUNClassifier.load_model(tmp_path / "m.gbun")
    np.testing.assert_array_equal(again.predict_proba(X), q)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_a_stored_model_goes_on_where_the_loss_is_passed_again(tmp_path):
    X, y, weight = numbers()
    params = {"objective": TorchLoss(normal, outputs=2), "n_neurons": 16}
    ten = train(params, (X, y, weight), 10)
    ten.save_model(tmp_path / "m.gbun")
    loaded = load_model(tmp_path / "m.gbun")
    np.testing.assert_array_equal(loaded.predict(X), ten.predict(X))
    with pytest.raises(ValueError, match="pass the function"):
        loaded.ensemble.objective.derivatives(y, np.zeros((len(y), 2)), weight)
    twenty = train(params, (X, y, weight), 10, init_model=tmp_path / "m.gbun")
    np.testing.assert_array_equal(twenty.ensemble.heads, train(params, (X, y, weight), 20).ensemble.heads)
    with pytest.raises(ValueError, match="score"):
        train({**params, "objective": TorchLoss(squared)}, (X, y, weight), 1, init_model=loaded)


def test_copies_and_pickles():
    X, y, weight = numbers()
    model = GBUNRegressor(objective=TorchLoss(cauchy, hessian="exact"), n_neurons=16, n_estimators=5)
    copy = clone(model)
    assert copy.objective == model.objective
    model.fit(X, y, weight)
    back = pickle.loads(pickle.dumps(model))
    assert back.objective == model.objective
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    np.testing.assert_array_equal(clone(back).fit(X, y, weight).predict(X), model.predict(X))
    assert model.model_.description.parameters["objective"] == "<TorchLoss>"
    assert repr(TorchLoss(squared, outputs=2)).startswith("TorchLoss(function=<function squared")


def test_cross_validation_by_the_loss_or_another_metric():
    X, y, _ = numbers()
    params = {"objective": TorchLoss(cauchy), "n_neurons": 16}
    found = gbun.cv(params, (X, y), 4, nfold=3)
    assert list(found) == ["valid loss-mean", "valid loss-std"]
    assert found["valid loss-mean"][-1] < found["valid loss-mean"][0]
    other = gbun.cv({**params, "eval_metric": ["mae", "rmse"]}, (X, y), 2)
    assert {name.partition("-")[0] for name in other} == {"valid mae", "valid rmse"}


@pytest.mark.slow
def test_quantiles_that_do_not_cross():
    """One column of targets and three scores a row, with a penalty much steeper than the loss itself."""

    def apart(y, scores):
        return pinball(y, scores) + 5.0 * F.relu(scores[:, :-1] - scores[:, 1:]).sum(dim=1)

    X, y, _ = numbers(800)
    loss = TorchLoss(apart, outputs=3, hessian="gauss_newton")
    model = GBUNRegressor(objective=loss, n_estimators=60, n_neurons=32, learning_rate=0.3).fit(X, y)
    low, middle, high = model.predict(X).T
    assert ((low <= middle) & (middle <= high)).mean() > 0.99
    assert 0.7 < ((low < y) & (y < high)).mean() < 0.9
    assert model.model_.ensemble.heads.any(axis=(1, 2)).all()  # no round is lost
    assert loss.loss(y, model.predict(X)).mean() < 0.9 * loss.loss(y, model.predict(X, n_rounds=0)).mean()


@pytest.mark.parametrize("loss", [TorchLoss(normal, outputs=2), TorchLoss(pinball, outputs=3, hessian="gauss_newton")])
def test_a_model_is_the_same_on_a_device(loss):
    X, y, weight = numbers()
    host, device = (
        train({"objective": loss, "n_neurons": 16, "device": name}, (X, y, weight), 5) for name in ("cpu", "torch:cpu")
    )
    np.testing.assert_allclose(host.predict(X), device.predict(X), atol=1e-5)
