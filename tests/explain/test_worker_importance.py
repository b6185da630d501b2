"""Importance over workers: that of one process with all rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from gbun.collectives import Solo
from gbun.collectives.threads import in_threads
from tests.explain.test_explain import FORMS, NETWORKS, S_SIGNAL, SPARSE, TOKENS, TREES, X, train

N_ROWS = 60
CUTS = {1: [0, N_ROWS], 2: [0, 0, N_ROWS], 3: [0, 20, 20, N_ROWS]}
"""Where the shares of workers end: with 2 and 3 workers one of them has no rows."""


def over_workers(model, rows, n_workers, **arguments):
    cuts = CUTS[n_workers]

    def work(collective):
        share = rows[cuts[collective.rank] : cuts[collective.rank + 1]]
        return model.importance(share, collective=collective, n_jobs=1, **arguments)

    return in_threads(n_workers, work)


@pytest.mark.parametrize("n_workers", CUTS)
@pytest.mark.parametrize("form", FORMS)
def test_workers_find_the_importance_of_one_process(form, n_workers):
    rows, y = FORMS[form]
    model = train(rows, y, 4, **NETWORKS)
    wanted = model.importance(rows[:N_ROWS])
    for found in over_workers(model, rows, n_workers):
        assert (found.names, found.kind) == (wanted.names, "contribution")
        np.testing.assert_allclose(found.values, wanted.values, rtol=1e-3, atol=1e-4 * wanted.values.max())


@pytest.mark.parametrize("learner", [TREES, NETWORKS])
def test_arguments_of_explain_and_several_scores(learner):
    model = train(X, np.digitize(X[:, 0], [-0.5, 0.5]), 4, **learner, task="classification")
    for more in ({}, {"background": X[100:103]}, {"output": 1}, {"top": 2}):
        wanted = model.importance(X[:N_ROWS], **more)
        for found in over_workers(model, X, 3, **more):
            assert found.names == wanted.names
            np.testing.assert_allclose(found.values, wanted.values, rtol=1e-3)


def test_features_that_a_worker_has_in_its_background_alone():
    model = train(TOKENS, S_SIGNAL, 4, **NETWORKS)
    background = TOKENS[:2]
    wanted = model.importance(TOKENS[:N_ROWS], background=background)
    for found in over_workers(model, TOKENS, 3, background=background):
        assert found.names == wanted.names
        np.testing.assert_allclose(found.values, wanted.values, rtol=1e-3, atol=1e-6)


def test_shares_may_be_narrow_and_frames_may_lack_values():
    model = train(SPARSE, S_SIGNAL, 4, **NETWORKS)
    shares = [SPARSE[:10, :12], SPARSE[10:20]]
    whole = SPARSE[:20].toarray()
    whole[:10, 12:] = 0.0
    wanted = model.importance(scipy.sparse.csr_array(whole))
    for found in in_threads(2, lambda c: model.importance(shares[c.rank], collective=c, n_jobs=1)):
        np.testing.assert_allclose(found.values, wanted.values, rtol=1e-3, atol=1e-6)
    frame, y = FORMS["frame"]
    model = train(frame, y, 4, **TREES)
    parts = [frame[frame["town"].isna()][:6], frame[frame["town"].notna()][:6]]
    wanted = model.importance(pd.concat(parts))
    for found in in_threads(2, lambda c: model.importance(parts[c.rank], collective=c, n_jobs=1)):
        np.testing.assert_allclose(found.values, wanted.values, rtol=1e-6)


def test_bad_input_is_refused_on_all_workers():
    model = train(X, X[:, 0], 2, **NETWORKS)
    with pytest.raises(ValueError, match="X has no rows"):
        in_threads(2, lambda c: model.importance(X[:0], collective=c))
    with pytest.raises(ValueError, match="X has no rows"):
        model.importance(X[:0], collective=Solo())

    def one_is_wrong(collective):
        try:
            model.importance(X[:4, : 5 - collective.rank], collective=collective)
        except Exception as error:
            return type(error).__name__, str(error)

    first, second = in_threads(2, one_is_wrong)
    assert second == ("ValueError", "X has 4 features, the model was trained on 5")
    assert first == ("WorkerError", f"worker 1 of 2 failed: ValueError: {second[1]}")
    for kind in ("gain", "permutation"):
        with pytest.raises(ValueError, match=f"kind='{kind}' is that of one process"):
            in_threads(2, lambda c, kind=kind: model.importance(X, X[:, 0], kind=kind, collective=c))
