"""Categories that training has not seen are missing, whatever the learner, the start and the form of the rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import gbun
from gbun.collectives.threads import in_threads
from gbun.data.seen_categories import pack_seen, unpack_seen

rng = np.random.default_rng(0)
N = 400
TOWN = rng.choice(["Rome", "Oslo", "Bonn", None], N)
FRAME = pd.DataFrame({"town": TOWN, "size": rng.normal(size=N), "code": rng.integers(0, 5, N)})
Y = (TOWN == "Rome") + FRAME["size"] + (FRAME["code"] == 2)


def train(learner="network", init="constant", rows=slice(None), weight=None, **options):
    params = {"learner": learner, "init": init, "n_jobs": 1, "categorical_features": ["code"]}
    data = FRAME.iloc[rows], Y[rows], None if weight is None else weight[rows]
    return gbun.train(params, data, 8, task="regression", **options)


@pytest.mark.parametrize("init", ["constant", "linear"])
@pytest.mark.parametrize("learner", ["network", "tree", "mixed"])
def test_unseen_categories_are_missing(learner, init, tmp_path):
    model = train(learner, init)
    model.save_model(tmp_path / "m.gbun")
    for each in (model, gbun.load_model(tmp_path / "m.gbun")):
        missing, unseen = FRAME[:6].copy(), FRAME[:6].copy()
        missing["town"], unseen["town"] = None, [f"new {i}" for i in range(6)]
        np.testing.assert_array_equal(each.predict(unseen), each.predict(missing))
        unseen["code"] = np.arange(90, 96)
        scores = each.predict(unseen)
        unseen["code"] = np.arange(70, 76)
        np.testing.assert_array_equal(each.predict(unseen), scores)
        np.testing.assert_array_equal(each.predict(FRAME), model.predict(FRAME))


def test_rows_of_weight_zero_show_no_category():
    weight = (TOWN != "Oslo").astype(float)
    model = train(weight=weight)
    oslo, missing = FRAME[:3].copy(), FRAME[:3].copy()
    oslo["town"], missing["town"] = "Oslo", None
    np.testing.assert_array_equal(model.predict(oslo), model.predict(missing))


def test_what_any_worker_has_seen_is_seen():
    def work(collective):
        rows = [np.flatnonzero(TOWN == "Rome"), np.flatnonzero(TOWN != "Rome"), np.zeros(0, dtype=int)]
        return train(rows=rows[collective.rank], collective=collective)

    one, found = train(), in_threads(3, work)
    for buckets, of_one in zip(found[0].ensemble.scaling.seen.buckets, one.ensemble.scaling.seen.buckets, strict=True):
        np.testing.assert_array_equal(buckets, of_one)


def test_damaged_tables_are_refused():
    packed = pack_seen(train().ensemble.scaling.seen)
    buckets, counts = packed["categories.seen"], packed["categories.n_seen"]
    assert [len(b) for b in unpack_seen(buckets, counts).buckets] == [3, 5]
    for forged in ((buckets[::-1], counts), (buckets[1:], counts), (buckets * 0, counts), (buckets, counts - 4)):
        with pytest.raises(ValueError, match="categories"):
            unpack_seen(*forged)


@pytest.mark.parametrize("learner", ["network", "tree"])
def test_continued_models_learn_of_new_categories(learner):
    first = train(learner, rows=np.flatnonzero((TOWN != "Bonn") & (FRAME["code"] < 4)))
    more = pd.DataFrame({"town": rng.choice(["Bonn", "Paris", "Oslo"], N), "size": rng.normal(size=N), "code": 1})
    y = 5.0 * (more["town"] == "Bonn") - 5.0 * (more["town"] == "Paris")
    params = {"learning_rate": 0.3, "n_jobs": 1}
    model = gbun.train(params, (more, y), 60, init_model=first, task="regression")
    assert np.abs(model.predict(more) - y).mean() < 1.0
    assert [len(b) for b in model.ensemble.scaling.seen.buckets] == [4, 4]
