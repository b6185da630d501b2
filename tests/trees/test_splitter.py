import numpy as np
import pytest

from gbun.trees.splitter import PROJECTION_BINS, ROOM, SPLIT, find_split
from tests.trees import plain_trees


def histograms(columns, q_g, q_h):
    sums = np.zeros((len(columns), 64), dtype=np.int64)
    for j, column in enumerate(columns):
        np.add.at(sums[j], column, (q_g << 32) + q_h)
    return sums.ravel()


def found_by(columns, is_bundle, n_base, q_g, q_h, penalty, min_rows, n_categories=0, variance=0.0):
    split = np.zeros(1, dtype=SPLIT)
    n = np.count_nonzero((q_g != 0) | (q_h != 0))
    find_split(
        histograms(columns, q_g, q_h), 0, len(columns), n_base - n_categories, n_base, is_bundle, q_g.sum(), q_h.sum(),
        n, penalty, float(min_rows), variance, np.empty(ROOM, dtype=np.int64), split[0],
    )  # fmt: skip
    return split[0]


@pytest.mark.parametrize("seed", range(60))
def test_the_best_of_all_candidates(seed):
    rng = np.random.default_rng(seed)
    n, n_base, p = int(rng.integers(2, 200)), int(rng.integers(1, 6)), int(rng.integers(0, 3))
    columns = rng.integers(0, rng.integers(2, 65), (n_base + p, n)).astype(np.uint8)
    columns[n_base:] = rng.integers(1, PROJECTION_BINS + 1, (p, n))
    columns[:n_base][rng.random(n_base) < 0.3] += 1
    np.minimum(columns, 63, out=columns)
    is_bundle = rng.random(n_base) < 0.3
    top = int(rng.choice([3, 1000]))  # few values: many ties
    q_g, q_h = rng.integers(-top, top + 1, n), rng.integers(0, top + 1, n)
    penalty, min_rows = float(rng.choice([0.0, 10.0])), int(rng.choice([0, 1, 10]))
    split = found_by(columns, is_bundle, n_base, q_g, q_h, penalty, min_rows)
    rows = np.arange(n)
    expected = plain_trees.best_split(columns, is_bundle, n_base, q_g, q_h, rows, penalty, min_rows)
    if expected is None:
        assert split["column"] == -1
        assert split["gain"] == 0
        return
    gain, column, b, right, goes_left = expected
    assert (split["gain"], split["column"], split["bin"]) == (gain, column, b)
    left = goes_left[columns[column]]
    assert (split["left_g"], split["left_h"]) == (q_g[left].sum(), q_h[left].sum())
    if column < n_base and not is_bundle[column]:
        assert split["missing_right"] == right


@pytest.mark.parametrize("seed", range(60))
def test_the_best_of_all_subsets_there_are(seed):
    rng = np.random.default_rng(seed)
    n, n_base, c = int(rng.integers(2, 300)), int(rng.integers(1, 5)), int(rng.integers(1, 4))
    columns = rng.integers(0, rng.choice([2, 4, 7, 64]), (n_base + c + 1, n)).astype(np.uint8)
    columns[-1] = rng.integers(1, PROJECTION_BINS, n)
    top = int(rng.choice([3, 1000]))
    effect = rng.integers(-top, top + 1, 64)
    q_g = rng.integers(-top, top + 1, n) + effect[columns[n_base]] * int(rng.integers(0, 2))
    q_h, variance = rng.integers(0, top + 1, n), float(rng.choice([0.0, top]))
    is_bundle, penalty, min_rows = np.zeros(n_base + c, dtype=bool), float(rng.choice([0.0, 10.0])), 1
    split = found_by(columns, is_bundle, n_base + c, q_g, q_h, penalty, min_rows, c, variance)
    expected = plain_trees.best_split(
        columns, is_bundle, n_base + c, q_g, q_h, np.arange(n), penalty, min_rows, n_base, variance
    )
    if expected is None:
        assert split["column"] == -1
        return
    gain, column, b, right, goes_left = expected
    assert (split["gain"], split["column"], split["bin"]) == (gain, column, b)
    left = goes_left[columns[column]]
    assert (split["left_g"], split["left_h"]) == (q_g[left].sum(), q_h[left].sum())
    is_category = n_base <= column < n_base + c
    assert int(split["mask"]) == (plain_trees.to_mask(goes_left) if is_category else 0)
    if is_category:
        assert split["missing_right"] == right


