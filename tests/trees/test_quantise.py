import numpy as np
import pytest

from gbun.trees.histogram import add_histogram, count_items, sum_items
from gbun.trees.quantise import (
    MOST_G,
    MOST_H,
    MOST_SUM,
    N_SIZES,
    REFUSED,
    TOO_MANY,
    check_exponent,
    count_sizes,
    find_exponent,
    make_items,
)
from tests.trees import plain_trees


def sizes_of(values, signed=True):
    counts = np.zeros(N_SIZES, dtype=np.int64)
    count_sizes(values.view(np.uint32), 0, len(values), signed, counts)
    return counts


@pytest.mark.parametrize("scale", [1e-44, 1e-38, 1e-10, 1.0, 0.25, 3.0, 1e10, 3e37])
@pytest.mark.parametrize("n", [1, 7, 1000, 100_000])
def test_scales_use_the_range_and_never_exceed_it(scale, n):
    g = (np.random.default_rng(n).uniform(-1, 1, n) * scale).astype(np.float32)
    for values, most in ((g, MOST_G), (np.abs(g), MOST_H)):
        e = find_exponent(sizes_of(values), most, MOST_SUM)
        assert e == plain_trees.exponent(values, most)
        q = np.floor(values * np.float32(2.0**e) + np.float32(0.5)).astype(np.int64)
        assert np.abs(q).max() <= most
        assert np.abs(q).sum() <= MOST_SUM
        if scale > 1e-30:
            assert np.abs(q).max() > most / 4 or np.abs(q).sum() > MOST_SUM / 4


def test_zeros_do_not_count_and_order_does_not_matter():
    g = np.random.default_rng(0).normal(size=500).astype(np.float32)
    with_zeros = np.concatenate([g[::-1], np.zeros(300, dtype=np.float32), -np.zeros(200, dtype=np.float32)])
    np.testing.assert_array_equal(sizes_of(g), sizes_of(with_zeros))
    np.testing.assert_array_equal(sizes_of(np.abs(g)), sizes_of(np.abs(with_zeros), signed=False))


@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite(value):
    e = find_exponent(sizes_of(np.array([1.0, value], dtype=np.float32)), MOST_G, MOST_SUM)
    assert e == REFUSED
    with pytest.raises(ValueError, match="finite"):
        check_exponent(e)


def test_negative_hessians_and_too_many_rows():
    assert find_exponent(sizes_of(np.array([-1e-40], dtype=np.float32), signed=False), MOST_H, MOST_SUM) == REFUSED
    counts = sizes_of(np.ones(1, dtype=np.float32)) * 2**33
    e = find_exponent(counts, MOST_G, MOST_SUM)
    assert e == TOO_MANY
    with pytest.raises(ValueError, match="rows"):
        check_exponent(e)


def test_nothing_counted():
    assert find_exponent(np.zeros(N_SIZES, dtype=np.int64), MOST_G, MOST_SUM) > 0


def items_of(n, seed=0):
    rng = np.random.default_rng(seed)
    q_g, q_h = rng.integers(-32767, 32768, n), rng.integers(0, 65536, n)
    items = np.empty(n, dtype=np.int64)
    make_items(q_g.astype(np.float32), q_h.astype(np.float32), np.float32(1), np.float32(1), 0, n, items)
    return q_g, q_h, items


def test_items_hold_row_gradient_and_hessian():
    q_g, q_h, items = items_of(1000)
    np.testing.assert_array_equal(items >> 32, np.arange(1000))
    np.testing.assert_array_equal((items >> 16 & 0xFFFF).astype(np.int16), q_g)
    np.testing.assert_array_equal(items & 0xFFFF, q_h)
    assert sum_items(items, 0, 1000) == (int(q_g.sum()) << 32) + int(q_h.sum())
    items[::3] = items[::3] >> 32 << 32
    assert count_items(items, 0, 1000) == np.count_nonzero(items & 0xFFFFFFFF)


@pytest.mark.parametrize("n_columns", [1, 5, 7, 8, 9, 24, 63, 64, 65, 130])
@pytest.mark.parametrize("share", [1.0, 0.5, 0.05])
def test_histograms(n_columns, share):
    n, rng = 900, np.random.default_rng(0)
    q_g, q_h, items = items_of(n)
    rows, columns = plain_trees.make_rows(n, n_columns)
    picked = np.flatnonzero(rng.random(n) < share)
    kept, sums = items[picked], np.full(64 * n_columns, 7, dtype=np.int64)
    add_histogram(kept, 0, len(kept), rows.reshape(-1).view(np.uint64), rows.shape[1] // 8, n_columns, sums)
    packed = (q_g << 32) + q_h
    expected = np.full((n_columns, 64), 7, dtype=np.int64)
    for j in range(n_columns):
        np.add.at(expected[j], columns[j, picked], packed[picked])
    np.testing.assert_array_equal(sums.reshape(n_columns, 64), expected)
