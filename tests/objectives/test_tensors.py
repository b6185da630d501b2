"""Objectives on tensors: the results of arrays, in the dtype and on the device of the scores."""

from __future__ import annotations

import numpy as np
import pytest

from gbun.arrays import asarray_like, dot, logsumexp, row_dots, sigmoid, target_index
from gbun.objectives import Custom, Logistic, SquaredError
from tests.objectives.test_objectives import ALL, rows

torch = pytest.importorskip("torch")

every = pytest.mark.parametrize("objective", ALL, ids=repr)
scales = pytest.mark.parametrize("scale", [1.0, 40.0, 1e3, 1e6])


def results(objective, y, scores, weight, direction):
    """Return all results of an objective in a round, by name."""
    g, h = objective.derivatives(y, scores, weight)
    found = {"loss": objective.loss(y, scores), "g": g, "h": h, "response": objective.response(scores)}
    return {**found, "along": objective.derivatives_along(y, scores, weight, direction)}


def case(objective, scale=1.0, n=50):
    y, scores, weight = rows(objective, 0, n)
    direction = np.random.default_rng(1).normal(size=scores.shape).astype(np.float32)
    return y, scale * scores, weight, direction


def tensors(arrays, dtype=None):
    """Return y, scores and weight as tensors; the direction is always float32."""
    y, scores, weight, direction = map(torch.from_numpy, arrays)
    return *(t.to(dtype or t.dtype) for t in (y, scores, weight)), direction


@every
@scales
def test_tensors_give_what_arrays_give(objective, scale):
    arrays = case(objective, scale)
    wanted, found = results(objective, *arrays), results(objective, *tensors(arrays))
    for name, values in wanted.items():
        assert isinstance(values, np.ndarray)
        assert isinstance(found[name], torch.Tensor)
        assert tuple(found[name].shape) == values.shape
        assert found[name].dtype == torch.float64
        # softmax computes probabilities in float32 on every device: see _probabilities
        narrow = objective.name == "softmax" and name in ("g", "h", "along")
        size = max(1.0, np.abs(values).max())
        relative, absolute = (1e-5, 5e-7) if narrow else (1e-12, 1e-13)
        np.testing.assert_allclose(found[name], values, rtol=relative, atol=size * absolute)


@every
def test_float32_stays_float32_and_is_accurate(objective):
    arrays = case(objective)
    wanted, found = results(objective, *arrays), results(objective, *tensors(arrays, torch.float32))
    for name, values in wanted.items():
        assert found[name].dtype == torch.float32
        np.testing.assert_allclose(found[name], values, rtol=2e-4, atol=2e-5 * max(1.0, np.abs(values).max()))


@every
@scales
def test_float32_derivatives_are_finite_whatever_the_scores(objective, scale):
    y, scores, weight, _ = tensors(case(objective, scale), torch.float32)
    for values in (*objective.derivatives(y, scores, weight), objective.response(scores)):
        assert torch.isfinite(values).all()
    assert (objective.derivatives(y, scores, weight)[1] >= 0).all()


@every
def test_tensors_stay_on_their_device(objective):
    """A tensor on "meta" has no numbers: code that reads them, or mixes devices, fails."""
    away = [t.to("meta") for t in tensors(case(objective))]
    for values in results(objective, *away).values():
        assert values.device.type == "meta"


@every
def test_tensors_are_left_as_they_were(objective):
    given = tensors(case(objective))
    before = [t.clone() for t in given]
    results(objective, *given)
    assert all(map(torch.equal, given, before))


@every
def test_no_rows_have_shapes(objective):
    given = [t[:0] for t in tensors(case(objective))]
    C = given[1].shape[1]
    found = results(objective, *given)
    assert tuple(found["g"].shape) == (0, C)
    assert tuple(found["h"].shape) in ((0,), (0, C))
    np.testing.assert_array_equal(found["along"], [0.0, 0.0])


def squared(y, scores, weight):
    assert all(isinstance(a, np.ndarray) for a in (y, scores, weight))
    return (scores.T - y.T).T * (weight if scores.ndim == 1 else weight[:, None]), weight


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("C", [1, 3])
def test_a_function_gets_arrays_and_its_result_is_moved_to_the_device(dtype, C):
    rng = np.random.default_rng(0)
    y, scores, weight = rng.normal(size=(20, C)), rng.normal(size=(20, C)), rng.random(20)
    y = y[:, 0] if C == 1 else y
    given = [torch.from_numpy(a).to(dtype) for a in (y, scores, weight)]
    custom = Custom(squared, C)
    for found, wanted in zip(custom.derivatives(*given), SquaredError().derivatives(*given), strict=True):
        assert found.dtype == dtype
        torch.testing.assert_close(found, wanted)
    direction = torch.from_numpy(rng.normal(size=(20, C)).astype(np.float32))
    torch.testing.assert_close(*(o.derivatives_along(*given, direction) for o in (custom, SquaredError())))
    assert torch.equal(Custom(None, 1, "logistic").response(given[1]), Logistic().response(given[1]))


def test_errors_of_a_function_are_named_on_tensors_too():
    y, scores, weight = torch.zeros(3), torch.zeros(3, 1), torch.ones(3)
    with pytest.raises(ValueError, match="gradient of shape"):
        Custom(lambda y, s, w: (s[:-1], w)).derivatives(y, scores, weight)
    with pytest.raises(ValueError, match=r"Hessian that is not finite for y = 0.0, scores = \[0.\]"):
        Custom(lambda y, s, w: (s, w * np.inf)).derivatives(y, scores, weight)


def test_helpers_agree_between_libraries():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(7, 3)) * 30, rng.integers(3, size=7).astype(float)
    t = torch.from_numpy(x)
    np.testing.assert_allclose(logsumexp(t), logsumexp(x), rtol=1e-14)
    np.testing.assert_allclose(sigmoid(t), sigmoid(x), rtol=1e-14)
    np.testing.assert_allclose(dot(t, t.float()), dot(x, x.astype(np.float32)), rtol=1e-6)
    np.testing.assert_allclose(row_dots(t.float(), t.float(), torch.float64), (x * x).sum(axis=1), rtol=1e-6)
    np.testing.assert_array_equal(t[target_index(torch.from_numpy(y))], x[np.arange(7), y.astype(int)])
    assert asarray_like([1.0, 2.0], t.float()).dtype == torch.float32
    assert asarray_like([1.0, 2.0], x.astype(np.float32)).dtype == np.float32
