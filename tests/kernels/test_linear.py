"""Sums of the linear start: products with a matrix, for any number of threads."""

from __future__ import annotations

import numpy as np
import pytest

from gbun.data.buckets import Buckets
from gbun.data.features import Entries, Features
from gbun.kernels.linear import LinearRows
from gbun.kernels.threads import ThreadPool, thread_pool


def make_rows(form, n):
    """Return rows, some of them empty, their buckets, and the same as the matrix phi and its squares."""
    rng = np.random.default_rng(0)
    D = rng.normal(size=(n, 3 if form in ("dense", "both") else 0)).astype(np.float32)
    if form == "dense":
        return Features(n, D), None, D.astype(float), D.astype(float) ** 2
    lengths = rng.integers(0, 6, size=n) * (np.arange(n) % 4 > 0)
    ids = rng.integers(0, 9, size=lengths.sum()) * (2**55 if form == "hashed" else 1)
    E = Entries(np.append(0, np.cumsum(lengths)), ids, rng.normal(size=len(ids)).astype(np.float32))
    buckets = Buckets(4, hashed=True) if form == "hashed" else Buckets(9)  # nine features share four buckets
    (places, signs), phi, squares = buckets.place(ids), np.zeros((n, buckets.n)), np.zeros((n, buckets.n))
    values = E.values.astype(float) * (1.0 if signs is None else signs)
    np.add.at(phi, (E.row_of_entry, places), values)
    np.add.at(squares, (E.row_of_entry, places), values**2)
    D64, both = D.astype(float), D if form == "both" else None
    return Features(n, both, E), buckets, np.hstack([D64, phi]), np.hstack([D64**2, squares])


@pytest.mark.usefixtures("handed_over")
@pytest.mark.parametrize("C", [1, 3])
@pytest.mark.parametrize("n", [0, 1, 50, 9000])  # the last in three pieces
@pytest.mark.parametrize("form", ["dense", "sparse", "both", "hashed"])
def test_sums_are_products_with_a_matrix_for_any_threads_and_rows_alone(form, n, C):
    (features, buckets, phi, squares), rng = make_rows(form, n), np.random.default_rng(1)
    shapes = ((phi.shape[1], C), (n, C), n)
    weights, g, h = (rng.normal(size=shape).astype(np.float32).astype(float) for shape in shapes)
    found = []
    for n_jobs in (1, 2, 4):
        with thread_pool(n_jobs) as pool:
            rows = LinearRows(features, buckets, pool)
            found.append((rows.scores(weights), rows.gradient(g), rows.curvature(h)))
    for first, *repeated, wanted in zip(*found, (phi @ weights, phi.T @ g, h @ squares), strict=True):
        np.testing.assert_allclose(first, wanted, atol=1e-5 if wanted.shape == (n, C) else 1e-9)  # scores in float32
        for other in repeated:
            np.testing.assert_array_equal(other, first)
    for i in np.unique(np.array([0, 1, 5, 4095, 4096, 8999]).clip(max=n - 1))[: 6 * n]:
        alone = LinearRows(features.take(np.array([i])), buckets, ThreadPool(1)).scores(weights)
        np.testing.assert_array_equal(alone[0], found[0][0][i])
