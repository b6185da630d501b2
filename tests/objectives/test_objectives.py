"""Laws of every objective in the registry."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbun.collectives import Solo
from gbun.objectives import OBJECTIVES, Huber, MultiLogistic, Quantile, Softmax, Tweedie, make_objective
from gbun.training import train

SOLO = Solo()

# Objectives with other parameters; those that are not here are tested as OBJECTIVES[name]().
FORMS = {
    "huber": [Huber(0.5), Huber(3.0)],
    "quantile": [Quantile(0.5, 0.01), Quantile(0.9, 0.01), Quantile(0.03, 0.1)],
    "tweedie": [Tweedie(1.5), Tweedie(1.1), Tweedie(1.9)],
    "softmax": [Softmax(3, shared=False), Softmax(3, shared=True), Softmax(7, shared=True)],
    "multi_logistic": [MultiLogistic(shared=False), MultiLogistic(shared=True)],
}
ALL = [objective for name, cls in OBJECTIVES.items() for objective in FORMS.get(name, [cls()])]

# Hessians that are not the second derivative; all others must be exact.
MAJORISERS = ("huber", "quantile")  # the curvature of a parabola above the loss that touches it
EXPECTED = ("gamma",)  # Fisher's: the expectation of the second derivative, 1 for every row, so h is the weight
SHARED = [o for o in ALL if o.line_search]  # one value for all outputs, and a line search

every = pytest.mark.parametrize("objective", ALL, ids=repr)
seeds = st.integers(0, 10**6)


def rows(objective, seed, n=20):
    """Return y, scores and weight for the objective."""
    rng = np.random.default_rng(seed)
    several = objective.name.startswith("multi")
    C = 3 if several else objective.n_outputs(np.zeros(0))
    if objective.name == "softmax":
        y = rng.integers(C, size=n).astype(float)
    elif "logistic" in objective.name:
        y = rng.integers(2, size=(n, C) if several else n).astype(float)
    else:
        y = rng.gamma(2.0, size=(n, C) if several else n) * 3 + 0.05
    return y, rng.normal(size=(n, C)), rng.integers(1, 4, size=n).astype(float)


def away_from_kinks(objective, y, scores, margin=1e-2):
    if objective.name not in MAJORISERS:
        return np.ones(len(y), dtype=bool)
    r = np.abs(scores[:, 0] - y)
    return np.abs(r - getattr(objective, "delta", 0.0)) > margin


def moved(scores, c, step):
    shifted = scores.copy()
    shifted[:, c] += step
    return shifted


@every
def test_every_objective_can_be_stored_and_made_again(objective):
    assert make_objective(objective.name, objective.parameters()) == objective


@every
@settings(max_examples=15, deadline=None)
@given(seed=seeds)
def test_the_gradient_is_the_derivative_of_the_loss(objective, seed):
    y, scores, weight = rows(objective, seed)
    smooth, step = away_from_kinks(objective, y, scores), 1e-5
    g, _ = objective.derivatives(y, scores, weight)
    assert g.shape == scores.shape
    for c in range(scores.shape[1]):
        up, down = (objective.loss(y, moved(scores, c, e)) for e in (step, -step))
        numerical = weight * (up - down) / (2 * step)
        # softmax computes probabilities in float32, which is 1e-7 of one
        np.testing.assert_allclose(g[smooth, c], numerical[smooth], rtol=1e-6, atol=1e-6)


@every
@settings(max_examples=15, deadline=None)
@given(seed=seeds)
def test_the_hessian_is_the_second_derivative_where_it_is_not_declared_otherwise(objective, seed):
    y, scores, weight = rows(objective, seed)
    _, h = objective.derivatives(y, scores, weight)
    assert h.shape in (scores.shape, (len(y),))
    assert (h >= 0).all()
    if objective.name in MAJORISERS or objective in SHARED:
        return
    if objective.name in EXPECTED:
        np.testing.assert_array_equal(h, weight)
        return
    loss, step = objective.loss(y, scores), 1e-3
    for c in range(scores.shape[1]):
        up, down = (objective.loss(y, moved(scores, c, e)) for e in (step, -step))
        second = h if h.ndim == 1 else h[:, c]
        np.testing.assert_allclose(second, weight * (up - 2 * loss + down) / step**2, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("objective", [o for o in ALL if o.name in MAJORISERS], ids=repr)
@settings(max_examples=40, deadline=None)
@given(seed=seeds, to=st.floats(-30, 30))
def test_the_parabola_of_a_majoriser_lies_above_the_loss(objective, seed, to):
    """L(s) <= L(s0) + g (s - s0) + h (s - s0)^2 / 2, for quantiles up to epsilon."""
    y, scores, _ = rows(objective, seed)
    g, h = objective.derivatives(y, scores, np.ones(len(y)))
    step = to - scores[:, 0]
    parabola = objective.loss(y, scores) + g[:, 0] * step + 0.5 * h * step**2
    allowed = getattr(objective, "epsilon", 0.0) + 1e-9
    assert (objective.loss(y, np.full_like(scores, to)) <= parabola + allowed).all()


@pytest.mark.parametrize("objective", SHARED, ids=repr)
@settings(deadline=None)
@given(seed=seeds)
def test_a_shared_hessian_is_at_least_the_largest_of_its_outputs(objective, seed):
    y, scores, weight = rows(objective, seed)
    _, shared = objective.derivatives(y, 3 * scores, weight)
    _, each = replace(objective, shared=False).derivatives(y, 3 * scores, weight)
    assert (shared[:, None] >= each).all()


@pytest.mark.parametrize("objective", SHARED, ids=repr)
@settings(max_examples=25, deadline=None)
@given(seed=seeds)
def test_slope_and_curvature_along_a_step(objective, seed):
    y, scores, weight = rows(objective, seed)
    d = np.random.default_rng(seed + 1).normal(size=scores.shape).astype(np.float32)

    def total(alpha):
        return weight @ objective.loss(y, scores + alpha * d.astype(float))

    slope, curvature = objective.derivatives_along(y, scores, weight, d)
    np.testing.assert_allclose(slope, (total(1e-4) - total(-1e-4)) / 2e-4, rtol=1e-5, atol=1e-4)
    second = (total(1e-3) - 2 * total(0.0) + total(-1e-3)) / 1e-6
    np.testing.assert_allclose(curvature, second, rtol=1e-4, atol=1e-3)
    assert curvature >= 0
    g, _ = objective.derivatives(y, scores, weight)
    np.testing.assert_allclose(slope, (g * d).sum(), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@every
@settings(max_examples=15, deadline=None)
@given(seed=seeds, n=st.integers(3, 30))
def test_the_start_is_the_best_constant(objective, seed, n):
    y, scores, weight = rows(objective, seed, n)

    def total(constant):
        return float(weight @ objective.loss(y, np.tile(constant, (n, 1))))

    start = objective.start(y, weight, SOLO)
    assert start.shape == (scores.shape[1],)
    # losses are convex, so no better point near by, in any direction, means none at all
    directions = np.vstack([np.eye(len(start)), np.random.default_rng(seed).normal(size=(5, len(start)))])
    others = [total(start + e * d) for d in directions for size in np.logspace(-6, 1, 15) for e in (size, -size)]
    assert total(start) <= min(others) + 1e-9 * (1 + abs(total(start)))  # MIN_PROBABILITY, for classes that no row has


@settings(deadline=None)
@given(st.floats(0.02, 0.98), seeds, st.integers(1, 40))
def test_the_start_of_a_quantile_is_a_weighted_quantile(q, seed, n):
    rng = np.random.default_rng(seed)
    y, weight = rng.integers(-5, 6, size=n).astype(float), rng.integers(0, 4, size=n) + 1.0 * (np.arange(n) == 0)
    s = Quantile(q, 0.01).start(y, weight, SOLO)[0]
    slack = 1e-9 * weight.sum()
    assert weight[y < s - 1e-6].sum() <= q * weight.sum() + slack
    assert weight[y <= s + 1e-6].sum() >= q * weight.sum() - slack


@every
@settings(deadline=None)
@given(seed=seeds)
def test_weight_two_is_the_row_twice(objective, seed):
    y, scores, _ = rows(objective, seed)
    times = np.random.default_rng(seed).integers(0, 4, size=len(y))
    times[0] = 1
    twice = np.repeat(np.arange(len(y)), times)
    weighted = objective.prepare(y, times.astype(float), SOLO)
    repeated = objective.prepare(y[twice], np.ones(len(twice)), SOLO)
    g, h = weighted.derivatives(y, scores, times.astype(float))
    g2, h2 = repeated.derivatives(y[twice], scores[twice], np.ones(len(twice)))
    np.testing.assert_allclose(g.sum(axis=0), g2.sum(axis=0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(h.sum(axis=0), h2.sum(axis=0), rtol=1e-6)
    start, again = weighted.start(y, times * 1.0, SOLO), repeated.start(y[twice], np.ones(len(twice)), SOLO)
    if objective.name != "quantile":  # which is flat where q x N is an integer
        np.testing.assert_allclose(start, again, rtol=1e-9, atol=1e-9)
    losses = [times @ weighted.loss(y, np.tile(s, (len(y), 1))) for s in (start, again)]
    assert losses[0] == pytest.approx(losses[1])


def test_the_start_of_a_quantile_does_not_depend_on_the_order_of_rows():
    y = np.arange(10.0)
    starts = [Quantile(0.3, 0.01).start(rows, np.ones(10), SOLO)[0] for rows in (y, y[::-1])]
    assert starts[0] == pytest.approx(starts[1])


@every
@settings(deadline=None)
@given(seed=seeds)
def test_the_response_is_on_the_scale_of_y(objective, seed):
    """The constant response is the mean of y for every objective that has a mean; probabilities are ones."""
    y, scores, weight = rows(objective, seed)
    before = scores.copy()
    response = objective.response(scores)
    np.testing.assert_array_equal(scores, before)
    assert response.shape == scores.shape
    constant = objective.response(np.tile(objective.start(y, weight, SOLO), (1, 1)))[0]
    if objective.name == "softmax":
        np.testing.assert_allclose(response.sum(axis=1), 1.0)
        target = np.eye(objective.n_classes)[y.astype(int)]
        np.testing.assert_allclose(constant, weight @ target / weight.sum(), atol=1e-9)
    elif objective.name not in MAJORISERS:
        wanted = weight @ y / weight.sum()
        np.testing.assert_allclose(constant, np.atleast_1d(wanted).clip(1e-12, None), rtol=1e-6, atol=1e-9)
    if "logistic" in objective.name:
        assert ((response > 0) & (response < 1)).all()


@every
def test_extreme_scores_have_finite_derivatives(objective):
    y, scores, weight = rows(objective, 0)
    for size in (40.0, 1e3, 1e6):
        g, h = objective.derivatives(y, np.sign(scores) * size, weight)
        assert np.isfinite(g).all()
        assert np.isfinite(h).all()
        assert (h >= 0).all()
        assert np.isfinite(objective.response(np.sign(scores) * size)).all()


@pytest.mark.parametrize("objective", [Huber(), Quantile(0.5)], ids=repr)
def test_the_scale_of_y_is_learnt_from_y(objective):
    y, weight = rows(objective, 3)[::2]
    small, large = (objective.prepare(u * y, weight, SOLO) for u in (1.0, 1000.0))
    for a, b in zip(small.parameters().values(), large.parameters().values(), strict=True):
        assert b == pytest.approx(a if a == objective.parameters().get("quantile") else 1000 * a)


@pytest.mark.parametrize("given", [Huber(0.7), Quantile(0.5, 0.7)], ids=repr)
def test_what_the_user_sets_is_kept(given):
    y, weight = rows(given, 3)[::2]
    assert given.prepare(y, weight, SOLO) == given


class Impatient(Solo):
    calls = 0

    def sum(self, values, root=None, wire=None):
        self.calls += 1
        assert self.calls < 5000, "the search for the start does not end"
        return values


@pytest.mark.parametrize("objective", [Quantile(0.9, 1.0), Huber(1.0)], ids=repr)
def test_the_search_for_a_start_ends_where_numbers_do(objective):
    y = np.array([1e8, 1e8 + 2.0**-26])
    assert objective.start(y, np.ones(2), Impatient()) in y


@pytest.mark.parametrize(("name", "bad"), [("poisson", -1.0), ("tweedie", -0.5), ("gamma", -2.0), ("gamma", 0.0)])
def test_targets_without_meaning_are_refused(name, bad):
    objective = OBJECTIVES[name]()
    objective.check_target(np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match=f"objective='{name}' takes .* y has {bad:g}"):
        objective.check_target(np.array([1.0, bad]))
    with pytest.raises(ValueError, match=name):
        train({"objective": name, "n_neurons": 4}, (np.ones((2, 1)), np.array([1.0, bad])), 1)


@pytest.mark.parametrize("name", ["poisson", "tweedie"])
def test_counts_may_all_be_zero(name):
    start = OBJECTIVES[name]().start(np.zeros(5), np.ones(5), SOLO)
    assert np.isfinite(start).all()
    assert OBJECTIVES[name]().response(start[None])[0, 0] < 1e-9
