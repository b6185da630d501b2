import numpy as np
import pytest

from gbun.kernels.threads import thread_pool
from gbun.trees.leaf_sums import leaf_sums
from tests.trees.plain_trees import among_workers


@pytest.mark.parametrize("n_workers", [1, 2, 3, 7])
@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_sums_are_the_same_for_any_division(n_workers, n_threads):
    rng = np.random.default_rng(0)
    values = (rng.normal(size=(1000, 4)) * [1e-20, 1.0, 1e20, 0.0]).astype(np.float32)
    leaf = rng.integers(0, 9, 1000).astype(np.uint8)
    ends = [0, *sorted(rng.integers(0, 1000, n_workers - 1).tolist()), 1000]

    def job(worker, reduce):
        rows = slice(ends[worker], ends[worker + 1])
        with thread_pool(n_threads) as threads:
            return leaf_sums(values[rows], leaf[rows], 9, threads, reduce)

    with thread_pool(1) as threads:
        alone = leaf_sums(values, leaf, 9, threads, lambda array: array)
    expected = [values[leaf == k].sum(axis=0, dtype=np.float64) for k in range(9)]
    assert np.all(np.abs(alone - expected) <= 1e-7 * np.abs(values).sum(axis=0, dtype=np.float64))
    for found in among_workers(n_workers, job):
        np.testing.assert_array_equal(found, alone)


def test_what_cannot_be_summed_is_refused():
    values, leaf = np.ones((3, 2), dtype=np.float32), np.array([0, 1, 2], dtype=np.uint8)
    with thread_pool(1) as threads:
        with pytest.raises(ValueError, match="leaf_of_row"):
            leaf_sums(values, leaf, 2, threads, lambda array: array)
        values[1, 1] = np.nan
        with pytest.raises(ValueError, match="finite"):
            leaf_sums(values, leaf, 3, threads, lambda array: array)
