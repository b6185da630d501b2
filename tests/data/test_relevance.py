"""Columns scaled by how much they tell about the targets, and clipped."""

import numpy as np
import pytest

import gbun
from gbun.collectives import Solo
from gbun.data.relevance import LEAST, POWER, measure_relevance
from gbun.data.scaled_columns import ColumnScale


def measure(X, g, weight=None):
    weight = np.ones(len(X)) if weight is None else weight
    scale = ColumnScale(np.nanmean(X, axis=0), 1.0 / np.nanstd(X, axis=0))
    return measure_relevance(X, scale, g * weight[:, None], weight, Solo())


def rows(n=4000):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5))
    return X, (X[:, 1] ** 2 - 1.0 + 0.5 * X[:, 3] + rng.normal(scale=0.1, size=n))[:, None]


def test_a_column_counts_by_the_variance_that_a_histogram_of_it_explains():
    X, g = rows()
    found = measure(X, g)
    assert found[1] == 1.0
    assert found[3] == pytest.approx((0.25 / 2.0) ** POWER, rel=0.1)  # the variances of both terms
    assert (found[[0, 2, 4]] < (0.01) ** POWER).all()
    assert found.min() >= LEAST**POWER


def test_the_order_of_rows_and_weights_that_count_rows_change_nothing():
    X, g = rows()
    X[::5, 3] = np.nan
    twice = np.arange(4000) % 3 == 0
    weighted = measure(X, g, np.where(twice, 2.0, 1.0))
    order = np.random.default_rng(1).permutation(4000 + twice.sum())
    X2, g2 = (np.concatenate([part, part[twice]])[order] for part in (X, g))
    scale = ColumnScale(np.nanmean(X, axis=0), 1.0 / np.nanstd(X, axis=0))
    np.testing.assert_allclose(measure_relevance(X2, scale, g2, np.ones(len(X2)), Solo()), weighted, rtol=1e-6)


def test_without_any_relevance_all_columns_count_alike():
    X, g = rows()
    assert (measure(X, 0.0 * g) == 1.0).all()
    assert (measure(np.where(X < 0, X, np.nan) * 0 + 1e-3 * X, np.ones_like(g)) > 0.0).all()


def test_many_scores_are_summed_in_groups():
    X, g = rows()
    found = measure(X, np.repeat(g, 40, axis=1) * np.linspace(0.5, 1.5, 40))
    assert found.argmax() == 1
    assert found[3] == pytest.approx((0.25 / 2.0) ** POWER, rel=0.1)


def test_networks_learn_more_of_relevant_columns():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 40))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
    fit, judge = (X[:1500], y[:1500]), (X[1500:], y[1500:])
    errors = {}
    for scale in ("standard", "standard+clip+relevance"):
        model = gbun.train({"learner": "network", "scale": scale}, fit, 60)
        errors[scale] = np.square(model.predict(judge[0]) - judge[1]).mean()
        again = gbun.model.model_from_bytes(model.to_bytes(), "model")
        assert (again.predict(X) == model.predict(X)).all()
        assert model.ensemble.scaling.name == scale
    assert errors["standard+clip+relevance"] < 0.95 * errors["standard"]


def test_clipped_columns_do_not_see_how_far_a_value_is():
    X, g = rows(500)
    model = gbun.train({"learner": "network", "scale": "standard+clip"}, (X, g[:, 0]), 5)
    far, farther = (np.where(np.arange(5) == 2, value, 0.0)[None] for value in (50.0, 5e6))
    assert model.predict(far) == model.predict(farther)


@pytest.mark.parametrize("scale", ["clip", "relevance", "max_abs+clip", "relevance+standard"])
def test_clip_and_relevance_follow_standard(scale):
    with pytest.raises(ValueError, match=r"scale must be .* after 'standard' also 'clip' and 'relevance'"):
        gbun.train({"scale": scale}, rows(100), 1)