def test_a_subset_no_single_category_can_make():
    column = np.repeat(np.arange(1, 9, dtype=np.uint8), 50)[None]
    odd = column[0] % 2 == 1
    split = found_by(column, np.zeros(1, dtype=bool), 1, np.where(odd, 90, -90), np.full(400, 10), 1.0, 1, 1)
    seen = sum(1 << int(b) for b in range(1, 9))
    assert int(split["mask"]) & seen == sum(1 << b for b in (2, 4, 6, 8))
    assert split["left_h"] == 2000


def test_bins_without_rows_go_to_the_heavier_side():
    column = np.repeat(np.array([[3, 9]], dtype=np.uint8), 10, axis=1)
    for heavier in (3, 9):
        h = np.where(column[0] == heavier, 5, 4)
        split = found_by(column, np.zeros(1, dtype=bool), 1, np.where(column[0] == 3, 50, -50), h, 1.0, 1, 1)
        mask = int(split["mask"])
        assert (mask >> 3 & 1) != (mask >> 9 & 1)
        assert all((mask >> b & 1) == (mask >> heavier & 1) for b in (0, 1, 40, 63))


def test_chance_alone_is_not_worth_a_subset():
    rng = np.random.default_rng(0)
    column = rng.integers(1, 41, (1, 4000)).astype(np.uint8)
    g, h = rng.normal(scale=100, size=4000).astype(int), np.full(4000, 100)
    arguments = column, np.zeros(1, dtype=bool), 1, g, h, 1.0, 1, 1
    single = lambda split: (int(split["mask"]) & ((1 << 41) - 2)).bit_count() in (1, 39)  # noqa: E731
    assert not single(found_by(*arguments, variance=0.0))
    assert single(found_by(*arguments, variance=(g.astype(float) ** 2).sum() / h.sum()))


def test_missing_against_all_others_and_where_none_was_seen():
    column = np.repeat(np.array([[0, 3, 9]], dtype=np.uint8), 10, axis=1)
    g, h = np.where(column[0] == 0, 50, -50), np.full(30, 5)
    split = found_by(column, np.zeros(1, dtype=bool), 1, g, h, 1.0, 1)
    assert (split["column"], split["left_h"], split["missing_right"]) == (0, 50, 0)  # no value is in bin 1
    column[:, 5:15] = 1  # now some are
    g = np.where(column[0] == 0, 50, -50)
    split = found_by(column, np.zeros(1, dtype=bool), 1, g, h, 1.0, 1)
    assert (split["column"], split["bin"], split["missing_right"]) == (0, 9, 1)
    seen = np.repeat(np.array([[3, 9]], dtype=np.uint8), 10, axis=1)
    for weight_left, right in ((5, 1), (1, 1), (9, 0)):
        h = np.where(seen[0] == 3, weight_left, 5 if weight_left != 5 else 6)
        split = found_by(seen, np.zeros(1, dtype=bool), 1, np.where(seen[0] == 3, 50, -50), h, 1.0, 1)
        assert (split["bin"], split["missing_right"]) == (3, right)


def test_gains_are_those_of_the_formula():
    rng = np.random.default_rng(0)
    column = rng.integers(1, 9, (1, 300)).astype(np.uint8)
    g, h = rng.integers(-1000, 1001, 300) + 300 * (column[0] > 4), rng.integers(1, 1000, 300)
    split = found_by(column, np.zeros(1, dtype=bool), 1, g, h, 50.0, 1)
    left = column[0] <= split["bin"]
    term = lambda rows: g[rows].sum() ** 2 / (h[rows].sum() + 50.0)  # noqa: E731
    assert split["gain"] == pytest.approx(term(left) + term(~left) - term(slice(None)))


def test_no_split_of_noise_alone():
    column = np.arange(1, 64, dtype=np.uint8)[None]
    g, h = np.full(63, 12345), np.full(63, 777)
    assert found_by(column, np.zeros(1, dtype=bool), 1, g, h, 0.0, 0)["column"] == -1
