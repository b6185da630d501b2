"""Generated clicks."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from gbun import datasets
from gbun.datasets import make_clicks

SIZES = [6144, 10**4, 10**6, 10**7, 54 * 10**6]


@pytest.mark.parametrize(("n_features", "seed"), [*((m, 0) for m in SIZES), *((10**5, s) for s in range(8))])
def test_clicks_have_one_value_of_each_field_and_a_known_share_of_positives(n_features, seed):
    X, y = make_clicks(20_000, n_features, seed=seed)
    sizes = datasets.field_sizes(n_features, 11)
    ends = np.cumsum(sizes)
    ids = X.indices.reshape(-1, 11)
    assert X.shape == (20_000, n_features)
    assert (X.dtype, X.indices.dtype) == (np.float32, np.int32)
    assert (X.data == 1).all()
    assert ((ids >= ends - sizes) & (ids < ends)).all()
    assert sizes[0] == 3
    assert sizes.min() > 0
    assert sizes.sum() == n_features
    assert 0.1 < y.mean() < 0.2


def test_the_seed_determines_the_clicks():
    (X, y), (X2, y2), (X3, y3) = (make_clicks(500, 10**6, seed=s) for s in (3, 3, 4))
    assert (X.indices == X2.indices).all()
    assert (y == y2).all()
    assert (X.indices != X3.indices).any()
    assert (y != y3).any()


def test_clicks_golden():
    X, y = make_clicks(1000, 10_000_000, seed=1)
    assert X.indices[:11].tolist() == [0, 6, 34, 60, 406, 946, 3713, 36299, 150205, 493419, 1771989]
    assert int(y.sum()) == 159


def test_memory_of_clicks_follows_rows_and_not_features():
    def peak(n_rows, n_features):
        tracemalloc.start()
        make_clicks(n_rows, n_features)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(10, 10_000)
    assert peak(20_000, 2**31 - 1) < 1.05 * peak(20_000, 10_000)
    assert peak(40_000, 10_000) > 1.5 * peak(20_000, 10_000)


def test_values_follow_zipf():
    ranks = datasets.draw_ranks(200_000, np.array([1000]), np.random.default_rng(0))[:, 0]
    counts = np.bincount(ranks, minlength=1000)
    assert 0 <= ranks.min() <= ranks.max() < 1000
    slope = np.polyfit(np.log(np.arange(10, 200)), np.log(counts[9:199]), 1)[0]
    assert slope == pytest.approx(-datasets.ZIPF, abs=0.1)


@pytest.mark.parametrize("size", [3, 97, 1000, 65_536])
def test_ranks_are_permuted(size):
    places = datasets.permute_ranks(np.arange(size)[:, None], np.array([size]))
    assert sorted(places[:, 0]) == list(range(size))


def test_effects_have_mean_0_variance_1_and_end_with_frequent_values():
    effects = datasets.effect(7, 2, np.arange(100_000), 50_000)
    assert abs(effects[:50_000].mean()) < 0.02
    assert effects[:50_000].std() == pytest.approx(1.0, abs=0.02)
    assert not effects[50_000:].any()


def test_clicks_can_be_learnt():
    from sklearn.metrics import roc_auc_score

    from gbun import GBUNClassifier

    X, y = make_clicks(6000, 10_000_000)
    model = GBUNClassifier(n_neurons=64, n_estimators=40).fit(X[:4500], y[:4500])
    assert roc_auc_score(y[4500:], model.decision_function(X[4500:])) > 0.7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_rows": 0, "n_features": 10_000}, "n_rows must be at least 1, got 0"),
        ({"n_rows": 5, "n_features": 6143}, "n_features must be from 6144 .* got 6143"),
        ({"n_rows": 5, "n_features": 2**31}, "n_features must be from 6144 .* got 2147483648"),
        ({"n_rows": 5, "n_features": 10_000, "n_fields": 1}, "n_fields must be at least 2"),
    ],
)
def test_clicks_refuse(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_clicks(**arguments)
