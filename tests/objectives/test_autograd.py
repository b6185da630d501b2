"""`TorchLoss`: derivatives, descent in every round, starts."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from gbun import TorchLoss, train
from gbun.collectives import Solo
from gbun.objectives import Logistic, MultiLogistic, MultiSquaredError, Poisson, Softmax, SquaredError
from gbun.objectives.custom import find_best_constant

torch = pytest.importorskip("torch")
from tests.objectives.torch_losses import (  # noqa: E402
    cauchy,
    classes,
    cross_entropy,
    focal,
    focal_classes,
    geman_mcclure,
    geman_mcclure_outputs,
    labels,
    logistic,
    normal,
    numbers,
    one_sum,
    outliers,
    pinball,
    poisson,
    squared,
    squared_outputs,
)

F = torch.nn.functional
SOLO = Solo()


# Derivatives

SAME = {
    "squared error": (squared, SquaredError(), lambda y: y, 1),
    "squared errors": (squared_outputs, MultiSquaredError(), lambda y: np.column_stack([y, -y]), 2),
    "logistic": (logistic, Logistic(), lambda y: (y > 0) * 1.0, 1),
    "labels": (labels, MultiLogistic(shared=False), lambda y: np.column_stack([y > 0, y > 1]) * 1.0, 2),
    "poisson": (poisson, Poisson(), lambda y: np.abs(y).round(), 1),
    "softmax": (cross_entropy, Softmax(3, shared=False), lambda y: classes(y) * 1.0, 3),
}
MANY = {**SAME, "many classes": (cross_entropy, Softmax(200, shared=False), lambda y: np.arange(60) * 3.0, 200)}


@pytest.mark.parametrize("dtype", [np.ndarray, torch.float64, torch.float32])
@pytest.mark.parametrize("name", MANY)
def test_derivatives_are_those_of_the_built_in_objectives(name, dtype):
    function, built_in, target, C = MANY[name]
    _, y, weight = numbers(60)
    given = [target(y), np.random.default_rng(1).normal(size=(60, C)), weight]
    direction = np.random.default_rng(2).normal(size=(60, C))
    wanted = built_in.loss(*given[:2]), *built_in.derivatives(*given), built_in.derivatives_along(*given, direction)
    if dtype is not np.ndarray:
        given, direction = [torch.from_numpy(a).to(dtype) for a in given], torch.from_numpy(direction)
    loss = TorchLoss(function)
    found = loss.loss(*given[:2]), *loss.derivatives(*given), loss.derivatives_along(*given, direction)
    tolerance = 1e-4 if dtype is torch.float32 else 1e-6 if built_in.name == "softmax" else 1e-12
    for a, b in zip(found, wanted, strict=True):
        assert isinstance(a, np.ndarray) if dtype is np.ndarray else a.dtype == dtype
        assert not getattr(a, "requires_grad", False)
        b = np.broadcast_to(b if a.ndim == b.ndim else b[:, None], a.shape)  # a shared Hessian
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("function", "C"), [(normal, 2), (one_sum, 3), (cross_entropy, 3), (focal_classes, 3)])
def test_derivatives_are_those_of_the_loss(function, C):
    X, y, weight = numbers(20)
    y = classes(y) * 1.0 if C == 3 and function is not one_sum else y
    scores, loss, step = X[:, :C].copy(), TorchLoss(function, outputs=C), 1e-4
    g, h = loss.derivatives(y, scores, weight)
    for c in range(C):
        up, here, down = (loss.loss(y, scores + e * np.eye(C)[c]) for e in (step, 0.0, -step))
        np.testing.assert_allclose(g[:, c], weight * (up - down) / (2 * step), rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(h[:, c], np.abs(weight * (up - 2 * here + down) / step**2), rtol=1e-5, atol=1e-5)
    d = np.random.default_rng(0).normal(size=scores.shape)
    up, here, down = (loss.loss(y, scores + e * d) for e in (step, 0.0, -step))
    slope, curvature = loss.derivatives_along(y, scores, weight, d)
    assert slope == pytest.approx(weight @ (up - down) / (2 * step), rel=1e-5)
    assert curvature == pytest.approx(weight @ np.abs(up - 2 * here + down) / step**2, rel=1e-4)


def test_gauss_newton_is_the_squared_gradient_and_differentiates_once():
    again = []

    class Watched(torch.autograd.Function):
        @staticmethod
        def forward(context, y, scores):
            context.save_for_backward(y, scores)
            return (scores - y) ** 2 / 2

        @staticmethod
        def backward(context, slope):
            again.append(torch.is_grad_enabled())  # torch keeps track of a gradient that is to be differentiated
            y, scores = context.saved_tensors
            return None, slope * (scores - y)

    X, y, weight = numbers(30)
    loss, scores, d = TorchLoss(Watched.apply, hessian="gauss_newton"), X[:, :1].copy(), X[:, 1:2].copy()
    g, h = loss.derivatives(y, scores, weight)
    r = scores[:, 0] - y
    np.testing.assert_allclose(g[:, 0], weight * r)
    np.testing.assert_allclose(h, weight * r**2)
    np.testing.assert_allclose(
        loss.derivatives_along(y, scores, weight, d), [weight @ (r * d[:, 0]), weight @ (r * d[:, 0]) ** 2]
    )
    assert loss.line_search
    assert not any(again)
    np.testing.assert_allclose(replace(loss, hessian="exact").derivatives(y, scores, weight)[1], weight)
    assert any(again)


def test_a_linear_loss_has_no_curvature_and_is_warned_of():
    X, y, weight = numbers(100)
    scores, loss = np.column_stack([X, X])[:, :3].copy(), TorchLoss(pinball, outputs=3)
    g, h = loss.derivatives(y, scores, weight)
    assert np.isfinite(g).all()
    assert (h == 0.0).all()
    assert loss.derivatives_along(y, scores, weight, np.ones_like(scores))[1] == 0.0
    # one output's is there, the other's is not
    half = TorchLoss(lambda y, s: (s[:, 0] - y) ** 2 + s[:, 1], outputs=2)
    np.testing.assert_allclose(half.derivatives(y, scores[:, :2], weight)[1], np.column_stack([2 * weight, 0 * weight]))
    with pytest.warns(UserWarning, match=r"second derivative of 0 by output\(s\) \[0, 1, 2\].*gauss_newton"):
        model = train({"objective": loss, "n_neurons": 8}, (X, y), 2)
    assert (model.ensemble.heads == 0).all()


def test_negative_second_derivatives_count_by_their_size():
    _, y, weight = outliers(50)
    scores = np.zeros((50, 1))
    r2 = y**2
    g, h = TorchLoss(cauchy).derivatives(y, scores, weight)
    second = 2 * (1 - r2) / (1 + r2) ** 2
    assert (second < 0).any()
    np.testing.assert_allclose(h, weight * np.abs(second))
    np.testing.assert_allclose(g[:, 0], weight * -2 * y / (1 + r2))


def test_weights_multiply_losses_that_do_not_see_them():
    X, y, _ = numbers(30)
    times = np.arange(30) % 3
    twice = np.repeat(np.arange(30), times)
    loss, scores = TorchLoss(normal, outputs=2), X[:, :2].copy()
    weighted, repeated = (y, scores, times * 1.0), (y[twice], scores[twice], np.ones(len(twice)))
    for a, b in zip(loss.derivatives(*weighted), loss.derivatives(*repeated), strict=True):
        np.testing.assert_allclose(a.sum(axis=0), b.sum(axis=0), rtol=1e-9)
    starts = loss.start(y, times * 1.0, SOLO), loss.start(y[twice], np.ones(len(twice)), SOLO)
    np.testing.assert_allclose(*starts, rtol=1e-6)


@pytest.mark.parametrize("hessian", ["exact", "gauss_newton"])
@pytest.mark.parametrize("C", [1, 2])
def test_no_rows_have_shapes(C, hessian):
    loss, y = TorchLoss(lambda y, s: s.mean(), outputs=C, hessian=hessian), np.zeros(0)  # is not called
    g, h = loss.derivatives(y, np.zeros((0, C)), y)
    assert g.shape == (0, C)
    assert h.shape == ((0,) if C == 1 else (0, C))
    assert loss.loss(y, np.zeros((0, C))).shape == (0,)
    np.testing.assert_array_equal(loss.derivatives_along(y, np.zeros((0, C)), y, np.zeros((0, C))), [0.0, 0.0])


def test_arrays_may_be_read_only():
    X, y, weight = numbers(30)
    scores = X[:, :1].copy()
    wanted = TorchLoss(squared).derivatives(y, scores, weight)
    y.flags.writeable = scores.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = TorchLoss(squared).derivatives(y, scores, weight)
    assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_tensors_stay_on_their_device():
    given = [torch.zeros(shape, device="meta") for shape in (5, (5, 2), 5)]
    for hessian in ("exact", "gauss_newton"):
        loss = TorchLoss(normal, outputs=2, hessian=hessian)
        results = *loss.evaluate_unchecked(*given), loss.derivatives_along(*given, given[1]), loss.loss(*given[:2])
        assert {values.device.type for values in results} == {"meta"}


# Training


@pytest.mark.parametrize("name", SAME)
def test_a_model_is_the_one_of_the_built_in_objective(name, monkeypatch):
    function, built_in, target, C = SAME[name]
    X, y, weight = numbers()
    y = target(y)
    # TorchLoss has a line search with several outputs, and no shared Hessian
    for kind in (Softmax, MultiLogistic, MultiSquaredError):
        monkeypatch.setattr(kind, "line_search", True, raising=False)
    zero = np.zeros((len(y), C))
    task = "classification" if name in ("logistic", "labels", "softmax") else "regression"
    params = {"n_neurons": 16, "hessian": "per_class", "n_estimators": 10}
    loss, named = (
        train({**params, "objective": o}, (X, y, weight, zero), task=task) for o in (TorchLoss(function), built_in.name)
    )
    # float32 sums of derivatives that differ by 1e-16 (softmax: by 1e-7) may round otherwise
    np.testing.assert_allclose(loss.ensemble.heads, named.ensemble.heads, rtol=1e-5, atol=1e-6)
    scores = [m.decision_function(X, base_margin=zero) for m in (loss, named)]
    np.testing.assert_allclose(*scores, rtol=1e-5, atol=1e-6)


DESCENDING = {
    "focal": (TorchLoss(focal), "binary"),
    "focal, three classes": (TorchLoss(focal_classes), "classes"),
    "Cauchy": (TorchLoss(cauchy), 1.0),
    "Cauchy, far out": (TorchLoss(cauchy), 100.0),
    "Geman-McClure": (TorchLoss(geman_mcclure), 1.0),
    "Geman-McClure, far out": (TorchLoss(geman_mcclure), 100.0),
    "Geman-McClure of two": (TorchLoss(geman_mcclure_outputs), "two"),
    "mean and deviation": (TorchLoss(normal, outputs=2), 1000.0),
    "mean and deviation, g^2": (TorchLoss(normal, outputs=2, hessian="gauss_newton"), 1000.0),
    "one sum of five": (TorchLoss(one_sum, outputs=5), 1.0),
    "logistic, g^2": (TorchLoss(logistic, hessian="gauss_newton"), "binary"),
    "focal classes, g^2": (TorchLoss(focal_classes, hessian="gauss_newton"), "classes"),
    "quantiles, g^2": (TorchLoss(pinball, outputs=3, hessian="gauss_newton"), 1.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.1, 1.0])
@pytest.mark.parametrize("case", DESCENDING)
def test_every_round_descends(case, rate):
    """Convex or not, and with outputs that interact. Full steps without a line search may ascend a little."""
    loss, kind = DESCENDING[case]
    X, y, _ = outliers()
    task = "classification" if kind in ("binary", "classes") else "regression"
    target = {"binary": y > 0, "classes": classes(y), "two": np.column_stack([y, y / 2])}
    y = target[kind] if isinstance(kind, str) else kind * y
    model = train({"objective": loss, "n_neurons": 16, "learning_rate": rate}, (X, y), 25, task=task)
    stages = [np.reshape(s, (len(y), -1)) for s in model.staged_decision_function(X)]
    losses = np.array([loss.loss(y.astype(float), s).mean() for s in stages])
    assert np.isfinite(losses).all()
    allowed = 2e-3 if rate == 1.0 and not loss.line_search else 1e-6
    assert (np.diff(losses) <= allowed * abs(losses[0])).all()
    assert losses[-1] < losses[0] - 5e-3 * abs(losses[0])


@pytest.fixture
def two_torch_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("handed_over", "two_torch_threads")
def test_the_number_of_threads_changes_no_bit_and_stays_as_it_was():
    params = {"objective": TorchLoss(normal, outputs=2), "n_neurons": 16}
    models = [train({**params, "n_jobs": n}, numbers(3000), 5) for n in (1, 2, 3)]
    for other in models[1:]:
        np.testing.assert_array_equal(models[0].ensemble.heads, other.ensemble.heads)
    assert torch.get_num_threads() == 2
    with ThreadPoolExecutor(1) as pool:  # the default of a new thread
        assert pool.submit(torch.get_num_threads).result() == 2


@pytest.mark.usefixtures("handed_over", "two_torch_threads")
def test_torch_keeps_to_the_thread_that_calls_it():
    seen = []

    def watched(y, scores):
        seen.append(torch.get_num_threads())
        return squared(y, scores)

    X, y, _ = numbers(2000)
    train({"objective": TorchLoss(watched), "n_neurons": 8, "n_jobs": 2}, (X, y), 3)
    assert set(seen) == {1}


# The start


def test_the_start_is_the_best_constant():
    _, y, weight = numbers()
    mean, deviation = np.average(y, weights=weight), np.sqrt(np.cov(y, fweights=weight.astype(int), bias=True))
    np.testing.assert_allclose(TorchLoss(squared).start(y, weight, SOLO), [mean], rtol=1e-9)
    np.testing.assert_allclose(
        TorchLoss(normal, outputs=2).start(y, weight, SOLO), [mean, np.log(deviation)], rtol=1e-6
    )
    assert TorchLoss(one_sum, outputs=4).start(y, weight, SOLO).sum() == pytest.approx(mean, abs=1e-8)
    three = classes(y)
    start = TorchLoss(cross_entropy, outputs=3).start(three * 1.0, weight, SOLO)
    q = np.exp(start) / np.exp(start).sum()
    np.testing.assert_allclose(q, np.bincount(three, weight) / weight.sum(), rtol=1e-6)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("hessian", ["exact", "gauss_newton"])
@pytest.mark.filterwarnings("ignore:objective has a second derivative of 0")
def test_the_start_does_not_need_curvature(size, hessian):
    _, y, _ = numbers(999)
    start = TorchLoss(pinball, outputs=3, hessian=hessian).start(size * y, np.ones(999), SOLO)
    np.testing.assert_allclose(start / size, np.quantile(y, [0.1, 0.5, 0.9]), atol=0.02)


@pytest.mark.parametrize("mean", [1e-6, 1.0, 1e6])
def test_the_start_comes_back_from_steps_that_overflow(mean):
    y = np.array([0.5, 1.0, 1.5]) * mean
    np.testing.assert_allclose(TorchLoss(poisson).start(y, np.ones(3), SOLO), [np.log(mean)], rtol=1e-6)


def test_the_start_is_zero_if_no_constant_is_better():
    start = TorchLoss(lambda y, s: torch.cos(s - 20.0 * y) * 1e-3 + s**2).start(np.ones(5), np.ones(5), SOLO)
    assert abs(start[0]) < 1e-2
    assert find_best_constant(lambda s: np.full((2, 1), np.nan), 1) == (np.zeros(1), False)


def test_the_start_is_made_of_sums():
    """Two workers with half of the rows find the same start."""

    class Half:
        rank, size = 0, 2

        def sum(self, values):
            return 2.0 * values

    _, y, weight = numbers(50)
    twice = TorchLoss(normal, outputs=2).start(np.append(y, y), np.append(weight, weight), SOLO)
    np.testing.assert_allclose(TorchLoss(normal, outputs=2).start(y, weight, Half()), twice, rtol=1e-8)
